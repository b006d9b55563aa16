"""The catalog that all shards share, as this process knows it; and what a shard has to be told of it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import groupby

import msgspec

from halfmoon.cluster.store import Change, News
from halfmoon.core.catalog import snapshot
from halfmoon.core.catalog.catalog import Catalog
from halfmoon.core.catalog.topics import RemotePartition, Topic
from halfmoon.errors import StartError
from halfmoon.schema import control
from halfmoon.schema.snapshot import PartitionState, TopicState, decode


class _Saved(msgspec.Struct, array_like=True):
    """A snapshot of it."""

    catalog: bytes
    """As of schema.snapshot: topics, of whose partitions nothing is known, and what administrators have set."""
    placements: dict[int, bytes]
    epochs: dict[int, int]
    starters: dict[int, int] = {}


_saved = msgspec.msgpack.Decoder(_Saved)


class SharedCatalog:
    """Made up of changes, each applied once and in their order."""

    def __init__(self, catalog: Catalog) -> None:
        """`catalog`: an empty one, with the sections of what is shared."""
        self.catalog = catalog
        self.placements: dict[int, bytes] = {}
        """Topic number → the shards of its partitions, a byte each."""
        self.epochs: dict[int, int] = {}
        """Shard → the leader epoch of its partitions, …"""
        self.starters: dict[int, int] = {}
        """… and which process has opened it in that epoch."""
        self.on_started: Callable[[int, int], None] | None = None
        """Told of a shard and the process that has it from now on."""
        self.version = 0
        self.snapshot_version = 0
        """Of the newest snapshot that we know of."""
        self.on_restore: Callable[[], Callable[[], None]] | None = None
        """Called before a snapshot is taken over; what it returns is called afterwards. Who follows changes one by one
        would miss what was in between."""

    def shard_of(self, number: int, index: int) -> int:
        """In which shard a partition lies, by its topic's number and its own; −1 where nobody knows it."""
        shards = self.placements.get(number, b"")
        return shards[index] if index < len(shards) else -1

    def take(self, news: News) -> set[int]:
        """Apply what is new; the numbers of topics that it concerns: all, where a snapshot was among it."""
        touched: set[int] = set()
        if news.snapshot is not None:
            touched |= self._restore(*news.snapshot)
        for change in news.changes:
            touched |= self._apply(change)
        return touched

    def _apply(self, change: Change) -> set[int]:
        assert change.version == self.version + 1
        touched = set()
        for encoded in change.records:
            touched |= self.apply(control.decode(encoded))
        self.version = change.version
        return touched

    def apply(self, record: control.Any) -> set[int]:
        """Make a record true, of a change that is about to be committed; the numbers of topics that it concerns."""
        if isinstance(record, control.PartitionsPlaced):
            before = self.placements.get(record.number, b"")[: record.first]
            self.placements[record.number] = before + record.shards
        elif isinstance(record, control.ShardStarted):
            self._started(record)
        else:
            self.catalog.apply(record)
        if isinstance(record, control.TopicDeleted):
            self.placements.pop(record.number, None)
        if isinstance(record, _OF_TOPICS):
            return {record.number}
        return set()

    def _started(self, record: control.ShardStarted) -> None:
        if record.generation >= self.epochs.get(record.number, 0):
            self.epochs[record.number], self.starters[record.number] = record.generation, record.process
            self._tell_of(record.number)

    def _tell_of(self, shard: int) -> None:
        if self.on_started is not None:
            self.on_started(shard, self.starters[shard])

    def save(self) -> bytes:
        """All of it, for `CatalogStore.keep` with its version."""
        return msgspec.msgpack.encode(
            _Saved(snapshot.take(self.catalog, 0, 0, as_topic=bare), self.placements, self.epochs, self.starters)
        )

    def _restore(self, version: int, data: bytes) -> set[int]:
        """Become what the snapshot says. Topics stay the objects that they are."""
        restored = None if self.on_restore is None else self.on_restore()
        saved = _saved.decode(data)
        known = decode(saved.catalog)
        catalog, there = self.catalog, {state.number: state for state in known.topics}
        touched = set(catalog.by_number) | set(there)
        for number in set(catalog.by_number) - set(there):
            catalog.apply(control.TopicDeleted(number))
        for number in sorted(there):
            for record in differences(there[number], catalog):
                catalog.apply(record)
        snapshot.restore_rest(catalog, known)
        # The same dictionaries: others look at them, too.
        self.placements.clear()
        self.placements.update(saved.placements)
        self.epochs.clear()
        self.epochs.update(saved.epochs)
        self.starters.clear()
        self.starters.update(saved.starters)
        for shard in self.starters:
            self._tell_of(shard)
        self.version = self.snapshot_version = version
        if restored is not None:
            restored()
        return touched


