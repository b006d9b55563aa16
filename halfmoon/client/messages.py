"""What is sent, what comes back of it, and what is received."""

from __future__ import annotations

import logging
import struct
import zlib
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any

import lz4.frame
import zstandard
from msgspec import Struct, field

from halfmoon.client.errors import MessageError
from halfmoon.plugin import Queue
from halfmoon.remoting import properties
from halfmoon.remoting.errors import MalformedFrame
from halfmoon.remoting.message import (
    CODEC_MASK,
    COMPRESSED,
    MAGIC,
    Host,
    StoredMessage,
    crc32,
    decode_stored,
    message_id,
)

UNIQ_KEY, TAGS, KEYS, WAIT = "UNIQ_KEY", "TAGS", "KEYS", "WAIT"
RETRY_TOPIC, ORIGIN_ID, SHARDING_KEY = "RETRY_TOPIC", "ORIGIN_MESSAGE_ID", "__SHARDINGKEY"
TRANSACTION = "TRAN_MSG"
DELAY, DELAY_MS, DELIVER_MS, CANCEL = "DELAY", "TIMER_DELAY_MS", "TIMER_DELIVER_MS", "TIMER_DEL_UNIQKEY"
"""MessageConst."""
RESERVED = frozenset(
    (
        "__SHARDINGKEY", "__transactionId__", "ARRIVE_TIME", "BORN_HOST", "BORN_TIMESTAMP", "BUYER_ID", "CLUSTER",
        "CONSUME_START_TIME", "CORRECTION_FLAG", "CORRELATION_ID", "DELAY", "DLQ_ORIGIN_MESSAGE_ID",
        "DLQ_ORIGIN_TOPIC", "DUP_INFO", "EXTEND_UNIQ_INFO", "FIRST_POP_TIME", "INNER_BASE", "INNER_MULTI_DISPATCH",
        "INNER_MULTI_QUEUE_OFFSET", "INNER_NUM", "INSTANCE_ID", "KEYS", "MAX_OFFSET", "MAX_RECONSUME_TIMES",
        "MIN_OFFSET", "MQ2_FLAG", "MSG_REGION", "MSG_TYPE", "ORIGIN_MESSAGE_ID", "PGROUP", "POP_CK", "POP_CK_OFFSET",
        "PUSH_REPLY_TIME", "REAL_QID", "REAL_TOPIC", "RECONSUME_TIME", "REPLY_TO_CLIENT", "RETRY_TOPIC", "TAGS",
        "TIMER_DELAY_LEVEL", "TIMER_DELAY_MS", "TIMER_DELAY_SEC", "TIMER_DELIVER_MS", "TIMER_DEL_UNIQKEY",
        "TIMER_DEQUEUE_MS", "TIMER_ENQUEUE_MS", "TIMER_OUT_MS", "TIMER_ROLL_TIMES", "TRACE_CONTEXT", "TRACE_ON",
        "TRANSACTION_CHECK_TIMES", "TRAN_MSG", "TRAN_PREPARED_QUEUE_OFFSET", "TRANSFER_FLAG", "TTL", "UNIQ_KEY",
        "WAIT",
    )
)  # fmt: skip
"""Names of properties with a field, or a call, of their own, or that RocketMQ acts on (MessageConst)."""
KEY_SEPARATOR = " "

log = logging.getLogger("halfmoon.client.consumer")


class Message(Struct, kw_only=False):
    """A message to send.

    `properties` are the user's own; names the client or the broker uses are refused when it is sent (MessageError).
    """

    topic: str
    body: bytes
    tags: str | None = None
    """One tag: RocketMQ's messages have one."""
    keys: str | Sequence[str] = ()
    """What it can be found by; without blanks."""
    properties: Mapping[str, str] = field(default_factory=dict)
    flag: int = 0
    """32 bits for the user, kept as they are."""
    sharding_key: str | None = None
    """Becomes the record's key for Kafka's clients."""
    delay_level: int = 0
    """1 to 18: 1 s 5 s 10 s 30 s 1 m … 2 h; 0: no delay."""
    delay_ms: int = 0
    """After so long, counted by the broker's clock."""
    deliver_at_ms: int = 0
    """Unix ms."""
    wait_for_disk: bool = True
    """A broker that flushes synchronously answers when it is on disk (WAIT)."""


