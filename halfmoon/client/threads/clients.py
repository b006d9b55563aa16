"""Producers and consumers for programs with threads. Every method may be called from any thread."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from threading import BoundedSemaphore
from types import TracebackType
from typing import Any, Protocol, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from halfmoon.client.engine.consumer_settings import ConsumerSettings
from halfmoon.client.engine.consuming import ConsumerCounters
from halfmoon.client.engine.kernel import Pending
from halfmoon.client.engine.listening import Listener, Status, Work
from halfmoon.client.engine.producing import Counters, ProducerSettings
from halfmoon.client.engine.subscriptions import by_sql, by_tags
from halfmoon.client.engine.transactions import Check, Transactions, TransactionState
from halfmoon.client.errors import ClientError, ConfigError, MessageError, NotRunningError
from halfmoon.client.making import Making, check_group, chosen_delay, settings_of, wall_ms
from halfmoon.client.messages import CANCEL, DELIVER_MS, Message, ReceivedMessage, SendResult
from halfmoon.client.selectors import Selector
from halfmoon.client.threads.pool import ListenerPool
from halfmoon.client.threads.shell import Shell
from halfmoon.plugin import AnyAllocator, Queue

DEFAULT_PRODUCER_GROUP = "DEFAULT_PRODUCER"
MOST_IN_FLIGHT = 10_000
"""Asynchronous sends of one producer that are not answered yet; more wait."""
CHECK_THREADS = 4

SendCallback = Callable[[SendResult | None, BaseException | None], object]
"""(result, error): one of them is None."""

log = logging.getLogger("halfmoon.client")

C = TypeVar("C", bound="_Client")
T = TypeVar("T")


class _Client:
    """What all of them have: a life."""

    def __init__(self, name: str, namesrv: str | Sequence[str] | None, instance_name: str | None) -> None:
        self._shell = Shell(name)
        self._making = Making(self._shell, namesrv, instance_name)
        self._shell.kernel = self._making.kernel
        self._shell.network = self._making.instance.network
        self._is_started = False
        self._is_closed = False

    @property
    def client_id(self) -> str:
        """What brokers know us by."""
        return self._making.instance.client_id

    def __enter__(self: C) -> C:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def start(self) -> None:
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError

    def _start_shell(self) -> None:
        if self._is_closed:
            raise NotRunningError("a client that was closed is not started again")
        if self._is_started:
            raise ConfigError("the client is started already")
        self._is_started = True
        self._shell.start()

    def _stop_shell(self) -> None:
        if self._shell.is_running:
            self._shell.call(self._making.instance.close)
        self._shell.stop()
        self._is_closed = True

    def _check_running(self) -> None:
        if not self._is_started or self._is_closed:
            raise NotRunningError("the client is not started" if not self._is_started else "the client is closed")

    def _run(self, coroutine: Any, name: str) -> Any:
        """Have a flow of the engine run to its end."""
        return self._shell.run(self._making.kernel.spawn, coroutine, name)


class Producer(_Client):
    """Sends messages.

        with Producer("billing", namesrv="127.0.0.1:9876") as producer:
            result = producer.send(Message("orders", b"…", tags="paid", keys="order-17"))

    `options`: those of ProducerSettings. A `namesrv` of None is the environment's NAMESRV_ADDR, else 127.0.0.1:9876.
    Raises ConfigError.
    """

    def __init__(
        self, group: str = DEFAULT_PRODUCER_GROUP, *, namesrv: str | Sequence[str] | None = None,
        instance_name: str | None = None, **options: Any,
    ) -> None:  # fmt: skip
        settings = settings_of(ProducerSettings, options)
        super().__init__(check_group(group), namesrv, instance_name)
        self._producing = self._making.producing(group, settings)
        self._in_flight = BoundedSemaphore(MOST_IN_FLIGHT)

    def start(self) -> None:
        """Nothing is asked of a broker yet; that begins with the first message. Raises ConfigError, NotRunningError."""
        self._start_shell()
        self._shell.call(self._begin)

    def _begin(self) -> None:
        instance = self._making.instance
        instance.producer_groups.append(self._producing.group)
        instance.start()

    def close(self) -> None:
        """What was sent asynchronously is waited for, as long as its own time-out allows. More than once does no
        harm."""
        if not self._is_started or self._is_closed:
            return
        self._is_closed = True
        for _ in range(MOST_IN_FLIGHT):
            self._in_flight.acquire()
        self._run(self._making.instance.unregister(producer=self._producing.group), "unregister")
        self._stop_shell()

    @property
    def counters(self) -> Counters:
        return self._producing.counters

    @property
    def in_flight(self) -> int:
        """Sends that are neither acknowledged nor given up."""
        return self._producing.in_flight

    def send(
        self, message: Message, *, queue: Queue | None = None, select: Selector | None = None, key: Any = None,
        timeout_ms: float | None = None,
    ) -> SendResult:  # fmt: skip
        """Send one and wait until it is stored. It goes to the queues of its topic in turn, and if that fails to others
        (`retries`), unless `queue` or `select`, which is asked with `key`, says where to.

        Raises MessageError, RouteError, ConnectionFailedError, RequestTimeoutError, BrokerRefusedError. After those
        that are not MessageError or RouteError it may be stored all the same, or more than once.
        """
        self._check_running()
        return self._shell.run(self._producing.send, message, queue, select, key, timeout_ms)

    def send_async(
        self, message: Message, *, queue: Queue | None = None, select: Selector | None = None, key: Any = None,
        timeout_ms: float | None = None, callback: SendCallback | None = None,
    ) -> Future[SendResult]:  # fmt: skip
        """As `send`, without waiting: `result()` of what it returns does that. `callback(result, error)` is called by
        the client's own thread, so it should be quick. Blocks while 10,000 are on their way. Raises MessageError."""
        self._check_running()
        future: Future[SendResult] = Future()
        self._in_flight.acquire()
        try:
            pending = self._shell.call(self._producing.send, message, queue, select, key, timeout_ms)
        except BaseException:
            self._in_flight.release()
            raise

        def done(pending: Pending[SendResult]) -> None:
            self._in_flight.release()
            error = pending.error
            result = None if error is not None else pending.result()
            if error is not None:
                future.set_exception(error)
            elif result is not None:
                future.set_result(result)
            if callback is not None:
                self._shell.call_outside(lambda: callback(result, error))

        with self._shell.lock:
            pending.when_done(done)
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
        seconds). Raises as `send`."""
        delay = chosen_delay(level, seconds, at)
        return self.send(replace(message, **delay), timeout_ms=timeout_ms)

    def cancel(self, sent: SendResult, timeout_ms: float | None = None) -> SendResult:
        """Take back a message that `send_delayed` has sent, if it was not delivered yet; whether it was is not said.
        Raises as `send`, MessageError for one that was not delayed."""
        self._check_running()
        message, more = cancelling(sent)
        return self._shell.run(self._producing.send, message, sent.queue, None, None, timeout_ms, more)

    def queues(self, topic: str) -> list[Queue]:
        """Those that can be written to. Raises RouteError."""
        self._check_running()
        return list(self._run(self._producing.route(topic), "route").writable)


def cancelling(sent: SendResult) -> tuple[Message, dict[str, str]]:
    """The message that cancels one, and its properties. Raises MessageError."""
    if not sent.deliver_at_ms:
        raise MessageError(f"message {sent.message_id} was not delayed")
    more = {CANCEL: sent.message_id, DELIVER_MS: str(max(sent.deliver_at_ms, wall_ms() + 1_000))}
    return Message(sent.queue.topic, b"cancelled"), more


# -- transactions ----------------------------------------------------------------------------------------------------


class TransactionListener(Protocol):
    """What a transactional producer's program has to say. An exception counts as UNKNOWN."""

    def execute_local_transaction(self, message: Message, argument: Any) -> TransactionState:
        """The half message is stored: do what it is about."""

    def check_local_transaction(self, message: ReceivedMessage) -> TransactionState:
        """A broker asks what has become of it, perhaps long after, and perhaps another producer of the group."""


