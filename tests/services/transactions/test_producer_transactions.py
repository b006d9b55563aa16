"""Producers' transactions on the log: what commits is there as a whole, what does not is not, whoever dies when."""

from __future__ import annotations

import msgspec
import pytest

from halfmoon.core.catalog import snapshot
from halfmoon.core.hold import Held
from halfmoon.core.retention import PRODUCER_EXPIRATION_MS
from halfmoon.errors import BrokerError, Fault
from halfmoon.schema import control
from halfmoon.schema.snapshot import TransactionalIdState, decode
from halfmoon.schema.transactions import LAST_EPOCH, TransactionState
from halfmoon.services.waiting.types import PutInterceptor, Redirect, Redirected
from halfmoon.testing.faulty_files import FaultyFileSystem
from halfmoon.testing.node import BareNode
from tests.core.bench import VirtualClock, batch, fill, open_broker, partition_of, send, sync, turn, values
from tests.services.transactions.transaction_bench import TxnClient, committed_values, fault_of, markers, read_committed

STYLES = pytest.mark.parametrize("bumps", [True, False], ids=["epoch bumped", "older"])


@pytest.fixture
def broker(fs: FaultyFileSystem, clock: VirtualClock) -> BareNode:
    broker = open_broker(fs, clock)
    broker.create_topic("t", 2)
    turn(broker)
    return broker


def client(broker: BareNode, name: str = "x", **options: object) -> TxnClient:
    found = TxnClient(broker, name, **options)  # type: ignore[arg-type]
    found.init()
    turn(broker)
    return found


def state(broker: BareNode, name: str = "x") -> TransactionState:
    return broker.state.transactions.by_name[name].state


@STYLES
def test_nothing_is_stable_until_the_end_is_durable(broker: BareNode, bumps: bool) -> None:
    one = client(broker, bumps=bumps)
    partition = partition_of(broker, "t")
    one.send("t", b"a", b"b")
    turn(broker)
    assert (partition.high_watermark, partition.stable_offset) == (2, 0)
    assert committed_values(broker, "t") == []
    answered = []
    broker.when_durable(one.commit(), answered.append)
    assert (partition.stable_offset, answered) == (0, [])
    broker.write()
    assert (partition.stable_offset, answered) == (0, [])
    turn(broker)
    assert (partition.high_watermark, partition.stable_offset, answered) == (3, 3, [None])
    assert committed_values(broker, "t") == [b"a", b"b"]
    assert state(broker) is TransactionState.COMPLETE_COMMIT


@STYLES
def test_what_is_aborted_is_left_out(broker: BareNode, bumps: bool) -> None:
    one = client(broker, bumps=bumps)
    one.send("t", b"a")
    one.send("t", b"b", index=1)
    one.abort()
    one.send("t", b"c")
    one.commit()
    turn(broker)
    assert committed_values(broker, "t") == [b"c"]
    assert committed_values(broker, "t", 1) == []
    partition = partition_of(broker, "t")
    assert [commit for *_, commit in markers(broker, partition)] == [False, True]
    assert state(broker) is TransactionState.COMPLETE_COMMIT


def test_each_end_bumps_the_epoch_and_its_markers_have_the_next(broker: BareNode) -> None:
    one = client(broker)
    assert one.epoch == 0
    for value in (b"a", b"b"):
        one.send("t", value)
        one.commit()
    turn(broker)
    assert one.epoch == 2
    assert [epoch for _, _, epoch, _ in markers(broker, partition_of(broker, "t"))] == [1, 2]


def test_older_clients_keep_their_epoch_and_go_on_counting(broker: BareNode) -> None:
    one = client(broker, bumps=False)
    for value in (b"a", b"b"):
        one.send("t", value)
        one.commit()
    turn(broker)
    assert one.epoch == 0
    assert one.sequences == {("t", 0): 2}
    assert [epoch for _, _, epoch, _ in markers(broker, partition_of(broker, "t"))] == [0, 0]


@STYLES
def test_a_partition_without_a_batch_gets_no_marker(broker: BareNode, bumps: bool) -> None:
    one = client(broker, bumps=bumps)
    one.send("t", b"a")
    broker.transactions.add_partitions("x", one.producer_id, one.epoch, [partition_of(broker, "t", 1)])
    one.commit()
    turn(broker)
    assert partition_of(broker, "t", 1).next_offset == 0
    assert committed_values(broker, "t") == [b"a"]


