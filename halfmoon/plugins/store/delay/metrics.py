"""Metrics of cancelled messages."""

from __future__ import annotations

from typing import Protocol

from halfmoon.plugin import Family, PutNumber


class Waiting(Protocol):
    """What is read (halfmoon.plugin.moving.WaitingMessages)."""

    @property
    def cancelled(self) -> int: ...


FAMILIES = (Family("halfmoon_cancelled_messages_total", "counter", "Scheduled messages that were cancelled."),)


def read(waiting: Waiting, put: PutNumber) -> None:
    put("halfmoon_cancelled_messages_total", waiting.cancelled)