class SendStatus(Enum):
    """The message is stored, and …"""

    OK = 0
    """… as safe as the broker keeps messages."""
    FLUSH_DISK_TIMEOUT = 10
    """… not on disk yet."""
    SLAVE_NOT_AVAILABLE = 11
    """… on one machine only."""
    FLUSH_SLAVE_TIMEOUT = 12
    """… perhaps on one machine only."""


class SendResult(Struct, frozen=True):
    """Where a message, or the first one of a batch, went."""

    status: SendStatus
    message_id: str
    """UNIQ_KEY, which its producer gave it; of a batch all of them, with commas between."""
    offset_message_id: str
    """Of the broker: where it is stored (commas as before)."""
    queue: Queue
    queue_offset: int
    transaction_id: str | None = None
    recall_handle: str | None = None
    """Of a delayed message, where the broker gives one."""
    deliver_at_ms: int = 0
    """Unix ms. Halfmoon says it, by its clock and its levels. Of another broker the client guesses it: by its own
    clock, and RocketMQ's levels."""


class ReceivedMessage(Struct, eq=False):
    """A message that was pulled."""

    topic: str
    body: bytes
    queue: Queue
    """The queue it was pulled from; of a redelivered message, one of its group's retry topic."""
    queue_offset: int
    flag: int
    born_ms: int
    """Unix ms, by the producer's clock."""
    store_ms: int
    """Unix ms, by the broker's clock."""
    reconsume_times: int
    """How often it was negatively acknowledged before."""
    system_flags: int
    """As stored. Bit 0: the body is compressed, and could not be read."""
    physical_offset: int
    prepared_offset: int
    """Of a transaction's message: the offset of its half message."""
    _born: bytes
    _store: bytes
    """Addresses: 4 or 16 bytes, and the port in 4."""
    _text: bytes
    _properties: dict[str, str] | None = None

    @property
    def properties(self) -> dict[str, str]:
        """All of them, RocketMQ's own included."""
        found = self._properties
        if found is None:
            found = self._properties = {
                str(name, "utf-8", "replace"): str(value, "utf-8", "replace")
                for name, value in properties.decode(self._text)
            }
        return found

    @property
    def tags(self) -> str | None:
        return self.properties.get(TAGS)

    @property
    def keys(self) -> list[str]:
        return [key for key in self.properties.get(KEYS, "").split(KEY_SEPARATOR) if key]

    @property
    def message_id(self) -> str:
        """UNIQ_KEY, or `offset_message_id` where its producer gave none."""
        return self.properties.get(UNIQ_KEY) or self.offset_message_id

    @property
    def offset_message_id(self) -> str:
        return message_id(self.store_host, self.physical_offset)

    @property
    def born_host(self) -> Host:
        return _host(self._born)

    @property
    def store_host(self) -> Host:
        return _host(self._store)

    def __repr__(self) -> str:
        return f"<{self.topic}/{self.queue.queue_id}[{self.queue_offset}] {len(self.body)} bytes>"


def _host(packed: bytes) -> Host:
    return Host(packed[:-4], int.from_bytes(packed[-4:], "big"))


# -- receiving -------------------------------------------------------------------------------------------------------

_V4 = struct.Struct(">iIIiiqqiq8sq8siqi")
"""A stored message up to its body, with IPv4 addresses (remoting/message.py)."""
_V6 = 0x30
_INT16 = struct.Struct(">H")


