"""What a start does before the first request: find out what the log holds, and make everything else from it (B09).

The order:

1. Choose a snapshot: the checkpoint file; failing that, the newest one at the head of a segment that is known to
   have been flushed; failing that, nothing, from the beginning of the log.
2. Below the snapshot's position use the index files; scan the log where one is missing.
3. From the snapshot's position scan to the tail (`scan`), and apply every frame. What rot has taken is worked out as
   far as what is left allows (`salvage`).
4. Write what was not known to be flushed once more, and sync. The page cache may hold bytes whose fsync failed before
   this start and that the kernel counts as clean; only a new write makes it try again. Where the disk refuses the old
   place, the segment moves to a new one. No index file of a stretch is written before that: index files stand for
   flushed bytes only.

A clean stop leaves its mark, and then there is nothing to scan.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Callable

import msgspec
from msgspec import Struct, field

from halfmoon.config.settings import Settings
from halfmoon.core import clean_mark, recovered_producers
from halfmoon.core.catalog import snapshot
from halfmoon.core.catalog.catalog import Catalog
from halfmoon.core.catalog.topics import Partition
from halfmoon.core.clean_files import CleanFiles
from halfmoon.core.dispatch import Appended, Dispatch, adopt, write_index
from halfmoon.core.index_files import IndexFiles
from halfmoon.core.records.batches import CONTROL, HEADER, TRANSACTIONAL, BatchHeader
from halfmoon.core.salvage import Salvage, ends_transaction
from halfmoon.core.storage import index
from halfmoon.core.storage.frame import Frame, Kind
from halfmoon.core.storage.index import Key
from halfmoon.core.storage.scan import Scan, read_provenance
from halfmoon.core.storage.storage import WriteSide
from halfmoon.core.transactions import marker
from halfmoon.errors import StartError
from halfmoon.schema import control, provenance
from halfmoon.schema.snapshot import Snapshot

_DISPATCH_FRAMES = 4096
"""How many batches go to dispatch at once."""


class Report(Struct):
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
    missing: list[tuple[int, int]] = field(default_factory=list)
    """Stretches whose files are gone or cut short; they are among those that are lost."""
    indexed_again: int = 0
    """Bytes of the log below the snapshot that had to be scanned for want of an index file."""


class Recovery:
    """One start's work. `run` leaves the log ready to append in a new generation."""

    def __init__(
        self,
        log: WriteSide,
        catalog: Catalog,
        indexes: IndexFiles,
        clean_files: CleanFiles,
        settings: Settings,
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        self._log = log
        self._catalog = catalog
        self._settings = settings
        self._progress = progress
        self.report = Report()
        self._lost_runs: list[tuple[Key, int]] = []
        self._void_indexes: set[str] = set()
        """Index files of what is missing: they go when what they say is in a checkpoint."""
        self.dispatch = Dispatch(0)
        self._indexes = indexes
        self._clean_files = clean_files
        self._batches: list[Appended] = []
        self._next_freeze = 0
        self._freeze_due = 0
        """Nothing is to be frozen before this position."""
        self._proven = 0
        """Everything below is on disk."""
        self._disk_is_full = False
        self._origin: Partition | None = None
        """Where the batch of the present frame was sent to, if not to where it is."""

    def run(self) -> None:
        """Raises StartError, OSError."""
        log, report = self._log, self.report
        self._indexes.open()
        saved = snapshot.load(log.fs)
        self._find_missing(saved)
        chosen = self._choose(saved)
        position = chosen.position if chosen is not None else log.start
        generation = chosen.generation if chosen is not None else 0
        report.snapshot_position = position
        if chosen is not None:
            snapshot.restore(self._catalog, chosen)
            report.clean = chosen.clean and clean_mark.read(log.fs) == position
            if chosen is not saved:
                recovered_producers.remember(log, self._catalog, position)
        indexed = max((end for _, end, _ in index.listed(log.fs)), default=0)  # also by files of what is missing
        self._index_below(log.start, position)
        log.recover(position, log.segments[-1].end if log.segments else position)
        scan = Scan(log.segments, position, generation, max(position, indexed), ends_transaction, log.ceiling)
        if not report.clean:
            self._proven = scan.flushed
            self._apply_tail(scan)
        report.end, report.torn_bytes, report.generation = scan.position, scan.torn_bytes, scan.generation
        report.damaged += scan.damaged
        self._proven = max(self._proven, scan.flushed)
        self._prove(scan.position)
        clean_mark.remove(log.fs)
        if any(partition.queue.reaches_below(partition.moved_upto) for partition in self._catalog.partitions()):
            self._freeze(scan.position)  # a tail's first rows cannot be taken away
        self._clean_files.open(self._catalog, after_rot=bool(report.damaged))
        self._lose_runs()
        for partition in self._catalog.partitions():
            partition.queue.end_offset = partition.next_offset
        log.resume(scan.position, log.lease(scan.generation))
        report.missing = [(low, high) for low, high in log.missing if low < scan.position]
        if report.damaged:
            self._note_damage(scan.position)
        self.dispatch.position = scan.position
        if not self.dispatch.last_store_ms and self._indexes.files:
            self.dispatch.last_store_ms = self._indexes.files[-1].newest_store_ms

    # -- 1: where to start -------------------------------------------------------------------------------------------

    def _find_missing(self, saved: Snapshot | None) -> None:
        """What files are gone before the first segment and behind the last, as notes and derived files know. What they
        held is lost like rot: what the index says of it must not be believed."""
        log = self._log
        listed = list(index.listed(log.fs))
        known_end = max([0 if saved is None else saved.position, *(end for _, end, _ in listed)])
        floor, known_start = log.floor, log.start if log.segments else 0
        if floor is not None and (saved is None or floor.generation >= saved.generation):
            known_start = floor.position
        if log.segments and known_start < log.start:
            log.fill(known_start, log.start)
        top = log.segments[-1].end if log.segments else known_start
        if top < known_end:
            log.fill(top, known_end)
        for begin, end, path in listed:
            if any(begin < high and low < end for low, high in log.missing):
                with contextlib.suppress(ValueError):
                    file = index.open_file(log.fs, path)
                    self._lost_runs += [(key, run.end_offset) for key, run in file.runs.items()]
                    file.close()
                self._void_indexes.add(path)

    def _note_damage(self, position: int) -> None:
        """In a checkpoint: the next start may not find out again. Raises OSError, but not on a full disk."""
        log = self._log
        try:
            snapshot.save(log.fs, snapshot.take(self._catalog, position, log.generation))
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            return
        for path in self._void_indexes - {file.path for file in self._indexes.files}:
            log.fs.remove(path)

    def _lose_runs(self) -> None:
        """Offsets that only an index of what is gone knows were given out once; not to be given out again."""
        for key, end_offset in self._lost_runs:
            partition = self._catalog.partition(*key)
            if partition is not None and partition.next_offset < end_offset:
                partition.lose(partition.next_offset, end_offset)
                partition.next_offset = end_offset

    def _choose(self, saved: Snapshot | None) -> Snapshot | None:
        log = self._log
        if saved is not None and saved.position >= log.start:
            return saved
        # A head counts only where it is known to have been flushed: an index file of what follows it proves that, and
        # so does being the oldest. Else it may be what an earlier, cut tail left behind in a segment that came back.
        indexed = {begin for begin, _, _ in index.listed(log.fs)}
        oldest = next((segment for segment in log.segments if (segment.start, segment.end) not in log.missing), None)
        for segment in reversed(log.segments):
            if segment.start in indexed or segment is oldest:
                log.recover(segment.start, segment.end)
                found = snapshot.at_head(segment)
                if found is not None:
                    return found
        return None

    # -- 2: the index below the snapshot -----------------------------------------------------------------------------

    def _index_below(self, start: int, position: int) -> None:
        self._proven = position
        self._indexes.load(start, position, self._log.segments, self._void_indexes)
        for begin, end, before in list(self._indexes.gaps(start, position)):
            for file in before:
                for key, run in file.runs.items():
                    partition = self._catalog.partition(*key)
                    if partition is not None:
                        if self.report.damaged:
                            _lose_gap(partition, run.first_offset)
                        partition.queue.attach(run)
            if begin < end:
                self._index_again(begin, end)
        self.dispatch.position = self.dispatch.frozen_position = position
        for partition in self._catalog.partitions():
            if self.report.damaged:
                _lose_gap(partition, partition.next_offset)
            partition.queue.end_offset = partition.next_offset

    def _index_again(self, begin: int, end: int) -> None:
        self.dispatch.position = self.dispatch.frozen_position = self._next_freeze = begin
        self._freeze_due = 0
        self.report.indexed_again += end - begin
        self._log.recover(begin, end)
        scan = Scan(self._log.segments, begin, 0, end)
        for frame, payload in scan.frames():
            if frame.position >= end:
                break
            if not frame.part:
                self._freeze_before(frame.position)
            if frame.kind == Kind.BATCH and payload:
                if scan.damaged:
                    self._dispatch(frame.position)
                    partition = self._catalog.partition(frame.topic_number, frame.partition)
                    if partition is not None:
                        _lose_gap(partition, frame.base_offset)
                self._index(frame, frame.due_ms or HEADER.unpack_from(payload)[8])
        self.report.damaged += [(low, min(high, end)) for low, high in scan.damaged if low < end]
        self._freeze_before(end)
        self._dispatch(end)
        self.dispatch.freeze_at(end)
        self._dispatch(end)

    # -- 3: the tail -------------------------------------------------------------------------------------------------

    def _apply_tail(self, scan: Scan) -> None:
        self._next_freeze = scan.position
        self._freeze_due = 0
        salvage = Salvage(self._catalog)
        top = self._log.segments[-1].end if self._log.segments else 0
        for frame, payload in scan.frames():
            self.report.frames += 1
            if not frame.part:
                self._freeze_before(frame.position)
            if scan.damaged:
                self._dispatch(frame.position)
                salvage.frame(frame, payload)
            self._origin = None
            if frame.provenance_length:
                self._apply_provenance(frame, payload)
            if payload is None:
                continue
            if frame.kind == Kind.BATCH:
                self._apply_batch(frame, payload)
            elif frame.kind == Kind.CONTROL:
                self._dispatch(frame.position)
                self._apply_control(frame, payload)
            if self._progress is not None and self.report.frames % 65536 == 0:
                self._progress(frame.position, top)
        salvage.finish()
        self._freeze_before(scan.position)
        self._dispatch(scan.position)

    def _apply_batch(self, frame: Frame, payload: memoryview) -> None:
        partition = self._catalog.partition(frame.topic_number, frame.partition)
        if partition is None or not payload:
            return
        batch = BatchHeader(*HEADER.unpack_from(payload))
        if frame.base_offset >= partition.next_offset:
            partition.next_offset = frame.base_offset + frame.span
            partition.began_epoch(frame.generation, frame.base_offset)
            if batch.attributes & TRANSACTIONAL:
                self._apply_transactional(partition, frame, batch, payload)
        recovered_producers.appended(frame, batch, partition, self._origin or partition)
        self._index(frame, frame.due_ms or batch.max_timestamp)

    def _apply_transactional(self, partition: Partition, frame: Frame, batch: BatchHeader, payload: memoryview) -> None:
        offset = frame.base_offset
        if batch.attributes & CONTROL:  # all that a start finds counts
            partition.transaction_ended(
                batch.producer_id, batch.producer_epoch, offset, offset + 1, frame.store_ms,
                committed=marker.is_commit(payload),
            )  # fmt: skip
        else:
            partition.transaction_began(batch.producer_id, offset)

    def _apply_provenance(self, frame: Frame, payload: memoryview | None) -> None:
        """What a frame was made from is dealt with, even where the frame's own batch is lost to rot."""
        try:
            found = provenance.decode(read_provenance(self._log.segment_at(frame.position), frame))
        except provenance.UnknownProvenanceError as error:
            raise StartError(f"this version does not know {error}, in the log at {frame.position}") from error
        catalog = self._catalog
        catalog.prove(found)
        partition = catalog.partition(frame.topic_number, frame.partition)
        if partition is None:
            return
        if found.range is not None:
            partition.passed(found.range.next_offset)
        if found.origin is not None:
            if payload is not None and frame.due_ms:
                partition.wait(frame.base_offset, frame.span)
            self._origin = catalog.partition(found.origin.topic_number, found.origin.partition)

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
            at = frame.payload_position
            place = at, frame.end - at
            self._batches.append(Appended(partition, frame.base_offset, frame.span, *place, max_ms, frame.store_ms))
        if len(self._batches) >= _DISPATCH_FRAMES:
            self._dispatch(frame.end)

    def _freeze_before(self, position: int) -> None:
        """Close the tails at each segment boundary up to `position`, rot or not, and now and then in between; never
        within a frame group, which could not be read from its middle on."""
        if position < self._freeze_due:
            return
        log = self._log
        while self._next_freeze < position and (boundary := log.segment_at(self._next_freeze).end) <= position:
            self._freeze(boundary)
        enough = self._settings.log.index_checkpoint_bytes
        if position - self._next_freeze >= enough:
            self._freeze(position)
        if log.segments and self._next_freeze < log.segments[-1].end:
            self._freeze_due = min(self._next_freeze + enough, log.segment_at(self._next_freeze).end)

    def _freeze(self, position: int) -> None:
        self._dispatch(position)
        self.dispatch.freeze_at(position)
        self._dispatch(position)
        self._next_freeze = position
        self._freeze_due = 0

    def _dispatch(self, upto: int) -> None:
        batches, self._batches = self._batches, []
        self.dispatch.run(batches, upto, {})
        self.dispatch.close_all()
        while self.dispatch.frozen and not self._disk_is_full:
            frozen = self.dispatch.frozen[0]
            self._prove(frozen.end)
            try:
                file = write_index(self._log.fs, frozen)
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
                self._disk_is_full = True  # housekeeping will try again; what is there can be read meanwhile
                break
            self.dispatch.frozen.popleft()
            for _ in adopt(frozen, file):
                pass
            self._indexes.add(file)

    # -- 4: nothing but the disk counts ------------------------------------------------------------------------------

    def _prove(self, upto: int) -> None:
        """Make sure that everything below `upto` is on disk."""
        low = self._proven
        if low >= upto:
            return
        self._proven = upto
        self._log.prove(low, upto)


def _lose_gap(partition: Partition, offset: int) -> None:
    """What the index leaves out before `offset` is lost, if anything is."""
    known = max(partition.queue.end_offset, partition.start_offset, partition.moved_upto)
    partition.lose(known, offset)
