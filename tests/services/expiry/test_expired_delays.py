"""Delayed messages and redeliveries that have expired when they are due."""

from __future__ import annotations

import copy
import random

import pytest

from halfmoon.core.records.batches import build_batch
from halfmoon.plugins.store.delay.delays import AT_TIMES, LEVEL_TOPIC, NAMES, TIMER_TOPIC, Delays
from halfmoon.plugins.store.retry.expiring import Expiring
from halfmoon.plugins.store.retry.plugin import Retries
from halfmoon.plugins.store.retry.policies import Policies, RetrySettings
from halfmoon.schema.group_topics import dead_letter_topic, retry_topic
from halfmoon.server.plugin_features import NodeTopics
from halfmoon.services.waiting.delivering import UNDELIVERABLE
from halfmoon.services.waiting.types import PutInterceptor
from halfmoon.testing.faulty_files import FaultyFileSystem
from halfmoon.testing.node import BareNode
from tests.core.bench import VirtualClock, append, open_broker, partition_of, relay, turn
from tests.core.relay_bench import deaths, found, pass_ms, send, values

TTL, EXPIRES, ACTION = "halfmoon.ttl.ms", "halfmoon.expires.ms", "halfmoon.ttl.action"
GROUP = "billing"
RETRY, DEAD = retry_topic(GROUP), dead_letter_topic(GROUP)
WAITING = (LEVEL_TOPIC, TIMER_TOPIC)
OVER = b"expired: its TTL was over"


def reopen(fs: FaultyFileSystem, clock: VirtualClock, *off: str) -> BareNode:
    brokers: list[BareNode] = []

    def was_nacked(group: str, topic: str, index: int, offset: int) -> bool:
        there = brokers[0].topic(topic)
        return there is not None and brokers[0].state.nacked.was_nacked(group, there.partitions[index], offset)

    retries = Retries(Policies(RetrySettings(max_reconsume_times=9)), was_nacked)
    retry = PutInterceptor("retry", (), retries.before_put, ("retry.",))
    delays = Delays([1_000, 5_000, 10_000, 30_000], 10**12)
    delay = PutInterceptor(
        "delay", NAMES, delays.before_put, scheduled_topics=WAITING, clock_queues=((TIMER_TOPIC, AT_TIMES),)
    )
    brokers.append(open_broker(fs, clock, interceptors=[retry, delay], off=off))
    if "expiry" not in off:
        retries.expiring = Expiring(brokers[0].expiry, NodeTopics(brokers[0].kernel))
    return brokers[0]


@pytest.fixture
def broker(fs: FaultyFileSystem, clock: VirtualClock) -> BareNode:
    broker = reopen(fs, clock)
    broker.create_topic("orders", 1)
    broker.create_topic("kept", 1, {ACTION: "dead-letter"})
    broker.create_topic(RETRY, 1)
    return broker


def away(broker: BareNode, fs: FaultyFileSystem, clock: VirtualClock, ms: int, *off: str) -> BareNode:
    """The broker is away for so long."""
    broker.close()
    clock.now_ms += ms
    broker = reopen(fs, clock, *off)
    relay(broker)
    return broker


# -- delays ------------------------------------------------------------------------------------------------------------


def test_the_ttl_of_a_delayed_message_begins_when_it_is_due(broker: BareNode, clock: VirtualClock) -> None:
    send(broker, "orders", (b"v", {"TIMER_DELAY_MS": "60000", TTL: "1"}))
    pass_ms(broker, clock, 60_001)
    ((_, value, timestamp, headers),) = found(broker, "orders")
    assert (value, timestamp, headers[TTL]) == (b"v", clock.now_ms, b"1")


