"""Reading a piece of a file in a thread, so that the page cache is left as it was.

What was not in memory before is forgotten again. Where the disk cannot read, the bytes are zeroes: what stood there is
no frame any more. What looks corrupt is read once more, from the disk: only its copy in memory may be.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence

from halfmoon.core.storage.frame import Frame
from halfmoon.core.storage.segment import Segment
from halfmoon.services.scrubber.checking import Checked, check

CACHE_BYTES = 64 << 10
"""So much is found in memory, or forgotten, together."""
SECTORS_BYTES = 4 << 10
"""Where a read fails, it is tried in so small pieces."""

Load = Callable[[], Sequence[memoryview]]
"""As of ReadSide.load: one piece. Raises OSError."""


class Piece:
    """Log positions [low, high) of a segment; `load` brings them, and keeps the file open."""

    def __init__(self, segment: Segment, low: int, high: int, end: int, load: Load) -> None:
        """`end`: where what is to be checked of the segment ends."""
        self.segment = segment
        self.low = low
        self.high = high
        self._end = end
        self._load = load

    def check(self, lost_from: int | None) -> tuple[Checked, list[Frame]]:
        """Also the headers of all whole batches. Raises OSError where it cannot be known what the disk has."""
        seen = self._read_and_check(lost_from)
        if seen[0].corrupt or seen[0].lost_from is not None:
            self._forget(self.low, self.high)
            seen = self._read_and_check(lost_from)
        return seen

    def _read_and_check(self, lost_from: int | None) -> tuple[Checked, list[Frame]]:
        start, batches = self.segment.start, list[Frame]()
        mapping = self.segment.mapping
        blocks = [(at, min(at + CACHE_BYTES, self.high)) for at in range(self.low, self.high, CACHE_BYTES)]
        cold = [(low, high) for low, high in blocks if not mapping.in_memory(low - start, high - start)]
        try:
            (data,) = self._load()
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            data = self._read_sectors()
        for low, high in cold:
            self._forget(low, high)
        return check(data, self.low, self._end, lost_from, batches.append), batches

    def _read_sectors(self) -> memoryview:
        data = memoryview(bytearray(self.high - self.low))
        at, start = self.low, self.segment.start
        while at < self.high:
            upto = min(at + SECTORS_BYTES - (at - start) % SECTORS_BYTES, self.high)
            try:
                self.segment.file.pread_into(data[at - self.low : upto - self.low], at - start)
            except OSError as error:
                if error.errno != errno.EIO:
                    raise
                data[at - self.low : upto - self.low] = bytes(upto - at)
            at = upto
        return data

    def _forget(self, low: int, high: int) -> None:
        self.segment.file.forget(high - low, low - self.segment.start)
