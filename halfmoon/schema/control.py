"""Control records: what the broker must remember besides messages, as frames of the same log.

Each is a msgpack array whose first element names its type. Fields are only ever added at the end, with a default, so
that an older log is read by a newer program; a record of an unknown type stops the start, because state would be
lost. Every one of them may be applied twice: recovery does so.
"""

from __future__ import annotations

import msgspec

from halfmoon.schema.groups import ConsumerGroupChange, GroupRecord
from halfmoon.schema.transactions import Identity


class Record(msgspec.Struct, array_like=True, frozen=True, tag=True):
    """Base of all control records."""


class GenerationStarted(Record, frozen=True, tag="generation"):
    generation: int
    wall_ms: int


FROM_END = -1


class Binding(msgspec.Struct, array_like=True, frozen=True):
    """What a view is bound to: its source by topic number, which like the id is never handed out again, and where in
    each of the source's partitions it begins."""

    source_number: int
    starts: list[int]
    """FROM_END where that is for the partition's owner to find: in the shared catalog only."""


class TopicCreated(Record, frozen=True, tag="topic"):
    number: int
    name: str
    id: bytes
    partitions: int
    configs: dict[str, str]
    internal: bool = False
    view: Binding | None = None
    """Of a view (B39); its definition is in `configs`."""
    first_queue: int = -1
    """The broker-wide number of its first partition; the others follow. −1 in logs from before there were any."""


class TopicDeleted(Record, frozen=True, tag="topic-deleted"):
    number: int


class PartitionsAdded(Record, frozen=True, tag="partitions"):
    """`first_queue`: the broker-wide number of the first partition that is new; the others follow, those of the topic's
    views after its own."""

    number: int
    total: int
    first_queue: int = -1


class ConfigsSet(Record, frozen=True, tag="configs"):
    """The topic's overrides, all of them."""

    number: int
    configs: dict[str, str]


class StartOffsetsMoved(Record, frozen=True, tag="starts"):
    """(topic number, partition, new start offset)."""

    moves: list[tuple[int, int, int]]


class Relayed(Record, frozen=True, tag="relayed"):
    """Views have dealt with their source, without a match since their last batch: (topic number of the view,
    partition, next source offset)."""

    progress: list[tuple[int, int, int]]


class Settled(Record, frozen=True, tag="settled"):
    """Waiting messages that are done with and went nowhere: (topic number, partition, offset)."""

    places: list[tuple[int, int, int]]


class Cancelled(Record, frozen=True, tag="cancelled"):
    """Messages to a topic that wait for a time, and were sent before log position `position`, are not to be delivered
    if their UNIQ_KEY is one of these."""

    number: int
    keys: list[bytes]
    position: int


class CancelsDone(Record, frozen=True, tag="cancels-done"):
    """What was to be cancelled so has been looked for, and is settled: (topic number, UNIQ_KEY)."""

    cancels: list[tuple[int, bytes]]


class ProducerAdvanced(Record, frozen=True, tag="producer-advanced"):
    """A batch of an idempotent producer that left nothing in the log, and was acknowledged: its sequence counts.

    (topic number, partition, producer id, epoch, base sequence, span, Unix ms)."""

    number: int
    partition: int
    producer_id: int
    epoch: int
    base_sequence: int
    span: int
    now_ms: int


class Committed(msgspec.Struct, array_like=True, frozen=True):
    """A group's progress in one partition. `offset` is the next one to read."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_ms: int


class OffsetsCommitted(Record, frozen=True, tag="offsets"):
    """(topic number, partition, progress)."""

    group: str
    entries: list[tuple[int, int, Committed]]
    reset: bool = False
    """By somebody who is no member of the group, as those are who set it back."""


class OffsetsDeleted(Record, frozen=True, tag="offsets-deleted"):
    """(topic number, partition)."""

    group: str
    entries: list[tuple[int, int]]


class GroupSaved(Record, frozen=True, tag="group"):
    """What a group must not forget over a restart, and when that was written (Unix ms)."""

    record: GroupRecord
    wall_ms: int


class ConsumerGroupSaved(Record, frozen=True, tag="consumer-group"):
    """What has become different in a group of the new protocol (KIP-848), and when that was written (Unix ms). The
    group is of that kind from then on, as it is a classic one after `GroupSaved`."""

    change: ConsumerGroupChange
    wall_ms: int


class GroupDeleted(Record, frozen=True, tag="group-deleted"):
    """The group and its offsets."""

    group: str


class ShareGroupSaved(Record, frozen=True, tag="share-group"):
    """A share group that was made, or has another epoch."""

    group: str
    epoch: int


class ShareChanged(Record, frozen=True, tag="share"):
    """What a share group has done in one partition: all below `start` is finished; (first offset, end, state, how often
    given out) each."""

    group: str
    number: int
    partition: int
    start: int
    changed: list[tuple[int, int, int, int]]


class ShareReset(Record, frozen=True, tag="share-reset"):
    """A share group begins there, whatever it has done before: (topic number, partition, offset)."""

    group: str
    starts: list[tuple[int, int, int]]


class ShareForgotten(Record, frozen=True, tag="share-forgotten"):
    """A share group knows nothing of these any more: (topic number, partition)."""

    group: str
    places: list[tuple[int, int]]


class ProducerIdsReserved(Record, frozen=True, tag="producer-ids"):
    """Ids below `next_id` are given out, or lost."""

    next_id: int


class TransactionalIdInitialized(Record, frozen=True, tag="txn-id"):
    """A producer took a transactional id, or has it with a new epoch; none of its transactions is ongoing."""

    name: str
    identity: Identity
    timeout_ms: int
    now_ms: int


class TransactionGrown(Record, frozen=True, tag="txn-grown"):
    """The transaction of a transactional id, which begins with the first of these, is to write to partitions (topic
    number, partition) and to commit the progress of groups."""

    name: str
    partitions: list[tuple[int, int]]
    groups: list[str]
    now_ms: int


class TransactionOffsets(Record, frozen=True, tag="txn-offsets"):
    """A group's progress, as of `OffsetsCommitted`, that counts if the transaction commits."""

    name: str
    group: str
    entries: list[tuple[int, int, Committed]]


