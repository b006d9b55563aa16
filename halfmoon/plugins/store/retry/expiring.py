"""The TTL of a message goes on while it is negatively acknowledged and redelivered (docs/ttl.md).

It began when the message could be consumed first. So the first time, the broker works out until when the message is of
use, and that time stays with it (EXPIRES) through all redeliveries. What is still waiting then is not delivered
(services/waiting/expired.py). A message that has expired before it is negatively acknowledged is dead-lettered at once,
where its topic wants that.
"""

from __future__ import annotations

from halfmoon.plugin import Record
from halfmoon.plugin.moving import FOREVER, Lifetimes, Topics, expires_ms, milliseconds
from halfmoon.schema.lifetimes import CONSUMED_TIMESTAMP, EXPIRED, EXPIRES, FIRST_TOPIC

Place = tuple[str, int, int]
"""Topic, partition, offset."""


class Expiring:
    def __init__(self, lifetimes: Lifetimes, topics: Topics) -> None:
        self._lifetimes = lifetimes
        self._topics = topics

    def end_ms(self, record: Record, place: Place | None) -> int | None:
        """Until when a negatively acknowledged record, which was consumed there, is of use, Unix ms; None: for ever.

        A client that does not say the record's timestamp, by header or as the timestamp of the negative
        acknowledgement, begins the TTL anew."""
        said = dict(record.headers)
        known = milliseconds(said.get(EXPIRES))
        if known is not None:
            return known
        topic = None if place is None else self._topics.get(place[0])
        consumed_ms = milliseconds(said.get(CONSUMED_TIMESTAMP))
        by_header = topic is None or topic.rules.headers_enabled
        return expires_ms(
            record.headers if by_header else (),
            record.timestamp if consumed_ms is None else consumed_ms,
            FOREVER if topic is None else self._lifetimes.ttl_ms(topic),
        )

    def why_dead(self, end_ms: int, record: Record, place: Place | None) -> str | None:
        """The reason of its dead letter, where it has expired by now and is to get one."""
        if end_ms > self._lifetimes.now_ms():
            return None
        first = dict(record.headers).get(FIRST_TOPIC)
        topic = first.decode(errors="replace") if first else "" if place is None else place[0]
        if not self._lifetimes.dead_letters(topic):
            return None
        self._lifetimes.count("retry", 1, dead_lettered=True)
        return EXPIRED
