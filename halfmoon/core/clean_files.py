"""Compacted segments, or clean files: what still lives of the beginnings of partitions, copied out of the log.

A partition's messages stand in the log from `moved_upto` on. What lives below stands in clean files, and what the log
has of it is dead: so its segments may go. A clean file is written once, as a whole, and never changed; when all
partitions have moved on from it, or have no need of it any more, it goes.

    cleaned/<20 digits>         frames, as in the log (core/storage/frame.py), partition after partition, by offset
    cleaned/<20 digits>.index   where they stand, as for the log (core/storage/index.py); built again if lost

The digits are the log position that the file begins at. These positions are handed out once, from 2⁶² on, so that a
frame of a clean file says where it stands, like any other, and a place is a number, like any other. Frames keep what
they said: generation, store time, provenance, span. The first frame is a control frame that says nothing; the last is
the record `Cleaned` that made the file known.

That record in the log, or the snapshot that has it in it, decides: a file that none names is left from a crash and goes
at the next start. Only where rot may have taken the record itself, files that are newer than all that is known are
taken at their own word. No record is written before its file and index are on disk under their names.
"""

from __future__ import annotations

import contextlib
from array import array
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from halfmoon.core.catalog.catalog import Catalog
from halfmoon.core.catalog.topics import Partition
from halfmoon.core.features import DerivedFiles
from halfmoon.core.records.batches import HEADER
from halfmoon.core.storage import index
from halfmoon.core.storage.files import FileSystem
from halfmoon.core.storage.frame import HEADER_BYTES, BadFrameError, Frame, Kind
from halfmoon.core.storage.index import Growing, IndexFile, Key, Run
from halfmoon.core.storage.scan import candidates, read_header, read_payload
from halfmoon.core.storage.segment import Segment
from halfmoon.core.storage.storage import WriteSide
from halfmoon.schema import control

FOLDER = "cleaned"
INDEX = ".index"
BRING_BYTES = 4 << 20
MAX_MS_AT = 8
"""Of the fields of a batch's header."""


def data_path(start: int) -> str:
    return f"{FOLDER}/{start:020d}"


def index_path(start: int) -> str:
    return data_path(start) + INDEX


def listed(fs: FileSystem) -> list[int]:
    """Where the clean files begin that are there."""
    return [int(name) for name in fs.listdir(FOLDER) if len(name) == 20 and name.isdigit()]


class CleanFile(NamedTuple):
    segment: Segment
    indexed: IndexFile


def open_segment(fs: FileSystem, start: int) -> Segment:
    """Raises FileNotFoundError; ValueError where it is empty."""
    file = fs.open(data_path(start))
    size = file.size()
    if size < HEADER_BYTES:
        file.close()
        raise ValueError("empty")
    return Segment(start, size, file, file.map())


def _bring(segment: Segment) -> None:
    """Have all of it in memory before it is walked through: in a cluster, most of it may not even be here. Slow. Raises
    OSError."""
    if not segment.mapping.in_memory(0, segment.size):
        for at in range(0, segment.size, BRING_BYTES):
            segment.file.pread(min(BRING_BYTES, segment.size - at), at)


class Walked(NamedTuple):
    """A frame of a clean file; or, where `frame` is None, a stretch [low, high) in which rot has left none. Where only
    the payload is lost it is None."""

    low: int
    high: int
    frame: Frame | None
    payload: memoryview | None


def frames(segment: Segment) -> Iterator[Walked]:
    at = segment.start
    while at < segment.end:
        try:
            frame = read_header(segment, at, 0)
        except BadFrameError:
            upto = _next_frame(segment, at + 1)
            yield Walked(at, upto, None, None)
            at = upto
            continue
        try:
            payload: memoryview | None = read_payload(segment, frame)
        except BadFrameError:
            payload = None
        yield Walked(at, frame.end, frame, payload)
        at = frame.end


def _next_frame(segment: Segment, position: int) -> int:
    for at in candidates(segment, position, segment.end):
        with contextlib.suppress(BadFrameError):
            read_header(segment, at, 0)
            return at
    return segment.end


