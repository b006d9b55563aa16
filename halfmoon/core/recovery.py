"""What a start does before the first request: find out what the log holds, and make everything else from it (B09).

The order:

1. Choose a snapshot: the checkpoint file; failing that, the newest one at the head of a segment that is known to have been
   flushed; failing that, nothing, from the beginning of the log.
2. Below the snapshot's position use the index files; scan the log where one is missing.
3. From the snapshot's position scan to the tail, and apply every frame.
4. Decide what damage is. A frame counts only if it stands where it says, its generation is not below that of the frame before
   it, and all checksums, lengths and offsets agree. Where one does not, look on: if any whole frame, before or after, says that the
   log was flushed beyond this place, the damage is *rot* (the disk lost what it had): step over it, report it, never cut. If
   none does, it is a *torn tail*: nobody was promised anything here; cut.
5. Write what was not known to be flushed once more, in place, and sync. The page cache may hold bytes whose fsync failed
   before this start and that the kernel counts as clean; only a new write makes it try again.

A clean stop leaves its mark, and then there is nothing to scan.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from halfmoon.core import control, index, snapshot
from halfmoon.core.catalog import Catalog
from halfmoon.core.commitlog import CommitLog, Segment, SyncJob
from halfmoon.core.dispatch import Appended, Dispatch, adopt, write_index
from halfmoon.core.errors import StartError
from halfmoon.core.files import FileSystem, read_file, write_all, write_file
from halfmoon.core.frame import MAGIC, BadFrame, Frame, Kind, UnknownVersion, check_payload, decode
from halfmoon.core.index_files import IndexFiles
from halfmoon.core.producer_state import Producers
from halfmoon.core.records import HEADER, BatchHeader

if TYPE_CHECKING:
    from halfmoon.core.config import Settings

CLEAN_MARK = "clean"
_DISPATCH_FRAMES = 4096
"""How many batches go to dispatch at once."""


@dataclass(slots=True)
class Report:
    """What a start found. Positions are log positions."""

    clean: bool = False
    snapshot_position: int = 0
    end: int = 0
    generation: int = 0
    frames: int = 0
    torn_bytes: int = 0
    """Bytes of the cut tail in which there was something."""
    damaged: list[tuple[int, int]] = field(default_factory=list)
    """Stretches lost to rot."""
    indexed_again: int = 0
    """Bytes of the log below the snapshot that had to be scanned for want of an index file."""


class Scan:
    """Walks the log from a frame boundary to wherever it ends. Iterate `frames()` to its end, then look at the fields."""

    def __init__(self, log: CommitLog, position: int, generation: int, flushed: int) -> None:
        self._log = log
        self.position = position
        self.generation = generation
        self.flushed = flushed
        """The highest position that anything seen so far says was on disk."""
        self.damaged: list[tuple[int, int]] = []
        self.torn_bytes = 0
        self._ahead: tuple[int | None, int] | None = None

    def frames(self) -> Iterator[tuple[Frame, memoryview]]:
        """Whole frames in order, frame groups only when they are complete; stepping over rot, stopping at the end."""
        group: list[tuple[Frame, memoryview]] = []
        while (segment := self._segment()) is not None:
            try:
                frame, payload = read_frame(segment, self.position, self.generation)
            except BadFrame:
                if not self._step_over():
                    break
                continue
            self.generation = frame.generation
            self.flushed = max(self.flushed, frame.flushed)
            if group and frame.part != len(group):
                self.damaged.append((group[0][0].position, frame.position))
                group = []
            if frame.parts == 1:
                yield frame, payload
            elif frame.part == len(group):
                group.append((frame, payload))
                if len(group) == frame.parts:
                    yield from group
                    group = []
            self.position = frame.end
        if group:  # the rest of it never came
            self.torn_bytes += self.position - group[0][0].position
            self.position = group[0][0].position

    def _segment(self) -> Segment | None:
        segments = self._log.segments
        if not segments or self.position >= segments[-1].end:
            return None
        return self._log.segment_at(self.position)

    def _step_over(self) -> bool:
        """Something is wrong at `position`: rot to step over, or the end of the log?"""
        at = self.position
        following, flushed = self._look_ahead()
        self.flushed = max(self.flushed, flushed)
        if self.flushed <= at:
            self.torn_bytes += self._nonzero_tail(at)
            return False
        self.position = following if following is not None else self.flushed
        self.damaged.append((at, self.position))
        return following is not None

    def _look_ahead(self) -> tuple[int | None, int]:
        """(position of the next whole frame, highest flushed mark of all whole frames from here on)."""
        if self._ahead is not None and self._ahead[0] is not None and self._ahead[0] > self.position:
            return self._ahead
        following: int | None = None
        flushed = 0
        for segment in self._log.segments:
            if segment.end <= self.position:
                continue
            after = max(0, self.position + 1 - segment.start)
            for match in re.finditer(re.escape(MAGIC), segment.view[after:]):
                with contextlib.suppress(BadFrame):
                    frame, _ = read_frame(segment, segment.start + after + match.start(), self.generation)
                    following = frame.position if following is None else following
                    flushed = max(flushed, frame.flushed)
        self._ahead = following, flushed
        return self._ahead

    def _nonzero_tail(self, at: int) -> int:
        """Bytes from `at` to the last one that is not zero, in this segment: what a cut throws away, roughly."""
        segment = self._log.segment_at(at)
        tail = segment.view[at - segment.start :]
        step = 1 << 20
        for low in range(0, len(tail), step):
            chunk = bytes(tail[low : low + step])
            if not chunk.strip(b"\0"):
                return low
            if chunk[-1] == 0:
                return low + len(chunk.rstrip(b"\0"))
        return len(tail)


def read_frame(segment: Segment, position: int, generation: int) -> tuple[Frame, memoryview]:
    """The whole, checked frame at a log position. Raises BadFrame; StartError where a newer program wrote it."""
    try:
        frame = decode(segment.view, position, segment.start)
    except UnknownVersion as error:
        raise StartError(f"the log was written by a newer version: {error}") from error
    if frame.generation < generation:
        raise BadFrame("of an earlier generation")
    if frame.kind == Kind.END:
        return frame, segment.view[:0]
    at = frame.payload_position - segment.start
    payload = segment.view[at : at + frame.payload_length]
    check_payload(frame, payload)
    return frame, payload


class Recovery:
    """One start's work. `run` leaves the log ready to append in a new generation."""

    def __init__(
        self, log: CommitLog, catalog: Catalog, settings: Settings, progress: Callable[[int, int], None] | None = None
    ) -> None:
        self._log = log
        self._catalog = catalog
        self._settings = settings
        self._progress = progress
        self.report = Report()
        self.dispatch = Dispatch(0)
        self.indexes = IndexFiles(log.fs)
        self._batches: list[Appended] = []
        self._next_freeze = 0

    def run(self) -> None:
        """Raises StartError, OSError."""
        log, report = self._log, self.report
        start = log.start
        chosen = self._choose()
        position = chosen.position if chosen is not None else start
        report.snapshot_position = position
        if chosen is not None:
            snapshot.restore(self._catalog, chosen)
            report.clean = chosen.clean and self._clean_mark() == position
        self._index_below(start, position)
        generation = chosen.generation if chosen is not None else 0
        scan = Scan(log, position, generation, position)
        if not report.clean:
            self._apply_tail(scan)
        report.end, report.torn_bytes, report.damaged = scan.position, scan.torn_bytes, scan.damaged
        report.generation = scan.generation
        if scan.flushed < scan.position:
            self._write_again(scan.flushed, scan.position)
        self._remove_clean_mark()
        for partition in self._catalog.partitions():
            partition.queue.end_offset = partition.next_offset
        log.resume(scan.position, scan.generation + 1)
        self.dispatch.position = scan.position

    # -- 1: where to start -------------------------------------------------------------------------------------------

    def _choose(self) -> snapshot.Snapshot | None:
        log = self._log
        saved = snapshot.load(log.fs)
        if saved is not None and log.start <= saved.position <= (log.segments[-1].end if log.segments else 0):
            return saved
        # A head counts only where it is known to have been flushed: an index file of what follows it proves that, and so
        # does being the oldest. Else it may be what an earlier, cut tail left behind in a segment that came back.
        indexed = {begin for begin, _, _ in index.listed(log.fs)}
        for segment in reversed(log.segments):
            if segment.start in indexed or segment is log.segments[0]:
                found = self._at_head(segment)
                if found is not None:
                    return found
        return None

    def _at_head(self, segment: Segment) -> snapshot.Snapshot | None:
        """The snapshot at the head of a segment, if it is there and whole."""
        data = b""
        position, generation = segment.start, 0
        with contextlib.suppress(BadFrame, msgspec.DecodeError):
            while True:
                frame, payload = read_frame(segment, position, generation)
                record = control.decode(payload) if frame.kind == Kind.CONTROL else None
                if not isinstance(record, control.SnapshotPart):
                    return None
                data += record.data
                if frame.part == frame.parts - 1:
                    return snapshot.decode(data)
                position, generation = frame.end, frame.generation
                if position >= segment.end:
                    return None
        return None

    def _clean_mark(self) -> int:
        mark = read_file(self._log.fs, CLEAN_MARK)
        return int(mark) if mark is not None and mark.strip().isdigit() else -1

    def _remove_clean_mark(self) -> None:
        """Before the first append, durably: from now on a stop is unclean until it says otherwise."""
        fs = self._log.fs
        if read_file(fs, CLEAN_MARK) is not None:
            fs.remove(CLEAN_MARK)
            fs.sync_directory("")

    # -- 2: the index below the snapshot -----------------------------------------------------------------------------

    def _index_below(self, start: int, position: int) -> None:
        self.indexes.load(start, position, self._log.segments)
        for begin, end, before in list(self.indexes.gaps(start, position)):
            for file in before:
                for key, run in file.runs.items():
                    partition = self._catalog.partition(*key)
                    if partition is not None:
                        partition.queue.attach(run)
            if begin < end:
                self._index_again(begin, end)
        self.dispatch.position = self.dispatch.frozen_position = position
        for partition in self._catalog.partitions():
            partition.queue.end_offset = partition.next_offset

    def _index_again(self, begin: int, end: int) -> None:
        self.dispatch.position = self.dispatch.frozen_position = self._next_freeze = begin
        self.report.indexed_again += end - begin
        scan = Scan(self._log, begin, 0, end)
        for frame, payload in scan.frames():
            if frame.position >= end:
                break
            self._freeze_before(frame)
            if frame.kind == Kind.BATCH:
                self._index(frame, HEADER.unpack_from(payload)[8])
        self.report.damaged += [(low, min(high, end)) for low, high in scan.damaged if low < end]
        self._dispatch(end)
        self.dispatch.freeze_at(end)
        self._dispatch(end)

    # -- 3: the tail -------------------------------------------------------------------------------------------------

    def _apply_tail(self, scan: Scan) -> None:
        self._next_freeze = scan.position
        rot = 0
        top = self._log.segments[-1].end if self._log.segments else 0
        for frame, payload in scan.frames():
            self.report.frames += 1
            self._freeze_before(frame)
            if frame.kind == Kind.BATCH:
                self._apply_batch(frame, payload, after_rot=len(scan.damaged) > rot)
            elif frame.kind == Kind.CONTROL:
                self._dispatch(frame.position)
                self._apply_control(frame, payload)
            if self._progress is not None and self.report.frames % 65536 == 0:
                self._progress(frame.position, top)
        self._dispatch(scan.position)

    def _apply_batch(self, frame: Frame, payload: memoryview, after_rot: bool) -> None:
        partition = self._catalog.partition(frame.topic_number, frame.partition)
        if partition is None:
            return
        batch = BatchHeader(*HEADER.unpack_from(payload))
        if frame.base_offset > partition.next_offset and after_rot:
            partition.queue.damaged.append((partition.next_offset, frame.base_offset))
        if frame.base_offset >= partition.next_offset:
            partition.next_offset = frame.base_offset + frame.span
            partition.began_epoch(frame.generation, frame.base_offset)
        if batch.producer_id >= 0:
            if partition.producers is None:
                partition.producers = Producers()
            partition.producers.appended(
                batch.producer_id, batch.producer_epoch, batch.base_sequence, frame.original_span, frame.base_offset,
                frame.end, frame.store_ms,
            )  # fmt: skip
        self._index(frame, batch.max_timestamp)

    def _apply_control(self, frame: Frame, payload: memoryview) -> None:
        try:
            record = control.decode(payload)
        except msgspec.DecodeError as error:
            raise StartError(
                f"the log holds a control record that this version does not know, at {frame.position}: {error}"
            ) from error
        self._catalog.apply(record)

    # -- both --------------------------------------------------------------------------------------------------------

    def _index(self, frame: Frame, max_ms: int) -> None:
        partition = self._catalog.partition(frame.topic_number, frame.partition)
        if partition is not None:
            self._batches.append(
                Appended(
                    partition, frame.base_offset, frame.span, frame.payload_position, frame.payload_length, max_ms,
                    frame.store_ms,
                )  # fmt: skip
            )
        if len(self._batches) >= _DISPATCH_FRAMES:
            self._dispatch(frame.end)

    def _freeze_before(self, frame: Frame) -> None:
        """Close the tails at segment boundaries and now and then in between, as at run time."""
        new_segment = self._log.segment_at(frame.position).start == frame.position
        if new_segment or frame.position - self._next_freeze >= self._settings.log.index_checkpoint_bytes:
            self._dispatch(frame.position)
            self.dispatch.freeze_at(frame.position)
            self._dispatch(frame.position)
            self._next_freeze = frame.position

    def _dispatch(self, upto: int) -> None:
        batches, self._batches = self._batches, []
        self.dispatch.run(batches, upto, {})
        while self.dispatch.frozen:
            frozen = self.dispatch.frozen.popleft()
            file = write_index(self._log.fs, frozen)
            adopt(frozen, file)
            self.indexes.add(file)

    # -- 5: nothing but the disk counts ------------------------------------------------------------------------------

    def _write_again(self, low: int, high: int) -> None:
        log = self._log
        files = []
        for segment in log.segments:
            begin, end = max(low, segment.start), min(high, segment.end)
            for at in range(begin, end, 1 << 20):
                chunk = bytes(segment.view[at - segment.start : min(at + (1 << 20), end) - segment.start])
                write_all(segment.file, [chunk], at - segment.start)
            if begin < end:
                files.append(segment.file)
        SyncJob(log.fs, files, True, high).run()


def leave_clean_mark(fs: FileSystem, position: int) -> None:
    write_file(fs, CLEAN_MARK, [str(position).encode()])
