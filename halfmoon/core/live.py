"""A value that may be replaced while the broker runs, such as its settings.

Whoever keeps the value itself keeps an old one: take `current` when it is used, or subscribe.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Live(Generic[T]):
    __slots__ = ("_subscribers", "current")

    def __init__(self, value: T) -> None:
        self.current = value
        self._subscribers: list[Callable[[T], None]] = []

    def subscribe(self, changed: Callable[[T], None]) -> Callable[[], None]:
        """Call back with each new value, in the order of subscription. Not with the present one. Returns how that is
        undone, which any thread may do."""
        return subscribed(self._subscribers, changed)

    def replace(self, value: T) -> None:
        self.current = value
        for changed in tuple(self._subscribers):
            changed(value)


def subscribed(listeners: list[T], listener: T) -> Callable[[], None]:
    """It is one of the listeners from now on. Returns how that is undone; once more changes nothing."""

    def undo() -> None:
        if listener in listeners:
            listeners.remove(listener)

    listeners.append(listener)
    return undo
