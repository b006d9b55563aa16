"""Requests of RocketMQ's own client, as they went over the wire, and ways to spoil them.

The corpus is what tests/remoting has: the requests in wire-sample.jsonl, and frames that RocketMQ's own
classes have made (vectors.json); codes that no client sent there are added. `World` puts names in their place that
exist here, often enough to reach the code behind the parser.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from tests.fuzz.remoting import JSON, ROCKETMQ, batch_body, framed, json_header, request

CORPUS = Path(__file__).parents[1] / "remoting"

NUMBERS = (
    "", "0", "1", "-1", "-2", "32767", "32768", "2147483647", "2147483648", "-2147483648", "4294967296",
    "9223372036854775807", "9223372036854775808", "-9223372036854775808", "9" * 30, "-" + "9" * 30, "9" * 5000, "1e9",
    "1.5", "NaN", "0x10", " 7 ", "1_0", "٣", "true", "\0",
)  # fmt: skip
PROPERTIES = (
    "", "\1", "\2", "\1\2\1\2", "a\1b", "UNIQ_KEY\1U\2", "KEYS\1k l\2TAGS\1a\2", "UNIQ_KEY\1\2UNIQ_KEY\1U\2", "\1x\2",
    "DELAY\0011\2", "DELAY\1x\2", "DELAY\001-1\2", "TIMER_DELAY_MS\001200\2", "TIMER_DELAY_SEC\001-9\2",
    "TIMER_DELIVER_MS\1" + "9" * 30 + "\2", "TIMER_DEL_UNIQKEY\1U\2TIMER_DELAY_MS\0015\2", "TRAN_MSG\1true\2",
    "TRAN_MSG\1true\2PGROUP\1fuzz-group-1\2UNIQ_KEY\1U\2", "TRAN_MSG\1true\2PGROUP\1" + "p" * 300 + "\2UNIQ_KEY\1U\2",
    "TRAN_MSG\1true\2PGROUP\1a b/\x7f\2UNIQ_KEY\1U\2CHECK_IMMUNITY_TIME_IN_SECONDS\1-1\2", "REAL_TOPIC\1a\2",
    "RETRY_OF\1fuzz-a/0/0\2", "RETRY_TOPIC\1%RETRY%x\2ORIGIN_MESSAGE_ID\1fuzz-a/0/99999999999\2",
    "halfmoon.delayed\1x\2", "RECONSUME_TIME\1" + "9" * 30 + "\2__FLAG\1" + "9" * 30 + "\2__BORNHOST\1::::1\2",
    "x\1" + "y" * 32_000 + "\2", "x\1" + "y" * 40_000 + "\2", "\1".join("ab" * 4000), "\U0001f600\1\U0001f600\2",
)  # fmt: skip
TEXTS = (
    "", "x", "fuzz-a", "fuzz group", "%RETRY%", "%RETRY%fuzz-group-1", "%DLQ%fuzz-group-1", "%RETRY%%RETRY%a",
    "retry.fuzz", "halfmoon.transactions", "check.fuzz-group-1", "TBW102", "../../etc/passwd", "a.b", "\0", "a\0b",
    "x" * 300, "x" * 70_000, "\U0001f600", "\u200f", "{}", "SQL92", "TAG", "a || b", "a >", "price BETWEEN 1 AND 2",
    "(" * 2000, "NOT " * 3000 + "a", "a = '" + "b" * 20_000, "null", "BROADCASTING", "AVG", "machine_room", "UPPER",
)  # fmt: skip
RAW_JSON = (
    b"null", b"true", b"-1", b"0", b"2147483648", b"-2147483649", b"9223372036854775808", b"1" * 40, b"1" * 5000,
    b"1.5", b"1e400", b"-0", b"NaN", b'""', b'"\\ud800"', b'"\\u0000"', b'"\0"', b'"\xff\xfe"',
    b'"' + b"x" * 100_000 + b'"',
    b"[]", b"{}", b'{"a":1}', b'{"a":null}', b'{"a":{}}', b"[" * 3000, b"[" * 3000 + b"]" * 3000,
    b'{"a":' * 2000 + b"1" + b"}" * 2000, b'{"topic":"fuzz-a","topic":"fuzz-b"}', b"",
)  # fmt: skip
"""Values of a JSON header, or of a body."""
HEADER_KEYS = (
    b"code",
    b"opaque",
    b"flag",
    b"version",
    b"language",
    b"remark",
    b"extFields",
    b"serializeTypeCurrentRPC",
)
LENGTHS = (-1, -(2**31), 2**31 - 1, 2**24, 0xFFFFFF, 65_536, 32_767, 5, 4, 3, 1, 0)


class Said(NamedTuple):
    """A request, in neither of the two serializations yet."""

    code: int
    fields: dict[str, str]
    body: bytes = b""
    flag: int = 0


class Case(NamedTuple):
    frame: bytes
    code: int
    """Of the request that it was made from."""
    valid: bool


@dataclass(slots=True)
class World:
    """What the requests may name."""

    topics: list[str] = field(default_factory=lambda: ["fuzz-a", "fuzz-b", "fuzz-c", "%RETRY%fuzz-group-1"])
    groups: list[str] = field(default_factory=lambda: ["fuzz-group-1", "fuzz-group-2"])
    clients: list[str] = field(default_factory=lambda: ["fuzz@1", "fuzz@2"])
    physical: list[int] = field(default_factory=lambda: [0])
    """Where messages are that were sent."""


TOPIC = {
    "topic": "t", "defaultTopic": "TBW102", "readQueueNums": "8", "writeQueueNums": "8", "perm": "6",
    "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "true", "attributes": "+message.type=DELAY",
}  # fmt: skip
USER = "fuzz-user"
"""One that the campaigns make."""
STORED = {"namespace": "ORDER_TOPIC_CONFIG", "key": "t"}


def corpus() -> list[Said]:
    """One of each request in the sample, and those that are not in it."""
    vectors = json.loads((CORPUS / "vectors.json").read_text())
    batch = bytes.fromhex(vectors["batchBodyHex"])
    found: dict[tuple[int, str], Said] = {}
    for line in (CORPUS / "wire-sample.jsonl").read_text().splitlines():
        sent = json.loads(line)
        if sent["way"] != ">" or sent["flag"] & 1:
            continue
        body = sent["text"].encode() if "text" in sent else bytes.fromhex(sent.get("hex", ""))
        body = batch if sent["code"] == 320 else body
        found.setdefault((sent["code"], sent["ser"]), Said(sent["code"], sent["ext"], body, sent["flag"]))
    long_names = {
        "producerGroup": "p", "topic": "t", "defaultTopic": "TBW102", "defaultTopicQueueNums": "4", "queueId": "0",
        "sysFlag": "0", "bornTimestamp": "1700000000000", "flag": "0", "properties": "UNIQ_KEY\1U\2",
        "reconsumeTimes": "0", "unitMode": "false", "batch": "false",
    }  # fmt: skip
    user = json.dumps({"password": "p", "userType": "Normal", "userStatus": "enable"}).encode()
    policy = {"resource": "Topic:t", "actions": ["Pub", "Sub"], "sourceIps": ["10.0.0.1"], "decision": "Allow"}
    acl = json.dumps({"policies": [{"policyType": "Custom", "entries": [policy]}]}).encode()
    assignment = {"topic": "t", "consumerGroup": "g", "clientId": "c", "strategyName": "AVG"}
    return [
        *found.values(),
        Said(10, long_names, b"body"),
        Said(33, {"offset": "0"}),
        Said(17, TOPIC),
        Said(100, {**STORED, "value": "broker-a:4"}),
        Said(101, STORED),
        Said(102, STORED),
        Said(219, STORED),
        Said(400, {}, json.dumps(assignment).encode()),
        Said(3001, {"username": "fuzz-new"}, user),
        Said(3002, {"username": USER}, user),
        Said(3003, {"username": "fuzz-new"}),
        Said(3004, {"username": USER}),
        Said(3005, {"filter": "fuzz"}),
        Said(3006, {"subject": f"User:{USER}"}, acl),
        Said(3007, {"subject": f"User:{USER}"}, acl),
        Said(3008, {"subject": f"User:{USER}", "policyType": "", "resource": ""}),
        Said(3009, {"subject": f"User:{USER}"}),
        Said(3010, {"subjectFilter": "fuzz", "resourceFilter": "t"}),
        Said(18506, {}, b'{"type": "list", "selection": {"topic": "fuzz*", "due_before_in_ms": 1000}, "most": 10}'),
        Said(18506, {}, b'{"type": "reschedule", "ids": ["halfmoon.timers/0/1"], "in_ms": 1000}'),
    ]


def golden_frames() -> list[bytes]:
    """As RocketMQ's own classes have made them: opaque 42."""
    vectors = json.loads((CORPUS / "vectors.json").read_text())
    return [bytes.fromhex(vectors[name]) for name in ("sendMessageV2FrameJSON", "sendMessageV2FrameROCKETMQ")]


