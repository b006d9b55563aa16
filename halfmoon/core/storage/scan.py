"""Reading the log without trusting it: frame after frame, telling a torn tail from rot (B09).

A frame counts only if it stands where it says, its generation is not below that of the frame before it, and all
checksums, lengths and offsets agree. Where one does not, the question is whether the log was known to be on disk
beyond this place:

- It was: then this is *rot*, the disk lost what it had. It is stepped over and reported, never cut.
- It was not: then it is a *torn tail*. Nobody was promised anything here, and it may be cut.

Who knows how far the log was on disk: every whole frame, before or behind the damage (its `flushed` mark), and
whoever began the scan (a checkpoint, an index file: both are made of flushed frames only).
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from halfmoon.core.storage.frame import (
    HEADER_BYTES,
    MAGIC,
    BadFrameError,
    Frame,
    Kind,
    UnknownVersionError,
    check_payload,
    decode,
)
from halfmoon.errors import StartError

if TYPE_CHECKING:
    from halfmoon.core.storage.bounds import Noted
    from halfmoon.core.storage.files import Buffer
    from halfmoon.core.storage.segment import Segment

_POSITION_AT = 16
_LOW_BYTES = 3
"""The search for frames goes in windows in which all log positions share the bytes above these."""
_SHIFT = 8 * _LOW_BYTES
_PIECE_BYTES = 4 << 20
"""So much is searched at a time."""
_READ_AHEAD_BYTES = 8 << 20
"""So much is asked of the disk before it is needed."""


class Scan:
    """Walks the log from a frame boundary to wherever it ends. Iterate `frames()` to its end, then look at the
    fields."""

    def __init__(
        self,
        segments: Sequence[Segment],
        position: int,
        generation: int,
        flushed: int,
        counts_alone: Callable[[Frame, memoryview], bool] = lambda frame, payload: False,
        ceiling: Noted | None = None,
    ) -> None:
        """`generation`: that of the frame before `position`. `flushed`: how far the log is known to be on disk.
        `counts_alone`: whether a part of a frame group says something also where rot has taken other parts. `ceiling`:
        how far the log was ever written, if that is known."""
        self._segments = segments
        self._top = segments[-1].end if segments else position
        self._index = 0
        self._counts_alone = counts_alone
        self.position = position
        """Where the next frame is to begin; in the end, where the log ends."""
        self.generation = generation
        self.flushed = min(flushed, self._top)
        """The highest position that anything seen so far says was on disk."""
        self.damaged: list[tuple[int, int]] = []
        """Stretches [from, to) lost to rot."""
        self.torn_bytes = 0
        """Bytes of the torn tail, as far as whole headers tell."""
        self._group: list[tuple[Frame, memoryview | None]] = []
        self._looked_ahead = False
        """Whether `flushed` takes in the marks of all frames there are."""
        self._headers_end = position
        """How far the log went, as far as headers tell that are not believed any more."""
        self._ceiling = ceiling
        self._expected = position
        """What stands before it may be on its way from the disk."""

    def frames(self) -> Iterator[tuple[Frame, memoryview | None]]:
        """Frames in order, frame groups only when they are complete, or what counts of them alone.

        The payload is None where only the header outlived the rot: then at least it is known what was lost.
        """
        while (segment := self._segment()) is not None:
            if self.position + _READ_AHEAD_BYTES > self._expected:
                self._expect(segment)
            frame: Frame | None = None
            payload: memoryview | None = None
            try:
                frame = read_header(segment, self.position, self.generation)
                payload = read_payload(segment, frame)
            except BadFrameError:
                if frame is None:
                    if not self._is_flushed(self.position):
                        break
                    self._step_over()
                    yield from self._lose_group()
                    continue
                if not self._is_flushed(self.position):
                    break
                self._lose(frame.position, frame.end)
            self.generation = frame.generation
            self.flushed = max(self.flushed, min(frame.flushed, self._top))
            self.position = frame.end
            if frame.parts == 1 and payload is not None and not self._group:  # nearly all are so
                yield frame, payload
            else:
                yield from self._grouped(frame, payload)
        if self._group:  # the rest of it never came
            begin = self._group[0][0].position
            if self.flushed > begin:
                self._lose(begin, self.position)
            else:
                self._headers_end = max(self._headers_end, self.position)
                self.position = begin
        self.torn_bytes = max(0, self._headers_end - self.position)

    def _expect(self, segment: Segment) -> None:
        """Have what comes next read in large pieces, not page by page as it is touched."""
        self._expected = max(self._expected, self.position)
        upto = min(self._expected + _READ_AHEAD_BYTES, segment.end)
        if self._expected < upto:
            segment.file.expect(upto - self._expected, self._expected - segment.start)
        self._expected += _READ_AHEAD_BYTES

    def _grouped(self, frame: Frame, payload: memoryview | None) -> Iterator[tuple[Frame, memoryview | None]]:
        """What `frame` completes: itself, a group, or nothing yet."""
        group = self._group
        if group and (frame.part != len(group) or frame.parts != group[0][0].parts):
            yield from self._lose_group()
            group = self._group
        if payload is None:
            yield from self._lose_group()
            if frame.parts == 1:
                yield frame, None
        elif frame.parts == 1:
            yield frame, payload
        elif frame.part == len(group):
            group.append((frame, payload))
            if len(group) == frame.parts:
                self._group = []
                yield from group
        elif self._counts_alone(frame, payload):  # a later part of a group whose first parts are lost
            yield frame, payload

    def _lose_group(self) -> Iterator[tuple[Frame, memoryview | None]]:
        """Parts have come whose others never will."""
        group, self._group = self._group, []
        for frame, payload in group:
            if payload is not None and self._counts_alone(frame, payload):
                yield frame, payload
            else:
                self._lose(frame.position, frame.end)

    def _lose(self, low: int, high: int) -> None:
        if self.damaged and self.damaged[-1][1] >= low:
            self.damaged[-1] = (min(low, self.damaged[-1][0]), max(high, self.damaged[-1][1]))
        else:
            self.damaged.append((low, high))

    def _segment(self) -> Segment | None:
        while self._index < len(self._segments):
            segment = self._segments[self._index]
            if self.position < segment.end:
                return segment
            self._index += 1
        return None

    def _is_flushed(self, position: int) -> bool:
        if self.flushed <= position and not self._looked_ahead:
            marks = (frame.flushed for frame in self._whole_frames_behind(position))
            self.flushed = max(self.flushed, min(max(marks, default=0), self._top))
            self._looked_ahead = True
        return self.flushed > position

    def _step_over(self) -> None:
        """Rot has taken what begins at `position`: go on at the next whole frame."""
        at = self.position
        following = next(self._whole_frames_behind(at), None)
        self.position = following.position if following is not None else self.flushed
        self._lose(at, self.position)

    def _whole_frames_behind(self, position: int) -> Iterator[Frame]:
        for segment in self._segments[self._index :]:
            low = max(position, segment.start)
            while low < segment.end and low < (upto := self._search_end(segment)):
                for at in candidates(segment, low, upto):
                    with contextlib.suppress(BadFrameError):
                        frame = read_header(segment, at, self.generation)
                        end = frame.position + HEADER_BYTES if frame.kind == Kind.END else frame.end
                        self._headers_end = max(self._headers_end, end)
                        if self._ceiling is not None and frame.generation > self._ceiling.generation:
                            self._ceiling = None  # whoever wrote this has noted nothing: search on
                        if at > position:
                            read_payload(segment, frame)
                            yield frame
                low = upto

    def _search_end(self, segment: Segment) -> int:
        """Where a search within a segment may end: nothing was ever written behind it."""
        ceiling = self._ceiling
        if ceiling is None or self.generation > ceiling.generation:
            return segment.end
        return min(ceiling.search_end, segment.end)


def candidates(segment: Segment, position: int, upto: int) -> Iterator[int]:
    """Log positions in [position, upto) where a frame's magic and own position agree with where they stand.

    Recycled segments are full of old frames, so the search knows the upper bytes of the position it is looking for.
    What was never written to is not looked at, and the rest is read in large pieces: to touch a mapping would bring it
    into memory page by page.
    """
    low, high = max(position, segment.start), min(upto, segment.end)
    while low < high:
        first, last = segment.file.written(low - segment.start)
        low, written_end = segment.start + first, min(segment.start + last, high)
        if low >= written_end:
            return
        while low < written_end:
            piece_end = min(((low >> _SHIFT) + 1) << _SHIFT, low + _PIECE_BYTES, written_end)
            yield from _candidates_within(segment, low, piece_end)
            low = piece_end


def _candidates_within(segment: Segment, low: int, high: int) -> Iterator[int]:
    """Those in [low, high), which share the upper bytes of their positions."""
    # A header may reach over the end by what follows its first byte.
    reach = min(high - 1 + HEADER_BYTES, segment.end)
    yield from _found_in(segment.file.pread(reach - low, low - segment.start), low)


def candidates_in(data: memoryview, low: int, position: int) -> Iterator[int]:
    """As `candidates`, from `position` on in what was read: `data`, from log position `low` on."""
    end = low + len(data)
    while position < end:
        piece_end = min(((position >> _SHIFT) + 1) << _SHIFT, end)
        reach = min(piece_end - 1 + HEADER_BYTES, end)
        yield from _found_in(data[position - low : reach - low], position)
        position = piece_end


def _found_in(data: Buffer, low: int) -> Iterator[int]:
    upper = (low >> _SHIFT).to_bytes(8 - _LOW_BYTES, "little")
    between = b"." * (_POSITION_AT - len(MAGIC) + _LOW_BYTES)
    search = re.compile(re.escape(MAGIC) + between + re.escape(upper), re.DOTALL).search
    at = 0
    while (match := search(data, at)) is not None:
        found = low + match.start()
        if int.from_bytes(data[match.start() + _POSITION_AT : match.start() + _POSITION_AT + 8], "little") == found:
            yield found
        at = match.start() + 1


def read_header(segment: Segment, position: int, generation: int) -> Frame:
    """The header at a log position, checked. Raises BadFrameError; StartError where a newer program wrote it."""
    try:
        frame = decode(segment.view, position, segment.start)
    except UnknownVersionError as error:
        raise StartError(f"the log was written by a newer version: {error}") from error
    if frame.generation < generation:
        raise BadFrameError("of an earlier generation")
    return frame


def read_payload(segment: Segment, frame: Frame) -> memoryview:
    """The payload of a frame, checked. Raises BadFrameError."""
    if frame.kind == Kind.END:
        return segment.view[:0]
    at = frame.payload_position - segment.start
    payload = segment.view[at : at + frame.payload_length]
    check_payload(frame, payload)
    return payload


def read_provenance(segment: Segment, frame: Frame) -> memoryview:
    """The provenance list of a frame whose header was checked, which covers the list too; empty where it has none."""
    at = frame.position + HEADER_BYTES - segment.start
    return segment.view[at : at + frame.provenance_length]


def read_frame(segment: Segment, position: int, generation: int) -> tuple[Frame, memoryview]:
    """The whole, checked frame at a log position. Raises BadFrameError; StartError where a newer program wrote it."""
    frame = read_header(segment, position, generation)
    return frame, read_payload(segment, frame)
