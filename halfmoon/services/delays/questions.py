"""Questions about scheduled messages and their answers: plain records, on the wire as JSON (API 18506, and request
18506 of RocketMQ's port).

One question is answered by one shard, and looks at a stretch of what waits there. `next` in its answer goes with the
next question; None: that was the last stretch of the last shard. paging.py puts the answers together.
"""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

from msgspec import Struct

Kind = Literal["delay", "redelivery"]
"""A delayed message, or one that a group has negatively acknowledged and gets again."""

MOST = 2_000
"""Messages that one question is answered with, and ids that one names."""

_ID = re.compile(r"([a-zA-Z0-9._-]{1,249})/([0-9]{1,9})/([0-9]{1,18})(?:@([0-9]{1,3}))?")


class Id(NamedTuple):
    """Where a scheduled message waits. As text `TOPIC/PARTITION/OFFSET`, with `@SHARD` where there are several. Another
    one once the message is rescheduled, or moved to a newer segment."""

    shard: int
    topic: str
    """The internal one."""
    partition: int
    offset: int


def parse_id(text: str) -> Id | None:
    match = _ID.fullmatch(text)
    return None if match is None else Id(int(match[4] or 0), match[1], int(match[2]), int(match[3]))


def format_id(place: Id, *, shards: bool) -> str:
    """`shards`: there are several."""
    text = f"{place.topic}/{place.partition}/{place.offset}"
    return f"{text}@{place.shard}" if shards else text


class Selection(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Scheduled messages to which all of this applies; without anything, all of them."""

    topic: str | None = None
    """Shell pattern of the topic that they go to."""
    group: str | None = None
    """Shell pattern of the group that they are redelivered to."""
    kind: Kind | None = None
    due_after_ms: int | None = None
    """Due then or later (Unix ms)."""
    due_before_ms: int | None = None
    """Due earlier (Unix ms)."""
    due_after_in_ms: int | None = None
    """The same from now on, by the broker's clock."""
    due_before_in_ms: int | None = None


class Cursor(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Where the next stretch begins. Whoever asks hands it back as it is."""

    shard: int
    topic: str = ""
    partition: int = 0
    offset: int = 0
    upto: int = -1
    """Messages that have come since the first stretch stand from this log position on; −1: not known yet."""


class After(Struct, frozen=True, forbid_unknown_fields=True):
    """Behind this message of a list."""

    due_ms: int
    id: str


class List(Struct, frozen=True, tag="list", omit_defaults=True, forbid_unknown_fields=True):
    """Of a stretch, those that are due first."""

    selection: Selection = Selection()
    most: int = 100
    after: After | None = None
    next: Cursor | None = None


class Count(Struct, frozen=True, tag="count", omit_defaults=True, forbid_unknown_fields=True):
    selection: Selection = Selection()
    next: Cursor | None = None


class Cancel(Struct, frozen=True, tag="cancel", omit_defaults=True, forbid_unknown_fields=True):
    """Of these, or of all that are selected."""

    ids: tuple[str, ...] = ()
    selection: Selection | None = None
    next: Cursor | None = None


class Reschedule(Struct, frozen=True, tag="reschedule", omit_defaults=True, forbid_unknown_fields=True):
    """As Cancel; one of the times says when they are due instead."""

    ids: tuple[str, ...] = ()
    selection: Selection | None = None
    at_ms: int | None = None
    """Unix ms."""
    in_ms: int | None = None
    """From now on, by the broker's clock."""
    by_ms: int | None = None
    """So much later than each was due, or earlier if it is negative."""
    next: Cursor | None = None


Question = List | Count | Cancel | Reschedule


class ScheduledMessage(Struct, frozen=True, omit_defaults=True):
    """A message that waits. Who asks may describe the topic that it goes to; without Read there, key and headers are
    left out."""

    id: str
    topic: str
    """That it goes to."""
    partition: int
    due_ms: int
    """When (Unix ms)."""
    kind: Kind
    size_bytes: int
    """Of the record as it is stored, decompressed."""
    timestamp: int
    """Of the record as it was produced (Unix ms)."""
    group: str | None = None
    """That it is redelivered to."""
    key: bytes | None = None
    uniq_key: bytes | None = None
    """RocketMQ's message id, which clients cancel by."""
    delay: str | None = None
    """How it was asked for, such as `DELAY=3`."""
    origin: str | None = None
    """Of a redelivery: TOPIC/PARTITION/OFFSET where the message was first consumed."""
    attempts: int = 0
    """Of a redelivery: how often the message was negatively acknowledged."""
    hidden: bool = False
    """Who asks may not read the topic."""


class Listed(Struct, frozen=True, omit_defaults=True):
    messages: tuple[ScheduledMessage, ...]
    """By due time."""
    more: bool = False
    """There may be more in this stretch, due later: those are not looked at."""
    next: Cursor | None = None


class ScheduledCount(Struct, frozen=True, omit_defaults=True):
    """How many messages wait for one topic."""

    topic: str
    kind: Kind
    count: int
    first_due_ms: int
    last_due_ms: int
    group: str | None = None


class Counted(Struct, frozen=True, omit_defaults=True):
    topics: tuple[ScheduledCount, ...]
    next: Cursor | None = None


class Changed(Struct, frozen=True, omit_defaults=True):
    """Durable."""

    count: int
    """Messages that were cancelled, or rescheduled."""
    missing: tuple[str, ...] = ()
    """Ids at which no message waits: it is delivered, cancelled, rescheduled or moved."""
    refused: tuple[str, ...] = ()
    """Topics whose messages were selected, but may not be changed by who asks."""
    topics: tuple[str, ...] = ()
    """Those that the changed messages go to."""
    too_far: int = 0
    """Messages that would be due later than is allowed, and stay as they are."""
    next: Cursor | None = None


class Answer(Struct, frozen=True, omit_defaults=True):
    """One of these."""

    listed: Listed | None = None
    counted: Counted | None = None
    changed: Changed | None = None
    fault: str = ""
    """The name of a `Fault`."""
    message: str = ""
