"""Records of Kafka's internal topics, as bytes of key and value; a value of None is a tombstone.

    __consumer_offsets    int16 1, group, topic, int32 partition → int16 3, int64 offset, int32 leader epoch, metadata,
                                                                   int64 commit time
                          int16 2, group                         → int16 3, a classic group and its members
                          int16 3, group                         → int16 0, int32 epoch: a consumer group (KIP-848)
    __transaction_state   int16 0, transactional id              → int16 0, producer, state, partitions, times

A string has an int16 before it, bytes and arrays an int32; −1 is null. Times are Unix ms. Of each value the highest
version is written that readers outside of Kafka know (Burrow, KMinion), not the flexible ones behind it.

Formats: OffsetCommitKey.json and -Value, GroupMetadataKey and -Value, ConsumerGroupMetadataKey and -Value of Kafka's
group-coordinator, TransactionLogKey and -Value of its transaction-coordinator.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from struct import pack

from halfmoon.schema.control import Committed
from halfmoon.schema.groups import GroupRecord, SavedMember
from halfmoon.schema.transactions import Identity, TransactionState

PARTITIONS = 50
OFFSET_KEY, GROUP_KEY, CONSUMER_GROUP_KEY, TRANSACTION_KEY = 1, 2, 3, 0
OFFSET_VALUE, GROUP_VALUE, CONSUMER_GROUP_VALUE, TRANSACTION_VALUE = 3, 3, 0, 0

STATUS: Mapping[TransactionState, int] = {
    TransactionState.EMPTY: 0,
    TransactionState.ONGOING: 1,
    TransactionState.PREPARE_COMMIT: 2,
    TransactionState.PREPARE_ABORT: 3,
    TransactionState.COMPLETE_COMMIT: 4,
    TransactionState.COMPLETE_ABORT: 5,
}
"""org.apache.kafka.coordinator.transaction.TransactionState"""


def partition_for(name: str, partitions: int = PARTITIONS) -> int:
    """Where Kafka keeps what it knows of a group or a transactional id: by Java's String.hashCode. Where processes
    share topics there are as many partitions as shards, and this is the shard that coordinates it."""
    code = 0
    units = name.encode("utf-16-be", "surrogatepass")
    for high, low in zip(units[::2], units[1::2], strict=True):
        code = (31 * code + (high << 8 | low)) & 0xFFFFFFFF
    signed = code - (1 << 32) if code >= 1 << 31 else code
    return 0 if signed == -(1 << 31) else abs(signed) % partitions


def _string(text: str | None) -> bytes:
    if text is None:
        return b"\xff\xff"
    data = text.encode()
    return pack(">h", len(data)) + data


def _bytes(data: bytes) -> bytes:
    return pack(">i", len(data)) + data


def offset_key(group: str, topic: str, partition: int) -> bytes:
    return pack(">h", OFFSET_KEY) + _string(group) + _string(topic) + pack(">i", partition)


def offset_value(committed: Committed) -> bytes:
    head = pack(">hqi", OFFSET_VALUE, committed.offset, committed.leader_epoch)
    return head + _string(committed.metadata) + pack(">q", committed.commit_ms)


def group_key(group: str) -> bytes:
    return pack(">h", GROUP_KEY) + _string(group)


def group_value(group: GroupRecord, saved_ms: int) -> bytes:
    """A group that has settled nothing yet names no protocol, leader and assignment, as an empty one."""
    protocol = group.protocol if group.members and group.settled else None
    leader = group.leader if group.members and group.settled else None
    members = [_member(member, protocol) for member in group.members]
    head = pack(">h", GROUP_VALUE) + _string(group.protocol_type) + pack(">i", group.generation)
    return b"".join((head, _string(protocol), _string(leader), pack(">qi", saved_ms, len(members)), *members))


def _member(member: SavedMember, protocol: str | None) -> bytes:
    subscription = next((metadata for name, metadata in member.protocols if name == protocol), b"")
    names = (member.member_id, member.instance_id, member.client_id, member.client_host)
    times = pack(">ii", member.rebalance_timeout_ms, member.session_timeout_ms)
    return b"".join((*map(_string, names), times, _bytes(subscription), _bytes(member.assignment)))


def consumer_group_key(group: str) -> bytes:
    return pack(">h", CONSUMER_GROUP_KEY) + _string(group)


def consumer_group_value(epoch: int) -> bytes:
    """Flexible, without a tagged field."""
    return pack(">hiB", CONSUMER_GROUP_VALUE, epoch, 0)


def transaction_key(transactional_id: str) -> bytes:
    return pack(">h", TRANSACTION_KEY) + _string(transactional_id)


def transaction_value(
    identity: Identity, timeout_ms: int, state: TransactionState, partitions: Iterable[tuple[str, Sequence[int]]],
    update_ms: int, start_ms: int,
) -> bytes:  # fmt: skip
    """`partitions`: by topic; of a transaction that is not ongoing there are none. `start_ms` −1: it has not begun."""
    head = pack(
        ">hqhib", TRANSACTION_VALUE, identity.producer_id, identity.epoch, timeout_ms, STATUS[state]
    )  # fmt: skip
    topics = [_string(topic) + pack(f">i{len(indexes)}i", len(indexes), *indexes) for topic, indexes in partitions]
    return b"".join((head, pack(">i", len(topics)), *topics, pack(">qq", update_ms, start_ms)))
