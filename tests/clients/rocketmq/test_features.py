"""Delays and transactions of the Java client's producers."""

from __future__ import annotations

import time
from collections import Counter
from itertools import pairwise
from typing import Any

import pytest

from halfmoon.client import Delays
from halfmoon.testing import Broker
from tests.clients.rocketmq.java import Clients, body, until

pytestmark = pytest.mark.spark
HEADERS = ["JSON", "ROCKETMQ"]


def test_delay_levels(clients: Clients, producer: Any) -> None:
    topic = clients.topic(2)
    got = clients.consume(topic)
    sent: dict[str, float] = {}
    for level in 1, 2, 3:
        message = clients.message(topic, "D", f"level{level}")
        message.setDelayTimeLevel(level)
        sent[f"level{level}"] = time.monotonic()
        assert producer.send(message).getSendStatus().toString() == "SEND_OK"
    producer.send(clients.message(topic, "D", "now"))
    got.exactly(4)
    assert [text for text in got.bodies() if text != "now"] == ["level3", "level1", "level2"]
    for message, at in zip(got.messages, got.at, strict=True):
        if body(message) == "now":
            continue
        delay = {"level1": 1, "level2": 2, "level3": 0.5}[body(message)]
        assert at - sent[body(message)] >= delay - 0.02
        assert (message.getTopic(), message.getTags()) == (topic, "D")
        assert message.getDelayTimeLevel() == int(body(message)[-1])


def test_delays_of_any_time(clients: Clients, producer: Any) -> None:
    topic = clients.topic(2)
    got = clients.consume(topic)
    begin_s, begin = time.time(), time.monotonic()
    asked: list[tuple[str, Any]] = [
        ("setDelayTimeSec", 1), ("setDelayTimeMs", 1_500), ("setDeliverTimeMs", int(begin_s * 1_000) + 2_000),
    ]  # fmt: skip
    for setter, value in asked:
        message = clients.message(topic, "D", setter)
        getattr(message, setter)(value)
        producer.send(message)
    got.exactly(3)
    assert got.bodies() == [setter for setter, _ in asked]
    for at, wanted in zip(got.at, (1, 1.5, 2), strict=True):
        assert at - begin >= wanted - 0.02
    far = clients.message(topic, "D", "far")
    far.setDelayTimeSec(4 * 24 * 3600)  # RocketMQ's timerMaxDelaySec is three days.
    with pytest.raises(Exception, match="delay"):
        producer.send(far)


def test_what_waits_is_cancelled_and_rescheduled(
    clients: Clients, producer: Any, rocketmq_broker: Broker
) -> None:  # fmt: skip
    """What Java's producer has delayed, by its message ids, and by none."""
    topic = clients.topic(2)
    got = clients.consume(topic)
    sent: dict[str, str] = {}
    for text in ("a", "b", "c"):
        message = clients.message(topic, "D", text)
        message.setDelayTimeSec(3_600)
        sent[producer.send(message).getMsgId()] = text
    with Delays(namesrv=rocketmq_broker.namesrv) as delays:
        until(lambda: len(delays.find(topic=topic)) == 3)
        found = {sent[(each.uniq_key or b"").decode()]: each.id for each in delays.find(topic=topic)}
        assert delays.cancel([found["b"]]).count == 1
        assert delays.reschedule(topic=topic, in_seconds=0.2).count == 2
        got.exactly(2)
        assert sorted(got.bodies()) == ["a", "c"]
        assert delays.count(topic=topic) == []


def test_recurring_messages(clients: Clients, producer: Any) -> None:
    topic = clients.topic(2)
    got = clients.consume(topic)
    named = {"SCHEDULE_NAME": "tick", "SCHEDULE_PARTITION": "fixed"}
    queue = clients.queue(topic, 1)
    tick = clients.message(topic, "R", "tick", "k", SCHEDULE_CRON="* * * * * *", SCHEDULE_ZONE="Asia/Tokyo", **named)
    assert producer.send(tick, queue).getSendStatus().toString() == "SEND_OK"
    until(lambda: len(got.messages) >= 3)
    producer.send(clients.message(topic, "R", "-", SCHEDULE_STATE="cancelled", **named), queue)
    sent = list(got.messages)
    times = [int(each.getUserProperty("halfmoon.schedule-time")) for each in sent]
    assert [later - sooner for sooner, later in pairwise(times)] == [1_000] * (len(times) - 1)
    assert {(body(each), each.getTags(), each.getKeys(), each.getQueueId()) for each in sent} == {
        ("tick", "R", "k", sent[0].getQueueId())
    }
    assert len({each.getMsgId() for each in sent}) == len(sent)
    with pytest.raises(Exception, match="SCHEDULE_PARTITION"):
        producer.send(clients.message(topic, "R", "x", "k", SCHEDULE_CRON="* * * * * *", SCHEDULE_NAME="any"), queue)


def test_transactions(clients: Clients) -> None:
    topic = clients.topic(2)
    got = clients.consume(topic)
    checks: Counter[str] = Counter()
    checked: dict[str, Any] = {}

    def check(message: Any) -> str:
        text = body(message)
        checked[text] = message
        checks[text] += 1
        if text == "twice":
            return "COMMIT_MESSAGE" if checks[text] == 2 else "UNKNOW"
        return {"later-commit": "COMMIT_MESSAGE", "later-rollback": "ROLLBACK_MESSAGE"}[text]

    def execute(message: Any) -> str:
        text = body(message)
        return {"c": "COMMIT_MESSAGE", "r": "ROLLBACK_MESSAGE"}.get(text[0] if text[1:].isdigit() else "", "UNKNOW")

    producer = clients.transactional(clients.name("producers"), execute, check)
    for number in range(5):
        for text in f"c{number}", f"r{number}":
            sent = producer.sendMessageInTransaction(clients.message(topic, "X", text, f"k{number}"), None)
            assert sent.getTransactionId() is not None
    got.exactly(5)
    assert sorted(got.bodies()) == [f"c{number}" for number in range(5)]
    for text in "later-commit", "later-rollback", "twice":
        producer.sendMessageInTransaction(clients.message(topic, "X", text), None)
    got.wait(7)
    until(lambda: "later-rollback" in checks)
    got.exactly(7, quiet_s=1.5)
    assert sorted(got.bodies()[5:]) == ["later-commit", "twice"]
    assert checks == {"later-commit": 1, "later-rollback": 1, "twice": 2}
    asked = checked["twice"]
    assert asked.getProperty("PGROUP") == producer.getProducerGroup()
    assert asked.getProperty("REAL_TOPIC") == topic


def test_another_producer_of_the_group_is_asked_after_the_first_has_died(clients: Clients) -> None:
    topic, group = clients.topic(), clients.name("producers")
    got = clients.consume(topic)
    first = clients.transactional(group, lambda message: "UNKNOW", lambda message: "UNKNOW")
    first.sendMessageInTransaction(clients.message(topic, "X", "orphan"), None)
    first.shutdown()
    second = clients.transactional(group, lambda message: "UNKNOW", lambda message: "COMMIT_MESSAGE")
    # Clients register with brokers that they have had to do with.
    second.send(clients.message(clients.topic(), "X", "something else"))
    got.exactly(1)
    assert got.bodies() == ["orphan"]
