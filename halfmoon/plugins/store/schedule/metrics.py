"""Metrics of recurring messages."""

from __future__ import annotations

from halfmoon.plugin import Family, PutNumber
from halfmoon.plugins.store.schedule.book import Book
from halfmoon.plugins.store.schedule.firing import Counters

FAMILIES = (
    Family("halfmoon_schedules", "gauge", "Schedules of recurring messages.", ("state",)),
    Family("halfmoon_schedule_messages_total", "counter", "Messages that were sent on a schedule."),
    Family("halfmoon_schedule_missed_total", "counter", "Times of schedules that were missed."),
    Family("halfmoon_schedule_refused_total", "counter", "Times of schedules at which the message was refused."),
)


def read(book: Book, counters: Counters, put: PutNumber) -> None:
    put("halfmoon_schedules", len(book) - book.paused, "active")
    put("halfmoon_schedules", book.paused, "paused")
    put("halfmoon_schedule_messages_total", counters.sent)
    put("halfmoon_schedule_missed_total", counters.missed)
    put("halfmoon_schedule_refused_total", counters.refused)
