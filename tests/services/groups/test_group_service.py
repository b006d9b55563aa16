"""Groups with a memory: what is answered only when it is durable, and what a restart remembers."""

from __future__ import annotations

import logging

import pytest

from halfmoon.core.steps import finish
from halfmoon.errors import BrokerError, Fault
from halfmoon.plugins.store.retry.offset_runs import OffsetRuns
from halfmoon.schema import control
from halfmoon.services.groups import service
from halfmoon.services.groups.messages import HeartbeatResult, Join, JoinResult, Sync, SyncResult
from halfmoon.testing.faulty_files import FaultyFileSystem
from halfmoon.testing.node import BareNode
from tests.core.bench import VirtualClock, fill, open_broker, partition_of, turn

DAY_MS = 86_400_000


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL + 1, "halfmoon.broker")


@pytest.fixture
def broker(fs: FaultyFileSystem, clock: VirtualClock) -> BareNode:
    broker = open_broker(fs, clock)
    broker.create_topic("t", 2)
    broker.create_topic("u", 1)
    turn(broker)
    return broker


def join(broker: BareNode, answers: list[JoinResult], member_id: str = "", instance_id: str | None = None) -> None:
    protocols = (("range", b"metadata"),)
    request = Join("g", member_id, instance_id, "client", "/host", 10_000, 10_000, "consumer", protocols, False)
    broker.groups.join(request, answers.append)


def rebalance(broker: BareNode, clock: VirtualClock, member_id: str = "", instance_id: str | None = None) -> JoinResult:
    """One member joins and everything it waits for happens."""
    answers: list[JoinResult] = []
    join(broker, answers, member_id, instance_id)
    clock.now_ms += 1_000
    broker.groups.expire(clock.mono_ms())
    turn(broker)
    (answer,) = answers
    return answer


def test_answers_that_are_too_many_for_one_turn_come_in_the_next_ones(broker: BareNode, clock: VirtualClock) -> None:
    answers: list[JoinResult] = []
    hold = broker.hold
    hold.is_long = lambda: bool(answers) and len(answers) % 3 == 0
    for _ in range(8):
        join(broker, answers)
    for _ in range(10):  # the group waits as long as members keep coming, and once more
        clock.now_ms += 1_000
        broker.groups.expire(clock.mono_ms())
    assert answers == [], "not durable yet"
    turn(broker)
    assert len(answers) == 3
    sizes = []
    broker.groups.leave("g", [(answers[0].member_id, None)])  # what was decided is told all the same
    while len(answers) < 8:
        hold.wake_late()
        sizes.append(len(answers))
    assert sizes == [6, 8]
    assert {answer.generation for answer in answers} == {1}
    assert len({answer.member_id for answer in answers}) == 8


def test_who_waits_is_sent_to_the_next_coordinator_when_the_shard_goes(broker: BareNode, clock: VirtualClock) -> None:
    first = rebalance(broker, clock)
    assign(broker, first)
    turn(broker)
    beats: list[HeartbeatResult] = []
    assert broker.groups.await_rebalance("g", first.member_id, beats.append)
    broker.groups.send_away()
    assert beats == [HeartbeatResult(Fault.NOT_COORDINATOR)]
    joins: list[JoinResult] = []
    join(broker, joins)  # a second member: it waits until the first has joined again
    turn(broker)
    assert joins == []
    broker.groups.send_away()
    turn(broker)
    assert [answer.fault for answer in joins] == [Fault.NOT_COORDINATOR]


def assign(broker: BareNode, joined: JoinResult) -> list[SyncResult]:
    answers: list[SyncResult] = []
    request = Sync(
        "g", joined.generation, joined.member_id, None, "consumer", "range", {joined.member_id: b"assignment"}
    )
    broker.groups.sync(request, answers.append)
    return answers


def commit(broker: BareNode, offset: int, *, group: str = "g", generation: int = -1, member_id: str = "") -> int:
    return broker.groups.commit(
        group, generation, member_id, None, [(partition_of(broker, "t"), offset, 3, f"at {offset}")]
    )


