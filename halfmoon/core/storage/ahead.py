"""Bringing a stretch of a segment here before it is scanned: whatever the scan is about to touch, and some more."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from halfmoon.core.storage.frame import HEADER_BYTES, BadFrameError, Frame, Kind, decode
from halfmoon.core.storage.segment import Segment
from halfmoon.core.storage.storage import Bring

AHEAD_BYTES = 4 << 20
"""So much is brought at once."""
_MARGIN = HEADER_BYTES + (64 << 10)
"""With its provenance list, few headers are longer; those look like corruption until more is here."""


class Ahead:
    """Of one scan of [position, end) of a segment. Ask `needs` before each frame; the segment's file stays open."""

    def __init__(self, bring: Bring, segment: Segment, position: int, end: int) -> None:
        self._bring_now = bring
        self._segment = segment
        self._guard = segment.view[:0]
        self._end = min(end, segment.end)
        self._here = position
        """Everything from where the scan is up to here may be touched."""

    def needs(self, position: int) -> Callable[[], object] | None:
        """What must be run, in a thread, before the frame or frame group that begins there may be touched; then ask
        again. None: it may be."""
        at = position
        while self._here < self._end:
            if at + _MARGIN <= self._here:
                frame = self._frame_at(at)
                if frame is None:  # corruption: the scan looks for the next whole frame
                    at = self._end
                elif frame.kind == Kind.END:
                    return None
                else:
                    at = frame.end
                    if at <= self._here:
                        if frame.part >= frame.parts - 1:
                            return None
                        continue
            load = self._bring(max(at, self._here) + AHEAD_BYTES)
            if load is not None:
                return load
            at = position
        return None

    def close(self) -> None:
        self._guard.release()

    def _frame_at(self, position: int) -> Frame | None:
        with suppress(BadFrameError):
            return decode(self._segment.view, position, self._segment.start)
        return None

    def _bring(self, upto: int) -> Callable[[], object] | None:
        low, self._here = self._here, min(upto, self._end)
        return self._bring_now(low, self._here)
