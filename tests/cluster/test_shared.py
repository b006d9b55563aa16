"""Shards are told what the shared catalog says, at once or when they are opened."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator
from pathlib import Path

import pytest

from halfmoon.cluster.placement import place
from halfmoon.cluster.shared import SharedCatalog, check_version, tell
from halfmoon.cluster.sqlite_store import SqliteStore
from halfmoon.cluster.store import CatalogStore, Cluster
from halfmoon.config.settings import load_settings
from halfmoon.core.catalog.catalog import Catalog
from halfmoon.core.catalog.topics import RemotePartition
from halfmoon.errors import StartError
from halfmoon.schema import control
from halfmoon.schema.shards import OWN_TOPICS
from halfmoon.server.assembly import Sections

SHARDS = 4


def new_shared() -> SharedCatalog:
    catalog = Catalog(load_settings({}, {}, {}))
    Sections(catalog)
    return SharedCatalog(catalog)


def new_shard(number: int) -> Catalog:
    catalog = Catalog(load_settings({}, {}, {}))
    Sections(catalog)
    catalog.apply(control.ShardBegun(number))
    return catalog


def told(shared: SharedCatalog, shard: Catalog, numbers: Collection[int] | None = None) -> list[control.Any]:
    """As a shard is told: each record is applied before the next is asked for."""
    records = []
    for record in tell(shared, shard, numbers):
        shard.apply(record)
        records.append(record)
    return records


def check(shared: SharedCatalog, shard: Catalog) -> None:
    """The shard has the topics that the catalog has, and of their partitions those that are its own."""
    assert shard.shard is not None
    own = {number: topic for number, topic in shard.by_number.items() if number < OWN_TOPICS}
    assert list(own) == list(shared.catalog.by_number)
    for number, topic in shared.catalog.by_number.items():
        mine = own[number]
        assert (mine.name, mine.id, mine.internal, mine.configs, mine.view) == (
            topic.name, topic.id, topic.internal, topic.configs, topic.view,
        )  # fmt: skip
        shards = shared.placements[number]
        assert len(mine.partitions) == len(topic.partitions) == len(shards)
        for index, (partition, other, where) in enumerate(zip(mine.partitions, topic.partitions, shards, strict=True)):
            if where == shard.shard.number:
                assert (partition.index, partition.queue_number) == (index, other.queue_number)
                assert shard.by_queue_number[partition.queue_number] is partition
            else:
                assert isinstance(partition, RemotePartition)
    here = {partition.queue_number for topic in own.values() for partition in topic.here()}
    assert {number for number in shard.by_queue_number if number in shared.catalog.by_queue_number} == here
    assert shard.shard.catalog_version == shared.version


class Administrator:
    """Makes changes of all kinds that there are of topics."""

    def __init__(self, store: CatalogStore, seed: int) -> None:
        self.dice = random.Random(seed)
        self.store = store
        self.shared = new_shared()
        self._records: list[bytes] = []

    def change(self) -> set[int]:
        """The numbers of topics that it concerns."""
        touched = self.shared.take(self.store.begin(self.shared.version))
        self._records = []
        for _ in range(self.dice.randint(1, 3)):
            for record in self._some():
                touched |= self.shared.apply(record)
                self._records.append(control.encode(record))
        self.shared.version = self.store.commit(self._records)
        return touched

    def _some(self) -> Iterator[control.Any]:
        catalog, dice = self.shared.catalog, self.dice
        topics = list(catalog.by_number.values())
        ordinary = [topic for topic in topics if topic.view is None]
        what = dice.choice(["create", "create", "view", "grow", "delete", "configure", "rename", "node"])
        if what == "create" or not ordinary:
            yield from self._create(dice.randint(1, 9), None)
        elif what == "view":
            source = dice.choice(ordinary)
            view = control.Binding(source.number, [0] * len(source.partitions))
            yield from self._create(len(source.partitions), view)
        elif what == "grow":
            topic = dice.choice(ordinary)
            before, total = len(topic.partitions), len(topic.partitions) + dice.randint(1, 5)
            grown = [topic, *catalog.views_of(topic)]
            yield control.PartitionsAdded(topic.number, total, catalog.next_queue())
            for each in grown:
                yield control.PartitionsPlaced(
                    each.number, before, place(topic.id, before, total - before, range(SHARDS))
                )
        elif what == "delete":
            yield control.TopicDeleted(dice.choice(topics).number)
        elif what == "configure":
            yield control.ConfigsSet(dice.choice(topics).number, {"retention.ms": str(dice.randint(1, 9) * 1_000)})
        elif what == "rename":
            yield control.TopicRenamed(dice.choice(topics).number, f"renamed-{dice.randrange(10**9)}")
        else:
            yield control.ResourceConfigsSet("broker", "", {"num.partitions": str(dice.randint(1, 9))})

    def _create(self, partitions: int, view: control.Binding | None) -> Iterator[control.Any]:
        catalog, topic_id = self.shared.catalog, self.dice.randbytes(16)
        number = catalog.next_number()
        yield control.TopicCreated(
            number, f"topic-{number}", topic_id, partitions, {}, False, view, catalog.next_queue()
        )
        yield control.PartitionsPlaced(number, 0, place(topic_id, 0, partitions, range(SHARDS)))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[CatalogStore]:
    SqliteStore.create(tmp_path / "catalog", Cluster("x", SHARDS))
    opened = SqliteStore(tmp_path / "catalog")
    yield opened
    opened.close()


@pytest.mark.parametrize("seed", range(30))
def test_shards_come_to_what_the_catalog_says(store: CatalogStore, tmp_path: Path, seed: int) -> None:
    """One is told of each change, one now and then, one at the end; and two processes change it in turn."""
    other_store = SqliteStore(tmp_path / "catalog")
    administrators = Administrator(store, seed), Administrator(other_store, seed + 1_000)
    dice = random.Random(seed)
    shards = [new_shard(number) for number in range(3)]
    reader = new_shared()
    for _ in range(60):
        one = administrators[dice.randrange(2)]
        one.change()
        told(reader, shards[0], reader.take(store.read(reader.version)))
        assert reader.version == one.shared.version
        check(reader, shards[0])
        if not dice.randrange(8):
            told(one.shared, shards[1])
            check(one.shared, shards[1])
        if not dice.randrange(15):
            store.keep(one.shared.version, one.shared.save())
    told(reader, shards[2])
    told(reader, shards[1])
    for shard in shards:
        check(reader, shard)
        assert told(reader, shard) == []
    late = new_shared()
    late.take(store.read(0))
    for shard in shards:
        check(late, shard)
        assert told(late, shard) == []
    assert late.save() == reader.save()
    other_store.close()


def test_a_snapshot_leaves_topics_the_objects_that_they_are(store: CatalogStore) -> None:
    """Others hold on to them."""
    administrator = Administrator(store, 1)
    while len(administrator.shared.catalog.by_number) < 5:
        administrator.change()
    reader = new_shared()
    reader.take(store.read(0))
    before = dict(reader.catalog.by_number)
    for _ in range(5):
        administrator.change()
    store.keep(administrator.shared.version, administrator.shared.save())
    news = store.read(reader.version)
    assert news.snapshot is not None
    touched = reader.take(news)
    after = reader.catalog.by_number
    assert touched == set(before) | set(after)
    assert all(after[number] is topic for number, topic in before.items() if number in after)
    assert reader.save() == administrator.shared.save()


def test_what_a_shard_makes_itself_stays(store: CatalogStore) -> None:
    administrator, shard = Administrator(store, 2), new_shard(1)
    shard.apply(control.TopicCreated(shard.next_number(), "mine", bytes(16), 2, {}))
    for _ in range(20):
        told(administrator.shared, shard, administrator.change())
    assert [partition.index for partition in shard.by_name["mine"].here()] == [0, 1]
    told(administrator.shared, shard)
    assert "mine" in shard.by_name
    check(administrator.shared, shard)


def test_a_catalog_from_an_old_backup_is_refused(store: CatalogStore) -> None:
    administrator, shard = Administrator(store, 3), new_shard(1)
    for _ in range(5):
        told(administrator.shared, shard, administrator.change())
    check_version(administrator.shared, shard)
    older = new_shared()
    older.version = 4
    with pytest.raises(StartError, match=r"shard 1 knows version 5 .* at version 4"):
        check_version(older, shard)
