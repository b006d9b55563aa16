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
promised, and not in the middle of a write. A write or sync that fails all the same ends the log's writing life: `failed`
is set, every later append is refused, reads go on; the next start recovers from what is really on disk. An fsync that
failed is never tried again, because the kernel may have dropped the dirty pages with the error.

A file is named by the 20 digits of the log position it starts at, as RocketMQ's MappedFileQueue does. It is reused by
rename when it expires, but only once no slice of it is being sent any more.
"""

from __future__ import annotations

import contextlib
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass

from halfmoon.core.errors import BrokerError, Fault, StartError, StorageError
from halfmoon.core.files import Buffer, File, FileSystem, Mapping, write_all
from halfmoon.core.frame import HEADER_BYTES, Kind, encode

FOLDER = "log"
SPARE = "log/spare"
MAX_FRAME_BYTES = 1 << 30


def segment_path(start: int) -> str:
    return f"{FOLDER}/{start:020d}"


def _disk_is_low() -> BrokerError:
    return BrokerError(Fault.KAFKA_STORAGE_ERROR, "the disk is nearly full: no record batches are taken")


@dataclass(slots=True)
class Segment:
    """One file: the log positions [start, end)."""

    start: int
    size: int
    file: File
    mapping: Mapping

    @property
    def end(self) -> int:
        return self.start + self.size

    @property
    def view(self) -> memoryview:
        return self.mapping.view


class SyncJob:
    """One fdatasync for everybody who waits. `run` may be called in a thread; it touches nothing of the log's state."""

    __slots__ = ("_files", "_fs", "target")

    def __init__(self, fs: FileSystem, files: list[File], new_names: bool, target: int) -> None:
        self._files = files
        self._fs = fs if new_names else None
        self.target = target

    def run(self) -> None:
        """Raises OSError."""
        for file in self._files:
            file.sync()
        if self._fs is not None:
            self._fs.sync_directory(FOLDER)


