"""Requests of every API and version, made from the definitions of the messages as a list of tokens.

A token knows what its bytes are (a length, a number, content, a count of tagged fields), so that a mutation can lie
about one of them and leave the rest well-formed. Without mutation the request is valid, and names topics, groups and
members that exist often enough to reach the code behind the parser.
"""

from __future__ import annotations

import struct
import uuid
from dataclasses import dataclass, field
from enum import Enum
from random import Random

from halfmoon.adapters.kafka.protocol import REQUESTS, is_flexible
from halfmoon.core.records.batches import build_batch
from halfmoon.kafka_wire.definition import Field, Fields
from halfmoon.kafka_wire.primitives import FIXED, encode_uvarint

TIMESTAMP_MS = 1_700_000_000_000

JOIN_GROUP = 11


class Kind(Enum):
    LENGTH = "length"
    """Of a string, bytes or an array: two or four bytes, or a varint of the length + 1."""
    NUMBER = "number"
    CONTENT = "content"
    RECORDS = "records"
    TAGS = "tags"
    """A varint: the count of tagged fields, a tag, or the size of a tagged field."""


@dataclass(slots=True)
class Token:
    kind: Kind
    data: bytes
    compact: bool = False


@dataclass(slots=True)
class World:
    """What the requests may name."""

    topics: list[str] = field(
        default_factory=lambda: ["fuzz-a", "fuzz-b", "fuzz-c", "retry.fuzz", "halfmoon.transactions"]
    )
    topic_ids: list[uuid.UUID] = field(default_factory=list)
    """Of the topics that exist; filled in as they are learnt."""
    groups: list[str] = field(default_factory=lambda: ["fuzz-group-1", "fuzz-group-2"])
    members: list[str] = field(default_factory=list)
    """Member ids that the broker has handed out."""
    generation: int = 1
    """Of the group that was joined last."""
    configs: tuple[tuple[str, str], ...] = (
        ("retention.ms", "1000"), ("retention.bytes", "1000000"), ("cleanup.policy", "delete"),
        ("cleanup.policy", "compact"), ("max.message.bytes", "1000"), ("message.timestamp.type", "LogAppendTime"),
        ("no.such.config", "1"), ("retention.ms", "soon"), ("segment.bytes", "-1"),
    )  # fmt: skip


NAMES = frozenset({"name", "topic", "topic_name", "resource_name", "topic_names"})
GROUPS = frozenset({"group_id", "groups", "groups_names", "coordinator_keys", "key"})
RARELY_GIVEN = frozenset({"transactional_id", "group_instance_id"})
"""Nullable fields that keep requests from getting far."""
ODD_STRINGS = ("", "x", "\x00", "\n", "é" * 30, ".", "..", "a/b", "%s%n", "x" * 250, "__consumer_offsets", "💥")

KEYS = (b"1", b"2", b"1 2  3", b"", None, b"\xff", b"k" * 300)
FEATURES: dict[str, tuple[bytes | None, ...]] = {
    "TAGS": (b"x", b"x||y", b"", None),
    "KEYS": KEYS,
    "UNIQ_KEY": KEYS,
    "DELAY": (b"0", b"1", b"99", b"-1", b"9" * 19, b"soon", b"", None),
    "TIMER_DELAY_MS": (b"0", b"1", b"50", b"3456000000", b"3456000001", b"-5", b"1.5", None),
    "TIMER_DELAY_SEC": (b"0", b"1", b"99999999999999999999", b" 1"),
    "TIMER_DELIVER_MS": (b"0", b"1700000000000", b"9223372036854775807", b"-1"),
    "TIMER_DEL_UNIQKEY": KEYS,
    "TRAN_MSG": (b"true", b"false", b"", None),
    "PGROUP": (b"pg", b"p" * 300, b"", b"\xff", None),
    "TRAN_STATE": (b"commit", b"rollback", b"unknown", b"", None),
    "RETRY_OF": (b"fuzz-a/0/0", b"fuzz-a/0/1", b"fuzz-b/1/0", b"retry.fuzz/0/0", b"fuzz-a/9/9", b"//", b"", None),
    "RECONSUME_TIME": (b"0", b"3", b"16", b"-1", b"x"),
    "MAX_RECONSUME_TIMES": (b"0", b"1", b"99999999999", b"x"),
    "ORIGIN_MESSAGE_ID": (b"fuzz-a/0/0", b"x", None),
    "halfmoon.reason": (b"none",),
    "halfmoon.delayed": (b"mine", None),
    "": (None,),
}
"""Headers that ask for something, or only seem to."""