class TransactionPrepared(Record, frozen=True, tag="txn-prepared"):
    """It is decided how a transaction ends that is too large for one frame group, or has something in other shards.
    Markers follow, frames of their own, then `TransactionOffsetsEnded` for each group, then, once the other shards have
    done theirs, `TransactionEnded`, which says the same as this."""

    name: str
    identity: Identity
    committed: bool
    now_ms: int


class TransactionOffsetsEnded(Record, frozen=True, tag="txn-offsets-ended"):
    """What a prepared transaction has of a group's progress is committed, or dropped."""

    name: str
    group: str
    committed: bool


class TransactionEnded(Record, frozen=True, tag="txn-ended"):
    """The last part of a frame group, behind the markers; alone where the transaction was prepared. `identity`: the
    producer's from now on."""

    name: str
    identity: Identity
    committed: bool
    now_ms: int


class RemoteOffsets(Record, frozen=True, tag="txn-remote-offsets"):
    """A group's progress, as of `OffsetsCommitted`, that counts if the transaction commits which another shard
    coordinates: the one that its producer has under this id and epoch. `joined`: the position in the coordinator's log
    at which it said that the group is part of the transaction."""

    producer_id: int
    epoch: int
    joined: int
    group: str
    entries: list[tuple[int, int, Committed]]


class RemoteOffsetsEnded(Record, frozen=True, tag="txn-remote-offsets-ended"):
    """What the transaction of a producer, which another shard coordinates, has here of a group's progress is committed,
    or dropped."""

    producer_id: int
    group: str
    committed: bool


class TransactionalIdsExpired(Record, frozen=True, tag="txn-ids-expired"):
    """Their producers have not been heard of for long."""

    names: list[str]


class ResourceConfigsSet(Record, frozen=True, tag="resource-configs"):
    """What is set for a node, a group, a client metrics subscription or a namespace of RocketMQ's name server, all of
    it (services/configs)."""

    kind: str
    name: str
    configs: dict[str, str]


class QuotasSet(Record, frozen=True, tag="quotas"):
    """The quotas of an entity, all of them: (type, name) of its parts, None for the default of the type."""

    entity: list[tuple[str, str | None]]
    quotas: dict[str, float]


class AclRule(msgspec.Struct, array_like=True, frozen=True):
    """One access rule, in the numbers of Kafka's protocol."""

    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission: int


class AclsChanged(Record, frozen=True, tag="acls"):
    added: list[AclRule]
    removed: list[AclRule]


class ScramCredential(msgspec.Struct, array_like=True, frozen=True):
    """What is kept in place of a password. `mechanism`: Kafka's number, 1 or 2."""

    mechanism: int
    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    def __repr__(self) -> str:
        return f"ScramCredential({self.mechanism}, …)"


class User(msgspec.Struct, array_like=True, frozen=True):
    """All that is known of one user."""

    name: str
    scram: list[ScramCredential] = []
    """One for each mechanism at most."""
    disabled: bool = False
    admin: bool = False
    sealed: bytes = b""
    """The secret of RocketMQ's signatures, encrypted (halfmoon/auth/sealing.py); empty where there is none."""

    def __repr__(self) -> str:
        return f"User({self.name!r}, {self.scram!r}, disabled={self.disabled}, admin={self.admin}, …)"


class UsersChanged(Record, frozen=True, tag="users"):
    changed: list[User]
    removed: list[str]


class DelegationToken(msgspec.Struct, array_like=True, frozen=True):
    """One delegation token; its HMAC follows from its id and the node's key. Principals as "User:alice", times in Unix
    ms."""

    id: str
    owner: str
    requester: str
    renewers: list[str]
    issued_ms: int
    max_ms: int
    expires_ms: int


