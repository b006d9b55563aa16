"""Frames of waiting messages for who cannot wait: a produced batch that releases messages must find them here.

So it is refused with a load, nothing has changed then, and it is appended again once the load has run
(errors.NotHereYetError). What the load has brought is kept here until then.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from halfmoon.errors import BrokerError, Fault, NotHereYetError

if TYPE_CHECKING:
    from halfmoon.core.partition_reader import PartitionReader
    from halfmoon.core.storage.storage import Place

KEPT_BYTES = 128 << 20
"""What was brought and not asked for again is given up then, the oldest first."""


class Brought:
    def __init__(self, reader: PartitionReader) -> None:
        self._reader = reader
        self._kept: OrderedDict[Place, memoryview] = OrderedDict()
        self._kept_bytes = 0
        self._lock = threading.Lock()

    def now(self, place: Place) -> memoryview:
        """What stands there. Raises NotHereYetError, BrokerError."""
        kept = self._kept.get(place)
        if kept is not None:
            return kept
        read = self._reader.read_at([place])
        if read.cold is not None:
            raise NotHereYetError(self.load([place]))
        return memoryview(read.slices[0])

    def load(self, places: Sequence[Place]) -> Callable[[], object]:
        """For a thread; afterwards they are here. Raises BrokerError(MESSAGE_TOO_LARGE) where they are too much."""
        if sum(length for _, length in places) > KEPT_BYTES:
            raise BrokerError(
                Fault.MESSAGE_TOO_LARGE, f"more than {KEPT_BYTES >> 20} MiB would have to be read at once"
            )
        loads = [(place, self._reader.load_at([place])) for place in places]

        def run() -> None:
            for place, load in loads:
                if place in self._kept:  # it was read when another failed
                    continue
                self._keep(place, memoryview(bytes(load()[0])))

        return run

    def _keep(self, place: Place, piece: memoryview) -> None:
        with self._lock:
            self._kept[place] = piece
            self._kept_bytes += len(piece)
            while self._kept_bytes > KEPT_BYTES:
                self._kept_bytes -= len(self._kept.popitem(last=False)[1])

    def forget(self, places: Sequence[Place]) -> None:
        """They have been used."""
        if self._kept:
            with self._lock:
                for place in places:
                    piece = self._kept.pop(place, None)
                    self._kept_bytes -= 0 if piece is None else len(piece)
