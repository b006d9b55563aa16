"""Observers of plugins: told of every batch that is produced, fetched or refused (hook `halfmoon_observers`).

They are bound once. Where nobody observes, the broker's `append` is its own, and nothing here is called.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from halfmoon.errors import BrokerError
from halfmoon.hooks.types import Observer

if TYPE_CHECKING:
    from halfmoon.core.append import Produced, TransactionalProducer
    from halfmoon.core.catalog.topics import Partition
    from halfmoon.core.kernel import Kernel

RECORD_COUNT_AT = 57
"""In a batch."""

log = logging.getLogger("halfmoon.plugins")


class Observing:
    def __init__(self, kernel: Kernel, observers: Sequence[Observer]) -> None:
        self._kernel = kernel
        self._append = kernel.append
        self._produced = _bound(observers, "on_produced", self._leave)
        self._fetched = _bound(observers, "on_fetched", self._leave)
        self._refused = _bound(observers, "on_refused", self._leave)
        self._gone: set[str] = set()
        if self._produced or self._refused:
            kernel.append = self._observed
        self._bind()

    def _bind(self) -> None:
        self._kernel.on_fetched = tuple(call for _, call in self._fetched)

    def _leave(self, observer: Observer) -> None:
        """It has raised: it is called no more."""
        self._produced = [each for each in self._produced if each[0] is not observer]
        self._fetched = [each for each in self._fetched if each[0] is not observer]
        self._refused = [each for each in self._refused if each[0] is not observer]
        self._bind()

    def _observed(
        self, partition: Partition, batch: memoryview, now_ms: int, producer: TransactionalProducer | None = None
    ) -> Produced:
        """As Appender.append."""
        log_end = self._kernel.log.end
        count = int.from_bytes(batch[RECORD_COUNT_AT : RECORD_COUNT_AT + 4], "big")
        size = len(batch)
        try:
            produced = self._append(partition, batch, now_ms, producer)
        except BrokerError as error:
            for _, call in self._refused:
                call(partition.topic.name, partition.index, error.fault)
            raise
        if self._kernel.log.end != log_end:  # else it has come before
            for _, call in self._produced:
                call(partition.topic.name, partition.index, count, size)
        return produced


def _bound(
    observers: Sequence[Observer], name: str, leave: Callable[[Observer], None]
) -> list[tuple[Observer, Callable[..., None]]]:
    return [(each, _guarded(each, call, leave)) for each in observers if (call := getattr(each, name)) is not None]


def _guarded(observer: Observer, call: Callable[..., None], leave: Callable[[Observer], None]) -> Callable[..., None]:
    def guarded(*given: Any) -> None:
        try:
            call(*given)
        except Exception:
            log.exception("event=observer_failed observer=%s", observer.name)
            leave(observer)

    return guarded