def test_transactions_of_several_producers_interleave(broker: BareNode) -> None:
    one, two, three = (client(broker, name) for name in "xyz")
    one.send("t", b"1a")
    two.send("t", b"2a")
    send(broker, "t", b"plain")
    one.send("t", b"1b")
    three.send("t", b"3a")
    turn(broker)
    partition = partition_of(broker, "t")
    assert partition.stable_offset == 0
    two.commit()
    turn(broker)
    assert partition.stable_offset == 0
    one.abort()
    turn(broker)
    assert partition.stable_offset == 4, "where the third one's begins"
    assert committed_values(broker, "t") == [b"2a", b"plain"]
    three.commit()
    turn(broker)
    assert committed_values(broker, "t") == [b"2a", b"plain", b"3a"]
    for size in (1, 200, 10_000):
        for start in range(partition.high_watermark):
            expected = [(at, value) for at, value in read_committed(broker, "t") if at >= start]
            assert read_committed(broker, "t", from_offset=start, max_bytes=size) == expected


@STYLES
def test_a_second_one_with_the_id_fences_the_first_and_aborts_what_it_had_open(broker: BareNode, bumps: bool) -> None:
    first = client(broker, bumps=bumps)
    first.send("t", b"lost")
    second = client(broker, bumps=bumps)
    assert (second.producer_id, second.epoch) == (first.producer_id, first.epoch + 2)
    assert committed_values(broker, "t") == []
    assert partition_of(broker, "t").stable_offset == 2
    assert fault_of(lambda: first.send("t", b"zombie")) in (Fault.INVALID_PRODUCER_EPOCH, Fault.PRODUCER_FENCED)
    assert fault_of(first.commit) is Fault.PRODUCER_FENCED
    assert fault_of(first.abort) is Fault.PRODUCER_FENCED
    assert fault_of(lambda: first.commit_offsets("g", "t", 1)) is Fault.PRODUCER_FENCED
    assert fault_of(lambda: first.init(again=True)) is Fault.PRODUCER_FENCED
    second.send("t", b"kept")
    second.commit()
    turn(broker)
    assert committed_values(broker, "t") == [b"kept"]


def test_a_zombie_that_asks_for_its_next_epoch_aborts_nothing(broker: BareNode) -> None:
    first = client(broker)
    second = client(broker)
    second.send("t", b"kept")
    assert fault_of(lambda: first.init(again=True)) is Fault.PRODUCER_FENCED
    second.commit()
    turn(broker)
    assert committed_values(broker, "t") == [b"kept"]


def test_a_producer_that_lost_its_way_goes_on_with_the_next_epoch(broker: BareNode) -> None:
    one = client(broker)
    one.send("t", b"lost")
    one.init(again=True)
    turn(broker)
    assert one.epoch == 1
    one.send("t", b"kept")
    one.commit()
    turn(broker)
    assert committed_values(broker, "t") == [b"kept"]


def test_a_repeated_request_for_the_next_epoch_is_answered_alike(broker: BareNode) -> None:
    one = client(broker)
    transactions = broker.transactions
    told, _ = transactions.init_producer_id("x", 1_000, (one.producer_id, 0))
    again, _ = transactions.init_producer_id("x", 1_000, (one.producer_id, 0))
    assert (told.epoch, again.epoch) == (1, 1)


@STYLES
@pytest.mark.parametrize("commit", [True, False])
def test_a_repeated_end_is_answered_alike(broker: BareNode, bumps: bool, commit: bool) -> None:
    one = client(broker, bumps=bumps)
    one.send("t", b"a")
    producer_id, epoch = one.producer_id, one.epoch
    one.end(commit=commit)
    identity, _ = broker.transactions.end("x", producer_id, epoch, commit=commit, bumps=bumps)
    assert (identity.producer_id, identity.epoch) == (one.producer_id, one.epoch)
    assert (
        fault_of(lambda: broker.transactions.end("x", producer_id, epoch, commit=not commit, bumps=bumps))
        is Fault.INVALID_TXN_STATE
    )
    turn(broker)
    assert len(markers(broker, partition_of(broker, "t"))) == 1


def test_a_repeated_end_waits_for_the_first(broker: BareNode) -> None:
    one = client(broker)
    one.send("t", b"a")
    turn(broker)
    producer_id, epoch = one.producer_id, one.epoch
    one.commit()
    answered: list[object] = []
    _, position = broker.transactions.end("x", producer_id, epoch, commit=True, bumps=True)
    broker.when_durable(position, answered.append)
    assert answered == []
    turn(broker)
    assert answered == [None]


