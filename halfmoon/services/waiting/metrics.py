"""Metrics of scheduled messages."""

from __future__ import annotations

from collections.abc import Mapping
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
    def waiting_in(self) -> Mapping[str, int]: ...


FAMILIES = (
    Family("halfmoon_scheduled_messages", "gauge", "Scheduled messages.", old_name="halfmoon_waiting_messages"),
    Family("halfmoon_scheduled_topic_messages", "gauge", "Scheduled messages by where they wait.", ("topic",)),
    Family("halfmoon_delivery_late_seconds", "gauge", "Lateness of the next due message."),
    Family("halfmoon_delivered_messages_total", "counter", "Scheduled messages that were delivered."),
    Family(
        "halfmoon_undeliverable_messages_total", "counter", "Messages whose topic did not exist when they were due."
    ),
    Family(
        "halfmoon_reclaim_moved_messages_total",
        "counter",
        "Scheduled messages moved out of old segments, to reclaim these.",
        old_name="halfmoon_rolled_messages_total",
    ),
)


def read(waiting: Waiting, put: Put) -> None:
    put("halfmoon_scheduled_messages", waiting.waiting())
    for topic, count in waiting.waiting_in().items():
        put("halfmoon_scheduled_topic_messages", count, topic)
    put("halfmoon_delivery_late_seconds", waiting.late_ms / 1000)
    put("halfmoon_delivered_messages_total", waiting.delivered)
    put("halfmoon_undeliverable_messages_total", waiting.undeliverable)
    put("halfmoon_reclaim_moved_messages_total", waiting.moved)