class CommitLog:
    """The log of one broker. Single-threaded but for `SyncJob.run`, `make_spare` and `read`."""

    def __init__(self, fs: FileSystem, segment_bytes: int, low_disk_bytes: int) -> None:
        """`low_disk_bytes`: a segment that would leave less than this free is made for control frames only."""
        self.fs = fs
        self.segment_bytes = segment_bytes
        self.low_disk_bytes = low_disk_bytes
        self.low_disk = False
        """Record batches are refused for want of disk; the owner takes it back when there is room again."""
        self.segments: list[Segment] = []
        self._starts: list[int] = []
        self.end = 0
        self.written = 0
        self.flushed = 0
        self.generation = 0
        self.failed: OSError | None = None
        self.on_roll: Callable[[], None] = lambda: None
        """Called right after a new segment became the active one, before its first frame."""
        self._pending: list[Buffer] = []
        self._pending_at = 0
        self._full: list[tuple[Segment, int, list[Buffer]]] = []
        self._unsynced: list[Segment] = []
        self._new_names = False
        self._spare: File | None = None
        self._zombies: list[Segment] = []

    # -- opening ---------------------------------------------------------------------------------------------------

    def open(self) -> None:
        """Find the segments. Does not look into them: see `recovery`. Raises StartError."""
        fs = self.fs
        fs.make_directory(FOLDER)
        for name in fs.listdir(FOLDER):
            if name == "spare":
                self._open_spare()
            elif len(name) == 20 and name.isdigit():
                file = fs.open(f"{FOLDER}/{name}")
                size = file.size()
                if size == 0:  # made, but power went before it was allocated
                    file.close()
                    fs.remove(f"{FOLDER}/{name}")
                    continue
                self._add(Segment(int(name), size, file, file.map()))
        for before, after in zip(self.segments, self.segments[1:], strict=False):
            if before.end != after.start:
                raise StartError(
                    f"the log has a gap: segment {before.start:020d} ends at {before.end}, the next begins at {after.start}"
                )
        if self.segments:
            self.end = self.written = self.flushed = self.segments[0].start

    def resume(self, end: int, generation: int) -> None:
        """Go on appending at `end`; all below it is on disk. Segments that begin above `end` held nothing and go."""
        while len(self.segments) > 1 and self.segments[-1].start >= end and self.segments[-2].end > end:
            self._retire(self.segments.pop())
            self._starts.pop()
        self.end = self.written = self.flushed = self._pending_at = end
        self.generation = generation

    def _open_spare(self) -> None:
        file = self.fs.open(SPARE)
        if file.size() >= self.segment_bytes:
            self._spare = file
        else:
            file.close()
            self.fs.remove(SPARE)

    def _add(self, segment: Segment) -> None:
        self.segments.append(segment)
        self._starts.append(segment.start)

    def close(self) -> None:
        for segment in self.segments + self._zombies:
            segment.mapping.release()
            segment.file.close()
        if self._spare is not None:
            self._spare.close()

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
    ) -> int:
        """Put a frame at the end; returns the log position of its payload. `payload` is kept, not copied, until `write`.

        Raises BrokerError(KAFKA_STORAGE_ERROR) where the log cannot grow; nothing has changed then.
        """
        length = HEADER_BYTES + len(provenance) + len(payload)
        if self.failed is not None:
            raise BrokerError(Fault.KAFKA_STORAGE_ERROR, f"the log takes no more writes: {self.failed}")
        if not self.segments or self.end + length + HEADER_BYTES > self.segments[-1].end:
            self._roll(kind, length, store_ms)
        if self.low_disk and kind == Kind.BATCH:
            raise _disk_is_low()
        position = self.end
        self._pending.append(
            encode(
                kind, length, position, self.flushed, self.generation, topic_number, partition, record_count,
                base_offset, span, original_span, store_ms, flags=flags, due_ms=due_ms, part=part, parts=parts,
                payload_crc=payload_crc, provenance=provenance,
            )  # fmt: skip
        )
        if length > HEADER_BYTES:
            self._pending.append(payload)
        self.end = position + length
        return self.end - len(payload)

    def room(self) -> int:
        """Bytes left in the active segment."""
        return self.segments[-1].end - self.end - HEADER_BYTES if self.segments else 0

    def roll(self, store_ms: int) -> None:
        """Begin a new segment now."""
        self._roll(Kind.CONTROL, HEADER_BYTES, store_ms)

    def _roll(self, kind: int, length: int, store_ms: int) -> None:
        if length > MAX_FRAME_BYTES:
            raise BrokerError(Fault.RECORD_LIST_TOO_LARGE)
        if kind == Kind.BATCH and self._spare is None and self.fs.free_bytes() < self.low_disk_bytes + self.segment_bytes:
            self.low_disk = True
            raise _disk_is_low()
        start = self.segments[-1].end if self.segments else self.end
        try:
            segment = self._new_segment(start, max(self.segment_bytes, length + 2 * HEADER_BYTES))
        except OSError as error:
            raise BrokerError(
                Fault.KAFKA_STORAGE_ERROR, f"no room for another log segment: {error.strerror or error}"
            ) from error
        if self.segments:
            if self.end < start:
                self._pending.append(
                    encode(Kind.END, start - self.end, self.end, self.flushed, self.generation, -1, -1, 0, 0, 0, 0, store_ms)
                )
            self._full.append((self.segments[-1], self._pending_at, self._pending))
            self._pending = []
        self.end = self._pending_at = start
        self._add(segment)
        self._new_names = True
        self.on_roll()

    def _new_segment(self, start: int, size: int) -> Segment:
        """Take the spare, or make a file now. Raises OSError, leaving no half-made file behind."""
        path = segment_path(start)
        file = self._spare
        if file is not None and file.size() >= size:
            self.fs.rename(SPARE, path)
            self._spare = None
        else:
            file = self._allocate(path, size)
        return Segment(start, file.size(), file, file.map())

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
        """Whether the next segment should be made ahead: none is there and the active one is half full."""
        if self._spare is not None or self.failed is not None or not self.segments:
            return False
        active = self.segments[-1]
        return self.end - active.start > active.size // 2

    def make_spare(self) -> File:
        """Allocate a segment; slow, so run in a thread. Raises OSError. Hand the file to `take_spare` in the loop."""
        with contextlib.suppress(FileNotFoundError):
            self.fs.remove(SPARE)
        return self._allocate(SPARE, self.segment_bytes)

    def take_spare(self, file: File) -> None:
        assert self._spare is None
        self._spare = file

    # -- writing and flushing --------------------------------------------------------------------------------------

    def write(self) -> None:
        """Bring all that was appended into the page cache. Raises StorageError, and the log is `failed` from then on."""
        if self.written == self.end or self.failed is not None:
            return
        try:
            for segment, position, buffers in self._full:
                write_all(segment.file, buffers, position - segment.start)
                self._mark_unsynced(segment)
            self._full.clear()
            active = self.segments[-1]
            if self._pending:
                write_all(active.file, self._pending, self._pending_at - active.start)
                self._mark_unsynced(active)
        except OSError as error:
            self.failed = error
            raise StorageError(f"writing the log failed: {error}") from error
        finally:
            self._pending = []
        self.written = self._pending_at = self.end

    def _mark_unsynced(self, segment: Segment) -> None:
        if not self._unsynced or self._unsynced[-1] is not segment:
            self._unsynced.append(segment)

    def sync_job(self) -> SyncJob | None:
        """What must be synced for `written` to become `flushed`; None where nothing must. One job at a time."""
        if self.flushed == self.written or self.failed is not None:
            return None
        job = SyncJob(self.fs, [segment.file for segment in self._unsynced], self._new_names, self.written)
        self._unsynced = []
        self._new_names = False
        return job

    def finish_sync(self, job: SyncJob, error: OSError | None) -> None:
        if error is not None:
            self.failed = error
        else:
            assert self.flushed <= job.target <= self.written
            self.flushed = job.target

    # -- reading ---------------------------------------------------------------------------------------------------

    def segment_at(self, position: int) -> Segment:
        index = bisect_right(self._starts, position) - 1
        if index < 0:
            raise BrokerError(Fault.OFFSET_OUT_OF_RANGE, "these messages have expired")
        return self.segments[index]

    def view(self, position: int, length: int) -> memoryview:
        """A slice of the mapped file; no copy. Its pages may have to come from disk."""
        segment = self.segment_at(position)
        at = position - segment.start
        return segment.mapping.view[at : at + length]

    def read_cached(self, position: int, length: int) -> bytes | None:
        """A copy, or None where the disk would have to be waited for."""
        segment = self.segment_at(position)
        return segment.file.pread_cached(length, position - segment.start)

    # -- expiring --------------------------------------------------------------------------------------------------

    def remove_oldest(self) -> None:
        """Drop the oldest segment; never the active one."""
        assert len(self.segments) > 1
        self._retire(self.segments.pop(0))
        self._starts.pop(0)

    def _retire(self, segment: Segment) -> None:
        """Reuse a segment's file as the spare, or remove it. While slices of it are being sent it waits."""
        path = segment_path(segment.start)
        if segment.mapping.release():
            if self._spare is None and segment.size >= self.segment_bytes:
                self.fs.rename(path, SPARE)
                self._spare = segment.file
            else:
                segment.file.close()
                self.fs.remove(path)
        else:
            # The name goes at once, so that a restart does not find it; the file lives on until it is unmapped.
            self.fs.remove(path)
            self._zombies.append(segment)
        self._new_names = True

    def bury_zombies(self) -> None:
        """Close retired segments whose last slice has been sent."""
        self._zombies = [s for s in self._zombies if not self._bury(s)]

    def _bury(self, segment: Segment) -> bool:
        if not segment.mapping.release():
            return False
        segment.file.close()
        return True
