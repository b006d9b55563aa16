"""Single frames read from the log in a thread, by their position, or by where their payload begins."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Final, NamedTuple

from halfmoon.core.storage import frame
from halfmoon.core.storage.frame import HEADER_BYTES, MAGIC, BadFrameError, Frame, Kind
from halfmoon.schema import provenance
from halfmoon.schema.provenance import MAX_PROVENANCE_BYTES, Origin, Provenance, UnknownProvenanceError

if TYPE_CHECKING:
    from halfmoon.core.storage.segment import Segment

FIRST_BYTES: Final = 16 << 10
"""So much is read at once; few frames are longer."""


class WholeFrame(NamedTuple):
    frame: Frame
    provenance: Provenance
    payload: "memoryview"

    @property
    def target(self) -> Origin | None:
        """Where the frame's messages are to go, if they wait."""
        return self.provenance.origin if self.frame.due_ms else None


class FrameReader:
    """Make it in the loop; `read` and `before` are for one thread. The segments stay readable for its life."""

    def __init__(self, segments: list[Segment]) -> None:
        """`segments`: of the log, then the cleaned ones."""
        self._segments = segments
        self._starts = [segment.start for segment in self._segments]
        self._guards = [segment.view[:0] for segment in self._segments]
        """They keep the files open."""

    def _segment(self, position: int) -> Segment | None:
        at = bisect_right(self._starts, position) - 1
        return self._segments[at] if at >= 0 and position < self._segments[at].end else None

    def read(self, position: int) -> WholeFrame | None:
        """The frame that begins there; None where there is none (any more). Raises OSError."""
        segment = self._segment(position)
        if segment is None:
            return None
        at = position - segment.start
        data = segment.file.pread(min(FIRST_BYTES, segment.size - at), at)
        length = frame.length_at(data, position)
        if length > len(data):
            data += segment.file.pread(min(length, segment.size - at) - len(data), at + len(data))
        view = memoryview(data)
        try:
            seen = frame.decode(view, position, position)
            payload = view[HEADER_BYTES + seen.provenance_length : seen.length]
            if seen.kind not in (Kind.BATCH, Kind.CONTROL):
                return None
            frame.check_payload(seen, payload)
            said = provenance.decode(view[HEADER_BYTES : HEADER_BYTES + seen.provenance_length])
        except (BadFrameError, UnknownProvenanceError):
            return None
        return WholeFrame(seen, said, payload)

    def before(self, payload_position: int) -> WholeFrame | None:
        """The frame whose payload begins there; None where there is none (any more). Raises OSError."""
        segment = self._segment(payload_position)
        if segment is None:
            return None
        reach = HEADER_BYTES
        longest = min(HEADER_BYTES + MAX_PROVENANCE_BYTES, payload_position - segment.start)
        while reach <= longest:
            low = payload_position - reach
            data = segment.file.pread(reach, low - segment.start)
            at = data.rfind(MAGIC)
            while at >= 0:
                whole = self.read(low + at)
                if whole is not None and whole.frame.payload_position == payload_position:
                    return whole
                at = data.rfind(MAGIC, 0, at)
            if reach == longest:
                return None
            reach = min(reach * 16, longest)
        return None
