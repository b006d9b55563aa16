"""docs/outbox.md and docs/consumer-loop.md: their programs run as they stand, but for addresses, topics and groups."""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

import halfmoon.testing
from halfmoon.kafka import ConsumerLoop, DeadLetter, Nack, TransactionalOutbox, attempts
from halfmoon.kafka.handling import BACKOFF_S, MOST_BACKOFF_S
from halfmoon.kafka.loop import BATCH
from tests.outbox.servers import for_sqlalchemy, new_database

sqlalchemy = pytest.importorskip("sqlalchemy", reason="SQLAlchemy is not installed: pip install 'halfmoon[outbox]'")

from halfmoon.outbox import BaseOutbox, inbox_sql, outbox_sql  # noqa: E402
from halfmoon.outbox.messages import MOST_MESSAGES  # noqa: E402
from halfmoon.outbox.outbox import COMMIT_WITHIN_S, TIMEOUT_S  # noqa: E402
from halfmoon.outbox.rocketmq import MOST_MESSAGES as MOST_OF_ROCKETMQ  # noqa: E402
from halfmoon.outbox.table import KEEP  # noqa: E402

ROOT = Path(__file__).parents[1]
OUTBOX = (ROOT / "docs/outbox.md").read_text(encoding="utf-8")
LOOP = (ROOT / "docs/consumer-loop.md").read_text(encoding="utf-8")
_PROGRAM = re.compile(r"<!-- test: ([^\n]+) -->\n```python\n(.*?)```", re.DOTALL)
PROGRAMS = dict(_PROGRAM.findall(OUTBOX))
LOOPS = dict(_PROGRAM.findall(LOOP))
DJANGO = {mark.removeprefix("django "): text for mark, text in PROGRAMS.items() if mark.startswith("django ")}
CLIENTS = ["confluent-kafka", "kafka-python", "aiokafka"]
DSN = "postgresql://shop@127.0.0.1/shop"
WAIT_S = 30


@pytest.fixture(scope="module")
def broker() -> Iterator[halfmoon.testing.Broker]:
    config = {
        "listeners": {"rocketmq": {"bind": "127.0.0.1:0", "namesrv": "127.0.0.1:0"}},
        "plugins": {
            "transaction": {"timeout": "300ms", "check_interval": "300ms", "check_max": 100},
            "delay": {"levels": "10ms 10ms 10ms 10ms"},
        },
    }
    with halfmoon.testing.Broker(config=config) as running:
        yield running


@pytest.fixture
def dsn() -> str:
    import psycopg

    found = new_database()
    with psycopg.connect(found) as connection:
        connection.execute("CREATE TABLE orders (number INTEGER PRIMARY KEY, item TEXT)")
        connection.execute("CREATE TABLE payments (number TEXT PRIMARY KEY)")
    return found


