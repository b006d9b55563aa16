"""The commitlog: one append-only sequence of frames for all topics, in segment files (B01, B06, B07).

What it owns: the segment files in `log/`, the three ends of the log, and the frames not yet written.

    start ≤ flushed ≤ written ≤ end

- *end*: appended. The frame has its place and its offsets; its bytes wait in `_pending`, by reference.
- *written*: in the page cache; survives the death of this process.
- *flushed*: on disk; survives power loss.

The order of things: many `append`, one `write` for all of them (a vectored write, no copy in between), then at most one
`SyncJob` at a time, run in a thread, and `finish_sync`. The caller must not touch an appended buffer before `write` has
run. Nobody reads above *written*.

A segment is allocated whole before its first frame, so a full disk is met when a segment is made, before anything was
promised, and not in the middle of a write. Segments grow with the log, so that a young one takes little disk: each is
as large as all before it together, from FIRST_SEGMENT_BYTES to `segment_bytes`.

A write or sync that fails all the same ends the log's writing life: `failed` is set, every later append is refused,
reads go on; the next start recovers from what is really on disk. An fsync that failed is never tried again, because the
kernel may have dropped the dirty pages with the error.

Beside the log there may be *clean files* (core/clean_files.py), whose positions lie far above all of the log's. They
are looked up here too, since whoever reads does not care which of the two a batch stands in.

A file is named by the 20 digits of the log position it starts at, as RocketMQ's MappedFileQueue does. It is reused by
rename when it expires, but only once no slice of it is being sent any more.

One module: the ends, the frames not yet written and the list of segments change together.
"""

from __future__ import annotations

import contextlib
import errno
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from halfmoon.config.units import readable_size
from halfmoon.core.storage import bounds
from halfmoon.core.storage.bounds import Ceiling, Floor, Noted
from halfmoon.core.storage.files import ASIDE, Buffer, File, FileSystem, write_all
from halfmoon.core.storage.frame import HEADER_BYTES, Kind, control_crc, encode
from halfmoon.core.storage.log_files import (
    FOLDER,
    SPARE,
    Retired,
    SyncJob,
    gaps,
    list_segments,
    missing_segment,
    segment_path,
)
from halfmoon.core.storage.segment import Removed, Segment, Sync
from halfmoon.core.storage.storage import WriteSide
from halfmoon.errors import BrokerError, Fault, StorageError
from halfmoon.schema.snapshot import CLEAN_BASE

MAX_FRAME_BYTES = 1 << 30
HEAD_SHARE: Final = 4
"""A segment is at least so many times as large as its head, so that the log does not consist of heads."""

FIRST_SEGMENT_BYTES = 64 << 20
"""Of a log's first segments, where `segment_bytes` is not less."""
FIRST_OF_MANY_BYTES = 16 << 20
"""The same where many logs share the disk, …"""
SHARE_OF_MANY: Final = 4
"""… whose segments are at most such a part of what is there, so that they take no more ahead of time together than one
log would, …"""
LOGS: Final = 16
"""… and so many may need a segment for control frames when the disk is nearly full."""
MARK_SEGMENTS: Final = 2
"""So many segments' worth of disk is kept free for control frames, unless `low_disk_bytes` says otherwise."""
CHECKPOINT_AFTER_MS: Final = 3_600_000
CHECKPOINT_BATCHES: Final = 20_000
"""A start takes 15 µs for each batch that was written since the checkpoint."""
CLEAN_FILE_BYTES: Final = 512 << 20

_COPY_BYTES: Final = 1 << 20
_FULL: Final[tuple[int, ...]] = (errno.ENOSPC, errno.EDQUOT)


def _write_again(segment: Segment, begin: int, end: int) -> None:
    for at in range(begin, end, _COPY_BYTES):
        chunk = bytes(segment.view[at - segment.start : min(at + _COPY_BYTES, end) - segment.start])
        write_all(segment.file, [chunk], at - segment.start)
    segment.file.sync()


