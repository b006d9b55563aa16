"""One request to send, through all its attempts (B26)."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from halfmoon.client.engine.kernel import Pending
from halfmoon.client.engine.routes import Route
from halfmoon.client.errors import (
    BrokerRefusedError,
    ClientError,
    ConnectionFailedError,
    MessageError,
    NotRunningError,
    RequestTimeoutError,
    RouteError,
)
from halfmoon.client.messages import Message, SendResult, SendStatus
from halfmoon.client.selectors import Selector
from halfmoon.plugin import Queue
from halfmoon.remoting.codes import DUE, Code, RequestCode
from halfmoon.remoting.command import Command

if TYPE_CHECKING:
    from halfmoon.client.engine.instance import Instance
    from halfmoon.client.engine.producer_settings import Counters, ProducerSettings

STORED = {status.value: status for status in SendStatus}
RETRIED = frozenset(
    (
        Code.TOPIC_NOT_EXIST, Code.SERVICE_NOT_AVAILABLE, Code.SYSTEM_ERROR, Code.SYSTEM_BUSY, Code.NO_PERMISSION,
        Code.NO_BUYER_ID, Code.NOT_IN_CURRENT_UNIT,
    )
)  # fmt: skip
"""DefaultMQProducer.retryResponseCodes, and a busy broker."""
DELAY_LEVELS_MS = tuple(
    1_000 * seconds
    for seconds in (1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1_200, 1_800, 3_600, 7_200)
)
"""Of a broker that was not told other ones."""

ROUNDED_MS = 1
"""Halfmoon's clock leaves out what is less than a ms, so it adds one to a delay."""

log = logging.getLogger("halfmoon.client.producer")


def chosen(select: Selector, route: Route, message: Message, key: Any) -> Queue:
    """The queue that a selector wants. Raises MessageError where it does not name one."""
    try:
        queue = select(route.writable, message, key)
    except Exception as error:
        raise MessageError(f"the selector failed: {error!r}") from error
    if not isinstance(queue, Queue):
        raise MessageError(f"the selector has returned {queue!r}, expected a Queue")
    return queue


class Sender(Protocol):
    """The producer that a request is of (producing.Producing): its settings and counts, and which queue is next."""

    in_flight: int
    """Sends that are neither acknowledged nor given up."""

    @property
    def open(self) -> dict[Sending, None]:
        """These."""

    @property
    def instance(self) -> Instance: ...
    @property
    def settings(self) -> ProducerSettings: ...
    @property
    def counters(self) -> Counters: ...

    async def route(self, topic: str) -> Route:
        """Raises RouteError."""

    def choose(self, topic: str, route: Route, last_broker: str) -> Queue:
        """The next queue in turn, not of the broker that has failed just now if there are others."""

    def fields(self, topic: str, queue: Queue, flags: int, flag: int, text: str) -> dict[str, str]:
        """Of the request."""

    def answered(self, broker: str, latency_ms: float) -> None:
        """A broker has, whatever it said."""

    def failed(self, broker: str) -> None:
        """An attempt at a broker has."""


