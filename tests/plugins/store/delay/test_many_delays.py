"""Batches with many records that feature headers act on: taken apart in slices, few frames, each record in time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from halfmoon.core.pending import PendingSet
from halfmoon.core.records import record_codec
from halfmoon.core.records.batches import build_batch, iter_records
from halfmoon.core.steps import finish
from halfmoon.errors import BrokerError, Fault, TakesLongError
from halfmoon.plugins.store.delay.delays import MOST_PIECES, MOST_RECORDS, TIMER_TOPIC
from halfmoon.services.common.record_edit import GLANCED, SLICE, WRITTEN
from halfmoon.services.waiting.interception import IN_SLICES
from halfmoon.services.waiting.redirecting import CHECKED
from halfmoon.testing.faulty_files import FaultyFileSystem
from halfmoon.testing.node import BareNode
from tests.core.bench import VirtualClock, append, partition_of, relay, turn
from tests.core.relay_bench import found, lose_derived, pass_ms, send, values
from tests.services.keyindex.test_messages import reopen

END = "halfmoon.transactions"
Headers = tuple[tuple[str, bytes], ...]


@pytest.fixture
def broker(fs: FaultyFileSystem, clock: VirtualClock) -> BareNode:
    broker = reopen(fs, clock, segment_bytes=4 << 20)
    broker.create_topic("t", 1)
    return broker


def made(count: int, headers: Callable[[int], Headers], codec: int = 0) -> memoryview:
    rows = [(None, b"%d" % at, 5, headers(at)) for at in range(count)]
    return memoryview(bytearray(build_batch(rows, codec=codec)))


def frames(broker: BareNode, topic: str) -> int:
    queue = partition_of(broker, topic).queue
    return sum(run.high - run.low for run in queue.runs())


def test_records_of_many_times_make_few_frames_and_each_comes_at_its_time_and_not_before(
    broker: BareNode, fs: FaultyFileSystem, clock: VirtualClock
) -> None:
    count = 2_000
    now_ms = clock.now_ms
    due_ms = [now_ms + 1_000 + 7 * ((at * 7_919) % count) for at in range(count)]
    assert len(set(due_ms)) == count
    batch = made(count, lambda at: (("TIMER_DELIVER_MS", b"%d" % due_ms[at]),))
    assert append(broker, partition_of(broker, "t"), batch).base_offset == -1
    relay(broker)
    assert frames(broker, TIMER_TOPIC) <= MOST_PIECES + 1
    pass_ms(broker, clock, 6_000)
    broker.close()
    lose_derived(fs)
    broker = reopen(fs, clock, segment_bytes=4 << 20)
    relay(broker)
    pass_ms(broker, clock, 7 * count)
    rows = found(broker, "t")
    assert [row[1] for row in rows] == [b"%d" % at for at in sorted(range(count), key=lambda at: due_ms[at])]
    for _, value, delivered_ms, headers in rows:
        asked_ms = due_ms[int(value or b"")]
        assert asked_ms <= delivered_ms <= asked_ms + 1
        assert headers == {
            "halfmoon.delayed": b"TIMER_DELIVER_MS=%d" % asked_ms, "halfmoon.original-timestamp": b"5",
        }  # fmt: skip
    assert not partition_of(broker, TIMER_TOPIC).pending


def test_one_of_many_times_can_be_cancelled_and_the_others_come(broker: BareNode, clock: VirtualClock) -> None:
    count = 1_200

    def headers(at: int) -> Headers:
        return ("TIMER_DELAY_MS", b"%d" % (10_000 + 3 * at)), ("UNIQ_KEY", b"u%d" % at)

    append(broker, partition_of(broker, "t"), made(count, headers))
    relay(broker)
    pass_ms(broker, clock, 10_000 + 3 * 600 + 2)
    assert len(values(broker, "t")) == 601
    send(broker, "t", (b"", {"TIMER_DEL_UNIQKEY": "u700"}))
    relay(broker)
    pass_ms(broker, clock, 60_000)
    assert values(broker, "t") == [b"%d" % at for at in range(count) if at != 700]


def test_records_of_many_times_are_moved_out_of_old_segments_with_their_times(
    broker: BareNode, clock: VirtualClock
) -> None:
    count = 1_000
    batch = made(count, lambda at: (("TIMER_DELAY_MS", b"%d" % (10_000 + 11 * at)),))
    append(broker, partition_of(broker, "t"), batch)
    relay(broker)
    pass_ms(broker, clock, 10_000 + 11 * 300)
    broker.waiting.reclaim._upto = broker.log.end
    broker.relays.wake(broker.waiting.reclaim)
    relay(broker)
    assert broker.waiting.moved == count - 300
    pass_ms(broker, clock, 11 * 300)
    assert len(values(broker, "t")) == 600
    pass_ms(broker, clock, 60_000)
    assert values(broker, "t") == [b"%d" % at for at in range(count)]


def test_a_batch_of_more_records_than_one_may_delay_is_refused_and_nothing_is_stored(broker: BareNode) -> None:
    batch = made(MOST_RECORDS + 1, lambda at: (("DELAY", b"1"),), codec=4)
    with pytest.raises(BrokerError, match=f"record {MOST_RECORDS}: ") as caught:
        append(broker, partition_of(broker, "t"), batch)
    assert caught.value.fault is Fault.INVALID_RECORD
    assert "SCHEDULE_TOPIC_XXXX" not in broker.catalog.by_name


# -- slices ------------------------------------------------------------------------------------------------------------


@contextmanager
def counting(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Records read and written since the list was emptied, as its length: what takes the time."""
    worked: list[int] = []
    with monkeypatch.context() as patch:
        for name in ("read_one", "write"):
            call = getattr(record_codec, name)

            def counted(*given: object, call: Callable[..., object] = call) -> object:
                worked.append(1)
                return call(*given)

            patch.setattr(record_codec, name, counted)
        yield worked