class CommitLog(WriteSide):
    """The log of one broker. Single-threaded but for `SyncJob.run` and what `begin_spare` returns."""

    def __init__(
        self, fs: FileSystem, segment_bytes: int, low_disk_bytes: int | None, *, one_of_many: bool = False
    ) -> None:
        """`low_disk_bytes`: a segment that would leave less than this free is made for control frames only; None: two
        segments of the next one's size. `one_of_many`: other logs are on the same disk, so this one takes less of it
        ahead of time."""
        self.fs = fs
        self.segment_bytes = segment_bytes
        self.low_disk_bytes = low_disk_bytes
        self._one_of_many = one_of_many
        self.reusable_from = 0
        self.written_stays = True
        self.generation_is_kept = False
        self.recycles = True
        """An expired segment's file becomes a later segment."""
        self.checkpoint_after_ms = CHECKPOINT_AFTER_MS
        self.checkpoint_batches = CHECKPOINT_BATCHES
        self.clean_file_bytes = CLEAN_FILE_BYTES
        self.here_from = 0
        """What begins there or behind is in files of this machine."""
        self.low_disk = False
        """Record batches are refused for want of disk; the owner takes it back when there is room again."""
        self.no_segment = ""
        """Why the last attempt to make a segment failed, if not for want of disk. Nobody tries again until the owner
        empties it."""
        self.segments: list[Segment] = []
        self._starts: list[int] = []
        self.cleaned: list[Segment] = []
        """The clean files, in the order of their positions."""
        self._cleaned_starts: list[int] = []
        self.missing: list[tuple[int, int]] = []
        """Log positions [from, to) whose files are gone or cut short; found at the start."""
        self.floor: Floor | None = None
        """Where the log began when it was written last, if that is known."""
        self.ceiling: Noted | None = None
        """How far the log was ever written before it was opened, if that is known."""
        self._ceiling = Ceiling(fs)
        self.end = 0
        self.written = 0
        self.flushed = 0
        self.generation = 0
        self.failed: OSError | None = None
        self.head: Callable[[int], Sequence[Buffer]] = lambda start: ()
        """Asked for the control records to stand at the head of the segment that is to begin at `start`."""
        self.on_roll: Callable[[int], None] = lambda start: None
        """Called right after a new segment became the active one and got its head."""
        self._pending: list[Buffer] = []
        self._pending_at = 0
        self._full: list[tuple[Segment, int, list[Buffer]]] = []
        self._unsynced: list[Segment] = []
        self._new_names = False
        self._spare: File | None = None
        self._making_spare = False
        self._recycled: File | None = None
        """The next spare, once the disk knows that it is no segment any more: until then it must not be written to,
        or a loss of power brings the old name back with new bytes under it."""
        self._recycling: File | None = None
        """The same, where the sync under way tells the disk."""
        self._retired: deque[Retired] = deque()
        self._zombies: list[Retired] = []

    # -- opening ---------------------------------------------------------------------------------------------------

    def open(self) -> None:
        """Find the segments. Does not look into them: see `recovery`. Raises StartError, OSError."""
        fs = self.fs
        fs.make_directory(FOLDER)
        fs.sync_directory("")  # or the folder itself would be gone with the power
        for name in fs.listdir(FOLDER):
            if name.endswith(ASIDE):  # a segment that was being moved
                fs.remove(f"{FOLDER}/{name}")
        self.ceiling, self.floor = bounds.load(fs), bounds.load_floor(fs)
        for start, path in list_segments(fs):
            file = fs.open(path)
            size = file.size()
            if size < HEADER_BYTES:  # made, but power went before it was allocated
                file.close()
                fs.remove(path)
                continue
            self._add(Segment(start, size, file, file.map()))
        for low, high in gaps(self.segments):
            self.fill(low, high)
        if self.segments:
            self.end = self.written = self.flushed = self.segments[0].start
        if "spare" in fs.listdir(FOLDER):
            fs.sync_directory(FOLDER)  # it may have been a segment a moment before the end
            self._open_spare()

    def fill(self, low: int, high: int) -> None:
        """The files of these positions are gone: zeroes stand in for them, which recovery takes for rot."""
        self.missing = sorted([*self.missing, (low, high)])
        at = bisect_right(self._starts, low)
        self.segments.insert(at, missing_segment(low, high))
        self._starts.insert(at, low)
        if not at:
            self.end = self.written = self.flushed = low

    def resume(self, end: int, generation: int) -> None:
        """Go on appending at `end`; all below it is on disk.

        Segments that begin at `end` or above held nothing and go, also the one that would come next: what is
        appended in it must stand behind a head, and a segment gets its head when it is made.
        """
        while self.segments and self.segments[-1].start >= end:
            self._retire(self.segments.pop(), ())
            self._starts.pop()
        while (remove := self.begin_removal()) is not None:
            self.removed(remove())
        self.end = self.written = self.flushed = self._pending_at = end
        self.generation = generation
        self._ceiling.begin(end, generation, self.segments[0].start if self.segments else end)

    def recover(self, begin: int, end: int) -> None:
        """All of it may be touched: what the page cache does not have is waited for where it is touched."""

    def lease(self, generation: int) -> int:
        """The data directory is this process's alone (server/app.py locks it)."""
        return generation + 1

    def prove(self, begin: int, end: int) -> None:
        """Make sure that these bytes are on disk, by writing them again: the page cache may hold bytes whose fsync
        failed before this start and that the kernel counts as clean. Raises OSError."""
        if self.ceiling is not None and self.ceiling.position < end:  # the disk took no sync for long
            self._ceiling.begin(end, self.ceiling.generation)
            if (note := self._ceiling.to_sync()) is not None:
                note.sync()
        for segment in self.segments:
            low, high = max(begin, segment.start), min(end, segment.end)
            if low < high:
                try:
                    _write_again(segment, low, high)
                except OSError:
                    self._move_segment(segment, high)
        SyncJob(self.fs, [], True, end).run()

    def _move_segment(self, segment: Segment, end: int) -> None:
        """Rewrite a segment up to `end` into a new file: the disk does not take writes at its old place. Raises
        OSError.

        Only at a start, while nobody holds a slice of it.
        """
        path = segment_path(segment.start)
        aside = path + ASIDE
        with contextlib.suppress(FileNotFoundError):
            self.fs.remove(aside)
        file = self._allocate(aside, segment.size)
        for at in range(0, end - segment.start, _COPY_BYTES):
            write_all(file, [bytes(segment.view[at : min(at + _COPY_BYTES, end - segment.start)])], at)
        file.sync()
        self.fs.rename(aside, path)
        segment.mapping.release()
        segment.file.close()
        segment.file, segment.mapping = file, file.map()

    def _open_spare(self) -> None:
        file = self.fs.open(SPARE)
        if file.size() >= self.next_bytes and self.fs.links(SPARE) == 1:
            self._spare = file
        else:
            file.close()
            self.fs.remove(SPARE)

    def _add(self, segment: Segment) -> None:
        self.segments.append(segment)
        self._starts.append(segment.start)

    def close(self) -> None:
        """Give all files back."""
        gone = [retired.segment for retired in (*self._retired, *self._zombies)]
        for segment in self.segments + self.cleaned + gone:
            segment.mapping.release()
            segment.file.close()
        for file in (self._spare, self._recycled):
            if file is not None:
                file.close()
        self._ceiling.close()

    # -- appending -------------------------------------------------------------------------------------------------

    @property
    def start(self) -> int:
        return self._starts[0] if self._starts else 0

    @property
    def pending_bytes(self) -> int:
        return self.end - self.written

    def append(
        self,
        kind: int,
        topic_number: int,
        partition: int,
        record_count: int,
        base_offset: int,
        span: int,
        original_span: int,
        store_ms: int,
        payload: Buffer,
        *,
        flags: int = 0,
        due_ms: int = 0,
        part: int = 0,
        parts: int = 1,
        payload_crc: int = 0,
        provenance: bytes = b"",
        small: bool = False,
    ) -> int:
        """Put a frame at the end; returns the log position of its payload. `payload` is kept, not copied, until
        `write`. `small`: a batch that may use what is kept back of the disk, as control frames do.

        Raises BrokerError(KAFKA_STORAGE_ERROR) where the log cannot grow; nothing has changed then.
        """
        length = HEADER_BYTES + len(provenance) + len(payload)
        if self.failed is not None:
            raise BrokerError(Fault.KAFKA_STORAGE_ERROR, f"the log accepts no more writes: {self.failed}")
        if self.low_disk and kind == Kind.BATCH and not small:
            raise self._disk_is_low()
        if not self.segments or self.end + length + HEADER_BYTES > self.segments[-1].end:
            self._roll(length, store_ms, small=small or kind != Kind.BATCH)
        position = self.end
        header = encode(
            kind, length, position, self.flushed, self.generation, topic_number, partition, record_count, base_offset,
            span, original_span, store_ms, flags=flags, due_ms=due_ms, part=part, parts=parts, payload_crc=payload_crc,
            provenance=provenance,
        )  # fmt: skip
        self._pending.append(header)
        if length > HEADER_BYTES:
            self._pending.append(payload)
        self.end = position + length
        return self.end - len(payload)

    def reserve(self, length: int, store_ms: int, *, small: bool = False) -> None:
        """Make sure that batch frames of so many bytes, headers and all, come to stand in one segment, and that they
        will be taken: for a frame group. `small` and errors as of `append`."""
        if self.failed is not None:
            raise BrokerError(Fault.KAFKA_STORAGE_ERROR, f"the log accepts no more writes: {self.failed}")
        if self.low_disk and not small:
            raise self._disk_is_low()
        if not self.segments or self.end + length + HEADER_BYTES > self.segments[-1].end:
            self._roll(length, store_ms, small=small)

    def _roll(self, length: int, store_ms: int, *, small: bool) -> None:
        """Begin a new segment that has room for its head and for a frame of `length`."""
        if length > MAX_FRAME_BYTES:
            raise BrokerError(Fault.RECORD_LIST_TOO_LARGE)
        if self.no_segment:
            raise BrokerError(Fault.KAFKA_STORAGE_ERROR, self.no_segment)
        has_room = self.has_room(length)
        if not small and not has_room:
            self.low_disk = True
            raise self._disk_is_low()
        start = max(self.end, self.segments[-1].end) if self.segments else self.end
        head = self.head(start)
        head_bytes = sum(len(record) + HEADER_BYTES for record in head)
        size = self.next_bytes if has_room else self._first_bytes  # what is kept back lasts longer in small pieces
        size = max(size, HEAD_SHARE * head_bytes, head_bytes + length + 2 * HEADER_BYTES)
        try:
            segment = self._new_segment(start, size)
        except OSError as error:
            raise self._no_segment(size, error) from error
        if self.segments:
            if self.end < start:
                rest = start - self.end
                self._pending.append(
                    encode(Kind.END, rest, self.end, self.flushed, self.generation, -1, -1, 0, 0, 0, 0, store_ms)
                )
            self._full.append((self.segments[-1], self._pending_at, self._pending))
            self._pending = []
        self.end = self._pending_at = start
        self._add(segment)
        self._new_names = True
        for part, record in enumerate(head):
            self.append(
                Kind.CONTROL, -1, -1, 0, 0, 0, 0, store_ms, record,
                part=part, parts=len(head), payload_crc=control_crc(record),
            )  # fmt: skip
        self.on_roll(start)

    @property
    def _first_bytes(self) -> int:
        return min(FIRST_OF_MANY_BYTES if self._one_of_many else FIRST_SEGMENT_BYTES, self.segment_bytes)

    @property
    def next_bytes(self) -> int:
        """The size of the next segment, unless a frame needs more: the log grows twofold with each, or by a quarter
        where it is one of many, up to `segment_bytes`. What is other logs', too, does not count."""
        together = self.segments[-1].end - max(self.segments[0].start, self.reusable_from) if self.segments else 0
        if self._one_of_many:
            together //= SHARE_OF_MANY
        return min(self.segment_bytes, max(self._first_bytes, together))

    @property
    def low_disk_mark(self) -> int:
        """So much of the disk is kept free for control frames."""
        if self.low_disk_bytes is not None:
            return self.low_disk_bytes
        others = LOGS * self._first_bytes if self._one_of_many else 0
        return max(MARK_SEGMENTS * self.next_bytes, others)

    def low_disk_reason(self) -> str:
        """Says what is needed, what there is, and which setting decides it."""
        need, mark = readable_size(self.next_bytes), readable_size(self.low_disk_mark)
        return (
            f"the disk is nearly full: the next log segment takes {need} and {mark} are to stay free "
            f"(log.low_disk_bytes, log.segment_bytes), but only {readable_size(self.fs.free_bytes())} are free"
        )

    def _disk_is_low(self) -> BrokerError:
        return BrokerError(Fault.KAFKA_STORAGE_ERROR, f"{self.low_disk_reason()}: the broker refuses record batches")

    def _no_segment(self, size: int, error: OSError) -> BrokerError:
        """Not every batch tries again: see `low_disk`, `no_segment`."""
        why = error.strerror or str(error)
        if error.errno in _FULL:
            self.low_disk = True
            text = f"no room for another log segment of {readable_size(size)} (log.segment_bytes): {why}"
        else:
            text = self.no_segment = f"another log segment cannot be made: {why}"
        return BrokerError(Fault.KAFKA_STORAGE_ERROR, text)

    def _new_segment(self, start: int, size: int) -> Segment:
        """Take the spare, or make a file now. Raises OSError, leaving no half-made file behind."""
        path = segment_path(start)
        file = self._spare
        if file is not None and file.size() >= size:
            self.fs.rename(SPARE, path)
            self._spare = None
        else:
            file = self._allocate(path, size)
        try:
            return Segment(start, file.size(), file, file.map())
        except OSError:
            file.close()
            self.fs.remove(path)
            raise

    def _allocate(self, path: str, size: int) -> File:
        file = self.fs.open(path, create=True)
        try:
            file.allocate(size)
        except OSError:
            file.close()
            self.fs.remove(path)
            raise
        return file

    def wants_spare(self) -> bool:
        """Whether the next segment should be made ahead: none is there, the active one is half full, the disk has
        room."""
        if self._has_next() or self.failed is not None or not self.segments:
            return False
        active = self.segments[-1]
        if self.end - active.start <= active.size // 2:
            return False
        return self.has_room()

    def _has_next(self) -> bool:
        return self._spare is not None or self._making_spare or self._recycled is not None

    def has_room(self, length: int = 0) -> bool:
        """Whether another segment, for a frame of `length`, may begin without coming below the low-disk mark."""
        if self._spare is not None and length <= self._spare.size() // 2:
            return True
        return self.fs.free_bytes() >= self.low_disk_mark + max(self.next_bytes, length)

    def begin_spare(self) -> Callable[[], File]:
        """A function for a thread that allocates a segment, slowly.

        Hand what it returns to `take_spare` in the loop, or None if it raised OSError.
        """
        self._making_spare = True
        size = self.next_bytes

        def make() -> File:
            with contextlib.suppress(FileNotFoundError):
                self.fs.remove(SPARE)
            return self._allocate(SPARE, size)

        return make

    def take_spare(self, file: File | None) -> None:
        assert self._making_spare and self._spare is None
        self._making_spare = False
        self._spare = file

    # -- writing and flushing --------------------------------------------------------------------------------------

    def write(self) -> None:
        """Bring all that was appended into the page cache. Raises StorageError, and the log is `failed` from then
        on."""
        if self.written == self.end or self.failed is not None:
            return
        full, self._full = self._full, []
        pending, self._pending = self._pending, []
        try:
            if self.end > self._ceiling.renew_at:
                self._ceiling.note(self.end)
            for segment, position, buffers in full:
                write_all(segment.file, buffers, position - segment.start)
                self._mark_unsynced(segment)
            if pending:
                active = self.segments[-1]
                write_all(active.file, pending, self._pending_at - active.start)
                self._mark_unsynced(active)
        except OSError as error:
            self.failed = error
            raise StorageError(f"writing the log failed: {error}") from error
        self.written = self._pending_at = self.end

    def _mark_unsynced(self, segment: Segment) -> None:
        if not self._unsynced or self._unsynced[-1] is not segment:
            self._unsynced.append(segment)

    def sync_job(self) -> Sync | None:
        """What must be synced for `written` to become `flushed`; None where nothing must. One job at a time."""
        if (self.flushed == self.written and self._recycled is None) or self.failed is not None:
            return None
        files = [segment.file for segment in self._unsynced]
        if (note := self._ceiling.to_sync()) is not None:
            files.insert(0, note)
        job = SyncJob(self.fs, files, self._new_names, self.written)
        self._recycling = self._recycled
        self._unsynced = []
        self._new_names = False
        return job

    def finish_sync(self, job: Sync, error: OSError | None) -> None:
        if error is not None:
            self.failed = error
        else:
            assert self.flushed <= job.target <= self.written
            self.flushed = job.target
            if self._recycling is not None:
                self._spare, self._recycled, self._recycling = self._recycling, None, None

    # -- reading ---------------------------------------------------------------------------------------------------

    def segment_at(self, position: int) -> Segment:
        if position >= CLEAN_BASE:
            return self.cleaned[bisect_right(self._cleaned_starts, position) - 1]
        index = bisect_right(self._starts, position) - 1
        if index < 0:
            raise BrokerError(Fault.OFFSET_OUT_OF_RANGE, "these messages have expired")
        return self.segments[index]

    # -- clean files -----------------------------------------------------------------------------------------------

    def add_cleaned(self, segment: Segment) -> None:
        at = bisect_right(self._cleaned_starts, segment.start)
        self.cleaned.insert(at, segment)
        self._cleaned_starts.insert(at, segment.start)

    def remove_cleaned(self, segment: Segment, path: str, others: Sequence[str] = ()) -> None:
        """Drop a clean file; `others` as of `remove_oldest`."""
        at = self._cleaned_starts.index(segment.start)
        del self.cleaned[at], self._cleaned_starts[at]
        self._retired.append(Retired(segment, path, list(others)))

    # -- expiring --------------------------------------------------------------------------------------------------

    def remove_oldest(self, others: Sequence[str] = ()) -> None:
        """Drop the oldest segment; never the active one. Its file goes, or becomes the spare, in its turn
        (`begin_removal`), and with it the files at `others`."""
        assert len(self.segments) > 1
        self._retire(self.segments.pop(0), others)
        self._starts.pop(0)

    def _retire(self, segment: Segment, others: Sequence[str]) -> None:
        self._retired.append(Retired(segment, segment_path(segment.start), list(others)))

    def begin_removal(self) -> Callable[[], Removed] | None:
        """A function for a thread that removes the file of what was dropped first; None where nothing was.

        One after the other: a later segment must not be gone before an earlier one. Where the kernel has much of a
        file in memory, giving that back takes 200 ms a GiB. Hand what the function returns to `removed` in the loop; if
        it raised OSError, try again later.
        """
        if not self._retired:
            return None
        retired = self._retired[0]
        segment = retired.segment
        is_own = self.reusable_from <= segment.start < CLEAN_BASE
        reuse = self.recycles and is_own and segment.size >= self.next_bytes and not self._has_next()
        expired = segment.start < self.start  # and is no tail that a start has cut
        floor = Floor(self.start, self.generation) if expired else None
        return lambda: retired.remove(self.fs, reuse=reuse, floor=floor)

    def removed(self, result: Removed) -> None:
        retired = self._retired.popleft()
        self._new_names = True
        if not result.released:
            self._zombies.append(retired)
        if result.recycled is not None:
            self._recycled = result.recycled

    def bury_zombies(self) -> None:
        """Try again to close files of which slices were still being sent."""
        self._retired += self._zombies
        self._zombies = []
