"""Sending: which queue, how often, and what the answer says (B26, B28).

A send tries a queue of a broker; where that fails, another queue, of another broker where there is one, all within the
time that the caller gave. Which failures count: no connection, no answer, and codes that say "not me" or "not now". A
message that was pinned to a queue goes there or nowhere.

The usual path, a known route and an answer, runs without a task: it is what the figures are made of.

(org.apache.rocketmq.client.impl.producer.DefaultMQProducerImpl, …impl.MQClientAPIImpl.)
"""

from __future__ import annotations

import logging
import random
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from halfmoon.client.engine.faults import Faults
from halfmoon.client.engine.instance import Instance
from halfmoon.client.engine.kernel import Pending
from halfmoon.client.engine.producer_settings import Counters, ProducerSettings
from halfmoon.client.engine.routes import DEFAULT_TOPIC, Route
from halfmoon.client.engine.sending import Sending, chosen
from halfmoon.client.engine.unique_keys import UniqueKeys
from halfmoon.client.errors import (
    BrokerRefusedError,
    ClientError,
    MessageError,
    NotRunningError,
    RouteError,
    TopicUnknownError,
)
from halfmoon.client.messages import (
    CANCEL,
    DELAY,
    DELIVER_MS,
    ORIGIN_ID,
    RETRY_TOPIC,
    TRANSACTION,
    WAIT,
    Message,
    ReceivedMessage,
    SendResult,
    check,
    encode_properties,
)
from halfmoon.client.selectors import Selector
from halfmoon.plugin import Queue
from halfmoon.remoting.codes import Code, RequestCode
from halfmoon.remoting.message import COMPRESSED, BatchedMessage, encode_batch

BATCH_BYTES = 1 << 20
"""Batches are split at this."""
NOTHING_SAID: Mapping[str, str] = {}
ZLIB = 0x300
"""CompressionType in the system flags."""
log = logging.getLogger("halfmoon.client.producer")


