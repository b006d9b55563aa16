"""Schedules as they are kept: records of the compacted internal topic `halfmoon.schedules`, JSON below keys.

    orders/3/nightly            all of a schedule: its definition, and how far it was when this was written
    orders/3/nightly/progress   how far it is, since; written in one frame group with each message that it sends

A record without a value says that there is no such schedule any more. The last record that says something counts, so a
schedule's own record, which is written when it is changed, ends what was said of its progress before. Fields are only
ever added, with a default.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Literal, TypeVar

import msgspec
from msgspec import Struct

from halfmoon.plugin import Headers, build_batch

TOPIC = "halfmoon.schedules"
CONFIGS = {
    "cleanup.policy": "compact",
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "halfmoon.headers.enable": "false",
}
PROGRESS = "progress"
"""What follows the id in the key of a schedule's progress. No id has four parts."""


Policy = Literal["once", "skip"]
"""What becomes of times that were missed."""


class Progress(Struct, frozen=True):
    """How far a schedule is."""

    upto_ms: int
    """All times up to here are decided: a message was sent, or none is going to be."""
    fired: int = 0
    """Messages that it has sent, …"""
    last_ms: int = -1
    """… and the time of the last one; −1: there was none."""
    missed: int = 0
    refused: int = 0
    problem: str = ""
    """Why the last message was not sent, until one is."""


class Recurring(Struct, frozen=True):
    """A schedule."""

    topic: str
    partition: int
    name: str
    topic_id: str
    """Of its topic, in hex: it ends with that topic, and is no other's of the same name."""
    cron: str
    zone: str
    missed: Policy
    key: bytes | None
    value: bytes | None
    headers: Headers
    principal: str
    """Who has made it; …"""
    host: str
    """… and from which address; empty where that is not known."""
    created_ms: int
    progress: Progress
    paused: bool = False

    @property
    def id(self) -> str:
        return f"{self.topic}/{self.partition}/{self.name}"

    @property
    def message_bytes(self) -> int:
        """Of its message, about: what it takes in memory."""
        parts = [self.key, self.value, *(content for _, content in self.headers)]
        return sum(len(part) for part in parts if part) + sum(len(name) for name, _ in self.headers)

    def says(self, other: Recurring) -> bool:
        """Whether the other one sends the same at the same times."""
        return self.is_due_as(other) and (self.missed, self.key, self.value, self.headers) == (
            other.missed, other.key, other.value, other.headers,
        )  # fmt: skip

    def is_due_as(self, other: Recurring) -> bool:
        return (self.topic_id, self.cron, self.zone) == (other.topic_id, other.cron, other.zone)


RecordT = TypeVar("RecordT", Progress, Recurring)
Row = tuple[bytes | None, bytes | None, int, Headers]
"""Key, value, timestamp, headers."""

_encode = msgspec.json.encode


@cache
def _decoder(kind: type[RecordT]) -> msgspec.json.Decoder[RecordT]:
    return msgspec.json.Decoder(kind)  # a millisecond of each start, and few have schedules


def of_schedule(schedule: Recurring, now_ms: int) -> Row:
    return schedule.id.encode(), _encode(schedule), now_ms, ()


def of_progress(schedule_id: str, progress: Progress, now_ms: int) -> Row:
    return f"{schedule_id}/{PROGRESS}".encode(), _encode(progress), now_ms, ()


def of_end(schedule_id: str, now_ms: int) -> list[Row]:
    """There is no such schedule any more."""
    return [(f"{schedule_id}/{PROGRESS}".encode(), None, now_ms, ()), (schedule_id.encode(), None, now_ms, ())]


def batch_of(rows: Sequence[Row]) -> bytearray:
    return bytearray(build_batch(rows))


def decoded(key: bytes | None, value: bytes | None) -> tuple[str, Recurring | Progress | None]:
    """The id, and what a record says of it; None: it is gone. Raises ValueError where nobody can tell."""
    parts = (key or b"").decode().split("/")
    schedule_id = "/".join(parts[:3])
    if len(parts) == 4 and parts[3] == PROGRESS:
        # Its schedule has a record of its own when it ends.
        return schedule_id, Progress(0) if value is None else _decoder(Progress).decode(value)
    if len(parts) != 3:
        raise ValueError(f"the key {key!r} is no schedule's")
    return schedule_id, None if value is None else _decoder(Recurring).decode(value)