@pytest.mark.parametrize(("away_ms", "delivered"), [(5_999, [b"short", b"long"]), (6_000, [b"long"])])
def test_delivered_too_late_it_is_dropped(
    broker: BareNode, fs: FaultyFileSystem, clock: VirtualClock, away_ms: int, delivered: list[bytes]
) -> None:
    send(broker, "orders", (b"short", {"DELAY": "1", TTL: "4999"}))
    send(broker, "orders", (b"long", {"DELAY": "1", TTL: "900000"}))
    relay(broker)
    broker = away(broker, fs, clock, away_ms)
    assert values(broker, "orders") == delivered
    assert broker.waiting.waiting() == 0
    lost = 2 - len(delivered)
    assert broker.expiry.counts == ({("delay", "dropped"): lost} if lost else {})
    broker = away(broker, fs, clock, 1)
    assert values(broker, "orders") == delivered


def test_or_dead_lettered_with_the_reason(broker: BareNode, fs: FaultyFileSystem, clock: VirtualClock) -> None:
    send(broker, "kept", (b"v", {"DELAY": "1", TTL: "10", "mine": "x"}))
    relay(broker)
    broker = away(broker, fs, clock, 50_000)
    assert values(broker, "kept") == []
    ((_, value, timestamp, headers),) = found(broker, UNDELIVERABLE)
    assert (value, timestamp) == (b"v", clock.now_ms)
    assert headers == {
        "mine": b"x",
        "halfmoon.delayed": b"DELAY=1",
        "halfmoon.original-timestamp": b"500",
        "halfmoon.reason": OVER,
        "halfmoon.original-topic": b"kept",
        "halfmoon.original-partition": b"0",
    }
    assert broker.waiting.waiting() == 0
    assert broker.expiry.counts == {("delay", "dead_lettered"): 1}


def test_the_topics_ttl_counts_too(fs: FaultyFileSystem, clock: VirtualClock) -> None:
    broker = reopen(fs, clock)
    broker.create_topic("t", 1, {TTL: "2000"})
    send(broker, "t", (b"a", {"DELAY": "1"}), (b"b", {"DELAY": "2"}))
    relay(broker)
    broker = away(broker, fs, clock, 4_000)
    assert values(broker, "t") == []
    pass_ms(broker, clock, 5_000)
    assert values(broker, "t") == [b"b"]


def test_of_a_whole_batch_the_others_are_delivered(broker: BareNode, fs: FaultyFileSystem, clock: VirtualClock) -> None:
    rows = [(b"%d" % at, {"DELAY": "1", TTL: "100" if at % 2 else "100000"}) for at in range(40)]
    send(broker, "orders", *rows)
    relay(broker)
    broker = away(broker, fs, clock, 5_000)
    assert values(broker, "orders") == [b"%d" % at for at in range(0, 40, 2)]
    assert broker.expiry.counts == {("delay", "dropped"): 20}


def test_of_a_batch_of_many_times_each_counts_from_its_own(
    broker: BareNode, fs: FaultyFileSystem, clock: VirtualClock
) -> None:
    rows = [(b"%d" % at, {"TIMER_DELAY_MS": str(1_000 + at), TTL: "3000"}) for at in range(2_000)]
    send(broker, "orders", *rows)
    relay(broker)
    broker = away(broker, fs, clock, 5_000)
    assert values(broker, "orders") == [b"%d" % at for at in range(1_000, 2_000)]
    assert broker.waiting.waiting() == 0


def test_off_it_is_delivered(broker: BareNode, fs: FaultyFileSystem, clock: VirtualClock) -> None:
    send(broker, "orders", (b"v", {"DELAY": "1", TTL: "10"}))
    relay(broker)
    broker = away(broker, fs, clock, 50_000, "expiry")
    assert values(broker, "orders") == [b"v"]


# -- redeliveries ------------------------------------------------------------------------------------------------------


def consume(broker: BareNode, topic: str, timestamp: int, **headers: str) -> None:
    row = (b"k", b"v", timestamp, tuple((name.replace("__", "."), text.encode()) for name, text in headers.items()))
    append(broker, partition_of(broker, topic), memoryview(bytearray(build_batch([row]))))
    relay(broker)


def nack(broker: BareNode, of: str, **headers: str) -> None:
    send(broker, RETRY, (b"v", {"RETRY_OF": of, **{name.replace("__", "."): said for name, said in headers.items()}}))
    relay(broker)


