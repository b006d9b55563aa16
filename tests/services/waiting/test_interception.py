"""What an interceptor gives is checked before it is stored: nothing vanishes, and a batch stays its producer's."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest

from halfmoon.core.records.batch_header import TRANSACTIONAL, parse_header
from halfmoon.core.records.batches import build_batch, iter_records
from halfmoon.errors import BrokerError, Fault, TakesLongError
from halfmoon.services.common.header_search import HeaderSearch
from halfmoon.services.common.record_edit import rewrite
from halfmoon.services.waiting import interception
from halfmoon.services.waiting.types import Nacked, Put, PutInterceptor, Redirect
from halfmoon.testing.faulty_files import FaultyFileSystem
from halfmoon.testing.node import BareNode
from tests.core.bench import VirtualClock, open_broker, partition_of, send, turn, values

ATTRIBUTES_END = 22
"""The low byte of a batch's attributes."""
HEADERS = (("MARK", b"1"),)


def marked(*given: bytes, **fields: int) -> memoryview:
    return memoryview(bytearray(build_batch([(None, value, 1_000, HEADERS) for value in given], **fields)))


def broker_with(fs: FaultyFileSystem, clock: VirtualClock, before_put: Callable[[Put], Any]) -> BareNode:
    broker = open_broker(fs, clock, interceptors=(PutInterceptor("odd", ("MARK",), before_put),))
    broker.create_topic("t", 1)
    return broker


def flipped(put: Put) -> bytes:
    given = bytearray(put.batch)
    given[-1] ^= 1
    return bytes(given)