KINDS: dict[str, tuple[str, Callable[[int], Headers]]] = {
    "one time": ("t", lambda at: (("TIMER_DELAY_MS", b"60000"),)),
    "many times": ("t", lambda at: (("TIMER_DELAY_MS", b"%d" % (60_000 + at)),)),
    "levels": ("t", lambda at: (("DELAY", b"%d" % (1 + at % 18)),)),
    "cancels": ("t", lambda at: (("TIMER_DEL_UNIQKEY", b"%d" % at),)),
    "cancelled": ("t", lambda at: (("DELAY", b"3"), ("UNIQ_KEY", b"k")) if at else (("TIMER_DEL_UNIQKEY", b"k"),)),
    "half messages": ("t", lambda at: (("TRAN_MSG", b"true"), ("PGROUP", b"g"), ("UNIQ_KEY", b"n%d" % at))),
    "ends": (END, lambda at: (("PGROUP", b"g"), ("UNIQ_KEY", b"%d" % at), ("TRAN_STATE", b"commit"))),
    "nacks": ("retry.g", lambda at: (("RETRY_OF", b"t/0/%d" % (2 * at)),)),
    "nacks without a place": ("retry.g", lambda at: ()),
    "dead letters": ("retry.g", lambda at: (("DELAY", b"-1"),)),
    "headers of the broker's": ("t", lambda at: (("halfmoon.delayed", b"x"),)),
}


@pytest.mark.pure
@pytest.mark.parametrize("codec", [0, 4], ids=["plain", "zstd"])
@pytest.mark.parametrize("kind", KINDS)
def test_whatever_is_done_with_a_batch_others_have_their_turn_after_few_records(
    broker: BareNode, monkeypatch: pytest.MonkeyPatch, kind: str, codec: int
) -> None:
    topic, headers = KINDS[kind]
    for name in {topic, "t", END} - broker.catalog.by_name.keys():
        broker.create_topic(name, 1)
    send(broker, "t", *[(b"x", {})] * 100)
    if kind == "ends":
        halves = made(2_000, lambda at: (("TRAN_MSG", b"true"), ("PGROUP", b"g"), ("UNIQ_KEY", b"%d" % at)))
        append(broker, partition_of(broker, "t"), halves)
    turn(broker)
    batch = made(2_000, headers, codec)
    partition = partition_of(broker, topic)
    with pytest.raises(TakesLongError) as caught:
        broker.append(partition, batch, broker.clock.wall_ms())
    with counting(monkeypatch) as worked:
        slices = caught.value.steps(batch)
        most, value = 0, None
        while True:
            worked.clear()
            try:
                load = slices.send(value)
            except StopIteration as done:
                prepared = done.value
                break
            most = max(most, len(worked))
            value = None if load is None else load()
        assert 0 < most <= 2 * SLICE + 2 * WRITTEN
        worked.clear()
        broker.append(partition, batch, broker.clock.wall_ms(), prepared=prepared)
        assert worked == [], "what is left is not done record by record"


