"""What messages that wait tell in numbers."""

from __future__ import annotations

from typing import Protocol

from halfmoon.core.metrics import Family, Put


class Waiting(Protocol):
    """What is read (service.WaitingService)."""

    @property
    def late_ms(self) -> int: ...
    @property
    def delivered(self) -> int: ...
    @property
    def undeliverable(self) -> int: ...
    @property
    def moved(self) -> int: ...
    def waiting(self) -> int: ...


FAMILIES = (
    Family("halfmoon_waiting_messages", "gauge", "Messages that wait for their time."),
    Family("halfmoon_delivery_late_seconds", "gauge", "How late the next message is that is due now."),
    Family("halfmoon_delivered_messages_total", "counter", "Messages that were delivered after their wait."),
    Family("halfmoon_undeliverable_messages_total", "counter", "Messages whose topic was gone when they were due."),
    Family("halfmoon_rolled_messages_total", "counter", "Waiting messages that were moved out of old segments."),
)


def read(waiting: Waiting, put: Put) -> None:
    put("halfmoon_waiting_messages", waiting.waiting())
    put("halfmoon_delivery_late_seconds", waiting.late_ms / 1000)
    put("halfmoon_delivered_messages_total", waiting.delivered)
    put("halfmoon_undeliverable_messages_total", waiting.undeliverable)
    put("halfmoon_rolled_messages_total", waiting.moved)
