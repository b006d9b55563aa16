"""What a listener is given, and what it says."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from enum import Enum
from typing import TYPE_CHECKING

from msgspec import Struct

from halfmoon.client.messages import ReceivedMessage
from halfmoon.plugin import Queue

if TYPE_CHECKING:
    from halfmoon.client.engine.process_queue import ProcessQueue


class Status(Enum):
    """What became of messages. A listener that returns nothing, or raises, has not consumed them."""

    SUCCESS = "success"
    RECONSUME_LATER = "reconsume later"
    """Concurrent listeners: they come again, later each time, and in the end are dead letters."""
    SUSPEND = "suspend"
    """Ordered listeners: they come again after a moment, and nothing of their queue before
    (SUSPEND_CURRENT_QUEUE_A_MOMENT)."""
    ROLLBACK = "rollback"
    """The same."""


class Context(Struct):
    """Of one call of a listener, which may change what is not `queue`."""

    queue: Queue
    delay_level: int = 0
    """Of messages that are to come again: a delay level; 0: the broker's, growing; −1: no more, dead letters at once
    (delayLevelWhenNextConsume)."""
    acknowledged: int = -1
    """Concurrent listeners, with SUCCESS: so many of the messages, from the first one on, are consumed, and the others
    come again; −1: all are (ackIndex + 1)."""
    suspend_ms: int = -1
    """Ordered listeners: how long the moment is; −1: as the consumer's settings say. 10 ms to 30 s."""


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