WRONG: dict[str, tuple[Callable[[Put], Any], str]] = {
    "nothing": (lambda put: None, "None, expected a batch or a Redirect"),
    "text": (lambda put: "batch", "'batch', expected a batch or a Redirect"),
    "text that stays": (lambda put: Redirect("batch"), "'batch', expected a batch or a Redirect"),  # type: ignore[arg-type]
    "no bytes": (lambda put: b"", "no whole record batch"),
    "a cut batch": (lambda put: bytes(put.batch[:-1]), "no whole record batch"),
    "a changed byte": (flipped, "no whole record batch"),
    "two batches": (lambda put: bytes(put.batch) * 2, "no whole record batch"),
    "more records": (
        lambda put: marked(b"a", b"b", b"c", producer_id=5, producer_epoch=1, base_sequence=0),
        "records that the batch did not have",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", WRONG)
def test_what_cannot_be_stored_is_refused_with_the_interceptors_name(
    fs: FaultyFileSystem, clock: VirtualClock, caplog: pytest.LogCaptureFixture, what: str
) -> None:
    before_put, reason = WRONG[what]
    broker = broker_with(fs, clock, before_put)
    batch = marked(b"a", b"b", producer_id=5, producer_epoch=1, base_sequence=0)
    with (
        caplog.at_level(logging.ERROR, logger="halfmoon.broker"),
        pytest.raises(BrokerError, match="interceptor odd gave ") as caught,
    ):
        broker.append(partition_of(broker, "t"), batch, 0)
    assert caught.value.fault is Fault.UNKNOWN_SERVER_ERROR
    assert reason in caught.value.message
    assert "interceptor=odd" in caplog.text
    turn(broker)
    assert values(broker, "t") == []
    assert send(broker, "t", b"plain").base_offset == 0


@pytest.mark.parametrize("transactional", [0, TRANSACTIONAL])
def test_a_batch_stays_its_producers_and_in_its_transaction(
    fs: FaultyFileSystem, clock: VirtualClock, transactional: int
) -> None:
    """`build_batch` knows neither: what is sent again would be stored twice, what is aborted would be read."""
    broker = broker_with(fs, clock, lambda put: marked(b"B"))
    taken = marked(b"b", producer_id=5, producer_epoch=1, base_sequence=0)
    taken[ATTRIBUTES_END] |= transactional
    interceptor, partition = broker.kernel.appender.interceptor, partition_of(broker, "t")
    assert interceptor is not None
    interceptor.append(partition, taken, parse_header(taken), 0, keyed=False)
    turn(broker)
    (stored,) = broker.read(partition, 0, 1 << 20, min_one=True).slices
    header = parse_header(stored)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (5, 1, 0)
    assert header.attributes & TRANSACTIONAL == transactional
    assert [record.value for record in iter_records(stored)] == [b"B"]


def test_fewer_records_and_other_values_are_stored(fs: FaultyFileSystem, clock: VirtualClock) -> None:
    search = HeaderSearch(["MARK"])

    def before_put(put: Put) -> bytes:
        found = rewrite(put.batch, search, lambda index, record: record if index else None)
        assert found is not None
        return found

    broker = broker_with(fs, clock, before_put)
    batch = marked(b"a", b"b", producer_id=5, producer_epoch=1, base_sequence=0)
    broker.append(partition_of(broker, "t"), batch, 0)
    turn(broker)
    assert values(broker, "t") == [b"b"]


class Sender:
    """What a client may do: what stands here."""

    def __init__(self, *uses: tuple[str, str, str]) -> None:
        self.uses = set(uses)
        self.asked: list[tuple[str, str, str | None]] = []

    def demands(self, uses: tuple[tuple[str, str, str | None], ...]) -> bool:
        self.asked += uses
        return not self.uses.isdisjoint(uses)


def test_of_a_batch_that_nobody_opens_nothing_is_asked(fs: FaultyFileSystem, clock: VirtualClock) -> None:
    sender = Sender()
    broker = broker_with(fs, clock, lambda put: put.batch)
    plain = memoryview(bytearray(build_batch([(None, b"a", 1_000, ())])))
    broker.append(partition_of(broker, "t"), plain, 0, sender=sender)
    broker.append(partition_of(broker, "t"), marked(b"b"), 0, sender=sender)
    assert sender.asked == []
    turn(broker)
    assert values(broker, "t") == [b"a", b"b"]


def test_an_interceptor_asks_what_the_client_may_do(fs: FaultyFileSystem, clock: VirtualClock) -> None:
    def before_put(put: Put) -> memoryview:
        put.check("write", "transactional_id", "p")
        return put.batch

    broker = broker_with(fs, clock, before_put)
    partition = partition_of(broker, "t")
    with pytest.raises(BrokerError) as caught:
        broker.append(partition, marked(b"a"), 0, sender=Sender())
    assert caught.value.fault is Fault.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    broker.append(partition, marked(b"b"), 0, sender=Sender(("write", "transactional_id", "p")))
    broker.append(partition, marked(b"c"), 0)  # the broker itself
    turn(broker)
    assert values(broker, "t") == [b"b", b"c"]


def test_each_topic_that_records_come_from_is_asked_for_once(
    fs: FaultyFileSystem, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(interception, "IN_SLICES", 1)
    monkeypatch.setattr(interception, "TOPICS_AT_ONCE", 10)
    topics = [f"t{number}" for number in range(35)]
    nacked = Nacked("g", tuple((topic, 0, offset) for topic in topics for offset in range(3)))
    broker = broker_with(fs, clock, lambda put: Redirect(put.batch, nacked=nacked))
    sender = Sender(*(("read", "topic", topic) for topic in topics))
    batch = marked(b"a", b"b")
    with pytest.raises(TakesLongError) as caught:
        broker.append(partition_of(broker, "t"), batch, 0, sender=sender)
    steps = caught.value.steps(batch)
    pauses = 0
    try:
        while True:
            work = next(steps)
            assert work is None
            pauses += 1
    except StopIteration as made:
        prepared = made.value
    assert pauses >= 3
    assert sender.asked == [("read", "topic", topic) for topic in topics]
    broker.append(partition_of(broker, "t"), batch, 0, prepared=prepared, sender=sender)
    sender.uses.remove(("read", "topic", "t30"))
    with pytest.raises(TakesLongError) as again:
        broker.append(partition_of(broker, "t"), marked(b"c", b"d"), 0, sender=sender)
    with pytest.raises(BrokerError) as refused:
        list(again.value.steps(marked(b"c", b"d")))
    assert refused.value.fault is Fault.TOPIC_AUTHORIZATION_FAILED
