"""`halfmoon log verify`: what is wrong with a data directory, without touching it, its broker running or not.

It reads every frame (checksums, positions, generations) and every record, holds the index files against the log, and
looks at the clean files and the checkpoint. Nothing is repaired: the next start does that.

While a broker runs, two things move: the end of the log grows, and the oldest segments expire. What looked damaged
because it was being written is looked at again before it is reported; a segment whose name is gone has expired and is
not reported.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import msgspec

from halfmoon.core import clean_files, clean_mark
from halfmoon.core.catalog import snapshot
from halfmoon.core.records.batches import validate_records
from halfmoon.core.storage import bounds, index
from halfmoon.core.storage.files import FileSystem, OsFileSystem, read_file
from halfmoon.core.storage.frame import BadFrameError, Frame, Kind
from halfmoon.core.storage.index import IndexFile, Key
from halfmoon.core.storage.log_files import MissingFile, list_segments, segment_path
from halfmoon.core.storage.scan import Scan, read_frame
from halfmoon.core.storage.segment import Segment
from halfmoon.errors import BrokerError
from halfmoon.offline.index_check import IndexCheck
from halfmoon.offline.opening import clean_segment, open_segments
from halfmoon.schema import control
from halfmoon.schema.snapshot import Snapshot
from halfmoon.services.keyindex import key_file

Progress = Callable[[int, int], None]
"""Called now and then with bytes read and bytes there are."""

_PROGRESS_FRAMES = 16384
MOST_NAMED = 100
"""Unreadable batches of which a sentence says where they are; all are counted."""


@dataclass(slots=True)
class Report:
    """What `verify` found. Positions are log positions; stretches are [from, to)."""

    segments: int = 0
    start: int = 0
    end: int = 0
    """Where the log ends: behind its last whole frame."""
    frames: int = 0
    batches: int = 0
    records: int = 0
    control_records: int = 0
    generation: int = 0
    """The newest one."""
    unreadable: int = 0
    """Batches whose records are not what their header says: a version before 0.3, or `log.validate: header`, took them
    from a producer."""
    unreadable_at: list[tuple[int, int]] = field(default_factory=list)
    """Their frames."""
    damaged: list[tuple[int, int]] = field(default_factory=list)
    """Stretches lost to rot."""
    torn_bytes: int = 0
    """Bytes behind `end` that a start will cut: frames whose writing was cut off. No damage."""
    index_files: int = 0
    key_files: int = 0
    clean_files: int = 0
    checkpoint: int | None = None
    """The position that the checkpoint is true for; None where there is none to be trusted."""
    clean: bool = False
    """The broker was stopped cleanly; nothing follows the checkpoint."""
    rebuildable: list[str] = field(default_factory=list)
    """Paths of files that are wrong, and that a start makes again where there are none."""
    problems: list[str] = field(default_factory=list)
    """What else is wrong, a sentence each."""

    @property
    def ok(self) -> bool:
        return not self.damaged and not self.problems


def verify(directory: str | os.PathLike[str], progress: Progress | None = None) -> Report:
    """Read a whole data directory and say what is wrong with it.

    Raises StartError where it is no data directory, or one of a newer version; OSError where it cannot be read.
    """
    return verify_files(OsFileSystem(directory, read_only=True), progress)


def verify_files(fs: FileSystem, progress: Progress | None = None) -> Report:
    """As `verify`, over any file system."""
    with open_segments(fs) as segments:
        return _Verification(fs, segments, progress).run()


class _Verification:
    def __init__(self, fs: FileSystem, segments: Sequence[Segment], progress: Progress | None) -> None:
        self._fs = fs
        self._segments = segments
        self._progress = progress
        self._report = Report(segments=len(segments))
        self._catalog: dict[Key, int] = {}
        """Partitions of topics that still exist → their start offsets."""

    def run(self) -> Report:
        report, segments = self._report, self._segments
        self._missing()
        report.start = report.end = segments[0].start if segments else 0
        saved = self._checkpoint()
        files = self._index_files()
        self._key_files()
        flushed = max((file.end for file in files), default=0)
        if saved is not None:
            flushed = max(flushed, saved.position)
            if segments and saved.position > segments[-1].end:
                report.problems.append(f"the checkpoint is for {saved.position}, but the log ends before")
        scan = Scan(segments, report.start, 0, flushed)
        self._walk(scan, files)
        report.end, report.torn_bytes, report.generation = scan.position, scan.torn_bytes, scan.generation
        report.damaged = [stretch for stretch in scan.damaged if self._is_damaged(*stretch)]
        self._clean_files(set() if saved is None else _named(saved))
        return report

    def _missing(self) -> None:
        segments, found = self._segments, []
        floor = bounds.load_floor(self._fs)
        saved = snapshot.load(self._fs)
        believed = floor is not None and (saved is None or floor.generation >= saved.generation)
        if floor is not None and believed and segments and floor.position < segments[0].start:
            found.append((floor.position, segments[0].start))
        found += [(segment.start, segment.end) for segment in segments if isinstance(segment.file, MissingFile)]
        self._report.problems += [
            f"log files are missing or cut short: positions {low} to {high}" for low, high in found
        ]

    def _checkpoint(self) -> Snapshot | None:
        report = self._report
        saved = snapshot.load(self._fs)
        if saved is None:
            if read_file(self._fs, snapshot.PATH) is not None:
                report.problems.append("the checkpoint cannot be read; the next start will do without")
                report.rebuildable.append(snapshot.PATH)
            return None
        report.checkpoint = saved.position
        report.clean = saved.clean and clean_mark.read(self._fs) == saved.position
        for topic in saved.topics:
            for number, partition in enumerate(topic.partitions):
                self._catalog[Key(topic.number, number)] = partition.start_offset
        return saved

    def _index_files(self) -> list[IndexFile]:
        """The index files that may be used, in order; of two that overlap the longer, as a start does."""
        files: list[IndexFile] = []
        for _, _, path in sorted(index.listed(self._fs), key=lambda entry: (entry[0], -entry[1])):
            try:
                file = index.open_file(self._fs, path)
                if not file.columns_intact():
                    raise ValueError("columns checksum")
            except FileNotFoundError:  # merged or expired meanwhile
                continue
            except ValueError as error:
                self._wrong(path, f"index file {path}: {error}; it can be rebuilt from the log")
                continue
            self._report.index_files += 1
            if not files or file.start >= files[-1].end:
                files.append(file)
        return files

    def _key_files(self) -> None:
        for _, _, path in key_file.listed(self._fs):
            try:
                if not key_file.open_file(self._fs, path).intact():
                    raise ValueError("entries checksum")
            except FileNotFoundError:  # expired meanwhile
                continue
            except ValueError as error:
                self._wrong(path, f"key file {path}: {error}; it can be rebuilt from the log")
                continue
            self._report.key_files += 1

    def _clean_files(self, named: set[int]) -> None:
        """Every frame of each, and whether its index has all of them, and no others."""
        report = self._report
        present = clean_files.listed(self._fs)
        missing = named - set(present)
        if missing and self._report.clean:  # else the log may say that they have been replaced
            report.problems += [f"compacted segment {start:020d} is missing" for start in sorted(missing)]
        for start in present:
            with clean_segment(self._fs, start) as segment:
                if segment is None:  # it has been replaced meanwhile
                    continue
                report.clean_files += 1
                rows = []
                for low, high, frame, payload in clean_files.frames(segment):
                    if frame is None or payload is None:
                        report.damaged.append((low, high))
                    elif frame.kind == Kind.BATCH:
                        report.frames += 1
                        self._batch(frame, payload)
                        rows.append(frame.payload_position)
                try:
                    indexed = clean_files.open_index(self._fs, segment)
                    if not indexed.columns_intact():
                        raise ValueError("columns checksum")
                    if not set(rows) <= set(indexed.columns.position):
                        raise ValueError("lacks batches")
                except FileNotFoundError:
                    if start in clean_files.listed(self._fs):
                        report.problems.append(
                            f"compacted segment {start:020d} has no index; the next start rebuilds it"
                        )
                except ValueError as error:
                    problem = f"index of compacted segment {start:020d}: {error}; it can be rebuilt from the segment"
                    self._wrong(clean_files.index_path(start), problem)

    def _walk(self, scan: Scan, files: Sequence[IndexFile]) -> None:
        report = self._report
        check = IndexCheck(files, self._catalog)
        total = sum(segment.size for segment in self._segments)
        for frame, payload in scan.frames():
            report.frames += 1
            if self._progress is not None and report.frames % _PROGRESS_FRAMES == 0:
                self._progress(frame.position - report.start, total)
            if payload is None:
                continue
            if frame.kind == Kind.BATCH:
                self._batch(frame, payload)
                check.batch(frame)
            elif frame.kind == Kind.CONTROL:
                report.control_records += 1
                try:
                    control.decode(payload)
                except msgspec.DecodeError as error:
                    report.problems.append(
                        f"the control record at {frame.position} is unknown to this version: {error}"
                    )
        for path, problem in check.finish(scan.position).items():
            self._wrong(path, problem)
        if self._progress is not None:
            self._progress(total, total)

    def _batch(self, frame: Frame, payload: memoryview) -> None:
        """Count it, and look at its records."""
        report = self._report
        report.batches += 1
        report.records += frame.record_count
        try:
            validate_records(payload)
        except BrokerError as error:
            report.unreadable += 1
            report.unreadable_at.append((frame.position, frame.end))
            if report.unreadable <= MOST_NAMED:
                report.problems.append(
                    f"the batch at {frame.position}, offset {frame.base_offset} of partition {frame.partition} of "
                    f"topic number {frame.topic_number}, cannot be read: {error.message}"
                )

    def _wrong(self, path: str, problem: str) -> None:
        self._report.problems.append(problem)
        self._report.rebuildable.append(path)

    def _is_damaged(self, low: int, high: int) -> bool:
        """Whether what looked damaged still does: it may have been written, or have expired, since."""
        for segment in self._segments:
            if segment.start <= low < segment.end:
                if (segment.start, segment_path(segment.start)) not in list_segments(self._fs):
                    return False
                try:
                    frame, _ = read_frame(segment, low, 0)
                except BadFrameError:
                    return True
                return frame.end > high
        return True


def _named(saved: Snapshot) -> set[int]:
    """The clean files that a checkpoint names."""
    return {start for topic in saved.topics for partition in topic.partitions for _, _, start in partition.cleaned}