NUMBERS = {
    "int8": (0, 1, -1, 2, 127, -128),
    "int16": (0, 1, -1, 2, 32767, -32768),
    "uint16": (0, 1, 9092, 65535),
    "int32": (0, 1, -1, 2, 3, 100, 1000, 2**31 - 1, -(2**31)),
    "int64": (0, 1, -1, -2, -3, -5, TIMESTAMP_MS, 2**63 - 1, -(2**63)),
}
USUAL: dict[str, tuple[int, ...]] = {
    "acks": (-1, 1, 0),
    "index": (0, 1, 2),
    "partition": (0, 1, 2),
    "partition_index": (0, 1, 2),
    "partitions": (0, 1, 2),
    "partition_indexes": (0, 1, 2),
    "fetch_offset": (0, 1, 5),
    "offset": (0, 1, -1),
    "current_leader_epoch": (-1, 1),
    "last_fetched_epoch": (-1, 1),
    "leader_epoch": (-1, 0, 1),
    "session_epoch": (-1, 0),
    "session_id": (0,),
    "max_wait_ms": (0, 10, 100),
    "min_bytes": (0, 1, 1000),
    "max_bytes": (1 << 20, 1000),
    "partition_max_bytes": (1 << 20, 1000),
    "timestamp": (-1, -2, -3, -4, -5, -6, 0, TIMESTAMP_MS),
    "num_partitions": (-1, 1, 3),
    "count": (1, 2, 4, 8),
    "replication_factor": (-1, 1),
    "resource_type": (2, 4),
    "key_type": (0, 1),
    "session_timeout_ms": (1000, 6000),
    "rebalance_timeout_ms": (100, 1000),
    "generation_id": (0, 1, 2, -1),
    "generation_id_or_member_epoch": (-1, 0, 1),
    "broker_ids": (0,),
    "response_partition_limit": (1, 2, 2000),
}