class TransactionResult(Struct, frozen=True):
    """What has come of a message that was sent in a transaction."""

    sent: SendResult
    state: TransactionState
    """As the broker was told; UNKNOWN: it is going to ask."""


class TransactionProducer(Producer):
    """Sends messages that are delivered if, and only if, a local transaction succeeds (B31, B32).

    `options`: those of ProducerSettings; `check_threads`: how many checks run at a time.
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
        tell the broker what it says. Raises as `send`, and then nothing was executed; the listener's exceptions are
        logged, and are UNKNOWN."""
        self._check_running()
        sent = self._shell.run(self._transactions.send_half, message, queue, select, key, timeout_ms)
        state = said(self._listener.execute_local_transaction, message, argument)
        try:
            self._shell.call(self._transactions.end, sent, state)
        except (ClientError, ValueError) as error:
            log.warning("event=end_not_said message=%s error=%s", sent.message_id, error)
        return TransactionResult(sent, state)

    def _asked(self, check: Check) -> None:
        def answer() -> None:
            state = said(self._listener.check_local_transaction, check.message)
            self._shell.call(self._transactions.answer, check, state)

        self._pool.submit([answer])

    def close(self) -> None:
        if self._is_started and not self._is_closed:
            self._pool.stop(self._producing.settings.timeout_ms / 1e3)
        super().close()