class Producing:
    """The sending side of a client."""

    def __init__(
        self, instance: Instance, group: str, settings: ProducerSettings, keys: UniqueKeys,
        dice: random.Random | None = None,
    ) -> None:  # fmt: skip
        self.instance = instance
        self.group = group
        self.settings = settings
        self.keys = keys
        self.counters = Counters()
        self.in_flight = 0
        """Sends that are neither acknowledged nor given up."""
        self.open: dict[Sending, None] = {}
        """These."""
        self._faults = Faults()
        self._turn = (dice or random.Random()).randrange(1 << 16)

    def begin(self) -> None:
        """Brokers are told of us: those with the topics of `topics`, and those that make topics by being sent to."""
        self.instance.producer_groups.append(self.group)
        self.instance.start(self.settings.heartbeat_ms, self.settings.route_refresh_ms)
        self.instance.kernel.spawn(self._begin(), "first routes")

    async def _begin(self) -> None:
        routes = self.instance.routes
        for topic in (DEFAULT_TOPIC, *self.settings.topics):
            try:
                await routes.ask(topic)
            except ClientError as error:
                log.debug("event=no_route topic=%s error=%s", topic, error)
            routes.want(topic)
        self.instance.tell_new()

    def close(self) -> None:
        """Whoever waits for a send is told that there is none any more."""
        for sending in list(self.open):
            sending._give_up(NotRunningError("the client is closed"))

    # -- what is sent ------------------------------------------------------------------------------------------------

    def send(
        self,
        message: Message,
        queue: Queue | None = None,
        select: Selector | None = None,
        key: Any = None,
        timeout_ms: float | None = None,
        more: Mapping[str, str] | None = None,
    ) -> Pending[SendResult]:
        """Send one. `queue` or `select` (asked with `key`) pins it. Raises MessageError; the rest fails later."""
        check(message, self.settings.max_body_bytes)
        unique = self.keys.next()
        text = encode_properties(message, unique, more)
        body, flags = self._body(message.body)
        sending = Sending(self, message.topic, unique, text, body, flags, message.flag, timeout_ms)
        sending.message, sending.queue, sending.select, sending.key = message, queue, select, key
        sending.begin()
        return sending.result

    def send_oneway(
        self, message: Message, queue: Queue | None = None, select: Selector | None = None, key: Any = None
    ) -> Pending[None]:
        """Send one that nobody acknowledges; done when it is on its way. Raises MessageError."""
        check(message, self.settings.max_body_bytes)
        unique = self.keys.next()
        text = encode_properties(message, unique)
        body, flags = self._body(message.body)
        return self.instance.kernel.spawn(
            self._send_oneway(message, queue, select, key, text, body, flags), "oneway send"
        )

    def send_again(
        self, received: ReceivedMessage, group: str, most: int, why: Mapping[str, str] = NOTHING_SAID
    ) -> Pending[SendResult]:
        """Send a message to its group's retry topic: it comes again after the delay for the next time, or is a dead
        letter where that was `most` times (DefaultMQPushConsumerImpl.sendMessageBackAsNormalMessage). `why`: more
        properties, which say what the error was."""
        times = received.reconsume_times
        kept = {
            name: value
            for name, value in received.properties.items()
            if name not in (DELAY, WAIT, TRANSACTION, "RECONSUME_TIME", "MAX_RECONSUME_TIMES")
        }
        kept.setdefault(RETRY_TOPIC, received.topic)
        kept.setdefault(ORIGIN_ID, received.offset_message_id)
        kept[DELAY] = str(3 + times)
        kept |= {name: value.replace("\1", " ").replace("\2", " ") for name, value in why.items()}
        text = "".join([f"{name}\1{value}\2" for name, value in kept.items()])
        body, flags = self._body(received.body)
        topic = f"%RETRY%{group}"
        sending = Sending(self, topic, received.message_id, text, body, flags, received.flag, None)
        sending.more = {"j": str(times + 1), "l": str(most)}
        sending.begin()
        return sending.result

    async def _send_oneway(
        self, message: Message, queue: Queue | None, select: Selector | None, key: Any, text: str, body: bytes,
        flags: int,
    ) -> None:  # fmt: skip
        route = await self.route(message.topic)
        if queue is None:
            queue = self.choose(message.topic, route, "") if select is None else chosen(select, route, message, key)
        address = self.instance.routes.master(queue.broker)
        if address is None:
            raise RouteError(f"broker {queue.broker} has no master")
        fields = self.fields(message.topic, queue, flags, message.flag, text)
        self.instance.network.oneway(address, RequestCode.SEND_MESSAGE_V2, fields, body)

    def send_batch(
        self, messages: Sequence[Message], queue: Queue | None = None, timeout_ms: float | None = None
    ) -> Pending[list[SendResult]]:
        """Send many to one topic, in as many requests as it takes, one after the other. Raises MessageError."""
        batches = self._batches(messages)
        return self.instance.kernel.spawn(self._send_batches(batches, queue, timeout_ms), "batch")

    async def _send_batches(
        self, batches: Sequence[_Batch], queue: Queue | None, timeout_ms: float | None
    ) -> list[SendResult]:
        results = []
        for batch in batches:
            body = encode_batch(batch.messages)
            # RocketMQ's brokers put what stands here behind each message's own properties: no UNIQ_KEY, then.
            text = f"WAIT\1{batch.wait}\2"
            sending = Sending(self, batch.topic, ",".join(batch.unique), text, body, 0, 0, timeout_ms)
            sending.code, sending.count, sending.queue = RequestCode.SEND_BATCH_MESSAGE, len(batch.messages), queue
            sending.begin()
            results.append(await sending.result)
        return results

    async def cancel(self, sent: SendResult, timeout_ms: float | None) -> None:
        """Take back a message that waits for its time. Where its broker has given a handle for that, as RocketMQ's do
        (RecallMessageProcessor), by the handle; else by its name, as Halfmoon does. Raises ClientError."""
        if not sent.deliver_at_ms:
            raise MessageError(f"message {sent.message_id} was not delayed")
        if sent.recall_handle is None:
            more = {CANCEL: sent.message_id, DELIVER_MS: str(max(sent.deliver_at_ms, self.instance.kernel.wall_ms()))}
            await self.send(Message(sent.queue.topic, b"cancelled"), sent.queue, None, None, timeout_ms, more)
            return
        address = self.instance.routes.master(sent.queue.broker)
        if address is None:
            raise RouteError(f"broker {sent.queue.broker} has no master now")
        fields = {
            "producerGroup": self.group, "topic": sent.queue.topic, "recallHandle": sent.recall_handle,
            "bname": sent.queue.broker,
        }  # fmt: skip
        limit_ms = self.settings.timeout_ms if timeout_ms is None else timeout_ms
        answer = await self.instance.network.request(
            address, RequestCode.RECALL_MESSAGE, fields, timeout_ms=limit_ms
        )  # fmt: skip
        if answer.code != Code.SUCCESS:
            raise BrokerRefusedError(answer.code, answer.remark, sent.queue.broker)

    def _batches(self, messages: Sequence[Message]) -> list[_Batch]:
        if not messages:
            raise MessageError("a batch needs a message")
        first = messages[0]
        batches: list[_Batch] = []
        for message in messages:
            check(message, self.settings.max_body_bytes)
            if message.topic != first.topic or message.wait_for_disk != first.wait_for_disk:
                raise MessageError("the messages of a batch must have the same topic and wait_for_disk")
            if message.topic.startswith("%RETRY%"):
                raise MessageError("a batch cannot go to a retry topic")
            if message.delay_level or message.delay_ms or message.deliver_at_ms:
                raise MessageError("messages of a batch cannot be delayed")
            unique = self.keys.next()
            made = BatchedMessage(message.flag, bytes(message.body), encode_properties(message, unique).encode())
            size = 22 + len(made.body) + len(made.properties)
            if size > self.settings.max_body_bytes:
                raise MessageError(
                    f"a message takes {size} bytes, at most {self.settings.max_body_bytes} are allowed in a batch"
                )
            if not batches or batches[-1].size + size > BATCH_BYTES:
                batches.append(_Batch(message.topic, "true" if message.wait_for_disk else "false"))
            batch = batches[-1]
            batch.messages.append(made)
            batch.unique.append(unique)
            batch.size += size
        return batches

    def _body(self, body: bytes) -> tuple[bytes, int]:
        over = self.settings.compress_over_bytes
        if over and len(body) > over:
            packed = zlib.compress(body, self.settings.compress_level)
            if len(packed) < len(body):
                return packed, COMPRESSED | ZLIB
        return body, 0

    def fields(self, topic: str, queue: Queue, flags: int, flag: int, text: str) -> dict[str, str]:
        """Of a request to send (SendMessageRequestHeaderV2)."""
        return {
            "a": self.group, "b": topic, "c": DEFAULT_TOPIC, "d": str(self.settings.default_queues),
            "e": str(queue.queue_id), "f": str(flags), "g": str(self.instance.kernel.wall_ms()), "h": str(flag),
            "i": text, "j": "0", "k": "false", "m": "false", "n": queue.broker,
        }  # fmt: skip

    # -- where to ----------------------------------------------------------------------------------------------------

    async def route(self, topic: str) -> Route:
        """Raises RouteError. The topic may not exist yet: then it is as those are that are made by sending."""
        routes = self.instance.routes
        known = routes.known(topic)
        if known is None:
            try:
                known = await routes.ask(topic)
            except TopicUnknownError:
                model = await routes.ask(DEFAULT_TOPIC)
                most = self.settings.default_queues
                known = Route(
                    tuple(queue._replace(topic=topic) for queue in model.readable if queue.queue_id < most),
                    tuple(queue._replace(topic=topic) for queue in model.writable if queue.queue_id < most),
                    model.brokers,
                )
                routes.put(topic, known)
            routes.want(topic)
            self.instance.tell_new()
        if not known.writable:
            raise RouteError(f"no queue of topic '{topic}' can be written to")
        return known

    def choose(self, topic: str, route: Route, last_broker: str) -> Queue:
        """The next queue in turn, not of the broker that has failed just now if there are others."""
        queues = route.writable
        network, routes, now_ms = self.instance.network, self.instance.routes, self.instance.kernel.now_ms
        self._turn += 1
        first = queues[self._turn % len(queues)]
        usual = not last_broker and not self.settings.latency_fault_tolerance
        if usual and not network.wait_ms(routes.master(first.broker) or ""):
            return first
        fallback = None
        for step in range(len(queues)):
            queue = queues[(self._turn + step) % len(queues)]
            if network.wait_ms(routes.master(queue.broker) or ""):
                continue
            if self.settings.latency_fault_tolerance and not self._faults.is_available(queue.broker, now_ms):
                continue
            if queue.broker != last_broker:
                return queue
            fallback = fallback or queue
        if fallback is None and self.settings.latency_fault_tolerance:
            broker = self._faults.least_bad({queue.broker for queue in queues})
            fallback = next((queue for queue in queues if queue.broker == broker), None)
        return fallback or first

    def answered(self, broker: str, latency_ms: float) -> None:
        if self.settings.latency_fault_tolerance:
            self._faults.took(broker, latency_ms, self.instance.kernel.now_ms)

    def failed(self, broker: str) -> None:
        if self.settings.latency_fault_tolerance:
            self._faults.failed(broker, self.instance.kernel.now_ms)


class _Batch(Struct):
    """Messages of one request."""

    topic: str
    wait: str
    messages: list[BatchedMessage] = []
    unique: list[str] = []
    size: int = 0
