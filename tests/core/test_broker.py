"""The broker: what is acknowledged when, what is visible when, and what a failing disk changes about it."""

from __future__ import annotations

import logging
import tracemalloc
from collections.abc import Callable

import pytest

from halfmoon.core.append import PRODUCER_ID_BLOCK
from halfmoon.core.append_types import Produced
from halfmoon.core.hold import Held
from halfmoon.core.in_order import AGAIN_MS, IN_FLIGHT_MS
from halfmoon.core.producer_state import SEQUENCES
from halfmoon.core.records.batches import parse_header
from halfmoon.core.storage.storage import Read
from halfmoon.errors import BrokerError, Fault
from halfmoon.testing.faulty_files import FaultyFileSystem
from halfmoon.testing.node import BareNode
from tests.core.bench import VirtualClock, batch, fill, open_broker, partition_of, read_all, send, sync, turn, values

Answers = list[tuple[str, Fault | None]]


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL + 1, "halfmoon.broker")


@pytest.fixture
def broker(fs: FaultyFileSystem, clock: VirtualClock) -> BareNode:
    broker = open_broker(fs, clock)
    broker.create_topic("t", 2)
    turn(broker)
    return broker


@pytest.fixture
def answers() -> Answers:
    return []


def to(answers: Answers, name: str) -> Callable[[BrokerError | None], None]:
    return lambda error: answers.append((name, None if error is None else error.fault))


def fails(call: Callable[[], object]) -> Fault:
    with pytest.raises(BrokerError) as caught:
        call()
    return caught.value.fault


# -- durable, visible --------------------------------------------------------------------------------------------------


def test_with_sync_nothing_is_answered_or_visible_before_the_fdatasync(broker: BareNode, answers: Answers) -> None:
    produced = send(broker, "t", b"a")
    broker.when_durable(produced.position, to(answers, "a"))
    partition = partition_of(broker, "t")
    broker.write()
    broker.settle()
    assert (answers, partition.high_watermark, partition.next_offset) == ([], 0, 1)
    assert broker.read(partition, 0, 1000, min_one=True).slices == ()
    assert broker.bytes_available(partition, 0, 1) == 0
    sync(broker)
    assert (answers, partition.high_watermark) == ([("a", None)], 1)
    assert values(broker, "t") == [b"a"]
    broker.when_durable(produced.position, to(answers, "again"))
    assert answers[-1] == ("again", None), "what is durable is answered at once"


def test_with_interval_the_write_is_enough(fs: FaultyFileSystem, clock: VirtualClock, answers: Answers) -> None:
    broker = open_broker(fs, clock, flush="interval")
    broker.create_topic("t", 1)
    broker.when_durable(send(broker, "t", b"a").position, to(answers, "a"))
    assert answers == []
    broker.write()
    broker.settle()
    assert answers == [("a", None)]
    assert values(broker, "t") == [b"a"]
    assert values(open_broker(fs.kill(), clock), "t") == [b"a"]


def test_one_sync_answers_everybody_who_waits_in_order(broker: BareNode, answers: Answers) -> None:
    for name in "abc":
        broker.when_durable(send(broker, "t", name.encode()).position, to(answers, name))
    position = broker.groups.commit("g", -1, "", None, [(partition_of(broker, "t"), 1, -1, "")])
    broker.when_durable(position, to(answers, "commit"))
    before = broker.fs.syncs  # type: ignore[attr-defined]
    broker.write()
    sync(broker)
    assert [name for name, _ in answers] == ["a", "b", "c", "commit"]
    assert broker.fs.syncs == before + 1  # type: ignore[attr-defined]


def test_what_comes_while_a_sync_runs_waits_for_the_next(broker: BareNode, answers: Answers) -> None:
    broker.when_durable(send(broker, "t", b"a").position, to(answers, "a"))
    broker.write()
    job = broker.log.sync_job()
    assert job is not None
    broker.when_durable(send(broker, "t", b"b").position, to(answers, "b"))
    broker.write()
    job.run()
    broker.finish_sync(job, None)
    assert answers == [("a", None)]
    assert partition_of(broker, "t").high_watermark == 1
    sync(broker)
    assert answers == [("a", None), ("b", None)]


