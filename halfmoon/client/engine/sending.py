"""One request to send, through all its attempts (B26)."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

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
from halfmoon.remoting.codes import Code, RequestCode
from halfmoon.remoting.command import Command

if TYPE_CHECKING:
    from halfmoon.client.engine.producing import Producing

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


class Sending:
    """One request to send, through all its attempts."""

    __slots__ = (
        "_attempts", "_began_ms", "_broker", "_deadline_ms", "_producing", "body", "code", "count", "flag", "flags",
        "key", "message", "more", "queue", "result", "select", "text", "topic", "unique",
    )  # fmt: skip

    def __init__(
        self, producing: Producing, topic: str, unique: str, text: str, body: bytes, flags: int, flag: int,
        timeout_ms: float | None,
    ) -> None:  # fmt: skip
        self._producing = producing
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
        limit_ms = producing.settings.timeout_ms if timeout_ms is None else timeout_ms
        self._deadline_ms = producing.instance.kernel.now_ms + limit_ms

    def begin(self) -> None:
        producing = self._producing
        producing.in_flight += 1
        producing.open[self] = None
        route = producing.instance.routes.known(self.topic)
        if route is not None and route.writable:
            self._attempt(route)
        else:
            producing.instance.kernel.spawn(self._learn(), "route for a send")

    async def _learn(self) -> None:
        kernel = self._producing.instance.kernel
        asked = kernel.spawn(self._producing.route(self.topic), "route")
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
        producing = self._producing
        instance = producing.instance
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
                queue = producing.choose(self.topic, route, self._broker)
        address = instance.routes.master(queue.broker)
        left_ms = self._deadline_ms - now_ms
        if address is None:
            self._attempts += 1
            self._broker = queue.broker
            self._failed(RouteError(f"broker {queue.broker} has no master now"), queue.broker)
            return
        wait_ms = instance.network.wait_ms(address)
        if 0 < wait_ms < left_ms and self._attempts <= producing.settings.retries:
            # Nobody else is there: the pause before the next connection is part of the send's time.
            instance.kernel.call_after(wait_ms, lambda: self._attempt(instance.routes.known(self.topic) or route))
            return
        self._attempts += 1
        self._broker = queue.broker
        self._began_ms = now_ms
        fields = producing.fields(self.topic, queue, self.flags, self.flag, self.text)
        if self.code == RequestCode.SEND_BATCH_MESSAGE:
            fields["m"] = "true"
        if self.more:
            fields.update(self.more)
        sent = instance.network.request(address, self.code, fields, self.body, max(1.0, left_ms))
        sent.when_done(lambda answer: self._answered(queue, answer))

    def _answered(self, queue: Queue, pending: Pending[Command]) -> None:
        if self.result.is_done:  # the client was closed meanwhile
            return
        producing = self._producing
        error = pending.error
        if error is not None:
            if isinstance(error, (ConnectionFailedError, RequestTimeoutError)):
                self._failed(error, queue.broker)
            else:
                self._give_up(error)
            return
        answer = pending.result()
        producing.answered(queue.broker, producing.instance.kernel.now_ms - self._began_ms)
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
                self._deliver_at_ms(),
            )  # fmt: skip
        except ValueError:
            self._give_up(BrokerRefusedError(answer.code, f"an answer that makes no sense: {fields}", queue.broker))
            return
        producing.in_flight -= 1
        del producing.open[self]
        producing.counters.sent += self.count
        self.result.set(result)

    def _deliver_at_ms(self) -> int:
        message = self.message
        if message is None or not (message.delay_level or message.delay_ms or message.deliver_at_ms):
            return 0
        if message.deliver_at_ms:
            return message.deliver_at_ms
        level_ms = DELAY_LEVELS_MS[min(message.delay_level, len(DELAY_LEVELS_MS)) - 1] if message.delay_level else 0
        return self._producing.instance.kernel.wall_ms() + (message.delay_ms or level_ms)

    def _failed(self, error: ClientError, broker: str) -> None:
        """An attempt has. Another one is made if there is a place, a try and time for it."""
        producing = self._producing
        producing.failed(broker)
        kernel = producing.instance.kernel
        is_pinned = self.queue is not None
        may_go_on = not is_pinned and self._attempts <= producing.settings.retries
        if not may_go_on or kernel.now_ms >= self._deadline_ms:
            self._give_up(error)
            return
        log.info("event=send_retried topic=%s broker=%s error=%s", self.topic, broker, error)
        producing.counters.retried += 1
        route = producing.instance.routes.known(self.topic)
        if route is None or not route.writable:
            kernel.spawn(self._learn(), "route for a send")
        else:
            kernel.call_soon(lambda: self._attempt(route))

    def _give_up(self, error: BaseException) -> None:
        if self.result.is_done:
            return
        self._producing.in_flight -= 1
        del self._producing.open[self]
        self._producing.counters.failed += self.count
        self.result.fail(error)
