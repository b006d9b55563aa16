"""The schedules of one log: what there is, when each is due next, and what becomes of them when somebody asks.

It reads and writes nothing. A change is worked out first (`put`, `changed`), then written down by whoever has asked for
it, and holds once it is in the log (`hold`, `ended`, `went_on`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from heapq import heapify, heappop, heappush

from msgspec.structs import replace

from halfmoon.plugin import RETRY_PREFIX, BrokerError, Fault
from halfmoon.plugins.store.schedule import times
from halfmoon.plugins.store.schedule.records import Progress, Recurring

NAME = re.compile(r"[a-zA-Z0-9._-]{1,100}")
STALE = 64
"""Entries of the heap that may be out of date before it is made anew, beside as many as there are schedules."""


class Limits:
    """What `$.plugins.schedule` says."""

    def __init__(self, max_schedules: int, max_message_bytes: int) -> None:
        self.max_schedules = max_schedules
        self.max_message_bytes = max_message_bytes


class Book:
    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._all: dict[str, Recurring] = {}
        self._next_ms: dict[str, int] = {}
        """When those are due that are."""
        self._heap: list[tuple[int, str]] = []
        self.is_ready = False
        """The schedules have been read."""
        self._waiting: list[Callable[[], None]] = []

    # -- reading -------------------------------------------------------------------------------------------------------

    def when_ready(self, callback: Callable[[], None]) -> None:
        if self.is_ready:
            callback()
        else:
            self._waiting.append(callback)

    def ready(self) -> None:
        """All has been taken in that was kept."""
        for schedule in self._all.values():
            self._plan(schedule)
        self.is_ready = True
        waiting, self._waiting = self._waiting, []
        for callback in waiting:
            callback()

    def take_in(self, schedule_id: str, said: Recurring | Progress | None) -> None:
        """What a record says, in the order of the records."""
        if said is None:
            self._all.pop(schedule_id, None)
        elif isinstance(said, Recurring):
            self._all[schedule_id] = said
        elif schedule_id in self._all:
            self._all[schedule_id] = replace(self._all[schedule_id], progress=said)

    def check_ready(self) -> None:
        """Raises BrokerError, after which clients come again."""
        if not self.is_ready:
            raise BrokerError(Fault.NOT_ENOUGH_REPLICAS, "the schedules are being read")

    # -- looking -------------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[Recurring]:
        return iter(self._all.values())

    def get(self, schedule_id: str) -> Recurring | None:
        return self._all.get(schedule_id)

    def next_ms(self, schedule_id: str) -> int | None:
        return self._next_ms.get(schedule_id)

    def of_topic(self, topic: str) -> list[Recurring]:
        return [each for each in self._all.values() if each.topic == topic]

    @property
    def paused(self) -> int:
        return sum(each.paused for each in self._all.values())

    # -- changes -------------------------------------------------------------------------------------------------------

    def put(
        self,
        asked: Recurring,
        demands: Callable[[str], None],
        changed: Mapping[str, Recurring | None],
    ) -> Recurring | None:
        """What is to be written down so that there is this schedule; None: nothing. `demands`: raises BrokerError where
        who asks may not do this with the topic. `changed`: what is about to be, and is not here yet. Raises
        BrokerError(INVALID_RECORD)."""
        self.check_ready()
        self._check(asked)
        known = changed[asked.id] if asked.id in changed else self._all.get(asked.id)
        if known is None:
            self.check_alone(asked)
            coming = sum(each is not None and each_id not in self._all for each_id, each in changed.items())
            if len(self._all) + coming >= self._limits.max_schedules:
                raise BrokerError(
                    Fault.INVALID_RECORD, f"there are {self._limits.max_schedules} schedules, as many as may be"
                )
            return asked
        if known.principal != asked.principal:
            demands("alter")
        elif known.says(asked) and known.host == asked.host:
            return None
        same = known.is_due_as(asked)
        progress = known.progress if same else replace(known.progress, upto_ms=asked.progress.upto_ms, problem="")
        return replace(asked, created_ms=known.created_ms, paused=known.paused, progress=progress)

    def check_alone(self, asked: Recurring) -> None:
        """A name is one schedule's in a topic, as far as is known here. Raises BrokerError(INVALID_RECORD)."""
        for other in self._all.values():
            if (other.topic_id, other.name) == (asked.topic_id, asked.name) and other.partition != asked.partition:
                raise _refused(f"there is {other.id}, in another partition: cancel that first")

    def _check(self, asked: Recurring) -> None:
        if not NAME.fullmatch(asked.name):
            raise _refused(
                f"a schedule's name has 1 to 100 of a-z, A-Z, 0-9, '.', '_' and '-', not {asked.name[:110]!r}"
            )
        if asked.topic.startswith((RETRY_PREFIX, "halfmoon.")):
            raise _refused(f"nothing is sent to topic '{asked.topic}' on a schedule")
        if asked.message_bytes > self._limits.max_message_bytes:
            raise BrokerError(
                Fault.MESSAGE_TOO_LARGE,
                f"a schedule's message has at most {self._limits.max_message_bytes} bytes, not {asked.message_bytes}",
            )
        try:
            times.check(asked.cron, asked.zone)
        except ValueError as error:
            raise _refused(str(error)) from None

    def changed(self, known: Recurring, *, paused: bool, now_ms: int) -> Recurring | None:
        """What is to be written down so that it is paused, or goes on; None: nothing. What was to be sent while it was
        paused is not."""
        if known.paused == paused:
            return None
        if paused:
            return replace(known, paused=True)
        return replace(known, paused=False, progress=replace(known.progress, upto_ms=now_ms, problem=""))

    def hold(self, schedule: Recurring) -> None:
        """It is in the log."""
        self._all[schedule.id] = schedule
        self._plan(schedule)

    def ended(self, schedule_id: str) -> None:
        """It is in the log that there is none any more."""
        self._all.pop(schedule_id, None)
        self._next_ms.pop(schedule_id, None)

    def went_on(self, schedule_id: str, progress: Progress) -> None:
        self.hold(replace(self._all[schedule_id], progress=progress))

    # -- time ----------------------------------------------------------------------------------------------------------

    def _plan(self, schedule: Recurring) -> None:
        at_ms = None
        if not schedule.paused:
            at_ms = times.next_after(schedule.cron, schedule.zone, schedule.progress.upto_ms)
        if at_ms is None:
            self._next_ms.pop(schedule.id, None)
        elif self._next_ms.get(schedule.id) != at_ms:
            self._next_ms[schedule.id] = at_ms
            heappush(self._heap, (at_ms, schedule.id))
            if len(self._heap) > 2 * len(self._next_ms) + STALE:
                self._heap = [(each_ms, each) for each, each_ms in self._next_ms.items()]
                heapify(self._heap)

    def soonest(self) -> tuple[int, str] | None:
        """The schedule that is due next, and when."""
        while self._heap:
            at_ms, schedule_id = self._heap[0]
            if self._next_ms.get(schedule_id) == at_ms:
                return at_ms, schedule_id
            heappop(self._heap)
        return None


def _refused(problem: str) -> BrokerError:
    return BrokerError(Fault.INVALID_RECORD, problem)