@STYLES
def test_nothing_to_commit(broker: BareNode, bumps: bool) -> None:
    one = client(broker, bumps=bumps)
    assert fault_of(one.commit) is Fault.INVALID_TXN_STATE
    if bumps:
        one.abort()  # its first batch may be on its way: it shall not come after this
        assert one.epoch == 1
    else:
        assert fault_of(one.abort) is Fault.INVALID_TXN_STATE


@STYLES
def test_what_takes_too_long_is_aborted_and_its_producer_fenced(
    broker: BareNode, clock: VirtualClock, bumps: bool
) -> None:
    one = client(broker, bumps=bumps, timeout_ms=5_000)
    one.send("t", b"late")
    turn(broker)
    assert broker.transactions.next_deadline() == clock.mono_ms() + 5_000
    clock.now_ms += 4_999
    broker.transactions.expire(clock.mono_ms())
    assert state(broker) is TransactionState.ONGOING
    clock.now_ms += 1
    broker.transactions.expire(clock.mono_ms())
    assert state(broker) is TransactionState.COMPLETE_ABORT
    assert broker.transactions.next_deadline() is None
    turn(broker)
    assert partition_of(broker, "t").stable_offset == 2
    assert committed_values(broker, "t") == []
    # As Kafka 4.3.1 answers: to one who knows that ends bump the epoch it looks like the end of its transaction.
    assert fault_of(one.commit) is (Fault.INVALID_TXN_STATE if bumps else Fault.PRODUCER_FENCED)
    assert fault_of(lambda: one.send("t", b"later")) in (Fault.INVALID_PRODUCER_EPOCH, Fault.PRODUCER_FENCED)
    one.init(again=True)
    one.send("t", b"kept")
    one.commit()
    turn(broker)
    assert committed_values(broker, "t") == [b"kept"]


def test_many_that_take_too_long_are_aborted_a_hundred_at_a_time(broker: BareNode, clock: VirtualClock) -> None:
    for number in range(150):
        client(broker, str(number), timeout_ms=5_000).send("t", b"late")
    clock.now_ms += 5_000
    broker.transactions.expire(clock.mono_ms())
    assert broker.transactions.ongoing == 50
    deadline_ms = broker.transactions.next_deadline()
    assert deadline_ms is not None
    assert deadline_ms <= clock.mono_ms()
    broker.transactions.expire(clock.mono_ms())
    assert broker.transactions.ongoing == 0
    turn(broker)
    assert committed_values(broker, "t") == []


def test_transactions_that_ended_leave_no_deadlines(broker: BareNode) -> None:
    one, other = client(broker, "one"), client(broker, "other")
    other.send("t", b"open")
    for number in range(1_000):
        one.send("t", b"v")
        one.end(commit=bool(number % 2))
    assert len(broker.transactions._timeouts) <= 65
    assert broker.transactions.next_deadline() is not None


def test_the_time_of_a_transaction_counts_from_its_own_beginning(broker: BareNode, clock: VirtualClock) -> None:
    one = client(broker, timeout_ms=5_000)
    one.send("t", b"a")
    clock.now_ms += 4_000
    one.commit()
    one.send("t", b"b")
    clock.now_ms += 4_000
    broker.transactions.expire(clock.mono_ms())
    assert state(broker) is TransactionState.ONGOING
    clock.now_ms += 1_000
    broker.transactions.expire(clock.mono_ms())
    assert state(broker) is TransactionState.COMPLETE_ABORT


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
def test_a_timeout_that_is_not_allowed(broker: BareNode, timeout_ms: int) -> None:
    one = TxnClient(broker, "x", timeout_ms=timeout_ms)
    assert fault_of(one.init) is Fault.INVALID_TRANSACTION_TIMEOUT


def test_epochs_that_are_used_up_lead_to_a_new_producer_id(broker: BareNode) -> None:
    one = client(broker)
    first = one.producer_id
    for _ in range(LAST_EPOCH):
        one.abort()
    assert (one.producer_id, one.epoch) == (first, LAST_EPOCH)
    one.send("t", b"a")
    one.commit()
    assert (one.producer_id != first, one.epoch) == (True, 0)
    identity, _ = broker.transactions.end("x", first, LAST_EPOCH, commit=True, bumps=True)
    assert identity.producer_id == one.producer_id, "a repeated request"
    one.send("t", b"b")
    one.commit()
    turn(broker)
    assert committed_values(broker, "t") == [b"a", b"b"]
    assert markers(broker, partition_of(broker, "t"))[0][1:] == (first, LAST_EPOCH + 1, True)


