"""kill −9 of a shop in each step of its outbox, and of shop and broker at any moment: an order that the database has is
delivered once, with all its messages; one that it does not have is not delivered."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from confluent_kafka import Consumer, Producer

from halfmoon.outbox.psycopg import Outbox
from halfmoon.testing import Broker
from tests.chance import seeded
from tests.crash.load import QUICK
from tests.crash.serving import Serving, wait_until
from tests.outbox.program import MESSAGES, STEPS
from tests.outbox.servers import new_database

ROOT = Path(__file__).parents[2]
LIBRARIES = ["sqlalchemy", "psycopg", "aio-sqlalchemy", "aio-psycopg"]
WAIT_S = 60.0


@contextmanager
def shop(library: str, dsn: str, servers: str, name: str, step: str = "") -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-W", "error", "-m", "tests.outbox.program", library, dsn, servers, name, step]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "ready\n"
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.fixture
def dsn() -> str:
    found = new_database()
    with psycopg.connect(found) as connection:
        connection.execute("CREATE TABLE orders (name TEXT PRIMARY KEY)")
    Outbox("shop", Producer({"bootstrap.servers": "127.0.0.1:1", "log_level": 0}), found).create_table()
    return found


def orders(dsn: str) -> set[str]:
    with psycopg.connect(dsn) as connection:
        return {name for (name,) in connection.execute("SELECT name FROM orders")}


@contextmanager
def answering(dsn: str, servers: str) -> Iterator[None]:
    """Another program of the group, which answers for those who died."""
    outbox = Outbox("shop", Producer({"bootstrap.servers": servers, "linger.ms": 0, **QUICK}), dsn)
    consumer = Consumer(
        {
            "bootstrap.servers": servers, "group.id": "shop-checks", "auto.offset.reset": "earliest",
            "enable.auto.commit": False, **QUICK,
        }
    )  # fmt: skip
    loop = outbox.check_back_loop(consumer)
    thread = threading.Thread(target=loop.run)
    thread.start()
    try:
        yield
        assert thread.is_alive(), "it has ended before it was told to"
    finally:
        loop.stop()
        thread.join(WAIT_S)


def delivered(servers: str, is_complete: Callable[[Counter[str]], bool]) -> Counter[str]:
    """Messages of the topic, until there are as many as there should be, and a moment longer."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "look", "auto.offset.reset": "earliest", **QUICK})
    consumer.subscribe(["orders"])
    found: Counter[str] = Counter()

    def read(wait_s: float) -> None:
        for message in consumer.consume(1_000, timeout=wait_s):
            if message.error() is None:
                found[message.value().decode()] += 1

    def poll() -> bool:
        read(0.2)
        return is_complete(found)

    wait_until(poll, WAIT_S, "all messages")
    read(1.5)
    consumer.close()
    return found


def messages_of(names: set[str]) -> Counter[str]:
    return Counter(f"{name}/{index}" for name in names for index in range(MESSAGES))


@pytest.mark.timeout(180)
@pytest.mark.parametrize("library", LIBRARIES)
def test_in_each_step(library: str, dsn: str) -> None:
    config: dict[str, Any] = {
        "plugins": {"transaction": {"timeout": "300ms", "check_interval": "300ms", "check_max": 100}},
    }
    with Broker(config=config) as broker:
        servers = broker.bootstrap_servers
        Producer({"bootstrap.servers": servers}).list_topics("orders", timeout=20)
        for step in STEPS:
            with shop(library, dsn, servers, step.replace(" ", "-"), step) as process:
                assert process.wait(WAIT_S) == -signal.SIGKILL
        expected = {"commit-0", "end-0"}
        assert orders(dsn) == expected
        with answering(dsn, servers):
            found = delivered(servers, lambda found: found.total() >= MESSAGES * len(expected))
    assert found == messages_of(expected)
    with psycopg.connect(dsn) as connection:
        (abandoned,) = connection.execute("SELECT count(*) FROM halfmoon_outbox WHERE state = 'abandoned'").fetchall()
    assert abandoned[0] in (1, 2), "`half messages`, and `half message` where it was stored"


@pytest.mark.timeout(300)
def test_shop_and_broker_at_any_moment(dsn: str, tmp_path: Path) -> None:
    dice = seeded()
    serving = Serving(
        tmp_path, log_flush="sync", plugins_transaction_timeout="500ms", plugins_transaction_check_interval="500ms",
        plugins_transaction_check_max="200", topics_partitions="2",
    )  # fmt: skip
    serving.start()
    told: set[str] = set()
    try:
        with answering(dsn, serving.address):
            for life in range(8):
                library = LIBRARIES[life % 2]
                with shop(library, dsn, serving.address, f"life {life}") as process:
                    assert process.stdout is not None
                    for _ in range(dice.randrange(1, 30)):
                        told.add(process.stdout.readline().strip())
                    if life % 3 == 1:
                        serving.kill()
                        serving.start()
                        told.add(process.stdout.readline().strip())
                    threading.Event().wait(dice.random() / 100)
                    process.kill()
                    told |= {line.strip() for line in process.stdout.read().splitlines() if line.strip()}
            expected = orders(dsn)
            assert told <= expected
            found = delivered(serving.address, lambda found: found.total() >= MESSAGES * len(expected))
    finally:
        serving.stop()
    assert found == messages_of(expected)
