"""Looking at the frames of one file, piece by piece: which bytes are no frames any more.

A piece is what was read of a file at once. It may end anywhere, so the walk says where the next one has to begin, and
how long it must be at least. Frames are judged as a start and `halfmoon log verify` judge them (core/storage/scan.py):
header and payload by their checksums, and what follows a place without a frame by a search for the next whole header.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from msgspec import Struct, field

from halfmoon.core.storage.frame import (
    HEADER_BYTES,
    BadFrameError,
    Frame,
    Kind,
    UnknownVersionError,
    check_payload,
    decode,
    provenance_length_at,
)
from halfmoon.core.storage.scan import candidates_in
from halfmoon.schema.provenance import MAX_PROVENANCE_BYTES


class Corrupt(NamedTuple):
    """Log positions [low, high) that hold no whole frame. `frame`: the header, where it alone is whole."""

    low: int
    high: int
    frame: Frame | None


class Checked(Struct):
    """What a piece holds."""

    upto: int
    """Everything before is judged."""
    needs: int = 0
    """A frame begins at `upto` that takes so many bytes; 0: it is not known."""
    frames: int = 0
    corrupt: list[Corrupt] = field(default_factory=list)
    lost_from: int | None = None
    """Since there no whole frame was found; it goes on in the next piece."""


def check(
    data: memoryview,
    low: int,
    end: int,
    lost_from: int | None = None,
    on_batch: Callable[[Frame], object] = lambda frame: None,
) -> Checked:
    """Judge `data`, which begins at log position `low` of a file that ends at `end`. `lost_from`: as the piece before
    has left it; else a frame begins at `low`. `on_batch`: told of every whole batch."""
    top = low + len(data)
    found = Checked(low, lost_from=lost_from)
    while found.upto < top:
        if found.lost_from is not None and not _search(data, low, end, found):
            break
        at = found.upto
        if (needs := _header_bytes(data, low, at)) > top - at and top < end:
            found.needs = needs
            break
        try:
            frame = decode(data, at, low, end)
        except (BadFrameError, UnknownVersionError):
            found.lost_from = at
            found.upto = at + 1
            continue
        if frame.kind != Kind.END and frame.end > top:
            found.needs = frame.length
            break
        found.upto = frame.end
        if frame.kind == Kind.END:
            continue
        found.frames += 1
        begin = frame.payload_position - low
        try:
            check_payload(frame, data[begin : begin + frame.payload_length])
        except BadFrameError:
            found.corrupt.append(Corrupt(frame.position, frame.end, frame))
            continue
        if frame.kind == Kind.BATCH:
            on_batch(frame)
    return found


def _header_bytes(data: memoryview, low: int, at: int) -> int:
    """Of the header that begins at log position `at`, as far as it says so: with its provenance list."""
    if at + HEADER_BYTES > low + len(data):
        return HEADER_BYTES
    return HEADER_BYTES + min(provenance_length_at(data, at - low), MAX_PROVENANCE_BYTES)


def _search(data: memoryview, low: int, end: int, found: Checked) -> bool:
    """For the next whole header, from `found.upto` on; whether there is one in this piece."""
    assert found.lost_from is not None
    top = low + len(data)
    for at in candidates_in(data, low, found.upto):
        if (needs := _header_bytes(data, low, at)) > top - at and top < end:
            found.upto, found.needs = at, needs
            return False
        try:
            decode(data, at, low, end)
        except (BadFrameError, UnknownVersionError):
            continue
        found.corrupt.append(Corrupt(found.lost_from, at, None))
        found.lost_from, found.upto = None, at
        return True
    if top >= end:
        found.corrupt.append(Corrupt(found.lost_from, end, None))
        found.lost_from, found.upto = None, end
    else:  # a header may reach into the next piece
        found.upto = max(found.upto, top - HEADER_BYTES + 1)
    return False
