"""Producers for programs with threads. Every method may be called from any thread."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from threading import BoundedSemaphore
from typing import Any, Protocol

from msgspec.structs import replace

from halfmoon.client.base import ProducerParts, TransactionResult, checked_state, log, refused_by
from halfmoon.client.engine.kernel import Pending
from halfmoon.client.engine.transactions import Check, Transactions, TransactionState
from halfmoon.client.errors import ClientError
from halfmoon.client.making import chosen_delay
from halfmoon.client.messages import Message, ReceivedMessage, SendResult
from halfmoon.client.selectors import Selector
from halfmoon.client.threads.life import Life
from halfmoon.client.threads.pool import ListenerPool
from halfmoon.plugin import Queue

MOST_IN_FLIGHT = 10_000
"""Asynchronous sends of one producer that are not answered yet; more wait."""
CHECK_THREADS = 4

SendCallback = Callable[[SendResult | None, BaseException | None], object]
"""(result, error): one of them is None."""


class Producer(ProducerParts, Life):
    """Sends messages.

        with Producer("billing", namesrv="127.0.0.1:9876") as producer:
            result = producer.send(Message("orders", b"…", tags="paid", keys="order-17"))

    `options`: those of ProducerSettings. Raises ConfigError.
    """

    def start(self) -> None:
        """Nothing is asked of a broker yet; that begins with the first message. Raises NotRunningError."""
        self._check_start()
        self._most_in_flight = MOST_IN_FLIGHT
        self._in_flight = BoundedSemaphore(MOST_IN_FLIGHT)
        self._shell.start()
        self._shell.call(self._producing.begin)

    def close(self) -> None:
        """What was sent asynchronously is waited for, as long as its own time-out allows. More than once does no
        harm."""
        if not self.is_running:
            return
        self._shell.check_may_wait()
        self._is_closed = True
        try:
            for _ in range(self._most_in_flight):
                self._in_flight.acquire()
            self._run(self._making.instance.unregister(producer=self.group))
        finally:
            self._shell.look(self._producing.close)
            self._stop()

    def send(
        self, message: Message, *, queue: Queue | None = None, select: Selector | None = None, key: Any = None,
        timeout_ms: float | None = None,
    ) -> SendResult:  # fmt: skip
        """Send one and wait until it is stored. It goes to the queues of its topic in turn, and if that fails to others
        (`retries`), unless `queue`, or `select`, which is asked with `key`, says where to.

        Raises MessageError, RouteError, ConnectionFailedError, RequestTimeoutError, BrokerRefusedError. After a
        time-out or a connection that failed it may be stored all the same, and after a retry twice.
        """
        self._check_running()
        return self._shell.run(self._producing.send, message, queue, select, key, timeout_ms)

    def send_async(
        self, message: Message, *, queue: Queue | None = None, select: Selector | None = None, key: Any = None,
        timeout_ms: float | None = None, callback: SendCallback | None = None,
    ) -> Future[SendResult]:  # fmt: skip
        """As `send`, without waiting: `result()` of what it returns does that. `callback(result, error)` is called by
        the client's own thread, so it should be quick, and must not call what waits. Blocks while 10,000 are on their
        way. Raises MessageError."""
        self._check_running()
        future: Future[SendResult] = Future()
        future.set_running_or_notify_cancel()  # a message that is on its way is not called back

        def done(pending: Pending[SendResult]) -> None:
            if is_counted:
                self._in_flight.release()
            self._shell.call_outside(lambda: tell(pending))

        def tell(pending: Pending[SendResult]) -> None:
            error = pending.error
            result = None if error is not None else pending.result()
            if error is not None:
                future.set_exception(error)
            elif result is not None:
                future.set_result(result)
            if callback is not None:
                callback(result, error)

        def send() -> None:
            self._producing.send(message, queue, select, key, timeout_ms).when_done(done)

        # Our own thread, in a callback, would wait for itself.
        is_counted = self._in_flight.acquire(blocking=not self._shell.is_ours)
        try:
            self._shell.call(send)
        except BaseException:
            if is_counted:
                self._in_flight.release()
            raise
        return future

    def send_oneway(
        self, message: Message, *, queue: Queue | None = None, select: Selector | None = None, key: Any = None
    ) -> None:
        """Send one that nobody acknowledges. Raises MessageError, RouteError."""
        self._check_running()
        self._shell.run(self._producing.send_oneway, message, queue, select, key)

    def send_batch(
        self, messages: Sequence[Message], *, queue: Queue | None = None, timeout_ms: float | None = None
    ) -> list[SendResult]:
        """Send many to one topic, in requests of 1 MiB, one after the other; a result for each request. If one fails,
        those before it are stored. Raises as `send`."""
        self._check_running()
        return self._shell.run(self._producing.send_batch, messages, queue, timeout_ms)

    def send_delayed(
        self, message: Message, *, level: int | None = None, seconds: float | None = None, at: float | None = None,
        timeout_ms: float | None = None,
    ) -> SendResult:  # fmt: skip
        """Send one that is delivered later: after a delay level (1 to 18), after so many seconds, or at a time (Unix
        seconds). Raises as `send`, ConfigError."""
        return self.send(replace(message, **chosen_delay(level, seconds, at)), timeout_ms=timeout_ms)

    def cancel(self, sent: SendResult, *, timeout_ms: float | None = None) -> None:
        """Take back a message that `send_delayed` has sent, if it was not delivered yet; whether it was is not said.
        RocketMQ's brokers take back those that wait for a time, not for a level. Raises as `send`; MessageError for one
        that was not delayed."""
        self._check_running()
        self._run(self._producing.cancel(sent, timeout_ms))

    def queues(self, topic: str) -> list[Queue]:
        """Those that can be written to. Raises RouteError."""
        self._check_running()
        return list(self._run(self._producing.route(topic)).writable)


class TransactionListener(Protocol):
    """What a transactional producer's program has to say. An exception counts as UNKNOWN."""

    def execute_local_transaction(self, message: Message, argument: Any) -> TransactionState:
        """The half message is stored: do what it is about."""

    def check_local_transaction(self, message: ReceivedMessage) -> TransactionState:
        """A broker asks what has become of it: perhaps long after, and perhaps another producer of the group."""


