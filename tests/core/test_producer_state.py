"""Sequences of idempotent producers: Kafka's rules."""

from __future__ import annotations

import pytest

from halfmoon.core.producer_state import EVERY, SEQUENCES, Producers
from halfmoon.errors import BrokerError, Fault


class Log:
    """A partition that keeps nothing but sequences."""

    def __init__(self) -> None:
        self.producers = Producers()
        self.next_offset = 0

    def send(self, sequence: int, count: int = 1, *, producer_id: int = 7, epoch: int = 0, now_ms: int = 0) -> int:
        """The base offset that is answered."""
        repeated = self.producers.check(producer_id, epoch, sequence, count)
        if repeated is not None:
            return repeated.base_offset
        offset = self.next_offset
        self.producers.appended(producer_id, epoch, sequence, count, offset, offset + 1000, now_ms)
        self.next_offset += count
        return offset

    def refused(self, *args: int, **more: int) -> Fault:
        before = self.next_offset
        with pytest.raises(BrokerError) as caught:
            self.send(*args, **more)
        assert self.next_offset == before
        return caught.value.fault


@pytest.fixture
def log() -> Log:
    return Log()


def test_batches_must_follow_one_another(log: Log) -> None:
    assert [log.send(0, 3), log.send(3, 2), log.send(5)] == [0, 3, 5]
    assert log.refused(7) is Fault.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.send(6) == 6


def test_one_of_the_last_five_batches_gets_its_first_answer_again(log: Log) -> None:
    for number in range(6):
        log.send(2 * number, 2)
    for number in range(1, 6):
        assert log.send(2 * number, 2) == 2 * number
    assert log.next_offset == 12
    assert log.refused(0, 2) is Fault.OUT_OF_ORDER_SEQUENCE_NUMBER, "the sixth last is forgotten"


def test_the_last_batch_may_be_told_again() -> None:
    producers = Producers()
    for sequence in (0, 1, 1, 1, 1, 1, 1):
        producers.appended(1, 0, sequence, 1, sequence, 10 * sequence, 0)
    assert [batch.first_sequence for batch in producers.by_id[1].batches] == [0, 1]


def test_a_repeated_batch_must_be_the_same_batch(log: Log) -> None:
    log.send(0, 2)
    log.send(2, 2)
    assert log.refused(0, 1) is Fault.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.refused(0, 4) is Fault.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.refused(1, 2) is Fault.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_repeated_batch_tells_where_the_log_must_be_durable(log: Log) -> None:
    log.send(0)
    repeated = log.producers.check(7, 0, 0, 1)
    assert repeated is not None
    assert repeated.end_position == 1000


def test_a_producer_nobody_knows_may_begin_anywhere(log: Log) -> None:
    assert log.send(41, 2) == 0
    assert log.send(43) == 2
    assert log.refused(41, 1) is Fault.OUT_OF_ORDER_SEQUENCE_NUMBER


@pytest.mark.parametrize(
    ("producer_id", "epoch", "sequence", "ahead"),
    [
        (7, 3, 5, False), (7, 3, 6, True), (7, 3, 0, False), (7, 3, SEQUENCES - 1, False),
        (7, 4, 0, False), (7, 4, 1, True), (7, 2, 9, False),
        (8, 0, 0, False), (8, 0, 1, True),
        (9, 1, 0, False), (9, 1, 1, True),
    ],
)  # fmt: skip
def test_a_batch_is_ahead_where_one_before_it_may_come_later(
    log: Log, producer_id: int, epoch: int, sequence: int, ahead: bool
) -> None:
    """8 is not known; of 9 there is a marker only."""
    log.send(0, 5, producer_id=7, epoch=3)
    log.producers.marked(9, 1, 0)
    assert log.producers.is_ahead(producer_id, epoch, sequence) is ahead


def test_over_the_wrap_a_batch_is_ahead_as_well(log: Log) -> None:
    log.send(SEQUENCES - 1)
    assert [log.producers.is_ahead(7, 0, sequence) for sequence in (0, 1)] == [False, True]


def test_a_newer_epoch_begins_at_0_and_shuts_out_the_older(log: Log) -> None:
    log.send(0)
    assert log.refused(1, epoch=1) is Fault.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.send(0, epoch=1) == 1
    assert log.refused(1, epoch=0) is Fault.INVALID_PRODUCER_EPOCH
    assert log.send(1, epoch=1) == 2
    assert log.send(0, epoch=1) == 1, "repeated, in the new epoch"


def test_producers_do_not_get_in_each_others_way(log: Log) -> None:
    for producer_id in (1, 2, 3):
        assert log.send(0, producer_id=producer_id) == producer_id - 1
    assert log.send(0, producer_id=2) == 1


@pytest.mark.parametrize("before_wrap", [1, 2, 5])
def test_sequences_wrap_from_the_largest_to_0(log: Log, before_wrap: int) -> None:
    first = SEQUENCES - before_wrap
    assert log.send(first, 5) == 0  # reaches over the wrap, or up to it
    following = (first + 5) % SEQUENCES
    assert following == 5 - before_wrap
    assert log.send(first, 5) == 0, "repeated"
    assert log.send(following) == 5
    assert log.refused(following + 5) is Fault.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_the_largest_sequence_by_itself(log: Log) -> None:
    log.send(SEQUENCES - 1)
    assert log.send(0) == 1
    assert log.send(SEQUENCES - 1) == 0


def test_silent_producers_are_forgotten(log: Log) -> None:
    log.send(0, producer_id=1, now_ms=100)
    log.send(0, producer_id=2, now_ms=200)
    log.send(1, producer_id=1, now_ms=300)
    list(log.producers.expire(250))
    assert set(log.producers.by_id) == {1}
    assert log.send(77, producer_id=2) == 3


def test_very_many_silent_producers_are_forgotten_in_slices(log: Log) -> None:
    for producer_id in range(2 * EVERY):
        log.send(0, producer_id=producer_id, now_ms=100)
    slices = log.producers.expire(250, {7})
    next(slices)
    log.send(1, producer_id=2 * EVERY - 1, now_ms=300)
    left = len(log.producers.by_id)
    assert left == EVERY + 1
    list(slices)
    assert set(log.producers.by_id) == {7, 2 * EVERY - 1}


def test_what_found_no_room_may_come_anywhere_in_the_sequence() -> None:
    producers = Producers()
    producers.refused(1, 0, 30, 0)
    assert producers.check(1, 0, 30, 5) is None
    with pytest.raises(BrokerError):
        producers.check(1, 0, 35, 5)
    producers.appended(1, 0, 30, 5, 100, 0, 0)
    assert producers.check(1, 0, 35, 5) is None
    producers.refused(1, 0, 35, 0)
    assert producers.check(1, 0, 35, 5) is None
