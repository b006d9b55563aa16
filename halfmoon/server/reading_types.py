"""What readings consist of: numbers of one scrape, by the names of their families."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct, field

from halfmoon.core.metrics import Family
from halfmoon.server.catalogue import NARROW, WIDE

if TYPE_CHECKING:
    from halfmoon.core.durations import Durations
    from halfmoon.core.traffic import Traffic

OTHER_TOPICS = "(other)"
"""In place of a name, which no topic can have."""

Sample = tuple[tuple[str, ...], float]
"""Label values, in the family's order, and the number."""


class Histogram(NamedTuple):
    """`counts[i]` durations were at most `bounds_s[i]` and above the bound before; the last is of all longer ones."""

    bounds_s: tuple[float, ...]
    counts: tuple[int, ...]
    total_s: float

    def plus(self, other: Histogram) -> Histogram:
        counts = tuple(a + b for a, b in zip(self.counts, other.counts, strict=True))
        return Histogram(self.bounds_s, counts, self.total_s + other.total_s)


class TrafficReading(NamedTuple):
    """Of a topic, or of all that share what counts them (`OTHER_TOPICS`)."""

    topic: str
    in_bytes: int
    in_records: int
    out_bytes: int

    def plus(self, other: Traffic) -> TrafficReading:
        return TrafficReading(
            self.topic, self.in_bytes + other.in_bytes, self.in_records + other.in_records,
            self.out_bytes + other.out_bytes,
        )  # fmt: skip


class TopicReading(NamedTuple):
    name: str
    offsets: list[tuple[int, int] | None]
    """Start offset and high watermark, by partition; None where it lies elsewhere."""
    size_bytes: int

    def plus(self, other: TopicReading) -> TopicReading:
        """Each has the partitions of another part."""
        longer, shorter = (self, other) if len(self.offsets) >= len(other.offsets) else (other, self)
        offsets = list(longer.offsets)
        for index, each in enumerate(shorter.offsets):
            if each is not None:
                offsets[index] = each
        return TopicReading(self.name, offsets, self.size_bytes + other.size_bytes)


class GroupReading(NamedTuple):
    name: str
    members: int
    progress: list[tuple[str, int, int, int]]
    """Topic, partition, committed offset, high watermark."""


class Readings(Struct):
    """All of a scrape. `samples` and `histograms` are by the names of `families`."""

    families: list[Family] = field(default_factory=lambda: list(NARROW.values()))
    """Those with a handful of series each."""
    wide: list[Family] = field(default_factory=lambda: list(WIDE.values()))
    """Those with a series per topic, partition or group."""
    samples: dict[str, list[Sample]] = field(default_factory=dict)
    histograms: dict[str, list[tuple[tuple[str, ...], Histogram]]] = field(default_factory=dict)
    """With the values of their labels."""
    topics: list[TopicReading] = field(default_factory=list)
    groups: list[GroupReading] = field(default_factory=list)
    traffic: list[TrafficReading] = field(default_factory=list)

    def put(self, name: str, value: float, *labels: str) -> None:
        self.samples.setdefault(name, []).append((labels, value))

    def put_histogram(self, name: str, durations: Durations, *labels: str) -> None:
        histogram = Histogram(durations.bounds_s, tuple(durations.counts), durations.total_s)
        self.histograms.setdefault(name, []).append((labels, histogram))