def test_an_answer_that_fails_keeps_nobody_else_from_theirs(broker: BareNode, answers: Answers) -> None:
    def failing(error: BrokerError | None) -> None:
        raise ZeroDivisionError

    woken = []
    broker.hold.park(Held([partition_of(broker, "t")], 1, 60_000, "owner", lambda: woken.append("woken")), 0)
    position = send(broker, "t", b"a").position
    for when in (broker.when_durable, broker.when_written):
        when(position, failing)
        when(position, to(answers, "other"))
    turn(broker)
    assert answers == [("other", None), ("other", None)]
    assert woken == ["woken"]


def test_what_need_only_survive_this_process_waits_longer_where_what_is_written_does_not(
    broker: BareNode, answers: Answers
) -> None:
    broker.log.written_stays = False
    position = send(broker, "t", b"a").position
    broker.when_written(position, to(answers, "told"))
    broker.write()
    assert answers == []
    sync(broker)
    assert answers == [("told", None)]


def test_arrivals_wake_held_requests_once_they_can_be_read(broker: BareNode) -> None:
    partition = partition_of(broker, "t")
    seen: list[list[bytes]] = []
    broker.hold.park(
        Held([partition], 1, 10**15, None, lambda: seen.append(values(broker, "t"))), broker.clock.mono_ms()
    )
    send(broker, "t", b"a")
    broker.write()
    assert seen == []
    sync(broker)
    assert seen == [[b"a"]]


def test_the_buffer_is_free_after_the_write(broker: BareNode) -> None:
    data = batch(b"a" * 100)
    freed: list[str] = []
    broker.append(partition_of(broker, "t"), data, 0)
    broker.after_write(lambda: freed.append("first"))
    assert freed == []
    broker.write()
    assert freed == ["first"]
    data[:] = bytes(len(data))
    sync(broker)
    assert values(broker, "t") == [b"a" * 100]
    broker.after_write(lambda: freed.append("second"))
    assert freed == ["first", "second"], "at once when nothing waits"


def test_offsets_and_the_leader_epoch_are_stamped_into_the_batch(fs: FaultyFileSystem, clock: VirtualClock) -> None:
    epochs = []
    for _ in range(3):
        broker = open_broker(fs, clock)
        if broker.topic("t") is None:
            broker.create_topic("t", 1)
        send(broker, "t", b"a", b"b")
        turn(broker)
        epochs.append(broker.generation)
        fs = fs.kill()
    broker = open_broker(fs, clock)
    partition = partition_of(broker, "t")
    headers = [parse_header(piece) for piece in broker.read(partition, 0, 10_000, min_one=True).slices]
    assert [(header.base_offset, header.leader_epoch) for header in headers] == list(
        zip((0, 2, 4), epochs, strict=True)
    )
    assert partition.epochs == list(zip(epochs, (0, 2, 4), strict=True))


# -- disks that fail ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("flush", ["sync", "interval"])
def test_a_failed_write_answers_all_who_wait_with_an_error_and_reads_go_on(
    fs: FaultyFileSystem, clock: VirtualClock, answers: Answers, flush: str
) -> None:
    broker = open_broker(fs, clock, flush=flush)
    broker.create_topic("t", 1)
    send(broker, "t", b"kept")
    turn(broker)
    broker.when_durable(send(broker, "t", b"lost").position, to(answers, "batch"))
    broker.when_durable(broker.create_topic("u", 1)[1], to(answers, "topic"))
    fs.fail_write = True
    broker.write()
    broker.settle()
    assert answers == [("batch", Fault.KAFKA_STORAGE_ERROR), ("topic", Fault.KAFKA_STORAGE_ERROR)]
    assert broker.health()
    assert values(broker, "t") == [b"kept"]
    fs.fail_write = False
    assert fails(lambda: send(broker, "t", b"more")) is Fault.KAFKA_STORAGE_ERROR
    freed: list[int] = []
    broker.after_write(lambda: freed.append(1))
    assert freed == [1], "buffers must not be kept for a write that will never be"
    broker.close()
    again = open_broker(fs.kill(), clock)
    assert values(again, "t") == [b"kept"]
    assert again.topic("u") is None


def test_a_failed_sync_acknowledges_nothing_ever_after(
    broker: BareNode, fs: FaultyFileSystem, answers: Answers
) -> None:
    broker.when_durable(send(broker, "t", b"a").position, to(answers, "a"))
    broker.write()
    fs.fail_sync = True
    sync(broker)
    fs.fail_sync = False
    assert answers == [("a", Fault.KAFKA_STORAGE_ERROR)]
    position = broker.log.end
    broker.when_durable(position, to(answers, "late"))
    assert answers[-1] == ("late", Fault.KAFKA_STORAGE_ERROR)
    assert fails(lambda: send(broker, "t", b"b")) is Fault.KAFKA_STORAGE_ERROR
    turn(broker)
    assert partition_of(broker, "t").high_watermark == 0
    assert broker.health() == ["the log accepts no more writes: [Errno 5] Input/output error"]