def committed(broker: BareNode, group: str = "g") -> int | None:
    found = broker.groups.offsets(group).get(partition_of(broker, "t"))
    return None if found is None else found.offset


def test_a_generation_is_told_only_when_it_is_durable(broker: BareNode, clock: VirtualClock) -> None:
    answers: list[JoinResult] = []
    join(broker, answers)
    clock.now_ms += 1_000
    broker.groups.expire(clock.mono_ms())
    assert answers == []
    broker.write()
    assert answers == []
    turn(broker)
    assert answers[0].generation >= 1


def test_generations_never_go_back_over_a_restart(broker: BareNode, fs: FaultyFileSystem, clock: VirtualClock) -> None:
    seen = []
    member_id = ""
    for _ in range(3):
        joined = rebalance(broker, clock, member_id)
        member_id = joined.member_id
        seen.append(joined.generation)
        fs = fs.power_loss()
        broker = open_broker(fs, clock)
        fault = broker.groups.heartbeat("g", joined.generation, member_id, None)
        assert fault is Fault.REBALANCE_IN_PROGRESS, "it has joined and got no share"
    assert seen == sorted(set(seen))


def test_a_group_that_cannot_be_written_down_answers_with_an_error(
    broker: BareNode, fs: FaultyFileSystem, clock: VirtualClock
) -> None:
    answers: list[JoinResult] = []
    join(broker, answers)
    fs.fail_sync = True
    clock.now_ms += 1_000
    broker.groups.expire(clock.mono_ms())
    turn(broker)
    assert [answer.fault for answer in answers] == [Fault.COORDINATOR_NOT_AVAILABLE]


def test_a_generation_that_could_not_be_written_is_written_when_there_is_room(
    broker: BareNode, fs: FaultyFileSystem, clock: VirtualClock
) -> None:
    fill(broker, fs)
    unwritten = rebalance(broker, clock)
    assert unwritten.fault is Fault.COORDINATOR_NOT_AVAILABLE
    fs.free = 1 << 40
    answers: list[JoinResult] = []
    join(broker, answers, unwritten.member_id)
    turn(broker)
    (joined,) = answers
    assert (joined.fault, joined.generation) == (None, 1)
    again = open_broker(fs.power_loss(), clock)
    assert rebalance(again, clock, joined.member_id).generation == 2


def test_a_static_member_is_known_after_a_restart(broker: BareNode, fs: FaultyFileSystem, clock: VirtualClock) -> None:
    joined = rebalance(broker, clock, instance_id="static-1")
    synced = assign(broker, joined)
    assert synced == [], "not before it is durable"
    turn(broker)
    assert [answer.assignment for answer in synced] == [b"assignment"]
    again = open_broker(fs.power_loss(), clock)
    description = again.groups.describe("g")
    assert description is not None
    assert [member.instance_id for member in description.members] == ["static-1"]


def test_members_of_a_stable_group_go_on_after_a_restart(
    broker: BareNode, fs: FaultyFileSystem, clock: VirtualClock
) -> None:
    joined = rebalance(broker, clock)
    assert assign(broker, joined) == [], "not before it is durable"
    turn(broker)
    again = open_broker(fs.power_loss(), clock)
    assert again.groups.heartbeat("g", joined.generation, joined.member_id, None) is None
    (synced,) = assign(again, joined)
    assert (synced.fault, synced.assignment) == (None, b"assignment")
    commit(again, 1, generation=joined.generation, member_id=joined.member_id)
    assert committed(again) == 1


def test_offsets_survive(broker: BareNode, fs: FaultyFileSystem, clock: VirtualClock) -> None:
    commit(broker, 5)
    commit(broker, 7)
    turn(broker)
    commit(broker, 9)
    again = open_broker(fs.power_loss(), clock)
    (found,) = again.groups.offsets("g").values()
    assert (found.offset, found.leader_epoch, found.metadata) == (7, 3, "at 7")


