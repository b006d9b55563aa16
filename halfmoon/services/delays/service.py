"""What waits: scheduled messages of all topics and groups, listed, counted, cancelled and rescheduled without knowing a
key (`halfmoon delay`, API 18506, halfmoon.client.Delays).

Messages that wait belong to the service of waiting messages and are in the log; nothing is kept here. So it can be off,
and nobody else notices. What answers is imported for the first question: few brokers are ever asked.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from halfmoon.core.features import Feature
from halfmoon.core.metrics import Family, Put

if TYPE_CHECKING:
    from halfmoon.core.catalog.catalog import Catalog
    from halfmoon.core.clock import Clock
    from halfmoon.core.partition_reader import PartitionReader
    from halfmoon.core.steps import Slices
    from halfmoon.core.storage.storage import WriteSide
    from halfmoon.services.delays.answering import Answering
    from halfmoon.services.delays.ports import Rights, WaitingMessages
    from halfmoon.services.delays.questions import Answer, Question


class Delays:
    """The questions. Ask in the loop."""

    def __init__(
        self, log: WriteSide, catalog: Catalog, reader: PartitionReader, waiting: WaitingMessages, clock: Clock
    ) -> None:
        self._waiting = waiting
        self._make = partial(_answering, log, catalog, reader, waiting, clock)
        self._answering: Answering | None = None

    @property
    def answering(self) -> Answering:
        if self._answering is None:
            self._answering = self._make()
        return self._answering

    def ask(self, question: Question, rights: Rights) -> Slices[Answer]:
        """Tell the answer once the log is durable up to its end of then. Raises BrokerError, OSError; some messages may
        be changed then."""
        return self.answering.ask(question, rights)

    def feature(self) -> Feature:
        return Feature("delays", families=FAMILIES, read_metrics=self._read_metrics)

    def _read_metrics(self, put: Put) -> None:
        put("halfmoon_rescheduled_messages_total", self._waiting.rescheduled)


FAMILIES = (
    Family("halfmoon_rescheduled_messages_total", "counter", "Scheduled messages that were given another time."),
)


def _answering(
    log: WriteSide, catalog: Catalog, reader: PartitionReader, waiting: WaitingMessages, clock: Clock
) -> Answering:
    from halfmoon.services.delays.answering import Answering  # some ms of each start

    return Answering(log, catalog, reader, waiting, clock)