TOPIC_FIELDS = ("topic", "originTopic", "b")
GROUP_FIELDS = ("consumerGroup", "producerGroup", "group", "a")
CLIENT_FIELDS = ("clientId", "clientID")
PLACE_FIELDS = ("offset", "commitLogOffset")


def placed(chance: Random, world: World, said: Said) -> Said:
    """The request with names that mean something here."""
    fields = dict(said.fields)
    for name in fields:
        if name in TOPIC_FIELDS:
            fields[name] = chance.choice(world.topics)
        elif name in GROUP_FIELDS:
            fields[name] = chance.choice(world.groups)
        elif name in CLIENT_FIELDS:
            fields[name] = chance.choice(world.clients)
        elif name in PLACE_FIELDS and chance.random() < 0.8:
            fields[name] = str(chance.choice(world.physical))
        elif name in ("queueId", "e"):
            fields[name] = chance.choice(("0", "0", "1", "-1"))
        elif name == "username" and said.code == 3001:
            fields[name] = f"fuzz-{chance.randrange(1_000_000)}"
        elif name == "queueOffset":
            fields[name] = chance.choice(("0", "0", "1", "5", "100"))
        elif name == "sysFlag" and said.code in (11, 361):
            fields[name] = chance.choice(("2", "3", "4", "6", "7", "22"))
        elif name == "endTimestamp":
            fields[name] = str(2**63 - 1)
        elif name == "subscription":
            fields[name] = chance.choice(("*", "A", "E", "A || b"))
        elif name == "key":
            fields[name] = chance.choice(("k", "U", "order-1"))
        elif name in ("i", "properties") and chance.random() < 0.3:
            fields[name] = chance.choice(PROPERTIES)
    body = said.body
    if body[:1] == b"{":
        body = json.dumps(_placed_json(chance, world, json.loads(body))).encode()
    return Said(said.code, fields, body, said.flag if chance.random() < 0.5 else 0)


