"""The catalog: what control records make up, and that each may be applied twice."""

from __future__ import annotations

import random

import pytest

from halfmoon.config.settings import load_settings
from halfmoon.core.catalog.catalog import BURIED, Catalog
from halfmoon.core.catalog.topics import Partition
from halfmoon.schema import control
from halfmoon.schema.control import Committed
from halfmoon.schema.groups import GroupRecord
from halfmoon.server.assembly import Sections
from halfmoon.services.groups.state import GroupsState


@pytest.fixture
def catalog() -> Catalog:
    catalog = Catalog(load_settings({}, {}, {}))
    Sections(catalog)
    return catalog


def groups_of(catalog: Catalog) -> GroupsState:
    return next(each for each in catalog.sections if isinstance(each, GroupsState))


def create(catalog: Catalog, number: int, name: str, partitions: int = 2) -> None:
    catalog.apply(control.TopicCreated(number, name, name.encode().rjust(16), partitions, {}))


def commit(catalog: Catalog, group: str, number: int, index: int, offset: int) -> None:
    catalog.apply(control.OffsetsCommitted(group, [(number, index, Committed(offset, -1, "", 0))]))


def partition(catalog: Catalog, number: int = 0, index: int = 0) -> Partition:
    found = catalog.partition(number, index)
    assert found is not None
    return found


def test_a_topic_is_found_by_name_id_and_number(catalog: Catalog) -> None:
    create(catalog, 0, "t", 3)
    topic = catalog.by_name["t"]
    assert catalog.by_id[b"               t"] is topic is catalog.by_number[0]
    assert [(p.topic, p.index) for p in catalog.partitions()] == [(topic, index) for index in range(3)]
    assert catalog.partition(0, 3) is None
    assert catalog.partition(1, 0) is None


def test_every_record_may_be_applied_twice(catalog: Catalog) -> None:
    """Recovery begins at a snapshot that may already hold what the next frames say."""
    records: list[control.Any] = [
        control.TopicCreated(0, "a", b"a" * 16, 2, {}),
        control.TopicCreated(1, "b", b"b" * 16, 2, {}),
        control.PartitionsAdded(0, 4),
        control.ConfigsSet(0, {"retention.ms": "1000"}),
        control.OffsetsCommitted("g", [(0, 0, Committed(5, 1, "x", 2)), (1, 0, Committed(6, 1, "", 2))]),
        control.OffsetsDeleted("g", [(0, 0)]),
        control.StartOffsetsMoved([(0, 1, 10)]),
        control.GroupSaved(GroupRecord("g", 3, "consumer", "range", "m", True, ()), 4),
        control.ProducerIdsReserved(1000),
        control.TopicDeleted(1),
        control.GroupDeleted("h"),
        control.GenerationStarted(3, 0),
        control.SnapshotPart(b""),
    ]
    for record in records:
        catalog.apply(record)
        before = described(catalog)
        catalog.apply(record)
        assert described(catalog) == before, record
    for record in records[1:]:
        catalog.apply(record)
    assert set(catalog.by_name) == {"a"}
    assert len(catalog.by_name["a"].partitions) == 4
    assert partition(catalog, 0, 1).start_offset == 10
    assert catalog.by_name["a"].rules.retention_ms == 1000


def described(catalog: Catalog) -> object:
    topics = {t.name: (t.number, t.configs, [p.start_offset for p in t.partitions]) for t in catalog.by_number.values()}
    offsets = {group: dict(progress) for group, progress in groups_of(catalog).offsets.items()}
    return topics, offsets, dict(groups_of(catalog).groups), catalog.next_topic_number, catalog.next_producer_id


def test_a_deleted_topic_takes_its_offsets_with_it_and_leaves_its_number_unused(catalog: Catalog) -> None:
    create(catalog, 0, "t")
    create(catalog, 1, "u")
    commit(catalog, "both", 0, 0, 1)
    commit(catalog, "both", 1, 0, 2)
    commit(catalog, "one", 0, 1, 3)
    catalog.apply(control.TopicDeleted(0))
    assert groups_of(catalog).offsets == {"both": {(1, 0): Committed(2, -1, "", 0)}}
    assert catalog.next_topic_number == 2
    create(catalog, 0, "t")
    assert "t" not in catalog.by_name, "a record of before the deletion changes nothing"
    commit(catalog, "late", 0, 0, 1)
    assert "late" not in groups_of(catalog).offsets


