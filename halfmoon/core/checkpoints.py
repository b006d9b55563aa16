"""When index tails are closed, and with which snapshot of the catalog.

A freeze ends the tails at the end of the log; what they held becomes an index file. With most of them goes a
checkpoint: the catalog as it is there. What has changed is encoded in slices before, so that the moment itself is
short.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from halfmoon.config.settings import Settings
from halfmoon.core.catalog import snapshot
from halfmoon.core.catalog.catalog import Catalog
from halfmoon.core.clock import Clock
from halfmoon.core.live import Live
from halfmoon.core.storage.storage import WriteSide
from halfmoon.core.turn import Turn

CHECKPOINT_INTERVAL_MS: Final = 1_000
"""Checkpoints of the catalog are no closer than this, however fast the log grows. A start after a crash reads again
what was written since the last."""
CHECKPOINT_REST: Final = 100
"""After a checkpoint whose encoding took t, the next waits for this many times t: 100,000 partitions take 0.2 s."""
NEARLY_FULL: Final = 8
"""In the last eighth of a segment, the next one's head is prepared."""

_OVER: Final = object()


class Checkpoints:
    def __init__(self, log: WriteSide, catalog: Catalog, turn: Turn, live: Live[Settings], clock: Clock) -> None:
        self._log = log
        self._catalog = catalog
        self._turn = turn
        self._live = live
        self._clock = clock
        self._planned = 0
        self._due_ms = 0
        self._owed = False
        """The last freeze came too early for a checkpoint."""
        self._frozen_ms = 0
        self._preparing: Iterator[None] | None = None
        self._prepared_ms = 0
        """How long that took so far."""
        self._preparing_head: Iterator[None] = iter(())

    def opened(self) -> None:
        """The log is recovered."""
        now_ms = self._clock.mono_ms()
        self._planned = self._log.end
        self._due_ms = now_ms + CHECKPOINT_INTERVAL_MS
        self._frozen_ms = now_ms

    def plan(self) -> None:
        """Ask for a freeze where enough was appended since the last. Cheap; called after every write."""
        if (
            self._preparing is not None
            or self._log.end - self._planned >= self._live.current.log.index_checkpoint_bytes
            or (self._turn.dispatch.rows >= self._log.checkpoint_batches and self._clock.mono_ms() >= self._due_ms)
        ):
            self.prepare()
        else:
            self._prepare_head()

    @property
    def is_preparing(self) -> bool:
        """A freeze is wanted, and waits for `prepare` to be called again."""
        return self._preparing is not None

    def freeze(self) -> None:
        """Have all that was appended so far indexed soon."""
        if self._log.end > self._planned:
            self.prepare()

    def prepare(self) -> None:
        """Freeze, or do a slice of what has to be done before."""
        begun_ms = self._clock.mono_ms()
        if self._preparing is None:
            self._preparing = snapshot.prepared(self._catalog) if begun_ms >= self._due_ms else iter(())
        if next(self._preparing, _OVER) is _OVER:
            self._preparing = None
            self._freeze()
        else:
            self._prepared_ms += self._clock.mono_ms() - begun_ms

    def _prepare_head(self) -> None:
        """A slice of what the next segment's head needs, again and again while the present one is nearly full."""
        log = self._log
        last = log.segments[-1] if log.segments else None
        if last is None or (last.end - log.end) * NEARLY_FULL > last.end - last.start:
            return
        if not snapshot.is_large(self._catalog):
            return
        if next(self._preparing_head, _OVER) is _OVER:
            self._preparing_head = snapshot.prepared(self._catalog)

    def _freeze(self) -> None:
        now_ms, end = self._clock.mono_ms(), self._log.end
        checkpoint = None
        self._owed = now_ms < self._due_ms
        if not self._owed:
            checkpoint = snapshot.take(self._catalog, end, self._log.generation, again=True)
            took_ms = self._prepared_ms + self._clock.mono_ms() - now_ms
            self._prepared_ms = 0
            self._due_ms = now_ms + max(CHECKPOINT_INTERVAL_MS, CHECKPOINT_REST * took_ms)
        self._planned, self._frozen_ms = end, now_ms
        dispatch = self._turn.dispatch
        dispatch.freeze_at(end, checkpoint)
        if dispatch.position == end:
            dispatch.run((), end, {})

    def turn(self) -> None:
        """The clock's turn: what time alone makes due."""
        now_ms = self._clock.mono_ms()
        owed = self._owed and now_ms >= self._due_ms
        if owed or (self._log.end > self._planned and now_ms - self._frozen_ms >= self._log.checkpoint_after_ms):
            self.prepare()
