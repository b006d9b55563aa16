"""The log of a shard that lives in an object store and a database, as a storage engine (core/storage/storage.py).

It is the local disk's log over a cache: the same files, which are never synced, and of which those from before this
node had the shard are filled as they are read. What makes *written* *flushed* is a commit. All frames are written in
this epoch from a segment of their own on: so each segment was written by one node.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Final, NamedTuple

from halfmoon.cluster.engine.backing import Backing
from halfmoon.cluster.engine.cached_files import CachedFiles
from halfmoon.cluster.engine.committing import Taken
from halfmoon.cluster.engine.database import Commit
from halfmoon.cluster.engine.objects import MOST_BYTES
from halfmoon.cluster.engine.piece_list import PieceList
from halfmoon.cluster.engine.pieces import Piece
from halfmoon.config.units import readable_size
from halfmoon.core import clean_files
from halfmoon.core.crc import crc32c
from halfmoon.core.storage.bounds import Floor, Noted
from halfmoon.core.storage.commitlog import CommitLog
from halfmoon.core.storage.log_files import FOLDER, Retired, segment_path
from halfmoon.core.storage.segment import Removed, Segment, Sync
from halfmoon.core.storage.storage import Place
from halfmoon.errors import BrokerError, StartError
from halfmoon.schema.snapshot import CLEAN_BASE

CHECKPOINT_AFTER_MS: Final = 300_000
"""Whoever takes the shard over fetches what was written since, which may be 1,500 pieces in that time."""
CHECKPOINT_BATCHES: Final = 4_000
"""Whoever takes several shards over at once reads so many batches of each: 30 µs for one, where nothing is compiled."""

COMMIT_BYTES = 8 << 20
"""About the most that one commit of a shard has, so that it can be sent in the time that a call has."""
MOST_WAITING_BYTES = 64 << 20
"""Of a shard. It takes no more then: producers are to hear that something is wrong, and try again."""


class ShardCommit:
    """See core/storage/segment.Sync. Begun in the loop, it is all that is written when its turn comes."""

    def __init__(self, log: ShardLog) -> None:
        self._log = log
        self.target = log.written
        self._reached = log.flushed
        self.shard = log.backing.shard
        self._grows = False
        self._ended = False
        self._done: Callable[[OSError | None], None] = lambda error: None

    @property
    def is_plain(self) -> bool:
        return False

    def begin(self, done: Callable[[OSError | None], None]) -> bool:
        self._grows = True
        self._want(done)
        return True

    def _want(self, done: Callable[[OSError | None], None]) -> None:
        self._done = done
        self._log.backing.wants(self)

    def run(self) -> None:
        """Where somebody waits for it, in a thread: what was written when it was made."""
        ended: Future[OSError | None] = Future()
        backing = self._log.backing

        def begin() -> None:
            self._want(ended.set_result)
            backing.hurry()

        backing.call_in_loop(begin)
        error = ended.result()
        if error is not None:
            raise error

    def take(self) -> Taken | None:
        log = self._log
        if self._ended:
            return None
        self._reached = max(self._reached, log.flushed)
        if self._grows:
            self.target = log.commit_end(self._reached, log.written)
        if self.target <= self._reached:  # another commit has brought it there meanwhile
            self.target = self._reached
            self._tell(None)
            return None
        pieces, frames = log.between(self._reached, log.commit_end(self._reached, self.target))
        return Taken(Commit(self.shard, log.backing.epoch, tuple(pieces)), frames)

    def committed(self, commit: Commit) -> None:
        backing = self._log.backing
        backing.pieces.add(commit.pieces)
        self._reached = commit.end
        if self._reached < self.target and not self._ended:
            backing.wants(self)
            backing.hurry()
        else:
            self._tell(None)

    def failed(self, error: OSError) -> None:
        self._tell(error)

    def _tell(self, error: OSError | None) -> None:
        """Once: it may have been abandoned before."""
        if self._ended:
            return
        self._ended = True
        self._log.backing.ended()
        self._done(error)


class Cached(NamedTuple):
    log: "ShardLog"
    segment: "Segment"
    size: int
    """Bytes that are here."""
    since_s: float
    """By the monotonic clock."""


class ShardLog(CommitLog):
    """Of one shard, while this node has it."""

    def __init__(self, files: CachedFiles, backing: Backing, segment_bytes: int, low_disk_bytes: int | None) -> None:
        super().__init__(files, segment_bytes, low_disk_bytes, one_of_many=True)
        self.backing = backing
        self.written_stays = False  # the next node sees what is committed
        self.generation_is_kept = True  # it is the epoch of the shard's row
        self.recycles = False
        self.checkpoint_after_ms = CHECKPOINT_AFTER_MS
        self.checkpoint_batches = CHECKPOINT_BATCHES
        self.clean_file_bytes = MOST_BYTES  # it becomes an object
        self._files = files
        self._write_ends: deque[int] = deque()
        """Where each write ended that is not committed: frames that belong together were written together."""
        self._dropped_to = 0
        """The database has no pieces before."""
        self._is_recovered = False

    def open(self) -> None:
        fs = self._files
        fs.make_directory(FOLDER)
        segments = self.backing.pieces.segments()
        for start, end in segments:
            fs.make_remote(segment_path(start), start, end - start)
        super().open()
        end = self.backing.head.end
        first = segments[0][0] if segments else end
        self.floor, self.ceiling = Floor(first, 0), Noted(end, 0)
        self._dropped_to = first
        if not segments:
            self.end = self.written = self.flushed = first

    def recover(self, begin: int, end: int) -> None:
        for segment in self.segments:
            low, high = max(begin, segment.start), min(end, segment.end)
            if low < high and not segment.mapping.in_memory(low - segment.start, high - segment.start):
                self._files.fill(segment.file, low - segment.start, high - segment.start)

    def prove(self, begin: int, end: int) -> None:
        """It was committed, or it would not be here."""

    def lease(self, generation: int) -> int:
        backing = self.backing
        if backing.epoch <= generation:
            raise StartError(f"shard {backing.shard}: its log has epoch {generation}, its head {backing.epoch}")
        return backing.epoch

    def resume(self, end: int, generation: int) -> None:
        backing = self.backing
        if end != backing.head.end:
            raise StartError(f"shard {backing.shard}: its log can be read up to {end}, and not to {backing.head.end}")
        super().resume(end, generation)
        self.here_from = end
        self._files.opened()
        self._is_recovered = True

    @property
    def is_open(self) -> bool:
        """It has been recovered, and nobody closes it. Else its segments may not be known yet, or not any more."""
        return self._is_recovered and not self.backing.is_closing

    def write(self) -> None:
        before = self.written
        super().write()
        if self.written > before:
            self._write_ends.append(self.written)
            self.backing.written(self.written - before)
        if self._is_behind():
            self.low_disk = True

    def finish_sync(self, job: Sync, error: OSError | None) -> None:
        super().finish_sync(job, error)
        if self.low_disk and self.has_room():
            self.low_disk = False

    def commit_end(self, begin: int, end: int) -> int:
        """Of a commit that begins there: `end`, where that is not too far, else where a write ended before it."""
        ends = self._write_ends
        while ends and ends[0] <= self.flushed:
            ends.popleft()
        if end - begin <= COMMIT_BYTES:
            return end
        inside = [each for each in ends if begin < each < end]
        near = [each for each in inside if each <= begin + COMMIT_BYTES]
        return near[-1] if near else inside[0] if inside else end

    def _is_behind(self) -> bool:
        return self.written - self.flushed > MOST_WAITING_BYTES

    def has_room(self, length: int = 0) -> bool:
        return not self._is_behind() and super().has_room(length)

    def low_disk_reason(self) -> str:
        if not self._is_behind():
            return super().low_disk_reason()
        waiting = readable_size(self.written - self.flushed)
        return f"shard {self.backing.shard}: {waiting} wait for the object store or the database"

    def between(self, begin: int, end: int) -> tuple[list[Piece], list[memoryview]]:
        """What was written there: a piece of each segment, and its bytes."""
        pieces: list[Piece] = []
        frames: list[memoryview] = []
        while begin < end:
            segment = self.segment_at(begin)
            stop = min(end, segment.end)
            data = segment.view[begin - segment.start : stop - segment.start]
            pieces.append(Piece(begin, stop, crc32c(data), segment.start))
            frames.append(data)
            begin = stop
        return pieces, frames

    def pieces_of(self, places: Sequence[Place]) -> tuple[int, list[Piece]]:
        """How many of these places of batches are committed, from the first on, and what has them; a clean file is one
        piece. Raises BrokerError(OFFSET_OUT_OF_RANGE) where one was dropped."""
        found: list[Piece] = []
        start = end = -1
        for at, (position, _) in enumerate(places):
            if start <= position < end:
                continue
            piece = self._clean_file(position) if position >= CLEAN_BASE else self._piece(position)
            if piece is None:
                return at, found
            start, end = piece.start, piece.end
            found.append(piece)
        return len(places), found

    def _piece(self, position: int) -> Piece | None:
        found = self.backing.pieces.between(position, position + 1)
        return found[0] if found and found[0].start <= position < found[0].end else None

    def _clean_file(self, position: int) -> Piece | None:
        start = self.segment_at(position).start
        file = self.backing.files.get(clean_files.data_path(start))
        return None if file is None else Piece(start, start + file.size, file.crc, start, file.key)

    def sync_job(self) -> ShardCommit | None:
        self._unsynced.clear()
        if self.flushed == self.written or self.failed is not None:
            return None
        return ShardCommit(self)

    def begin_removal(self) -> Callable[[], Removed] | None:
        """What has no name any more goes first: it needs no order, and is not to wait for the database. That is asked
        once after each time that the log's start has moved."""
        self._retired = deque(sorted(self._retired, key=lambda each: each.path is not None))
        remove = super().begin_removal()
        start, backing = self.start, self.backing
        if remove is None or self._retired[0].path is None or start <= self._dropped_to:
            return remove

        def run() -> Removed:
            backing.drop(start)
            self._dropped_to = start
            return remove()

        return run

    # -- the cache -------------------------------------------------------------------------------------------------

    def cached(self, hot_bytes: int) -> list[Cached]:
        """Segments of which something is here and need not be: all but what is written to, is not committed yet, or is
        among the last `hot_bytes`, which are read without a look; and compacted ones that are in the store."""
        before = min(self.end - hot_bytes, self.flushed)
        may_go = [segment for segment in self.segments[:-1] if segment.end <= before]
        may_go += [each for each in self.cleaned if self._files.is_in_store(clean_files.data_path(each.start))]
        found = []
        for segment in may_go:
            size, since_s = self._files.here(segment.file)
            if size:
                found.append(Cached(self, segment, size, since_s))
        return found

    @property
    def cached_bytes(self) -> int:
        """Of all segments, about."""
        return sum(self._files.here(segment.file)[0] for segment in (*self.segments, *self.cleaned))

    def forget(self, segment: Segment) -> None:
        """What is here of it makes way. Slices of it that are being sent stay what they are."""
        old = Segment(segment.start, segment.size, segment.file, segment.mapping)
        if segment.start >= CLEAN_BASE:
            segment.file = self._files.forget_kept(clean_files.data_path(segment.start))
        else:
            segment.file = self._files.forget(segment_path(segment.start), segment.start, segment.size)
        segment.mapping = segment.file.map()
        self._retired.append(Retired(old, None, []))

    # -- for the mover ---------------------------------------------------------------------------------------------

    @property
    def shard(self) -> int:
        return self.backing.shard

    @property
    def epoch(self) -> int:
        return self.backing.epoch

    @property
    def pieces(self) -> PieceList:
        return self.backing.pieces

    def active_segment(self) -> int:
        return self.segments[-1].start if self.segments else self.end

    def bytes_of(self, start: int, end: int) -> bytes:
        try:
            segment = self.segment_at(start)
            with segment.view[:0]:  # keeps the file open
                return segment.file.pread(end - start, start - segment.start)
        except (BrokerError, ValueError) as error:  # it has expired, or the log was closed meanwhile
            raise OSError(f"shard {self.shard}: {start} is not here any more: {error}") from None
