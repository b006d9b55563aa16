"""What tests of security share: a certificate authority, and brokers that ask who somebody is."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

import halfmoon.testing
from halfmoon.auth.scram import MECHANISMS, MIN_ITERATIONS, salted_password
from halfmoon.services.credentials.users import Upsertion
from tests import several_workers
from tests.cli.conftest import cli as cli
from tests.security.authority import Authority
from tests.security.provider import Provider


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


class Secured:
    """A broker with SASL on one listener, by TLS or without."""

    def __init__(
        self,
        authority: Authority,
        *,
        tls: bool,
        sasl: list[str],
        http: dict[str, Any] | None = None,
        listeners: dict[str, Any] | None = None,
        plugins: Sequence[Any] = (),
        **more: Any,
    ) -> None:
        listener: dict[str, Any] = {"bind": "127.0.0.1:0", "sasl": sasl}
        if tls:
            listener["tls"] = authority.pair("broker")
        self.tls = tls
        self.authority = authority
        doors = {"kafka": listener, "http": http, **(listeners or {})}
        self.broker = halfmoon.testing.Broker(config={"listeners": doors, **more}, plugins=list(plugins))

    @property
    def app(self) -> Any:
        assert self.broker.app is not None
        return self.broker.app

    def in_loop(self, work: Callable[[], Any]) -> Any:
        """What it returns, called in the broker's loop."""
        assert self.app is not None
        done: Future[Any] = Future()

        def call() -> None:
            try:
                done.set_result(work())
            except Exception as error:
                done.set_exception(error)

        assert self.broker._loop is not None
        self.broker._loop.call_soon_threadsafe(call)
        return done.result(20)

    def user(self, name: str, password: str) -> None:
        made = []
        for mechanism in MECHANISMS.values():
            salt = os.urandom(16)
            salted = salted_password(mechanism, password, salt, MIN_ITERATIONS)
            made.append(Upsertion(name, mechanism.number, MIN_ITERATIONS, salt, salted))
        if several_workers.WORKERS:
            self.broker.administrators[0].set_passwords(made)
        else:
            self.in_loop(lambda: self.app.node.users.create(name, made))


Secure = Callable[..., Secured]


@pytest.fixture
def provider(authority: Authority) -> Iterator[Provider]:
    """Of access tokens."""
    with Provider(authority).running() as running:
        yield running


@pytest.fixture
def secured(authority: Authority) -> Iterator[Secure]:
    started: list[Secured] = []

    def start(*sasl: str, tls: bool = False, **more: Any) -> Secured:
        made = Secured(authority, tls=tls, sasl=list(sasl) or ["SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN"], **more)
        made.broker.start()
        started.append(made)
        return made

    yield start
    for each in started:
        each.broker.stop()
