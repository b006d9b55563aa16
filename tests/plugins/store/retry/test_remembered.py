"""What is remembered of records that groups have nacked, and how long (B35)."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from halfmoon.core.steps import finish
from halfmoon.errors import BrokerError, Fault
from halfmoon.plugins.store.retry.offset_runs import OffsetRuns
from halfmoon.schema.group_topics import retry_topic
from halfmoon.testing.faulty_files import FaultyFileSystem
from halfmoon.testing.node import BareNode
from tests.core.bench import VirtualClock, partition_of, relay, send, turn
from tests.core.relay_bench import send as send_rows
from tests.plugins.store.retry.test_handing_back import GROUP, RETRY, commit, reopen

DAY_MS = 86_400_000


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("add"), st.integers(0, 60), st.integers(1, 9)),
            st.tuples(st.just("drop"), st.integers(0, 70), st.just(0)),
        )
    )
)
def test_runs_hold_what_a_set_would(steps: list[tuple[str, int, int]]) -> None:
    runs, model = OffsetRuns(), set[int]()
    for what, at, count in steps:
        if what == "add":
            runs.add(at, count)
            model |= set(range(at, at + count))
        else:
            runs.drop_below(at)
            model = {each for each in model if each >= at}
        assert list(runs.offsets()) == sorted(model)
        assert [each in runs for each in range(72)] == [each in model for each in range(72)]
        assert len(runs) == sum(each - 1 not in model for each in model)
        assert list(OffsetRuns(runs.numbers()).offsets()) == sorted(model)


def test_what_an_older_version_has_written_is_read() -> None:
    assert list(OffsetRuns([3, 4, 5, 9]).offsets()) == [3, 4, 5, 9]
    assert OffsetRuns([3, 4, 5, 9]).numbers() == [3, -2, 9]


@pytest.fixture
def broker(fs: FaultyFileSystem, clock: VirtualClock) -> BareNode:
    broker = reopen(fs, clock)
    broker.create_topic("orders", 1)
    broker.create_topic(RETRY, 1)
    for _ in range(5):
        send(broker, "orders", *[b"v"] * 100)
    turn(broker)
    return broker


def nack(broker: BareNode, *offsets: int, group: str = GROUP) -> None:
    if broker.topic(retry_topic(group)) is None:
        broker.create_topic(retry_topic(group), 1)
    rows = [(b"v", {"RETRY_OF": f"orders/0/{offset}"}) for offset in offsets]
    send_rows(broker, retry_topic(group), *rows)
    relay(broker)


def remembered(broker: BareNode, group: str = GROUP) -> list[int]:
    places = broker.state.nacked.nacked.get(group, {})
    return [offset for runs in places.values() for offset in runs.offsets()]


def saved(broker: BareNode) -> int:
    return len(msgspec.msgpack.encode(broker.state.nacked.save("sent_back")))


def test_a_batch_is_one_run_and_takes_no_more_for_more_records(broker: BareNode) -> None:
    nack(broker, *range(10))
    small = saved(broker)
    nack(broker, *range(10, 500))
    assert saved(broker) <= small + 8
    assert remembered(broker) == list(range(500))


@pytest.mark.parametrize("how", ["deleted", "expired"])
def test_what_lies_below_the_start_of_its_partition_is_forgotten(
    broker: BareNode, fs: FaultyFileSystem, clock: VirtualClock, how: str
) -> None:
    nack(broker, *range(0, 500, 2))
    partition = partition_of(broker, "orders")
    if how == "deleted":
        broker.administration.delete_records(partition, 300)
    else:
        partition.move_start(300)
        saved(broker)
    assert remembered(broker) == list(range(300, 500, 2))
    if how == "deleted":
        turn(broker)
        broker = reopen(fs.kill(), clock)
        assert remembered(broker) == list(range(300, 500, 2))
        broker.administration.delete_records(partition_of(broker, "orders"), 500)
        assert broker.state.nacked.nacked == {}


def test_it_is_known_after_a_stop_and_after_a_kill(broker: BareNode, fs: FaultyFileSystem, clock: VirtualClock) -> None:
    nack(broker, *range(50), 70)
    turn(broker)
    expected = [*range(50), 70]
    broker = reopen(fs.kill(), clock)
    assert remembered(broker) == expected
    again = broker.fs
    broker.close()
    assert isinstance(again, FaultyFileSystem)
    assert remembered(reopen(again, clock)) == expected


def test_what_was_committed_twice_is_forgotten(broker: BareNode) -> None:
    nack(broker, *range(100))
    for offset in (40, 60, 80):
        commit(broker, "orders", 0, offset)
    assert remembered(broker) == list(range(60, 100))


def test_a_group_that_only_nacks_can_be_deleted_and_may_nack_anew(broker: BareNode) -> None:
    nack(broker, 1, 2, 3, group="flink")
    broker.group_names.delete("flink")
    assert remembered(broker, "flink") == []
    with pytest.raises(BrokerError) as caught:
        broker.group_names.delete("flink")
    assert caught.value.fault is Fault.GROUP_ID_NOT_FOUND


def test_a_group_that_only_nacks_expires(broker: BareNode, clock: VirtualClock) -> None:
    retention_ms = broker.settings.groups.offsets_retention_ms
    assert retention_ms is not None
    nack(broker, 1, group="flink")
    nack(broker, 1)
    commit(broker, "orders", 0, 1)
    assert finish(broker.groups.expire_offsets(clock.wall_ms())) == 0
    assert finish(broker.groups.expire_offsets(clock.wall_ms() + retention_ms - DAY_MS)) == 0
    assert remembered(broker, "flink") == [1]
    assert finish(broker.groups.expire_offsets(clock.wall_ms() + retention_ms)) == 2
    assert broker.state.nacked.nacked == {}


def test_the_topics_end_is_the_end_of_it(broker: BareNode) -> None:
    nack(broker, 1)
    topic = broker.topic("orders")
    assert topic is not None
    broker.delete_topic(topic)
    assert broker.state.nacked.nacked == {}
