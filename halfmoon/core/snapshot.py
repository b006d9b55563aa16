"""The catalog as one value: what a checkpoint file holds, and what stands at the head of every segment.

A snapshot is true for one log position: it is what all frames below that position make up. Recovery may start from any
snapshot and read on from its position. It is kept in two places:

- `checkpoint`, a small file, replaced atomically now and then: so that a restart reads little of the log;
- control frames at the head of each segment, as one frame group: so that the segments before it may expire, and so
  that the checkpoint can be lost. Producers' sequences are in the file only; Kafka forgets them with the records, too.

`checkpoint` is magic "HMcp", version u32, CRC-32C of the rest u32, then msgpack. A file that does not check counts
as lost.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import cast

import msgspec

from halfmoon.core import control
from halfmoon.core.administration import AdministrationState
from halfmoon.core.catalog import Catalog, Partition, Topic
from halfmoon.core.commitlog import CLEAN_BASE
from halfmoon.core.control import Binding, Committed
from halfmoon.core.crc import crc32c
from halfmoon.core.files import FileSystem, read_file, write_file
from halfmoon.core.groups.consumer.memory import RememberedGroup
from halfmoon.core.groups.consumer.messages import ConsumerGroupChange
from halfmoon.core.groups.messages import GroupRecord
from halfmoon.core.pending import Chunks, PendingSet
from halfmoon.core.producer_state import Batch, Producer, Producers
from halfmoon.core.share.ledger import Ledger
from halfmoon.core.transactions.book import TransactionBook
from halfmoon.core.transactions.entry import Identity, TransactionalId, TransactionState
from halfmoon.core.transactions.partition import PartitionTransactions

PATH = "checkpoint"
PART_BYTES = 256 << 10
"""Most bytes of one part in the log. All parts stand in one segment, which is made large enough."""
_HEADER = struct.Struct("<4sII")
_MAGIC = b"HMcp"
_VERSION = 1


class ProducerState(msgspec.Struct, array_like=True):
    producer_id: int
    epoch: int
    last_ms: int
    batches: list[Batch]


class PartitionState(msgspec.Struct, array_like=True):
    start_offset: int
    next_offset: int
    epochs: list[tuple[int, int]]
    damaged: list[tuple[int, int]]
    producers: list[ProducerState] = []
    source_next: int = 0
    pending: Chunks | None = None
    queue_number: int = -1
    transactions: list[tuple[int, int]] = []
    """Those that are open: producer id, and offset of the first batch."""
    aborted: bytes = b""
    moved_upto: int = 0
    compacted_upto: int = 0
    cleaned: list[tuple[int, int, int]] = []


class TransactionalIdState(msgspec.Struct, array_like=True):
    name: str
    identity: Identity
    timeout_ms: int
    state: TransactionState
    partitions: list[tuple[int, int]]
    groups: list[str]
    start_ms: int
    update_ms: int
    pending: list[tuple[str, list[tuple[int, int, Committed]]]]


class TopicState(msgspec.Struct, array_like=True):
    number: int
    name: str
    id: bytes
    internal: bool
    configs: dict[str, str]
    partitions: list[PartitionState]
    view: Binding | None = None


class Snapshot(msgspec.Struct, array_like=True):
    """True for log position `position`, written in generation `generation`. `clean`: nothing follows in the log."""

    position: int
    generation: int
    clean: bool
    next_topic_number: int
    next_producer_id: int
    topics: list[TopicState]
    offsets: list[tuple[str, list[tuple[int, int, Committed]]]]
    groups: list[tuple[GroupRecord, int]]
    sent_back: list[tuple[str, list[tuple[int, int, list[int]]]]] = []
    attempts: list[tuple[int, int, int, int]] = []
    cancels: list[tuple[int, bytes, int]] = []
    deleted: list[tuple[int, str]] = []
    next_queue_number: int = 0
    transactional_ids: list[TransactionalIdState] = []
    consumer_groups: list[tuple[ConsumerGroupChange, int]] = []
    administration: AdministrationState | None = None
    share_groups: list[tuple[str, int]] = []
    shares: list[tuple[str, list[tuple[int, int, int, list[tuple[int, int, int, int]]]]]] = []
    next_clean: int = CLEAN_BASE


_encode = msgspec.msgpack.Encoder().encode
_decoder = msgspec.msgpack.Decoder(Snapshot)


def take(catalog: Catalog, position: int, generation: int, *, clean: bool = False, producers: bool = True) -> bytes:
    """The catalog, encoded. Costs about a µs a partition or offset; done in the loop, so that it is one moment's."""
    return _encode(
        Snapshot(
            position,
            generation,
            clean,
            catalog.next_topic_number,
            catalog.next_producer_id,
            [_topic(topic, producers) for topic in catalog.by_number.values()],
            [(group, [(n, p, c) for (n, p), c in progress.items()]) for group, progress in catalog.offsets.items()],
            list(catalog.groups.values()),
            [
                (group, [(n, p, sorted(offsets)) for (n, p), offsets in places.items()])
                for group, places in catalog.sent_back.items()
            ],
            [(*place, count) for place, count in catalog.attempts.items()],
            [(number, key, at) for number, keys in catalog.cancels.items() for key, at in keys.items()],
            list(catalog.deleted.items()),
            catalog.next_queue_number,
            cast("list[TransactionalIdState]", _transactional_ids(catalog.transactions)),
            [(group.whole(), group.saved_ms) for group in catalog.consumer_groups.values()],
            catalog.administration.state(),
            list(catalog.share_groups.items()),
            [
                (group, [(n, p, ledger.start, ledger.saved()) for (n, p), ledger in ledgers.items()])
                for group, ledgers in catalog.shares.items()
            ],
            catalog.next_clean,
        )
    )