class TokensChanged(Record, frozen=True, tag="tokens"):
    changed: list[DelegationToken]
    removed: list[str]


class Moved(msgspec.Struct, array_like=True, frozen=True):
    """The offsets [from_offset, upto_offset) of a partition; what of them lives is in a clean file. Below
    `compacted_upto` no two records have the same key."""

    number: int
    partition: int
    from_offset: int
    upto_offset: int
    compacted_upto: int


class Cleaned(Record, frozen=True, tag="cleaned"):
    """A clean file (core/clean_files.py) with the log positions [start, end) holds what lives of these offsets, in
    place of the log or of earlier clean files. Where nothing lives of them there is no file, and `start` is `end`.

    `lost`: (topic number, partition, from, to), offsets that rot had taken before they could be moved."""

    start: int
    end: int
    moved: list[Moved]
    lost: list[tuple[int, int, int, int]] = []


OFFSET, CLASSIC, CONSUMER, TRANSACTION = "o", "g", "c", "t"
"""Kinds of InternalKey: an offset, a classic group, a consumer group, a transactional id."""


class InternalKey(msgspec.Struct, array_like=True, frozen=True):
    """What one record of Kafka's internal topics is about."""

    kind: str
    name: str
    """Of the group, or the transactional id."""
    topic: str = ""
    partition: int = -1


class InternalWritten(Record, frozen=True, tag="internal-written"):
    """These have been written as they were then, in the frame group that ends with this record."""

    keys: list[InternalKey]


class TopicRenamed(Record, frozen=True, tag="topic-renamed"):
    """A topic that had a name which is reserved now."""

    number: int
    name: str


class ShardBegun(Record, frozen=True, tag="shard"):
    """This log is one of several that share topics (schema/shards.py), and the first thing in it."""

    number: int


class PartitionsPlaced(Record, frozen=True, tag="placed"):
    """The shards that partitions of a topic lie in, from `first` on, a byte each."""

    number: int
    first: int
    shards: bytes


class ShardStarted(Record, frozen=True, tag="shard-started"):
    """Whoever owns the shard now has opened it in this generation, which is the leader epoch of its partitions."""

    number: int
    generation: int
    process: int = -1
    """Which one of those that share the shards has it; −1: not said."""


class CatalogSeen(Record, frozen=True, tag="catalog"):
    """The shard has been told all of the shared catalog up to this version."""

    version: int


class ShardImported(Record, frozen=True, tag="shard-imported"):
    """This log was that of one process until here, and is one of several from now on that share its topics. Files that
    begin below `linked_upto` have names in the others, too. `own`: the numbers of topics that are not shared; messages
    wait in them."""

    number: int
    own: list[int]
    linked_upto: int


class GroupsElsewhere(Record, frozen=True, tag="groups-elsewhere"):
    """Other shards coordinate these groups from now on: what a coordinator knows is forgotten here, and what share
    groups have done in partitions that lie here is not."""

    groups: list[str]


class WaitingKept(Record, frozen=True, tag="waiting-kept"):
    """Of the messages that wait in a partition, those below offset `upto` are other shards' now, but for these: number
    of the chunk and its bits, as in a snapshot."""

    number: int
    partition: int
    upto: int
    kept: list[tuple[int, bytes]]


class SnapshotPart(Record, frozen=True, tag="snapshot"):
    """A part of an encoded `snapshot.Snapshot`; the parts of one snapshot are one frame group."""

    data: bytes


Any = (
    GenerationStarted
    | TopicCreated
    | TopicDeleted
    | PartitionsAdded
    | ConfigsSet
    | StartOffsetsMoved
    | Relayed
    | Settled
    | Cancelled
    | CancelsDone
    | ProducerAdvanced
    | OffsetsCommitted
    | OffsetsDeleted
    | GroupSaved
    | ConsumerGroupSaved
    | GroupDeleted
    | ShareGroupSaved
    | ShareChanged
    | ShareReset
    | ShareForgotten
    | ProducerIdsReserved
    | TransactionalIdInitialized
    | TransactionGrown
    | TransactionOffsets
    | TransactionPrepared
    | TransactionOffsetsEnded
    | TransactionEnded
    | RemoteOffsets
    | RemoteOffsetsEnded
    | TransactionalIdsExpired
    | ResourceConfigsSet
    | QuotasSet
    | AclsChanged
    | UsersChanged
    | TokensChanged
    | Cleaned
    | InternalWritten
    | TopicRenamed
    | ShardBegun
    | PartitionsPlaced
    | ShardStarted
    | CatalogSeen
    | ShardImported
    | GroupsElsewhere
    | WaitingKept
    | SnapshotPart
)

encode = msgspec.msgpack.Encoder().encode


_decoder = msgspec.msgpack.Decoder(Any)


def decode(payload: memoryview | bytes) -> Any:
    """Raises msgspec.DecodeError (msgspec.ValidationError) where the payload is no control record this program
    knows."""
    record: Any = _decoder.decode(payload)
    return record
