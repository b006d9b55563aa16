"""Kafka's murmur2, by which its producers choose a record's partition from its key."""

from __future__ import annotations

_SEED = 0x9747B28C
_M = 0x5BD1E995
_MASK = 0xFFFF_FFFF


def murmur2(data: bytes) -> int:
    """Unsigned 32 bits (org.apache.kafka.common.utils.Utils.murmur2 gives the same bits, signed)."""
    length = len(data)
    value = (_SEED ^ length) & _MASK
    whole = length & ~3
    for at in range(0, whole, 4):
        k = int.from_bytes(data[at : at + 4], "little") * _M & _MASK
        value = (value * _M & _MASK) ^ ((k ^ k >> 24) * _M & _MASK)
    if whole < length:
        value = (value ^ int.from_bytes(data[whole:], "little")) * _M & _MASK
    value = (value ^ value >> 13) * _M & _MASK
    return value ^ value >> 15


def partition_of_key(key: bytes, partitions: int) -> int:
    """Where Kafka's producers send a record with this key (BuiltInPartitioner.partitionForKey)."""
    return (murmur2(key) & 0x7FFF_FFFF) % partitions
