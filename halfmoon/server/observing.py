"""Observers of plugins: told of what is produced, fetched and refused, and of what groups do with single messages
(hook `halfmoon_observers`).

They are bound once. Where nobody observes, the broker's `append` is its own, and nothing here is called.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from halfmoon.core.checking import Checked
from halfmoon.errors import AsksFirstError, BrokerError, NotHereYetError, TakesLongError
from halfmoon.hooks.errors import PluginErrors
from halfmoon.hooks.types import Observer
from halfmoon.services.common.group_events import GroupEvents
from halfmoon.services.share.service import ShareService

if TYPE_CHECKING:
    from halfmoon.core.append_types import Produced, Sender, TransactionalProducer
    from halfmoon.core.catalog.topics import Partition
    from halfmoon.server.assembly import Node

RECORD_COUNT_AT = 57
"""In a batch."""

log = logging.getLogger("halfmoon.plugins")

Bound = list[tuple[Observer, Callable[..., None]]]
_EVENTS = ("acknowledged", "redelivered", "dead_lettered")


class Observing:
    def __init__(self, node: Node, observers: Sequence[Observer], errors: PluginErrors) -> None:
        self._kernel = node.kernel
        self._errors = errors
        self._append = node.kernel.append
        self._produced = self._bound(observers, "on_produced")
        self._fetched = self._bound(observers, "on_fetched")
        self._refused = self._bound(observers, "on_refused")
        self._groups = {name: self._bound(observers, f"on_{name}") for name in _EVENTS}
        self._events = GroupEvents()
        if self._produced or self._refused:
            node.kernel.append = self._observed
        if any(self._groups.values()):
            node.waiting.watched_by(self._events)
            shares = node.services.find(ShareService)
            if shares is not None:
                shares.delivery.events = self._events
        self._bind()

    def _bind(self) -> None:
        self._kernel.on_fetched = tuple(call for _, call in self._fetched)
        for name, bound in self._groups.items():
            setattr(self._events, name, tuple(call for _, call in bound))

    def _leave(self, observer: Observer) -> None:
        """It has raised: it is called no more."""
        self._produced = _without(observer, self._produced)
        self._fetched = _without(observer, self._fetched)
        self._refused = _without(observer, self._refused)
        self._groups = {name: _without(observer, bound) for name, bound in self._groups.items()}
        self._bind()

    def _observed(
        self,
        partition: Partition,
        batch: memoryview,
        now_ms: int,
        producer: TransactionalProducer | None = None,
        may_wait: bool = False,
        checked: Checked | None = None,
        prepared: object = None,
        sender: Sender | None = None,
    ) -> Produced:
        """As Appender.append."""
        log_end = self._kernel.log.end
        count = int.from_bytes(batch[RECORD_COUNT_AT : RECORD_COUNT_AT + 4], "big")
        size = len(batch)
        try:
            produced = self._append(partition, batch, now_ms, producer, may_wait, checked, prepared, sender)
        except (NotHereYetError, TakesLongError, AsksFirstError):
            raise  # it will be asked again
        except BrokerError as error:
            for _, call in self._refused:
                call(partition.topic.name, partition.index, error.fault)
            raise
        if self._kernel.log.end != log_end:  # else it has come before
            for _, call in self._produced:
                call(partition.topic.name, partition.index, count, size)
        return produced

    def _bound(self, observers: Sequence[Observer], name: str) -> Bound:
        return [(each, self._guarded(each, call)) for each in observers if (call := getattr(each, name)) is not None]

    def _guarded(self, observer: Observer, call: Callable[..., None]) -> Callable[..., None]:
        def guarded(*given: Any) -> None:
            try:
                call(*given)
            except Exception:
                self._errors.count_of("halfmoon_observers", observer.name)
                log.exception("event=observer_failed observer=%s", observer.name)
                self._leave(observer)

        return guarded


def _without(observer: Observer, bound: Bound) -> Bound:
    return [each for each in bound if each[0] is not observer]
