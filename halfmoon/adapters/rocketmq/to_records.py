"""Messages from RocketMQ clients as record batches: what Kafka's clients read.

One message is one record: the body is its value, the properties are its headers, `__SHARDINGKEY`, or else KEYS, its
key, the born time its timestamp. What a record has no field for is a header as well: the flag, and where the message
was born. UNIQ_KEY comes first, since it is what differs from message to message: the rest tends to be the same, so how
it reads as headers is remembered.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import Final, NamedTuple

from halfmoon.adapters.rocketmq.errors import Refused
from halfmoon.core.records.batch_header import plain_batch
from halfmoon.core.records.compression import LZ4, ZSTD, decompress
from halfmoon.core.records.record_codec import put_varint
from halfmoon.core.steps import Pauses
from halfmoon.errors import BrokerError
from halfmoon.remoting import properties
from halfmoon.remoting.codes import Code
from halfmoon.remoting.message import CODEC_MASK, COMPRESSED

UNIQ_KEY, KEYS, SHARDING_KEY, TRANSACTION = b"UNIQ_KEY", b"KEYS", b"__SHARDINGKEY", b"TRAN_MSG"
FLAG, BORN_HOST, SYSTEM_FLAGS = b"__FLAG", b"__BORNHOST", b"__SYSFLAG"
"""Headers of ours. BORN_HOST is RocketMQ's own name (MessageConst.PROPERTY_BORN_HOST)."""
DELAYS: Final[tuple[bytes, ...]] = (b"DELAY", b"TIMER_DELAY_SEC", b"TIMER_DELAY_MS", b"TIMER_DELIVER_MS")
TIMERS: Final[tuple[bytes, ...]] = (*DELAYS[1:], b"TIMER_DEL_UNIQKEY")

_UNIQ_MARK: Final = UNIQ_KEY + properties.BETWEEN
_REMEMBERED: Final = 4_096
_REMEMBERED_BYTES: Final = 1_024
"""Of one text that is remembered."""
AT_ONCE: Final = 256
"""Messages of a batch that are looked at in one go: a millisecond or two."""
_CODECS: Final = {0x100: LZ4, 0x200: ZSTD}
_BATCH_HEAD: Final = struct.Struct(">iiiii")


def varint(number: int) -> bytes:
    """A number as record_codec.py draws it."""
    encoded = bytearray()
    put_varint(encoded, number)
    return bytes(encoded)


_VARINTS: Final = [varint(number) for number in range(1_024)]
_ONE_BYTE: Final = 64
"""Numbers below take one byte."""
_FEW: Final = len(_VARINTS)
_NULL: Final = b"\x01"
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

    def one(self, message: Message, born_ms: int, more: bytes, more_count: int) -> bytearray:
        """A batch of one message. `more`: so many encoded headers that it gets besides its properties."""
        return plain_batch(self._record(message, 0, more, more_count), 1, born_ms)

    def batch(self, data: bytes, born_ms: int, more: bytes, more_count: int) -> Pauses[tuple[bytearray, int]]:
        """A batch of a batch's messages (message.py), and how many they are. It pauses where they are more than
        AT_ONCE. Raises Refused(MESSAGE_ILLEGAL).

        Of messages that differ in their UNIQ_KEY and their body's content alone, as most do, the records differ there
        alone, too, so what stands around these is made once.
        """
        parts: list[bytes | memoryview] = []
        before_known = behind_known = around = None
        sizes_known = (-1, -1)
        index = 0
        for flag, body_at, body_end, text_at, text_end in _bounds(data):
            if index % AT_ONCE == AT_ONCE - 1:
                yield
            at = data.find(_UNIQ_MARK, text_at, text_end)
            uniq_at = at + len(_UNIQ_MARK)
            uniq_end = data.find(b"\x02", uniq_at, text_end) if at >= 0 else -1
            regular = uniq_end > uniq_at and (at == text_at or data[at - 1] == 2)
            if not regular or flag or index >= _FEW:
                message = Message(data[text_at:text_end], data[body_at:body_end], flag)
                parts.append(self._record(message, index, more, more_count))
                index += 1
                continue
            before, behind = data[text_at:at], data[uniq_end + 1 : text_end]
            sizes = (body_end - body_at, uniq_end - uniq_at)
            if around is None or sizes != sizes_known or before != before_known or behind != behind_known:
                around = self._around(before + behind, len(_VARINTS[index]), *sizes, more, more_count)
                sizes_known, before_known, behind_known = sizes, before, behind
            parts += (
                around[0], _VARINTS[index], around[1], data[body_at:body_end], around[2], data[uniq_at:uniq_end],
                around[3],
            )  # fmt: skip
            index += 1
            if index == _ONE_BYTE:
                around = None  # from here on, the offset delta takes two bytes
        if not index:
            raise Refused(Code.MESSAGE_ILLEGAL, "a batch without a message")
        return plain_batch(b"".join(parts), index, born_ms), index

    def _around(
        self, rest: bytes, delta_bytes: int, body_bytes: int, uniq_bytes: int, more: bytes, more_count: int
    ) -> tuple[bytes, bytes, bytes, bytes]:
        """What stands before a record's offset delta, its body and UNIQ_KEY's value, and behind that."""
        key, count, headers, _ = self.read(rest)
        to_body = key + _varint(body_bytes)
        to_uniq = _varint(count + more_count + 1) + _varint(len(UNIQ_KEY)) + UNIQ_KEY + _varint(uniq_bytes)
        behind = headers + more
        size = 2 + delta_bytes + len(to_body) + body_bytes + len(to_uniq) + uniq_bytes + len(behind)
        return _varint(size) + b"\0\0", to_body, to_uniq, behind

    def _record(self, message: Message, index: int, more: bytes, more_count: int) -> bytes:
        text, body, flag = message
        uniq, rest = split_unique(text)
        key, count, headers, _ = self.read(rest)
        count += more_count
        if uniq is not None:
            count += 1
            headers = header(UNIQ_KEY, uniq) + headers
        if flag:
            count += 1
            headers += header(FLAG, b"%d" % flag)
        head = b"\0\0" + _varint(index) + key + _varint(len(body))
        tail = _varint(count) + headers + more
        return b"".join((_varint(len(head) + len(body) + len(tail)), head, body, tail))


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


def batched(data: bytes) -> Iterator[Message]:
    """The messages of a batch (message.py). Raises Refused(MESSAGE_ILLEGAL)."""
    for flag, body_at, body_end, text_at, text_end in _bounds(data):
        yield Message(data[text_at:text_end], data[body_at:body_end], flag)


def _bounds(data: bytes) -> Iterator[tuple[int, int, int, int, int]]:
    """Of each message of a batch its flag, and where its body and its properties begin and end."""
    at, end = 0, len(data)
    while at < end:
        if end - at < _BATCH_HEAD.size:
            raise Refused(Code.MESSAGE_ILLEGAL, "the batch ends within a message")
        size, _, _, flag, length = _BATCH_HEAD.unpack_from(data, at)
        body_at = at + _BATCH_HEAD.size
        body_end = body_at + length
        text_at = body_end + 2
        if length < 0 or text_at > end:
            raise Refused(Code.MESSAGE_ILLEGAL, "the batch ends within a message")
        after = text_at + (data[body_end] << 8 | data[body_end + 1])
        if after != at + size or after > end:
            raise Refused(Code.MESSAGE_ILLEGAL, "a message of the batch has a wrong length")
        yield flag, body_at, body_end, text_at, after
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
