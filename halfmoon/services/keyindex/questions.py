"""Queries about messages and their answers: plain records, on the wire as JSON (API 18502)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

from msgspec import Struct

from halfmoon.services.keyindex.key_file import LAST_MS

What = Literal[
    "stored", "waits", "delivered", "moved", "copied", "handed back", "given up", "asked about", "ended", "hidden"
]
"""What happened to a message, as API 18502 has it on the wire; for people it is `EVENTS`."""

EVENTS: Mapping[What, str] = {
    "stored": "stored",
    "waits": "scheduled",
    "moved": "moved",
    "asked about": "checked back",
    "delivered": "delivered",
    "ended": "ended",
    "handed back": "nacked",
    "given up": "dead-lettered",
    "copied": "copied",
    "hidden": "hidden",
}
"""The field's word for each."""


class Found(Struct, frozen=True):
    """A message. Header names that are no UTF-8 are written with backslashes."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    """Unix ms."""
    timestamp_type: int
    """0 CreateTime, 1 LogAppendTime."""
    store_ms: int
    """When the broker stored it (Unix ms)."""
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    waits_for: str | None = None
    """Of a scheduled message, completed or not: `TOPIC-PARTITION` that it goes to."""
    due_ms: int = -1
    """When it is due, or its relay decides (Unix ms); −1: it is not scheduled."""
    ended: bool = False
    """It was scheduled here and is completed: delivered, cancelled, rolled back, …"""
    hidden: bool = False
    """Who asks may not read the topic: key, value and headers are left out."""


class Event(Struct, frozen=True, omit_defaults=True):
    """Something that happened to a message, and its place then. Of a hidden one nothing else is told: who asks may not
    describe its topic or group, or one that it names."""

    what: What
    at_ms: int = -1
    """By the broker's clock (Unix ms)."""
    topic: str = ""
    partition: int = -1
    offset: int = -1
    due_ms: int = -1
    """Of a scheduled one."""
    detail: str = ""


Describes = Callable[[str, str], bool]
"""Whether who asks may describe a resource: its type and its name."""


def everything(resource_type: str, name: str) -> bool:
    return True


Sees = Callable[[Found], bool]
"""Whether who asks may see a message that was found for a topic that he may read: it may still stand elsewhere."""


def all_of_it(found: Found) -> bool:
    return True


class Shown(Struct, frozen=True):
    message: Found
    history: tuple[Event, ...]
    """In order of time."""


class Results(Struct, frozen=True):
    messages: tuple[Found, ...]
    """The newest first."""
    more: bool
    """There are older ones."""
    behind_bytes: int
    """Bytes of the log that are not indexed yet: messages in them are not found."""


class Find(Struct, frozen=True, tag="find", forbid_unknown_fields=True):
    """A question: as `Messages.find`."""

    topic: str
    key: bytes
    from_ms: int = 0
    to_ms: int = LAST_MS
    most: int = 100
    ended: bool = False


class Show(Struct, frozen=True, tag="show", forbid_unknown_fields=True, omit_defaults=True):
    """A question: as `Messages.show`."""

    topic: str
    partition: int
    offset: int
    shard: int | None = None
    """Of a topic that each shard has for itself: whose."""


class Nacked(Struct, frozen=True, tag="nacked", forbid_unknown_fields=True):
    """A question: what groups have negatively acknowledged in these topics."""

    topics: tuple[str, ...]


class NackedOffsets(Struct, frozen=True):
    """Offsets that a group has negatively acknowledged in a partition; the broker ignores a second time."""

    group: str
    topic: str
    partition: int
    runs: tuple[tuple[int, int], ...]
    """(first offset, count), ascending."""


class Trace(Struct, frozen=True, tag="trace", forbid_unknown_fields=True):
    """A question of shards: what has become of a message that has stood at these places: (topic, partition, offset)."""

    places: tuple[tuple[str, int, int], ...]


class Traced(Struct, frozen=True):
    events: tuple[Event, ...]
    """In the order of one log."""
    places: tuple[tuple[str, int, int], ...]
    """Where it has stood too, of topics that all shards know."""


class Answer(Struct, frozen=True, omit_defaults=True):
    """One of these."""

    results: Results | None = None
    shown: Shown | None = None
    nacked: tuple[NackedOffsets, ...] | None = None
    fault: str = ""
    """The name of a `Fault`."""
    message: str = ""
    traced: Traced | None = None
    """Told to shards only."""
