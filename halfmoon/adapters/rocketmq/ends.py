"""Ends of transactions that come together are one batch: each alone would cost three times as much."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from halfmoon.adapters.rocketmq.answers import DONE, Answer, refusal
from halfmoon.adapters.rocketmq.errors import Refused
from halfmoon.adapters.rocketmq.names import HALF_TOPIC
from halfmoon.adapters.tcp.appending import append_late
from halfmoon.adapters.tcp.core import Core
from halfmoon.core.append_types import Produced
from halfmoon.core.records.batches import build_batch
from halfmoon.core.steps import Slices
from halfmoon.errors import BrokerError, NotHereYetError, TakesLongError
from halfmoon.remoting.codes import Code
from halfmoon.remoting.command import Command

END_TOPIC = "halfmoon.transactions"
"""Where every client can say it (plugins/store/transaction)."""


class Call(Protocol):
    """A request to end a transaction, as it is answered here (registry.Call)."""

    command: Command

    def reply(self, answer: Answer) -> None: ...

    def after(self, position: int, answer: Answer) -> None:
        """Answer once the log is durable up to `position`."""

    def work_out(self, steps: Slices[Any], answered: Callable[[Any], Answer | None]) -> None:
        """Carry out `steps`, and call `answered` with what they return."""


Headers = tuple[tuple[str, bytes], ...]
End = tuple[Call, Headers]
"""A request, and the headers of its record."""


class Ends:
    """What producers have said of half messages, until all requests of one read are handled."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._said: list[End] = []

    def add(self, call: Call, group: str, key: str, state: bytes) -> None:
        """Raises Refused(SYSTEM_ERROR)."""
        if self._core.catalog.topic(END_TOPIC) is None and self._core.catalog.topic(HALF_TOPIC) is None:
            raise Refused(Code.SYSTEM_ERROR, "no half message was ever sent")
        self._said.append((call, _headers(group, key, state)))

    def batch(self, group: str, key: str, state: bytes) -> bytes:
        """One end."""
        return bytes(build_batch([(None, None, self._core.clock.wall_ms(), _headers(group, key, state))]))

    def write(self) -> None:
        """Append what was said. What is refused leaves the others alone."""
        if not self._said:
            return
        said, self._said = self._said, []
        try:
            self._append(said)
        except BrokerError as error:
            self._refused(said, error)

    def _refused(self, said: list[End], error: BrokerError) -> None:
        if len(said) == 1:
            said[0][0].reply(refusal(error))
            return
        for end in said:
            self._said.append(end)
            self.write()

    def _append(self, said: list[End]) -> None:
        core = self._core
        # It may have been deleted while no half message waited, and some of these know no better.
        partition, now_ms = core.administration.first_partition(END_TOPIC), core.clock.wall_ms()
        batch = memoryview(bytearray(build_batch((None, None, now_ms, headers) for _, headers in said)))
        try:
            produced = core.append(partition, batch, now_ms)
        except (NotHereYetError, TakesLongError):
            again = outcome_of(append_late(core, partition, batch))
            said[0][0].work_out(again, lambda outcome: self._appended(said, outcome))
        else:
            self._appended(said, produced)

    def _appended(self, said: list[End], outcome: Produced | BrokerError) -> None:
        if isinstance(outcome, BrokerError):
            self._refused(said, outcome)
            return
        for call, _ in said:
            if not call.command.is_oneway:
                call.after(outcome.position, DONE)


def _headers(group: str, key: str, state: bytes) -> Headers:
    return ("PGROUP", group.encode()), ("UNIQ_KEY", key.encode()), ("TRAN_STATE", state)


def outcome_of(append: Slices[Produced]) -> Slices[Produced | BrokerError]:
    try:
        return (yield from append)
    except BrokerError as error:
        return error