class Rows:
    """The rows of a clean file, partition after partition, as they are written or found."""

    def __init__(self) -> None:
        self.runs: dict[Key, Growing] = {}
        self.stored_ms: dict[Key, array[int]] = {}
        self.count = 0
        self._newest_ms = 0

    def add(self, key: Key, base: int, span: int, position: int, length: int, max_ms: int, store_ms: int) -> None:
        growing = self.runs.get(key)
        if growing is None:
            growing = self.runs[key] = Growing()
            self.stored_ms[key] = array("q")
            self._newest_ms = 0
        growing.add(base, position, length, max_ms, span)
        self._newest_ms = max(self._newest_ms, store_ms)
        self.stored_ms[key].append(self._newest_ms)
        self.count += 1

    def write(self, fs: FileSystem, start: int, end: int, path: str) -> IndexFile:
        """Slow. Raises OSError."""
        keys = sorted(self.runs)
        newest_ms = max((times[-1] for times in self.stored_ms.values()), default=0)
        return index.write(
            fs, start, end, newest_ms,
            [(key, [Run(self.runs[key], 0, len(self.runs[key].base), 0)]) for key in keys],
            path=path, stored_ms=[self.stored_ms[key] for key in keys],
        )  # fmt: skip


Place = tuple[Key, int]
"""An offset of a partition. Clean files are in the order of places."""
Lost = tuple[Place, Place]
"""What stood at these places [from, to), of one partition or of several."""
_BEGIN: Place = Key(-1, -1), 0
_END: Place = Key(1 << 31, 0), 0


def build_index(fs: FileSystem, segment: Segment) -> tuple[IndexFile, list[Lost]]:
    """The index of a clean file, from the file; and what rot may have taken of it. Slow. Raises OSError."""
    _bring(segment)
    rows = Rows()
    lost: list[Lost] = []
    before = _BEGIN
    gap = False
    for _, _, frame, payload in frames(segment):
        if frame is None:
            gap = True
        elif frame.kind == Kind.BATCH:
            key = Key(frame.topic_number, frame.partition)
            begin = key, frame.base_offset
            if gap:
                lost.append((before, begin))
                gap = False
            before = key, frame.base_offset + frame.span
            if not payload:
                lost.append((begin, before))
                continue
            max_ms = HEADER.unpack_from(payload)[MAX_MS_AT]
            rows.add(
                key, frame.base_offset, frame.span, frame.payload_position, len(payload), max_ms, frame.store_ms
            )  # fmt: skip
    if gap:
        lost.append((before, _END))
    return rows.write(fs, segment.start, segment.end, index_path(segment.start)), lost


def open_index(fs: FileSystem, segment: Segment) -> IndexFile:
    """Raises ValueError where it is not this file's, FileNotFoundError."""
    found = index.open_file(fs, index_path(segment.start))
    if (found.start, found.end) != (segment.start, segment.end):
        raise ValueError("of another file")
    return found


