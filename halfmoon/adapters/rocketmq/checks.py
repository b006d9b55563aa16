"""Check-back: RocketMQ's producers are asked what became of their half messages (B32).

The transaction plugin puts a copy of what is to be asked about into `check.<producer group>`, for whoever speaks for
the group. Where RocketMQ producers of the group are connected, this is who consumes it for them: each copy becomes a
CHECK_TRANSACTION_STATE to one of them, each in turn; they answer with END_TRANSACTION. Copies from a time when none was
connected are not sent again: the next check brings another (AbstractTransactionalMessageCheckListener).
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from msgspec import Struct

from halfmoon.adapters.rocketmq.members import Client, Members
from halfmoon.adapters.rocketmq.names import HALF_TOPIC
from halfmoon.adapters.rocketmq.producers_elsewhere import ProducersElsewhere
from halfmoon.adapters.rocketmq.queues import Queues
from halfmoon.adapters.rocketmq.to_messages import MessageWriter
from halfmoon.adapters.rocketmq.windows import READ_BYTES, Windows
from halfmoon.adapters.tcp.core import Core
from halfmoon.core.catalog.topics import Partition
from halfmoon.core.hold import Held
from halfmoon.errors import BrokerError
from halfmoon.remoting.message import decode_stored, encode_stored
from halfmoon.remoting.properties import decode
from halfmoon.schema.group_topics import check_topic

log = logging.getLogger("halfmoon.rocketmq")

CHECK_TRANSACTION_STATE = 39
WAIT_MS = 60_000


class _Followed(Struct, eq=False):
    """A check topic."""

    group: str
    partition: Partition
    offset: int
    """Up to which its producers were asked."""


class CheckBack:
    """Follows the check topics of groups with connected producers."""

    def __init__(
        self,
        core: Core,
        members: Members,
        windows: Windows,
        elsewhere: ProducersElsewhere,
        *,
        broker_name: str,
        queues: Queues,
        group_topic: Callable[[str], None],
        writer_for: Callable[[Client | None], MessageWriter],
        may_answer: Callable[[Client, str, str], bool],
    ) -> None:
        """`may_answer`: whether a client may be told what its group of producers has sent to this topic. `group_topic`
        has a group's check topic made if need be, and may raise BrokerError; `writer_for` writes messages
        as that client reads them, or one of another shard."""
        self._core = core
        self._members = members
        self._windows = windows
        self._elsewhere = elsewhere
        self._broker_name = broker_name
        self._queues = queues
        self._group_topic = group_topic
        self._writer_for = writer_for
        self._may_answer = may_answer
        self.asked = 0
        """Questions sent."""
        self._followed: dict[str, _Followed] = {}
        """Producer group → its check topic, as far as it was asked about."""
        self._unasked: set[str] = set()
        """Groups with producers, and nothing to ask them about yet."""

    def follow(self, group: str) -> None:
        """Producers of this group are connected, here or elsewhere; if they have sent half messages, or may have, ask
        them from now on."""
        if group not in self._followed:
            self._begin(group)
        if group in self._followed and self._members.has_producers(group):
            self._elsewhere.tell(group)

    def _begin(self, group: str) -> None:
        topic = self._core.catalog.topic(check_topic(group))
        queues = [] if topic is None else self._queues.of(topic)
        if not queues:
            self._unasked.add(group)
            return
        partition = queues[0]
        # Of what came while no producer was connected the next check brings another.
        offset = partition.start_offset if group in self._unasked else partition.stable_offset
        followed = self._followed[group] = _Followed(group, partition, offset)
        self._unasked.discard(group)
        if partition.stable_offset > offset:
            self._arrived(followed)
        else:
            self._wait(followed)

    def look_again(self) -> None:
        """Now and then: somebody else may have sent the first half message of a group, which is asked about now."""
        for group in list(self._unasked):
            if self._has_producers(group):
                self.follow(group)
            else:
                self._unasked.discard(group)

    def expect(self, group: str) -> None:
        """A producer of this group sends a half message: there are questions to come. Raises BrokerError."""
        if group not in self._followed:
            self._group_topic(group)
            self.follow(group)

    def _wait(self, followed: _Followed) -> None:
        core, partition = self._core, followed.partition
        mono_ms = core.clock.mono_ms()
        held = Held(
            (partition,), 1, mono_ms + WAIT_MS, self, lambda: self._arrived(followed),
            ready=lambda: partition.stable_offset > followed.offset,
        )  # fmt: skip
        core.hold.park(held, mono_ms)

    def _arrived(self, followed: _Followed) -> None:
        group, partition = followed.group, followed.partition
        if not self._has_producers(group):
            del self._followed[group]  # the next heartbeat of one begins again
            return
        if self._core.catalog.by_queue_number.get(partition.queue_number) is not partition:
            del self._followed[group]  # the topic was deleted: what comes to the next one of that name is asked about
            self._unasked.add(group)
            self.follow(group)
            return
        followed.offset = min(followed.offset, partition.stable_offset)
        try:
            self._ask_all(followed)
        except Exception as error:  # whatever it is, it must not end the check-backs of this group
            known = isinstance(error, BrokerError)
            log.error("event=check_back_failed group=%s error=%s", group, error, exc_info=None if known else error)
            followed.offset = partition.stable_offset  # the next check of each brings another
        self._wait(followed)

    def _ask_all(self, followed: _Followed) -> None:
        windows, group, partition = self._windows, followed.group, followed.partition
        while followed.offset < partition.stable_offset:
            members = self._members.producer_members(group)
            if not members and not self._elsewhere.has(group):
                return
            offset = max(followed.offset, partition.start_offset)
            key = (partition, None, self._writer_for(members[0].connection if members else None))
            batches = windows.batches(partition, offset, READ_BYTES)
            opened = batches if isinstance(batches, list) else batches()  # just written, so it is in memory
            window = windows.make(key, offset, opened)
            followed.offset = max(window.next, offset + 1)
            if members:
                self.ask(group, window.data)
            else:
                self._elsewhere.ask(group, bytes(window.data))

    def ask(self, group: str, messages: bytes, broker_name: str = "") -> bool:
        """Ask producers that are connected here about these; whether there are any. `broker_name`: where they wait."""
        if not self._members.has_producers(group):
            return False
        for message in decode_stored(messages):
            found = dict(decode(message.properties))
            real_topic = found.get(b"REAL_TOPIC", b"")
            producer = self._producer(group, real_topic.decode())
            if producer is None:
                continue
            key = found.get(b"UNIQ_KEY", b"").decode()
            self.asked += 1
            asked = message._replace(topic=real_topic, system_flags=message.system_flags & ~12)
            producer.tell(
                CHECK_TRANSACTION_STATE,
                {
                    "bname": broker_name or self._broker_name,
                    "topic": HALF_TOPIC,
                    "commitLogOffset": str(message.physical_offset),
                    "tranStateTableOffset": str(message.queue_offset),
                    "msgId": key,
                    "transactionId": key,
                    "offsetMsgId": message.message_id,
                },
                encode_stored(asked),
            )
        return True

    def _has_producers(self, group: str) -> bool:
        return self._members.has_producers(group) or self._elsewhere.has(group)

    def _producer(self, group: str, real_topic: str) -> Client | None:
        """Whoever says that it is a producer of a group is one. So the message goes to one that may send such; in
        RocketMQ everybody would be shown it."""
        for _ in self._members.producer_members(group):
            producer = self._members.producer(group)
            if producer is not None and self._may_answer(producer, group, real_topic):
                return producer
        return None
