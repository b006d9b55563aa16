"""What a snapshot holds: the catalog as one value (core/catalog/snapshot.py says where it is kept).

`Snapshot` is an array: fields are only ever added at the end. A field of type Raw is the *slot* of one section
(core/catalog/section.py), which alone knows what is in it; it is given beside each.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from halfmoon.schema.control import Binding, Committed
from halfmoon.schema.shards import ShardState
from halfmoon.schema.transactions import Identity, TransactionState

CLEAN_BASE = 1 << 62
"""Log positions from here on are in compacted segments."""

SHARED_SLOTS = ("configs", "quotas", "acls", "users", "tokens")
"""Those of `Snapshot` and `AdministrationState` that say what the shared catalog says, where there is one."""

EMPTY = msgspec.Raw(b"\x90")
"""An empty array."""
NOTHING = msgspec.Raw(b"\xc0")

Chunks = list[tuple[int, bytes]]
"""Of a set of offsets: (number of the chunk, its bits, the lowest offset in the lowest bit of the first byte),
ascending."""


class Batch(NamedTuple):
    """A batch of an idempotent producer that was appended: its sequence range (both ends belong to it), offsets, and
    log end."""

    first_sequence: int
    last_sequence: int
    base_offset: int
    end_position: int


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


class PreparedIdState(TransactionalIdState, array_like=True):
    """The same, of one whose transaction is prepared."""

    after: Identity | None = None
    """The producer's once it has ended."""


class RemoteOffsetsState(msgspec.Struct, array_like=True):
    """What a transaction that another shard coordinates has of a group's progress."""

    producer_id: int
    epoch: int
    joined: int
    group: str
    entries: list[tuple[int, int, Committed]]


class IdsAndRemoteOffsets(msgspec.Struct):
    """The slot `transactional_ids` where there is something of other shards' transactions: a map, where it is an array
    else."""

    ids: msgspec.Raw
    offsets: list[RemoteOffsetsState]


class TopicState(msgspec.Struct, array_like=True):
    number: int
    name: str
    id: bytes
    internal: bool
    configs: dict[str, str]
    partitions: list[PartitionState]
    view: Binding | None = None


class AdministrationState(msgspec.Struct, array_like=True):
    """What administrators have set besides topics; one slot of `Snapshot`, with three owners."""

    configs: msgspec.Raw = EMPTY
    """list[tuple[kind, name, dict[str, str]]]"""
    quotas: msgspec.Raw = EMPTY
    """list[tuple[list[tuple[type, name or None]], dict[str, float]]]"""
    acls: msgspec.Raw = EMPTY
    """list[control.AclRule]"""


class Snapshot(msgspec.Struct, array_like=True):
    """True for log position `position`, written in generation `generation`. `clean`: nothing follows in the log."""

    position: int
    generation: int
    clean: bool
    next_topic_number: int
    next_producer_id: int
    topics: list[TopicState]
    offsets: msgspec.Raw
    """list[tuple[group, list[tuple[topic number, partition, control.Committed]]]]"""
    groups: msgspec.Raw
    """list[tuple[groups.GroupRecord, Unix ms]]"""
    sent_back: msgspec.Raw = EMPTY
    """list[tuple[group, list[tuple[topic number, partition, list[offset]]]]]"""
    attempts: msgspec.Raw = EMPTY
    """list[tuple[topic number, partition, offset, count]]"""
    cancels: msgspec.Raw = EMPTY
    """list[tuple[topic number, UNIQ_KEY, log position]]"""
    deleted: list[tuple[int, str]] = []
    next_queue_number: int = 0
    transactional_ids: msgspec.Raw = EMPTY
    """list[TransactionalIdState] | IdsAndRemoteOffsets"""
    consumer_groups: msgspec.Raw = EMPTY
    """list[tuple[groups.ConsumerGroupChange, Unix ms]]"""
    administration: msgspec.Raw = NOTHING
    """AdministrationState | None; None where nothing was ever set."""
    share_groups: msgspec.Raw = EMPTY
    """list[tuple[group, epoch]]"""
    shares: msgspec.Raw = EMPTY
    """list[tuple[group, list[tuple[topic number, partition, start, list[tuple[first, end, state, count]]]]]]"""
    next_clean: int = CLEAN_BASE
    unwritten: msgspec.Raw = EMPTY
    """list[control.InternalKey]"""
    users: msgspec.Raw = EMPTY
    """list[control.User]"""
    tokens: msgspec.Raw = EMPTY
    """list[control.DelegationToken]"""


class ShardSnapshot(Snapshot, array_like=True, kw_only=True):
    """The same of a shard, in memory. A partition that lies elsewhere has no queue number in it."""

    shard: ShardState


class _OfShard(msgspec.Struct, array_like=True, tag="shard"):
    """How it is written."""

    shard: ShardState
    snapshot: msgspec.Raw


encode = msgspec.msgpack.Encoder().encode
_decoder = msgspec.msgpack.Decoder(Snapshot)
_shard_decoder = msgspec.msgpack.Decoder(_OfShard)
_SHARD_HEAD = 0x93
"""An array of three: what a shard's begins with, and no other."""


def array_head(count: int) -> bytes:
    """MessagePack: how an array of so many begins. What follows is encoded by itself."""
    if count < 16:
        return bytes((0x90 | count,))
    return b"\xdc" + count.to_bytes(2) if count < 1 << 16 else b"\xdd" + count.to_bytes(4)


def decode(data: bytes | memoryview) -> Snapshot:
    """A ShardSnapshot where it is a shard's. Raises msgspec.DecodeError. What is in the slots of sections is not looked
    at."""
    if not data or data[0] != _SHARD_HEAD:
        return _decoder.decode(data)
    found = _shard_decoder.decode(data)
    return ShardSnapshot(*msgspec.structs.astuple(_decoder.decode(found.snapshot)), shard=found.shard)


def encode_again(snapshot: Snapshot) -> bytes:
    """Encode what was decoded."""
    if not isinstance(snapshot, ShardSnapshot):
        return encode(snapshot)
    return of_shard(snapshot.shard, encode(Snapshot(*msgspec.structs.astuple(snapshot)[:-1])))


def of_shard(shard: ShardState, encoded: bytes) -> bytes:
    """A shard's snapshot, of which the rest is encoded."""
    return encode(_OfShard(shard, msgspec.Raw(encoded)))