def test_small_batches_are_taken_at_once(broker: BareNode) -> None:
    batch = made(IN_SLICES, lambda at: (("DELAY", b"1"),))
    broker.append(partition_of(broker, "t"), batch, broker.clock.wall_ms())
    assert GLANCED > IN_SLICES


# -- what changes while a batch is prepared ----------------------------------------------------------------------------


def prepared_beside(broker: BareNode, topic: str, batch: memoryview, meanwhile: Callable[[], object]) -> int:
    """Have a batch prepared, let something else happen, and append it; how often it had to be prepared."""
    partition = partition_of(broker, topic)
    prepared: object = None
    times = 0
    while True:
        try:
            broker.append(partition, batch, broker.clock.wall_ms(), prepared=prepared)
            return times
        except TakesLongError as error:
            prepared = finish(error.steps(batch))
            times += 1
            if times == 1:
                meanwhile()


def test_what_is_nacked_while_it_is_prepared_is_redelivered_once(broker: BareNode, clock: VirtualClock) -> None:
    count = IN_SLICES + 50
    send(broker, "t", *[(b"x", {})] * 100)
    broker.create_topic("retry.g", 1)
    rows = [
        (None, b"%d" % at, 5, (("RETRY_OF", b"t/0/%d" % (at % 100)), ("TIMER_DELAY_MS", b"0"))) for at in range(count)
    ]
    batch = memoryview(bytearray(build_batch(rows)))

    def meanwhile() -> None:
        send(broker, "retry.g", (b"first", {"RETRY_OF": "t/0/7", "TIMER_DELAY_MS": "0"}))

    assert prepared_beside(broker, "retry.g", batch, meanwhile) == 2
    relay(broker)
    places = [dict(row[3])["ORIGIN_MESSAGE_ID"] for row in found(broker, "retry.g")]
    assert sorted(places) == sorted({b"t/0/%d" % at for at in range(100)})


def test_a_half_message_that_is_sent_again_while_it_is_prepared_is_one(broker: BareNode) -> None:
    def headers(at: int) -> Headers:
        return ("TRAN_MSG", b"true"), ("PGROUP", b"g"), ("UNIQ_KEY", b"%d" % at)

    def meanwhile() -> None:
        append(broker, partition_of(broker, "t"), made(20, headers))

    assert prepared_beside(broker, "t", made(IN_SLICES + 1, headers), meanwhile) == 2
    turn(broker)
    assert broker.waiting.waiting() == IN_SLICES + 1


MANY_HALVES = IN_SLICES + 1


def halves_wait(broker: BareNode, count: int = MANY_HALVES) -> None:
    batch = made(count, lambda at: (("TRAN_MSG", b"true"), ("PGROUP", b"g"), ("UNIQ_KEY", b"%d" % at)))
    append(broker, partition_of(broker, "t"), batch)
    turn(broker)


def ends(count: int, state: bytes) -> memoryview:
    return made(count, lambda at: (("PGROUP", b"g"), ("UNIQ_KEY", b"%d" % at), ("TRAN_STATE", state)))