def test_a_failure_while_answers_are_sent_answers_nobody_twice(
    broker: BareNode, fs: FaultyFileSystem, answers: Answers
) -> None:
    """An answer may let the next request of its connection in, and that one may need a write, and that may fail."""

    def answer_and_write(error: BrokerError | None) -> None:
        answers.append(("a", error.fault if error else None))
        send(broker, "t", b"c")
        fs.fail_write = True
        broker.write()

    broker.when_durable(send(broker, "t", b"a").position, answer_and_write)
    broker.when_durable(send(broker, "t", b"b").position, to(answers, "b"))
    broker.write()
    position = send(broker, "t", b"d").position
    broker.when_durable(position, to(answers, "d"))
    sync(broker)
    assert answers == [("a", None), ("b", None), ("d", Fault.KAFKA_STORAGE_ERROR)]


# -- idempotent producers ----------------------------------------------------------------------------------------------


def told(produced: Produced) -> tuple[object, ...]:
    """All that it says. (A compiled class keeps no `__slots__`; `dir` knows the fields of both forms.)"""
    told = tuple(getattr(produced, name) for name in dir(produced) if not name.startswith("_"))
    assert len(told) == 5
    return told


def test_a_repeated_batch_waits_for_the_flush_of_the_first_and_gets_its_answer(
    broker: BareNode, answers: Answers
) -> None:
    first = send(broker, "t", b"a", b"b", producer_id=5, sequence=0)
    broker.when_durable(first.position, to(answers, "first"))
    broker.write()
    job = broker.log.sync_job()
    assert job is not None
    later = send(broker, "t", b"c", producer_id=5, sequence=2)
    broker.when_durable(later.position, to(answers, "later"))
    again = send(broker, "t", b"a", b"b", producer_id=5, sequence=0)
    assert told(again) == told(first)
    broker.when_durable(again.position, to(answers, "again"))
    assert answers == []
    job.run()
    broker.finish_sync(job, None)
    assert answers == [("first", None), ("again", None)], "not later than the first"
    turn(broker)
    assert values(broker, "t") == [b"a", b"b", b"c"]


def test_a_repeated_batch_whose_first_fails_fails_too(broker: BareNode, fs: FaultyFileSystem, answers: Answers) -> None:
    send(broker, "t", b"a", producer_id=5, sequence=0)
    broker.write()
    again = send(broker, "t", b"a", producer_id=5, sequence=0)
    broker.when_durable(again.position, to(answers, "again"))
    fs.fail_sync = True
    sync(broker)
    assert answers == [("again", Fault.KAFKA_STORAGE_ERROR)]


@pytest.mark.parametrize("stop", ["kill", "power_loss", "clean"])
@pytest.mark.parametrize("rolls", [False, True])
def test_sequences_are_known_over_a_restart(
    broker: BareNode, fs: FaultyFileSystem, clock: VirtualClock, stop: str, rolls: bool
) -> None:
    produced = [send(broker, "t", b"%d" % n, producer_id=5, sequence=n) for n in range(7)]
    send(broker, "t", b"x", producer_id=6, sequence=SEQUENCES - 1)
    while rolls and len(broker.log.segments) < 3:
        clock.now_ms += 11_000
        send(broker, "t", b"x" * 9_000, index=1)
        turn(broker)
    turn(broker)
    if stop == "clean":
        broker.close()
    again = open_broker(fs.power_loss() if stop == "power_loss" else fs.kill(), clock)
    for n in range(2, 7):
        repeated = send(again, "t", b"%d" % n, producer_id=5, sequence=n)
        assert (repeated.base_offset, repeated.position) == (n, produced[n].position)
        assert repeated.position <= again.durable_position
    assert fails(lambda: send(again, "t", b"x", producer_id=5, sequence=9)) is Fault.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(again, "t", b"7", producer_id=5, sequence=7).base_offset == 8
    assert send(again, "t", b"y", producer_id=6, sequence=0).base_offset == 9, "over the wrap"


