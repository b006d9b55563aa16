"""Messages as RocketMQ writes them: stored ones (in answers to pulls and queries), those of a batch, their ids.

A stored message (org.apache.rocketmq.common.message.MessageDecoder), all numbers big-endian:

     4  size of the whole                     8  born time, Unix ms
     4  magic 0xDAA320A7                      4 or 16 + 4  born host: address, port (16 with bit 4 of the flags)
     4  CRC-32 of the body & 0x7FFFFFFF       8  store time, Unix ms
     4  queue id                              4 or 16 + 4  store host (16 with bit 5)
     4  flag, the user's                      4  reconsume times
     8  queue offset                          8  prepared transaction offset
     8  physical offset                       4 + n  body
     4  system flags                          1 + n  topic
                                              2 + n  properties (properties.py)

A message of a batch (request 320): size int32 · magic int32 · CRC int32 · flag int32 · 4 + n body · 2 + n properties.

A message id is the store host (address, port in four bytes) and the physical offset, in upper-case hex: 32 characters
with an IPv4 address, 56 with an IPv6 one. The physical offset leads back to the message: queue number (23 bits) << 40 |
queue offset. So it is the same for ever, and needs no look-up.
"""

from __future__ import annotations

import ipaddress
import struct
import zlib
from collections.abc import Iterator
from typing import NamedTuple

from halfmoon.remoting.errors import MalformedFrame

MAGIC, LONG_TOPIC_MAGIC = 0xDAA320A7, 0xDAA320AB
"""MessageVersion V1, and V2: the topic's length has two bytes there. In V1 it is one, and clients read it as signed."""
LONGEST_SHORT_TOPIC = 127
COMPRESSED, TRANSACTION_MASK, COMMITTED, BORN_V6, STORE_V6 = 1, 12, 8, 0x10, 0x20
CODEC_MASK = 0x700
"""Bits 8 to 10 of the system flags: how a body is compressed (MessageSysFlag, CompressionType)."""
OFFSET_BITS = 40
MAX_OFFSET = (1 << OFFSET_BITS) - 1
MAX_QUEUE_NUMBER = (1 << 23) - 1

_BEFORE_BORN = struct.Struct(">iIIiiqqiq")
_AFTER_STORE = struct.Struct(">iqi")
_INT64 = struct.Struct(">q")
_INT32 = struct.Struct(">i")
_INT16 = struct.Struct(">h")
_BATCHED = struct.Struct(">iiiii")

crc32 = zlib.crc32


class Host(NamedTuple):
    """An address, 4 or 16 bytes, and a port."""

    address: bytes
    port: int

    @classmethod
    def parse(cls, host: str, port: int) -> Host:
        """No name is looked up: what is no address is 0.0.0.0."""
        try:
            return cls(ipaddress.ip_address(host.partition("%")[0]).packed, port)
        except ValueError:
            return cls(bytes(4), port)

    @property
    def is_v6(self) -> bool:
        return len(self.address) == 16

    def pack(self) -> bytes:
        return self.address + _INT32.pack(self.port)

    def in_hex(self) -> str:
        return self.pack().hex().upper()

    def __str__(self) -> str:
        text = str(ipaddress.ip_address(self.address))
        return f"[{text}]:{self.port}" if self.is_v6 else f"{text}:{self.port}"


class StoredMessage(NamedTuple):
    """All that a stored message says. `properties` are encoded."""

    queue_id: int
    flag: int
    queue_offset: int
    physical_offset: int
    system_flags: int
    born_ms: int
    born: Host
    store_ms: int
    store: Host
    reconsume_times: int
    prepared_offset: int
    body: bytes
    topic: bytes
    properties: bytes

    @property
    def message_id(self) -> str:
        return message_id(self.store, self.physical_offset)


def magic_for(topic: bytes) -> int:
    return MAGIC if len(topic) <= LONGEST_SHORT_TOPIC else LONG_TOPIC_MAGIC


def topic_field(topic: bytes) -> bytes:
    """A topic's name with its length."""
    return len(topic).to_bytes(1 if len(topic) <= LONGEST_SHORT_TOPIC else 2, "big") + topic


