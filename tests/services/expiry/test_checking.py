"""Produced records with a TTL: what is refused, and what is taken off."""

from __future__ import annotations

import pytest

from halfmoon.errors import BrokerError, Fault
from halfmoon.testing.faulty_files import FaultyFileSystem
from halfmoon.testing.node import BareNode
from tests.core.bench import VirtualClock, open_broker, relay
from tests.core.log_bench import new_fs
from tests.core.relay_bench import found, send

TTL, EXPIRES = "halfmoon.ttl.ms", "halfmoon.expires.ms"


@pytest.fixture
def broker() -> BareNode:
    broker = open_broker(new_fs(), VirtualClock())
    broker.create_topic("t", 1)
    broker.create_topic("retry.g", 1)
    return broker


def headers(broker: BareNode, topic: str = "t") -> list[dict[str, bytes | None]]:
    relay(broker)
    return [row[3] for row in found(broker, topic)]


@pytest.mark.parametrize("wrong", ["0", "-5", "soon", "", "1.5", "9" * 19])
def test_what_is_no_ttl_is_refused(broker: BareNode, wrong: str) -> None:
    with pytest.raises(BrokerError, match=r"record 1: header halfmoon\.ttl\.ms is b'.*', expected milliseconds") as no:
        send(broker, "t", (b"a", {TTL: "5"}), (b"b", {TTL: wrong}))
    assert no.value.fault is Fault.INVALID_RECORD
    assert headers(broker) == []


def test_a_ttl_stays_and_other_headers_of_the_brokers_go(broker: BareNode) -> None:
    send(broker, "t", (b"a", {TTL: "5", "mine": "x"}), (b"b", {TTL: "6", "halfmoon.delayed": "DELAY=3"}))
    assert headers(broker) == [{TTL: b"5", "mine": b"x"}, {TTL: b"6"}]


def test_a_large_batch_is_checked_in_slices(broker: BareNode) -> None:
    rows = [(b"v", {TTL: str(at + 1), EXPIRES: "5"}) for at in range(500)]
    send(broker, "t", *rows)
    assert headers(broker) == [{TTL: b"%d" % (at + 1)} for at in range(500)]
    with pytest.raises(BrokerError, match="record 499"):
        send(broker, "t", *rows[:-1], (b"v", {TTL: "no"}))


def test_the_time_is_the_brokers_to_say(broker: BareNode) -> None:
    send(broker, "t", (b"a", {EXPIRES: "5", TTL: "7"}))
    send(broker, "retry.g", (b"a", {EXPIRES: "5"}))
    assert headers(broker) == [{TTL: b"7"}]
    assert headers(broker, "retry.g") == [{EXPIRES: b"5"}]


def test_where_headers_are_data_nothing_is_looked_at(broker: BareNode) -> None:
    broker.create_topic("data", 1, {"halfmoon.headers.enable": "false"})
    send(broker, "data", (b"a", {TTL: "soon", EXPIRES: "5"}))
    assert headers(broker, "data") == [{TTL: b"soon", EXPIRES: b"5"}]


def test_off_it_is_data(fs: FaultyFileSystem, clock: VirtualClock) -> None:
    broker = open_broker(fs, clock, off=["expiry"])
    broker.create_topic("t", 1)
    send(broker, "t", (b"a", {TTL: "soon"}))
    assert headers(broker) == [{TTL: b"soon"}]
    with pytest.raises(BrokerError, match="expiry is off") as refused:
        broker.create_topic("other", 1, {TTL: "5"})
    assert refused.value.fault is Fault.INVALID_CONFIG


@pytest.mark.parametrize(("name", "wrong"), [(TTL, "0"), (TTL, "-2"), (TTL, "5s"), ("halfmoon.ttl.action", "keep")])
def test_what_no_topic_can_be(broker: BareNode, name: str, wrong: str) -> None:
    with pytest.raises(BrokerError, match=name) as refused:
        broker.create_topic("other", 1, {name: wrong})
    assert refused.value.fault is Fault.INVALID_CONFIG
