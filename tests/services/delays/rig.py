"""A broker on which messages are delayed and retried, and its scheduled messages asked about, without a network."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, TypeVar

from halfmoon.core.steps import Slices
from halfmoon.plugins.store.delay.delays import AT_TIMES, CANCEL, LEVEL_TOPIC, NAMES, TIMER_TOPIC, Delays
from halfmoon.plugins.store.retry.plugin import Retries
from halfmoon.plugins.store.retry.policies import Policies, RetrySettings
from halfmoon.services.delays import paging
from halfmoon.services.delays.paging import Asking, Result
from halfmoon.services.delays.questions import (
    Answer,
    Cancel,
    Changed,
    Question,
    Reschedule,
    ScheduledCount,
    ScheduledMessage,
    Selection,
)
from halfmoon.services.waiting.types import PutInterceptor
from halfmoon.testing.faulty_files import FaultyFileSystem
from halfmoon.testing.node import BareNode
from tests.core.bench import VirtualClock, open_broker, turn

Told = TypeVar("Told")
DAY_MS = 86_400_000
_delays = Delays([1_000, 60_000, 3_600_000], 40 * DAY_MS)
DELAYS = PutInterceptor(
    "delay", (*NAMES, CANCEL), _delays.before_put, scheduled_topics=(LEVEL_TOPIC, TIMER_TOPIC),
    clock_queues=((TIMER_TOPIC, AT_TIMES),), max_delay_ms=40 * DAY_MS,
)  # fmt: skip
RETRIES = PutInterceptor(
    "retry", (), Retries(Policies(RetrySettings()), lambda *_: False).before_put, topic_prefixes=("retry.",)
)


def reopen(fs: FaultyFileSystem, clock: VirtualClock, **settings: Any) -> BareNode:
    return open_broker(fs, clock, interceptors=[RETRIES, DELAYS], **settings)


class Some:
    """Rights to everything but what is named: (what, topic)."""

    def __init__(self, *refused: tuple[str, str]) -> None:
        self._refused = refused
        self.asked: list[tuple[str, str]] = []

    def _may(self, what: str, topic: str) -> bool:
        self.asked.append((what, topic))
        return (what, topic) not in self._refused

    def describes(self, topic: str, group: str | None) -> bool:
        return self._may("describe", topic)

    def reads(self, topic: str, group: str | None) -> bool:
        return self._may("read", topic)

    def cancels(self, topic: str, group: str | None) -> bool:
        return self._may("cancel", topic)

    def reschedules(self, topic: str, group: str | None) -> bool:
        return self._may("reschedule", topic)


def carry_out(slices: Slices[Told], meanwhile: Callable[[], object] = lambda: None) -> Told:
    """What they return; at each pause others have their turn."""
    value: Any = None
    while True:
        try:
            load = slices.send(value)
        except StopIteration as done:
            told: Told = done.value
            return told
        if load is None:
            meanwhile()
        value = None if load is None else load()


class Asker:
    """Somebody who asks this broker, and waits until the answer is durable."""

    def __init__(
        self, broker: BareNode, *refused: tuple[str, str], meanwhile: Callable[[], object] = lambda: None
    ) -> None:
        self.broker = broker
        self.rights = Some(*refused)
        self.questions = 0
        self._meanwhile = meanwhile

    def ask(self, question: Question) -> Answer:
        """Raises BrokerError."""
        self.questions += 1
        answer = carry_out(self.broker.delays.ask(question, self.rights), self._meanwhile)
        turn(self.broker)
        return answer

    def run(self, asking: Asking[Result]) -> Result:
        return paging.run(asking, self.ask)

    def first(self, most: int = 1_000, **selection: Any) -> list[ScheduledMessage]:
        return self.run(paging.page(Selection(**selection), most))[0]

    def counts(self, **selection: Any) -> list[ScheduledCount]:
        return self.run(paging.count(Selection(**selection)))

    def cancel(self, ids: Collection[str] = (), **selection: Any) -> Changed:
        return self.run(paging.change(Cancel(selection=None if ids else Selection(**selection)), list(ids)))

    def reschedule(self, ids: Collection[str] = (), *, selection: Selection | None = None, **time: int) -> Changed:
        chosen = None if ids else selection or Selection()
        return self.run(paging.change(Reschedule(selection=chosen, **time), list(ids)))


def keys(messages: Collection[ScheduledMessage]) -> list[bytes | None]:
    return [message.uniq_key for message in messages]