def test_a_refused_batch_changes_nothing(broker: BareNode) -> None:
    before = broker.log.end
    data = batch(b"a")
    data[-1] ^= 1
    assert fails(lambda: broker.append(partition_of(broker, "t"), data, 0)) is Fault.CORRUPT_MESSAGE
    send(broker, "t", b"a", producer_id=5, sequence=0)
    end = broker.log.end
    assert fails(lambda: send(broker, "t", b"b", producer_id=5, sequence=5)) is Fault.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert before < broker.log.end == end
    assert partition_of(broker, "t").next_offset == 1


def test_a_shard_that_was_elsewhere_takes_no_batch_before_one_that_may_come_again(
    broker: BareNode, clock: VirtualClock
) -> None:
    """The one before was refused, when the shard was not here yet."""
    broker.appender.was_elsewhere()
    who = {"producer_id": 7}
    assert fails(lambda: send(broker, "t", b"b", sequence=1, **who)) is Fault.NOT_LEADER_OR_FOLLOWER
    assert [send(broker, "t", b"ab"[at : at + 1], sequence=at, **who).base_offset for at in (0, 1)] == [0, 1]
    assert fails(lambda: send(broker, "t", b"d", sequence=3, **who)) is Fault.NOT_LEADER_OR_FOLLOWER
    assert send(broker, "t", b"b", sequence=1, **who).base_offset == 1, "it is stored"
    assert send(broker, "t", b"c", sequence=2, **who).base_offset == 2
    clock.now_ms += IN_FLIGHT_MS
    assert fails(lambda: send(broker, "t", b"x", sequence=5, **who)) is Fault.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(broker, "t", b"d", producer_id=8, sequence=40).base_offset == 3, "its state may have expired"
    turn(broker)
    assert values(broker, "t") == [b"a", b"b", b"c", b"d"]


def test_of_batches_that_a_shard_refused_since_it_was_elsewhere_the_first_is_taken_first(
    broker: BareNode, clock: VirtualClock
) -> None:
    """Found by torture: the first was refused in the last moment of that time, and the next one taken just after it.
    librdkafka took both for stored."""
    broker.appender.was_elsewhere()
    who = {"producer_id": 7}
    late = Fault.NOT_LEADER_OR_FOLLOWER
    for sequence in (9, 8, 10):
        assert fails(lambda at=sequence: send(broker, "t", b"x", sequence=at, **who)) is late  # type: ignore[misc]
    clock.now_ms += IN_FLIGHT_MS
    assert [fails(lambda at=at: send(broker, "t", b"x", sequence=at, **who)) for at in (9, 10)] == [late, late]  # type: ignore[misc]
    assert [send(broker, "t", b"%d" % at, sequence=at, **who).base_offset for at in (8, 9, 10)] == [0, 1, 2]
    assert fails(lambda: send(broker, "t", b"x", sequence=12, **who)) is Fault.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(broker, "t", b"d", producer_id=8, sequence=40).base_offset == 3, "nothing of it was refused"
    turn(broker)
    assert values(broker, "t") == [b"8", b"9", b"10", b"d"]


def test_the_time_begins_with_the_first_batch_that_a_shard_is_sent_which_was_elsewhere(
    broker: BareNode, clock: VirtualClock
) -> None:
    """Whoever opens it may be kept for longer than that from saying so: until then all batches are refused before they
    come here, and the next one comes with the first moment."""
    broker.appender.was_elsewhere()
    clock.now_ms += IN_FLIGHT_MS + AGAIN_MS
    who = {"producer_id": 7}
    assert fails(lambda: send(broker, "t", b"b", sequence=10, **who)) is Fault.NOT_LEADER_OR_FOLLOWER
    assert send(broker, "t", b"c", producer_id=8, sequence=0).base_offset == 0, "nothing comes before it"
    clock.now_ms += IN_FLIGHT_MS - 1
    assert fails(lambda: send(broker, "t", b"x", producer_id=8, sequence=2)) is Fault.NOT_LEADER_OR_FOLLOWER
    assert [send(broker, "t", b"v", sequence=at, **who).base_offset for at in (0, 1)] == [1, 2]
    clock.now_ms += 1
    assert fails(lambda: send(broker, "t", b"x", producer_id=8, sequence=2)) is Fault.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_what_was_refused_and_never_came_again_keeps_no_other_batch_for_long(
    broker: BareNode, clock: VirtualClock
) -> None:
    broker.appender.was_elsewhere()
    assert fails(lambda: send(broker, "t", b"x", producer_id=7, sequence=8)) is Fault.NOT_LEADER_OR_FOLLOWER
    clock.now_ms += IN_FLIGHT_MS + AGAIN_MS
    assert send(broker, "t", b"y", producer_id=7, sequence=9).base_offset == 0


