"""Many small files of an archive into few large ones, while others read it and write to it.

Of a topic's day, finished batches that stand side by side and are small are written once more, into one directory that
is named after all of them; when that is complete (`_SUCCESS`), theirs are removed. Killed before that, the new
directory does not count; killed later, theirs do not (archive_files.live). The next run removes what does not count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import date

from pyspark.sql import SparkSession

from halfmoon.pipeline.errors import PipelineError
from halfmoon.pipeline.files import Files, files_at
from halfmoon.pipeline.jobs.archive_files import (
    BatchFolder,
    days,
    folders,
    is_complete,
    last_batch,
    live,
    merged_name,
    superseded,
    topic_folder,
    unfinished,
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
    spark: SparkSession,
    archive: str,
    topic: str,
    *,
    target_bytes: int = TARGET_BYTES,
    fewest_files: int = FEWEST_FILES,
    on_tick: Callable[[], None] | None = None,
) -> Compacted:
    """Merge what is small of a topic's archive; for the one process that writes it. `on_tick` is called between merges.

    Raises PipelineError if what was written is not what was read; then nothing was removed.
    """
    files = files_at(spark, archive)
    last = last_batch(files, archive, topic)
    before = after = 0
    for day in days(files, archive, topic):
        # Both stand in others as well. Readers that know nothing of `_SUCCESS` would see them twice.
        for folder in (*unfinished(files, archive, topic, day), *superseded(folders(files, archive, topic, day))):
            files.remove(folder.path)
        for run in _runs(_sized(files, live(folders(files, archive, topic, day), last)), target_bytes):
            if on_tick is not None:
                on_tick()
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
    name = merged_name(run[0].folder.first, run[-1].folder.last)
    target = f"{topic_folder(archive, topic)}/date={day.isoformat()}/batch={name}"
    read = spark.read.parquet(*(each.folder.path for each in run))
    parts = max(1, -(-sum(each.size for each in run) // target_bytes))
    ordered = read.coalesce(1) if parts == 1 else read.repartitionByRange(parts, "partition", "offset")
    ordered = ordered.sortWithinPartitions("partition", "offset")
    ordered.write.mode("overwrite").option("compression", "zstd").parquet(target)
    expected, found = read.count(), spark.read.schema(read.schema).parquet(target).count()
    if found != expected:
        # First what makes it count: killed in between, it must not stand for those that it was made of.
        files.remove(f"{target}/_SUCCESS")
        files.remove(target)
        raise PipelineError(f"{target} should hold {expected:,} records and holds {found:,}: nothing was changed")
    if not is_complete(files, target):
        # Were the others removed now, nothing would count any more.
        raise PipelineError(f"{target} has no _SUCCESS: is mapreduce.fileoutputcommitter.marksuccessfuljobs off?")
    for each in run:
        files.remove(each.folder.path)
    return parts
