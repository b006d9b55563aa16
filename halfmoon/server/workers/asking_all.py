"""What a shard answers another process that looks for messages for a client (adapters/kafka/shard_messages.py), or is
asked about scheduled ones (shard_delays.py).

The client's principal and host come with the question, and what they may not see is left out here, by the same rules:
access rules stand in the shared catalog, and all processes have the same plugins.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, cast

import msgspec

from halfmoon.adapters.kafka import shard_delays
from halfmoon.adapters.kafka.api import api_18508_schedules as schedules
from halfmoon.adapters.kafka.registry import Context
from halfmoon.adapters.kafka.shard_messages import ask_here
from halfmoon.adapters.tcp import delays
from halfmoon.adapters.tcp.steps import InThread, Soon
from halfmoon.cluster.messages import AskDelays, AskMessages, AskSchedules, DelaysFound, MessagesFound, SchedulesFound
from halfmoon.errors import BrokerError, Fault
from halfmoon.services.keyindex.questions import Find, Nacked, Show, Trace

if TYPE_CHECKING:
    from halfmoon.adapters.kafka.registry import Peer
    from halfmoon.adapters.tcp.access import Rights
    from halfmoon.cluster.asking import Answerer, Answers, Told
    from halfmoon.core.storage.fetch_buffers import FetchBuffers
    from halfmoon.server.assembly import Node

_question = msgspec.json.Decoder(Find | Show | Nacked | Trace)


def message_answers(
    node: Node, rights: Callable[[str, str], Rights | None], in_thread: InThread, soon: Soon
) -> Answers:  # fmt: skip
    """`rights(principal, host)`: what a client may do; None: everything; it raises BrokerError where that is not known.
    `in_thread`: reads from the disk. `soon`: as of run_steps."""
    kernel = node.kernel
    peer = cast("Peer", _OtherProcess(kernel.fetch_buffers, in_thread, soon))

    def answer(asked: AskMessages, told: Told) -> None:
        try:
            may = rights(asked.principal, asked.host)
            question = _question.decode(asked.body)
        except BrokerError as error:
            told(error)
            return
        except msgspec.DecodeError as error:  # of a newer version
            told(BrokerError(Fault.INVALID_REQUEST, str(error)))
            return
        ctx = Context(kernel, node.services, peer, 0, 0, None, may)
        ask_here(ctx, question, lambda found: told(MessagesFound(found)))

    def answer_delays(asked: AskDelays, told: Told) -> None:
        try:
            may = rights(asked.principal, asked.host)
            question = delays.decoded(asked.body)
        except BrokerError as error:
            told(error)
            return
        ctx = Context(kernel, node.services, peer, 0, 0, None, may)
        shard_delays.ask_here(ctx, question, lambda found: told(DelaysFound(found)))

    return {AskMessages: answer, AskDelays: answer_delays, AskSchedules: _schedule_answer(node, rights)}


def _schedule_answer(node: Node, rights: Callable[[str, str], Rights | None]) -> Answerer:
    """What a shard answers another process that asks about recurring messages for a client."""

    def answer(asked: AskSchedules, told: Told) -> None:
        try:
            may = rights(asked.principal, asked.host)
            question = schedules.decoder().decode(asked.body)
        except BrokerError as error:
            told(error)
            return
        except msgspec.DecodeError as error:  # of a newer version
            told(BrokerError(Fault.INVALID_REQUEST, str(error)))
            return
        asker = schedules.asker_of(asked.principal, asked.host, may)
        schedules.answer_here(
            node.kernel, node.services, question, asker, lambda found: told(SchedulesFound(schedules.encoded(found)))
        )

    return answer


class _OtherProcess:
    """What is used of a Peer here."""

    def __init__(self, buffers: FetchBuffers, in_thread: InThread, soon: Soon) -> None:
        self._buffers = buffers
        self._in_thread = in_thread
        self.soon = soon

    def load(self, size: int, work: Callable[[], object], then: Callable[[object, BaseException | None], None]) -> None:
        """As of a connection: once there is room."""

        def loaded(result: object, error: BaseException | None) -> None:
            self._buffers.loaded(size)
            then(result, error)

        self._buffers.admit(size, lambda: self._in_thread(work, loaded))
