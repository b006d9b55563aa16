"""Metrics of cancelled messages."""

from __future__ import annotations

from typing import Protocol

from halfmoon.core.metrics import Family, Put


class Cancelling(Protocol):
    completed: int


FAMILIES = (Family("halfmoon_cancelled_messages_total", "counter", "Scheduled messages that were cancelled."),)


def read(cancelling: Cancelling, put: Put) -> None:
    put("halfmoon_cancelled_messages_total", cancelling.completed)
