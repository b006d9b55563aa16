"""A RocketMQ client made of a bare socket, with a codec of its own, and the well-behaved one that must not notice.

What it sends and reads is drawn here with struct and json alone, so that it does not err where the adapter errs.
"""

from __future__ import annotations

import itertools
import json
import struct
import time
import zlib
from collections.abc import Callable
from typing import Any, NamedTuple

from tests.fuzz.canary import DEADLINE_S, VALUE_BYTES, Canary
from tests.fuzz.peer import TIMEOUT_S, Peer

JSON, ROCKETMQ = 0, 1
RESPONSE, ONEWAY = 1, 2

OLD_SEND, PULL, QUERY, UPDATE_OFFSET, CREATE, RUNTIME_INFO = 10, 11, 12, 15, 17, 28
MAX_OFFSET, HEARTBEAT, MEMBERS, LOCK, CHECK = 30, 34, 38, 41, 46
ROUTE, TOPICS, DELETE, RUNNING_INFO, SEND, SEND_BATCH = 105, 206, 215, 307, 310, 320
"""Requests."""
SUCCESS, NOT_SUPPORTED, ILLEGAL, NOT_FOUND, RETRY_AT_ONCE = 0, 3, 13, 19, 20
"""Answers."""
SUSPEND, SUBSCRIPTION = 2, 4
"""Flags of a pull."""
STORED = struct.Struct(">iIIiiqqiq")
STORED_MAGIC = 0xDAA320A7


class Command(NamedTuple):
    """A request or an answer."""

    code: int
    opaque: int
    flag: int
    fields: dict[str, str]
    remark: str | None
    body: bytes


def said(**fields: Any) -> dict[str, str]:
    """Fields' values as clients write them."""
    return {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in fields.items()}


def json_header(code: int, opaque: int, fields: dict[str, str], flag: int = 0) -> bytes:
    header = {
        "code": code, "extFields": fields, "flag": flag, "language": "JAVA", "opaque": opaque,
        "serializeTypeCurrentRPC": "JSON", "version": 479,
    }  # fmt: skip
    return json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()


def binary_header(code: int, opaque: int, fields: dict[str, str], flag: int = 0) -> bytes:
    packed = b"".join(text(name, ">h") + text(value, ">i") for name, value in fields.items())
    return struct.pack(">hBhiii", code, 0, 479, opaque, flag, 0) + struct.pack(">i", len(packed)) + packed


def text(value: str, layout: str) -> bytes:
    raw = value.encode()
    return struct.pack(layout, len(raw)) + raw


def framed(header: bytes, body: bytes = b"", kind: int = JSON) -> bytes:
    return struct.pack(">iI", 4 + len(header) + len(body), kind << 24 | len(header)) + header + body


def request(
    code: int, opaque: int, fields: dict[str, str], body: bytes = b"", kind: int = JSON, flag: int = 0
) -> bytes:
    make = binary_header if kind == ROCKETMQ else json_header
    return framed(make(code, opaque, fields, flag), body, kind)


def parsed(frame: bytes) -> Command:
    """A frame without its length. Raises ValueError, struct.error."""
    (mark,) = struct.unpack_from(">I", frame)
    kind, end = mark >> 24, 4 + (mark & 0xFFFFFF)
    if end > len(frame):
        raise ValueError("a header longer than its frame")
    header, body = frame[4:end], frame[end:]
    if kind == JSON:
        return _parsed_json(header, body)
    if kind == ROCKETMQ:
        return _parsed_binary(header, body)
    raise ValueError(f"a header of type {kind}")


def _parsed_json(header: bytes, body: bytes) -> Command:
    said = json.loads(header.decode(), parse_constant=_refused)
    if not isinstance(said, dict):
        raise ValueError("no object")
    numbers = [said.get(name, 0) for name in ("code", "opaque", "flag", "version")]
    remark, fields = said.get("remark"), {} if said.get("extFields") is None else said["extFields"]
    if not isinstance(fields, dict):
        raise ValueError("fields that are no object")
    texts = [said.get("language", ""), *(each for each in (remark, *fields.values()) if each is not None)]
    if "code" not in said or any(type(number) is not int for number in numbers):
        raise ValueError("a number that is none")
    if any(not isinstance(each, str) for each in texts):
        raise ValueError("a text that is none")
    code, opaque, flag, _ = numbers
    return Command(
        code, opaque, flag, {name: value for name, value in fields.items() if value is not None}, remark, body
    )


