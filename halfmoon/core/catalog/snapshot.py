"""The catalog as one value: what a checkpoint file holds, and what stands at the head of every segment.

A snapshot is true for one log position: it is what all frames below that position make up. Recovery may start from any
snapshot and read on from its position. It is kept in two places:

- `checkpoint`, a small file, replaced atomically now and then: so that a restart reads little of the log;
- control frames at the head of each segment, as one frame group: so that the segments before it may expire, and so
  that the checkpoint can be lost. Of producers' sequences it has those with an open transaction: the rest would make
  each head large, and stands in the log before (`core.recovered_producers`).

`checkpoint` is magic "HMcp", version u32, CRC-32C of the rest u32, then msgpack. A file that does not check counts
as lost.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import msgspec

from halfmoon.core.catalog.catalog import Catalog
from halfmoon.core.catalog.topics import Partition, Topic
from halfmoon.core.crc import crc32c
from halfmoon.core.pending import PendingSet
from halfmoon.core.producer_state import Producer, Producers
from halfmoon.core.storage.files import FileSystem, read_file, write_file
from halfmoon.core.storage.frame import BadFrameError, Kind
from halfmoon.core.storage.scan import read_frame
from halfmoon.core.storage.segment import Segment
from halfmoon.core.transactions.partition import PartitionTransactions
from halfmoon.schema import control
from halfmoon.schema.control import Binding
from halfmoon.schema.snapshot import (
    EMPTY,
    AdministrationState,
    PartitionState,
    ProducerState,
    ShardSnapshot,
    Snapshot,
    TopicState,
    array_head,
    decode,
    encode,
    of_shard,
)

PATH = "checkpoint"
PART_BYTES = 256 << 10
"""Most bytes of one part in the log. All parts stand in one segment, which is made large enough."""
MANY = 5_000
"""Partitions, groups and the like. Fewer are encoded in one turn (2 µs each); of more, what has changed is encoded
before also for the next segment's head (`prepared`)."""
SLICE = 1_000
_LOOKED_AT = 20_000
"""Partitions that a slice of `prepared` encodes, and looks at: about two milliseconds, and one."""
_HEADER = struct.Struct("<4sII")
_MAGIC = b"HMcp"
_VERSION = 1

_SLOTS = (
    "offsets",
    "groups",
    "sent_back",
    "attempts",
    "cancels",
    "transactional_ids",
    "consumer_groups",
    "share_groups",
    "shares",
    "unwritten",
    "users",
    "tokens",
)
_ADMINISTRATION = ("configs", "quotas", "acls")


class _EncodedTopic(msgspec.Struct, array_like=True):
    """A TopicState whose partitions are encoded already."""

    number: int
    name: str
    id: bytes
    internal: bool
    configs: dict[str, str]
    partitions: msgspec.Raw
    view: Binding | None


def take(
    catalog: Catalog,
    position: int,
    generation: int,
    *,
    clean: bool = False,
    producers: bool = True,
    again: bool = False,
    as_topic: Callable[[Topic, bool], object] | None = None,
) -> bytes:
    """The catalog, encoded in the loop, so that it is one moment's. Costs about 2 µs a partition or offset.

    `again`: as before, where a partition has not changed since its last snapshot that was taken so (0.1 µs).
    `as_topic`: what else makes a TopicState, of a topic and `producers`.
    """
    owners = {slot: section.save for section in catalog.sections for slot in section.slots}
    told = as_topic or (_encoded_topic if again else _topic)
    topics: list[Any] = [told(topic, producers) for topic in catalog.by_number.values()]
    administration: dict[str, Any] = {slot: _saved(catalog, owners, slot) for slot in _ADMINISTRATION}
    administered: Any = AdministrationState(**administration) if any(map(_is_set, administration.values())) else None
    slots: dict[str, Any] = {slot: _saved(catalog, owners, slot) for slot in _SLOTS}
    encoded = encode(
        Snapshot(
            position, generation, clean, catalog.next_topic_number, catalog.next_producer_id, topics,
            deleted=list(catalog.deleted.items()), next_queue_number=catalog.next_queue_number,
            administration=administered, next_clean=catalog.next_clean, **slots,
        )
    )  # fmt: skip
    return encoded if catalog.shard is None else of_shard(catalog.shard, encoded)


