"""What waits, for programs with threads. Every method may be called from any thread."""

from __future__ import annotations

from collections.abc import Collection

from halfmoon.client.base import DelaysParts
from halfmoon.client.engine.delays import chosen, of_ids_or, rescheduling
from halfmoon.client.threads.life import Life
from halfmoon.services.delays.questions import Cancel, Changed, ScheduledCount, ScheduledMessage


class Delays(DelaysParts, Life):
    """Scheduled messages of Halfmoon's brokers: delayed ones, and redeliveries that wait.

        with Delays(namesrv="127.0.0.1:9876") as delays:
            late = delays.find(topic="orders", due_after=time.time() + 3_600)
            delays.cancel([message.id for message in late])

    Which messages: `topic` that they go to, and `group` that they are redelivered to, as shell patterns; `kind`,
    "delay" or "redelivery"; due at `due_after` or later, and before `due_before` (Unix seconds). Apache RocketMQ has no
    such request: BrokerRefusedError.
    """

    def start(self) -> None:
        """Raises NotRunningError."""
        self._begin(self._nothing)

    def close(self) -> None:
        """More than once does no harm."""
        self._end(self._nothing)

    def find(
        self, *, topic: str | None = None, group: str | None = None, kind: str | None = None,
        due_after: float | None = None, due_before: float | None = None, most: int = 100,
        after: ScheduledMessage | None = None,
    ) -> list[ScheduledMessage]:  # fmt: skip
        """Up to `most` messages, those that are due first; `after`: the next ones behind this one. Raises ConfigError,
        RouteError, ConnectionFailedError, RequestTimeoutError, BrokerRefusedError."""
        selection = chosen(topic, group, kind, due_after, due_before)
        self._check_running()
        return self._run(self._queries.first(selection, most, after))

    def count(
        self, *, topic: str | None = None, group: str | None = None, kind: str | None = None,
        due_after: float | None = None, due_before: float | None = None,
    ) -> list[ScheduledCount]:  # fmt: skip
        """How many there are for each topic. Raises as `find`."""
        selection = chosen(topic, group, kind, due_after, due_before)
        self._check_running()
        return self._run(self._queries.count(selection))

    def cancel(
        self, ids: Collection[str] = (), *, topic: str | None = None, group: str | None = None,
        kind: str | None = None, due_after: float | None = None, due_before: float | None = None, every: bool = False,
    ) -> Changed:  # fmt: skip
        """Cancel messages by their ids, all that are selected, or every one: they are not delivered. What is returned
        is durable. Raises as `find`; some may be cancelled then."""
        selection = of_ids_or(ids, chosen(topic, group, kind, due_after, due_before), every=every)
        self._check_running()
        return self._run(self._queries.change(Cancel(selection=selection), ids))

    def reschedule(
        self, ids: Collection[str] = (), *, in_seconds: float | None = None, at: float | None = None,
        by_seconds: float | None = None, topic: str | None = None, group: str | None = None, kind: str | None = None,
        due_after: float | None = None, due_before: float | None = None, every: bool = False,
    ) -> Changed:  # fmt: skip
        """As `cancel`, to give them another time: from now on, a time (Unix seconds), or so much later than each was
        due. They have other ids then. Raises as `cancel`."""
        selection = of_ids_or(ids, chosen(topic, group, kind, due_after, due_before), every=every)
        question = rescheduling(selection, in_seconds, at, by_seconds)
        self._check_running()
        return self._run(self._queries.change(question, ids))