def _refused(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")


def _parsed_binary(header: bytes, body: bytes) -> Command:
    code, _, _, opaque, flag, length = struct.unpack_from(">hBhiii", header)
    remark, at = _cut(header, 17, length)
    (size,) = struct.unpack_from(">i", header, at)
    at += 4
    if size != len(header) - at:
        raise ValueError("fields of another size")
    fields = {}
    while at < len(header):
        name, at = _cut(header, at + 2, *struct.unpack_from(">h", header, at))
        fields[name], at = _cut(header, at + 4, *struct.unpack_from(">i", header, at))
    return Command(code, opaque, flag, fields, remark or None, body)


def _cut(data: bytes, at: int, length: int) -> tuple[str, int]:
    if not 0 <= length <= len(data) - at:
        raise ValueError(f"a text of {length} bytes")
    return data[at : at + length].decode(), at + length


class Stored(NamedTuple):
    """What is looked at of a stored message."""

    queue_offset: int
    body: bytes
    topic: bytes
    properties: dict[bytes, bytes]


def stored(data: bytes) -> list[Stored]:
    """The stored messages of a body; their sizes and checksums must be right."""
    found = []
    while data:
        size, magic, crc, _, _, offset, _, flags, _ = STORED.unpack_from(data)
        assert magic == STORED_MAGIC, f"magic {magic:#x}"
        assert STORED.size < size <= len(data), f"a message of {size} bytes where {len(data)} are"
        hosts = sum(16 if flags & v6 else 4 for v6 in (0x10, 0x20))
        at = STORED.size + hosts + 4 + 8 + 4 + 4 + 8
        body, at = _taken(data, at, ">i")
        assert zlib.crc32(body) & 0x7FFFFFFF == crc, "a checksum that is wrong"
        topic, at = _taken(data, at, ">B")
        raw, at = _taken(data, at, ">h")
        assert at == size, "a message that is shorter or longer than it says"
        pairs = [pair.partition(b"\x01") for pair in raw.split(b"\x02") if pair]
        found.append(Stored(offset, body, topic, {name: value for name, _, value in pairs}))
        data = data[size:]
    return found


def _taken(data: bytes, at: int, layout: str) -> tuple[bytes, int]:
    (length,) = struct.unpack_from(layout, data, at)
    at += struct.calcsize(layout)
    return data[at : at + length], at + length


def batch_body(*messages: tuple[bytes, bytes]) -> bytes:
    """The body of SEND_BATCH: (body, properties) of each message."""
    return b"".join(
        struct.pack(">iiiii", 22 + len(body) + len(properties), 0, 0, 0, len(body))
        + body + struct.pack(">h", len(properties)) + properties
        for body, properties in messages
    )  # fmt: skip


def sending(topic: str, *, queue: int = 0, flags: int = 0, properties: str = "", batch: bool = False) -> dict[str, str]:
    """The fields of SEND and SEND_BATCH."""
    return said(
        a="producers", b=topic, c="TBW102", d=4, e=queue, f=flags, g=1_700_000_000_000, h=0, i=properties, j=0,
        k=False, m=batch, n="halfmoon",
    )  # fmt: skip


def pulling(topic: str, offset: int, suspend_ms: int = 0, wanted: str = "*", group: str = "readers") -> dict[str, str]:
    """The fields of PULL, which brings its subscription; held where that is asked for."""
    flags = SUBSCRIPTION | (SUSPEND if suspend_ms else 0)
    return said(
        consumerGroup=group, topic=topic, queueId=0, queueOffset=offset, maxMsgNums=32, sysFlag=flags, commitOffset=0,
        suspendTimeoutMillis=suspend_ms, subscription=wanted, subVersion=0, expressionType="TAG", bname="halfmoon",
    )  # fmt: skip


class Remote(Peer):
    """One connection of a RocketMQ client."""

    def __init__(self, address: tuple[str, int], *, receive_bytes: int = 0, kind: int = JSON) -> None:
        super().__init__(address, receive_bytes=receive_bytes)
        self.kind = kind
        self.told: list[Command] = []
        """Requests of the broker's."""

    def say(self, code: int, fields: dict[str, str], body: bytes = b"", *, flag: int = 0) -> int:
        """Send one well-formed request; its number."""
        self._correlation_id += 1
        self.send(request(code, self._correlation_id, fields, body, self.kind, flag))
        return self._correlation_id

    def hear(self, opaque: int, timeout_s: float = TIMEOUT_S) -> Command:
        """The next answer, which must have that number. Raises ClosedError, TimeoutError."""
        deadline = time.monotonic() + timeout_s
        while True:
            command = parsed(self.frame(deadline - time.monotonic()))
            if command.flag & RESPONSE:
                assert command.opaque == opaque, f"an answer to {command.opaque}, not to {opaque}"
                return command
            self.told.append(command)

    def tell(self, code: int, fields: dict[str, str], body: bytes = b"", timeout_s: float = TIMEOUT_S) -> Command:
        """Send one well-formed request; its answer."""
        return self.hear(self.say(code, fields, body), timeout_s)

    def well(self, code: int, fields: dict[str, str], body: bytes = b"") -> Command:
        """An answer that must be a success."""
        answer = self.tell(code, fields, body)
        assert answer.code == SUCCESS, answer
        return answer


class RemoteCanary(Canary):
    """Does with RocketMQ's requests what the other does with Kafka's: it sends numbered messages, reads each back by a
    pull that was held before, and asks for offsets and routes. One of its connections writes JSON headers, the other
    binary ones."""

    topic = "rocketmq-canary"

    def __init__(self, address: tuple[str, int], names: tuple[str, int], cpu_s: Callable[[], float]) -> None:
        super().__init__(address, cpu_s)
        self._names = names
        self._kinds = itertools.cycle((JSON, ROCKETMQ))

    def _create(self) -> None:
        with self._connect() as peer:
            peer.well(CREATE, said(topic=self.topic, readQueueNums=1, writeQueueNums=1, perm=6))

    def _connect(self) -> Any:
        return Remote(self._address, kind=next(self._kinds))

    def _round(self, writer: Remote, reader: Remote) -> None:
        offset = self._next_offset
        key = b"%032d" % offset
        body = b"%020d" % offset + bytes(VALUE_BYTES)
        held = reader.say(PULL, pulling(self.topic, offset, suspend_ms=4000))
        sent = self._asked(writer, SEND, sending(self.topic, properties=f"UNIQ_KEY\1{key.decode()}\2"), body)
        assert (sent.code, sent.fields.get("queueOffset")) == (SUCCESS, str(offset)), sent
        begun = self._cpu_s()
        pulled = reader.hear(held, DEADLINE_S)
        self._took(begun)
        if pulled.code == NOT_FOUND:  # the wait was over before the message came, because all of this machine was busy
            pulled = self._asked(reader, PULL, pulling(self.topic, offset))
        assert (pulled.code, pulled.fields["nextBeginOffset"]) == (SUCCESS, str(offset + 1)), pulled[:5]
        (message,) = stored(pulled.body)
        assert (message.queue_offset, message.topic) == (offset, self.topic.encode())
        assert message.properties[b"UNIQ_KEY"] == key, message.properties
        assert message.body == body, "another message than was sent"
        if offset % 8 == 0:
            asked = self._asked(writer, MAX_OFFSET, said(topic=self.topic, queueId=0))
            assert asked.fields["offset"] == str(offset + 1), asked
            with Remote(self._names) as names:
                route = self._asked(names, ROUTE, said(topic=self.topic))
            (data,) = json.loads(route.body)["brokerDatas"]
            assert data["brokerAddrs"] == {"0": "{}:{}".format(*self._address)}
        self._next_offset += 1

    def _asked(self, peer: Remote, code: int, fields: dict[str, str], body: bytes = b"") -> Command:
        begun = self._cpu_s()
        answer = peer.tell(code, fields, body, DEADLINE_S)
        self._took(begun)
        return answer
