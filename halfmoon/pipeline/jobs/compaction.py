"""Many small files of an archive into few large ones, while others read it and write to it.

Of a topic's day, finished batches that stand side by side and are small are written once more, into one directory that
is named after all of them; when that is complete (`_SUCCESS`), theirs are removed. Killed before that, the new
directory does not count; killed later, theirs do not (archive_files.live), and the next run removes them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date

from pyspark.sql import SparkSession

from halfmoon.pipeline.errors import PipelineError
from halfmoon.pipeline.files import Files, files_at
from halfmoon.pipeline.jobs.archive_files import (
    BatchFolder,
    batch_name,
    days,
    folders,
    last_batch,
    live,
    superseded,
    topic_folder,
)

TARGET_BYTES = 128 << 20
"""Of a file."""
FEWEST_FILES = 8
"""Small files side by side that are worth the work."""


@dataclass(slots=True, frozen=True)
class Compacted:
    """What was done."""

    files_before: int = 0
    files_after: int = 0


@dataclass(slots=True, frozen=True)
class _Sized:
    folder: BatchFolder
    files: int
    size: int


def compact(
    spark: SparkSession, archive: str, topic: str, *, target_bytes: int = TARGET_BYTES, fewest_files: int = FEWEST_FILES
) -> Compacted:
    """Merge what is small of a topic's archive. Raises PipelineError if what was written is not what was read; then
    nothing was removed."""
    files = files_at(spark, archive)
    last = last_batch(files, archive, topic)
    before = after = 0
    for day in days(files, archive, topic):
        for folder in superseded(folders(files, archive, topic, day)):
            files.remove(folder.path)
        for run in _runs(_sized(files, live(folders(files, archive, topic, day), last)), target_bytes):
            count = sum(each.files for each in run)
            if count >= fewest_files:
                before += count
                after += _merge(spark, files, archive, topic, day, run, target_bytes)
    return Compacted(before, after)


def _sized(files: Files, counted: Iterable[BatchFolder]) -> list[_Sized]:
    found = []
    for folder in counted:
        data = [entry.size for entry in files.entries(folder.path) if entry.name.endswith(".parquet")]
        found.append(_Sized(folder, len(data), sum(data)))
    return found


def _runs(sized: list[_Sized], target_bytes: int) -> list[list[_Sized]]:
    """Folders side by side that are small: their files have less than half of the target each, on average."""
    runs: list[list[_Sized]] = [[]]
    for each in sized:
        if each.size < max(each.files, 1) * target_bytes // 2:
            runs[-1].append(each)
        else:
            runs.append([])
    return [run for run in runs if len(run) > 1 or (run and run[0].files > 1 and not run[0].folder.merged)]


def _merge(
    spark: SparkSession, files: Files, archive: str, topic: str, day: date, run: list[_Sized], target_bytes: int
) -> int:
    """Write the folders as one, and remove them; the number of files that it has."""
    name = batch_name(run[0].folder.first, run[-1].folder.last)
    target = f"{topic_folder(archive, topic)}/date={day.isoformat()}/batch={name}"
    read = spark.read.parquet(*(each.folder.path for each in run))
    parts = max(1, -(-sum(each.size for each in run) // target_bytes))
    ordered = read.coalesce(1) if parts == 1 else read.repartitionByRange(parts, "partition", "offset")
    ordered = ordered.sortWithinPartitions("partition", "offset")
    ordered.write.mode("overwrite").option("compression", "zstd").parquet(target)
    expected, found = read.count(), spark.read.schema(read.schema).parquet(target).count()
    if found != expected:
        files.remove(target)
        raise PipelineError(f"{target} should hold {expected:,} records and holds {found:,}: nothing was changed")
    for each in run:
        files.remove(each.folder.path)
    return parts
