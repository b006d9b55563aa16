"""`$.log`: the files of the commitlog, how safe and how long they are kept, and what works on them meanwhile."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from halfmoon.config.sections import Section
from halfmoon.config.units import DURATION, SIZE, Duration, PositiveDuration, PositiveSize, Size

SegmentSize = Annotated[int, Meta(ge=64 << 10, le=2 << 30, extra={"unit": SIZE})]


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


class LogSettings(Section, frozen=True, kw_only=True):
    """The commitlog: files, durability, retention."""

    segment_bytes: SegmentSize = 1 << 30
    flush: Literal["sync", "interval"] = "sync"
    flush_interval_ms: PositiveDuration = 100
    flush_bytes: PositiveSize = 32 << 20
    retention_ms: Duration | None = 7 * 86_400_000
    """Counts from store time; None keeps for ever."""
    retention_bytes: Size | None = None
    """Per partition."""
    validate: Literal["header", "records"] = "records"
    low_disk_bytes: Size | None = None
    """Record batches are refused when less is free; None: two segments of the next one's size, so that control frames
    still fit."""
    index_checkpoint_bytes: PositiveSize = 64 << 20
    hot_bytes: Size = 128 << 20
    """Reads this near the log's end are served from the mapped file in the loop; older ones in a thread if they have
    to wait for the disk."""
    cold_bytes: Size | None = None
    """So much of what was read from the disk stays in the page cache; None means a quarter of the memory."""
    cleaner: CleanerSettings = CleanerSettings()
    scrubber: ScrubberSettings = ScrubberSettings()
