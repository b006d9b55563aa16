"""What a snapshot tells of committed offsets: only what has changed is encoded anew."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from halfmoon.schema import control
from halfmoon.schema.control import Committed
from halfmoon.schema.groups import ConsumerGroupChange, GroupRecord
from halfmoon.schema.snapshot import encode
from halfmoon.services.groups import state as module
from halfmoon.services.groups.state import GroupsState

TOPICS, PARTITIONS = 5, 4


class Topics:
    """Places with so many topics, some of which go."""

    def __init__(self, partitions: int = PARTITIONS) -> None:
        self.counts = dict.fromkeys(range(TOPICS), partitions)

    def partition(self, number: int, index: int) -> None:
        raise AssertionError

    def is_topic(self, number: int) -> bool:
        return number in self.counts

    def partition_count(self, number: int) -> int:
        return self.counts.get(number, 0)


def at(offset: int) -> Committed:
    return Committed(offset, -1, "", 0)


def told(state: GroupsState) -> dict[str, dict[tuple[int, int], int]]:
    """Group → place → offset, as somebody reads it who starts from the snapshot."""
    restored = GroupsState(Topics())
    restored.restore("offsets", msgspec.Raw(encode(state.save("offsets"))))
    return {
        group: {place: kept.offset for place, kept in offsets.items()} for group, offsets in restored.offsets.items()
    }


@pytest.fixture
def encoded(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """What is encoded one by one."""
    seen: list[object] = []

    def counted(value: object) -> bytes:
        seen.append(value)
        return encode(value)

    monkeypatch.setattr(module, "encode", counted)
    return seen


def test_only_the_topics_that_a_group_has_committed_in_are_encoded_again(encoded: list[object]) -> None:
    state = GroupsState(Topics())
    places = [(number, index) for number in range(TOPICS) for index in range(PARTITIONS)]
    state.commit("g", [(number, index, at(1)) for number, index in places])
    state.save("offsets")
    encoded.clear()
    state.commit("g", [(3, 2, at(9))])
    assert told(state) == {"g": {place: 9 if place == (3, 2) else 1 for place in places}}
    assert sorted(value[:2] for value in encoded if isinstance(value, tuple)) == [
        (3, index) for index in range(PARTITIONS)
    ]


def test_they_are_encoded_before_in_slices(encoded: list[object], monkeypatch: pytest.MonkeyPatch) -> None:
    state = GroupsState(Topics())
    state.commit("g", [(number, index, at(1)) for number in range(TOPICS) for index in range(PARTITIONS)])
    monkeypatch.setattr(module, "ENCODED_AT_ONCE", 1)
    slices = state.prepare()
    sizes = []
    for _ in slices:
        sizes.append(len(encoded))
        encoded.clear()
    assert sizes == [PARTITIONS] * TOPICS
    state.save("offsets")
    assert encoded == ["g"]


def test_many_groups_are_encoded_before_in_slices(encoded: list[object]) -> None:
    state = GroupsState(Topics())
    for number in range(5_000):
        state.commit(f"g{number}", [(0, 0, at(number))])
        state.apply(control.GroupSaved(GroupRecord(f"g{number}", 4, "consumer", "range", "m", True, ()), 10))
        state.apply(control.ConsumerGroupSaved(ConsumerGroupChange(f"c{number}", 5, 4, True), 78))
    assert state.size() == 15_000
    most = 0
    for _ in state.prepare():
        most, _ = max(most, len(encoded)), encoded.clear()
    assert 0 < most <= 2_000
    encoded.clear()
    first = [encode(state.save(slot)) for slot in state.slots]
    assert encoded == [], "nothing is left to be encoded"
    state.commit("g7", [(0, 0, at(99))])
    state.apply(control.GroupDeleted("g9"))
    state.apply(control.ConsumerGroupSaved(ConsumerGroupChange("c8", 6, 4, True), 79))
    list(state.prepare())
    assert len(encoded) == 3
    assert encoded[1] == "g7"
    again = [encode(state.save(slot)) for slot in state.slots]
    assert len(encoded) == 3
    assert [len(one) > len(other) for one, other in zip(first, again, strict=True)] == [True, True, False]
    assert "g9" not in told(state)
    assert told(state)["g7"] == {(0, 0): 99}


def test_groups_that_lose_a_topic_are_encoded_in_slices(encoded: list[object]) -> None:
    state = GroupsState(Topics())
    for number in range(5_000):
        state.commit(f"g{number}", [(0, 0, at(1)), (1, 0, at(2))])
    state.save("offsets")
    state.topic_deleted(1, PARTITIONS)
    encoded.clear()
    assert len(list(state.prepare())) == 5
    assert len(encoded) == 5_000
    state.save("offsets")
    assert len(encoded) == 5_000
    assert told(state)["g7"] == {(0, 0): 1}


def test_what_is_restored_stands_in_place_of_what_was_there() -> None:
    state, empty = GroupsState(Topics()), GroupsState(Topics())
    state.commit("g", [(0, 0, at(1))])
    state.apply(control.GroupSaved(GroupRecord("g", 4, "consumer", "range", "m", True, ()), 10))
    state.apply(control.ConsumerGroupSaved(ConsumerGroupChange("c", 5, 4, True), 78))
    for slot in state.slots:
        state.restore(slot, msgspec.Raw(encode(empty.save(slot))))
        assert encode(state.save(slot)) == encode(empty.save(slot))


def test_an_offset_in_a_partition_that_there_is_not_is_told_as_well() -> None:
    """However it came there: a snapshot that counts it and leaves it out could not be read."""
    state = GroupsState(Topics())
    state.commit("g", [(0, index, at(index)) for index in (*range(PARTITIONS), PARTITIONS + 7)])
    assert told(state)["g"][0, PARTITIONS + 7] == PARTITIONS + 7


_groups = st.sampled_from(["g", "h"])
_places = st.tuples(st.integers(0, TOPICS - 1), st.integers(0, PARTITIONS - 1))
_steps = st.one_of(
    st.tuples(st.just("commit"), _groups, st.lists(_places, min_size=1, max_size=6)),
    st.tuples(st.just("delete"), _groups, st.lists(_places, min_size=1, max_size=6)),
    st.tuples(st.just("end"), _groups),
    st.tuples(st.just("drop"), st.integers(0, TOPICS - 1)),
    st.tuples(st.just("save")),
    st.tuples(st.just("prepare")),
)


@given(st.lists(_steps, max_size=20))
def test_a_snapshot_tells_what_is_there(steps: list[tuple]) -> None:  # type: ignore[type-arg]
    topics = Topics()
    state = GroupsState(topics)
    expected: dict[str, dict[tuple[int, int], int]] = {}
    for offset, (what, *given_) in enumerate(steps):
        if what == "commit":
            group, places = given_
            state.commit(group, [(*place, at(offset)) for place in places])
            there = {place: offset for place in places if topics.is_topic(place[0])}
            if there:
                expected.setdefault(group, {}).update(there)
        elif what == "delete":
            group, places = given_
            state.apply(control.OffsetsDeleted(group, places))
            for place in places:
                expected.get(group, {}).pop(place, None)
        elif what == "end":
            state.apply(control.GroupDeleted(given_[0]))
            expected.pop(given_[0], None)
        elif what == "drop":
            partitions = topics.counts.pop(given_[0], None)
            if partitions is not None:
                state.topic_deleted(given_[0], partitions)
                for offsets in expected.values():
                    for place in [place for place in offsets if place[0] == given_[0]]:
                        del offsets[place]
        elif what == "save":
            state.save("offsets")
        else:
            list(state.prepare())
        expected = {group: offsets for group, offsets in expected.items() if offsets}
        assert told(state) == expected
