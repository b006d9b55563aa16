"""What cancelling delayed messages tells in numbers."""

from __future__ import annotations

from typing import Protocol

from halfmoon.core.metrics import Family, Put


class Cancelling(Protocol):
    completed: int


FAMILIES = (Family("halfmoon_cancelled_messages_total", "counter", "Waiting messages that were cancelled."),)


def read(cancelling: Cancelling, put: Put) -> None:
    put("halfmoon_cancelled_messages_total", cancelling.completed)