def _saved(catalog: Catalog, owners: Mapping[str, Callable[[str], object]], slot: str) -> object:
    save = owners.get(slot)
    return catalog.unowned.get(slot, EMPTY) if save is None else save(slot)


def _is_set(saved: object) -> bool:
    return bytes(saved) != bytes(EMPTY) if isinstance(saved, msgspec.Raw) else bool(saved)


def _topic(topic: Topic, producers: bool) -> TopicState:
    partitions = [_partition(partition, producers) for partition in topic.partitions]
    return TopicState(topic.number, topic.name, topic.id, topic.internal, topic.configs, partitions, topic.view)


def _encoded_topic(topic: Topic, producers: bool) -> _EncodedTopic:
    partitions = topic.partitions
    for partition in partitions:
        if partition.saved is None:
            _save(partition)
    if producers:
        encoded = [partition.saved or b"" for partition in partitions]
    else:
        encoded = [partition.saved_at_head for partition in partitions]
    raw = msgspec.Raw(b"".join((array_head(len(encoded)), *encoded)))
    return _EncodedTopic(topic.number, topic.name, topic.id, topic.internal, topic.configs, raw, topic.view)


def _save(partition: Partition) -> None:
    partition.saved = partition.saved_at_head = encode(_partition(partition, producers=True))
    if partition.producers is not None:
        partition.saved_at_head = encode(_partition(partition, producers=False))


def is_large(catalog: Catalog) -> bool:
    """Whether much is to be encoded."""
    return len(catalog.by_queue_number) + sum([section.size() for section in catalog.sections]) > MANY


def prepared(catalog: Catalog) -> Iterator[None]:
    """Encode what has changed since the last snapshot, in slices, so that the next one has little to do."""
    encoded = looked = 0
    for topic in list(catalog.by_number.values()):
        for at in range(0, len(topic.partitions), SLICE):
            some = topic.partitions[at : at + SLICE]
            changed = [partition for partition in some if partition.saved is None]
            for partition in changed:
                if partition.pending is not None:
                    yield from partition.pending.prepare()
                _save(partition)
            encoded += len(changed)
            looked += len(some)
            if encoded >= SLICE or looked >= _LOOKED_AT:
                encoded = looked = 0
                yield
    for section in catalog.sections:
        yield from section.prepare()


def _partition(partition: Partition, producers: bool) -> PartitionState:
    transactions = partition.transactions
    pending: Any = None if partition.pending is None else partition.pending.encoded()
    return PartitionState(
        partition.start_offset,
        partition.next_offset,
        partition.epochs,
        partition.queue.damaged,
        _producer_states(partition, producers),
        partition.source_next,
        pending,
        partition.queue_number,
        [] if transactions is None else list(transactions.open.items()),
        b"" if transactions is None else transactions.aborted.to_bytes(),
        partition.moved_upto,
        partition.compacted_upto,
        partition.cleaned,
    )


def _producer_states(partition: Partition, producers: bool) -> list[ProducerState]:
    """All that the partition knows of producers, or only what it knows of those whose transaction is open."""
    if partition.producers is None:
        return []
    known = partition.producers.by_id
    if producers:
        ids: Iterable[int] = known
    else:
        ids = () if partition.transactions is None else partition.transactions.open.keys() & known.keys()
    return [ProducerState(i, known[i].epoch, known[i].last_ms, known[i].batches) for i in ids]


def lies_elsewhere(snapshot: Snapshot, kept: PartitionState) -> bool:
    """Whether the partition lies in another shard."""
    return isinstance(snapshot, ShardSnapshot) and kept.queue_number < 0


def restore(catalog: Catalog, snapshot: Snapshot) -> None:
    """Put a snapshot into an empty catalog."""
    catalog.next_queue_number = snapshot.next_queue_number
    _restore_shard(catalog, snapshot)
    for state in snapshot.topics:
        topic = catalog.make_topic(created(state))
        for index, kept in enumerate(state.partitions):
            if lies_elsewhere(snapshot, kept):
                topic.lies_elsewhere(index)
                continue
            partition = topic.partitions[index]
            partition.start_offset = kept.start_offset
            partition.next_offset = kept.next_offset
            partition.epochs = list(kept.epochs)
            partition.queue.damaged = list(kept.damaged)
            partition.source_next = kept.source_next
            if kept.pending is not None:
                partition.pending = PendingSet(kept.pending, kept.next_offset)
            if kept.producers:
                partition.producers = _producers(kept.producers)
            restore_transactions(partition, kept)
            restore_cleaned(partition, kept)
            catalog.number_queues([partition], kept.queue_number)
        catalog.add_topic(topic)
    restore_rest(catalog, snapshot)