def test_behind_a_batch_that_found_no_room_nothing_is_taken_before_it(broker: BareNode, fs: FaultyFileSystem) -> None:
    """Requests are in the air together. Were the second one taken first, the client could not keep its order."""
    fill(broker, fs)
    who = {"producer_id": 7, "sequence": 0}
    assert fails(lambda: send(broker, "t", b"a", b"b", **who)) is Fault.KAFKA_STORAGE_ERROR
    fs.free = 1 << 30
    broker.housekeeping.turn()
    turn(broker)
    behind = {"producer_id": 7, "sequence": 2}
    assert fails(lambda: send(broker, "t", b"c", **behind)) is Fault.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(broker, "t", b"a", b"b", **who).base_offset == 0
    assert send(broker, "t", b"c", **behind).base_offset == 2
    assert send(broker, "t", b"a", b"b", **who).base_offset == 0, "it is stored"
    turn(broker)
    assert values(broker, "t") == [b"a", b"b", b"c"]
    assert send(broker, "t", b"d", producer_id=8, sequence=40).base_offset == 3, "its state may have expired"


def test_producer_ids_are_never_given_out_twice(fs: FaultyFileSystem, clock: VirtualClock) -> None:
    seen: set[int] = set()
    for stop in ("kill", "power_loss", "kill"):
        broker = open_broker(fs, clock)
        for _ in range(PRODUCER_ID_BLOCK + 10):
            producer_id, position = broker.allocate_producer_id()
            assert producer_id not in seen
            seen.add(producer_id)
            if position > broker.durable_position:
                turn(broker)
        fs = getattr(fs, stop)()
    broker = open_broker(fs, clock)
    assert broker.allocate_producer_id()[0] not in seen


# -- reading -----------------------------------------------------------------------------------------------------------


def test_where_reading_is_out_of_range(broker: BareNode) -> None:
    partition = partition_of(broker, "t")
    for value in (b"a", b"b", b"c"):
        send(broker, "t", value)
    turn(broker)
    send(broker, "t", b"not flushed")
    broker.delete_records(partition, 1)
    for offset in (-1, 0, 5, 100):
        assert fails(lambda at=offset: broker.read(partition, at, 1000, min_one=True)) is Fault.OFFSET_OUT_OF_RANGE  # type: ignore[misc]
    assert len(broker.read(partition, 1, 1000, min_one=True).slices) == 2
    for offset in (3, 4):  # at the high watermark, and between it and the appended end
        assert broker.read(partition, offset, 1000, min_one=True) == Read((), 0, None)


def test_a_read_gives_whole_batches_up_to_its_limit_and_the_first_in_any_case(broker: BareNode) -> None:
    partition = partition_of(broker, "t")
    for _ in range(4):
        send(broker, "t", b"x" * 1_000)
    turn(broker)
    size = len(broker.read(partition, 0, 1, min_one=True).slices[0])
    assert broker.read(partition, 0, 1, min_one=False).slices == ()
    assert len(broker.read(partition, 0, 2 * size + 10, min_one=True).slices) == 2
    assert broker.read(partition, 1, 10 * size, min_one=True).size == 3 * size
    assert broker.bytes_available(partition, 1, 10 * size) == 3 * size


def test_records_before_a_start_are_deleted(broker: BareNode, fs: FaultyFileSystem, clock: VirtualClock) -> None:
    partition = partition_of(broker, "t")
    for number in range(5):
        send(broker, "t", b"%d" % number)
    turn(broker)
    assert broker.delete_records(partition, 2) == (2, broker.log.end)
    assert broker.delete_records(partition, 1) == (2, 0), "never back"
    assert fails(lambda: broker.delete_records(partition, 6)) is Fault.OFFSET_OUT_OF_RANGE
    assert fails(lambda: broker.delete_records(partition, -2)) is Fault.OFFSET_OUT_OF_RANGE
    turn(broker)
    assert read_all(open_broker(fs.power_loss(), clock), "t")[0] == (2, b"2")
    assert broker.delete_records(partition, -1)[0] == 5
    assert values(broker, "t") == []