@pytest.mark.parametrize(("state", "other"), [(b"commit", b"rollback"), (b"rollback", b"commit")])
def test_what_is_ended_while_an_end_is_prepared_is_ended_once(broker: BareNode, state: bytes, other: bytes) -> None:
    halves_wait(broker)

    def meanwhile() -> None:
        append(broker, partition_of(broker, END), ends(10, other))

    assert prepared_beside(broker, END, ends(MANY_HALVES, state), meanwhile) == 2
    relay(broker)
    committed = range(10) if other == b"commit" else range(10, MANY_HALVES)
    assert values(broker, "t") == [b"%d" % at for at in committed]
    assert broker.waiting.waiting() == 0


@pytest.mark.parametrize("state", [b"commit", b"rollback"])
def test_what_is_moved_while_an_end_is_prepared_is_ended(broker: BareNode, clock: VirtualClock, state: bytes) -> None:
    halves_wait(broker)
    relay(broker)

    def meanwhile() -> None:
        broker.waiting.reclaim._upto = broker.log.end
        finish(broker.waiting.reclaim.run())
        assert broker.waiting.moved

    assert prepared_beside(broker, END, ends(MANY_HALVES, state), meanwhile) == 2
    pass_ms(broker, clock, 10**7)
    assert len(values(broker, "t")) == (MANY_HALVES if state == b"commit" else 0)
    assert broker.waiting.waiting() == 0
    assert "check.g" not in broker.catalog.by_name or values(broker, "check.g") == []


@pytest.mark.parametrize("state", [b"commit", b"rollback"])
def test_of_an_end_nothing_is_left_that_is_done_message_by_message(
    broker: BareNode, monkeypatch: pytest.MonkeyPatch, state: bytes
) -> None:
    halves_wait(broker, 2_000)
    looked: list[int] = []
    for name in ("settle", "__contains__"):
        call = getattr(PendingSet, name)

        def counted(pending: PendingSet, offset: int, call: Callable[..., bool] = call) -> bool:
            looked.append(offset)
            return call(pending, offset)

        monkeypatch.setattr(PendingSet, name, counted)
    partition, batch = partition_of(broker, END), ends(2_000, state)
    with pytest.raises(TakesLongError) as caught:
        broker.append(partition, batch, broker.clock.wall_ms())
    slices, value, most = caught.value.steps(batch), None, 0
    while True:
        looked.clear()
        try:
            load = slices.send(value)
        except StopIteration as done:
            prepared = done.value
            break
        most = max(most, len(looked))
        value = None if load is None else load()
    assert 0 < most <= CHECKED + SLICE
    looked.clear()
    broker.append(partition, batch, broker.clock.wall_ms(), prepared=prepared)
    assert looked == []
    assert broker.waiting.waiting() == 0


def test_nacks_of_a_topic_that_is_deleted_meanwhile_are_of_none(broker: BareNode) -> None:
    count = IN_SLICES + 50
    send(broker, "t", *[(b"x", {})] * count)
    broker.create_topic("retry.g", 1)
    turn(broker)
    batch = made(count, lambda at: (("RETRY_OF", b"t/0/%d" % at), ("TIMER_DELAY_MS", b"0")))

    def meanwhile() -> None:
        broker.delete_topic(broker.catalog.by_name["t"])

    assert prepared_beside(broker, "retry.g", batch, meanwhile) == 2
    assert broker.state.nacked.nacked == {}


def test_a_batch_that_is_prepared_is_counted_in_its_producers_sequence(broker: BareNode) -> None:
    count = IN_SLICES + 1
    rows = [(None, b"%d" % at, 5, (("DELAY", b"1"),)) for at in range(count)]
    fields = {"producer_id": 7, "producer_epoch": 0}
    first = memoryview(bytearray(build_batch(rows, base_sequence=0, **fields)))
    partition = partition_of(broker, "t")
    append(broker, partition, first)
    waiting = broker.waiting.waiting()
    append(broker, partition, memoryview(bytearray(build_batch(rows, base_sequence=0, **fields))))
    assert broker.waiting.waiting() == waiting, "it was sent again"
    append(broker, partition, memoryview(bytearray(build_batch(rows, base_sequence=count, **fields))))
    turn(broker)
    assert broker.waiting.waiting() == 2 * count
    assert [record.value for record in iter_records(first)][:2] == [b"0", b"1"]