def test_it_goes_on_over_redeliveries(broker: BareNode, clock: VirtualClock) -> None:
    begin_ms = clock.now_ms
    consume(broker, "orders", begin_ms, halfmoon__ttl__ms="50000")
    clock.now_ms += 5_000
    nack(broker, "orders/0/0", halfmoon__ttl__ms="50000", RETRY_TIMESTAMP=str(begin_ms))
    pass_ms(broker, clock, 10_001)
    ((_, _, _, headers),) = found(broker, RETRY)
    assert headers[TTL] == b"50000"
    assert headers[EXPIRES] == b"%d" % (begin_ms + 50_000)
    assert "RETRY_TIMESTAMP" not in headers
    copied = {name.replace(".", "__"): (text or b"").decode() for name, text in headers.items()}
    clock.now_ms += 5_000
    nack(broker, f"{RETRY}/0/0", RETRY_TIMESTAMP=str(clock.now_ms), **copied)
    pass_ms(broker, clock, 29_990)
    assert len(found(broker, RETRY)) == 1
    pass_ms(broker, clock, 100)
    assert len(found(broker, RETRY)) == 1, "50 s are over"
    assert broker.waiting.waiting() == 0
    assert broker.expiry.counts == {("retry", "dropped"): 1}


def test_without_a_timestamp_it_begins_anew(broker: BareNode, clock: VirtualClock) -> None:
    nack(broker, "orders/0/0", halfmoon__ttl__ms="50000")  # its own timestamp is 500
    ((_, _, _, headers),) = found(broker, LEVEL_TOPIC, 2)
    assert headers[EXPIRES] == b"50500"


def test_the_topic_it_came_from_says_what_becomes_of_it(broker: BareNode, clock: VirtualClock) -> None:
    broker.create_topic("limited", 1, {TTL: "8000", ACTION: "dead-letter"})
    begin_ms = clock.now_ms
    consume(broker, "limited", begin_ms)
    nack(broker, "limited/0/0", RETRY_TIMESTAMP=str(begin_ms))
    pass_ms(broker, clock, 10_001)
    assert found(broker, RETRY) == []
    ((_, value, _, headers),) = found(broker, DEAD)
    assert value == b"v"
    assert headers["halfmoon.reason"] == OVER
    assert headers["RETRY_TOPIC"] == b"limited"
    assert headers["ORIGIN_MESSAGE_ID"] == b"limited/0/0"
    assert {TTL, EXPIRES, "halfmoon.original-topic"}.isdisjoint(headers)
    assert broker.expiry.counts == {("retry", "dead_lettered"): 1}


def test_what_has_expired_already_is_dead_lettered_at_once(broker: BareNode, clock: VirtualClock) -> None:
    begin_ms = clock.now_ms
    consume(broker, "kept", begin_ms, halfmoon__ttl__ms="10")
    clock.now_ms += 10
    nack(broker, "kept/0/0", halfmoon__ttl__ms="10", RETRY_TIMESTAMP=str(begin_ms))
    ((_, _, _, headers),) = found(broker, DEAD)
    assert headers == {
        "RETRY_TOPIC": b"kept", "ORIGIN_MESSAGE_ID": b"kept/0/0", "RECONSUME_TIME": b"0", "halfmoon.reason": OVER,
    }  # fmt: skip
    nack(broker, "kept/0/0", halfmoon__ttl__ms="10", RETRY_TIMESTAMP=str(begin_ms))
    assert len(found(broker, DEAD)) == 1, "it is the same negative acknowledgement"
    assert broker.expiry.counts == {("retry", "dead_lettered"): 1}


def test_a_dead_letter_has_no_ttl(broker: BareNode, clock: VirtualClock) -> None:
    nack(broker, "orders/0/0", halfmoon__ttl__ms="50000", DELAY="-1", RETRY_TIMESTAMP=str(clock.now_ms))
    ((_, _, _, headers),) = found(broker, DEAD)
    assert {TTL, EXPIRES}.isdisjoint(headers)


POLICY = '{"delay": "2s", "not_retryable": ["BadOrder"]}'