def _placed_json(chance: Random, world: World, value: Any) -> Any:
    if isinstance(value, list):
        return [_placed_json(chance, world, each) for each in value]
    if not isinstance(value, dict):
        return value
    names = {"topic": world.topics, "consumerGroup": world.groups, "groupName": world.groups, "group": world.groups}
    names |= dict.fromkeys(CLIENT_FIELDS, world.clients)
    return {
        name: chance.choice(names[name]) if name in names else _placed_json(chance, world, each)
        for name, each in value.items()
    }


def case(chance: Random, world: World, corpus: list[Said], opaque: int, valid_share: float) -> Case:
    """A request, valid or spoilt; its number is `opaque` unless that is what is spoilt."""
    said = placed(chance, world, chance.choice(corpus))
    kind = chance.choice((JSON, ROCKETMQ))
    if chance.random() < valid_share:
        return Case(request(said.code, opaque, said.fields, said.body, kind, said.flag), said.code, True)
    other = placed(chance, world, chance.choice(corpus))
    return Case(chance.choice(MUTATIONS)(chance, said, other, opaque, kind), said.code, False)


def _encoded(said: Said, opaque: int, kind: int) -> bytes:
    """As `request`, of what may have no place in the binary header; then in JSON."""
    try:
        return request(said.code, opaque, said.fields, said.body, kind, said.flag)
    except struct.error:
        return request(said.code, opaque, said.fields, said.body, JSON, said.flag)


def lie(chance: Random, said: Said, other: Said, opaque: int, kind: int) -> bytes:
    """Something hostile in the place of one to three fields; or a field less, or one more."""
    fields = dict(said.fields)
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        name = chance.choice([*fields, "topic", "queueId"])
        if name in ("i", "properties"):
            fields[name] = chance.choice(PROPERTIES)
        elif chance.random() < 0.15:
            fields.pop(name, None)
        else:
            fields[name] = chance.choice(NUMBERS if chance.random() < 0.6 else TEXTS)
    return _encoded(said._replace(fields=fields), opaque, kind)


def another_code(chance: Random, said: Said, other: Said, opaque: int, kind: int) -> bytes:
    """One request's fields under another's code, or under none that there is."""
    code = chance.choice((other.code, other.code, 0, 1, 13, 99, 200_050, 32_767, -1, -32_768, 2**31 - 1))
    return _encoded(Said(code, said.fields | other.fields, said.body or other.body, said.flag), opaque, kind)


def lie_in_body(chance: Random, said: Said, other: Said, opaque: int, kind: int) -> bytes:
    """Another body: a JSON value exchanged, bytes changed, a batch that lies, compression that is none."""
    body = said.body
    if body[:1] == b"{":
        at = [place for place, byte in enumerate(body) if byte == ord(":")]
        begin = chance.choice(at) + 1
        body = body[:begin] + chance.choice(RAW_JSON) + (body[begin:] if chance.random() < 0.3 else b"}")
        if chance.random() < 0.5:
            body = _json_lie(chance, said.body)
    elif body:
        changed = bytearray(body)
        for _ in range(chance.choice((1, 2, 8))):
            changed[chance.randrange(len(changed))] = chance.choice((0, 1, 0x7F, 0x80, 0xFF))
        body = bytes(changed)
    else:
        body = chance.choice((b"x", bytes(100), b"{}", b"null", batch_body((b"a", b"b\1c\2"))))
    fields = dict(said.fields)
    for name in {"f", "sysFlag"} & set(fields):
        fields[name] = str(chance.choice((0, 1, 0x101, 0x201, 0x301, 0x701, 8, 0xFFFF)))
    return _encoded(said._replace(fields=fields, body=body), opaque, kind)