def test_a_namesake_whose_deletion_was_lost_gives_way(catalog: Catalog) -> None:
    create(catalog, 0, "t")
    catalog.apply(control.TopicCreated(1, "t", b"other id of old t", 1, {}))
    assert set(catalog.by_number) == {1}
    assert set(catalog.by_id) == {b"other id of old t"}


def test_changes_are_counted_so_that_answers_can_be_kept(catalog: Catalog) -> None:
    seen = [catalog.changes]
    for record in (
        control.TopicCreated(0, "t", b"t" * 16, 2, {}),
        control.PartitionsAdded(0, 3),
        control.ConfigsSet(0, {}),
        control.TopicDeleted(0),
    ):
        catalog.apply(record)
        seen.append(catalog.changes)
    assert sorted(set(seen)) == seen


def test_a_group_without_offsets_left_is_none(catalog: Catalog) -> None:
    create(catalog, 0, "t")
    commit(catalog, "g", 0, 0, 1)
    catalog.apply(control.OffsetsDeleted("g", [(0, 0), (0, 1)]))
    catalog.apply(control.OffsetsDeleted("nobody", [(0, 0)]))
    assert groups_of(catalog).offsets == {}


def test_a_start_never_moves_back_and_takes_the_ends_along(catalog: Catalog) -> None:
    create(catalog, 0, "t")
    it = partition(catalog)
    it.next_offset = it.queue.end_offset = 10
    it.queue.lose(3, 6)
    it.move_start(5)
    assert (it.start_offset, it.high_watermark, it.next_offset, it.queue.damaged) == (5, 10, 10, [(3, 6)])
    it.move_start(4)
    assert it.start_offset == 5
    it.move_start(20)
    assert (it.start_offset, it.high_watermark, it.next_offset, it.queue.damaged) == (20, 20, 20, [])


# -- leader epochs (KIP-101)
# -----------------------------------------------------------------------------------------------


def test_an_epoch_begins_once_and_expired_ones_are_forgotten(catalog: Catalog) -> None:
    create(catalog, 0, "t")
    it = partition(catalog)
    for epoch, offset in ((2, 0), (2, 3), (5, 10), (4, 12), (6, 17)):
        it.began_epoch(epoch, offset)
    assert it.epochs == [(2, 0), (5, 10), (6, 17)]
    it.move_start(9)
    assert it.epochs == [(2, 0), (5, 10), (6, 17)]
    it.move_start(10)
    assert it.epochs == [(5, 10), (6, 17)]
    it.move_start(100)
    assert it.epochs == [(6, 17)], "the newest stays: it says which epoch the next offset follows on"


def test_names_stay_sorted_whatever_comes_and_goes(catalog: Catalog) -> None:
    dice = random.Random(7)
    numbers: dict[str, int] = {}
    for number in range(300):
        name = f"t{dice.randrange(60)}"
        if name in numbers:
            catalog.apply(control.TopicDeleted(numbers.pop(name)))
        else:
            numbers[name] = number
            create(catalog, number, name)
        if dice.random() < 0.3:
            assert catalog.names() == sorted(numbers)
            assert [topic.name for topic in catalog.topics()] == sorted(numbers)
    renamed, number = numbers.popitem()
    catalog.apply(control.TopicRenamed(number, "other"))
    assert catalog.names() == sorted({*numbers, "other"})
    assert renamed not in catalog.names()


def test_a_deleted_topic_is_taken_apart(catalog: Catalog) -> None:
    create(catalog, 0, "t", BURIED + 3)
    create(catalog, 1, "kept", 1)
    topic = catalog.by_name["t"]
    catalog.apply(control.TopicDeleted(0))
    assert len(topic.partitions) == BURIED + 3, "somebody may be at work with it"
    slices = catalog.bury()
    next(slices)
    assert len(topic.partitions) == 3
    assert list(slices) == [None]
    assert topic.partitions == []
    assert len(catalog.by_name["kept"].partitions) == 1
