"""Sending to a broker that is one shard of several, where that takes more than its own log: a topic has to be made
first, for all shards, or the queue lies in another one.

A client that has not heard of a topic's queues yet sends by the route of TBW102, to any broker. Such a message is sent
on to a shard that has queues of the topic.
"""

from __future__ import annotations

from collections.abc import Callable

from halfmoon.adapters.rocketmq.answers import Answer, refusal
from halfmoon.adapters.rocketmq.ends import outcome_of
from halfmoon.adapters.rocketmq.errors import Refused
from halfmoon.adapters.rocketmq.registry import Call
from halfmoon.adapters.rocketmq.shard_topics import ShardTopics
from halfmoon.adapters.rocketmq.shards import Holder, Stored
from halfmoon.adapters.tcp.appending import append_late
from halfmoon.core.append_types import Produced
from halfmoon.core.catalog.topics import Partition, Topic
from halfmoon.errors import BrokerError, Fault
from halfmoon.remoting.codes import Code

TRIES = 30
PAUSE_S = 0.05
"""A topic that is being made is looked for so often, after so long: clients wait 3 s."""


def when_made(call: Call, topics: ShardTopics, name: str, queues: int, send: Callable[[], Answer | None]) -> None:
    """Make a topic, and `send` then."""
    call.command.body = bytes(call.command.body)
    call.hold_on()

    def again(topic: Topic | BrokerError) -> Answer | None:
        if isinstance(topic, BrokerError):
            return refusal(topic)
        answer = send()
        _handled(call)
        return answer

    topics.make(name, queues, lambda topic: call.answer(lambda: again(topic)))


class AppendingLater:
    """A batch that needs a topic which is being made: of half messages, the one by which they end."""

    def __init__(
        self, call: Call, partition: Partition, records: memoryview, appended: Callable[[Produced], None]
    ) -> None:
        self._call = call
        self._partition = partition
        self._records = records
        self._appended = appended
        self._left = TRIES

    def wait(self) -> None:
        self._call.hold_on()
        self._call.node.later(PAUSE_S, lambda: self._call.answer(self._again))

    def _again(self) -> None:
        call = self._call
        steps = append_late(call.core, self._partition, self._records, call.rights)
        call.work_out(outcome_of(steps), self._came)

    def _came(self, outcome: Produced | BrokerError) -> None:
        """Raises Refused, BrokerError."""
        if not isinstance(outcome, BrokerError):
            self._appended(outcome)
            _handled(self._call)
            return
        if outcome.fault is not Fault.NOT_LEADER_OR_FOLLOWER:
            self._call.core.refused_batches[outcome.fault] += 1
            raise outcome
        self._left -= 1
        if not self._left:
            raise Refused(Code.SYSTEM_BUSY, outcome.message)
        self.wait()


def send_on(call: Call, partition: Partition, batch: bytes, answer: Callable[[Stored, Holder], Answer]) -> None:
    """Have the shard store a batch that the queue lies in. Raises Refused."""
    shards = call.node.shards
    assert shards is not None
    topic, index = partition.topic, partition.index
    holder = shards.brokers.holder(topic, index)
    if holder is None:
        raise Refused(Code.SYSTEM_BUSY, f"other brokers have the queues of topic[{topic.name}]: ask for its route")
    call.forget_content()
    call.hold_on()

    def stored(found: Stored | BrokerError) -> None:
        call.answer(lambda: refusal(found) if isinstance(found, BrokerError) else answer(found, holder))

    sender = None if call.rights is None else (str(call.principal), call.connection.peer_host)
    shards.messages.append(topic, index, batch, stored, sender)


def _handled(call: Call) -> None:
    """What comes at the end of each read of a connection."""
    if call.core.turn.dirty:
        call.core.on_handled()