def test_a_new_producer_id_when_a_client_takes_an_id_whose_epochs_are_used_up(broker: BareNode) -> None:
    one = client(broker)
    first = one.producer_id
    for _ in range(LAST_EPOCH):
        one.init()
    assert (one.producer_id, one.epoch) == (first, LAST_EPOCH)
    one.init()
    assert (one.producer_id != first, one.epoch) == (True, 0)


# -- batches ---------------------------------------------------------------------------------------------------------


def test_a_transactional_batch_without_a_transactional_id(broker: BareNode) -> None:
    one = client(broker)
    partition = partition_of(broker, "t")
    assert fault_of(lambda: broker.append(partition, one.batch("t", 0, b"a"), 0)) is (
        Fault.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    )
    assert partition.next_offset == 0


def test_an_older_producer_must_have_added_the_partition(broker: BareNode) -> None:
    one = client(broker, bumps=False)
    one.added.add(("t", 0))  # it believes so
    assert fault_of(lambda: one.send("t", b"a")) is Fault.TRANSACTION_ABORTABLE
    one.added.clear()
    one.send("t", b"a")
    one.commit()
    one.added.add(("t", 0))
    assert fault_of(lambda: one.send("t", b"late")) is Fault.TRANSACTION_ABORTABLE, "left behind by nobody"


def test_a_batch_that_comes_after_the_end_is_refused(broker: BareNode) -> None:
    one = client(broker)
    late = one.batch("t", 0, b"late")
    one.send("t", b"a")
    one.commit()
    partition = partition_of(broker, "t")
    assert fault_of(lambda: broker.append(partition, late, 0, one.who)) is Fault.INVALID_PRODUCER_EPOCH


def test_a_transaction_begins_at_sequence_0_everywhere(broker: BareNode) -> None:
    one = client(broker)
    one.sequences["t", 0] = 3
    assert fault_of(lambda: one.send("t", b"d")) is Fault.OUT_OF_ORDER_SEQUENCE_NUMBER
    one.sequences.clear()
    one.send("t", b"a")
    one.commit()
    one.sequences["t", 0] = 1
    assert fault_of(lambda: one.send("t", b"e")) is Fault.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_repeated_batch_is_answered_alike(broker: BareNode) -> None:
    one = client(broker)
    first = one.send("t", b"a")
    one.sequences.clear()
    assert one.send("t", b"a").base_offset == first.base_offset
    one.commit()
    turn(broker)
    assert committed_values(broker, "t") == [b"a"]


def test_within_a_transaction_all_batches_of_the_producer_belong_to_it(broker: BareNode) -> None:
    one = client(broker)
    one.send("t", b"a")
    plain = batch(b"b", producer_id=one.producer_id, epoch=one.epoch, sequence=1)
    assert fault_of(lambda: broker.append(partition_of(broker, "t"), plain, 0, one.who)) is Fault.INVALID_TXN_STATE


def test_somebody_elses_producer_id(broker: BareNode) -> None:
    one, two = client(broker, "x"), client(broker, "y")
    two.name = "x"
    assert fault_of(lambda: two.send("t", b"a")) is Fault.INVALID_PRODUCER_ID_MAPPING
    assert fault_of(two.commit) is Fault.INVALID_PRODUCER_ID_MAPPING
    two.name = "nobody"
    assert fault_of(lambda: two.send("t", b"a")) is Fault.INVALID_PRODUCER_ID_MAPPING
    assert fault_of(two.commit) is Fault.INVALID_PRODUCER_ID_MAPPING
    one.send("t", b"a")


