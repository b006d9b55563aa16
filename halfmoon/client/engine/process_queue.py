"""A queue's messages between the pull and the listener (org.apache.rocketmq.client.impl.consumer.ProcessQueue).

They are sorted by offset. What may be reported as progress is the smallest offset that is still here, else the one
behind the last: so a message is reported only when it and all before it are dealt with (B18). A queue that was taken
from us is *dropped*: what is still running ends, and changes nothing any more.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sortedcontainers import SortedDict

from halfmoon.client.engine.kernel import Pending, Task
from halfmoon.client.messages import ReceivedMessage
from halfmoon.plugin import Queue


class ProcessQueue:
    """Of one queue that we own."""

    __slots__ = (
        "_consuming", "arrived", "begin_at", "broker_offset", "bytes", "is_consuming", "is_dropped", "is_locked",
        "is_moving", "last_consume_ms", "last_lock_ms", "last_pull_ms", "lock_trusted_ms", "max_offset",
        "messages", "next_offset", "node_id", "queue", "reread", "task",
    )  # fmt: skip

    def __init__(self, queue: Queue, next_offset: int, now_ms: float, lock_trusted_ms: int) -> None:
        self.queue = queue
        self.lock_trusted_ms = lock_trusted_ms
        """A lock that was not renewed for so long counts as lost."""
        self.next_offset = next_offset
        """To pull from."""
        self.broker_offset = next_offset
        """Behind the queue's last message, as the broker has said."""
        self.node_id = 0
        """Whom to pull from, as the last answer suggested."""
        self.messages: SortedDict[int, ReceivedMessage] = SortedDict()
        """Not dealt with, by offset; in order consumption, not taken either."""
        self._consuming: SortedDict[int, ReceivedMessage] = SortedDict()
        """Ordered consumption: what the listener has."""
        self.bytes = 0
        """Of the bodies here."""
        self.max_offset = -1
        """Of all that were ever here."""
        self.is_dropped = False
        self.is_locked = False
        self.last_lock_ms = now_ms
        self.last_pull_ms = now_ms
        self.last_consume_ms = now_ms
        self.is_consuming = False
        """Ordered consumption: a listener is at it, so nobody may take the queue away."""
        self.reread = False
        """Progress is to be asked of the broker again before the next pull."""
        self.arrived: Pending[None] | None = None
        """Who waits for messages."""
        self.begin_at = -1
        """Progress that is to be stored when the queue is given up, whatever was consumed; −1: what was consumed."""
        self.is_moving = False
        """It was dropped, and is to be given up after a while, and not before."""
        self.task: Task[None] | None = None

    def __repr__(self) -> str:
        return f"<{self.queue.topic}/{self.queue.broker}/{self.queue.queue_id} {len(self)} messages>"

    def __len__(self) -> int:
        return len(self.messages) + len(self._consuming)

    @property
    def lag(self) -> int:
        """Messages that are not dealt with, as far as the broker has said; with holes in the offsets it is more."""
        progress = self.progress
        return max(0, self.broker_offset - (self.next_offset if progress < 0 else min(progress, self.next_offset)))

    @property
    def span(self) -> int:
        """From the first offset here to the last."""
        return self.messages.peekitem(-1)[0] - self.messages.peekitem(0)[0] if self.messages else 0

    def put(self, messages: Sequence[ReceivedMessage]) -> None:
        """Messages that were pulled. One that is here already stays as it is."""
        here = self.messages
        for message in messages:
            offset = message.queue_offset
            if offset not in here:
                here[offset] = message
                self.bytes += len(message.body)
        if messages:
            self.max_offset = max(self.max_offset, messages[-1].queue_offset)
        self.wake()

    def wake(self) -> None:
        """Whoever waits for messages looks again."""
        if self.arrived is not None:
            arrived, self.arrived = self.arrived, None
            arrived.set(None)

    def remove(self, messages: Iterable[ReceivedMessage]) -> int:
        """They are dealt with. The progress that may be reported now; −1: none."""
        here = self.messages
        for message in messages:
            if here.pop(message.queue_offset, None) is not None:
                self.bytes -= len(message.body)
        return self.progress

    @property
    def progress(self) -> int:
        """The smallest offset that is not dealt with, else the one behind the last; −1: there was nothing yet."""
        if self._consuming:
            return int(self._consuming.peekitem(0)[0])
        if self.messages:
            return int(self.messages.peekitem(0)[0])
        return self.max_offset + 1 if self.max_offset >= 0 else -1

    # -- ordered -----------------------------------------------------------------------------------------------------

    def take(self, count: int) -> list[ReceivedMessage]:
        """The first ones, for the listener."""
        taken: list[ReceivedMessage] = []
        while self.messages and len(taken) < count:
            offset, message = self.messages.popitem(0)
            self._consuming[offset] = message
            taken.append(message)
        return taken

    def commit(self) -> int:
        """What was taken is dealt with. The progress that may be reported now."""
        self.bytes -= sum(len(message.body) for message in self._consuming.values())
        self._consuming.clear()
        return self.progress

    def settle(self, message: ReceivedMessage) -> None:
        """One of those that were taken is dealt with, whatever becomes of the others."""
        if self._consuming.pop(message.queue_offset, None) is not None:
            self.bytes -= len(message.body)

    def put_back(self) -> None:
        """What was taken is to be taken again."""
        self.messages.update(self._consuming)
        self._consuming.clear()

    def forget_before(self, offset: int) -> None:
        """Somebody else has dealt with what is before it."""
        while self.messages and self.messages.peekitem(0)[0] < offset:
            _, message = self.messages.popitem(0)
            self.bytes -= len(message.body)
        self.next_offset = max(self.next_offset, offset)
        self.max_offset = max(self.max_offset, offset - 1)

    def is_lock_trusted(self, now_ms: float) -> bool:
        return self.is_locked and now_ms - self.last_lock_ms <= self.lock_trusted_ms

    def locked(self, now_ms: float) -> None:
        """The broker says it is ours."""
        if not self.is_lock_trusted(now_ms):
            self.reread = True
        self.is_locked = True
        self.last_lock_ms = now_ms

    # -- the end -----------------------------------------------------------------------------------------------------

    def drop(self) -> None:
        self.is_dropped = True
        self.wake()
