"""Messages from RocketMQ clients as record batches: what Kafka's clients read.

One message is one record (drawing.py): the body is its value, the properties are its headers, `__SHARDINGKEY`, or else
KEYS, its key, the born time its timestamp. What a record has no field for is a header as well: the flag, and where the
message was born. UNIQ_KEY comes first, since it is what differs from message to message: the rest tends to be the same,
so how it reads as headers is remembered.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Final, NamedTuple

from halfmoon.adapters.rocketmq import drawing
from halfmoon.adapters.rocketmq.drawing import Read, bounds, header, varint
from halfmoon.adapters.rocketmq.errors import Refused
from halfmoon.core.records.batch_header import new_batch
from halfmoon.core.records.compression import LZ4, ZSTD, decompress
from halfmoon.core.steps import Pauses
from halfmoon.errors import BrokerError
from halfmoon.remoting import properties
from halfmoon.remoting.codes import Code
from halfmoon.remoting.message import CODEC_MASK, COMPRESSED

KEYS, SHARDING_KEY, TRANSACTION = b"KEYS", b"__SHARDINGKEY", b"TRAN_MSG"
BORN_HOST, SYSTEM_FLAGS = b"__BORNHOST", b"__SYSFLAG"
"""Headers of ours. BORN_HOST is RocketMQ's own name (MessageConst.PROPERTY_BORN_HOST)."""
DELAYS: Final[tuple[bytes, ...]] = (b"DELAY", b"TIMER_DELAY_SEC", b"TIMER_DELAY_MS", b"TIMER_DELIVER_MS")
TIMERS: Final[tuple[bytes, ...]] = (*DELAYS[1:], b"TIMER_DEL_UNIQKEY")

_REMEMBERED: Final = 4_096
_REMEMBERED_BYTES: Final = 1_024
"""Of one text that is remembered."""
AT_ONCE: Final = 256
"""Messages of a batch whose properties are looked at in one go: a millisecond or two."""
_CODECS: Final = {0x100: LZ4, 0x200: ZSTD}
_NULL: Final = b"\x01"
"""The length of what is null: zigzag −1."""


class Message(NamedTuple):
    """What a producer sent. `properties`: as one text."""

    properties: bytes
    body: bytes | memoryview
    flag: int = 0


class RecordMaker:
    """Makes batches. It keeps nothing but what it remembers of texts it has read."""

    def __init__(self) -> None:
        self._read: dict[bytes, Read] = {}

    def read(self, rest: bytes) -> Read:
        """Properties but UNIQ_KEY."""
        return self._read.get(rest) or self._read_anew(rest)

    def _read_anew(self, rest: bytes) -> Read:
        found: dict[bytes, bytes] = {}
        for name, value in properties.decode(rest):
            found.setdefault(name, value)
        headers = b"".join([header(name, value) for name, value in found.items()])
        key = found.get(SHARDING_KEY) or found.get(KEYS)
        read = Read(_NULL if key is None else varint(len(key)) + key, len(found), headers, frozenset(found))
        if len(rest) <= _REMEMBERED_BYTES:
            if len(self._read) >= _REMEMBERED:
                self._read.clear()
            self._read[rest] = read
        return read

    def batch(self, data: bytes, born_ms: int, more: bytes, more_count: int) -> Pauses[tuple[bytearray, int]]:
        """A batch of a batch's messages (remoting/message.py), and how many they are. It pauses where they are more
        than are drawn in one go. Raises Refused(MESSAGE_ILLEGAL)."""
        parts: list[bytes] = []
        at = index = 0
        while at < len(data):
            if index:
                yield
            try:
                drawn, at, index = drawing.draw(data, at, index, drawing.AT_ONCE, more, more_count, self.read)
            except ValueError as error:
                raise Refused(Code.MESSAGE_ILLEGAL, str(error)) from None
            parts.append(drawn)
        if not index:
            raise Refused(Code.MESSAGE_ILLEGAL, "a batch without a message")
        body = parts[0] if len(parts) == 1 else b"".join(parts)
        return new_batch(body, index, born_ms, born_ms), index


def batched(data: bytes) -> Iterator[Message]:
    """The messages of a batch (remoting/message.py). Raises Refused(MESSAGE_ILLEGAL)."""
    try:
        for flag, body_at, body_end, text_at, text_end in bounds(data):
            yield Message(data[text_at:text_end], data[body_at:body_end], flag)
    except ValueError as error:
        raise Refused(Code.MESSAGE_ILLEGAL, str(error)) from None


def plain_body(body: bytes | memoryview, system_flags: int, max_bytes: int) -> bytes | memoryview:
    """What the client compressed, decompressed. Raises Refused(MESSAGE_ILLEGAL)."""
    if not system_flags & COMPRESSED:
        return body
    codec = _CODECS.get(system_flags & CODEC_MASK)
    try:
        if codec is not None:
            return decompress(codec, body, max_bytes)
        # 0x300, and 0 of clients from before there was a choice: zlib
        unpacker = zlib.decompressobj()
        plain = unpacker.decompress(body, max_bytes)
        if not unpacker.eof:
            raise Refused(Code.MESSAGE_ILLEGAL, f"the body takes more than {max_bytes} bytes, or is cut short")
        return plain
    except (BrokerError, zlib.error) as error:
        raise Refused(Code.MESSAGE_ILLEGAL, f"the body cannot be decompressed: {error}") from None
