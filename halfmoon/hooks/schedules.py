"""Questions about recurring messages and their answers: plain records, on the wire as JSON (API 18508); and what the
feature that has them offers to whoever answers such questions.

A schedule is named by the partition that its messages go to and a name in it: `orders/3/nightly`. Where several
processes share the topics it is in the shard of that partition, and in no other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from msgspec import Struct

from halfmoon.hooks.java_hash import string_hash
from halfmoon.hooks.murmur2 import partition_of_key

Header = tuple[str, bytes | None]
Missed = Literal["", "once", "skip"]
"""What becomes of times that were missed; "": as the broker's settings say."""


class CreateSchedule(Struct, frozen=True, tag="create"):
    """A message that is sent whenever the cron expression says so."""

    topic: str
    name: str
    cron: str
    """Five fields, minute to day of week; or six, of which the first is the second."""
    zone: str = "UTC"
    """Time zone: a name of the IANA database."""
    missed: Missed = ""
    partition: int = -1
    """−1: as Kafka's producers choose it by the key; without a key, by the name."""
    key: bytes | None = None
    value: bytes | None = None
    headers: tuple[Header, ...] = ()
    paused: bool = False
    """It begins to send once it is resumed. What it was before, where it exists, stays."""
    replace: bool = False
    """Another schedule of the name is replaced; else that is DUPLICATE_RESOURCE. One that is the same stays."""

    def partition_among(self, count: int) -> int:
        """Its partition, of so many."""
        if self.partition >= 0:
            return self.partition
        if self.key is not None:
            return partition_of_key(self.key, count)
        return abs(string_hash(self.name)) % count


class ChangeSchedule(Struct, frozen=True, tag="change"):
    """Those of a name: there is more than one where several partitions have one of it."""

    topic: str
    name: str
    to: Literal["active", "paused", "cancelled"]
    partition: int = -1
    """−1: in every partition."""


class ListSchedules(Struct, frozen=True, tag="list"):
    """Those of the topic, of the name; None: of all."""

    topic: str | None = None
    name: str | None = None
    times: int = 1
    """How many of the next times each of them shows."""
    after: str = ""
    """Go on behind this one (`Schedule.id`)."""
    most: int = 1_000


Question = CreateSchedule | ChangeSchedule | ListSchedules


class Schedule(Struct, frozen=True):
    topic: str
    partition: int
    name: str
    cron: str
    zone: str
    missed: str
    state: str
    """"active" or "paused"."""
    creator: str
    """The principal with whose rights its messages are sent."""
    created_ms: int
    next_ms: tuple[int, ...] = ()
    """Its next times, Unix ms; none where it is paused."""
    last_ms: int = -1
    """The last time at which it sent a message; −1: it has sent none."""
    fired: int = 0
    """Messages that it has sent."""
    missed_times: int = 0
    """Times that were missed, and at which none was sent."""
    refused: int = 0
    """Times at which none was sent because that was refused."""
    problem: str = ""
    """Why, of the last time."""
    shows: bool = False
    """Whether its message stands here: whoever may read the topic sees it."""
    key: bytes | None = None
    value: bytes | None = None
    headers: tuple[Header, ...] = ()

    @property
    def id(self) -> str:
        return f"{self.topic}/{self.partition}/{self.name}"


class Answer(Struct, frozen=True, omit_defaults=True):
    """Those that were asked for, or changed, by their ids; or why not."""

    schedules: tuple[Schedule, ...] | None = None
    more: bool = False
    """There are more than were asked for."""
    fault: str = ""
    message: str = ""


class Asker(Struct, frozen=True):
    """Who asks."""

    principal: str
    host: str
    allows: Callable[[str, str], bool]
    """(operation, topic)"""
    demands: Callable[[str, str], None]
    """The same, of what the client wants to do: raises BrokerError where it is refused."""


class Schedules(Struct, frozen=True):
    """What a feature that sends recurring messages offers to others (`Feature.services`)."""

    ask: Callable[[Question, Asker], Answer]
    """What is known in this log; true once all is durable that is in it. Raises BrokerError."""
    when_ready: Callable[[Callable[[], None]], None]
    """Call back once `ask` can answer: now, or when the schedules have been read."""
