"""What a consumer loop does with the records it got: the rules, without a client and without waiting.

    handled                        counts as done
    raised RetryLater              negatively acknowledged, with the delay that it names
    raised DeadLetter, or one of   dead-lettered at once
      `no_retry`
    raised anything else           handled again here, `retries` times; then negatively acknowledged

Without a `Nack` there is nobody to take a record that failed: the loop ends with the exception, and nothing from that
record on is committed.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, NamedTuple

from halfmoon.kafka.clients import consumed
from halfmoon.kafka.nacking import Nack

BACKOFF_S = 0.1
"""Before the first attempt here after a failure; twice as long before each further one."""
MOST_BACKOFF_S = 30.0

log = logging.getLogger("halfmoon.kafka")


class RetryLater(Exception):  # noqa: N818 (no error: what a handler decides)
    """Raised by a handler: redeliver this record later, without further attempts now. `delay_ms` or `level` (1 to 18)
    in place of the group's default delay."""

    def __init__(self, reason: str = "", *, delay_ms: int | None = None, level: int | None = None) -> None:
        super().__init__(reason)
        self.delay_ms = delay_ms
        self.level = level


class DeadLetter(Exception):  # noqa: N818 (as above)
    """Raised by a handler: this record cannot be handled, now or later."""


class Place(NamedTuple):
    topic: str
    partition: int


class Done:
    """What is handled and not committed yet: the next offset of each partition."""

    def __init__(self) -> None:
        self.offsets: dict[Place, int] = {}

    def add(self, record: Any) -> None:
        there = consumed(record)
        self.offsets[Place(there.topic, there.partition)] = there.offset + 1

    def take(self) -> dict[Place, int]:
        taken, self.offsets = self.offsets, {}
        return taken


class Rules:
    """Of one loop."""

    def __init__(self, nack: Nack | None, retries: int, backoff_s: float, no_retry: Sequence[type[Exception]]) -> None:
        if retries < 0 or backoff_s < 0:
            raise ValueError("retries and backoff_s are not negative")
        self.nack = nack
        self._retries = retries
        self._backoff_s = backoff_s
        self._no_retry: tuple[type[Exception], ...] = (DeadLetter, *no_retry)
        self.handled = 0
        self.nacked = 0
        self.dead_lettered = 0

    def again_after_s(self, record: Any, error: Exception, attempt: int, is_stopping: bool) -> float | None:
        """Whether to handle it once more here, and when. `attempt`: 1 for the first."""
        there = consumed(record)
        log.warning(
            "event=handler_failed topic=%s partition=%d offset=%d attempt=%d error=%r",
            there.topic, there.partition, there.offset, attempt, error,
        )  # fmt: skip
        if is_stopping or attempt > self._retries or isinstance(error, (RetryLater, *self._no_retry)):
            return None
        return float(min(MOST_BACKOFF_S, self._backoff_s * 2 ** min(attempt - 1, 30)))

    def failed(self, record: Any, error: Exception) -> None:
        """For good, here. Raises the error where there is nobody to take it."""
        if self.nack is None:
            raise error
        if isinstance(error, RetryLater):
            self.nack(record, delay_ms=error.delay_ms, level=error.level)
            self.nacked += 1
        elif isinstance(error, self._no_retry):
            self.nack.dead_letter(record, error=error)
            self.dead_lettered += 1
        else:
            self.nack(record, error=error)  # which the group's retry policy may say is not retryable
            self.nacked += 1
