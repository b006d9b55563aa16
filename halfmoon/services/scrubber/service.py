"""Looks for what the disk has corrupted, before a reader meets it: the scrubber of ZFS, Ceph and TigerBeetle.

A *pass* reads all of the log that is indexed, then the compacted segments, frame by frame. It goes in pieces, each read
and checked in a thread of its own, so slowly that nobody feels it (`log.scrubber.bytes_per_second`), and begins anew
every `log.scrubber.interval`. It holds no file for longer than a piece takes: what expires or is replaced meanwhile is
passed over.

What is found corrupt is told once in the log, in /healthz until its segment expires, and from then on its offsets are
answered with CORRUPT_MESSAGE, as those that a start finds lost (docs/decisions/0129-scrubber.md). Kafka's broker would
go on handing it out, and librdkafka does not look at checksums unless it is told to.

How far it came is in a small file (saved.py). So is what it found, and a start looks at that first: where somebody has
brought the file back from a backup, its records can be read again.
"""

from __future__ import annotations

import contextlib
import logging
import math
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from msgspec import Struct, field

from halfmoon.config.settings import Settings
from halfmoon.core.catalog.catalog import Catalog
from halfmoon.core.clean_files import CleanFiles
from halfmoon.core.clock import Clock
from halfmoon.core.features import Feature
from halfmoon.core.index_files import IndexFiles
from halfmoon.core.jobs import Job
from halfmoon.core.live import Live
from halfmoon.core.storage.frame import Frame
from halfmoon.core.storage.segment import Segment
from halfmoon.core.storage.storage import ReadSide, WriteSide
from halfmoon.errors import BrokerError
from halfmoon.schema.snapshot import CLEAN_BASE
from halfmoon.services.scrubber import metrics
from halfmoon.services.scrubber import saved as notes
from halfmoon.services.scrubber.checking import Checked, Corrupt
from halfmoon.services.scrubber.findings import Findings
from halfmoon.services.scrubber.losses import Losses
from halfmoon.services.scrubber.reading import Piece
from halfmoon.services.scrubber.saved import NO_PASS, Saved, Stretch

QUIET_MS = 60_000
"""So long after a start nothing is read, but for what is known to be corrupt; and after a read that failed."""
PIECE_FRAMES = 256
"""About so many frames are checked at once: a thread keeps the interpreter to itself for a millisecond."""
FRAME_BYTES = 1 << 10
"""A frame is paid for as if it had so many bytes at least: the processor's time counts, too."""
LEAST_BYTES, MOST_BYTES = 32 << 10, 1 << 20
"""Of a piece."""


class Walk(Struct):
    """Over the log positions [position, upto) of one file."""

    position: int
    upto: int
    again: Stretch | None = None
    """What is looked at anew."""
    left: list[Stretch] = field(default_factory=list)
    """What of that is corrupt still."""
    lost_from: int | None = None
    needs: int = 0
    """As `Checked` has them."""


class _Outcome(NamedTuple):
    piece: Piece
    checked: Checked
    batches: list[Frame]