def test_commits_of_strangers_are_refused(broker: BareNode, clock: VirtualClock) -> None:
    joined = rebalance(broker, clock)
    with pytest.raises(BrokerError) as caught:
        commit(broker, 1, generation=joined.generation, member_id="stranger")
    assert caught.value.fault is Fault.UNKNOWN_MEMBER_ID
    with pytest.raises(BrokerError) as caught:
        commit(broker, 1, generation=joined.generation + 1, member_id=joined.member_id)
    assert caught.value.fault is Fault.ILLEGAL_GENERATION
    assert committed(broker) is None
    assign(broker, joined)
    turn(broker)
    commit(broker, 1, generation=joined.generation, member_id=joined.member_id)
    assert committed(broker) == 1


def test_offsets_can_be_deleted_one_by_one_and_with_their_group(
    broker: BareNode, fs: FaultyFileSystem, clock: VirtualClock
) -> None:
    parts = [partition_of(broker, "t", 0), partition_of(broker, "t", 1), partition_of(broker, "u")]
    broker.groups.commit("g", -1, "", None, [(partition, 1, -1, "") for partition in parts])
    broker.groups.commit("h", -1, "", None, [(parts[0], 1, -1, "")])
    broker.groups.delete_offsets("g", parts[:1])
    broker.group_names.delete("h")
    turn(broker)
    again = open_broker(fs.power_loss(), clock)
    assert {repr(partition) for partition in again.groups.offsets("g")} == {"t-1", "u-0"}
    assert again.groups.offsets("h") == {}
    with pytest.raises(BrokerError) as caught:
        again.group_names.delete("h")
    assert caught.value.fault is Fault.GROUP_ID_NOT_FOUND


def test_a_group_with_members_is_not_deleted(broker: BareNode, clock: VirtualClock) -> None:
    rebalance(broker, clock)
    with pytest.raises(BrokerError) as caught:
        broker.group_names.delete("g")
    assert caught.value.fault is Fault.NON_EMPTY_GROUP


def test_deleting_a_topic_deletes_its_offsets(broker: BareNode) -> None:
    broker.groups.commit("g", -1, "", None, [(partition_of(broker, name), 1, -1, "") for name in ("t", "u")])
    broker.delete_topic(broker.topic("t"))  # type: ignore[arg-type]
    assert [repr(partition) for partition in broker.groups.offsets("g")] == ["u-0"]


# -- offsets retention (KIP-211) ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("restart", [False, True])
def test_offsets_of_a_deleted_topic_go_and_no_others(
    fs: FaultyFileSystem, clock: VirtualClock, *, restart: bool
) -> None:
    broker = open_broker(fs, clock)
    for name, partitions in (("a", 3), ("b", 1)):
        broker.create_topic(name, partitions)
    places = {(name, index): partition_of(broker, name, index) for name, index in (("a", 0), ("a", 2), ("b", 0))}
    for group in ("both", "twice"):
        broker.groups.record(group, [(each, 5, -1, "") for each in places.values()], reset=True)
        broker.groups.record(group, [(places["a", 0], 6, -1, "")], reset=True)
    broker.groups.record("one", [(places["a", 2], 5, -1, "")], reset=True)
    broker.groups.delete_offsets("twice", [places["a", 0], places["a", 0], places["b", 0]])
    broker.groups.record("gone", [(places["a", 0], 5, -1, "")], reset=True)
    broker.groups.delete("gone")
    turn(broker)
    if restart:
        broker.close()
        broker = open_broker(fs.kill(), clock)
    broker.delete_topic(broker.catalog.by_name["a"])
    turn(broker)
    assert {group: len(broker.groups.committed(group)) for group in ("both", "twice", "one")} == {
        "both": 1, "twice": 0, "one": 0,
    }  # fmt: skip
    assert not broker.groups.exists("one")
    assert broker.groups.exists("both")