@pytest.fixture(autouse=True)
def _engines_are_disposed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Those that programs leave to their end."""
    made: list[Any] = []
    create = sqlalchemy.create_engine

    def create_engine(url: str) -> Any:
        made.append(create(url))
        return made[-1]

    monkeypatch.setattr(sqlalchemy, "create_engine", create_engine)
    yield
    for engine in made:
        engine.dispose()


class Names:
    """A topic and groups that no other test has."""

    def __init__(self) -> None:
        number = uuid.uuid4().hex[:8]
        self.topic, self.group = f"orders-{number}", f"billing-{number}"
        self.producers = f"shop-{number}"

    def put_in(self, program: str, broker: halfmoon.testing.Broker, dsn: str = "") -> str:
        changed = {
            '"orders"': f'"{self.topic}"', '"billing"': f'"{self.group}"', '"shop"': f'"{self.producers}"',
            '"shop-checks"': f'"{self.producers}-checks"', "127.0.0.1:9092": broker.bootstrap_servers,
            "127.0.0.1:9876": broker.namesrv, DSN: dsn, for_sqlalchemy(DSN): for_sqlalchemy(dsn),
        }  # fmt: skip
        for old, new in changed.items():
            program = program.replace(old, new)
        return program


def values(broker: halfmoon.testing.Broker, topic: str, count: int) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "docs"})
    partitions = consumer.list_topics(topic, timeout=WAIT_S).topics[topic].partitions
    consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
    found = [message.value() for message in consumer.consume(count, timeout=WAIT_S)]
    consumer.close()
    return found


def ask(dsn: str, statement: str) -> list[Any]:
    import psycopg

    with psycopg.connect(dsn) as connection:
        return connection.execute(statement).fetchall()


def test_each_program_is_run() -> None:
    assert {mark for mark in PROGRAMS if not mark.startswith("django ")} == {
        "sqlalchemy", "psycopg", "check-backs", "asyncio", "rocketmq", "inbox",
    }  # fmt: skip
    assert len(DJANGO) == 5
    assert set(LOOPS) == set(CLIENTS)
    unmarked = [text for text in (OUTBOX, LOOP) for _ in re.findall(r"(?<!-->\n)```python", text)]
    assert len(unmarked) == 1, "`inbox.once`, which tests/outbox/test_databases.py tries"


@pytest.mark.parametrize(("mark", "number"), [("sqlalchemy", 7), ("psycopg", 8), ("asyncio", 9), ("rocketmq", 10)])
def test_the_outbox(mark: str, number: int, broker: halfmoon.testing.Broker, dsn: str) -> None:
    names = Names()
    space: dict[str, Any] = {"__name__": "docs"}
    exec(names.put_in(PROGRAMS[mark], broker, dsn), space)
    assert ask(dsn, "SELECT number FROM orders") == [(number,)]
    assert ask(dsn, "SELECT producer_group, state FROM halfmoon_outbox") == [(names.producers, "committed")]
    assert values(broker, names.topic, 1) == [f"order {number} was placed".encode()]


def test_check_backs(broker: halfmoon.testing.Broker, dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    names = Names()
    exec(names.put_in(PROGRAMS["sqlalchemy"], broker, dsn), {"__name__": "docs"})
    ((transaction_id,),) = ask(dsn, "SELECT transaction_id FROM halfmoon_outbox")
    half = TransactionalOutbox(names.producers, Producer({"bootstrap.servers": broker.bootstrap_servers}))
    half.prepare(names.topic, b"the end was lost", transaction=f"{transaction_id}#1")[1].result(WAIT_S)
    told: list[Any] = []
    answer = BaseOutbox.answer

    def answered(outbox: BaseOutbox[Any], check: Any) -> Any:
        told.append(answer(outbox, check))
        os.kill(os.getpid(), signal.SIGTERM)
        return told[-1]

    monkeypatch.setattr(BaseOutbox, "answer", answered)
    exec(names.put_in(PROGRAMS["check-backs"], broker, dsn), {"__name__": "docs"})
    assert [each.value for each in told] == ["committed"]
    assert values(broker, names.topic, 2) == [b"order 7 was placed", b"the end was lost"]


def test_the_inbox(broker: halfmoon.testing.Broker, dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    names = Names()
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for _ in range(2):
        producer.produce(names.topic, b"v", b"7")  # the second fails in the database, and is redelivered
    producer.produce(names.topic, b"v", b"8")
    assert producer.flush(WAIT_S) == 0
    run = ConsumerLoop.run

    def until_all_is_done(loop: ConsumerLoop) -> None:
        def look() -> None:
            if loop.handled >= 2 and loop.nacked >= 2:
                loop.stop()

        loop._on_poll = look
        run(loop)

    monkeypatch.setattr(ConsumerLoop, "run", until_all_is_done)
    exec(names.put_in(PROGRAMS["inbox"], broker, dsn), {"__name__": "docs"})
    assert ask(dsn, "SELECT number FROM payments ORDER BY 1") == [("7",), ("8",)]
    assert ask(dsn, "SELECT count(*) FROM halfmoon_inbox") == [(2,)]


@pytest.mark.parametrize("client", CLIENTS)
def test_the_loops(client: str, broker: halfmoon.testing.Broker) -> None:
    names = Names()
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for value in (b"good", b"bad", b"nonsense", b"good"):
        producer.produce(names.topic, value)
    assert producer.flush(WAIT_S) == 0
    seen: list[tuple[bytes, int]] = []

    def handle(record: Any) -> Any:
        value = record.value() if callable(record.value) else record.value
        seen.append((value, attempts(record)))
        if len(seen) == 7:
            os.kill(os.getpid(), signal.SIGTERM)
        if value == b"bad" and attempts(record) == 0:
            raise RuntimeError("not now")
        if value == b"nonsense":
            raise DeadLetter
        if client == "aiokafka":
            return asyncio.sleep(0)
        return None

    exec(names.put_in(LOOPS[client], broker), {"__name__": "docs", "handle": handle})
    expected = [(b"bad", 0)] * 3 + [(b"bad", 1), (b"good", 0), (b"good", 0), (b"nonsense", 0)]
    assert sorted(seen) == expected
    assert values(broker, Nack(names.group, None).dead_letters, 1) == [b"nonsense"]


def test_the_pages_say_what_the_code_says() -> None:
    for statements in (outbox_sql(), inbox_sql()):
        assert statements.replace(" IF NOT EXISTS", "") in OUTBOX
    assert "(10 s)" in OUTBOX
    assert TIMEOUT_S == 10
    assert "(60 s)" in OUTBOX
    assert COMMIT_WITHIN_S == 60
    assert KEEP.days == 7
    assert OUTBOX.count("older than 7 days") == 2
    assert f"{MOST_MESSAGES:,} in one transaction" in OUTBOX
    assert f"at most {MOST_OF_ROCKETMQ} messages" in OUTBOX
    assert f"(`batch={BATCH}` records)" in LOOP
    assert f"(`backoff_s` ({BACKOFF_S} s)" in LOOP or f"`backoff_s` ({BACKOFF_S} s)" in LOOP
    assert f"at most {MOST_BACKOFF_S:.0f} s" in LOOP
    for option in list(inspect.signature(ConsumerLoop).parameters)[3:]:
        assert f"`{option}" in LOOP, option


# --------------------------------------------------------------------------------------------------------------- Django

PROJECT = {
    "manage.py": """
        import os
        import sys

        os.environ["DJANGO_SETTINGS_MODULE"] = "settings"
        from django.core.management import execute_from_command_line

        execute_from_command_line(sys.argv)
    """,
    "settings.py": """
        import os

        DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "shop.sqlite"}}
        DATABASES["default"]["OPTIONS"] = {"timeout": 30}
        INSTALLED_APPS = ["shop"]
        KAFKA_SERVERS = os.environ["KAFKA_SERVERS"]
        SECRET_KEY = "none"
        USE_TZ = True
        ROOT_URLCONF = "urls"
        ALLOWED_HOSTS = ["*"]
        DEFAULT_AUTO_FIELD = "django.db.models.AutoField"
    """,
    "urls.py": """
        from django.urls import path

        from shop.views import place_order

        urlpatterns = [path("order", place_order)]
    """,
    "shop/__init__.py": "",
    "shop/management/__init__.py": "",
    "shop/management/commands/__init__.py": "",
    "shop/migrations/__init__.py": "",
    "shop/models.py": """
        from django.db import models


        class Order(models.Model):
            item = models.TextField()
            is_confirmed = models.BooleanField(default=False)
    """,
    "shop/migrations/0001_initial.py": """
        from django.db import migrations, models


        class Migration(migrations.Migration):
            operations = [
                migrations.CreateModel(
                    "Order",
                    [
                        ("id", models.AutoField("ID", auto_created=True, primary_key=True, serialize=False)),
                        ("item", models.TextField()),
                        ("is_confirmed", models.BooleanField(default=False)),
                    ],
                )
            ]
    """,
    "shop/management/commands/order.py": """
        from django.core.management.base import BaseCommand
        from django.test import Client


        class Command(BaseCommand):
            def handle(self, **options):
                print(Client().post("/order", {"item": "tea"}).json())
    """,
}
"""What a reader has: a project with an application, whose view a command calls."""


@pytest.mark.timeout(180)
def test_the_recipe_for_django(broker: halfmoon.testing.Broker, tmp_path: Path) -> None:
    pytest.importorskip("django", reason="Django is not installed")
    names = Names()
    for path, text in {**PROJECT, **DJANGO}.items():
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        text = text.replace('"orders"', f'"{names.topic}"').replace('"confirming"', f'"{names.group}"')
        text = text.replace('Outbox("shop"', f'Outbox("{names.producers}"')
        file.write_text(textwrap.dedent(text).replace('"shop-checks"', f'"{names.producers}-checks"'))
    environment = {
        **os.environ, "KAFKA_SERVERS": broker.bootstrap_servers,
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
    }  # fmt: skip

    def command(*arguments: str) -> list[str]:
        return [sys.executable, "manage.py", *arguments]

    def run(*arguments: str) -> str:
        done = subprocess.run(command(*arguments), cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    run("migrate")
    assert "No changes detected" in run("makemigrations", "--check", "--dry-run")
    assert json.loads(run("order").replace("'", '"')) == {"order": 1}
    # As if the program had died after its commit.
    half = TransactionalOutbox(names.producers, Producer({"bootstrap.servers": broker.bootstrap_servers}))
    database = sqlalchemy.create_engine(f"sqlite:///{tmp_path / 'shop.sqlite'}")

    def ask_sqlite(statement: str) -> list[Any]:
        with database.connect() as connection:
            return [tuple(row) for row in connection.execute(sqlalchemy.text(statement))]

    ((transaction_id,),) = ask_sqlite("SELECT transaction_id FROM halfmoon_outbox")
    half.prepare(names.topic, b'{"order": 1}', transaction=f"{transaction_id}#1")[1].result(WAIT_S)
    running = [
        subprocess.Popen(command(name), cwd=tmp_path, env=environment)
        for name in ("answer_check_backs", "consume_orders")
    ]
    try:
        deadline = time.monotonic() + 60
        while ask_sqlite("SELECT count(*) FROM halfmoon_inbox") != [(2,)]:
            assert time.monotonic() < deadline
            threading.Event().wait(0.05)
        for process in running:
            process.send_signal(signal.SIGTERM)
        assert [process.wait(WAIT_S) for process in running] == [0, 0]
    finally:
        for process in running:
            process.kill()
            process.wait()
    assert ask_sqlite("SELECT id, is_confirmed FROM shop_order") == [(1, 1)]
    database.dispose()
