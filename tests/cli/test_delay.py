"""`halfmoon delay`: what waits is listed, counted, cancelled and rescheduled, of a broker with real clients."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, Producer

from halfmoon.schema.group_topics import retry_topic
from halfmoon.testing import Broker
from tests.cli.conftest import CommandLine

pytestmark = pytest.mark.workers

HOUR_MS = 3_600_000


@pytest.fixture(scope="session")
def bootstrap_servers(halfmoon_broker: Broker) -> str:
    return halfmoon_broker.bootstrap_servers


@pytest.fixture
def delayed(broker_cli: CommandLine, topic: str, bootstrap_servers: str) -> Callable[..., None]:
    """Sends messages: value → delay in ms."""

    def send(to: str = topic, **values: int) -> None:
        producer = Producer({"bootstrap.servers": bootstrap_servers})
        for value, in_ms in values.items():
            headers = {"TIMER_DELAY_MS": str(in_ms), "UNIQ_KEY": value}
            producer.produce(to, value.encode(), b"key-" + value.encode(), headers=headers)
        assert producer.flush(10) == 0

    return send


def listed(broker_cli: CommandLine, *options: str) -> list[Any]:
    return broker_cli.ok("delay", "list", *options, "-o", "json").json_lines()


def consumed(bootstrap_servers: str, topic: str, count: int, for_s: float = 20) -> list[bytes | None]:
    consumer = Consumer(
        {"bootstrap.servers": bootstrap_servers, "group.id": f"of {topic}", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    found: list[bytes | None] = []
    deadline = time.monotonic() + for_s
    while len(found) < count and time.monotonic() < deadline:
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            found.append(message.value())
    consumer.close()
    return found


def test_list(broker_cli: CommandLine, topic: str, delayed: Callable[..., None]) -> None:
    delayed(later=2 * HOUR_MS, sooner=HOUR_MS)
    sooner, later = listed(broker_cli, "-t", topic)
    assert [sooner["uniq_key"], later["uniq_key"]] == ["sooner", "later"]
    assert (sooner["key"], sooner["topic"], sooner["kind"], sooner["group"]) == ("key-sooner", topic, "delay", None)
    assert abs(sooner["due_ms"] / 1_000 - time.time() - 3_600) < 60
    assert sooner["due"].endswith("Z")
    lines = broker_cli.ok("delay", "list", "-t", topic).out.splitlines()
    assert lines[0].split() == ["DUE", "TOPIC", "GROUP", "KEY", "SIZE", "ORIGIN", "ID"]
    assert lines[1].split()[1:4] == [f"{topic}-{sooner['partition']}", "-", "key-sooner"]
    assert lines[1].split()[-1] == sooner["id"]
    assert len(lines) == 3


def test_list_by_time_kind_and_limit(broker_cli: CommandLine, topic: str, delayed: Callable[..., None]) -> None:
    delayed(**{f"h{at}": at * HOUR_MS for at in (1, 2, 3, 4)})

    def keys(*options: str) -> list[str]:
        return [each["uniq_key"] for each in listed(broker_cli, "-t", topic, *options)]

    assert keys("--due-before", "150m") == ["h1", "h2"]
    assert keys("--due-after", "150m") == ["h3", "h4"]
    assert keys("--due-after", "90m", "--due-before", "3.5h") == ["h2", "h3"]
    assert keys("--due-after", str(int(time.time() * 1_000) + 3 * HOUR_MS)) == ["h4"]
    assert keys("--kind", "redelivery") == []
    assert keys("--kind", "delay", "-t", topic + "*") == ["h1", "h2", "h3", "h4"]
    outcome = broker_cli.ok("delay", "list", "-t", topic, "--limit", "3", "-o", "json")
    assert [each["uniq_key"] for each in outcome.json_lines()] == ["h1", "h2", "h3"]
    assert "only the first 3 are shown" in outcome.err


def test_redeliveries(broker_cli: CommandLine, topic: str, bootstrap_servers: str) -> None:
    broker_cli.ok("produce", topic, "v")
    group = f"g-{topic}"
    retry = retry_topic(group)
    broker_cli.ok("topic", "create", retry, "-p", "1")
    headers = ("-H", f"RETRY_OF={topic}/0/0", "-H", "RECONSUME_TIME=4", "-H", "TIMER_DELAY_SEC=3600")
    broker_cli.ok("produce", retry, "v", "--key", "k", *headers)
    (found,) = listed(broker_cli, "-g", group)
    assert (found["kind"], found["group"], found["topic"]) == ("redelivery", group, retry)
    assert (found["origin"], found["attempts"]) == (f"{topic}/0/0", 5)
    (counted,) = broker_cli.ok("delay", "count", "-g", group, "-o", "json").json()
    assert (counted["kind"], counted["group"], counted["count"]) == ("redelivery", group, 1)
    outcome = broker_cli.ok("delay", "reschedule", found["id"], "--in", "0s")
    assert outcome.out.startswith(f"1 message rescheduled (topic {retry})")
    assert consumed(bootstrap_servers, retry, 1) == [b"v"]
    broker_cli("topic", "delete", retry)


def test_count(broker_cli: CommandLine, topic: str, delayed: Callable[..., None]) -> None:
    delayed(a=HOUR_MS, b=2 * HOUR_MS)
    (row,) = broker_cli.ok("delay", "count", "-t", topic, "-o", "json").json()
    assert (row["topic"], row["count"], row["kind"]) == (topic, 2, "delay")
    assert row["first_due"] < row["last_due"]
    lines = broker_cli.ok("delay", "count", "-t", topic).out.splitlines()
    assert lines[0].split() == ["KIND", "TOPIC", "GROUP", "COUNT", "FIRST-DUE", "LAST-DUE"]
    assert lines[1].split()[:4] == ["delay", topic, "-", "2"]
    assert broker_cli.ok("delay", "count", "-t", "no such topic", "-o", "json").json() == []


def test_cancel_by_id(
    broker_cli: CommandLine, topic: str, delayed: Callable[..., None], bootstrap_servers: str
) -> None:
    delayed(a=HOUR_MS, b=HOUR_MS)
    a, b = sorted(listed(broker_cli, "-t", topic), key=lambda each: str(each["uniq_key"]))
    assert broker_cli.ok("delay", "cancel", a["id"]).out == f"1 message cancelled (topic {topic})\n"
    again = broker_cli("delay", "cancel", a["id"])
    assert again.code == 1
    assert f"1 message no longer waited: {a['id']}" in again.err
    broker_cli.ok("delay", "reschedule", b["id"], "--in", "0s")
    assert consumed(bootstrap_servers, topic, 2, 5) == [b"b"]
    assert broker_cli("delay", "cancel", b["id"]).code == 1


def test_what_aiokafka_has_delayed(broker_cli: CommandLine, topic: str, bootstrap_servers: str) -> None:
    async def send() -> None:
        async with AIOKafkaProducer(bootstrap_servers=bootstrap_servers) as producer:
            for key, in_s in (b"a", 3_600), (b"b", 3_600), (b"c", 7_200):
                headers = [("TIMER_DELAY_SEC", b"%d" % in_s)]
                await producer.send_and_wait(topic, key, key=key, headers=headers)

    async def received(count: int) -> list[bytes]:
        async with AIOKafkaConsumer(
            topic, bootstrap_servers=bootstrap_servers, auto_offset_reset="earliest"
        ) as consumer:  # fmt: skip
            return [(await asyncio.wait_for(consumer.getone(), 30)).value for _ in range(count)]

    asyncio.run(send())
    found = {each["key"]: each["id"] for each in listed(broker_cli, "-t", topic)}
    broker_cli.ok("delay", "cancel", found["a"])
    assert broker_cli.ok("delay", "reschedule", "-t", topic, "--in", "0s", "--yes").out.startswith("2 messages")
    assert sorted(asyncio.run(received(2))) == [b"b", b"c"]
    assert listed(broker_cli, "-t", topic) == []


def test_cancel_by_selection(
    broker_cli: CommandLine, topic: str, delayed: Callable[..., None], bootstrap_servers: str
) -> None:
    delayed(**{f"v{at}": HOUR_MS for at in range(20)})
    delayed(late=2 * HOUR_MS)
    before = ("delay", "cancel", "-t", topic, "--due-before", "90m")
    assert broker_cli.ok(*before, "--dry-run").out == f"20 messages would be cancelled (topic {topic})\n"
    counted = broker_cli.ok(*before, "--dry-run", "-o", "json").json()
    assert (counted["cancelled"], counted["dry_run"]) == (20, True)
    assert "--yes does it" in broker_cli(*before).failed_with(1)
    assert broker_cli.ok(*before, "--yes", "-o", "json").json() == {
        "cancelled": 20, "topics": [topic], "missing": [], "refused": [], "too_far": 0, "dry_run": False,
    }  # fmt: skip
    assert [each["uniq_key"] for each in listed(broker_cli, "-t", topic)] == ["late"]
    assert broker_cli.ok(*before).out == "0 messages cancelled\n"
    broker_cli.ok("delay", "reschedule", "-t", topic, "--in", "0s", "--yes")
    assert consumed(bootstrap_servers, topic, 2, 5) == [b"late"]


def test_reschedule(broker_cli: CommandLine, topic: str, delayed: Callable[..., None], bootstrap_servers: str) -> None:
    delayed(a=HOUR_MS, b=HOUR_MS, c=HOUR_MS)
    a, b, c = sorted(listed(broker_cli, "-t", topic), key=lambda each: str(each["uniq_key"]))
    assert broker_cli.ok("delay", "reschedule", a["id"], b["id"], "--in", "500ms").out.startswith("2 messages")
    assert sorted(consumed(bootstrap_servers, topic, 2)) == [b"a", b"b"]  # type: ignore[type-var]
    broker_cli.ok("delay", "reschedule", "-t", topic, "--by", "30m", "--yes")
    (moved,) = listed(broker_cli, "-t", topic)
    assert moved["uniq_key"] == "c"
    assert moved["due_ms"] == c["due_ms"] + HOUR_MS // 2
    assert "later than max_delay allows" in broker_cli("delay", "reschedule", moved["id"], "--in", "41d").err
    assert listed(broker_cli, "-t", topic) == [moved]


def test_a_message_is_shown_by_its_id(broker_cli: CommandLine, topic: str, delayed: Callable[..., None]) -> None:
    delayed(a=HOUR_MS)
    (found,) = listed(broker_cli, "-t", topic)
    shown = broker_cli.ok("message", "show", "--offset", found["id"], "-o", "json").json()
    assert (shown["value"], shown["state"].split(",")[0]) == ("a", f"for {topic}-{found['partition']}")
    broker_cli.ok("delay", "reschedule", found["id"], "--by", "1h")
    (moved,) = listed(broker_cli, "-t", topic)
    events = broker_cli.ok("message", "show", "--offset", moved["id"], "-o", "json").json()["history"]
    assert [each["event"] for each in events] == ["scheduled", "moved"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["cancel"], "ids, options that select messages, or --all are required"),
        (["cancel", "nonsense"], "'nonsense' is no id"),
        (["cancel", "halfmoon.timers/0/0", "-t", "t"], "exclude each other"),
        (["cancel", "halfmoon.timers/0/0", "--dry-run"], "exclude each other"),
        (["cancel", "--all", "-t", "t"], "one of these"),
        (["reschedule", "halfmoon.timers/0/0"], "one of --at, --in and --by is required"),
        (["reschedule", "halfmoon.timers/0/0", "--in", "1h", "--by", "1h"], "one of --at, --in and --by is required"),
        (["reschedule", "halfmoon.timers/0/0", "--in", "soon"], "no time span"),
        (["reschedule", "halfmoon.timers/0/0", "--at", "soon"], "none of these"),
        (["list", "--due-before", "soon"], "none of these"),
        (["list", "--kind", "half"], "--kind"),
        (["list", "--limit", "0"], "--limit"),
    ],
)
def test_what_is_wrong(broker_cli: CommandLine, words: list[str], said: str) -> None:
    outcome = broker_cli("delay", *words)
    assert outcome.code == 2
    assert said in outcome.err


def test_off(cli: CommandLine) -> None:
    with Broker(config={"services": {"delays": False}}) as broker:
        outcome = cli("delay", "list", "-b", broker.bootstrap_servers)
    assert outcome.code == 1
    assert "it is not Halfmoon, or an older version" in outcome.err