class Builder:
    """Makes one request."""

    def __init__(self, chance: Random, world: World, key: int, version: int, correlation_id: int = 1) -> None:
        self._chance = chance
        self._world = world
        self._key = key
        self._version = version
        self._flexible = is_flexible(key, version)
        self.tokens: list[Token] = []
        self._add(Kind.NUMBER, struct.pack(">h", key))
        self._add(Kind.NUMBER, struct.pack(">h", version))
        self._add(Kind.NUMBER, struct.pack(">i", correlation_id))
        self._string(chance.choice((b"fuzz", b"", "ünï".encode(), None)), False)
        if self._flexible:
            self._tags({})
        self._struct(REQUESTS[key].fields)

    def _add(self, kind: Kind, data: bytes, compact: bool = False) -> None:
        self.tokens.append(Token(kind, data, compact))

    def _struct(self, fields: Fields) -> None:
        for each in fields.plain(self._version):
            self._field(each)
        if self._flexible:
            self._tags(fields.tagged(self._version))

    def _tags(self, known: dict[int, Field]) -> None:
        """Mostly none; sometimes those that the schema has, and ones that nobody knows."""
        chance = self._chance
        chosen = {tag: each for tag, each in known.items() if chance.random() < 0.2}
        unknown = [900 + number for number in range(chance.choice((0,) * 12 + (1, 3)))]
        self._add(Kind.TAGS, encode_uvarint(len(chosen) + len(unknown)))
        for tag in sorted(chosen):
            outer, self.tokens = self.tokens, []
            self._field(chosen[tag])
            inner, self.tokens = self.tokens, outer
            self._add(Kind.TAGS, encode_uvarint(tag))
            self._add(Kind.TAGS, encode_uvarint(sum(len(token.data) for token in inner)))
            self.tokens += inner
        for tag in unknown:
            content = chance.randbytes(chance.randrange(20))
            self._add(Kind.TAGS, encode_uvarint(tag))
            self._add(Kind.TAGS, encode_uvarint(len(content)))
            self._add(Kind.CONTENT, content)

    def _field(self, each: Field) -> None:
        nullable = each.is_nullable(self._version)
        null = nullable and self._chance.random() < (0.9 if each.name in RARELY_GIVEN else 0.2)
        if each.is_array:
            self._array(each, null)
        elif each.struct is not None:
            if nullable:
                self._add(Kind.NUMBER, b"\xff" if null else b"\x01")
            if not null:
                self._struct(each.struct)
        else:
            self._simple(each.kind, each.name, null)

    def _array(self, each: Field, null: bool) -> None:
        size = -1 if null else self._chance.choice((0, 1, 1, 1, 2, 3))
        self._length(size, self._flexible, ">i")
        for _ in range(size):
            if each.struct is not None:
                self._struct(each.struct)
            else:
                self._simple(each.kind, each.name, False)

    def _simple(self, kind: str, name: str, null: bool) -> None:
        if kind == "bool":
            self._add(Kind.NUMBER, struct.pack(">?", self._chance.random() < 0.5))
        elif kind in FIXED:
            self._add(Kind.NUMBER, struct.pack(">" + FIXED[kind], self._number(kind, name)))
        elif kind == "string":
            self._string(None if null else self._text(name).encode(), self._flexible)
        elif kind == "uuid":
            self._add(Kind.CONTENT, self._topic_id())
        elif kind == "records":
            self._bytes(Kind.RECORDS, None if null else self._batch())
        else:
            assert kind == "bytes", kind
            self._bytes(Kind.CONTENT, None if null else self._chance.randbytes(self._chance.randrange(30)))

    def _number(self, kind: str, name: str) -> float:
        chance = self._chance
        if kind == "float64":
            return chance.choice((0.0, -1.0, float("inf"), float("nan")))
        if name.startswith("generation_id") and chance.random() < 0.6:
            return self._world.generation
        if name in USUAL and chance.random() < 0.85:
            return chance.choice(USUAL[name])
        return chance.choice(NUMBERS[kind])

    def _text(self, name: str) -> str:
        chance, world = self._chance, self._world
        if chance.random() < 0.15:
            return chance.choice(ODD_STRINGS)
        if name in GROUPS:
            return chance.choice(world.groups)
        if name == "member_id":
            return chance.choice(world.members) if world.members and chance.random() < 0.6 else ""
        if name in NAMES:
            return "range" if self._key == JOIN_GROUP else chance.choice(world.topics)
        if name in ("protocol_type", "protocol_name"):
            return "consumer"
        if name in ("configuration_keys", "value") or name == "config_name":
            return chance.choice(world.configs)[name == "value"]
        return chance.choice(("consumer", "range", "roundrobin", *world.configs[0], "1"))

    def _topic_id(self) -> bytes:
        ids = self._world.topic_ids
        if ids and self._chance.random() < 0.8:
            return self._chance.choice(ids).bytes
        return self._chance.choice((bytes(16), self._chance.randbytes(16)))

    def _batch(self) -> bytes:
        chance = self._chance
        records = [
            (
                chance.choice((None, b"", b"key")),
                chance.choice((None, b"", chance.randbytes(chance.randrange(200)))),
                TIMESTAMP_MS + chance.randrange(-1000, 1000),
                self._headers(),
            )
            for _ in range(chance.randrange(1, 5))
        ]
        if chance.random() < 0.2:
            return build_batch(records, producer_id=chance.choice((0, 1000, 2**40)), producer_epoch=0, base_sequence=0)
        return build_batch(records, codec=chance.randrange(5))

    def _headers(self) -> tuple[tuple[str, bytes | None], ...]:
        names = self._chance.choices(list(FEATURES), k=self._chance.choice((0, 0, 1, 1, 2, 3, 5)))
        return tuple((name, self._chance.choice(FEATURES[name])) for name in names)

    def _string(self, raw: bytes | None, compact: bool) -> None:
        self._length(-1 if raw is None else len(raw), compact, ">h")
        if raw:
            self._add(Kind.CONTENT, raw)

    def _bytes(self, kind: Kind, raw: bytes | None) -> None:
        self._length(-1 if raw is None else len(raw), self._flexible, ">i")
        if raw:
            self._add(kind, raw)

    def _length(self, size: int, compact: bool, layout: str) -> None:
        self._add(Kind.LENGTH, encode_uvarint(size + 1) if compact else struct.pack(layout, size), compact)


def valid_request(chance: Random, world: World, key: int, version: int, correlation_id: int = 1) -> list[Token]:
    """The tokens of a request with its header, without the frame's size."""
    return Builder(chance, world, key, version, correlation_id).tokens


def join(tokens: list[Token]) -> bytes:
    return b"".join(token.data for token in tokens)
