"""Outbox and inbox in Django, with PostgreSQL and SQLite; the channel to the broker is made up. Django has one
configuration in a process, so each test sets up databases of its own under new aliases."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from halfmoon.outbox import State
from tests.outbox.fakes import FakeChannel, Steps
from tests.outbox.servers import new_database

django = pytest.importorskip("django", reason="Django is not installed")

from django.conf import settings  # noqa: E402
from django.db import IntegrityError, connections, transaction  # noqa: E402

if not settings.configured:
    settings.configure(DATABASES={}, USE_TZ=True)
    django.setup()

from halfmoon.outbox.django import Inbox, Outbox  # noqa: E402

NOW = datetime(2026, 1, 1, tzinfo=UTC)
_numbers = itertools.count()


class World:
    def __init__(self, alias: str) -> None:
        self.alias = alias
        self.steps = Steps()
        self.channel = FakeChannel(self.steps)
        self.now = NOW
        producer = SimpleNamespace(outbox_channel=lambda group: self.channel)
        self.outbox = Outbox("shop", producer, using=alias, commit_within_s=30, now=lambda: self.now)
        self.inbox = Inbox("billing", using=alias, now=lambda: self.now)
        for _ in range(2):
            self.outbox.create_table()
            self.inbox.create_table()

    def execute(self, statement: str) -> list[tuple[Any, ...]]:
        with connections[self.alias].cursor() as cursor:
            cursor.execute(statement)
            return list(cursor.fetchall()) if cursor.description else []

    def rows(self) -> list[tuple[Any, ...]]:
        return self.execute("SELECT transaction_id, state FROM halfmoon_outbox ORDER BY 1")


@pytest.fixture(params=["postgresql", "sqlite"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    alias = f"shop_{next(_numbers)}"
    found: dict[str, Any] = {"ENGINE": "django.db.backends.sqlite3", "NAME": str(tmp_path / "shop.sqlite")}
    if request.param == "postgresql":
        from psycopg.conninfo import conninfo_to_dict

        said = conninfo_to_dict(new_database())
        found = {
            "ENGINE": "django.db.backends.postgresql", "NAME": said["dbname"], "USER": said["user"],
            "HOST": said["host"], "PORT": said["port"],
        }  # fmt: skip
    connections.settings[alias] = connections.configure_settings({"default": {}, alias: found})[alias]
    made = World(alias)
    made.execute("CREATE TABLE orders (number INTEGER PRIMARY KEY)")
    yield made
    connections[alias].close()
    del connections[alias]
    del connections.settings[alias]


def message(offset: int, timestamp: int = 1_000) -> Any:
    return SimpleNamespace(
        topic="orders", partition=0, offset=offset, key=None, value=b"v", headers=[], timestamp=timestamp
    )


def test_row_and_work_are_one_transaction_with_its_hooks(world: World) -> None:
    hooks: list[int] = []
    with world.outbox.transaction(transaction_id="t") as tx:
        world.execute("INSERT INTO orders VALUES (7)")
        transaction.on_commit(lambda: hooks.append(len(world.channel.delivered)), using=world.alias)
        with transaction.atomic(world.alias):
            tx.send("orders", b"7")
        assert world.steps.taken == []
    assert world.steps.taken == ["half messages", "committed"]
    assert world.execute("SELECT number FROM orders") == [(7,)]
    assert world.rows() == [("t", "committed")]
    assert hooks == [0]
    assert world.outbox.answer("t#0") is State.COMMITTED


def test_what_fails_is_rolled_back(world: World) -> None:
    with pytest.raises(RuntimeError, match="mine"), world.outbox.transaction() as tx:
        world.execute("INSERT INTO orders VALUES (7)")
        tx.send("orders", b"7")
        raise RuntimeError("mine")
    world.steps.failures["half messages"] = RuntimeError("refused")
    with pytest.raises(RuntimeError, match="refused"), world.outbox.transaction() as tx:
        world.execute("INSERT INTO orders VALUES (7)")
        tx.send("orders", b"7")
    del world.steps.failures["half messages"]
    with pytest.raises(IntegrityError), world.outbox.transaction() as tx:
        tx.send("orders", b"7")
        for _ in range(2):
            world.execute("INSERT INTO orders VALUES (7)")
    with pytest.raises(transaction.TransactionManagementError), world.outbox.transaction() as tx:
        world.execute("INSERT INTO orders VALUES (7)")
        tx.send("orders", b"7")
        transaction.set_rollback(True, world.alias)
    assert (world.rows(), world.execute("SELECT * FROM orders"), world.channel.delivered) == ([], [], [])


def test_an_abandoned_one_is_refused(world: World) -> None:
    assert world.outbox.answer("late#0") is State.ABANDONED
    with pytest.raises(IntegrityError), world.outbox.transaction(transaction_id="late") as tx:
        world.execute("INSERT INTO orders VALUES (7)")
        tx.send("orders", b"7")
    assert (world.channel.delivered, world.execute("SELECT * FROM orders")) == ([], [])
    assert world.outbox._database.abandon("shop", "late", NOW) is False


def test_only_as_the_outermost_block(world: World) -> None:
    with (
        transaction.atomic(world.alias),
        pytest.raises(RuntimeError, match="durable"),
        world.outbox.transaction(),
    ):
        raise AssertionError
    with pytest.raises(TypeError, match="one connection"), world.outbox.transaction("default"):
        raise AssertionError


def test_the_inbox(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    for skipping in ({"postgresql", "sqlite"}, set()):
        monkeypatch.setattr("halfmoon.outbox.django.SKIPPING", skipping)
        base = 0 if skipping else 100
        for offset, timestamp, expected in ((7, 1, True), (7, 1, False), (7, 2, True), (8, 1, True)):
            with transaction.atomic(world.alias):
                assert world.inbox.once(message(base + offset, timestamp)) is expected
    with pytest.raises(ValueError, match=r"transaction\.atomic"):
        world.inbox.once(message(9))
    handled: list[int] = []

    def pay(record: Any) -> None:
        handled.append(record.offset)
        world.execute("INSERT INTO orders VALUES (1)")

    handle = world.inbox.handler(pay)
    handle(message(20))
    handle(message(20))
    for _ in range(2):
        with pytest.raises(IntegrityError):
            handle(message(21))
    assert handled == [20, 21, 21]


def test_old_rows_are_removed(world: World) -> None:
    for day in range(7):
        world.now = NOW + timedelta(days=day)
        world.outbox.answer(f"day {day}#0")
        with transaction.atomic(world.alias):
            world.inbox.once(message(day))
    world.now = NOW + timedelta(days=7)
    assert world.outbox.clean(timedelta(days=2)) == world.inbox.clean(timedelta(days=2)) == 5
    assert [name for name, _ in world.rows()] == ["day 5", "day 6"]
    assert world.outbox.clean() == world.inbox.clean() == 0
