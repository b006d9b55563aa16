"""SCRAM with Kafka's own classes: its client logs in at our server, by password and by delegation token, and our client
at its server."""

from __future__ import annotations

import subprocess
from base64 import b64decode, b64encode
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from halfmoon.auth.delegation import token_credential, token_hmac, token_password
from halfmoon.auth.errors import AuthenticationError
from halfmoon.auth.principals import user
from halfmoon.auth.scram import MECHANISMS, Found, Login, Mechanism, ScramClient, ScramServer, make_credential
from tests.interop.java_programs import jars, source

pytestmark = pytest.mark.interop
NAMES = ["alice", "a,b", "x=y", "=2C,=3D"]
BOTH = pytest.mark.parametrize("mechanism", MECHANISMS.values(), ids=lambda each: each.name)


class Kafka:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def hear(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def said(self) -> bytes:
        return b64decode(self.hear())

    def tell(self, message: bytes) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(b64encode(message).decode() + "\n")
        self._process.stdin.flush()


@contextmanager
def kafka(half: str, mechanism: Mechanism, name: str, password: str, more: str = "-") -> Iterator[Kafka]:
    command = ["java", "-XX:TieredStopAtLevel=1", "-cp", f"{jars('kafka')}/*", source("kafka", "Scram.java"), half]
    with subprocess.Popen(
        [*command, mechanism.name, name, password, more], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        stderr=subprocess.DEVNULL,
    ) as process:  # fmt: skip
        try:
            yield Kafka(process)
        finally:
            process.kill()


@BOTH
@pytest.mark.parametrize("name", NAMES)
def test_kafkas_client_logs_in_here(mechanism: Mechanism, name: str) -> None:
    found = Found(make_credential(mechanism, "s3crét", b"salt of the test"), user(name))
    served = ScramServer(mechanism, lambda asked, _: found if asked == name else None, "server-nonce", b"key")
    with kafka("client", mechanism, name, "s3crét", "false") as client:
        client.tell(served.first(client.said()))
        client.tell(served.final(client.said()))
        assert client.hear() == "done"
    assert served.login == Login(user(name))


@BOTH
def test_kafkas_client_logs_in_here_by_a_token(mechanism: Mechanism) -> None:
    token = "Mv37b2eUTYqvL0TKCBmJyA"
    found = Found(token_credential(mechanism, b"secret", token), user("owner"), expires_ms=5)
    served = ScramServer(mechanism, lambda _, is_token: found if is_token else None, "server-nonce", b"key")
    with kafka("client", mechanism, token, token_password(token_hmac(b"secret", token)), "true") as client:
        client.tell(served.first(client.said()))
        client.tell(served.final(client.said()))
        assert client.hear() == "done"
    assert served.login == Login(user("owner"), token, 5)


@BOTH
def test_kafkas_client_with_a_wrong_password_and_one_that_is_unknown(mechanism: Mechanism) -> None:
    found = Found(make_credential(mechanism, "s3cret", b"salt of the test"), user("alice"))
    for known in (found, None):
        served = ScramServer(mechanism, lambda *_, known=known: known, "server-nonce", b"key")  # type: ignore[misc]
        with kafka("client", mechanism, "alice", "wrong", "false") as client:
            client.tell(served.first(client.said()))
            with pytest.raises(AuthenticationError):
                served.final(client.said())


@BOTH
@pytest.mark.parametrize("name", NAMES)
def test_we_log_in_at_kafkas_server(mechanism: Mechanism, name: str) -> None:
    client = ScramClient(mechanism, name, "s3crét", "client-nonce")
    with kafka("server", mechanism, name, "s3crét") as server:
        server.tell(client.first())
        server.tell(client.final(server.said()))
        client.verify(server.said())
        assert server.hear() == "done"