class TransactionProducer(Producer):
    """Sends messages that are delivered if, and only if, a local transaction succeeds (B31, B32).

    `check_threads`: how many checks run at a time. `options`: those of ProducerSettings.
    """

    def __init__(
        self, group: str, listener: TransactionListener, *, check_threads: int = CHECK_THREADS, **options: Any
    ) -> None:
        super().__init__(group, **options)
        self._listener = listener
        self._transactions = Transactions(self._producing, self._asked)
        self._pool = ListenerPool(group, check_threads, lambda work, status, error: None)

    def send_in_transaction(
        self, message: Message, argument: Any = None, *, queue: Queue | None = None, select: Selector | None = None,
        key: Any = None, timeout_ms: float | None = None,
    ) -> TransactionResult:  # fmt: skip
        """Send a half message, call the listener's `execute_local_transaction(message, argument)` in this thread, and
        tell the broker what it says. Raises as `send`, and then nothing was executed; nor is it where the half message
        is stored with a reservation (SendStatus): that is rolled back. The listener's exceptions are logged, and are
        UNKNOWN."""
        self._check_running()
        sent = self._shell.run(self._transactions.send_half, message, queue, select, key, timeout_ms)
        state = refused_by(sent.status) or _said(self._listener.execute_local_transaction, message, argument)
        try:
            self._shell.call(self._transactions.end, sent, state)
        except (ClientError, ValueError) as error:
            log.warning("event=end_not_said message=%s error=%s", sent.message_id, error)
        return TransactionResult(sent, state)

    def _asked(self, check: Check) -> None:
        def answer() -> None:
            state = _said(self._listener.check_local_transaction, check.message)
            self._shell.call(self._transactions.answer, check, state)

        self._pool.submit([answer])

    def close(self) -> None:
        """As a producer; checks that run are waited for, too."""
        if self.is_running:
            self._shell.check_may_wait()
            self._pool.stop(self._producing.settings.timeout_ms / 1e3)
        super().close()


def _said(ask: Callable[..., TransactionState], *arguments: Any) -> TransactionState:
    try:
        return checked_state(ask(*arguments))
    except Exception:
        log.exception("event=transaction_listener_failed")
        return TransactionState.UNKNOWN