def said(ask: Callable[..., TransactionState], *arguments: Any) -> TransactionState:
    """What a listener says; UNKNOWN where it says nothing."""
    try:
        state = ask(*arguments)
    except Exception:
        log.exception("event=transaction_listener_failed")
        return TransactionState.UNKNOWN
    if not isinstance(state, TransactionState):
        log.error("event=transaction_listener_failed error=it has returned %r, expected a TransactionState", state)
        return TransactionState.UNKNOWN
    return state


# -- consumers -------------------------------------------------------------------------------------------------------


class PushConsumer(_Client):
    """Has a listener called with messages as they come.

        def listener(messages, context):
            for message in messages:
                print(message.body)
            return Status.SUCCESS

        with PushConsumer("billing", listener, namesrv="127.0.0.1:9876", topics={"orders": "paid || refunded"}):
            ...

    `ordered`: a queue's messages come one after the other, each when the one before is consumed. `allocator`: an
    allocation strategy instead of the one that option `strategy` names. `offset_dir`: where a broadcasting consumer
    keeps its progress. `options`: those of ConsumerSettings. Raises ConfigError.
    """

    def __init__(
        self, group: str, listener: Listener, *, topics: dict[str, str] | Sequence[str] | str = (),
        ordered: bool = False, namesrv: str | Sequence[str] | None = None, instance_name: str | None = None,
        allocator: AnyAllocator | None = None, offset_dir: str | os.PathLike[str] | None = None, **options: Any,
    ) -> None:  # fmt: skip
        settings = settings_of(ConsumerSettings, options)
        super().__init__(check_group(group), namesrv, instance_name)
        self._consuming = self._making.consuming(
            group, settings, listener, ordered=ordered, allocator=allocator, offset_dir=offset_dir
        )
        self._pool = ListenerPool(group, settings.threads, self._finished)
        self._shell.on_submit = self._pool.submit
        for topic, expression in subscribed(topics):
            self.subscribe(topic, expression)

    def subscribe(self, topic: str, expression: str = "*", *, sql: str | None = None) -> None:
        """`*`, or tags with `||` between; or `sql`, an SQL92 expression on properties. The last one for a topic counts.
        While the consumer runs, a wrong SQL92 expression is only logged. Raises ConfigError."""
        version = wall_ms()
        made = by_tags(topic, expression, version) if sql is None else by_sql(topic, sql, version)
        with self._shell.lock:
            self._consuming.subscribe(made)
        if self._is_started and not self._is_closed:
            self._shell.call(self._consuming.changed)

    def unsubscribe(self, topic: str) -> None:
        with self._shell.lock:
            self._consuming.unsubscribe(topic)
        if self._is_started and not self._is_closed:
            self._shell.call(self._consuming.changed)

    def start(self) -> None:
        """Messages come from now on. Raises BrokerRefusedError for an expression that is wrong, ConfigError."""
        self._start_shell()
        try:
            self._run(self._consuming.start(), "start")
        except BaseException:
            self._stop_shell()
            raise

    def close(self) -> None:
        """Listeners that run are waited for (`shutdown_ms`), progress is stored, queues are free for others. More than
        once does no harm."""
        if not self._is_started or self._is_closed:
            return
        self._is_closed = True
        self._run(self._consuming.close(), "close")
        self._pool.stop(1.0)
        self._stop_shell()

    def pause(self) -> None:
        """Nothing is pulled any more; what was pulled is still consumed."""
        self._consuming.is_paused = True

    def resume(self) -> None:
        self._consuming.is_paused = False

    def _finished(self, work: Work, status: Status | None, error: BaseException | None) -> None:
        try:
            self._shell.call(work.finished, work, status, error)
        except NotRunningError:
            pass  # a listener that was not waited for any longer

    @property
    def queues(self) -> list[Queue]:
        """Those that are ours now."""
        with self._shell.lock:
            return [queue for queue, each in self._consuming.queues.items() if not each.is_dropped]

    @property
    def counters(self) -> ConsumerCounters:
        return self._consuming.counters

    @property
    def cached(self) -> int:
        """Messages that were pulled and are not dealt with."""
        with self._shell.lock:
            return sum(len(each) for each in self._consuming.queues.values())

    @property
    def in_flight(self) -> int:
        """Messages that listeners have, or are to get next."""
        with self._shell.lock:
            return self._consuming.service.in_flight

    @property
    def lag(self) -> int:
        """Messages in our queues that are not dealt with, as far as brokers have said."""
        with self._shell.lock:
            return sum(each.lag for each in self._consuming.queues.values())


def subscribed(topics: dict[str, str] | Sequence[str] | str) -> list[tuple[str, str]]:
    """Topics and expressions, in any of the three ways to say them."""
    if isinstance(topics, str):
        return [(topics, "*")]
    if isinstance(topics, dict):
        return list(topics.items())
    return [(topic, "*") for topic in topics]