def test_it_goes_on_with_a_retry_policy(broker: BareNode, clock: VirtualClock) -> None:
    begin_ms = clock.now_ms
    nack(broker, "orders/0/0", halfmoon__ttl__ms="50000", RETRY_POLICY=POLICY, RETRY_TIMESTAMP=str(begin_ms))
    pass_ms(broker, clock, 2_001)
    ((_, _, _, headers),) = found(broker, RETRY)
    assert headers[EXPIRES] == b"%d" % (begin_ms + 50_000)
    assert headers["RECONSUME_TIME"] == b"1"


def test_what_has_expired_is_so_whatever_the_error_was(broker: BareNode, clock: VirtualClock) -> None:
    said = {"RETRY_POLICY": POLICY, "RETRY_ERROR_CLASS": "acme.BadOrder", "halfmoon__ttl__ms": "10"}
    begin_ms = clock.now_ms
    consume(broker, "kept", begin_ms, halfmoon__ttl__ms="10")
    nack(broker, "kept/0/0", **said, RETRY_TIMESTAMP=str(begin_ms))
    clock.now_ms += 10
    nack(broker, "kept/0/1", **said, RETRY_TIMESTAMP=str(begin_ms))
    (first, second) = [headers for *_, headers in found(broker, DEAD)]
    assert (first["halfmoon.reason"] or b"").startswith(b"not retryable: acme.BadOrder")
    assert second["halfmoon.reason"] == OVER
    assert first["RETRY_ERROR_CLASS"] == second["RETRY_ERROR_CLASS"] == b"acme.BadOrder"
    assert {TTL, EXPIRES}.isdisjoint(first)
    assert {TTL, EXPIRES}.isdisjoint(second)


# -- crashes -----------------------------------------------------------------------------------------------------------


def play(fs: FaultyFileSystem, clock: VirtualClock, told: dict[str, bool]) -> None:
    """Delayed messages come due while the broker is away; a part has expired when it is there again."""
    broker = reopen(fs, clock)
    broker.create_topic("kept", 1, {ACTION: "dead-letter"})
    broker.create_topic("orders", 1)
    turn(broker)
    for number in range(6):
        send(broker, "kept", (b"%d" % number, {"DELAY": "1", TTL: "10" if number % 2 else "900000"}))
        send(broker, "orders", (b"%d" % number, {"DELAY": "1", TTL: "10" if number % 2 else "900000"}))
    turn(broker)
    told["sent"] = True
    broker.close()
    clock.now_ms += 60_000
    broker = reopen(fs, clock)
    relay(broker)
    told["done"] = True


@pytest.mark.timeout(300)
def test_dying_at_any_operation_makes_neither_two_nor_none() -> None:
    for fs, clock, told in deaths(play, dict[str, bool], least=30):
        clock = copy.copy(clock)
        clock.now_ms += 60_000
        broker = reopen(fs, clock)
        relay(broker)
        if broker.topic("orders") is None or broker.topic("kept") is None or "sent" not in told:
            continue
        assert values(broker, "kept") == [b"0", b"2", b"4"]
        assert values(broker, "orders") == [b"0", b"2", b"4"]
        assert values(broker, UNDELIVERABLE) == [b"1", b"3", b"5"]
        assert broker.waiting.waiting() == 0


def test_a_disk_that_is_full_only_puts_it_off(clock: VirtualClock) -> None:
    fs = FaultyFileSystem(random.Random(1))
    broker = reopen(fs, clock)
    broker.create_topic("orders", 1)
    send(broker, "orders", (b"v", {"DELAY": "1", TTL: "10"}), (b"w", {"DELAY": "1"}))
    relay(broker)
    clock.now_ms += 60_000
    broker.log.failed = OSError("no more")
    broker.relays.expire(clock.now_ms)
    relay(broker)
    assert broker.waiting.waiting() == 2
    broker.log.failed = None
    pass_ms(broker, clock, 20_000)
    assert values(broker, "orders") == [b"w"]
    assert broker.waiting.waiting() == 0
