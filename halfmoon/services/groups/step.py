"""One step of the coordinator: at what time it happens, and what it has brought about so far."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from msgspec import Struct, field

from halfmoon.services.groups.messages import Effect, Persist, Record, Reply, Result


class Step(Struct):
    """Handed through everything that one event causes; `effects` stay in the order in which they came about."""

    mono_ms: int
    effects: list[Effect] = field(default_factory=list)

    def reply(self, token: object, result: Result) -> None:
        self.effects.append(Reply(token, result))

    def persist(self, record: Record) -> None:
        self.effects.append(Persist(record))


TimerAction: TypeAlias = Callable[[Step], None]
"""What a timer of the coordinator does when its time has come."""
