"""What lies in an archive, and which of it counts.

    ARCHIVE/_archive.json                                    which cluster and topics it is of, and their schemas
    ARCHIVE/_checkpoint/orders/                              Spark's: how far the archive of this topic has come
    ARCHIVE/topic=orders/date=2026-11-21/batch=000000007/    what micro-batch 7 had of that day (UTC, by timestamp)
    ARCHIVE/topic=orders/date=2026-11-21/batch=000000000-000000006/     what batches 0 to 6 had, in few files

A batch that is repeated after a crash has the same records, since its offsets stand in the checkpoint, and replaces its
directories as a whole. So nothing is ever there twice, and no list of files is needed that readers must know; other
programs read the directory as it is. Only while several batches are being made one do both lie there: `live` leaves out
what a complete directory with a wider range contains. It also leaves out batches that are not finished.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import date
from typing import Any

from halfmoon.pipeline.errors import PipelineError
from halfmoon.pipeline.files import Files

FORMAT = 1
MESSAGE_COLUMNS = (
    "key BINARY, value BINARY, tags STRING, keys STRING, headers ARRAY<STRUCT<key: STRING, value: BINARY>>,"
    " partition INT, offset BIGINT, timestamp TIMESTAMP"
)
PLACE_COLUMNS = "topic STRING, date DATE, batch STRING"

_BATCH = re.compile(r"batch=(\d{9,})(?:-(\d{9,}))?")


def topic_folder(archive: str, topic: str) -> str:
    return f"{archive}/topic={topic}"


def checkpoint_folder(archive: str, topic: str) -> str:
    return f"{archive}/_checkpoint/{topic}"


def merged_name(first: int, last: int) -> str:
    """The value of `batch` for those from `first` to `last`; that of a single one is what `archive` writes."""
    return f"{first:09d}-{last:09d}"


@dataclass(slots=True, frozen=True, order=True)
class BatchFolder:
    """The records that some batches had of a topic's day."""

    first: int
    last: int
    merged: bool
    path: str

    def contains(self, other: BatchFolder) -> bool:
        return self.first <= other.first and other.last <= self.last


@dataclass(slots=True)
class Manifest:
    """`_archive.json`."""

    cluster: str
    ids: dict[str, str] = field(default_factory=dict)
    """Topic → its id, which no later topic of that name has."""
    schemas: dict[str, str] = field(default_factory=dict)
    """Topic → schema of its values (DDL); topics whose values are kept as bytes alone are not here."""


def read_manifest(files: Files, archive: str) -> Manifest | None:
    """None where there is no archive yet. Raises PipelineError for one that this version does not know."""
    text = files.read(f"{archive}/_archive.json")
    if text is None:
        return None
    try:
        found: dict[str, Any] = json.loads(text)
        if found["format"] != FORMAT:
            raise ValueError(f"format {found['format']}")
        return Manifest(found["cluster"], dict(found["ids"]), dict(found["schemas"]))
    except (ValueError, KeyError, TypeError) as wrong:
        raise PipelineError(f"{archive}/_archive.json cannot be understood: {wrong}") from None


def write_manifest(files: Files, archive: str, manifest: Manifest) -> None:
    said = {"format": FORMAT, "cluster": manifest.cluster, "ids": manifest.ids, "schemas": manifest.schemas}
    files.write(f"{archive}/_archive.json", json.dumps(said, indent=1))


def topics(files: Files, archive: str) -> list[str]:
    return [entry.name[6:] for entry in files.entries(archive) if entry.name.startswith("topic=")]


def days(files: Files, archive: str, topic: str) -> list[date]:
    names = [entry.name for entry in files.entries(topic_folder(archive, topic))]
    return [date.fromisoformat(name[5:]) for name in names if name.startswith("date=") and "__HIVE" not in name]


def last_batch(files: Files, archive: str, topic: str) -> int:
    """The last micro-batch that is finished; −1 if none is."""
    names = (entry.name for entry in files.entries(f"{checkpoint_folder(archive, topic)}/commits"))
    return max((int(name) for name in names if name.isdigit()), default=-1)


def folders(files: Files, archive: str, topic: str, day: date) -> list[BatchFolder]:
    """All of a day, sorted by their batches. Of those that hold several batches, only those that are complete."""
    return [folder for folder, complete in _all_folders(files, archive, topic, day) if complete]


def unfinished(files: Files, archive: str, topic: str, day: date) -> list[BatchFolder]:
    """Those of several batches that are not complete: what they hold is in others as well.

    A compaction was killed while it wrote one, or while it removed one that a wider one contains.
    """
    return [folder for folder, complete in _all_folders(files, archive, topic, day) if not complete]


def is_complete(files: Files, path: str) -> bool:
    """Whether a folder of several batches holds all that it is named after."""
    return any(entry.name == "_SUCCESS" for entry in files.entries(path))


def _all_folders(files: Files, archive: str, topic: str, day: date) -> list[tuple[BatchFolder, bool]]:
    """Sorted, each with whether it is complete."""
    place = f"{topic_folder(archive, topic)}/date={day.isoformat()}"
    found = []
    for entry in files.entries(place):
        name = _BATCH.fullmatch(entry.name)
        if name is None:
            continue
        path = f"{place}/{entry.name}"
        merged = name[2] is not None
        folder = BatchFolder(int(name[1]), int(name[2] or name[1]), merged, path)
        found.append((folder, not merged or is_complete(files, path)))
    return sorted(found)


def live(found: Iterable[BatchFolder], last: int) -> list[BatchFolder]:
    """Those that count: of finished batches, and in no complete folder with a wider range.

    Up to `last` batches are finished, and those that were merged are: they may have become so after `last` was read.
    """
    merged = [folder for folder in found if folder.merged]
    finished = [folder for folder in found if folder.merged or folder.last <= last]
    return [folder for folder in finished if not any(wide.contains(folder) and wide != folder for wide in merged)]


def superseded(found: Iterable[BatchFolder]) -> list[BatchFolder]:
    """Those that a complete folder with a wider range contains: they can go."""
    found = list(found)
    counted = set(live(found, max((folder.last for folder in found), default=-1)))
    return [folder for folder in found if folder not in counted]