class CleanFiles:
    """The clean files that are in use, and those that may go."""

    def __init__(self, log: WriteSide) -> None:
        self._log = log
        self._files: dict[int, CleanFile] = {}
        self._pending: list[tuple[int, int]] = []
        """Pending deletion: (log position, start) of a file that may go once the log is on disk up to there."""
        self.derived: Sequence[DerivedFiles] = ()
        """Told of files that come and go."""
        self.lost: list[int] = []
        """Where files begin that are needed and not there."""

    def __len__(self) -> int:
        return len(self._files)

    def __iter__(self) -> Iterator[CleanFile]:
        return iter(self._files.values())

    @property
    def bytes(self) -> int:
        return sum(file.segment.size for file in self._files.values())

    def get(self, start: int) -> CleanFile | None:
        return self._files.get(start)

    # -- at the start ------------------------------------------------------------------------------------------------

    def open(self, catalog: Catalog, *, after_rot: bool) -> None:
        """Open what the recovered catalog names, remove the rest, and put both in the partitions' queues. Raises
        OSError."""
        fs = self._log.fs
        fs.make_directory(FOLDER)
        fs.sync_directory("")
        if after_rot:
            self._salvage(catalog)
        needed = {start for partition in catalog.partitions() for _, _, start in partition.cleaned}
        for start in sorted(needed):
            try:
                self._take_in(self._open(start, catalog))
            except (FileNotFoundError, ValueError):
                self.lost.append(start)
        kept = {path for start in self._files for path in (data_path(start), index_path(start))}
        unwanted = [path for name in fs.listdir(FOLDER) if (path := f"{FOLDER}/{name}") not in kept]
        for path in unwanted:
            fs.remove(path)
        if unwanted:
            fs.sync_directory(FOLDER)
        for partition in catalog.partitions():
            if partition.moved_upto:
                for low, high, start in partition.cleaned:
                    if start in self.lost:
                        partition.lose(max(low, partition.start_offset), high)
                self.attach(partition)

    def _open(self, start: int, catalog: Catalog) -> CleanFile:
        fs = self._log.fs
        segment = open_segment(fs, start)
        try:
            return CleanFile(segment, open_index(fs, segment))
        except (FileNotFoundError, ValueError):
            built, lost = build_index(fs, segment)
        for partition in catalog.partitions() if lost else ():
            key = Key(partition.topic.number, partition.index)
            for begin, end, of_file in partition.cleaned:
                for low, high in lost if of_file == start else ():
                    lost_from, lost_to = max((key, begin), low), min((key, end), high)
                    if lost_from < lost_to:
                        partition.lose(max(lost_from[1], partition.start_offset), lost_to[1])
        return CleanFile(segment, built)

    def _salvage(self, catalog: Catalog) -> None:
        """Rot may have taken records `Cleaned`. They are repeated at the ends of their files."""
        for start in listed(self._log.fs):
            if start < catalog.next_clean:
                continue
            try:
                segment = open_segment(self._log.fs, start)
            except ValueError:
                continue
            _bring(segment)
            for _, _, frame, payload in frames(segment):
                if frame is not None and frame.kind == Kind.CONTROL and payload is not None:
                    with contextlib.suppress(msgspec.DecodeError):
                        record = control.decode(payload)
                        if isinstance(record, control.Cleaned):
                            catalog.apply(record)
            segment.mapping.release()
            segment.file.close()

    # -- while the broker runs ---------------------------------------------------------------------------------------

    def _take_in(self, file: CleanFile) -> None:
        self._files[file.segment.start] = file
        self._log.add_cleaned(file.segment)

    def add(self, file: CleanFile, *, has_indexed: bool) -> None:
        """Serve from a new file, once the record that names it is appended. `has_indexed`: one of its frames has the
        flag INDEXED."""
        self._take_in(file)
        for derived in self.derived:
            derived.came(file.segment.start, has_indexed=has_indexed)

    def attach(self, partition: Partition) -> None:
        """Make the partition's queue say where its messages stand."""
        key = Key(partition.topic.number, partition.index)
        runs = []
        for low, high, start in partition.cleaned:
            file = self._files.get(start)
            whole = None if file is None else file.indexed.runs.get(key)
            run = None if whole is None else whole.between(low, high)
            if run is not None:
                runs.append(run)
        partition.queue.put_cleaned(runs, partition.moved_upto)

    def find_unneeded(self, catalog: Catalog, slice_: int) -> Iterator[None]:
        """Find what nobody needs any more, in a walk over all partitions with a pause after each `slice_`. It goes when
        what made it so is on disk."""
        if not self._files:
            return
        # Who did not need one of them, does not later.
        unneeded = self._files.keys() - {start for _, start in self._pending}
        for nth, partition in enumerate(catalog.partitions()):
            unneeded.difference_update(start for _, _, start in partition.cleaned)
            if nth % slice_ == slice_ - 1:
                yield
        self._pending += [(self._log.end, start) for start in sorted(unneeded & self._files.keys())]

    @property
    def may_drop(self) -> bool:
        return bool(self._pending) and self._pending[0][0] <= self._log.flushed

    def drop_unneeded(self, catalog: Catalog) -> None:
        """Drop one of those that may go, if there is one: its files are removed in their turn."""
        log = self._log
        if not self.may_drop:
            return
        _, start = self._pending.pop(0)
        file = self._files.pop(start)
        for key in file.indexed.runs:
            partition = catalog.partition(*key)
            if partition is not None:
                partition.queue.forget(file.indexed)
        file.indexed.close()
        went = [path for derived in self.derived for path in derived.went(start)]
        log.remove_cleaned(file.segment, data_path(start), [index_path(start), *went])
