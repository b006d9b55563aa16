"""Consumers for programs with threads. Every method may be called from any thread."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Generic, TypeVar

from halfmoon.client.base import POLL_S, PULL_BATCH, LitePullConsumerParts, PullConsumerParts, PushConsumerParts
from halfmoon.client.engine.kernel import Pending
from halfmoon.client.engine.listening import Status, Work
from halfmoon.client.engine.lite_pulling import LitePulling
from halfmoon.client.engine.pull_consuming import Pulling
from halfmoon.client.engine.pulling import PullResult
from halfmoon.client.messages import ReceivedMessage
from halfmoon.client.threads.life import Life
from halfmoon.client.threads.pool import ListenerPool
from halfmoon.client.threads.shell import Shell
from halfmoon.plugin import Queue

T = TypeVar("T")
_AnyPulling = TypeVar("_AnyPulling", Pulling, LitePulling)


class PushConsumer(PushConsumerParts, Life):
    """Calls a listener with each message that arrives.

        def listener(messages, context):
            for message in messages:
                print(message.body)
            return Status.SUCCESS

        with PushConsumer("billing", listener, {"orders": "paid || refunded"}, namesrv="127.0.0.1:9876"):
            ...

    `ordered`: the listener gets a queue's messages one after the other. `machine_room`: the consumer's room, for the
    strategy `machine_room_nearby` (the client id begins with it). `allocator`: an allocation strategy instead of the
    one that the option `strategy` names. `offset_dir`: directory of a broadcasting consumer's offset file. `options`:
    those of ConsumerSettings. Raises ConfigError.
    """

    def _new_shell(self) -> Shell:
        shell = super()._new_shell()
        self._pool = ListenerPool(self.group, self.settings.threads, self._finished)
        shell.on_submit = self._pool.submit
        return shell

    def start(self) -> None:
        """Begin to consume. Raises BrokerRefusedError for an invalid expression, and where no broker accepts the group;
        NotRunningError."""
        self._begin(self._consuming.start)

    def close(self) -> None:
        """Wait for running listeners (`shutdown_ms`), commit offsets, release queues. Idempotent."""
        self._end(self._consuming.close)

    def _stop(self) -> None:
        self._pool.stop(1.0)
        super()._stop()

    def _finished(self, work: Work, status: Status | None, error: BaseException | None) -> None:
        self._shell.post(work.finished, work, status, error)


class _Asking(Life, Generic[_AnyPulling]):
    """What both kinds of pull consumers do."""

    _pulling: _AnyPulling

    def start(self) -> None:
        """It can be asked from now on; one that pulls in the background begins to. Raises NotRunningError;
        BrokerRefusedError where no broker takes the group."""
        self._begin(self._pulling.start)

    def close(self) -> None:
        """Commit offsets where that is automatic. Idempotent."""
        self._end(self._pulling.close)

    def _ask(self, flow: Callable[..., Coroutine[Pending[Any], None, T]], *arguments: Any) -> T:
        self._check_running()
        return self._run(flow(*arguments))

    def queues(self, topic: str) -> list[Queue]:
        """Those that can be read. Raises RouteError."""
        return self._ask(self._pulling.queues, topic)

    def offset_for_time(self, queue: Queue, time: float) -> int:
        """Of the first message that was stored then (Unix seconds) or later. Raises ClientError."""
        return self._ask(self._pulling.offset_for_time, queue, round(1e3 * time))


class PullConsumer(PullConsumerParts, _Asking[Pulling]):
    """Pulls when, what and from where its program says; the program keeps its offsets, or commits them."""

    def pull(
        self, queue: Queue, offset: int, expression: str = "*", *, sql: str | None = None, most: int = PULL_BATCH,
        wait_s: float = 0.0, timeout_ms: float = 10_000, language: str | None = None,
    ) -> PullResult:  # fmt: skip
        """Messages from an offset on. Where there is none, the broker may wait for one for `wait_s`; `timeout_ms` is
        for what else it takes. Raises ClientError."""
        wanted = self._subscription(queue.topic, expression, sql, language)
        hold_ms = round(1e3 * wait_s)
        return self._ask(self._pulling.pull, queue, offset, wanted, most, hold_ms, hold_ms + timeout_ms)

    def committed(self, queue: Queue) -> int:
        """The group's committed offset; −1: none. Raises ClientError."""
        return self._ask(self._pulling.committed, queue)

    def progress(self, queue: Queue) -> int:
        """The name of `committed` until 0.1; goes with the next version."""
        warnings.warn("progress is called committed now", DeprecationWarning, stacklevel=2)
        return self.committed(queue)

    def commit(self, queue: Queue, offset: int) -> None:
        """Commit the offset of the next message to consume. Raises ClientError."""
        self._ask(self._pulling.commit, queue, offset)

    def min_offset(self, queue: Queue) -> int:
        """Raises ClientError."""
        return self._ask(self._pulling.min_offset, queue)

    def max_offset(self, queue: Queue) -> int:
        """The one behind the last message. Raises ClientError."""
        return self._ask(self._pulling.max_offset, queue)


class LitePullConsumer(LitePullConsumerParts, _Asking[LitePulling]):
    """Pulls in the background; its program polls.

        with LitePullConsumer("billing", "orders") as consumer:
            for message in consumer.poll():
                ...

    `options`: those of LiteSettings. Raises ConfigError.
    """

    def poll(self, timeout_s: float = POLL_S, most: int = PULL_BATCH) -> list[ReceivedMessage]:
        """Messages of one queue, as many as are there; none after that time. They count as consumed. Raises
        BrokerRefusedError where no broker takes the group."""
        until_s = time.monotonic() + timeout_s
        while True:
            self._check_running()
            messages = self._shell.call(self._pulling.take, most)
            left_s = until_s - time.monotonic()
            if messages or left_s <= 0:
                return messages
            self._ask(self._pulling.wait_for_some, 1e3 * left_s)

    def commit(self, offsets: Mapping[Queue, int] | None = None) -> None:
        """Store what was polled, or these offsets."""
        self._ask(self._pulling.commit, offsets)

    def committed(self, queue: Queue) -> int:
        """What is stored for the group; −1: nothing. Raises ClientError."""
        return self._ask(self._pulling.committed, queue)

    def min_offset(self, queue: Queue) -> int:
        """Raises ClientError."""
        return self._ask(self._pulling.bounds, queue)[0]

    def max_offset(self, queue: Queue) -> int:
        """The one behind the last message. Raises ClientError."""
        return self._ask(self._pulling.bounds, queue)[1]

    def seek_to_begin(self, queue: Queue) -> None:
        """Go on at the first message that is still there. Raises ClientError."""
        self.seek(queue, self._ask(self._pulling.bounds, queue)[0])

    def seek_to_end(self, queue: Queue) -> None:
        """Go on behind the last message. Raises ClientError."""
        self.seek(queue, self._ask(self._pulling.bounds, queue)[1])