def test_log_append_time_stamps_the_batch(broker: BareNode, clock: VirtualClock) -> None:
    broker.create_topic("stamped", 1, {"message.timestamp.type": "LogAppendTime"})
    produced = send(broker, "stamped", b"a", timestamp=5)
    assert produced.append_ms == clock.now_ms
    turn(broker)
    (piece,) = broker.read(partition_of(broker, "stamped"), 0, 1000, min_one=True).slices
    assert parse_header(piece).max_timestamp == clock.now_ms
    assert send(broker, "t", b"a", timestamp=5).append_ms == -1


# -- topics ------------------------------------------------------------------------------------------------------------


def test_topics_survive_and_keep_their_ids(broker: BareNode, fs: FaultyFileSystem, clock: VirtualClock) -> None:
    topic, _ = broker.create_topic("configured", 3, {"retention.ms": "5000"})
    broker.add_partitions(topic, 5)
    broker.alter_configs(topic, {"retention.bytes": "7"})
    broker.delete_topic(broker.topic("t"))  # type: ignore[arg-type]
    broker.create_topic("t", 1)
    turn(broker)
    again = open_broker(fs.power_loss(), clock)
    found = again.topic("configured")
    assert found is not None
    assert (found.id, len(found.partitions), found.configs) == (topic.id, 5, {"retention.bytes": "7"})
    assert again.topic_by_id(topic.id) is found
    assert [each.name for each in again.topics()] == ["configured", "t"]
    assert again.topic("t").number != 0  # type: ignore[union-attr]


def test_what_only_validates_changes_nothing(broker: BareNode) -> None:
    before = broker.log.end
    topic = broker.topic("t")
    assert topic is not None
    made, position = broker.create_topic("u", 2, validate_only=True)
    assert (made.name, position, broker.topic("u")) == ("u", 0, None)
    assert broker.add_partitions(topic, 4, validate_only=True) == 0
    assert broker.alter_configs(topic, {"retention.ms": "1"}, validate_only=True) == 0
    assert (broker.log.end, len(topic.partitions), topic.configs) == (before, 2, {})


def test_a_deleted_topic_wakes_who_waits_for_it_and_comes_back_empty(broker: BareNode) -> None:
    send(broker, "t", b"old")
    turn(broker)
    woken: list[int] = []
    partition = partition_of(broker, "t")
    broker.hold.park(Held([partition], 1, 10**15, None, lambda: woken.append(1)), broker.clock.mono_ms())
    send(broker, "t", b"never seen")
    broker.delete_topic(partition.topic)
    assert woken == [1]
    broker.create_topic("t", 1)
    send(broker, "t", b"new")
    turn(broker)
    assert read_all(broker, "t") == [(0, b"new")]


def test_a_thousand_partitions_cost_what_one_does(fs: FaultyFileSystem, broker: BareNode) -> None:
    def cost(name: str, partitions: int) -> tuple[int, int]:
        """Operations of the disk, and bytes of the log."""
        operations, end = fs.operations, broker.log.end
        _, position = broker.create_topic(name, partitions)
        turn(broker)
        assert broker.durable_position >= position
        return fs.operations - operations, broker.log.end - end

    (small, small_bytes), (large, large_bytes) = cost("small", 1), cost("large", 1000)
    assert small == large
    assert large_bytes - small_bytes < 8  # what the number of partitions takes


# -- memory ------------------------------------------------------------------------------------------------------------


def test_memory_does_not_grow_with_retained_batches_of_one_record(fs: FaultyFileSystem, clock: VirtualClock) -> None:
    """Their index rows go into mapped files. The disk is in memory here, so its own bytes are taken off."""
    broker = open_broker(fs, clock)
    broker.create_topic("t", 1)
    data = bytes(batch(b"x"))

    def produce(count: int) -> None:
        partition = partition_of(broker, "t")
        for number in range(count):
            broker.append(partition, memoryview(bytearray(data)), clock.now_ms)
            if number % 200 == 199:
                turn(broker)
        turn(broker)

    produce(2000)
    tracemalloc.start()
    before = tracemalloc.take_snapshot()
    produce(4000)
    after = tracemalloc.take_snapshot()
    tracemalloc.stop()
    ours = [tracemalloc.Filter(True, "*/halfmoon/core/*")]
    grown = sum(stat.size_diff for stat in after.filter_traces(ours).compare_to(before.filter_traces(ours), "filename"))
    assert grown < 4000 * 15, f"{grown} bytes for 4000 batches"