@pytest.mark.parametrize(
    "redirect",
    [
        Redirect(None, (Redirected("WAITING", 0, bytes(batch(b"w")), 5_000),)),
        Redirect(bytes(batch(b"w")), (Redirected("other", 0, bytes(batch(b"w"))),)),
        Redirect(None, complete=(("t", 0, 0),)),
    ],
    ids=["delayed", "half", "ends"],
)
def test_what_would_go_elsewhere_cannot_be_part_of_a_transaction(
    fs: FaultyFileSystem, clock: VirtualClock, redirect: Redirect
) -> None:
    """Delays, half messages and their ends, retries: they would happen whether the transaction commits or not."""
    taker = PutInterceptor("taker", ("DELAY",), lambda put: redirect, scheduled_topics=("WAITING",))
    broker = open_broker(fs, clock, interceptors=(taker,))
    broker.create_topic("t", 1)
    one = client(broker)
    wanted = one.batch("t", 0, b"a", headers=(("DELAY", b"3"),))
    assert fault_of(lambda: broker.append(partition_of(broker, "t"), wanted, 0, one.who)) is Fault.INVALID_RECORD
    one.send("t", b"b")
    one.commit()
    turn(broker)
    assert committed_values(broker, "t") == [b"b"]
    assert broker.topic("WAITING") is None


def test_headers_that_are_the_brokers_are_taken_off_transactional_records_too(
    fs: FaultyFileSystem, clock: VirtualClock
) -> None:
    broker = open_broker(fs, clock)
    broker.create_topic("t", 1)
    one = client(broker)
    wanted = one.batch("t", 0, b"a", headers=(("halfmoon.delayed", b"1"), ("mine", b"2")))
    broker.append(partition_of(broker, "t"), wanted, 0, one.who)
    one.sequences["t", 0] = 1
    one.abort()
    turn(broker)
    assert committed_values(broker, "t") == []
    assert values(broker, "t")[:1] == [b"a"]


# -- groups' progress ------------------------------------------------------------------------------------------------


@STYLES
def test_progress_counts_with_the_commit(broker: BareNode, bumps: bool) -> None:
    one = client(broker, bumps=bumps)
    place = partition_of(broker, "t")
    one.send("t", b"a", index=1)
    one.commit_offsets("g", "t", 7)
    assert broker.groups.offsets("g") == {}
    assert broker.groups.unstable("g") == {(place.topic.number, 0)}
    one.commit()
    assert broker.groups.offsets("g")[place].offset == 7
    assert broker.groups.unstable("g") == set()


def test_progress_may_be_told_when_the_commit_is_durable(broker: BareNode) -> None:
    """OffsetFetch waits for the position of the state."""
    one = client(broker)
    one.commit_offsets("g", "t", 7)
    turn(broker)
    assert broker.turn.state_position <= broker.durable_position
    end = one.commit()
    assert broker.turn.state_position == end > broker.durable_position
    turn(broker)
    assert broker.turn.state_position <= broker.durable_position


@STYLES
def test_progress_of_an_aborted_transaction_is_forgotten(broker: BareNode, bumps: bool) -> None:
    one = client(broker, bumps=bumps)
    one.commit_offsets("g", "t", 7)
    one.abort()
    assert broker.groups.offsets("g") == {}
    assert broker.groups.unstable("g") == set()


def test_an_older_producer_must_have_added_the_group(broker: BareNode) -> None:
    one = client(broker, bumps=False)
    entries = [(partition_of(broker, "t"), 7, -1, "")]
    transactions = broker.transactions
    assert (
        fault_of(lambda: transactions.commit_offsets(one.who, one.producer_id, one.epoch, "g", entries))
        is Fault.TRANSACTION_ABORTABLE
    )


def test_a_deleted_group_and_a_deleted_topic(broker: BareNode) -> None:
    one = client(broker)
    broker.create_topic("other", 1)
    one.commit_offsets("g", "t", 7)
    one.commit_offsets("h", "other", 8)
    one.send("other", b"a")
    one.send("t", b"b")
    broker.append_control(control.GroupDeleted("g"))
    topic = broker.topic("other")
    assert topic is not None
    broker.delete_topic(topic)
    one.commit()
    turn(broker)
    assert broker.groups.offsets("g") == broker.groups.offsets("h") == {}
    assert committed_values(broker, "t") == [b"b"]


# -- restarts and crashes --------------------------------------------------------------------------------------------


@STYLES
def test_a_batch_that_is_sent_again_counts_once_although_the_checkpoint_is_lost(
    fs: FaultyFileSystem, clock: VirtualClock, broker: BareNode, bumps: bool
) -> None:
    one = client(broker, bumps=bumps)
    one.send("t", b"before")  # adds the partition, for an older producer
    again = one.batch("t", 0, b"once")
    first = broker.append(partition_of(broker, "t"), memoryview(bytearray(again)), 0, one.who)  # its answer is lost
    turn(broker)
    while len(broker.log.segments) < 2:
        send(broker, "t", b"x" * 4_000, index=1)
        turn(broker)
    fs = fs.kill()
    if "checkpoint" in fs.names:
        fs.remove("checkpoint")
    one.broker = broker = open_broker(fs, clock)
    assert broker.report.snapshot_position is not None  # a segment's head
    assert broker.append(partition_of(broker, "t"), again, 0, one.who).base_offset == first.base_offset
    one.sequences["t", 0] += 1
    one.send("t", b"after")
    one.commit()
    one.send("t", b"next")
    one.commit()
    turn(broker)
    assert committed_values(broker, "t") == [b"before", b"once", b"after", b"next"]


