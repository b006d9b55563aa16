"""The seam for another storage engine: what the kernel asks of the log's storage.

A storage has two sides, and each caller is given the one it uses:

    log      writing: append → write → sync_job → finish_sync; a start; segments sealed and dropped; the lease
    reader   reading: batches, frames, stretches of the log

`local.LocalStorage` keeps the log in segment files of one disk. Another engine keeps it somewhere else and fetches what
it does not have by network. So a read answers at once, or with "not here yet": a *load*, which is a function for a
thread. Run it, and what it returns is what was asked for. A load may take as long as a network takes, and may raise
OSError or BrokerError; nothing is lost then, and whoever needs it asks again. Nobody runs a load in the loop's thread,
but where a start or a stop has to wait.

What an engine keeps in its cache looks like the local disk's: `Segment`s, of which `view` is mapped memory. A part of
one may be touched once `reader.bring` said that it is here, or its load has run, as long as the caller holds a slice of
`view` from before that.

tests/core/storage/contract/ is the suite that every engine passes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from halfmoon.config.settings import Settings
from halfmoon.core.storage.bounds import Floor, Noted
from halfmoon.core.storage.fetch_buffers import FetchBuffers
from halfmoon.core.storage.files import Buffer, File, FileSystem
from halfmoon.core.storage.frame_reading import WholeFrame
from halfmoon.core.storage.segment import Removed, Segment, Sync

Place = tuple[int, int]
"""(log position, length) of a batch."""


Bring = Callable[[int, int], Callable[[], object] | None]
"""As of `ReadSide.bring`."""


class Read(NamedTuple):
    """Whole batches. `size` in bytes.

    If `cold` is set they are not here yet, and `slices` is empty: call it in a thread, it returns them. It may be
    called again where it has raised OSError. `loads`: they take memory of their own, now or then, and as much as their
    size; else they are slices of what is mapped.
    """

    slices: Sequence[memoryview | bytes]
    size: int
    cold: Callable[[], Sequence[memoryview]] | None
    loads: bool = False


class Frames(Protocol):
    """Single frames, as the log has them at the moment this is made in the loop. For one thread; both may take long,
    and raise OSError."""

    def read(self, position: int) -> WholeFrame | None:
        """The frame that begins there; None where there is none (any more)."""
        ...

    def before(self, payload_position: int) -> WholeFrame | None:
        """The frame whose payload begins there; None where there is none (any more)."""
        ...


class ReadSide(Protocol):
    """Called in the loop; waits for nothing. Raises BrokerError(OFFSET_OUT_OF_RANGE) where the log has been dropped."""

    cold_reads: int
    """How many reads were not here."""

    @property
    def buffers(self) -> FetchBuffers:
        """What `read` takes its memory from."""
        ...

    def read(self, places: Sequence[Place], load_bytes: int | None = None) -> Read:
        """What stands at these places, each within a segment, in their order. Where that `loads`, no more than the
        first `load_bytes` of it, in whole batches, which may be none; None is all of it."""
        ...

    def load(self, places: Sequence[Place]) -> Callable[[], Sequence[memoryview]]:
        """The same as a load, also where it is here: for who goes on in a thread anyway."""
        ...

    def frames(self) -> Frames: ...

    def bring(self, start: int, end: int) -> Callable[[], object] | None:
        """None: these bytes of one segment may be touched in its `view`. Else a load, after which they may."""
        ...


class WriteSide(Protocol):
    """One thread calls everything here, but for what is marked as a function for a thread.

    start ≤ flushed ≤ written ≤ end. What is below *flushed* survives the loss of this machine's power, or of the
    machine, as the engine promises it; below *written* the death of this process, where `written_stays`. Nobody reads
    above *written*.
    """

    fs: FileSystem
    """Of what is kept beside the log: the checkpoint, index files, files of features."""
    segments: list[Segment]
    cleaned: list[Segment]
    """The compacted segments, in the order of their positions."""
    segment_bytes: int
    low_disk: bool
    """Record batches are refused for want of room; the caller takes it back when there is room again."""
    no_segment: str
    """Why the log cannot grow, though there is room; the caller empties it to have it tried again."""
    missing: list[tuple[int, int]]
    """Log positions [from, to) of `segments` whose bytes are gone, found at the start."""
    floor: Floor | None
    """Where the log began when it was written last; None where that is not known."""
    ceiling: Noted | None
    """How far the log was ever written before it was opened; None where that is not known."""
    end: int
    written: int
    flushed: int
    generation: int
    written_stays: bool
    """Else what is written and not flushed is lost with this process: its successor reads it from elsewhere."""
    generation_is_kept: bool
    """Which generation was given last is known beside the log; else the log has to say it before anything else."""
    reusable_from: int
    """Files of segments that begin below are other logs', too: their bytes stay as they are."""
    checkpoint_after_ms: int
    """What was appended is indexed and checkpointed after this at the latest, however little it is: a start after a
    crash would read it again."""
    checkpoint_batches: int
    """… and after so many batches, however small they are."""
    clean_file_bytes: int
    """A compacted segment is no larger than this."""
    failed: OSError | None
    """Why it takes no more writes; reads go on."""
    head: Callable[[int], Sequence[Buffer]]
    """Asked for the control records to stand at the head of the segment that is to begin there."""
    on_roll: Callable[[int], None]
    """Called right after a new segment became the active one and got its head."""

    @property
    def start(self) -> int: ...
    @property
    def low_disk_mark(self) -> int:
        """So much room is kept for control frames, bytes."""
        ...

    def low_disk_reason(self) -> str:
        """A sentence: what is needed, what there is, and which setting decides it."""
        ...

    @property
    def pending_bytes(self) -> int: ...

    # A start; all of it may take long.

    def open(self) -> None:
        """Find the segments. Raises StartError, OSError."""
        ...

    def fill(self, low: int, high: int) -> None:
        """These positions, before or behind `segments`, must have been there once: let them be read as zeroes."""
        ...

    def recover(self, begin: int, end: int) -> None:
        """Wait until these bytes of `segments` may be touched: a start scans them. Raises OSError."""
        ...

    def prove(self, begin: int, end: int) -> None:
        """Make sure that these bytes are durable: the scan has found them, and nobody knows of a sync. Raises
        OSError."""
        ...

    def lease(self, generation: int) -> int:
        """Take the right to write; the generation to write in, above this one, that nobody else ever gets. Raises
        LeaseLostError where another node has it."""
        ...

    def resume(self, end: int, generation: int) -> None:
        """Go on appending at `end`; all below it is durable."""
        ...

    def close(self) -> None: ...

    # Writing.

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
        """Put a frame at the end; the log position of its payload, which is kept, not copied, until `write`. `small`: a
        batch that is taken while record batches are refused for want of room. Raises
        BrokerError; nothing has changed then. A frame group is `reserve` and an append for each of its parts."""
        ...

    def reserve(self, length: int, store_ms: int, *, small: bool = False) -> None:
        """Make sure that frames of so many bytes come to stand in one segment, and are taken. Raises BrokerError."""
        ...

    def write(self) -> None:
        """Bring what was appended up to *written*. Raises StorageError; `failed` is set then."""
        ...

    def sync_job(self) -> Sync | None:
        """What is to be run for *written* to become *flushed*; None where nothing is. One at a time. Its end is the end
        of a frame group."""
        ...

    def finish_sync(self, job: Sync, error: OSError | None) -> None:
        """`job.run` has returned, or raised; with an error, `failed` is set."""
        ...

    # Sealing: the next segment is made ready before it is needed.

    def has_room(self, length: int = 0) -> bool: ...
    def wants_spare(self) -> bool: ...
    def begin_spare(self) -> Callable[[], File]: ...
    def take_spare(self, file: File | None) -> None: ...

    # Finding and dropping.

    def segment_at(self, position: int) -> Segment:
        """Raises BrokerError(OFFSET_OUT_OF_RANGE)."""
        ...

    def add_cleaned(self, segment: Segment) -> None: ...
    def remove_cleaned(self, segment: Segment, path: str, others: Sequence[str] = ()) -> None: ...
    def remove_oldest(self, others: Sequence[str] = ()) -> None:
        """Drop the oldest segment, and the files about it."""
        ...

    def begin_removal(self) -> Callable[[], Removed] | None:
        """A function for a thread that removes what was dropped first; `removed` is called with what it returns."""
        ...

    def removed(self, result: Removed) -> None: ...
    def bury_zombies(self) -> None: ...


class Storage(Protocol):
    """Of one log."""

    @property
    def log(self) -> WriteSide: ...
    @property
    def reader(self) -> ReadSide: ...


MakeStorage = Callable[[FileSystem, Settings], Storage]
"""Called once, before the start; touches no disk."""
