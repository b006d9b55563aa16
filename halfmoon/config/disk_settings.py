"""`$.log.cleaner` and `$.log.scrubber`: what works on the log's files in the background."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from halfmoon.config.sections import Section
from halfmoon.config.units import DURATION, Duration, PositiveDuration, PositiveSize


class CleanerSettings(Section, frozen=True, kw_only=True):
    """Compaction, and copying what lives out of files that are mostly dead."""

    enable: bool = True
    interval_ms: PositiveDuration = 15_000
    """How often it is looked whether there is something to clean (Kafka: log.cleaner.backoff.ms)."""
    memory_bytes: PositiveSize = 128 << 20
    """For the keys of the partition that is being compacted; more keys take more passes."""
    bytes_per_second: PositiveSize | None = None
    """So much is read and written at most; None does not limit it."""
    min_dead_ratio: Annotated[float, Meta(ge=0.1, le=1)] = 0.5
    """Files of which this part is dead are emptied."""
    min_dirty_ratio: Annotated[float, Meta(ge=0, le=1)] = 0.5
    """Per topic `min.cleanable.dirty.ratio`."""
    delete_retention_ms: Duration = 86_400_000
    """Per topic `delete.retention.ms`."""
    min_compaction_lag_ms: Duration = 0
    """Per topic `min.compaction.lag.ms`."""


class ScrubberSettings(Section, frozen=True, kw_only=True):
    """Reading all of the log again and again, in search of what the disk has corrupted."""

    interval_ms: Annotated[int, Meta(ge=60_000, extra={"unit": DURATION})] = 7 * 86_400_000
    """From the beginning of one pass to that of the next (Ceph: osd_deep_scrub_interval)."""
    bytes_per_second: PositiveSize = 4 << 20
