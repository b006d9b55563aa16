"""What waits: scheduled messages of all topics and groups, listed, counted, cancelled and rescheduled without knowing a
key (`halfmoon delay`, API 18506, halfmoon.client.Delays).

Messages that wait belong to the service of waiting messages and are in the log; nothing is kept here. So it can be off,
and nobody else notices.
"""

from __future__ import annotations

from typing import Protocol

from halfmoon.core.catalog.catalog import Catalog
from halfmoon.core.clock import Clock
from halfmoon.core.features import Feature
from halfmoon.core.metrics import Family, Put
from halfmoon.core.partition_reader import PartitionReader
from halfmoon.core.steps import Slices
from halfmoon.core.storage.storage import WriteSide
from halfmoon.services.delays import changing
from halfmoon.services.delays.changing import Changing
from halfmoon.services.delays.frames import Frames
from halfmoon.services.delays.listing import Listing
from halfmoon.services.delays.questions import Answer, Cancel, Count, List, Question


class WaitingMessages(changing.WaitingMessages, Protocol):
    @property
    def rescheduled(self) -> int: ...


class Rights(Protocol):
    """Of who asks, as to the messages that go to a topic, which may be the retry topic of a group."""

    def describes(self, topic: str, group: str | None) -> bool:
        """Whether they are told of."""
        ...

    def reads(self, topic: str, group: str | None) -> bool:
        """Whether their keys and headers are."""
        ...

    def cancels(self, topic: str, group: str | None) -> bool: ...
    def reschedules(self, topic: str, group: str | None) -> bool: ...


class Delays:
    """The questions. Ask in the loop."""

    def __init__(
        self, log: WriteSide, catalog: Catalog, reader: PartitionReader, waiting: WaitingMessages, clock: Clock
    ) -> None:
        self._waiting = waiting
        frames = Frames(catalog, reader, waiting)
        self._listing = Listing(catalog, frames, clock)
        self._changing = Changing(log, catalog, frames, waiting, clock)

    def ask(self, question: Question, rights: Rights) -> Slices[Answer]:
        """Tell the answer once the log is durable up to its end of then. Raises BrokerError, OSError; some messages may
        be changed then."""
        if isinstance(question, List):
            return Answer(listed=(yield from self._listing.first(question, rights.describes, rights.reads)))
        if isinstance(question, Count):
            return Answer(counted=(yield from self._listing.count(question, rights.describes)))
        may = rights.cancels if isinstance(question, Cancel) else rights.reschedules
        return Answer(changed=(yield from self._changing.change(question, rights.describes, may)))

    def feature(self) -> Feature:
        return Feature("delays", families=FAMILIES, read_metrics=self._read_metrics)

    def _read_metrics(self, put: Put) -> None:
        put("halfmoon_rescheduled_messages_total", self._waiting.rescheduled)


FAMILIES = (
    Family("halfmoon_rescheduled_messages_total", "counter", "Scheduled messages that were given another time."),
)
