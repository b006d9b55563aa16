"""How far a streaming query has come, read from its checkpoint without starting Spark.

    checkpoint/offsets/N   what batch N was to read up to      checkpoint/commits/N   batch N is done

Both are text: a version line (`v1`), then JSON. An offsets file has one line of metadata, then a line per source;
for a Kafka source that line is {topic: {partition: next offset}}. A batch counts when its commit exists
(org.apache.spark.sql.execution.streaming.OffsetSeqLog and CommitLog).

The metadata's `batchWatermarkMs` is the watermark that batch N worked with: all state that it closes was put out by
the time batch N was committed. `nextBatchWatermarkMs` in the commit is what batch N *found*, for batch N + 1; until
that one is committed nothing was put out by it. With the trigger `availableNow` Spark ends by running one more batch,
without data, whenever the last one moved the watermark; where that was prevented (by a kill, or by
spark.sql.streaming.noDataMicroBatches.enabled=false), only the first of the two numbers is right.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from halfmoon.pipeline.admin import TopicOffsets
from halfmoon.pipeline.errors import PipelineError
from halfmoon.pipeline.offsets import offsets_of, read_by_all


def committed_offsets(checkpoint: Path) -> TopicOffsets:
    """{topic: {partition: next offset}} after the last finished batch; empty if there is none. Where a query reads a
    topic twice, the lower offset.

    Raises PipelineError if the files are there but say something else than this module knows.
    """
    path = _last_finished(checkpoint)
    if path is None:
        return {}
    with _understood(path):
        _metadata, *sources = _lines(path)
        return read_by_all(offsets_of(json.loads(source)) for source in sources)


def watermark_of(checkpoint: Path) -> int:
    """The watermark of the last finished batch, in ms since 1970; 0 if there is no batch or it had none yet.

    Read it *before* the query's output where the query may be running: then the output holds all that the watermark
    promises, and perhaps more. Raises PipelineError as `committed_offsets` does.
    """
    path = _last_finished(checkpoint)
    if path is None:
        return 0
    with _understood(path):
        return int(json.loads(_lines(path)[0])["batchWatermarkMs"])


def _last_finished(checkpoint: Path) -> Path | None:
    """The offsets file of the last finished batch."""
    done = [int(entry.name) for entry in _entries(checkpoint / "commits")]
    return checkpoint / "offsets" / str(max(done)) if done else None


def _lines(path: Path) -> list[str]:
    """The metadata, then one line per source."""
    version, *lines = path.read_text().splitlines()
    if version != "v1":
        raise ValueError(f"version {version!r}")
    if not lines:
        raise ValueError("it has no metadata")
    return lines


@contextmanager
def _understood(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError, AttributeError, KeyError, TypeError) as bad:
        raise PipelineError(f"the checkpoint file {path} cannot be understood: {bad}") from None


def _entries(log: Path) -> list[Path]:
    return [entry for entry in log.iterdir() if entry.name.isdigit()] if log.is_dir() else []
