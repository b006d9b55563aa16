"""The arguments of a listener, and its answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from halfmoon.client.messages import ReceivedMessage
from halfmoon.plugin import Queue

if TYPE_CHECKING:
    from halfmoon.client.engine.process_queue import ProcessQueue


class Status(Enum):
    """A listener's answer. A listener that returns nothing, or raises, has not consumed the messages."""

    SUCCESS = "success"
    RECONSUME_LATER = "reconsume later"
    """Concurrent listeners: a negative acknowledgement. The broker redelivers the messages, with a growing delay, and
    dead-letters them in the end."""
    SUSPEND = "suspend"
    """Ordered listeners: the same messages again after `suspend_ms`, and no others of their queue before
    (SUSPEND_CURRENT_QUEUE_A_MOMENT)."""
    ROLLBACK = "rollback"
    """The same."""


class Context(Struct):
    """Of one call of a listener, which may set all fields but `queue`."""

    queue: Queue
    delay_level: int = 0
    """Concurrent listeners: the delay level of the redelivery; 0: the broker's, growing; −1: dead-letter at once
    (delayLevelWhenNextConsume)."""
    acknowledged: int = -1
    """Concurrent listeners, with SUCCESS: acknowledge this many messages, from the first one on, and redeliver the
    others; −1: all (ackIndex + 1)."""
    suspend_ms: int = -1
    """Ordered listeners: time until redelivery, 10 ms to 30 s; −1: as the consumer's option is set."""


Listener = Callable[[Sequence[ReceivedMessage], Context], "Status | Awaitable[Status | None] | None"]


class Work:
    """One call of a listener. The shell makes the call, and says what came of it."""

    __slots__ = (
        "began_ms",
        "context",
        "expired",
        "finished",
        "is_over",
        "is_skipped",
        "listener",
        "messages",
        "process_queue",
    )

    def __init__(
        self,
        listener: Listener,
        messages: Sequence[ReceivedMessage],
        process_queue: ProcessQueue,
        finished: Callable[[Work, Status | None, BaseException | None], object],
    ) -> None:
        self.listener = listener
        self.messages = messages
        self.process_queue = process_queue
        self.context = Context(process_queue.queue)
        self.finished = finished
        """(work, status, error): to be called once, in the engine's turn."""
        self.is_over = False
        """Nobody waits for it any more: if the listener was not called yet, it need not be, and `finished` neither."""
        self.is_skipped = False
        """The queue was dropped before it was the listener's turn, which was not called; to be set by the shell."""
        self.expired: set[int] = set()
        """Offsets of messages that were handed back while the listener has them: what it says of those is void."""
        self.began_ms = -1.0
        """When the listener was called, by the kernel's clock; to be set by the shell."""


def said(work: Work, status: object) -> tuple[Status | None, BaseException | None]:
    """What a listener has returned, if that makes sense, and what is wrong with it otherwise."""
    if status is not None and not isinstance(status, Status):
        return None, TypeError(f"a listener has returned {status!r}, expected a Status")
    for name in ("delay_level", "acknowledged", "suspend_ms"):
        value = getattr(work.context, name)
        if not isinstance(value, int):
            work.context = Context(work.context.queue)
            return None, TypeError(f"a listener has set {name} to {value!r}, expected an int")
    return status, None


class Service(Protocol):
    """How messages get to the listener."""

    needs_lock: bool
    """A queue is pulled only while the broker says that it is ours."""

    @property
    def in_flight(self) -> int:
        """Messages that listeners have, or are to get next."""

    def begin(self, process_queue: ProcessQueue) -> None:
        """A queue is ours."""

    def arrived(self, process_queue: ProcessQueue, messages: Sequence[ReceivedMessage]) -> None:
        """Messages were pulled, and stand in the process queue."""

    async def lock(self, queues: Sequence[Queue]) -> set[Queue]:
        """Those of the queues that are ours now."""

    async def quiet(self, process_queue: ProcessQueue) -> bool:
        """A queue was dropped; whether nobody uses it any more, after a moment."""

    async def release(self, queues: Sequence[Queue]) -> None:
        """They are not ours any more: others may have them."""

    async def end(self) -> None:
        """Running listeners end, within the time for that."""
