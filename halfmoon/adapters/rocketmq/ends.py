"""Ends of transactions that come together are one batch: each alone would cost three times as much."""

from __future__ import annotations

from typing import Protocol

from halfmoon.adapters.rocketmq.answers import DONE, Answer, refusal
from halfmoon.adapters.rocketmq.errors import Refused
from halfmoon.adapters.tcp.core import Core
from halfmoon.core.records.batches import build_batch
from halfmoon.errors import BrokerError, Fault
from halfmoon.remoting.codes import Code
from halfmoon.remoting.command import Command

END_TOPIC = "halfmoon.transactions"
"""Where every client can say it (plugins/store/transaction.py)."""


class Call(Protocol):
    """A request to end a transaction, as it is answered here (registry.Call)."""

    command: Command

    def reply(self, answer: Answer) -> None: ...

    def after(self, position: int, answer: Answer) -> None:
        """Answer once the log is durable up to `position`."""


End = tuple[Call, tuple[tuple[str, bytes], ...]]
"""A request, and the headers of its record."""


class Ends:
    """What producers have said of half messages, until all requests of one read are handled."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._said: list[End] = []

    def add(self, call: Call, group: str, key: str, state: bytes) -> None:
        """Raises Refused(SYSTEM_ERROR)."""
        if self._core.catalog.topic(END_TOPIC) is None:
            raise Refused(Code.SYSTEM_ERROR, "no half message was ever sent")
        self._said.append((call, (("PGROUP", group.encode()), ("UNIQ_KEY", key.encode()), ("TRAN_STATE", state))))

    def write(self) -> None:
        """Append what was said. What is refused leaves the others alone."""
        if not self._said:
            return
        said, self._said = self._said, []
        try:
            self._append(said)
        except BrokerError as error:
            if len(said) == 1:
                said[0][0].reply(refusal(error))
                return
            for end in said:
                self._said = [end]
                self.write()

    def _append(self, said: list[End]) -> None:
        core = self._core
        topic = core.catalog.topic(END_TOPIC)
        if topic is None:  # it was deleted between two requests
            raise BrokerError(Fault.UNKNOWN_TOPIC_OR_PARTITION)
        now_ms = core.clock.wall_ms()
        batch = build_batch((None, None, now_ms, headers) for _, headers in said)
        produced = core.append(topic.partitions[0], memoryview(bytearray(batch)), now_ms)
        for call, _ in said:
            if not call.command.is_oneway:
                call.after(produced.position, DONE)
