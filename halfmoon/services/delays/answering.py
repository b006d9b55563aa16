"""Who answers questions about scheduled messages."""

from __future__ import annotations

from halfmoon.core.catalog.catalog import Catalog
from halfmoon.core.clock import Clock
from halfmoon.core.partition_reader import PartitionReader
from halfmoon.core.steps import Slices
from halfmoon.core.storage.storage import WriteSide
from halfmoon.services.delays.changing import Changing
from halfmoon.services.delays.frames import Frames
from halfmoon.services.delays.listing import Listing
from halfmoon.services.delays.ports import Rights, WaitingMessages
from halfmoon.services.delays.questions import Answer, Cancel, Count, List, Question

AT_ONCE = 2
"""Questions that are answered at a time, of all clients."""


class Answering:
    def __init__(
        self, log: WriteSide, catalog: Catalog, reader: PartitionReader, waiting: WaitingMessages, clock: Clock
    ) -> None:
        self.frames = Frames(catalog, reader, waiting)
        self._listing = Listing(catalog, self.frames, clock)
        self._changing = Changing(log, catalog, self.frames, waiting, clock)
        self._asked = 0
        """Questions that are being answered."""

    def ask(self, question: Question, rights: Rights) -> Slices[Answer]:
        """As of service.Delays. Others wait: each question takes slices of the loop's time."""
        while self._asked >= AT_ONCE:
            yield None
        self._asked += 1
        try:
            return (yield from self._answer(question, rights))
        finally:
            self._asked -= 1

    def _answer(self, question: Question, rights: Rights) -> Slices[Answer]:
        if isinstance(question, List):
            return Answer(listed=(yield from self._listing.first(question, rights.describes, rights.reads)))
        if isinstance(question, Count):
            return Answer(counted=(yield from self._listing.count(question, rights.describes)))
        may = rights.cancels if isinstance(question, Cancel) else rights.reschedules
        return Answer(changed=(yield from self._changing.change(question, rights.describes, may)))