def test_groups_expire_in_slices(broker: BareNode, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "LOOKED_AT", 40)
    for at in range(20):
        commit(broker, 1, group=f"g{at:02}")
    clock.now_ms += 8 * DAY_MS
    slices = broker.groups.expire_offsets(clock.wall_ms())
    next(slices)
    left = [at for at in range(20) if broker.groups.exists(f"g{at:02}")]
    assert 10 < len(left) < 20
    commit(broker, 2, group=f"g{left[-1]:02}")
    broker.groups.delete(f"g{left[-2]:02}")
    list(slices)
    assert [at for at in range(20) if broker.groups.exists(f"g{at:02}")] == [left[-1]]


def test_offsets_without_a_group_expire_a_week_after_the_last_commit(broker: BareNode, clock: VirtualClock) -> None:
    commit(broker, 1)
    clock.now_ms += 6 * DAY_MS
    commit(broker, 2)
    clock.now_ms += 7 * DAY_MS - 1
    assert finish(broker.groups.expire_offsets(clock.wall_ms())) == 0
    clock.now_ms += 1
    assert finish(broker.groups.expire_offsets(clock.wall_ms())) == 1
    assert committed(broker) is None


def test_a_group_in_use_keeps_its_offsets_however_old(broker: BareNode, clock: VirtualClock) -> None:
    joined = rebalance(broker, clock)
    assign(broker, joined)
    turn(broker)
    commit(broker, 1, generation=joined.generation, member_id=joined.member_id)
    turn(broker)
    now_ms = clock.wall_ms() + 30 * DAY_MS
    assert finish(broker.groups.expire_offsets(now_ms)) == 0
    assert committed(broker) == 1


def test_the_time_of_an_emptied_group_runs_from_when_it_was_emptied(
    broker: BareNode, fs: FaultyFileSystem, clock: VirtualClock
) -> None:
    joined = rebalance(broker, clock)
    assign(broker, joined)
    turn(broker)
    commit(broker, 1, generation=joined.generation, member_id=joined.member_id)
    for _ in range(10):
        clock.now_ms += 5_000
        assert broker.groups.heartbeat("g", joined.generation, joined.member_id, None) is None
    left_ms = clock.wall_ms()
    broker.groups.leave("g", [(joined.member_id, None)])
    turn(broker)
    again = open_broker(fs.power_loss(), clock)
    assert finish(again.groups.expire_offsets(left_ms + 7 * DAY_MS - 1)) == 0
    assert finish(again.groups.expire_offsets(left_ms + 7 * DAY_MS + 1)) == 1


def test_offsets_can_be_kept_for_ever(fs: FaultyFileSystem, clock: VirtualClock) -> None:
    broker = open_broker(fs, clock, sections={"groups": {"offsets_retention": None}})
    broker.create_topic("t", 1)
    commit(broker, 1)
    assert finish(broker.groups.expire_offsets(clock.wall_ms() + 1000 * DAY_MS)) == 0


def test_only_who_is_no_member_sets_a_group_back(broker: BareNode, clock: VirtualClock) -> None:
    """A member that commits less than was committed has begun again, and what it handed back counts on."""
    joined = rebalance(broker, clock)
    assign(broker, joined)
    turn(broker)
    commit(broker, 9, generation=joined.generation, member_id=joined.member_id)
    place = partition_of(broker, "t").topic.number, 0
    broker.state.nacked.nacked = {"g": {place: OffsetRuns([10])}}
    commit(broker, 5, generation=joined.generation, member_id=joined.member_id)
    assert broker.state.nacked.nacked["g"][place].numbers() == [10]
    commit(broker, 3, group="other")
    broker.state.nacked.nacked = {"other": {place: OffsetRuns([10])}}
    commit(broker, 2, group="other")
    assert broker.state.nacked.nacked == {}


def test_groups_may_come_and_go_while_they_are_listed(broker: BareNode) -> None:
    """100,000 are listed in slices."""
    for number in range(3):
        commit(broker, 1, group=f"g{number}")
    listing = broker.groups.listed(())
    assert next(listing).group == "g0"
    broker.append_control(control.GroupDeleted("g1"))
    commit(broker, 1, group="h")
    assert {each.group for each in listing} >= {"g2"}
    assert [each.group for each in broker.group_names.list()] == ["g0", "g2", "h"]
