"""What this service asks of who cancels waiting messages. Without such a feature, nothing is cancelled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from halfmoon.core.catalog.topics import Partition, Topic
from halfmoon.errors import BrokerError, Fault
from halfmoon.schema.control import Cancelled


class Cancels(Protocol):
    """Knows which messages are cancelled and not found yet."""

    asked: int
    """How often something was cancelled."""

    @property
    def any_open(self) -> bool:
        """Whether there is any of which the messages are not found yet."""
        ...

    def cancelled(self, topic: Topic, keys: Sequence[bytes]) -> Cancelled:
        """The record by which messages to `topic` with these UNIQ_KEYs are not delivered from now on; then call
        `was_asked`. Raises BrokerError."""
        ...

    def was_asked(self) -> None:
        """Such a record was appended."""
        ...

    def complete_among(self, target: Topic, waiting: Partition, base: int, batch: memoryview) -> None:
        """Complete those messages of a batch at offset `base` of `waiting`, which is to go to `target`, that are
        cancelled. Raises BrokerError."""
        ...


class NoCancels:
    """Where no feature cancels messages."""

    asked = 0
    any_open = False

    def cancelled(self, topic: Topic, keys: Sequence[bytes]) -> Cancelled:
        raise BrokerError(Fault.INVALID_RECORD, "messages cannot be cancelled: the feature that does it is off")

    def was_asked(self) -> None:
        pass

    def complete_among(self, target: Topic, waiting: Partition, base: int, batch: memoryview) -> None:
        pass