@STYLES
@pytest.mark.parametrize("how", ["clean", "kill", "power loss", "from a segment's head"])
def test_an_open_transaction_goes_on_after_a_restart(
    fs: FaultyFileSystem, clock: VirtualClock, broker: BareNode, how: str, bumps: bool
) -> None:
    one = client(broker, bumps=bumps)
    one.send("t", b"a")
    one.abort()
    one.send("t", b"b")
    one.commit_offsets("g", "t", 7)
    turn(broker)
    if how == "clean":
        broker.close()
    elif how == "kill":
        fs = fs.kill()
    elif how == "power loss":
        fs = fs.power_loss()
    else:
        for _ in range(6):
            send(broker, "t", b"x" * 20_000, index=1)
            turn(broker)
        for path in ("checkpoint", "clean"):
            if path in fs.names:
                fs.remove(path)
        fs.sync_directory("")
        fs = fs.kill()
    clock.now_ms += 10_000
    broker = one.broker = open_broker(fs, clock)
    partition = partition_of(broker, "t")
    assert partition.stable_offset == 2
    assert state(broker) is TransactionState.ONGOING
    assert broker.transactions.next_deadline() == clock.mono_ms() + 50_000, "time has passed meanwhile"
    one.send("t", b"c")
    one.commit()
    turn(broker)
    assert committed_values(broker, "t") == [b"b", b"c"]
    assert broker.groups.offsets("g")[partition].offset == 7


def test_an_end_that_was_not_flushed_is_lost_as_a_whole(
    fs: FaultyFileSystem, clock: VirtualClock, broker: BareNode
) -> None:
    one = client(broker)
    one.send("t", b"a")
    one.send("t", b"b", index=1)
    one.commit_offsets("g", "t", 7)
    turn(broker)
    one.commit()
    broker.write()
    broker = open_broker(fs.power_loss(), clock)
    ends = {partition_of(broker, "t", index).high_watermark for index in (0, 1)}
    assert len(ends) == 1, "both markers or none"
    committed = ends == {2}
    assert (state(broker) is TransactionState.COMPLETE_COMMIT) == committed
    assert bool(broker.groups.offsets("g")) == committed
    assert committed_values(broker, "t") == ([b"a"] if committed else [])


def test_what_nobody_would_end_is_aborted_at_the_next_start(
    fs: FaultyFileSystem, clock: VirtualClock, broker: BareNode
) -> None:
    """Rot may take the records of a transactional id and leave its batches."""
    one = client(broker)
    one.send("t", b"a")
    del broker.state.transactions.by_name["x"]
    broker.close()
    broker = open_broker(fs, clock)
    turn(broker)
    assert partition_of(broker, "t").stable_offset == 2
    assert committed_values(broker, "t") == []


@pytest.mark.parametrize("commit", [True, False])
def test_while_the_disk_is_nearly_full_transactions_can_be_ended(
    fs: FaultyFileSystem, clock: VirtualClock, commit: bool
) -> None:
    """What is kept back of the disk is there for markers too, also where they need another segment."""
    broker = open_broker(fs, clock, low_disk_bytes=4 << 16)
    broker.create_topic("t", 1)
    turn(broker)
    one = client(broker)
    fs.free = 5 << 16
    while not broker.log.low_disk:
        try:
            one.send("t", b"x" * 9_000)
        except BrokerError:
            break
        turn(broker)
    assert broker.log.low_disk
    ended = broker.log.segments[-1].start
    (one.commit if commit else one.abort)()
    for number in range(8):  # until the active segment is full
        broker.groups.commit("g", -1, "", None, [(partition_of(broker, "t"), number, -1, "m" * 4_000)])
    assert broker.log.segments[-1].start >= ended
    turn(broker)
    assert state(broker) is (TransactionState.COMPLETE_COMMIT if commit else TransactionState.COMPLETE_ABORT)
    assert partition_of(broker, "t").stable_offset == partition_of(broker, "t").high_watermark
    with pytest.raises(BrokerError):
        send(broker, "t", b"y")


