"""Members of share groups: joining, epochs, assignments, silence. Time is a number."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from halfmoon.errors import BrokerError, Fault
from halfmoon.services.share.membership import HeartbeatRequest, HeartbeatResponse, ShareMembers, Topics, spread

SESSION_MS = 45_000


class Bench:
    def __init__(self, max_size: int = 200) -> None:
        self.saved: list[tuple[str, int]] = []
        self.fails = False
        self.members = ShareMembers(self.save, max_size)
        self.sizes = {"t": 4, "u": 1}
        self.state = 0
        self.now_ms = 0

    def save(self, group: str, epoch: int) -> None:
        if self.fails:
            raise BrokerError(Fault.KAFKA_STORAGE_ERROR)
        self.saved.append((group, epoch))

    @property
    def topics(self) -> Topics:
        return Topics(self.state, lambda name: (name.encode(), self.sizes[name]) if name in self.sizes else None)

    def resize(self, **sizes: int) -> None:
        self.sizes |= sizes
        self.state += 1

    def beat(self, member: str, epoch: int, *topics: str) -> HeartbeatResponse:
        beat = HeartbeatRequest("g", member, epoch, None, topics or None, "client", "/h")
        return self.members.heartbeat(beat, self.topics, SESSION_MS, self.now_ms)

    def join(self, member: str, *topics: str) -> HeartbeatResponse:
        return self.beat(member, 0, *(topics or ("t",)))

    def fault(self, member: str, epoch: int, *topics: str) -> Fault:
        with pytest.raises(BrokerError) as refused:
            self.beat(member, epoch, *topics)
        return refused.value.fault

    def expire(self) -> list[tuple[str, str]]:
        return self.members.expire(self.topics, self.now_ms, 1_000)


def test_who_joins_is_assigned_at_once_and_told_once() -> None:
    bench = Bench()
    assert bench.join("a") == HeartbeatResponse(1, {"t": (0, 1, 2, 3)})
    assert bench.beat("a", 1) == HeartbeatResponse(1, None)
    assert bench.beat("a", 1, "t") == HeartbeatResponse(1, {"t": (0, 1, 2, 3)})
    assert bench.saved == [("g", 1)]


def test_others_hear_of_a_change_with_their_next_heartbeat() -> None:
    bench = Bench()
    bench.join("a")
    assert bench.join("b") == HeartbeatResponse(2, {"t": (1, 3)})
    assert bench.beat("a", 1) == HeartbeatResponse(2, {"t": (0, 2)})
    assert bench.beat("a", 1) == HeartbeatResponse(2, None)  # an answer that was lost: the epoch before will do
    bench.members.leave("g", "b", bench.topics)
    assert bench.beat("a", 2) == HeartbeatResponse(3, {"t": (0, 1, 2, 3)})


def test_members_share_partitions_where_there_are_too_few() -> None:
    bench = Bench()
    given = [bench.join(name, "t", "u").assignment for name in "abcdef"]
    assert given[-1] == {"t": (1,), "u": (0,)}
    members = bench.members.groups["g"].members
    assert [members[name].assigned for name in "abcdef"] == [{"t": (at % 4,), "u": (0,)} for at in range(6)]
    assert [bench.beat(name, at).epoch for at, name in enumerate("abcdef", 1)] == [6] * 6


def test_topics_that_grow_come_and_go() -> None:
    bench = Bench()
    assert bench.join("a", "t", "new") == HeartbeatResponse(1, {"t": (0, 1, 2, 3)})
    bench.resize(other=3)
    assert bench.beat("a", 1) == HeartbeatResponse(1, None)
    bench.resize(new=2)
    assert bench.beat("a", 1) == HeartbeatResponse(2, {"t": (0, 1, 2, 3), "new": (0, 1)})
    bench.resize(new=3)
    assert bench.beat("a", 2).assignment == {"t": (0, 1, 2, 3), "new": (0, 1, 2)}
    del bench.sizes["t"]
    bench.state += 1
    assert bench.beat("a", 3) == HeartbeatResponse(4, {"new": (0, 1, 2)})


def test_a_subscription_may_change() -> None:
    bench = Bench()
    bench.join("a")
    assert bench.beat("a", 1, "u") == HeartbeatResponse(2, {"u": (0,)})


def test_what_is_refused() -> None:
    bench = Bench(max_size=1)
    assert bench.fault("a", 0) is Fault.INVALID_REQUEST
    assert bench.fault("a", 1) is Fault.UNKNOWN_MEMBER_ID
    bench.join("a")
    assert bench.fault("b", 0, "t") is Fault.GROUP_MAX_SIZE_REACHED
    assert bench.fault("b", 1) is Fault.UNKNOWN_MEMBER_ID
    assert bench.fault("a", 2) is Fault.FENCED_MEMBER_EPOCH
    bench.beat("a", 1, "u")
    bench.beat("a", 2, "t")
    assert bench.fault("a", 1) is Fault.FENCED_MEMBER_EPOCH  # two epochs ago
    with pytest.raises(BrokerError) as refused:
        bench.members.leave("g", "b", bench.topics)
    assert refused.value.fault is Fault.UNKNOWN_MEMBER_ID


def test_who_joins_again_keeps_its_place() -> None:
    bench = Bench()
    bench.join("a")
    assert bench.join("a") == HeartbeatResponse(1, {"t": (0, 1, 2, 3)})


def test_the_silent_are_taken_out() -> None:
    bench = Bench()
    bench.join("a")
    bench.join("b")
    bench.now_ms = 40_000
    bench.beat("a", 1)
    bench.now_ms = 45_000
    assert bench.members.next_deadline() == 45_000
    assert bench.expire() == [("g", "b")]
    assert bench.beat("a", 2) == HeartbeatResponse(3, {"t": (0, 1, 2, 3)})
    bench.now_ms = 100_000
    assert bench.expire() == [("g", "a")]
    assert not bench.members.has_members("g")
    assert bench.members.groups["g"].state == "Empty"


def test_an_epoch_that_cannot_be_written_is_none() -> None:
    bench = Bench()
    bench.join("a")
    bench.fails = True
    assert bench.fault("b", 0, "t") is Fault.KAFKA_STORAGE_ERROR
    assert bench.beat("a", 1) == HeartbeatResponse(1, None)
    bench.now_ms = 50_000
    assert bench.expire() == []
    bench.fails = False
    bench.now_ms = 51_000
    assert bench.expire() == [("g", "a")]
    assert bench.saved == [("g", 1), ("g", 2)]


def test_epochs_go_on_after_a_restart() -> None:
    bench = Bench()
    bench.members.restore({"g": 7})
    assert bench.fault("a", 7) is Fault.UNKNOWN_MEMBER_ID
    assert bench.join("a").epoch == 8


@given(st.integers(1, 20), st.integers(1, 20))
def test_every_partition_has_a_reader_and_every_member_a_partition(members: int, partitions: int) -> None:
    found = spread(members, partitions)
    assert {part for parts in found for part in parts} == set(range(partitions))
    assert len(found) == members
    sizes = {len(parts) for parts in found}
    assert max(sizes) - min(sizes) <= 1
    assert min(sizes) >= 1
    readers = [sum(part in parts for parts in found) for part in range(partitions)]
    assert max(readers) - min(readers) <= 1
