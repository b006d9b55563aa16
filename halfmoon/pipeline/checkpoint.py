"""How far a streaming query has come, read from its checkpoint without starting Spark.

    checkpoint/offsets/N   what batch N was to read up to      checkpoint/commits/N   batch N is done

Both are text: a version line (`v1`), then JSON. An offsets file has one line of metadata, then a line per source;
for a Kafka source that line is {topic: {partition: next offset}}. A batch counts when its commit exists
(org.apache.spark.sql.execution.streaming.OffsetSeqLog and CommitLog).
"""

from __future__ import annotations

import json
from pathlib import Path

from halfmoon.pipeline.errors import PipelineError

TopicOffsets = dict[str, dict[int, int]]


def committed_offsets(checkpoint: Path) -> TopicOffsets:
    """{topic: {partition: next offset}} after the last finished batch; empty if there is none.

    Raises PipelineError if the files are there but say something else than this module knows.
    """
    done = [int(entry.name) for entry in _entries(checkpoint / "commits")]
    if not done:
        return {}
    path = checkpoint / "offsets" / str(max(done))
    try:
        version, _metadata, *sources = path.read_text().splitlines()
        if version != "v1":
            raise ValueError(f"version {version!r}")
        found: TopicOffsets = {}
        for source in sources:
            for topic, ends in json.loads(source).items():
                found[topic] = {int(partition): int(end) for partition, end in ends.items()}
    except (OSError, ValueError, AttributeError) as bad:
        raise PipelineError(f"the checkpoint file {path} cannot be understood: {bad}") from None
    return found


def _entries(log: Path) -> list[Path]:
    return [entry for entry in log.iterdir() if entry.name.isdigit()] if log.is_dir() else []