def test_an_end_that_cannot_be_written_changes_nothing(
    fs: FaultyFileSystem, broker: BareNode, clock: VirtualClock
) -> None:
    one = client(broker, timeout_ms=5_000)
    one.send("t", b"a")
    fill(broker, fs)
    assert fault_of(one.commit) is Fault.KAFKA_STORAGE_ERROR
    assert state(broker) is TransactionState.ONGOING
    clock.now_ms += 5_000
    broker.transactions.expire(clock.mono_ms())
    assert state(broker) is TransactionState.ONGOING
    assert broker.transactions.next_deadline() == clock.mono_ms() + 10_000
    fs.free = 1 << 40
    broker.log.low_disk = False
    clock.now_ms += 10_000
    broker.transactions.expire(clock.mono_ms())
    assert state(broker) is TransactionState.COMPLETE_ABORT


def test_a_disk_that_fails_answers_nobody(fs: FaultyFileSystem, broker: BareNode) -> None:
    one = client(broker)
    one.send("t", b"a")
    turn(broker)
    answered: list[BrokerError | None] = []
    broker.when_durable(one.commit(), answered.append)
    fs.fail_sync = True
    broker.write()
    sync(broker)
    broker.settle()
    assert [error.fault for error in answered if error is not None] == [Fault.KAFKA_STORAGE_ERROR]
    assert partition_of(broker, "t").stable_offset == 0, "its marker may be lost"


# -- who else is concerned -------------------------------------------------------------------------------------------


def test_whoever_waits_for_committed_records_is_woken_by_the_end(broker: BareNode, clock: VirtualClock) -> None:
    one = client(broker)
    partition = partition_of(broker, "t")
    one.send("t", b"a" * 5_000)
    turn(broker)
    woken: list[int] = []
    held = Held(
        (partition,), 4_000, clock.mono_ms() + 60_000, object(), lambda: woken.append(partition.stable_offset),
        match=lambda where, _: where.stable_offset == where.high_watermark,
        ready=lambda: broker.bytes_available(partition, 0, 4_000, committed=True) >= 4_000,
    )  # fmt: skip
    broker.hold.park(held, clock.mono_ms())
    one.send("t", b"b" * 5_000)
    turn(broker)
    assert woken == []
    one.commit()
    turn(broker)
    assert woken == [3]


def test_an_end_asks_each_who_waits_once(fs: FaultyFileSystem, clock: VirtualClock) -> None:
    broker = open_broker(fs, clock)
    topic, _ = broker.create_topic("t", 50)
    one = client(broker)
    asked = 0

    def ready() -> bool:
        nonlocal asked
        asked += 1
        return False

    held = Held(topic.partitions, 1 << 20, clock.mono_ms() + 60_000, object(), lambda: None, ready=ready)
    broker.hold.park(held, clock.mono_ms())
    for index in range(50):
        one.send("t", b"v", index=index)
    one.commit()
    turn(broker)
    assert asked == 1


def test_deleting_records_moves_what_is_stable_with_it(broker: BareNode) -> None:
    one = client(broker)
    send(broker, "t", b"plain")
    one.send("t", b"a")
    turn(broker)
    partition = partition_of(broker, "t")
    assert partition.stable_offset == 1
    broker.delete_records(partition, 2)
    assert (partition.start_offset, partition.stable_offset) == (2, 2)
    one.abort()
    turn(broker)
    assert committed_values(broker, "t") == []
    send(broker, "t", b"later")
    turn(broker)
    assert committed_values(broker, "t") == [b"later"]
    broker.delete_records(partition, -1)
    assert partition.transactions is not None
    assert len(partition.transactions.aborted) == 0, "forgotten with the records"


def test_a_producer_with_an_open_transaction_is_not_forgotten(broker: BareNode, clock: VirtualClock) -> None:
    one = client(broker, timeout_ms=900_000)
    idle = client(broker, "idle")
    one.send("t", b"a")
    idle.send("t", b"b")
    idle.abort()
    turn(broker)
    producers = partition_of(broker, "t").producers
    assert producers is not None
    clock.now_ms += PRODUCER_EXPIRATION_MS + 1_000
    while not broker.housekeeping.retain():
        pass
    assert set(producers.by_id) == {one.producer_id}


