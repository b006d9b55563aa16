"""Records as the stored messages that RocketMQ's clients read, whoever produced them.

The value is the body, headers are properties. What RocketMQ has a field for goes there and is no property: the flag,
the born host, how often a message was handed back. What the broker put in place of RocketMQ's own names while a message
waited (`halfmoon.delayed`, the half message's TRAN_MSG) reads as RocketMQ has it. A record with a key and without KEYS
has its key for KEYS.

RocketMQ's properties hold less than headers do: each name once, no empty value, no control characters 1 and 2, UTF-8,
32 KiB in all. What does not fit is left out, and named in HALFMOON_OMITTED.

One loop over the bytes of a batch does it (message_loop.py), and what the headers behind UNIQ_KEY read as is
remembered: it tends to be the same from message to message.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Final

from halfmoon.adapters.rocketmq import names
from halfmoon.adapters.rocketmq.drawing import FLAG, UNIQ_KEY
from halfmoon.adapters.rocketmq.message_loop import Tail, write
from halfmoon.adapters.rocketmq.queues import Queues
from halfmoon.adapters.rocketmq.to_records import BORN_HOST, KEYS, SYSTEM_FLAGS
from halfmoon.core.catalog.catalog import Catalog
from halfmoon.core.catalog.topics import Partition, Topic
from halfmoon.core.records import record_codec
from halfmoon.core.records.batch_header import BatchHeader
from halfmoon.core.records.record_codec import Headers
from halfmoon.remoting import properties
from halfmoon.remoting.message import (
    BORN_V6,
    CODEC_MASK,
    COMMITTED,
    COMPRESSED,
    OFFSET_BITS,
    STORE_V6,
    Host,
    magic_for,
    message_id,
    physical_offset,
    topic_field,
)
from halfmoon.schema.group_topics import DEAD_LETTER_PREFIX, giving_up_group
from halfmoon.services.topic_configs import ROCKETMQ_BODY, VERBATIM

OMITTED: Final = b"HALFMOON_OMITTED"
CLUSTER: Final = b"CLUSTER"
RECONSUME_TIMES, RETRY_LIMIT = b"RECONSUME_TIME", b"MAX_RECONSUME_TIMES"
RETRY_TOPIC, ORIGIN = b"RETRY_TOPIC", b"ORIGIN_MESSAGE_ID"
DELAYED, BORN_MS = b"halfmoon.delayed", b"halfmoon.original-timestamp"
PRODUCER_GROUP, CHECK_TIMES = b"PGROUP", b"TRAN_CHECK_TIMES"
REAL_TOPIC, REAL_QUEUE = b"REAL_TOPIC", b"REAL_QID"
OMITTED_ROOM: Final = 256
"""Bytes for HALFMOON_OMITTED and the names in it."""
UNIQ_ROOM: Final = 128

_INTO_FIELDS: Final = frozenset((FLAG, BORN_HOST, SYSTEM_FLAGS, RECONSUME_TIMES, RETRY_LIMIT, DELAYED, BORN_MS))

_INT64: Final = struct.Struct(">q")
_REMEMBERED: Final = 4_096
_REMEMBERED_BYTES: Final = 1_024

Wanted = Sequence[tuple[int, record_codec.Record]]


class Sheet:
    """Stored messages, one behind the other, and where each begins."""

    __slots__ = ("offsets", "parts", "sizes")

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self.sizes: list[int] = []
        """Of each message, bytes."""
        self.offsets: list[int] = []
        """Queue offset of each message, ascending."""


class MessageWriter:
    """Writes the messages of one broker as seen at one address."""

    def __init__(
        self,
        catalog: Catalog,
        store: Host,
        cluster: str,
        queues: Queues,
        held_by: Callable[[Topic, int], tuple[Host, int] | None],
    ) -> None:
        """`held_by`: where a partition is that is not in this catalog's log, and its broker-wide number."""
        self._catalog = catalog
        self._queues = queues
        self._held_by = held_by
        self.store = store
        self.store_hex = store.in_hex()
        self._store = store.pack()
        self._store_flag = STORE_V6 if store.is_v6 else 0
        self._nowhere = Host(bytes(4), 0).pack()
        self._cluster = (CLUSTER, cluster.encode())
        self._tails: dict[tuple[bytes, bytes | None, Partition], Tail] = {}

    def write(
        self,
        sheet: Sheet,
        partition: Partition,
        header: BatchHeader,
        body: bytes,
        store_ms: int,
        *,
        from_offset: int = 0,
        rows: Sequence[int] | None = None,
        bounds: Sequence[int] | None = None,
        prepared: Sequence[int] = (),
    ) -> None:
        """Append to `sheet` the messages of a batch (decompressed `body`) from `from_offset` on; all, or those whose
        indexes are in `rows`, which begin at `bounds`. `prepared`: of each, where it waited as a half message. Raises
        BrokerError(INVALID_RECORD)."""
        topic = names.to_rocketmq(partition.topic.name).encode()
        fixed = (
            magic_for(topic), self._queues.id_of(partition), partition.queue_number << OFFSET_BITS, self._store_flag,
            _INT64.pack(store_ms) + self._store, topic_field(topic),
        )  # fmt: skip
        count = record_codec.checked_count(body, header.record_count)
        try:
            written = write(
                body, count if rows is None else len(rows), header.base_offset, header.base_timestamp, from_offset,
                rows, bounds, prepared, fixed, self._tails, partition, self._read, sheet.sizes, sheet.offsets,
            )  # fmt: skip
        except OverflowError as error:
            raise record_codec.invalid(error.args[0], "its timestamp has more than 64 bits") from None
        except ValueError as error:
            index, start = error.args
            record_codec.read_one(body, start, index, header.base_timestamp, None)  # says what is wrong
            raise record_codec.invalid(index, "it is malformed") from None
        sheet.parts.append(written)

    def _read(
        self,
        body: bytes,
        start: int,
        index: int,
        base_ms: int,
        partition: Partition,
        rest: bytes,
        has_unique: bool,
    ) -> Tail:
        record = record_codec.read_one(body, start, index, base_ms, None)
        tail = self._tail(record.headers[1:] if has_unique else record.headers, record.key, partition, has_unique)
        if len(rest) + len(record.key or b"") <= _REMEMBERED_BYTES:
            if len(self._tails) >= _REMEMBERED:
                self._tails.clear()
            self._tails[rest, record.key, partition] = tail
        return tail

    def _tail(self, headers: Headers, key: bytes | None, partition: Partition, has_unique: bool) -> Tail:
        omitted: dict[bytes, None] = {}
        found: dict[bytes, bytes] = {}
        for name, content in headers:
            raw = name.encode("utf-8", "surrogateescape")
            # The last of one name counts, as for filters and everybody else, also where that says nothing here.
            if found.pop(raw, None) is not None or (has_unique and raw == UNIQ_KEY):
                omitted[raw] = None
            if content is not None and _is_text(raw, content):
                found[raw] = content
            elif raw not in _INTO_FIELDS:
                omitted[raw] = None
        if KEYS not in found and key is not None:
            if _is_text(KEYS, key):
                found[KEYS] = key
            else:
                omitted[KEYS] = None
        flags, reconsume_times = 0, min(_int32(found.get(RECONSUME_TIMES)), 0xFFFF)
        if partition.topic.name.startswith(DEAD_LETTER_PREFIX) and giving_up_group(partition.topic.name) is not None:
            reconsume_times += 1  # RocketMQ counts the handing back with which it was given up
        if SYSTEM_FLAGS in found and partition.topic.rules.of_features.get(ROCKETMQ_BODY) == VERBATIM:
            # as clients have compressed them
            flags |= _number(found[SYSTEM_FLAGS]) & (COMPRESSED | CODEC_MASK)
        born, born_flag = self._born(found.get(BORN_HOST))
        born_ms = _number(found[BORN_MS]) if BORN_MS in found else None
        found.update(self._in_rocketmqs_words(found, partition))
        if PRODUCER_GROUP in found:
            flags |= COMMITTED
        flag = _int32(found.get(FLAG))
        for field in _INTO_FIELDS:
            found.pop(field, None)
        found[self._cluster[0]] = self._cluster[1]
        text = _fit(found, omitted, UNIQ_ROOM if has_unique else 0)
        return text, flag, flags | born_flag, born, born_ms, reconsume_times

    def _in_rocketmqs_words(self, found: dict[bytes, bytes], partition: Partition) -> list[tuple[bytes, bytes]]:
        topic = names.to_rocketmq(partition.topic.name).encode()
        words: list[tuple[bytes, bytes]] = []
        delayed = found.get(DELAYED)
        if delayed is not None:
            name, _, value = delayed.partition(b"=")
            words.append((name, value))
        if PRODUCER_GROUP in found:
            words.append((b"TRAN_MSG", b"true"))
        if words:
            real = names.to_rocketmq(found[REAL_TOPIC].decode()).encode() if REAL_TOPIC in found else topic
            words += [(REAL_TOPIC, real), (REAL_QUEUE, b"%d" % self._queues.id_of(partition))]
        if CHECK_TIMES in found:
            words.append((b"TRANSACTION_CHECK_TIMES", found[CHECK_TIMES]))
        if RETRY_TOPIC in found:
            words.append((RETRY_TOPIC, names.to_rocketmq(found[RETRY_TOPIC].decode()).encode()))
        if ORIGIN in found:
            words.append((ORIGIN, self._origin(found[ORIGIN])))
        return words

    def _origin(self, said: bytes) -> bytes:
        """TOPIC/PARTITION/OFFSET as a message id; as it is where that leads nowhere."""
        name, _, rest = said.partition(b"/")
        index, _, offset = rest.partition(b"/")
        topic = self._catalog.by_name.get(name.decode())
        if topic is None or not _is_whole(index) or not _is_whole(offset) or int(index) >= len(topic.partitions):
            return said
        partition = topic.partitions[int(index)]
        store, number = self.store, partition.queue_number
        if self._queues.id_of(partition) < 0:
            held = self._held_by(topic, int(index))
            if held is None:
                return said
            store, number = held
        return message_id(store, physical_offset(number, int(offset) & ((1 << OFFSET_BITS) - 1))).encode()

    def _born(self, said: bytes | None) -> tuple[bytes, int]:
        if said is None:
            return self._nowhere, 0
        host, _, port = said.decode().rpartition(":")
        born = Host.parse(host.strip("[]"), max(0, min(_number(port.encode()), 0xFFFF)))
        return born.pack(), BORN_V6 if born.is_v6 else 0


