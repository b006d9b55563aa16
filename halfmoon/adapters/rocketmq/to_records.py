"""Messages from RocketMQ clients as record batches: what Kafka's clients read.

One message is one record: the body is its value, the properties are its headers, `__SHARDINGKEY`, or else KEYS, its
key, the born time its timestamp. What a record has no field for is a header as well: the flag, and where the message
was born. UNIQ_KEY comes first, since it is what differs from message to message: the rest tends to be the same, so how
it reads as headers is remembered.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
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


class Message(NamedTuple):
    """What a producer sent. `properties`: as one text."""

    properties: bytes
    body: bytes | memoryview
    flag: int = 0


class Read(NamedTuple):
    """Properties but UNIQ_KEY, as headers."""

    headers: bytes
    header_count: int
    key: bytes | None
    names: frozenset[bytes]


class RecordMaker:
    """Makes batches. It keeps nothing but what it remembers of texts it has read."""

    def __init__(self) -> None:
        self._read: dict[bytes, Read] = {}

    def batch(self, messages: Sequence[Message], born_ms: int, more: Sequence[tuple[bytes, bytes]]) -> bytes:
        """A batch of these messages; `more`: headers that each gets besides its properties."""
        tail = bytearray()
        for name, value in more:
            _put_header(tail, name, value)
        body = bytearray()
        for index, message in enumerate(messages):
            self._put_record(body, index, message, tail, len(more))
        count = len(messages)
        header = BatchHeader(
            base_offset=0, batch_length=0, leader_epoch=-1, magic=MAGIC, crc=0, attributes=0,
            last_offset_delta=count - 1, base_timestamp=born_ms, max_timestamp=born_ms, producer_id=-1,
            producer_epoch=-1, base_sequence=-1, record_count=count,
        )  # fmt: skip
        return assemble(header, body)

    def _put_record(self, output: bytearray, index: int, message: Message, tail: bytearray, more: int) -> None:
        text, body, flag = message
        uniq, rest = split_unique(text)
        read = self._read.get(rest) or self.read(rest)
        record = bytearray(2)  # attributes 0, timestamp delta 0
        put_varint(record, index)
        _put_bytes(record, read.key)
        put_varint(record, len(body))
        record += body
        put_varint(record, read.header_count + more + (uniq is not None) + (flag != 0))
        if uniq is not None:
            _put_header(record, UNIQ_KEY, uniq)
        record += read.headers
        record += tail
        if flag:
            _put_header(record, FLAG, b"%d" % flag)
        put_varint(output, len(record))
        output += record

    def read(self, text: bytes) -> Read:
        """Properties but UNIQ_KEY, read and remembered."""
        headers = bytearray()
        found: dict[bytes, bytes] = {}
        for name, value in properties.decode(text):
            if name not in found:  # a reader would take the last, and a map has each once
                found[name] = value
        for name, value in found.items():
            _put_header(headers, name, value)
        key = found.get(SHARDING_KEY) or found.get(KEYS)
        read = Read(bytes(headers), len(found), key, frozenset(found))
        if len(text) <= _REMEMBERED_BYTES:
            if len(self._read) >= _REMEMBERED:
                self._read.clear()
            self._read[text] = read
        return read


def split_unique(text: bytes) -> tuple[bytes | None, bytes]:
    """The UNIQ_KEY of properties, and all the others."""
    at = 0 if text.startswith(_UNIQ_MARK) else text.find(properties.AFTER + _UNIQ_MARK) + 1
    if not at and not text.startswith(_UNIQ_MARK):
        return None, text
    start = at + len(_UNIQ_MARK)
    end = text.find(properties.AFTER, start)
    if end < 0:
        end = len(text)
    return text[start:end] or None, text[:at] + text[end + 1 :]


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


def _put_header(output: bytearray, name: bytes, value: bytes) -> None:
    put_varint(output, len(name))
    output += name
    put_varint(output, len(value))
    output += value


def _put_bytes(output: bytearray, content: bytes | None) -> None:
    if content is None:
        output.append(1)  # zigzag −1
    else:
        put_varint(output, len(content))
        output += content