def test_ids_that_nobody_uses_are_forgotten(fs: FaultyFileSystem, clock: VirtualClock) -> None:
    broker = open_broker(fs, clock, sections={"transactions": {"id_expiration": "1h"}})
    broker.create_topic("t", 1)
    busy, idle = client(broker, "busy"), client(broker, "idle")
    idle.send("t", b"a")
    idle.commit()
    clock.now_ms += 3_000_000
    busy.send("t", b"b")
    busy.commit()
    clock.now_ms += 601_000
    while not broker.housekeeping.retain():
        pass
    assert set(broker.state.transactions.by_name) == {"busy"}
    turn(broker)
    broker.close()
    broker = open_broker(fs, clock)
    assert set(broker.state.transactions.by_name) == {"busy"}


def test_thousands_of_ids_are_forgotten_a_thousand_at_a_time(fs: FaultyFileSystem, clock: VirtualClock) -> None:
    broker = open_broker(fs, clock, sections={"transactions": {"id_expiration": "1h"}})
    for number in range(2_500):
        broker.transactions.init_producer_id(str(number), 60_000, None)
    clock.now_ms += 3_600_001
    left = []
    while broker.transactions.expire_ids(clock.wall_ms()):
        left.append(len(broker.state.transactions.by_name))
    assert left == [1_500, 500]
    assert not broker.state.transactions.by_name


def test_what_a_snapshot_says_of_an_id_follows_every_change(fs: FaultyFileSystem, clock: VirtualClock) -> None:
    broker = open_broker(fs, clock)
    broker.create_topic("t", 2)
    one = client(broker)

    def saved() -> snapshot.TransactionalIdState:
        saved = decode(snapshot.take(broker.catalog, 0, 0)).transactional_ids
        (state,) = msgspec.msgpack.decode(saved, type=list[TransactionalIdState])
        return state

    assert saved().state is TransactionState.EMPTY
    one.commit_offsets("g", "t", 1)
    one.commit()
    one.send("t", b"v")
    assert (saved().state, saved().partitions) == (TransactionState.ONGOING, [(0, 0)])
    one.send("t", b"v", index=1)
    assert saved().partitions == [(0, 0), (0, 1)]
    one.commit_offsets("g", "t", 7)
    assert saved().groups == ["g"]
    assert [(group, entries[0][2].offset) for group, entries in saved().pending] == [("g", 7)]
    broker.group_names.delete("g")
    assert saved().pending == []
    one.commit()
    assert (saved().state, saved().partitions) == (TransactionState.COMPLETE_COMMIT, [])
    one.init()
    assert (saved().state, saved().identity.epoch) == (TransactionState.EMPTY, one.epoch)


def test_an_operator_ends_what_hangs_in_one_partition(broker: BareNode) -> None:
    one = client(broker)
    one.send("t", b"a")
    partition = partition_of(broker, "t")
    assert fault_of(lambda: broker.transactions.abort_in(partition, one.producer_id, -1)) is (
        Fault.INVALID_PRODUCER_EPOCH
    )
    broker.transactions.abort_in(partition, one.producer_id, one.epoch)
    turn(broker)
    assert partition.stable_offset == 2
    assert committed_values(broker, "t") == []
    one.commit()
    turn(broker)
    assert committed_values(broker, "t") == []


def test_ten_thousand_transactions_of_four_producers(broker: BareNode) -> None:
    clients = [client(broker, str(number)) for number in range(4)]
    expected = []
    for number in range(2_500):
        for which, each in enumerate(clients):
            value = f"{number}-{which}".encode()
            each.send("t", value)
            if (number + which) % 3:
                expected.append(value)
        for which, each in enumerate(clients):
            each.end(commit=bool((number + which) % 3))
        if number % 100 == 0:
            turn(broker)
    turn(broker)
    assert committed_values(broker, "t") == expected


def test_without_a_guard_transactional_batches_are_refused_and_what_is_open_stays_open(broker: BareNode) -> None:
    one = client(broker)
    one.send("t", b"a")
    turn(broker)
    guard, broker.appender.transaction_guard = broker.appender.transaction_guard, None
    assert fault_of(lambda: one.send("t", b"b")) is Fault.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert state(broker) is TransactionState.ONGOING
    assert partition_of(broker, "t").stable_offset == 0
    broker.appender.transaction_guard = guard
    one.commit()
    turn(broker)
    assert committed_values(broker, "t") == [b"a"]
