"""Messages from RocketMQ clients as record batches: what Kafka's clients read.

One message is one record: the body is its value, the properties are its headers, `__SHARDINGKEY`, or else KEYS, its
key, the born time its timestamp. What a record has no field for is a header as well: the flag, and where the message
was born. UNIQ_KEY comes first, since it is what differs from message to message: the rest tends to be the same, so how
it reads as headers is remembered.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable
from typing import NamedTuple

from halfmoon.adapters.rocketmq import properties
from halfmoon.adapters.rocketmq.codes import Code
from halfmoon.adapters.rocketmq.errors import Refused
from halfmoon.adapters.rocketmq.message import CODEC_MASK, COMPRESSED
from halfmoon.core.batch_header import MAGIC, BatchHeader, assemble
from halfmoon.core.compression import LZ4, ZSTD, decompress
from halfmoon.core.errors import BrokerError
from halfmoon.core.record_codec import put_varint

UNIQ_KEY, KEYS, SHARDING_KEY, TRANSACTION = b"UNIQ_KEY", b"KEYS", b"__SHARDINGKEY", b"TRAN_MSG"
FLAG, BORN_HOST, SYSTEM_FLAGS = b"__FLAG", b"__BORNHOST", b"__SYSFLAG"
"""Headers of ours. BORN_HOST is RocketMQ's own name (MessageConst.PROPERTY_BORN_HOST)."""
DELAYS = (b"DELAY", b"TIMER_DELAY_SEC", b"TIMER_DELAY_MS", b"TIMER_DELIVER_MS")
TIMERS = (*DELAYS[1:], b"TIMER_DEL_UNIQKEY")

_UNIQ_MARK = UNIQ_KEY + properties.BETWEEN
_REMEMBERED = 4_096
_REMEMBERED_BYTES = 1_024
"""Of one text that is remembered."""
_CODECS = {0x100: LZ4, 0x200: ZSTD}
_BATCH_HEAD = struct.Struct(">iiiii")


def varint(number: int) -> bytes:
    """A number as record_codec.py draws it."""
    encoded = bytearray()
    put_varint(encoded, number)
    return bytes(encoded)


_VARINTS = [varint(number) for number in range(1_024)]
_NULL = b"\x01"
"""The length of what is null: zigzag −1."""


class Message(NamedTuple):
    """What a producer sent. `properties`: as one text."""

    properties: bytes
    body: bytes | memoryview
    flag: int = 0


class Read(NamedTuple):
    """Properties but UNIQ_KEY, as parts of a record."""

    key: bytes
    """With its length in front."""
    header_count: int
    headers: bytes
    names: frozenset[bytes]


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

    def batch(self, messages: Iterable[Message], born_ms: int, more: bytes, more_count: int) -> tuple[bytes, int]:
        """A batch of these messages, and how many they are. `more`: so many encoded headers that each gets besides its
        properties."""
        parts: list[bytes | memoryview] = []
        index = 0
        for text, body, flag in messages:
            uniq, rest = split_unique(text)
            key, count, headers, _ = self._read.get(rest) or self._read_anew(rest)
            size = len(body)
            head = b"\0\0" + _varint(index) + key + _varint(size)
            count += more_count
            if uniq is not None:
                count += 1
                headers = header(UNIQ_KEY, uniq) + headers
            if flag:
                count += 1
                headers += header(FLAG, b"%d" % flag)
            tail = _varint(count) + headers + more
            parts += (_varint(len(head) + size + len(tail)) + head, body, tail)
            index += 1
        made = BatchHeader(
            base_offset=0, batch_length=0, leader_epoch=-1, magic=MAGIC, crc=0, attributes=0,
            last_offset_delta=index - 1, base_timestamp=born_ms, max_timestamp=born_ms, producer_id=-1,
            producer_epoch=-1, base_sequence=-1, record_count=index,
        )  # fmt: skip
        return assemble(made, b"".join(parts)), index


def header(name: bytes, value: bytes) -> bytes:
    """A record's header, encoded."""
    return _varint(len(name)) + name + _varint(len(value)) + value


def _varint(number: int) -> bytes:
    return _VARINTS[number] if number < 1_024 else varint(number)


def split_unique(text: bytes) -> tuple[bytes | None, bytes]:
    """The UNIQ_KEY of properties, and all the others."""
    at = text.find(_UNIQ_MARK)
    while at > 0 and text[at - 1] != 2:  # it ends another name
        at = text.find(_UNIQ_MARK, at + 1)
    if at < 0:
        return None, text
    end = text.find(b"\x02", at)
    if end < 0:
        return text[at + len(_UNIQ_MARK) :] or None, text[:at]
    return text[at + len(_UNIQ_MARK) : end] or None, text[:at] + text[end + 1 :]


def batched(data: bytes) -> Iterable[Message]:
    """The messages of a batch (message.py). Raises Refused(MESSAGE_ILLEGAL)."""
    at, end = 0, len(data)
    while at < end:
        if end - at < _BATCH_HEAD.size:
            raise Refused(Code.MESSAGE_ILLEGAL, "the batch ends within a message")
        size, _, _, flag, length = _BATCH_HEAD.unpack_from(data, at)
        body = at + _BATCH_HEAD.size
        behind = body + length
        if length < 0 or behind + 2 > end:
            raise Refused(Code.MESSAGE_ILLEGAL, "the batch ends within a message")
        text = behind + 2
        after = text + (data[behind] << 8 | data[behind + 1])
        if after != at + size or after > end:
            raise Refused(Code.MESSAGE_ILLEGAL, "a message of the batch has a wrong length")
        yield Message(data[text:after], data[body:behind], flag)
        at = after


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