class Scrubber:
    def __init__(
        self,
        log: WriteSide,
        reader: ReadSide,
        catalog: Catalog,
        indexes: IndexFiles,
        files: CleanFiles,
        known_damage: Callable[[], Sequence[tuple[int, int]]],
        arm: Callable[[int], None],
        live: Live[Settings],
        clock: Clock,
        logger: logging.Logger,
        *,
        logs: int = 1,
    ) -> None:
        """`known_damage`: log positions that a start has found corrupt already. `arm`: there is something to do at this
        time (monotonic ms). `logs`: so many share what may be read."""
        self._log = log
        self._reader = reader
        self._indexes = indexes
        self.findings = Findings(log, catalog, Losses(catalog, indexes, files), known_damage, logger)
        self._arm = arm
        self._live = live
        self._clock = clock
        self._logger = logger
        self._logs = logs
        self.on_due: Callable[[], object] = lambda: None
        self._again: deque[Stretch] = deque()
        """What was corrupt before the start, to be looked at anew."""
        self._walk: Walk | None = None
        self._position = NO_PASS
        """Where the pass under way goes on."""
        self._log_upto = 0
        """Its part of the log ends here."""
        self._began_ms = 0
        """The last pass; monotonic ms."""
        self.ended_ms = 0
        """The last whole pass; Unix ms, 0: never."""
        self._paid_at_ms = 0.0
        """Then what was read so far is paid for."""
        self._quiet_until_ms = 0
        self._frame_bytes = LEAST_BYTES / PIECE_FRAMES
        """In the mean, of the last piece."""
        self._busy = False
        self._stopped = False
        self._unsaved = False
        self._failure = ""
        self.read_bytes = 0
        self.passes = 0

    def feature(self) -> Feature:
        return Feature(
            "scrubber",
            restore=self.restore,
            stop=self.stop,
            finish=self.finish,
            background=self,
            timed=self,
            families=metrics.FAMILIES,
            read_metrics=partial(metrics.read, self),
            problems=self.problems,
        )

    @property
    def corrupt(self) -> Sequence[Stretch]:
        """What was found and has not expired."""
        return self.findings.stretches

    def problems(self) -> list[str]:
        failures = [self._failure] if self._failure else []
        return failures + self.findings.problems()

    # -- beginning and ending ----------------------------------------------------------------------------------------

    def restore(self) -> None:
        now_ms, found = self._clock.mono_ms(), Saved()
        with contextlib.suppress(OSError):  # it is a note
            found = notes.load(self._log.fs)
        since_ms = max(0, self._clock.wall_ms() - found.began_ms)
        self._began_ms = now_ms - min(since_ms, self._pass_interval_ms)
        self.ended_ms = found.ended_ms
        self._position = found.position
        self._log_upto = self._indexed_upto()
        self._quiet_until_ms = now_ms + QUIET_MS
        self.findings.restore(found.corrupt)
        self._again.extend(found.corrupt)

    def stop(self) -> None:
        self._stopped = True

    def finish(self) -> None:
        if self._unsaved:
            with contextlib.suppress(OSError):
                notes.save(self._log.fs, self._note())

    def _note(self) -> Saved:
        self._unsaved = False
        began_ms = self._clock.wall_ms() - (self._clock.mono_ms() - self._began_ms)
        return Saved(self._position, began_ms, self.ended_ms, list(self.corrupt))

    # -- time --------------------------------------------------------------------------------------------------------

    @property
    def _pass_interval_ms(self) -> int:
        return self._live.current.log.scrubber.interval_ms

    @property
    def interval_ms(self) -> int:
        return QUIET_MS

    def turn(self) -> None:
        self._unsaved |= self.findings.forget_expired()

    def look(self) -> bool:
        return False

    def _due_ms(self) -> float:
        if self._walk is not None or self._again:
            return self._paid_at_ms
        pass_ms = self._began_ms + self._pass_interval_ms if self._position == NO_PASS else 0
        return max(pass_ms, self._paid_at_ms, self._quiet_until_ms)

    def next_deadline(self) -> int | None:
        return None if self._busy or self._stopped or self._log.failed is not None else math.ceil(self._due_ms())

    def expire(self, mono_ms: int) -> None:
        if mono_ms >= self._due_ms():
            self.on_due()

    def _arm_next(self) -> None:
        deadline_ms = self.next_deadline()
        if deadline_ms is not None:
            self._arm(deadline_ms)

    # -- pieces ------------------------------------------------------------------------------------------------------

    def next_job(self) -> Job[object] | None:
        """The next piece, if it is time for it."""
        due_ms = self.next_deadline()
        if due_ms is None or self._clock.mono_ms() < due_ms:
            return None
        piece = self._next_piece()
        if piece is None and not self._unsaved:
            self._arm_next()
            return None
        note = self._note() if self._unsaved else None
        lost_from = None if self._walk is None else self._walk.lost_from

        def run() -> _Outcome | None:
            if note is not None:
                with contextlib.suppress(OSError):
                    notes.save(self._log.fs, note)
            return None if piece is None else _Outcome(piece, *piece.check(lost_from))

        self._busy = True
        return Job("scrubbing", run, self._checked, self._failed)  # type: ignore[arg-type]

    def _next_piece(self) -> Piece | None:
        """None: the pass has ended, or none is due."""
        while True:
            if self._walk is None:
                self._walk = self._next_walk()
            walk = self._walk
            if walk is None:
                return None
            segment = self._segment_at(walk.position)
            if walk.position < walk.upto and segment is not None:
                end = segment.end if walk.again is not None else min(segment.end, walk.upto)
                size = min(max(int(self._frame_bytes * PIECE_FRAMES), LEAST_BYTES), MOST_BYTES)
                high = min(walk.position + max(size, walk.needs), end)
                load = self._reader.load([(walk.position, high - walk.position)])
                return Piece(segment, walk.position, high, end, load)
            self._end_walk(walk, segment)

    def _segment_at(self, position: int) -> Segment | None:
        """None where it has expired, or been replaced, or was missing at the start."""
        log = self._log
        if position >= CLEAN_BASE:
            return next((each for each in log.cleaned if each.start <= position < each.end), None)
        try:
            segment = log.segment_at(position)
        except BrokerError:
            return None
        return None if (segment.start, segment.end) in log.missing else segment

    def _next_walk(self) -> Walk | None:
        """What is to be looked at anew, or the next file of a pass; None: the pass has ended, or none is due."""
        if self._again:
            stretch = self._again.popleft()
            return Walk(stretch.low, stretch.high, stretch)
        log, now_ms = self._log, self._clock.mono_ms()
        if now_ms < self._due_ms():
            return None
        if self._position == NO_PASS:
            self._began_ms = now_ms
            self._log_upto = self._indexed_upto()
        self._position = max(self._position, log.start)
        if self._position < self._log_upto:
            return Walk(self._position, min(log.segment_at(self._position).end, self._log_upto))
        for segment in log.cleaned:
            if segment.end > self._position:
                return Walk(max(segment.start, self._position), segment.end)
        self._position = NO_PASS
        self._unsaved = True
        self.passes += 1
        self.ended_ms = self._clock.wall_ms()
        self._logger.info("event=scrubbed corrupt_stretches=%d", len(self.corrupt))
        return None

    def _end_walk(self, walk: Walk, segment: Segment | None) -> None:
        self._walk = None
        self._unsaved = True
        if walk.again is None:
            self._position = max(self._position, walk.upto)
            return
        if walk.lost_from is not None and segment is not None:
            self._found(Corrupt(walk.lost_from, walk.upto, None), segment, walk)
        self.findings.replace(walk.again, walk.left)

    def _indexed_upto(self) -> int:
        """What is behind it has no index to tell which records it holds."""
        files = self._indexes.files
        return min(self._log.flushed, files[-1].end) if files else 0

    def _checked(self, outcome: _Outcome | None) -> None:
        self._busy = False
        self._failure = ""
        walk = self._walk
        if outcome is not None and walk is not None:
            piece, checked = outcome.piece, outcome.checked
            nbytes = min(checked.upto, piece.high) - piece.low
            self.read_bytes += nbytes
            if checked.frames:
                self._frame_bytes = nbytes / checked.frames
            rate = self._live.current.log.scrubber.bytes_per_second / self._logs
            now_ms = self._clock.mono_ms()
            cost_bytes = max(piece.high - piece.low, checked.frames * FRAME_BYTES)
            self._paid_at_ms = max(self._paid_at_ms, now_ms) + 1000 * cost_bytes / rate
            walk.position, walk.lost_from, walk.needs = checked.upto, checked.lost_from, checked.needs
            if walk.again is None:
                self._position = checked.upto if checked.lost_from is None else checked.lost_from
            else:
                self.findings.regain(walk.again, outcome.batches)
            if self._segment_at(piece.low) is piece.segment:  # else it has gone meanwhile
                for corrupt in checked.corrupt:
                    self._found(corrupt, piece.segment, walk)
        self._arm_next()

    def _found(self, corrupt: Corrupt, segment: Segment, walk: Walk) -> None:
        stretch = self.findings.judged(corrupt, segment)
        if stretch is None:
            return
        if walk.again is None:
            self._unsaved |= self.findings.add(stretch, segment)
        elif corrupt.low < walk.again.high:
            walk.left.append(stretch)

    def _failed(self, error: Exception) -> None:
        self._busy = False
        if self._walk is not None and self._walk.again is not None:
            self._again.append(self._walk.again)
        self._walk = None
        self._paid_at_ms = self._quiet_until_ms = self._clock.mono_ms() + QUIET_MS
        if not self._failure:
            self._logger.error("event=scrubbing_failed error=%s", error)
        self._failure = f"scrubbing failed: {error}"
        self._arm_next()
