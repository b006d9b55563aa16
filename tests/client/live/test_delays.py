"""What waits, asked by the client of the brokers of all shards, with threads and with asyncio."""

from __future__ import annotations

import os
import time
from typing import Any

import pytest

from halfmoon.client import BrokerRefusedError, ConfigError, Message, NotRunningError, ScheduledMessage, Status
from halfmoon.testing import Broker
from tests.client.live.conftest import Live, until
from tests.client.live.shells import Threads

pytestmark = [
    pytest.mark.workers,
    pytest.mark.skipif("ROCKETMQ_NAMESRV" in os.environ, reason="RocketMQ has no such request"),
]


def keys(messages: list[ScheduledMessage]) -> list[str]:
    return [(message.key or b"").decode() for message in messages]


def send(live: Live, topic: str, **seconds: float) -> None:
    producer = live.producer()
    for key, after in seconds.items():
        producer.send_delayed(Message(topic, key.encode(), keys=key), seconds=after)
    producer.close()


@pytest.fixture
def delays(live: Live) -> Any:
    return live.start("Delays")


def found(delays: Any, topic: str, **more: Any) -> list[str]:
    """Which of the messages wait: by their delays."""
    return [(message.delay or "").partition("=")[2] for message in delays.find(topic=topic, **more)]


def test_find(live: Live, delays: Any) -> None:
    topic = live.topic()
    send(live, topic, c=7_200, a=3_600, b=5_400, d=9_000)
    messages = delays.find(topic=topic)
    assert [message.due_ms for message in messages] == sorted(message.due_ms for message in messages)
    assert {(message.topic, message.kind, message.hidden) for message in messages} == {(topic, "delay", False)}
    assert all(len(message.uniq_key or b"") == 32 for message in messages)
    assert len({message.partition for message in messages}) > 1
    now = time.time()
    assert len(delays.find(topic=topic, due_before=now + 5_000)) == 1
    assert len(delays.find(topic=topic, due_after=now + 5_000, due_before=now + 8_000)) == 2
    first = delays.find(topic=topic, most=3)
    assert first == messages[:3]
    assert delays.find(topic=topic, most=3, after=first[-1]) == messages[3:]
    assert delays.find(topic=topic, kind="redelivery") == []
    assert delays.find(topic=topic[:-1] + "?") == messages
    (counted,) = delays.count(topic=topic)
    assert (counted.topic, counted.count) == (topic, 4)
    assert (counted.first_due_ms, counted.last_due_ms) == (messages[0].due_ms, messages[-1].due_ms)


def test_cancel_and_reschedule(live: Live, delays: Any) -> None:
    topic = live.topic()
    _, got = live.consume(topic)
    send(live, topic, a=3_600, b=3_600, c=3_600, d=3_600, e=3_600)
    messages = delays.find(topic=topic)
    by_key = {message.uniq_key: message for message in messages}
    assert len(by_key) == 5
    gone, now, *rest = messages
    changed = delays.cancel([gone.id, "halfmoon.timers/0/123456"])
    assert (changed.count, changed.missing, changed.topics) == (1, ("halfmoon.timers/0/123456",), (topic,))
    assert delays.cancel([gone.id]).missing == (gone.id,)
    assert delays.reschedule([now.id], in_seconds=0.1).count == 1
    got.wait(1)
    assert delays.reschedule(topic=topic, by_seconds=600).count == 3
    assert [message.due_ms for message in delays.find(topic=topic)] == [message.due_ms + 600_000 for message in rest]
    assert delays.reschedule(topic=topic, at=time.time()).count == 3
    got.wait(4)
    assert delays.count(topic=topic) == []
    assert len(set(got.bodies)) == len(got.bodies) == 4


def test_redeliveries(live: Live, delays: Any) -> None:
    topic = live.topic()
    group = live.name("again")
    tries: list[int] = []

    def listen(messages: Any, context: Any) -> Status:
        tries.append(messages[0].reconsume_times)
        return Status.LATER if len(tries) == 1 else Status.SUCCESS

    live.consume(topic, "again", listen)
    producer = live.producer()
    producer.send(Message(topic, b"v", keys="k"))
    until(lambda: delays.find(group=group))
    (message,) = delays.find(group=group)
    assert (message.kind, message.group) == ("redelivery", group)
    assert message.origin.startswith(f"{topic}/")
    assert message.attempts == 1
    assert delays.reschedule(group=group, in_seconds=0).count == 1
    until(lambda: len(tries) == 2)
    assert tries == [0, 1]


@pytest.mark.parametrize(
    ("ask", "said"),
    [
        (lambda delays: delays.cancel(), "expected one of ids"),
        (lambda delays: delays.cancel(["t/0/0"], topic="t"), "expected one of ids"),
        (lambda delays: delays.cancel("t/0/0"), "expected a list"),
        (lambda delays: delays.cancel(["nonsense"]), "no id of a scheduled message"),
        (lambda delays: delays.reschedule(["t/0/0"]), "expected one of in_seconds, at and by_seconds"),
        (lambda delays: delays.reschedule(["t/0/0"], in_seconds=1, at=1), "expected one of in_seconds"),
        (lambda delays: delays.find(kind="half"), "expected 'delay' or 'redelivery'"),
        (lambda delays: delays.find(most=0), "most is 0"),
    ],
)
def test_what_is_wrong(live: Live, delays: Any, ask: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        ask(delays)


def test_a_life(live: Live) -> None:
    delays = live.shell.make("Delays", namesrv=live.namesrv)
    with pytest.raises(NotRunningError):
        delays.find()
    delays.start()
    assert delays.is_running
    delays.close()
    delays.close()
    with pytest.raises(NotRunningError):
        delays.count()


def test_off() -> None:
    config = {
        "listeners": {"rocketmq": {"bind": "127.0.0.1:0", "namesrv": "127.0.0.1:0"}},
        "services": {"delays": False},
    }
    with (
        Broker(config=config) as broker,
        Threads().make("Delays", namesrv=broker.namesrv) as delays,
        pytest.raises(BrokerRefusedError, match=r"services\.delays is off"),
    ):
        delays.find()