def _json_lie(chance: Random, body: bytes) -> bytes:
    """The JSON of a body with another value somewhere, well-formed."""
    value = json.loads(body)
    place: Any = value
    while True:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        if not keys:
            return json.dumps(value).encode()
        key = chance.choice(keys)
        if isinstance(place[key], (dict, list)) and chance.random() < 0.7:
            place = place[key]
            continue
        place[key] = chance.choice((None, -1, 2**63, 10**30, 1.5, "", "x" * 70_000, "\0", [], {}, [None], [[]], True))
        return json.dumps(value).encode()


def lie_in_header(chance: Random, said: Said, other: Said, opaque: int, kind: int) -> bytes:
    """A JSON header in which a key has another value, of another type, or is not there."""
    parts = json.loads(json_header(said.code, opaque, said.fields, said.flag))
    values = {name.encode(): json.dumps(value).encode() for name, value in parts.items()}
    for _ in range(chance.choice((1, 1, 2))):
        name = chance.choice(HEADER_KEYS)
        if chance.random() < 0.15:
            values.pop(name, None)
        elif name == b"extFields" and chance.random() < 0.6:
            values[name] = b'{"topic":' + chance.choice(RAW_JSON) + b"}"
        else:
            values[name] = chance.choice(RAW_JSON)
    header = b"{" + b",".join(b'"' + name + b'":' + value for name, value in values.items()) + b"}"
    return framed(header, said.body)


def flip(chance: Random, said: Said, other: Said, opaque: int, kind: int) -> bytes:
    """Some bytes changed anywhere behind the two lengths."""
    changed = bytearray(_encoded(said, opaque, kind))
    for _ in range(chance.choice((1, 1, 2, 4, 16))):
        changed[chance.randrange(8, len(changed))] = chance.choice((0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)))
    return bytes(changed)


def flip_golden(chance: Random, said: Said, other: Said, opaque: int, kind: int) -> bytes:
    """The same in a frame that RocketMQ's own classes have made."""
    changed = bytearray(chance.choice(GOLDEN))
    changed[chance.randrange(8, len(changed))] ^= 1 << chance.randrange(8)
    return bytes(changed)


def cut(chance: Random, said: Said, other: Said, opaque: int, kind: int) -> bytes:
    """The beginning of a frame, whose length is that of the beginning."""
    frame = _encoded(said, opaque, kind)
    kept = frame[4 : chance.randrange(4, len(frame))]
    return struct.pack(">i", len(kept)) + kept


def splice(chance: Random, said: Said, other: Said, opaque: int, kind: int) -> bytes:
    """The beginning of one request and the end of another, as one frame; or of two as one."""
    frame, another = _encoded(said, opaque, kind), _encoded(other, opaque, chance.choice((JSON, ROCKETMQ)))
    kept = frame[4 : chance.randrange(4, len(frame) + 1)] + another[chance.randrange(len(another)) :]
    return struct.pack(">i", len(kept)) + kept


def lie_about_lengths(chance: Random, said: Said, other: Said, opaque: int, kind: int) -> bytes:
    """Another length of the frame, another length or type of the header, another length within it."""
    frame = bytearray(_encoded(said, opaque, kind))
    size, mark = struct.unpack_from(">iI", frame)
    near = chance.choice((-5, -1, 1, 5))
    match chance.randrange(4):
        case 0:
            struct.pack_into(">i", frame, 0, chance.choice((*LENGTHS, size + near)))
        case 1:
            length = chance.choice((*LENGTHS, (mark & 0xFFFFFF) + near, size, size - 4)) & 0xFFFFFF
            struct.pack_into(">I", frame, 4, mark & 0xFF000000 | length)
        case 2:
            frame[4] = chance.choice((0, 1, 2, 3, 0x7F, 0xFF))
        case _:
            at = chance.choice((25, chance.randrange(8, len(frame) - 4)))  # 25: the fields' length of the binary one
            struct.pack_into(">i", frame, min(at, len(frame) - 4), chance.choice(LENGTHS))
    return bytes(frame)


GOLDEN = golden_frames()
Mutation = Callable[[Random, Said, Said, int, int], bytes]
MUTATIONS: tuple[Mutation, ...] = (
    lie, lie, lie, another_code, lie_in_body, lie_in_body, lie_in_header, lie_in_header, flip, flip_golden, cut, splice,
    lie_about_lengths, lie_about_lengths,
)  # fmt: skip
