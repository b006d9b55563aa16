"""What messages that wait tell in numbers."""

from __future__ import annotations

from typing import Protocol

from halfmoon.core.metrics import Family, Put


class Deliveries(Protocol):
    delivered: int
    lost_targets: int

    @property
    def late_ms(self) -> int: ...
    def waiting(self) -> int: ...


class Reclaim(Protocol):
    rolled: int


FAMILIES = (
    Family("halfmoon_waiting_messages", "gauge", "Messages that wait for their time."),
    Family("halfmoon_delivery_late_seconds", "gauge", "How late the next message is that is due now."),
    Family("halfmoon_delivered_messages_total", "counter", "Messages that were delivered after their wait."),
    Family("halfmoon_undeliverable_messages_total", "counter", "Messages whose topic was gone when they were due."),
    Family("halfmoon_rolled_messages_total", "counter", "Waiting messages that were moved out of old segments."),
)


def read(deliveries: Deliveries, reclaim: Reclaim, put: Put) -> None:
    put("halfmoon_waiting_messages", deliveries.waiting())
    put("halfmoon_delivery_late_seconds", deliveries.late_ms / 1000)
    put("halfmoon_delivered_messages_total", deliveries.delivered)
    put("halfmoon_undeliverable_messages_total", deliveries.lost_targets)
    put("halfmoon_rolled_messages_total", reclaim.rolled)