def restore_transactions(partition: Partition, kept: PartitionState) -> None:
    """Those of producers in a partition, in place of what was known of them."""
    partition.transactions = None
    if kept.transactions or kept.aborted:
        partition.transactions = PartitionTransactions(kept.transactions, kept.aborted)


def restore_cleaned(partition: Partition, kept: PartitionState) -> None:
    """Where what lives of the partition's beginning stands."""
    partition.moved_upto = kept.moved_upto
    partition.compacted_upto = kept.compacted_upto
    partition.cleaned = list(kept.cleaned)


def created(state: TopicState) -> control.TopicCreated:
    """The record that would make such a topic."""
    return control.TopicCreated(
        state.number, state.name, state.id, len(state.partitions), state.configs, state.internal, state.view
    )


def _restore_shard(catalog: Catalog, snapshot: Snapshot) -> None:
    if isinstance(snapshot, ShardSnapshot):
        catalog.shard = snapshot.shard.copy()


def restore_rest(catalog: Catalog, snapshot: Snapshot) -> None:
    """Put what is not in topics into a catalog, in place of what was there."""
    _restore_shard(catalog, snapshot)
    catalog.next_producer_id = snapshot.next_producer_id
    catalog.next_topic_number = snapshot.next_topic_number
    catalog.next_queue_number = max(catalog.next_queue_number, snapshot.next_queue_number)
    catalog.deleted = dict(snapshot.deleted)
    catalog.next_clean = max(catalog.next_clean, snapshot.next_clean)
    slots = {slot: getattr(snapshot, slot) for slot in _SLOTS}
    administered = msgspec.msgpack.decode(snapshot.administration, type=AdministrationState | None)
    slots |= msgspec.structs.asdict(administered or AdministrationState())
    for section in catalog.sections:
        for slot in section.slots:
            section.restore(slot, slots.pop(slot))
    catalog.unowned = slots
    catalog.resolve_topics()


def _producers(states: list[ProducerState]) -> Producers:
    producers = Producers()
    for state in states:
        producers.by_id[state.producer_id] = Producer(state.epoch, list(state.batches), state.last_ms)
    return producers


def parts(data: bytes) -> Iterator[control.SnapshotPart]:
    """`data` as control records, for the head of a segment."""
    for at in range(0, len(data), PART_BYTES):
        yield control.SnapshotPart(data[at : at + PART_BYTES])


def at_head(segment: Segment) -> Snapshot | None:
    """The snapshot at the head of a segment, if it is there and whole."""
    data = b""
    position, generation = segment.start, 0
    with contextlib.suppress(BadFrameError, msgspec.DecodeError):
        while position < segment.end:
            frame, payload = read_frame(segment, position, generation)
            record = control.decode(payload) if frame.kind == Kind.CONTROL else None
            if not isinstance(record, control.SnapshotPart):
                return None
            data += record.data
            if frame.part == frame.parts - 1:
                return decode(data)
            position, generation = frame.end, frame.generation
    return None


def save(fs: FileSystem, data: bytes) -> None:
    """Replace the checkpoint file. Slow (syncs). Raises OSError."""
    body_crc = crc32c(data)
    write_file(fs, PATH, [_HEADER.pack(_MAGIC, _VERSION, body_crc), data])


def load(fs: FileSystem) -> Snapshot | None:
    """The checkpoint, or None where there is none that can be trusted."""
    data = read_file(fs, PATH)
    if data is None or len(data) < _HEADER.size:
        return None
    magic, version, crc = _HEADER.unpack_from(data)
    body = data[_HEADER.size :]
    if magic != _MAGIC or version != _VERSION or crc32c(body) != crc:
        return None
    try:
        return decode(body)
    except msgspec.DecodeError:
        return None