def _transactional_ids(book: TransactionBook) -> list[msgspec.Raw]:
    for entry in book.by_name.values():
        if entry.saved is None:
            entry.saved = _encode(_transactional_id(book, entry))
    return [msgspec.Raw(entry.saved) for entry in book.by_name.values() if entry.saved is not None]


def _transactional_id(book: TransactionBook, entry: TransactionalId) -> TransactionalIdState:
    pending = book.pending.get(entry.name, {})
    return TransactionalIdState(
        entry.name, entry.identity, entry.timeout_ms, entry.state, list(entry.partitions), list(entry.groups),
        entry.start_ms, entry.update_ms,
        [(group, [(n, p, c) for (n, p), c in progress.items()]) for group, progress in pending.items()],
    )  # fmt: skip


def _topic(topic: Topic, producers: bool) -> TopicState:
    partitions = [_partition(partition, producers) for partition in topic.partitions]
    return TopicState(topic.number, topic.name, topic.id, topic.internal, topic.configs, partitions, topic.view)


def _partition(partition: Partition, producers: bool) -> PartitionState:
    known, transactions = partition.producers, partition.transactions
    return PartitionState(
        partition.start_offset,
        partition.next_offset,
        partition.epochs,
        partition.queue.damaged,
        [ProducerState(i, p.epoch, p.last_ms, p.batches) for i, p in known.by_id.items()]
        if producers and known is not None
        else [],
        partition.source_next,
        None if partition.pending is None else partition.pending.chunks(),
        partition.queue_number,
        [] if transactions is None else list(transactions.open.items()),
        b"" if transactions is None else transactions.aborted.to_bytes(),
        partition.moved_upto,
        partition.compacted_upto,
        partition.cleaned,
    )


def encode(snapshot: Snapshot) -> bytes:
    return _encode(snapshot)


def decode(data: bytes) -> Snapshot:
    """Raises msgspec.DecodeError."""
    return _decoder.decode(data)


def restore(catalog: Catalog, snapshot: Snapshot) -> None:
    """Put a snapshot into an empty catalog."""
    catalog.next_queue_number = snapshot.next_queue_number
    for state in snapshot.topics:
        topic = catalog.make_topic(created(state))
        for partition, kept in zip(topic.partitions, state.partitions, strict=True):
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


def restore_rest(catalog: Catalog, snapshot: Snapshot) -> None:
    """Put what is not in topics into a catalog, in place of what was there."""
    catalog.next_producer_id = snapshot.next_producer_id
    catalog.next_topic_number = snapshot.next_topic_number
    catalog.next_queue_number = max(catalog.next_queue_number, snapshot.next_queue_number)
    catalog.offsets = {group: {(n, p): c for n, p, c in entries} for group, entries in snapshot.offsets}
    catalog.sent_back = {
        group: {(n, p): set(offsets) for n, p, offsets in places} for group, places in snapshot.sent_back
    }
    catalog.attempts = {(number, index, offset): count for number, index, offset, count in snapshot.attempts}
    catalog.cancels = {}
    for number, key, at in snapshot.cancels:
        catalog.cancels.setdefault(number, {})[key] = at
    catalog.deleted = dict(snapshot.deleted)
    catalog.share_groups = dict(snapshot.share_groups)
    catalog.shares = {
        group: {(n, p): Ledger(start, saved) for n, p, start, saved in ledgers} for group, ledgers in snapshot.shares
    }
    catalog.next_clean = max(catalog.next_clean, snapshot.next_clean)
    catalog.groups = {record.group: (record, wall_ms) for record, wall_ms in snapshot.groups}
    catalog.consumer_groups = {}
    for whole, saved_ms in snapshot.consumer_groups:
        remembered = catalog.consumer_groups[whole.group] = RememberedGroup(whole.group)
        remembered.apply(whole, saved_ms)
    catalog.transactions = _book(snapshot.transactional_ids)
    catalog.administration.restore(snapshot.administration)
    catalog.resolve_topics()


def _book(states: list[TransactionalIdState]) -> TransactionBook:
    book = TransactionBook()
    for state in states:
        entry = TransactionalId(state.name, state.identity, state.timeout_ms, state.update_ms)
        entry.state, entry.start_ms = state.state, state.start_ms
        entry.partitions = dict.fromkeys(state.partitions)
        entry.groups = dict.fromkeys(state.groups)
        book.put(entry)
        if state.pending:
            book.pending[state.name] = {group: {(n, p): c for n, p, c in entries} for group, entries in state.pending}
    return book


def _producers(states: list[ProducerState]) -> Producers:
    producers = Producers()
    for state in states:
        producers.by_id[state.producer_id] = Producer(state.epoch, list(state.batches), state.last_ms)
    return producers


def parts(data: bytes) -> Iterator[control.SnapshotPart]:
    """`data` as control records, for the head of a segment."""
    for at in range(0, len(data), PART_BYTES):
        yield control.SnapshotPart(data[at : at + PART_BYTES])


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