def encode_stored(message: StoredMessage) -> bytes:
    flags = message.system_flags & ~(BORN_V6 | STORE_V6)
    flags |= (BORN_V6 if message.born.is_v6 else 0) | (STORE_V6 if message.store.is_v6 else 0)
    rest = b"".join(
        [
            message.born.pack(),
            _INT64.pack(message.store_ms),
            message.store.pack(),
            _AFTER_STORE.pack(message.reconsume_times, message.prepared_offset, len(message.body)),
            message.body,
            topic_field(message.topic),
            _INT16.pack(len(message.properties)),
            message.properties,
        ]
    )
    head = _BEFORE_BORN.pack(
        _BEFORE_BORN.size + len(rest), magic_for(message.topic), crc32(message.body) & 0x7FFFFFFF, message.queue_id,
        message.flag, message.queue_offset, message.physical_offset, flags, message.born_ms,
    )  # fmt: skip
    return head + rest


def decode_stored(data: bytes | memoryview) -> Iterator[StoredMessage]:
    """The messages of a body, one behind the other. Raises MalformedFrame."""
    view = memoryview(data)
    at = 0
    while at < len(view):
        try:
            message, size = _decode_one(view[at:])
        except (struct.error, IndexError):
            raise MalformedFrame("a stored message is cut short") from None
        yield message
        at += size


def _decode_one(view: memoryview) -> tuple[StoredMessage, int]:
    size, magic, crc, queue_id, flag, offset, physical, flags, born_ms = _BEFORE_BORN.unpack_from(view)
    if magic not in (MAGIC, LONG_TOPIC_MAGIC) or not _BEFORE_BORN.size < size <= len(view):
        raise MalformedFrame(f"no stored message: size {size}, magic {magic:#x}")
    view = view[:size]
    at = _BEFORE_BORN.size
    born, at = _host(view, at, 16 if flags & BORN_V6 else 4)
    (store_ms,) = _INT64.unpack_from(view, at)
    store, at = _host(view, at + 8, 16 if flags & STORE_V6 else 4)
    reconsume_times, prepared, length = _AFTER_STORE.unpack_from(view, at)
    body, at = _take(view, at + _AFTER_STORE.size, length)
    length_bytes = 1 if magic == MAGIC else 2
    topic, at = _take(view, at + length_bytes, int.from_bytes(view[at : at + length_bytes], "big"))
    (length,) = _INT16.unpack_from(view, at)
    properties, at = _take(view, at + 2, length)
    if at != size or crc32(body) & 0x7FFFFFFF != crc:
        raise MalformedFrame("a stored message whose size or checksum is wrong")
    message = StoredMessage(
        queue_id, flag, offset, physical, flags, born_ms, born, store_ms, store, reconsume_times, prepared, body,
        topic, properties,
    )  # fmt: skip
    return message, size


def _host(view: memoryview, at: int, length: int) -> tuple[Host, int]:
    address, at = _take(view, at, length)
    (port,) = _INT32.unpack_from(view, at)
    return Host(address, port), at + 4


def _take(view: memoryview, at: int, length: int) -> tuple[bytes, int]:
    end = at + length
    if length < 0 or end > len(view):
        raise MalformedFrame(f"{length} bytes are said to follow, and {len(view) - at} do")
    return bytes(view[at:end]), end


class BatchedMessage(NamedTuple):
    """A message of a batch, for who sends one; how they are read is in to_records.py."""

    flag: int
    body: bytes
    properties: bytes


def encode_batch(messages: list[BatchedMessage]) -> bytes:
    parts = []
    for message in messages:
        size = _BATCHED.size + len(message.body) + 2 + len(message.properties)
        parts += [
            _BATCHED.pack(size, 0, 0, message.flag, len(message.body)),
            message.body,
            _INT16.pack(len(message.properties)),
            message.properties,
        ]
    return b"".join(parts)


def physical_offset(queue_number: int, queue_offset: int) -> int:
    return queue_number << OFFSET_BITS | queue_offset


def place_of(physical: int) -> tuple[int, int]:
    """Queue number and queue offset."""
    return physical >> OFFSET_BITS, physical & MAX_OFFSET


def message_id(store: Host, physical: int) -> str:
    return f"{store.in_hex()}{physical & (1 << 64) - 1:016X}"


def decode_message_id(text: str) -> tuple[Host, int]:
    """Store host and physical offset. Raises ValueError."""
    data = bytes.fromhex(text)
    if len(data) not in (16, 28):
        raise ValueError(f"a message id of {len(text)} characters")
    address, rest = data[:-12], data[-12:]
    return Host(address, _INT32.unpack_from(rest)[0]), _INT64.unpack_from(rest, 4)[0]
