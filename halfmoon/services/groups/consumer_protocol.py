"""The classic consumers' own format, in the metadata that they join with and the shares that their leader hands out.

The coordinator of classic groups passes both on unread. They are read, and written, where members of a group that the
broker assigns still speak the classic protocol.

    subscription (ConsumerProtocolSubscription)          assignment (ConsumerProtocolAssignment)
    version int16                                        version int16
    topics: int32 n, n strings                           n × (topic string, int32 n, n × int32)
    user data: int32 length or −1, bytes                 user data: int32 length or −1, bytes
    from 1: owned: n × (topic string, int32 n, n × int32)
    from 2: generation int32        from 3: rack, string or null
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

_INT16, _INT32 = struct.Struct(">h"), struct.Struct(">i")
_NEWEST = 3


class Subscription(NamedTuple):
    """What a classic consumer joins with."""

    version: int
    topics: tuple[str, ...]
    owned: dict[str, list[int]]
    """What it says that it holds; from before version 1, nothing."""
    rack: str | None


def parse_subscription(metadata: bytes) -> Subscription | None:
    """None if the bytes do not have this form: a peer may send anything."""
    reader = _Reader(metadata)
    try:
        version = reader.int16()
        topics = tuple(reader.string() or "" for _ in range(reader.count()))
        reader.skip()
        owned = reader.partitions() if version >= 1 else {}
        if version >= 2:
            reader.int32()
        rack = reader.string() if version >= 3 else None
    except (struct.error, UnicodeDecodeError, ValueError):
        return None
    return None if version < 0 else Subscription(min(version, _NEWEST), topics, owned, rack or None)


def parse_assignment(assignment: bytes) -> dict[str, list[int]] | None:
    """Topic → partitions. None if the bytes do not have this form, or say more than that; no bytes are no
    partitions."""
    if not assignment:
        return {}
    reader = _Reader(assignment)
    try:
        version, partitions = reader.int16(), reader.partitions()
        has_user_data = reader.int32() > 0
    except (struct.error, UnicodeDecodeError, ValueError):
        return None
    return None if version < 0 or has_user_data else partitions


def assignment_bytes(version: int, partitions: Mapping[str, Sequence[int]]) -> bytes:
    """An assignment, as a member of this version reads it."""
    out = [_INT16.pack(version), _INT32.pack(len(partitions))]
    for topic in sorted(partitions):
        name = topic.encode()
        out += (_INT16.pack(len(name)), name, _numbers(partitions[topic]))
    out.append(_INT32.pack(-1))
    return b"".join(out)


def _numbers(numbers: Iterable[int]) -> bytes:
    found = sorted(numbers)
    return _INT32.pack(len(found)) + b"".join(map(_INT32.pack, found))


class _Reader:
    """Reads from the front; raises struct.error or ValueError at what cannot be."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def int16(self) -> int:
        (value,) = _INT16.unpack_from(self._data, self._at)
        self._at += 2
        return int(value)

    def int32(self) -> int:
        (value,) = _INT32.unpack_from(self._data, self._at)
        self._at += 4
        return int(value)

    def count(self) -> int:
        """How many elements follow; no more than could be there."""
        count = self.int32()
        if not 0 <= count <= len(self._data) - self._at:
            raise ValueError(count)
        return count

    def string(self) -> str | None:
        length = self.int16()
        if length < 0:
            return None
        return self._bytes(length).decode()

    def skip(self) -> None:
        length = self.int32()
        if length > 0:
            self._bytes(length)

    def partitions(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for _ in range(self.count()):
            found.setdefault(self.string() or "", []).extend(self.int32() for _ in range(self.count()))
        return found

    def _bytes(self, length: int) -> bytes:
        if length > len(self._data) - self._at:
            raise ValueError(length)
        self._at += length
        return self._data[self._at - length : self._at]