def read_messages(data: memoryview | bytes, queue: Queue) -> list[ReceivedMessage]:
    """The messages of an answer to a pull of this queue. Raises MalformedFrame."""
    data = bytes(data)
    messages: list[ReceivedMessage] = []
    at, end = 0, len(data)
    known_topic, topic = b"", ""
    unpack, head = _V4.unpack_from, _V4.size
    while at < end:
        try:
            (size, magic, crc, _, flag, offset, physical, flags, born_ms, born, store_ms, store, times, prepared,
             length) = unpack(data, at)  # fmt: skip
        except struct.error:
            raise MalformedFrame("a stored message is cut short") from None
        if magic != MAGIC or flags & _V6:
            messages += [_converted(each, queue) for each in decode_stored(data[at : at + max(size, 4)])]
            at += max(size, 4)
            continue
        body_at = at + head
        topic_at = body_at + length
        stop = at + size
        if length < 0 or topic_at + 3 > stop or stop > end:
            raise MalformedFrame("a stored message whose lengths do not fit")
        body = data[body_at:topic_at]
        text_at = topic_at + 1 + data[topic_at]
        named = data[topic_at + 1 : text_at]
        if text_at + 2 > stop or text_at + 2 + _INT16.unpack_from(data, text_at)[0] != stop:
            raise MalformedFrame("a stored message whose lengths do not fit")
        if crc32(body) & 0x7FFFFFFF != crc:
            raise MalformedFrame("a stored message whose checksum is wrong")
        if named != known_topic:
            known_topic, topic = named, str(named, "utf-8", "replace")
        if flags & COMPRESSED:
            body, flags = _plain(body, flags)
        messages.append(
            ReceivedMessage(
                topic, body, queue, offset, flag, born_ms, store_ms, times, flags, physical, prepared,
                born, store, data[text_at + 2 : stop],
            )
        )  # fmt: skip
        at = stop
    return messages


def _converted(stored: StoredMessage, queue: Queue) -> ReceivedMessage:
    body, flags = stored.body, stored.system_flags
    if flags & COMPRESSED:
        body, flags = _plain(body, flags)
    return ReceivedMessage(
        str(stored.topic, "utf-8", "replace"), body, queue, stored.queue_offset, stored.flag, stored.born_ms,
        stored.store_ms, stored.reconsume_times, flags, stored.physical_offset,
        stored.prepared_offset, stored.born.pack(), stored.store.pack(), stored.properties,
    )  # fmt: skip


MOST_PLAIN_BYTES = 64 << 20
"""A compressed body that takes more is not believed."""
ZSTD_STEP_BYTES = 1_024
"""Zstandard's objects know no limit; so much at a time becomes 32 MiB at worst."""


def _plain(body: bytes, flags: int) -> tuple[bytes, int]:
    """A body that its producer has compressed (CompressionType), and flags that say so no more. One that cannot be read
    stays as it is, flags included: it is one producer's mistake, and not to stop everybody's queue."""
    codec = flags & CODEC_MASK
    try:
        if codec == 0x100:
            lz4_unpacker = lz4.frame.LZ4FrameDecompressor()
            plain = lz4_unpacker.decompress(body, MOST_PLAIN_BYTES)
            is_whole = lz4_unpacker.eof
        elif codec == 0x200:
            plain, is_whole = _plain_zstd(body)
        else:
            unpacker = zlib.decompressobj()
            plain = unpacker.decompress(body, MOST_PLAIN_BYTES)
            is_whole = unpacker.eof
    except Exception as error:
        log.warning("event=body_not_decompressed flags=%#x error=%s", flags, error)
        return body, flags
    if not is_whole:
        log.warning("event=body_not_decompressed flags=%#x error=%s", flags, "it is cut short or too large")
        return body, flags
    return bytes(plain), flags & ~COMPRESSED