_OF_TOPICS = (
    control.TopicCreated,
    control.TopicDeleted,
    control.TopicRenamed,
    control.PartitionsAdded,
    control.PartitionsPlaced,
    control.ConfigsSet,
)


def check_version(shared: SharedCatalog, shard: Catalog) -> None:
    """Raises StartError where the shard has been told more than the catalog knows: topics would be deleted."""
    known = shard.shard
    if known is not None and known.catalog_version > shared.version:
        raise StartError(
            f"shard {known.number} knows version {known.catalog_version} of the shared catalog, which is at version "
            f"{shared.version}: is it from an older backup than the shards?"
        )


def tell(shared: SharedCatalog, shard: Catalog, numbers: Collection[int] | None = None) -> Iterator[control.Any]:
    """The records that make a shard's topics what the shared catalog says; of these topics, or of all. Each has to be
    applied before the next is asked for."""
    there = shared.catalog.by_number
    told = sorted(there if numbers is None else numbers & there.keys())
    gone = (shard.by_number if numbers is None else numbers & shard.by_number.keys()) - there.keys()
    assert shard.shard is not None
    for number in sorted(gone):
        if not shard.shard.owns(number):
            yield control.TopicDeleted(number)
    for number in told:
        for record in differences(there[number], shard):
            yield _begun(record, shared.placements[number], shard)
        yield from _misplaced(shard.by_number[number], shared.placements[number], shard)
    if shard.shard.catalog_version != shared.version:
        yield control.CatalogSeen(shared.version)


def bare(topic: Topic, _: bool = False) -> TopicState:
    """As if nothing had ever been written to it."""
    partitions = [PartitionState(0, 0, [], [], queue_number=each.queue_number) for each in topic.partitions]
    return TopicState(topic.number, topic.name, topic.id, topic.internal, topic.configs, partitions, topic.view)


def differences(said: Topic | TopicState, catalog: Catalog) -> Iterator[control.Any]:
    """The records that make a topic what it is said to be."""
    runs = list(_runs([partition.queue_number for partition in said.partitions]))
    topic = catalog.by_number.get(said.number)
    if topic is None:
        first, count = runs[0]
        yield control.TopicCreated(
            said.number, said.name, said.id, count, said.configs, said.internal, said.view, first
        )
        topic = catalog.by_number[said.number]
    total = 0
    for first, count in runs:
        if total + count > len(topic.partitions):
            more = len(topic.partitions) - total
            yield control.PartitionsAdded(said.number, total + count, first + more)
        total += count
    if topic.name != said.name:
        yield control.TopicRenamed(said.number, said.name)
    if topic.configs != said.configs:
        yield control.ConfigsSet(said.number, said.configs)


def _begun(record: control.Any, shards: bytes, shard: Catalog) -> control.Any:
    """A view begins in a partition of its source where that is now, as its owner knows."""
    if not isinstance(record, control.TopicCreated) or record.view is None:
        return record
    assert shard.shard is not None
    source = shard.by_number.get(record.view.source_number)
    starts = list(record.view.starts)
    for index, start in enumerate(starts):
        if source is not None and shards[index] == shard.shard.number and index < len(source.partitions):
            own = source.partitions[index]
            starts[index] = own.next_offset if start == control.FROM_END else max(start, own.start_offset)
    return msgspec.structs.replace(record, view=control.Binding(record.view.source_number, starts))


def _misplaced(topic: Topic, shards: bytes, shard: Catalog) -> Iterator[control.Any]:
    """What says where those of its partitions are that the shard thinks are here, from the first wrong one on."""
    assert shard.shard is not None
    for index, place in enumerate(shards):
        if place != shard.shard.number and not isinstance(topic.partitions[index], RemotePartition):
            yield control.PartitionsPlaced(topic.number, index, shards[index:])
            return


def _runs(numbers: Iterable[int]) -> Iterator[tuple[int, int]]:
    """(first, count) of numbers that follow each other."""
    for _, run in groupby(enumerate(numbers), key=lambda each: each[1] - each[0]):
        found = [number for _, number in run]
        yield found[0], len(found)