def _fit(found: dict[bytes, bytes], omitted: dict[bytes, None], reserved: int) -> bytes:
    """As one text; what does not fit is left out, the longest first."""
    room = properties.MAX_BYTES - reserved - (OMITTED_ROOM if omitted else 0)
    size = sum(len(name) + len(value) + 2 for name, value in found.items())
    if size > room:
        room -= 0 if omitted else OMITTED_ROOM
        for name in sorted(found, key=lambda each: len(each) + len(found[each]), reverse=True):
            if size <= room:
                break
            size -= len(name) + len(found.pop(name)) + 2
            omitted[name] = None
    if omitted:
        listed: list[bytes] = []
        left = OMITTED_ROOM - 50
        for name in omitted:
            shown = name if properties.is_writable(name, b"-") and _is_utf8(name) else b"?"
            if len(shown) + 1 > left:
                listed.append(b"...")
                break
            left -= len(shown) + 1
            listed.append(shown)
        found[OMITTED] = b",".join(listed)
    return properties.encode(found.items())


def _is_text(name: bytes, value: bytes) -> bool:
    return properties.is_writable(name, value) and _is_utf8(name) and _is_utf8(value)


def _is_utf8(content: bytes) -> bool:
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return True


def _is_whole(content: bytes) -> bool:
    """Whether it is a number ≥ 0 of 64 bits. Python raises ValueError where one has thousands of digits."""
    return len(content) <= 18 and content.isdigit()


def _number(content: bytes | None) -> int:
    """What a header says, as a number of 64 bits; 0 where it is none."""
    return int(content) if content is not None and _is_whole(content.removeprefix(b"-")) else 0


def _int32(content: bytes | None) -> int:
    number = _number(content)
    return number if -(1 << 31) <= number < 1 << 31 else 0
