"""Consumer groups of the new protocol with a memory: what a restart remembers, and what they mean to others."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

import pytest

from halfmoon.core.steps import finish
from halfmoon.errors import BrokerError, Fault
from halfmoon.plugins.allocate.averagely import averagely
from halfmoon.plugins.allocate.machine_room_nearby import machine_room_nearby
from halfmoon.plugins.allocate.uniform import uniform
from halfmoon.services.groups.allocation import AnyAllocator, Assignment, Queue
from halfmoon.services.groups.consumer.messages import ConsumerHeartbeat
from halfmoon.services.groups.consumer.settings import GroupOverrides
from halfmoon.services.groups.messages import ConsumerHeartbeatResult
from halfmoon.testing.faulty_files import FaultyFileSystem
from halfmoon.testing.node import BareNode
from tests.core.bench import VirtualClock, fill, open_broker, partition_of, turn

DAY_MS = 86_400_000
ALLOCATORS: Mapping[str, AnyAllocator] = {
    "averagely": averagely, "uniform": uniform, "machine_room_nearby": machine_room_nearby
}  # fmt: skip


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL + 1, "halfmoon.services.groups.consumer.targets")


def opened(fs: FaultyFileSystem, clock: VirtualClock, **groups: object) -> BareNode:
    broker = open_broker(fs, clock, sections={"groups": groups})
    broker.groups.allocators = ALLOCATORS
    return broker


@pytest.fixture
def broker(fs: FaultyFileSystem, clock: VirtualClock) -> BareNode:
    broker = opened(fs, clock)
    broker.create_topic("t", 4)
    turn(broker)
    return broker


def beat(
    broker: BareNode, member_id: str = "m", epoch: int = 0, group: str = "g", **said: object
) -> ConsumerHeartbeatResult:
    fields = {"topics": ("t",), "owned": frozenset(), "rebalance_timeout_ms": 10_000} if epoch == 0 else {}
    answers: list[ConsumerHeartbeatResult] = []
    heartbeat = ConsumerHeartbeat(group=group, member_id=member_id, epoch=epoch, **(fields | said))  # type: ignore[arg-type]
    broker.groups.consumer_heartbeat(heartbeat, answers.append)
    turn(broker)
    (answer,) = answers
    return answer


def indexes(answer: ConsumerHeartbeatResult) -> list[int]:
    return [index for _, index, _ in answer.assigned or ()]


@pytest.mark.parametrize("ends", ["closed", "killed"])
def test_members_go_on_with_their_epochs_after_a_restart(
    fs: FaultyFileSystem, clock: VirtualClock, broker: BareNode, ends: str
) -> None:
    beat(broker)
    beat(broker, "n", instance_id="i")
    assert indexes(beat(broker, epoch=1)) == [2, 3], "the static one comes first"
    if ends == "closed":
        broker.close()
        again = opened(fs, clock)
    else:
        again = opened(fs.kill(), clock)
    number = again.topic("t").number  # type: ignore[union-attr]
    assert beat(again, epoch=1, owned=frozenset({(number, 2), (number, 3)})).epoch == 2
    assert indexes(beat(again, "n", 2, instance_id="i")) == [0, 1]
    described = again.groups.describe_consumer("g")
    assert described is not None
    assert (described.epoch, described.assignment_epoch, described.state) == (2, 2, "Stable")


def test_a_heartbeat_that_changes_nothing_writes_nothing(broker: BareNode) -> None:
    beat(broker)
    end = broker.log.end
    beat(broker, epoch=1)
    assert broker.log.end == end


def test_a_group_that_could_not_be_written_harms_no_other_and_is_written_later(
    fs: FaultyFileSystem, clock: VirtualClock, broker: BareNode, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL + 1, "halfmoon.broker")
    beat(broker, group="other")
    fill(broker, fs)
    unwritten = Fault.COORDINATOR_NOT_AVAILABLE
    assert beat(broker).fault is unwritten
    assert (beat(broker, epoch=1).fault, beat(broker, epoch=1, group="other").fault) == (unwritten, None)
    fs.free = 1 << 40
    assert (beat(broker, epoch=1).fault, beat(broker, epoch=1, group="other").fault) == (None, None)
    again = opened(fs.power_loss(), clock)
    assert beat(again, epoch=1).fault is None, "it was written as a whole"


def test_a_strategy_that_fails_is_a_warning_until_it_works(broker: BareNode) -> None:
    def broken(members: Sequence[str], queues: Sequence[Queue], /) -> Assignment:
        return {members[0]: list(queues) * 2}

    beat(broker)
    broker.groups.allocators = {"averagely": broken}
    assert beat(broker, "n").assigned == ()
    (warning,) = broker.warnings()
    assert "keeps its last assignment, because strategy averagely failed: ValueError: " in warning
    assert indexes(beat(broker, epoch=1, topics=("t",), owned=frozenset(), rebalance_timeout_ms=1)) == [0, 1, 2, 3]
    broker.groups.allocators = ALLOCATORS
    beat(broker, "o")
    assert broker.warnings() == []


@pytest.mark.parametrize("restarts", [False, True])
def test_a_strategy_that_failed_is_asked_again_by_itself(
    fs: FaultyFileSystem, clock: VirtualClock, broker: BareNode, restarts: bool
) -> None:
    beat(broker)
    beat(broker, "n")
    beat(broker, epoch=1)
    number = broker.topic("t").number  # type: ignore[union-attr]
    beat(broker, epoch=1, owned=frozenset({(number, 0), (number, 1)}))
    broker.groups.allocators = {}
    beat(broker, "n", -1)
    assert beat(broker, epoch=2).epoch == 3
    assert len(broker.warnings()) == 1
    if restarts:
        broker = opened(fs.kill(), clock)
        assert len(broker.warnings()) == 1, "it is remembered"
    else:
        broker.groups.allocators = ALLOCATORS
        assert beat(broker, epoch=3).assigned is None, "not with each heartbeat"
        clock.now_ms += 5_000
    assert indexes(beat(broker, epoch=3)) == [0, 1, 2, 3]
    assert broker.warnings() == []


def test_a_group_that_is_empty_has_no_problem(broker: BareNode) -> None:
    broker.groups.allocators = {}
    beat(broker)
    assert len(broker.warnings()) == 1
    beat(broker, epoch=-1)
    assert broker.warnings() == []


def test_a_strategy_that_is_switched_off_meanwhile(broker: BareNode) -> None:
    beat(broker, assignor="uniform")
    broker.groups.allocators = {"averagely": averagely}
    beat(broker, "n")
    assert "strategy uniform failed: ValueError: no enabled plugin offers it" in broker.warnings()[0]


def test_members_near_by_read_what_is_near(fs: FaultyFileSystem, clock: VirtualClock) -> None:
    listener = {"bind": "127.0.0.1:10911", "broker_name": "r2@b"}
    broker = open_broker(
        fs, clock, sections={"groups": {"default_assignor": "machine_room_nearby"}, "listeners": {"rocketmq": listener}}
    )
    broker.groups.allocators = ALLOCATORS
    broker.create_topic("t", 4)
    assert indexes(beat(broker, rack="r1")) == [0, 1, 2, 3]
    beat(broker, "n", rack="r2")
    assert indexes(beat(broker, epoch=1)) == []
    beat(broker, epoch=1, owned=frozenset())
    assert indexes(beat(broker, "n", 2)) == [0, 1, 2, 3]


def test_a_groups_own_configuration(broker: BareNode, clock: VirtualClock) -> None:
    own = GroupOverrides(session_timeout_ms=9_000, heartbeat_interval_ms=700)
    broker.groups.coordinator.settings.overrides = lambda group: own if group == "g" else GroupOverrides()
    assert beat(broker).interval_ms == 700
    clock.now_ms += 8_999
    broker.groups.expire(clock.mono_ms())
    assert broker.groups.coordinator.is_active("g")
    clock.now_ms += 1
    broker.groups.expire(clock.mono_ms())
    assert not broker.groups.coordinator.is_active("g")


def test_an_interval_is_short_beside_the_session(broker: BareNode) -> None:
    settings = broker.groups.coordinator.settings
    settings.overrides = lambda group: GroupOverrides(session_timeout_ms=300)
    assert beat(broker).interval_ms == 100


class Others:
    """A group whose members speak another protocol."""

    protocol_type = "other"

    def has_members(self, group: str) -> bool:
        return True

    def members(self, group: str) -> Sequence[object]:
        return ()

    def groups(self) -> Sequence[str]:
        return ()

    def write_offsets(self, group: str) -> None:
        pass


def test_a_group_of_another_protocol_is_refused(broker: BareNode) -> None:
    broker.group_names.other_protocol = Others()  # type: ignore[assignment]
    refused = beat(broker)
    assert (refused.fault, broker.state.groups.consumer_groups) == (Fault.GROUP_ID_NOT_FOUND, {})
    assert broker.groups.describe_consumer("g") is None


def test_an_empty_group_expires(broker: BareNode, clock: VirtualClock) -> None:
    beat(broker)
    broker.groups.record("g", [(partition_of(broker, "t"), 1, -1, "")], reset=False)
    clock.now_ms += 8 * DAY_MS
    assert finish(broker.groups.expire_offsets(clock.now_ms)) == 0, "it has a member"
    beat(broker, epoch=-1)
    clock.now_ms += 7 * DAY_MS - 1
    assert finish(broker.groups.expire_offsets(clock.now_ms)) == 0
    clock.now_ms += 1
    assert finish(broker.groups.expire_offsets(clock.now_ms)) == 1
    assert (broker.state.groups.consumer_groups, broker.state.groups.offsets) == ({}, {})


def test_a_commit_in_a_transaction_says_who_it_is_or_nothing(broker: BareNode) -> None:
    beat(broker)
    check = broker.groups.check_commit
    assert check("g", -1, "", None, transactional=True) is None
    assert check("g", 1, "m", None, transactional=True) is None
    assert check("g", 2, "m", None, transactional=True) is Fault.STALE_MEMBER_EPOCH
    assert check("g", -1, "", None) is Fault.UNKNOWN_MEMBER_ID
    with pytest.raises(BrokerError, match="has no such member"):
        broker.groups.commit("g", -1, "", None, [(partition_of(broker, "t"), 1, -1, "")])
    assert broker.groups.stale("g", 0, "m", [partition_of(broker, "t")]) == {
        partition_of(broker, "t"): Fault.STALE_MEMBER_EPOCH
    }
    with pytest.raises(BrokerError, match=str(Fault.STALE_MEMBER_EPOCH.value)):
        broker.groups.commit("g", 0, "m", None, [(partition_of(broker, "t"), 1, -1, "")])


def test_an_upgrade_is_remembered_as_one_change(fs: FaultyFileSystem, clock: VirtualClock, broker: BareNode) -> None:
    from tests.services.groups.test_group_service import rebalance

    rebalance(broker, clock)
    assert set(broker.state.groups.groups) == {"g"}
    broker.groups.leave("g", [(member.member_id, None) for member in broker.groups.describe("g").members])  # type: ignore[union-attr]
    beat(broker)
    assert (set(broker.state.groups.groups), set(broker.state.groups.consumer_groups)) == (set(), {"g"})
    again = opened(fs.kill(), clock)
    assert beat(again, epoch=3).fault is None
