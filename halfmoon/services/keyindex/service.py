"""The key index: in which frames a key stands, and which frames say what became of a message (B02, B05).

It follows the log behind the appends, as a relay task (core/relay.py), and costs only what is to be found: the appender
flags a frame that is to be looked into (INDEXED) and notes its position here. Entries gather in memory until there are
many, or their segment ends; then they become a file (key_file.py). Where files are missing, after a crash or because
somebody deleted them, the log is scanned again, in the background; and so is each compacted segment
(core/clean_files.py) once, when it comes. Following and scanning stand in one module: a scan lets the following go on
between its steps, and both fill the same files.

All of it is derived: while the service is off frames are flagged all the same, and its next start indexes them
(`without`).
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Generator, Iterable, Sequence
from functools import partial
from itertools import islice
from typing import Any, Final

from halfmoon.core import clean_files
from halfmoon.core.append_types import NOTHING
from halfmoon.core.catalog.catalog import Catalog
from halfmoon.core.features import Feature
from halfmoon.core.partition_reader import PartitionReader
from halfmoon.core.relay import Load, Relays
from halfmoon.core.steps import finish
from halfmoon.core.storage import frame
from halfmoon.core.storage.ahead import Ahead
from halfmoon.core.storage.frame import HEADER_BYTES, INDEXED, BadFrameError, Frame, Kind
from halfmoon.core.storage.scan import Scan, read_provenance
from halfmoon.core.storage.storage import WriteSide
from halfmoon.core.turn import Turn
from halfmoon.schema.provenance import Provenance
from halfmoon.services.common.keys import OverlappingError
from halfmoon.services.keyindex import metrics
from halfmoon.services.keyindex.entries import SLICE, Entries, Work, blocks_of
from halfmoon.services.keyindex.files import KeyFiles, discard
from halfmoon.services.keyindex.key_file import LAST_MS, KeyFile
from halfmoon.services.keyindex.keys import possible_keys
from halfmoon.services.keyindex.stretch import Stretch, key_hash, key_hashes

STRETCH_ENTRIES = 500_000
"""So many become a file: 4 MB in memory."""
STRETCH_BYTES: Final = 256 << 20
"""So much of the log becomes a file, however little is in it: what has none yet is scanned after a crash."""
FORGOTTEN = 20_000
"""Numbers that are left behind before memory is given back."""
MOST_COMING: Final = 10_000
"""Frames that are still to be taken in, the latest, in which somebody who looks for a key finds it all the same."""
TAKEN: Final = 4
"""Frames that are looked into between two pauses: each may take half a millisecond, …"""
KNOWN_SHARE: Final = 0.1
"""… where one whose entries are known counts for so much."""
SCANNED: Final = 200
"""Frames that are looked at between two pauses of a scan, where there is nothing to be found in them; …"""
SCANNED_BYTES: Final = 16 << 10
"""… so many bytes, whose checksum is looked at, count as one more."""
GOES_ON: Final = 20_000
"""The last file before a start is gone on with if it has no more entries: else each start would leave one more."""


class KeyIndex:
    def __init__(self, log: WriteSide, catalog: Catalog, turn: Turn, reader: PartitionReader, relays: Relays) -> None:
        self._log = log
        self._turn = turn
        self._reader = reader
        self._relays = relays
        self._entries = Entries(catalog)
        self._files = KeyFiles(log)
        self._tail = Stretch(0)
        self._noted: array[int] = array("Q")
        """Position and length of frames to be looked into, one after the other."""
        self._done = 0
        """How much of `_noted` is dealt with."""
        self._hashed: dict[int, tuple[Frame, list[int]]] = {}
        """Position of noted frames that were looked into already → header and hashes."""
        self._gaps: list[tuple[int, int]] = []
        """Stretches of the log [from, to) that are to be scanned again."""
        self._compacted_gaps: list[int] = []
        """Where compacted segments begin that are to be scanned, …"""
        self._bare: set[int] = set()
        """… and those of them in which nothing is to be found."""
        self._rebuilt: Stretch | None = None
        """What the scan has found."""
        self._superseded: str | None = None
        """A file whose entries the tail has, too."""
        self._segment_end = 0
        """Of the tail's segment; the tail's start where there is none yet."""
        self._close_at = 0
        """Once the log is visible up to here, the tail's file is due."""

    def __str__(self) -> str:
        return "key index"

    def feature(self) -> Feature:
        return Feature(
            "keyindex",
            recovered=self.open,
            start=self.start,
            finish=self.finish,
            derived=self,
            families=metrics.FAMILIES,
            read_metrics=partial(metrics.read, self),
            while_off=without(self._log),
        )

    @property
    def files(self) -> list[KeyFile]:
        """Sorted by where they start."""
        return list(self._files.all)

    def open(self) -> None:
        """Take in the files there are; the log is recovered and ends where the first frame will be noted."""
        self._gaps, self._compacted_gaps = self._files.open()
        last, end = self._files.last(), self._log.end
        self._begin(end)
        if last is not None and last.end == end < self._segment_end and self._may_go_on(last):
            self._files.all.remove(last)
            self._superseded = last.path
            self._tail = last.gone_on_with()
            self._limit()

    def _may_go_on(self, last: KeyFile) -> bool:
        same_segment = last.start >= self._log.segments[-1].start
        return same_segment and len(last) <= GOES_ON and last.end - last.start < STRETCH_BYTES // 2

    def start(self) -> None:
        self._relays.add(self, self)

    def _begin(self, position: int) -> None:
        self._tail = Stretch(position)
        self._limit()

    def _limit(self) -> None:
        """Find out where the tail is to be closed at the latest: files reach over no segment's end."""
        start = self._tail.start
        segments = self._log.segments
        self._segment_end = self._log.segment_at(start).end if segments else start
        self._close_at = min(start + STRETCH_BYTES, self._segment_end)
        if self._segment_end == start:  # the segment is still to be made
            self._close_at = start + 1

    # -- what comes --------------------------------------------------------------------------------------------------

    def note(self, position: int, length: int) -> None:
        """A frame was appended that is to be looked into."""
        self._noted.append(position)
        self._noted.append(length)

    def note_small(self, seen: Frame, proof: Provenance, body: bytes) -> None:
        """As `note`, of a batch whose (uncompressed) body is short: to look into it now costs a tenth of reading it
        again. Not for topics that are indexed by records' own keys."""
        number = seen.topic_number
        hashes: list[int] = []
        if proof is not NOTHING:
            if sum([run.count for run in proof.sources]) > SLICE:
                self.note(seen.position, seen.length)
                return
            hashes += blocks_of(proof)
            if seen.due_ms and proof.origin is not None:
                number = proof.origin.topic_number
        try:
            for keys in possible_keys(body, SLICE):
                hashes += key_hashes(number, keys)
        except OverlappingError:
            pass
        else:
            self._hashed[seen.position] = seen, hashes
        self.note(seen.position, seen.length)

    def arrived(self, upto: int) -> None:
        """The log is visible up to here."""
        if self._noted or upto >= self._close_at:
            self._relays.wake(self)

    def came(self, start: int, *, has_indexed: bool) -> None:
        """A compacted segment came; without `has_indexed` there is nothing to be found in it."""
        self._compacted_gaps.append(start)
        if not has_indexed:
            self._bare.add(start)
        self._relays.wake(self)

    def went(self, start: int) -> list[str]:
        """A compacted segment goes. Returns the paths of files that are needed no more."""
        return self._files.went(start)

    def covers(self, position: int) -> bool:
        """Whether all frames below a log position are in the index."""
        if self._gaps or self._turn.dispatch.position < position:
            return False
        return self._done == len(self._noted) or self._noted[self._done] >= position

    @property
    def behind_bytes(self) -> int:
        """How much of the log is visible and not in the index."""
        behind = sum(high - low for low, high in self._gaps)
        behind += sum(segment.size for segment in self._log.cleaned if segment.start in self._compacted_gaps)
        if self._done < len(self._noted):
            behind += max(0, self._turn.dispatch.position - self._noted[self._done])
        return behind

    def entries(self) -> int:
        stretches = [self._tail] if self._rebuilt is None else [self._tail, self._rebuilt]
        return sum(map(len, self.files)) + sum(stretch.count for stretch in stretches)

    def forget(self, position: int) -> list[str]:
        """The log begins at `position` now. Returns the paths of files that are needed no more."""
        self._gaps = [(max(low, position), high) for low, high in self._gaps if high > position]
        return self._files.forget(position)

    def finish(self) -> None:
        """At a clean stop: write what is left, waiting for it. Raises OSError."""
        self._relays.remove(self)
        finish(self._follow())
        if self._tail.upto > self._tail.start:
            self._files.add(self._files.write(self._tail))
            self._remove_superseded()

    # -- looking up --------------------------------------------------------------------------------------------------

    def find(self, hashes: Iterable[int], from_ms: int = 0, to_ms: int = LAST_MS) -> Callable[[], list[int]]:
        """A function for a thread that gives the log positions of frames that may have one of these, the newest first,
        stored between the two times (Unix ms) or a little earlier or later."""
        wanted = list(hashes)
        coming = self._coming(wanted)
        stretches = [stretch for stretch in (self._tail, self._rebuilt) if stretch is not None]
        files = self._files.between(from_ms, to_ms)

        def search() -> list[int]:
            found = coming
            for hashed in wanted:
                for stretch in stretches:  # to which entries are only ever added
                    found |= stretch.find(hashed)
                for file in files:
                    found |= file.find(hashed)
            return sorted(found, reverse=True)

        return search

    def _coming(self, wanted: Sequence[int]) -> set[int]:
        """Those that are visible and were looked into, and are still to be taken into the index: who asks for what was
        acknowledged a moment ago finds it."""
        upto = self._turn.dispatch.position
        found: set[int] = set()
        for position, (_, hashes) in islice(reversed(self._hashed.items()), MOST_COMING):
            if position < upto:
                for hashed in wanted:
                    if hashed in hashes:
                        found.add(position)
        return found

    def find_key(self, topic_number: int, key: bytes) -> Callable[[], list[int]]:
        """As `find`, for one key of a topic."""
        return self.find([key_hash(topic_number, key)])

    # -- following ---------------------------------------------------------------------------------------------------

    def run(self) -> Work:
        yield from self._follow()
        while self._gaps or self._compacted_gaps:
            yield from self._scan() if self._gaps else self._scan_compacted()

    def _follow(self) -> Work:
        """Take in what was noted and is visible."""
        taken = 0.0
        while True:
            upto = self._turn.dispatch.position
            while self._done < len(self._noted) and self._noted[self._done] < upto:
                position, length = self._noted[self._done], self._noted[self._done + 1]
                seen: Frame | None = None
                known = self._hashed.pop(position, None)
                if position < self._log.start:
                    pass  # it has expired before it was looked at
                elif known is not None:
                    seen = known[0]
                    if self._close_at <= position and self._may_close_at(seen):
                        yield from self._close_upto(position)
                    if position >= self._tail.start:  # else it has expired while a file was written
                        self._tail.saw(seen.store_ms)
                        self._tail.add_all(known[1], position)
                else:
                    read = self._reader.read_at([(position, length)])
                    (data,) = read.slices if read.cold is None else (yield read.cold)
                    seen = yield from self._take(position, memoryview(data))
                taken += 1 if known is None else KNOWN_SHARE
                if taken >= TAKEN:
                    taken = 0.0
                    yield None
                self._done += 2
                if self._done == len(self._noted) or self._done >= FORGOTTEN:
                    del self._noted[: self._done]
                    self._done = 0
                if self._tail.count >= STRETCH_ENTRIES and seen is not None and seen.part == seen.parts - 1:
                    yield from self._close(position + length)
            yield from self._close_upto(upto)
            self._tail.upto = upto
            if upto == self._turn.dispatch.position:
                return

    def _close_upto(self, position: int) -> Work:
        """Nothing comes any more before `position`, where a frame group ends: write the files that are due. None ends
        within a group, or a scan that begins there would take the rest of it for torn."""
        if self._tail.start < self._log.start:  # it has expired before it was looked at
            self._begin(self._log.start)
        while self._close_at <= position:
            if self._segment_end == self._tail.start:
                self._limit()
            else:
                yield from self._close(min(position, self._segment_end))

    def _close(self, end: int) -> Work:
        """Make a file of the tail, which ends here."""
        tail = self._tail
        if tail.start >= self._log.start:  # else it has expired
            tail.upto = end
            self._files.add((yield lambda: self._files.write(tail)))
        self._remove_superseded()
        self._begin(max(end, self._log.start))

    def _remove_superseded(self) -> None:
        path, self._superseded = self._superseded, None
        if path is not None and all(file.path != path for file in self.files):
            self._files.remove(path)

    # -- scanning again ----------------------------------------------------------------------------------------------

    def _scan(self) -> Work:
        """Index the newest gap, as far as its segment goes."""
        low, high = self._gaps[-1]
        log = self._log
        segment = next((each for each in log.segments if each.start <= low < each.end), None)
        if segment is None:
            self._gaps.pop()
            return
        end = min(high, segment.end)
        ahead = Ahead(self._reader.bring, segment, low, segment.end)
        found = self._rebuilt = Stretch(low)
        scan = Scan([segment], low, 0, end)
        frames = scan.frames()
        looked = 0
        in_group = False  # the frames of a group come when all of it has been read
        while in_group or scan.position < end:
            while not in_group and (load := ahead.needs(scan.position)) is not None:
                yield load
            entry = next(frames, None)
            if entry is None or entry[0].position >= end:
                break
            seen, payload = entry
            in_group = seen.part < seen.parts - 1
            if payload is not None and seen.flags & INDEXED:
                yield from self._entries.take(found, seen, bytes(read_provenance(segment, seen)), payload)
                looked = SCANNED  # what was found in it may have taken as long as all those
            looked += 1 + seen.length // SCANNED_BYTES
            if looked >= SCANNED:
                looked = 0
                yield None
                yield from self._follow()
                if low < log.start:
                    break
        if low < log.start:  # it has expired
            self._rebuilt = None
            return
        found.upto = end
        self._files.add((yield lambda: self._files.write(found)))
        self._rebuilt = None
        ahead.close()
        # What has expired meanwhile is out of it already.
        self._gaps = [(max(begin, end) if upto == high else begin, upto) for begin, upto in self._gaps]
        self._gaps = [(begin, upto) for begin, upto in self._gaps if begin < upto]

    def _scan_compacted(self) -> Work:
        """Index one compacted segment."""
        start = self._compacted_gaps[-1]
        log = self._log
        segment = next((each for each in log.cleaned if each.start == start), None)
        if segment is None:  # it has been replaced already
            self._scanned(start)
            return
        ahead = Ahead(self._reader.bring, segment, start, segment.end)
        found = self._rebuilt = Stretch(start)
        walked = iter(() if start in self._bare else clean_files.frames(segment))
        at = start
        looked = 0
        while True:
            while at < segment.end and (load := ahead.needs(at)) is not None:
                yield load
            entry = next(walked, None)
            if entry is None:
                break
            _, at, seen, payload = entry
            if seen is not None and payload is not None and seen.kind == Kind.BATCH and seen.flags & INDEXED:
                yield from self._entries.take(found, seen, bytes(read_provenance(segment, seen)), payload)
                looked = SCANNED
            looked += 1 + (0 if seen is None else seen.length // SCANNED_BYTES)
            if looked >= SCANNED:
                looked = 0
                yield None
                yield from self._follow()
        self._rebuilt = None
        ahead.close()
        if segment in log.cleaned:
            found.upto = segment.end
            file = yield lambda: self._files.write(found)
            self._files.add(file)
            if segment not in log.cleaned:  # it was replaced while that was written
                for path in self.went(start):
                    self._files.remove(path)
        self._scanned(start)

    def _scanned(self, start: int) -> None:
        self._compacted_gaps.remove(start)
        self._bare.discard(start)

    # -- looking into a frame ----------------------------------------------------------------------------------------

    def _take(self, position: int, data: memoryview) -> Generator[Load | None, Any, Frame | None]:
        """Take in a frame of the tail; its header."""
        try:
            seen = frame.decode(data, position, position)
        except BadFrameError:  # it was written just now; recovery will tell
            return None
        if self._may_close_at(seen):
            yield from self._close_upto(position)
        if position < self._tail.start:  # it has expired while it was read
            return seen
        at = HEADER_BYTES + seen.provenance_length
        yield from self._entries.take(self._tail, seen, bytes(data[HEADER_BYTES:at]), data[at:])
        return seen

    def _may_close_at(self, seen: Frame) -> bool:
        """Whether the tail may end before this frame: no file ends within a group, but with its segment."""
        return seen.part == 0 or seen.position >= self._segment_end > self._tail.start


def without(log: WriteSide) -> Feature:
    """Takes the place of the service while it is off. Its files go at the start: nobody removes those that a loss of
    power makes untrue, and the log may grow over what they cover anew. They are made again when it is on again."""
    return Feature("keyindex", recovered=lambda: discard(log.fs))
