"""Large transactions end in slices: what others see and may do in between is what Kafka lets them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from halfmoon.errors import BrokerError, Fault
from halfmoon.schema import control
from halfmoon.schema.transactions import LAST_EPOCH, Identity, TransactionState
from halfmoon.services.transactions import prepared
from halfmoon.testing.faulty_files import FaultyFileSystem
from halfmoon.testing.node import BareNode
from tests.core.bench import VirtualClock, open_broker, partition_of, relay, turn
from tests.core.relay_bench import lose_derived
from tests.services.transactions.transaction_bench import TxnClient, committed_values

PARTITIONS = 7
GROUPS = ("g", "h")
PLACES = range(3)


@pytest.fixture(autouse=True)
def few_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepared, "MARKERS_AT_ONCE", PARTITIONS - 1)
    monkeypatch.setattr(prepared, "OFFSETS_AT_ONCE", len(GROUPS) * len(PLACES) - 1)
    monkeypatch.setattr(prepared, "SLICE", 2)


@pytest.fixture
def broker(fs: FaultyFileSystem, clock: VirtualClock) -> BareNode:
    broker = open_broker(fs, clock)
    broker.create_topic("t", PARTITIONS)
    relay(broker)
    return broker


def large(broker: BareNode, name: str = "x", *, bumps: bool = True) -> TxnClient:
    """A producer with an open transaction."""
    one = TxnClient(broker, name, bumps=bumps)
    one.init()
    for index in range(PARTITIONS):
        one.send("t", b"one", index=index)
    for group in GROUPS:
        for index in PLACES:
            one.commit_offsets(group, "t", 5, index)
    relay(broker)
    return one


def ask_end(one: TxnClient, *, commit: bool) -> list[int | BrokerError]:
    """The end is asked for, and nothing of it done; what its asker is told comes into the list."""
    _, position = one.broker.transactions.end(one.name, one.producer_id, one.epoch, commit=commit, bumps=one.bumps)
    assert position is None
    told: list[int | BrokerError] = []
    one.broker.transactions.when_ended(one.name, told.append)
    return told


def step(broker: BareNode) -> bool:
    """One slice, and what it wrote is there for readers. Whether there may be another."""
    if not broker.relays.has_work:
        return False
    assert broker.relays.step() is None
    turn(broker)
    return True


def decided(broker: BareNode) -> int:
    """In how many partitions."""
    partitions = [partition_of(broker, "t", index) for index in range(PARTITIONS)]
    return sum(partition.stable_offset == partition.high_watermark for partition in partitions)


def offsets(broker: BareNode, group: str) -> list[int]:
    return [broker.groups.offsets(group)[place].offset for place in sorted(broker.groups.offsets(group), key=str)]


@contextmanager
def refused(fault: Fault) -> Iterator[None]:
    with pytest.raises(BrokerError) as caught:
        yield
    assert caught.value.fault is fault


@pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
def test_partition_by_partition_and_group_by_group(broker: BareNode, commit: bool) -> None:
    one = large(broker)
    told = ask_end(one, commit=commit)
    turn(broker)
    assert decided(broker) == 0
    state = broker.state.transactions
    seen = [(0, len(GROUPS))]
    while step(broker):
        unstable = [group for group in GROUPS if state.unstable(group)]
        for group in GROUPS:
            assert len(state.unstable(group)) in (0, len(PLACES)), "of one group all count at once"
            counts = commit and group not in unstable
            assert offsets(broker, group) == ([5] * len(PLACES) if counts else [])
        seen.append((decided(broker), len(unstable)))
        if told:
            break
        assert state.by_name["x"].state.value == ("PrepareCommit" if commit else "PrepareAbort")
    expected = [(0, 2), (2, 2), (4, 2), (6, 2), (7, 2), (7, 1), (7, 0), (7, 0)]
    assert seen == expected
    entry = state.by_name["x"]
    assert entry.state is (TransactionState.COMPLETE_COMMIT if commit else TransactionState.COMPLETE_ABORT)
    assert (entry.epoch, entry.after, entry.partitions, entry.groups) == (one.epoch + 1, None, {}, {})
    assert not state.prepared
    assert not state.pending
    for index in range(PARTITIONS):
        assert committed_values(broker, "t", index) == ([b"one"] if commit else [])
    one._become(entry.producer_id, entry.epoch)
    one.send("t", b"two")
    one.commit()
    turn(broker)
    assert committed_values(broker, "t")[-1] == b"two"


@pytest.mark.parametrize("bumps", [True, False])
def test_who_asks_meanwhile_is_told_to_ask_again(broker: BareNode, bumps: bool) -> None:
    one = large(broker, bumps=bumps)
    told = ask_end(one, commit=True)
    service, who = broker.transactions, (one.name, one.producer_id, one.epoch)
    present = (one.name, one.producer_id, one.epoch + bumps)
    while step(broker) and not told:
        if told:
            break
        with refused(Fault.CONCURRENT_TRANSACTIONS):
            service.init_producer_id("x", 60_000, None)
        with refused(Fault.CONCURRENT_TRANSACTIONS):
            service.init_producer_id("x", 60_000, who[1:])
        with refused(Fault.PRODUCER_FENCED):
            service.init_producer_id("x", 60_000, (one.producer_id + 99, 0))
        with refused(Fault.CONCURRENT_TRANSACTIONS):
            service.end(*who, commit=True, bumps=bumps)
        with refused(Fault.INVALID_TXN_STATE):
            service.end(*who, commit=False, bumps=bumps)
        with refused(Fault.CONCURRENT_TRANSACTIONS):
            service.add_partitions(*present, [partition_of(broker, "t")])
        with refused(Fault.CONCURRENT_TRANSACTIONS):
            service.add_group(*present, "g")
        if bumps:
            with refused(Fault.PRODUCER_FENCED):
                service.add_partitions(*who, [partition_of(broker, "t")])
            with refused(Fault.PRODUCER_FENCED):
                service.end("x", one.producer_id, one.epoch + 9, commit=True, bumps=True)
        else:
            with refused(Fault.NOT_ENOUGH_REPLICAS):
                broker.append(partition_of(broker, "t"), one.batch("t", 0, b"y"), broker.clock.wall_ms(), one.who)
        assert service.ongoing == 1
        assert list(broker.state.transactions.unused(1 << 60)) == []
    assert len(told) == 1
    assert service.end(*who, commit=True, bumps=bumps)[1] is not None, "a repeated end is answered"
    assert service.ongoing == 0


@pytest.mark.parametrize("bumps", [True, False])
def test_whoever_takes_the_id_over_ends_what_was_open(broker: BareNode, bumps: bool) -> None:
    one, other = large(broker, bumps=bumps), TxnClient(broker, "x")
    with refused(Fault.CONCURRENT_TRANSACTIONS):
        other.init()
    with refused(Fault.INVALID_TXN_STATE if bumps else Fault.PRODUCER_FENCED):
        one.commit()
    with refused(Fault.PRODUCER_FENCED if bumps else Fault.INVALID_PRODUCER_ID_MAPPING):
        broker.transactions.add_group("x", one.producer_id + (not bumps), one.epoch, "g")
    relay(broker)
    other.init()
    assert other.epoch == one.epoch + 2
    assert decided(broker) == PARTITIONS
    assert committed_values(broker, "t") == []


def test_what_has_taken_too_long_is_aborted_in_slices(broker: BareNode, clock: VirtualClock) -> None:
    one = large(broker)
    clock.now_ms += one.timeout_ms
    broker.transactions.expire(clock.mono_ms())
    assert decided(broker) == 0
    relay(broker)
    assert decided(broker) == PARTITIONS
    assert committed_values(broker, "t") == []
    assert broker.transactions.timed_out == broker.transactions.aborted == 1
    assert broker.transactions.next_deadline() is None


def test_an_exhausted_producer_id(broker: BareNode) -> None:
    one = TxnClient(broker, "x")
    one.init()
    broker.append_control(
        control.TransactionalIdInitialized("x", Identity(one.producer_id, LAST_EPOCH), 60_000, broker.clock.wall_ms())
    )
    one.epoch = LAST_EPOCH
    for index in range(PARTITIONS):
        one.send("t", b"one", index=index)
    told = ask_end(one, commit=True)
    with refused(Fault.CONCURRENT_TRANSACTIONS):
        broker.transactions.end("x", one.producer_id, LAST_EPOCH, commit=True, bumps=True)
    relay(broker)
    assert len(told) == 1
    assert decided(broker) == PARTITIONS
    identity = broker.state.transactions.by_name["x"].identity
    assert (identity.producer_id != one.producer_id, identity.epoch) == (True, 0)


@pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
@pytest.mark.parametrize("snapshot", ["checkpoint", "derived files lost", "clean stop"])
@pytest.mark.parametrize("steps", range(8))
def test_it_goes_on_after_a_restart(
    fs: FaultyFileSystem, clock: VirtualClock, broker: BareNode, steps: int, snapshot: str, commit: bool
) -> None:
    one = large(broker)
    told = ask_end(one, commit=commit)
    turn(broker)
    for _ in range(steps):
        step(broker)
    if snapshot == "clean stop":
        broker.close()
    else:
        broker.housekeeping.freeze()
        turn(broker)
        fs = fs.kill()
        if snapshot == "derived files lost":
            lose_derived(fs)
    broker = open_broker(fs, clock)
    assert not broker.report.damaged
    assert bool(broker.state.transactions.prepared) == (not told)
    assert broker.transactions.next_deadline() is None
    relay(broker)
    assert decided(broker) == PARTITIONS
    for index in range(PARTITIONS):
        assert committed_values(broker, "t", index) == ([b"one"] if commit else [])
    for group in GROUPS:
        assert offsets(broker, group) == ([5] * len(PLACES) if commit else [])
    entry = broker.state.transactions.by_name["x"]
    assert (entry.epoch, entry.is_prepared) == (one.epoch + 1, False)
    markers = [partition_of(broker, "t", index).next_offset for index in range(PARTITIONS)]
    assert markers == [2] * PARTITIONS, "one marker in each"


@pytest.mark.pure
def test_a_disk_that_is_full_for_a_while_is_told_and_it_goes_on_later(
    broker: BareNode, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = large(broker)
    told = ask_end(one, commit=True)
    step(broker)

    def full(*given: object, **more: object) -> int:
        raise BrokerError(Fault.KAFKA_STORAGE_ERROR, "full")

    with monkeypatch.context() as patch:
        patch.setattr(broker.kernel.appender, "append_group", full)
        step(broker)
    (error,) = told
    assert isinstance(error, BrokerError)
    assert 0 < decided(broker) < PARTITIONS
    with refused(Fault.CONCURRENT_TRANSACTIONS):
        one.commit()
    clock.now_ms += 60_000
    broker.relays.expire(clock.mono_ms())
    relay(broker)
    assert decided(broker) == PARTITIONS
    assert [committed_values(broker, "t", index) for index in range(PARTITIONS)] == [[b"one"]] * PARTITIONS


def test_with_transactions_off_it_is_told_of_and_kept(
    fs: FaultyFileSystem, clock: VirtualClock, broker: BareNode
) -> None:
    ask_end(large(broker), commit=True)
    turn(broker)
    fs = fs.kill()
    broker = open_broker(fs, clock, off=["transactions"])
    relay(broker)
    assert decided(broker) == 0
    assert any("wait for x" in warning for warning in broker.warnings())
    broker.close()
    broker = open_broker(fs, clock)
    relay(broker)
    assert decided(broker) == PARTITIONS