def _plain_zstd(body: bytes) -> tuple[bytes, bool]:
    unpacker, plain = zstandard.ZstdDecompressor().decompressobj(), bytearray()
    for at in range(0, len(body), ZSTD_STEP_BYTES):
        plain += unpacker.decompress(body[at : at + ZSTD_STEP_BYTES])
        if unpacker.eof or len(plain) > MOST_PLAIN_BYTES:
            break
    return bytes(plain), unpacker.eof and len(plain) <= MOST_PLAIN_BYTES


# -- sending ---------------------------------------------------------------------------------------------------------

MAX_BODY_BYTES = 4 << 20
"""DefaultMQProducer.maxMessageSize."""
MAX_TOPIC_CHARACTERS = 127
_TOPIC = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789%|_-")


def check_topic(topic: str) -> None:
    """Raises MessageError unless producers may send to a topic of this name (org.apache.rocketmq.common.topic
    .TopicValidator)."""
    if not topic or len(topic) > MAX_TOPIC_CHARACTERS or not _TOPIC.issuperset(topic):
        raise MessageError(
            f"topic {topic[:200]!r}: expected 1 to {MAX_TOPIC_CHARACTERS} letters, digits, %, |, - and _"
        )


def check(message: Message, max_body_bytes: int = MAX_BODY_BYTES) -> None:
    """Raises MessageError where no broker would take it."""
    check_topic(message.topic)
    if not isinstance(message.body, (bytes, bytearray, memoryview)):
        raise MessageError(f"the body is {type(message.body).__name__}, expected bytes")
    if not len(message.body):
        raise MessageError("a message needs a body")
    if len(message.body) > max_body_bytes:
        raise MessageError(f"the body takes {len(message.body)} bytes, at most {max_body_bytes} are allowed")


def encode_properties(message: Message, unique_key: str, more: Mapping[str, str] | None = None) -> str:
    """As one text (remoting/properties.py). `more`: names that a user may not use. Raises MessageError."""
    parts = [f"{UNIQ_KEY}\1{unique_key}\2{WAIT}\1{'true' if message.wait_for_disk else 'false'}\2"]
    if message.tags is not None:
        parts.append(_pair(TAGS, message.tags))
    if message.keys or message.keys == "":
        keys = message.keys if isinstance(message.keys, str) else KEY_SEPARATOR.join(message.keys)
        parts.append(_pair(KEYS, keys))
    if message.sharding_key is not None:
        parts.append(_pair(SHARDING_KEY, message.sharding_key))
    if message.delay_level or message.delay_ms or message.deliver_at_ms:
        parts.append(_delay(message))
    for name, value in message.properties.items():
        if name in RESERVED:
            raise MessageError(f"property {name!r} has a field, or a call, of its own")
        parts.append(_pair(name, value))
    for name, value in (more or {}).items():
        parts.append(_pair(name, value))
    text = "".join(parts)
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise MessageError(f"a property cannot be written as UTF-8: {error}") from None
    if len(text) > properties.MAX_BYTES // 4 and len(text.encode()) > properties.MAX_BYTES:
        raise MessageError(
            f"the properties take {len(text.encode())} bytes, at most {properties.MAX_BYTES} are allowed"
        )
    return text


def _pair(name: object, value: object) -> str:
    if not isinstance(name, str) or not isinstance(value, str):
        raise MessageError(f"property {name!r}: {value!r} is not text")
    if not name or not value or any(mark in part for mark in "\1\2" for part in (name, value)):
        raise MessageError(f"property {name!r}: names and values are not empty, and have no \\x01 and \\x02 in them")
    return f"{name}\1{value}\2"


def _delay(message: Message) -> str:
    said: list[tuple[str, Any]] = [
        (DELAY, message.delay_level), (DELAY_MS, message.delay_ms), (DELIVER_MS, message.deliver_at_ms),
    ]  # fmt: skip
    chosen = [(name, value) for name, value in said if value]
    if len(chosen) > 1 or chosen[0][1] < 0:
        raise MessageError("a message is delayed by a level, or by a time, or until a time: one positive number")
    return f"{chosen[0][0]}\1{chosen[0][1]}\2"