class Sending:
    """One request to send, through all its attempts."""

    __slots__ = (
        "_attempts", "_began_ms", "_broker", "_deadline_ms", "_sender", "body", "code", "count", "flag", "flags",
        "key", "message", "more", "queue", "result", "select", "text", "topic", "unique",
    )  # fmt: skip

    def __init__(
        self, sender: Sender, topic: str, unique: str, text: str, body: bytes, flags: int, flag: int,
        timeout_ms: float | None,
    ) -> None:  # fmt: skip
        self._sender = sender
        self.topic = topic
        self.unique = unique
        self.text = text
        self.body = body
        self.flags = flags
        self.flag = flag
        self.code = RequestCode.SEND_MESSAGE_V2
        self.count = 1
        self.message: Message | None = None
        self.queue: Queue | None = None
        self.select: Selector | None = None
        self.key: Any = None
        self.more: Mapping[str, str] = {}
        """Fields of the request that are not as usual."""
        self.result: Pending[SendResult] = Pending()
        self._attempts = 0
        self._broker = ""
        """The last one tried."""
        self._began_ms = 0.0
        limit_ms = sender.settings.timeout_ms if timeout_ms is None else timeout_ms
        self._deadline_ms = sender.instance.kernel.now_ms + limit_ms

    def begin(self) -> None:
        sender = self._sender
        sender.in_flight += 1
        sender.open[self] = None
        route = sender.instance.routes.known(self.topic)
        if route is not None and route.writable:
            self._attempt(route)
        else:
            sender.instance.kernel.spawn(self._learn(), "route for a send")

    async def _learn(self) -> None:
        kernel = self._sender.instance.kernel
        asked = kernel.spawn(self._sender.route(self.topic), "route")
        if not await kernel.within_ms(asked, self._deadline_ms - kernel.now_ms):
            self._give_up(RequestTimeoutError(f"topic '{self.topic}': no route in time"))
        elif asked.error is not None:
            self._give_up(
                asked.error if isinstance(asked.error, Exception) else NotRunningError("the client is closed")
            )
        else:
            self._attempt(asked.result())

    def _attempt(self, route: Route) -> None:
        if self.result.is_done:
            return
        try:
            self._try(route)
        except Exception as error:  # nobody else would tell who waits
            log.exception("event=send_failed topic=%s", self.topic)
            self._give_up(error)

    def _try(self, route: Route) -> None:
        sender = self._sender
        instance = sender.instance
        now_ms = instance.kernel.now_ms
        queue = self.queue
        if queue is None:
            if self.select is not None:
                assert self.message is not None
                try:
                    queue = self.queue = chosen(self.select, route, self.message, self.key)
                except MessageError as error:
                    self._give_up(error)
                    return
            else:
                queue = sender.choose(self.topic, route, self._broker)
        address = instance.routes.master(queue.broker)
        left_ms = self._deadline_ms - now_ms
        if address is None:
            self._attempts += 1
            self._broker = queue.broker
            self._failed(RouteError(f"broker {queue.broker} has no master now"), queue.broker)
            return
        wait_ms = instance.network.wait_ms(address)
        if 0 < wait_ms < left_ms and self._attempts <= sender.settings.retries:
            # Nobody else is there: the pause before the next connection is part of the send's time.
            instance.kernel.call_after(wait_ms, lambda: self._attempt(instance.routes.known(self.topic) or route))
            return
        self._attempts += 1
        self._broker = queue.broker
        self._began_ms = now_ms
        fields = sender.fields(self.topic, queue, self.flags, self.flag, self.text)
        if self.code == RequestCode.SEND_BATCH_MESSAGE:
            fields["m"] = "true"
        if self.more:
            fields.update(self.more)
        sent = instance.network.request(address, self.code, fields, self.body, max(1.0, left_ms))
        sent.when_done(lambda answer: self._answered(queue, answer))

    def _answered(self, queue: Queue, pending: Pending[Command]) -> None:
        if self.result.is_done:  # the client was closed meanwhile
            return
        sender = self._sender
        error = pending.error
        if error is not None:
            if isinstance(error, (ConnectionFailedError, RequestTimeoutError)):
                self._failed(error, queue.broker)
            else:
                self._give_up(error)
            return
        answer = pending.result()
        sender.answered(queue.broker, sender.instance.kernel.now_ms - self._began_ms)
        status = STORED.get(answer.code)
        if status is None:
            refused = BrokerRefusedError(answer.code, answer.remark, queue.broker)
            if answer.code in RETRIED:
                self._failed(refused, queue.broker)
            else:
                self._give_up(refused)
            return
        fields = answer.fields
        try:
            result = SendResult(
                status, self.unique, fields.get("msgId", ""),
                Queue(self.topic, queue.broker, int(fields.get("queueId", queue.queue_id))),
                int(fields.get("queueOffset", -1)), fields.get("transactionId"), fields.get("recallHandle"),
                self._deliver_at_ms(fields),
            )  # fmt: skip
        except ValueError:
            self._give_up(BrokerRefusedError(answer.code, f"an invalid answer: {fields}", queue.broker))
            return
        sender.in_flight -= 1
        del sender.open[self]
        sender.counters.sent += self.count
        self.result.set(result)

    def _deliver_at_ms(self, answer: Mapping[str, str]) -> int:
        """When the message is delivered: as asked for, or as the broker says. Raises ValueError."""
        message = self.message
        if message is None or not (message.delay_level or message.delay_ms or message.deliver_at_ms):
            return 0
        if message.deliver_at_ms:
            return message.deliver_at_ms
        if DUE in answer:
            return int(answer[DUE]) - ROUNDED_MS
        level_ms = DELAY_LEVELS_MS[min(message.delay_level, len(DELAY_LEVELS_MS)) - 1] if message.delay_level else 0
        return self._sender.instance.kernel.wall_ms() + (message.delay_ms or level_ms)

    def _failed(self, error: ClientError, broker: str) -> None:
        """An attempt has. Another one is made if there is a place, a try and time for it."""
        sender = self._sender
        sender.failed(broker)
        kernel = sender.instance.kernel
        is_pinned = self.queue is not None
        may_go_on = not is_pinned and self._attempts <= sender.settings.retries
        if not may_go_on or kernel.now_ms >= self._deadline_ms:
            self._give_up(error)
            return
        log.info("event=send_retried topic=%s broker=%s error=%s", self.topic, broker, error)
        sender.counters.retried += 1
        route = sender.instance.routes.known(self.topic)
        if route is None or not route.writable:
            kernel.spawn(self._learn(), "route for a send")
        else:
            kernel.call_soon(lambda: self._attempt(route))

    def _give_up(self, error: BaseException) -> None:
        if self.result.is_done:
            return
        self._sender.in_flight -= 1
        del self._sender.open[self]
        self._sender.counters.failed += self.count
        self.result.fail(error)
