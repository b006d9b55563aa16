"""What goes into topics and out of them, counted by topic, for a number of topics that is bounded.

A topic gets counters of its own with its first record in or out; once `MOST_TOPICS` have some, all further topics share
`others`. So a node of 5,000 topics does not fill the monitoring system, and a counter never goes back: a topic keeps
the counters it has been given.
"""

from __future__ import annotations

from typing import Final, Protocol

MOST_TOPICS: Final = 1_000
"""Topics with counters of their own."""


class Traffic:
    """Since the start, or since the topic was made."""

    __slots__ = ("in_bytes", "in_records", "out_bytes")

    def __init__(self) -> None:
        self.in_bytes = 0
        """Of record batches that were appended, by producers and by the broker."""
        self.in_records = 0
        self.out_bytes = 0
        """Of record batches that clients got."""


class Counted(Protocol):
    """What has counters (catalog.topics.Topic)."""

    traffic: Traffic | None


class TrafficTable:
    """Gives each topic its counters."""

    def __init__(self, most_topics: int = MOST_TOPICS) -> None:
        self.others = Traffic()
        """Of the topics that have none of their own."""
        self._left = most_topics

    def of(self, topic: Counted) -> Traffic:
        """The counters of a topic that has none yet, which it has from now on."""
        if self._left:
            self._left -= 1
            topic.traffic = Traffic()
        else:
            topic.traffic = self.others
        return topic.traffic

    def deleted(self, topic: Counted) -> None:
        """Its place is free for another topic."""
        if topic.traffic is not None and topic.traffic is not self.others:
            self._left += 1
        topic.traffic = self.others

    def sent(self, topic: Counted, size_bytes: int) -> None:
        """A client has got so much of a topic."""
        (topic.traffic or self.of(topic)).out_bytes += size_bytes
