"""A push consumer: pulls its queues for ever, and hands what it finds to a listener (B15 to B22).

Each queue has a process queue (what was pulled and is not dealt with) and a task that pulls it. A service, concurrent
or ordered, hands messages to the listener and says what is dealt with; progress follows from that.

(org.apache.rocketmq.client.impl.consumer.DefaultMQPushConsumerImpl.)
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from halfmoon.client.engine.consumer_settings import ConsumerSettings
from halfmoon.client.engine.group_queries import RETRY_PREFIX, first_offset
from halfmoon.client.engine.inspection import Inspection
from halfmoon.client.engine.instance import Instance
from halfmoon.client.engine.listening import Service
from halfmoon.client.engine.offsets import OffsetStore
from halfmoon.client.engine.process_queue import ProcessQueue
from halfmoon.client.engine.pulling import Pull, PullResult, PullStatus, pull
from halfmoon.client.engine.rebalancing import Rebalancing
from halfmoon.client.engine.subscriptions import TAG, Subscription, by_tags
from halfmoon.client.errors import BrokerRefusedError, ClientError, RouteError
from halfmoon.client.messages import RETRY_TOPIC, ReceivedMessage
from halfmoon.plugin import AnyAllocator, Queue
from halfmoon.remoting.codes import Code, RequestCode
from halfmoon.remoting.errors import MalformedFrame

SILENT_MS = 120_000
"""A queue that was not pulled for so long is taken anew (ProcessQueue.isPullExpired)."""
TIMEOUT_MS = 3_000

log = logging.getLogger("halfmoon.client.consumer")


class ConsumerCounters(Struct):
    """What a consumer has done since it was made, and what it has now."""

    pulled: int = 0
    consumed: int = 0
    """Messages that a listener has acknowledged."""
    failed: int = 0
    """Messages that it has not; each attempt counts."""
    nacked: int = 0
    """Messages that were negatively acknowledged: a broker redelivers or dead-letters them."""
    dropped: int = 0
    """Broadcasting: messages that failed, which are not delivered again."""
    expired: int = 0
    """Messages that were negatively acknowledged because a listener had them for too long."""

    @property
    def sent_back(self) -> int:
        """The name of `nacked` until 0.1; goes with the next version."""
        warnings.warn("counters.sent_back is called nacked now", DeprecationWarning, stacklevel=2)
        return self.nacked


class PushConsuming:
    """The consuming side of a client."""

    def __init__(
        self, instance: Instance, group: str, settings: ConsumerSettings, allocator: AnyAllocator, store: OffsetStore
    ) -> None:
        self.instance = instance
        self.group = group
        self.settings = settings
        self.store = store
        self.counters = ConsumerCounters()
        self.subscriptions: dict[str, Subscription] = {}
        self.queues: dict[Queue, ProcessQueue] = {}
        self.is_paused = False
        self.is_closing = False
        self.service: Service
        """To be set before `start`."""
        self.rebalancing = Rebalancing(
            instance, group, allocator, self, lambda: list(self.subscriptions),
            everything=settings.is_broadcasting, interval_ms=settings.rebalance_ms,
            strategy=settings.strategy,
        )  # fmt: skip

    # -- what is wanted ----------------------------------------------------------------------------------------------

    def subscribe(self, subscription: Subscription) -> None:
        """The last one for a topic counts (B25)."""
        self.subscriptions[subscription.topic] = subscription
        self.instance.routes.want(subscription.topic)

    def unsubscribe(self, topic: str) -> None:
        self.subscriptions.pop(topic, None)
        self.instance.routes.forget(topic)

    def changed(self) -> None:
        """While it runs, subscriptions have."""
        self.instance.kernel.spawn(self.instance.heartbeat(), "heartbeat")
        for topic in {queue.topic for queue in self.queues} - set(self.subscriptions):
            self.instance.kernel.spawn(self.change(topic, (), ()), "unsubscribe")
        self.rebalancing.soon()

    def said(self) -> Mapping[str, Any]:
        """As a heartbeat says it (ConsumerData)."""
        return {
            "groupName": self.group, "consumeType": "CONSUME_PASSIVELY",
            "messageModel": self.settings.model.upper(), "consumeFromWhere": self.settings.consume_from.value,
            "subscriptionDataSet": [each.said() for each in self.subscriptions.values()], "unitMode": False,
        }  # fmt: skip

    # -- life --------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Raises ClientError: an expression that a broker refuses, or no name server."""
        instance = self.instance
        if not self.settings.is_broadcasting:
            self.subscribe(by_tags(RETRY_PREFIX + self.group, "*", instance.kernel.wall_ms()))
        for subscription in list(self.subscriptions.values()):
            if not subscription.topic.startswith(RETRY_PREFIX):
                await self._check(subscription)
        instance.consumers[self.group] = self.said
        self.rebalancing.listen()
        Inspection(self).begin()
        instance.start(self.settings.heartbeat_ms, self.settings.route_refresh_ms)
        await instance.heartbeat()
        instance.check_taken()
        self.rebalancing.start()
        instance.kernel.keep(self._persist, "progress")

    async def _check(self, subscription: Subscription) -> None:
        """Learn the topic's route; and have an expression that is more than tags looked at by a broker (B34). Raises
        ClientError."""
        try:
            route = await self.instance.routes.ask(subscription.topic)
        except RouteError as error:
            if self.instance.routes.known(subscription.topic) is None:
                log.warning("event=no_route group=%s topic=%s error=%s", self.group, subscription.topic, error)
            return
        if subscription.kind == TAG:
            return
        for nodes in route.brokers.values():
            body = {
                "clientId": self.instance.client_id, "group": self.group, "subscriptionData": subscription.said(),
            }  # fmt: skip
            address = next(iter(nodes.values()))
            answer = await self.instance.network.request(
                address, RequestCode.CHECK_CLIENT_CONFIG, {}, msgspec.json.encode(body), timeout_ms=TIMEOUT_MS
            )
            if answer.code != Code.SUCCESS:
                raise BrokerRefusedError(answer.code, answer.remark, address)

    async def close(self) -> None:
        """Orderly: listeners end, progress is stored, queues are free for others."""
        self.is_closing = True
        await self.rebalancing.stop()
        await self.service.end()
        for process_queue in self.queues.values():
            process_queue.drop()
        await self._regain([each for each in self.queues.values() if not self._may_commit(each)])
        await self.store.persist(self._committable(), surely=True)
        await self.service.release(list(self.queues))
        await self.instance.unregister(consumer=self.group)
        self.instance.consumers.pop(self.group, None)

    async def _persist(self) -> None:
        while True:
            await self.instance.kernel.sleep_ms(self.settings.persist_ms)
            await self.store.persist(self._committable())

    def _committable(self) -> list[Queue]:
        return [queue for queue, process_queue in self.queues.items() if self._may_commit(process_queue)]

    def _may_commit(self, process_queue: ProcessQueue) -> bool:
        """Whether its progress is ours to tell. A queue whose lock is lost may be another member's, who is further; one
        whose lock we have again may have been."""
        if not self._is_locking:
            return True
        return process_queue.is_lock_trusted(self.instance.kernel.now_ms) and not process_queue.reread

    async def _regain(self, process_queues: Sequence[ProcessQueue]) -> None:
        """Lock queues once more that are to be given up, to tell how far they are; those that nobody has meanwhile are
        ours again."""
        if not process_queues:
            return
        asked_ms = self.instance.kernel.now_ms
        locked = await self.service.lock([each.queue for each in process_queues])
        for process_queue in process_queues:
            if process_queue.queue in locked:
                process_queue.locked(asked_ms)
                try:
                    await self.read_again(process_queue)
                except ClientError as error:
                    log.warning("event=committed_offset_unknown queue=%s error=%s", process_queue.queue, error)

    @property
    def _is_locking(self) -> bool:
        return self.service.needs_lock and not self.settings.is_broadcasting

    # -- whose queues ------------------------------------------------------------------------------------------------

    def owned(self, topic: str) -> Sequence[Queue]:
        return [queue for queue in self.queues if queue.topic == topic]

    async def change(self, topic: str, mine: Sequence[Queue], readable: Sequence[Queue]) -> bool:
        if self.is_closing:
            return True
        kernel = self.instance.kernel
        settled = True
        for queue in self.owned(topic):
            process_queue = self.queues[queue]
            is_silent = kernel.now_ms - process_queue.last_pull_ms > SILENT_MS
            # One that was dropped and could not be given up then is taken anew, be it ours again or not.
            is_left = process_queue.is_dropped and not process_queue.is_moving
            if queue not in mine or is_silent or is_left:
                if is_silent:
                    log.warning("event=queue_silent group=%s queue=%s", self.group, queue)
                process_queue.drop()
                settled &= await self._remove(process_queue)
        # Side by side: a broker that does not answer delays its own queues alone.
        new: dict[str, list[Queue]] = {}
        for queue in mine:
            if queue not in self.queues:
                new.setdefault(queue.broker, []).append(queue)
        taken = await self.instance.all_of([self._take(queues) for queues in new.values()], "take queues")
        return settled and all(taken)

    async def _take(self, queues: Sequence[Queue]) -> bool:
        """Queues of one broker are to be ours; whether all of them are."""
        asked_ms = self.instance.kernel.now_ms
        settled = True
        if self._is_locking:
            locked = await self.service.lock(queues)
            if self.is_closing:
                await self.service.release(list(locked))
                return True
            settled = len(locked) == len(queues)
            queues = [queue for queue in queues if queue in locked]
        for queue in queues:
            settled &= await self._add(queue, asked_ms)
        return settled

    async def _add(self, queue: Queue, locked_ms: float) -> bool:
        self.store.forget(queue)
        settings = self.settings
        try:
            offset = await first_offset(
                self.instance, self.store, queue, settings.consume_from, settings.consume_from_ms
            )
        except ClientError as error:
            log.warning("event=queue_not_taken group=%s queue=%s error=%s", self.group, queue, error)
            return False
        if self.is_closing or queue in self.queues:
            if queue not in self.queues:
                await self.service.release([queue])
            return True
        kernel = self.instance.kernel
        process_queue = self.queues[queue] = ProcessQueue(queue, offset, kernel.now_ms, settings.lock_trusted_ms)
        if self.service.needs_lock:
            process_queue.locked(locked_ms)
        process_queue.reread = not process_queue.is_lock_trusted(kernel.now_ms)
        log.info("event=queue_taken group=%s queue=%s offset=%d", self.group, queue, offset)
        self.service.begin(process_queue)
        process_queue.task = kernel.keep(lambda: self._pull_for_ever(process_queue), f"pull {queue}")
        return True

    async def _remove(self, process_queue: ProcessQueue) -> bool:
        """It was dropped: progress is stored, then it is somebody else's. False: it is still in use."""
        queue = process_queue.queue
        if self.queues.get(queue) is not process_queue:
            return True
        if not await self.service.quiet(process_queue):
            return False
        if not self._may_commit(process_queue):
            await self._regain([process_queue])
        if self._may_commit(process_queue):
            if process_queue.begin_at >= 0:
                self.store.update(queue, process_queue.begin_at, only_forward=False)
            await self.store.persist([queue], surely=True)
        await self.service.release([queue])
        if self.queues.get(queue) is process_queue:
            del self.queues[queue]
            self.store.forget(queue)
        log.info("event=queue_left group=%s queue=%s", self.group, queue)
        return True

    # -- pulling -----------------------------------------------------------------------------------------------------

    async def _pull_for_ever(self, process_queue: ProcessQueue) -> None:
        while not self._is_over(process_queue):
            try:
                pause_ms = await self._pull_once(process_queue)
            except (ClientError, MalformedFrame) as error:
                if self._is_over(process_queue):
                    return
                log.warning("event=pull_failed group=%s queue=%s error=%s", self.group, process_queue.queue, error)
                if isinstance(error, BrokerRefusedError):
                    self._refused(error)
                pause_ms = self.settings.pull_failed_ms
            if pause_ms:
                await self.instance.kernel.sleep_ms(pause_ms)

    def _is_over(self, process_queue: ProcessQueue) -> bool:
        return process_queue.is_dropped or self.is_closing

    def _refused(self, error: BrokerRefusedError) -> None:
        if error.code in (Code.SUBSCRIPTION_NOT_EXIST, Code.SUBSCRIPTION_NOT_LATEST):
            self.instance.kernel.spawn(self.instance.heartbeat(), "heartbeat")

    async def _pull_once(self, process_queue: ProcessQueue) -> float:
        """How long to wait before the next one, ms."""
        queue = process_queue.queue
        kernel = self.instance.kernel
        process_queue.last_pull_ms = kernel.now_ms
        if self.is_paused:
            return self.settings.paused_ms
        if self._has_enough(process_queue):
            return self.settings.flow_control_ms
        subscription = self.subscriptions.get(queue.topic)
        if subscription is None:
            return self.settings.pull_failed_ms
        if self._is_locking:
            if not process_queue.is_lock_trusted(kernel.now_ms):
                return self.settings.lock_again_ms
            if process_queue.reread:
                await self.read_again(process_queue)
        commit = -1 if self.settings.is_broadcasting else self.store.known(queue)
        asked = Pull(
            queue=queue, offset=process_queue.next_offset, subscription=subscription,
            most=self.settings.pull_batch_size, commit_offset=commit, hold_ms=self.settings.hold_ms,
            timeout_ms=self.settings.pull_timeout_ms, node_id=process_queue.node_id,
        )  # fmt: skip
        result = await pull(self.instance, self.group, asked)
        if self._is_over(process_queue) or self.subscriptions.get(queue.topic) is not subscription:
            return 0  # what was found by the expression of before says nothing of the new one
        process_queue.node_id = result.node_id
        process_queue.broker_offset = result.max_offset
        if result.status is PullStatus.OFFSET_ILLEGAL:
            await self._moved(process_queue, result)
            return 0
        return self._pulled(process_queue, subscription, result)

    async def read_again(self, process_queue: ProcessQueue) -> None:
        """Somebody else may have had the queue while it was not ours: pass over what they have dealt with. Raises
        ClientError."""
        known = await self.store.read(process_queue.queue)
        process_queue.forget_before(known)
        if known >= 0:
            self.store.update(process_queue.queue, known, only_forward=True)
        process_queue.reread = False

    def _pulled(self, process_queue: ProcessQueue, subscription: Subscription, result: PullResult) -> float:
        process_queue.next_offset = max(process_queue.next_offset, result.next_offset)
        messages = subscription.wanted(result.messages)
        if not messages:
            if not len(process_queue):  # nothing in between is to be consumed by us
                self.store.update(process_queue.queue, result.next_offset, only_forward=True)
            return 0
        self.counters.pulled += len(messages)
        if process_queue.queue.topic.startswith(RETRY_PREFIX):
            self._as_sent(messages)
        process_queue.put(messages)
        self.service.arrived(process_queue, messages)
        return self.settings.pull_interval_ms

    def _as_sent(self, messages: Sequence[ReceivedMessage]) -> None:
        """A listener sees the topic that a message was sent to first, and not the retry topic it came back in."""
        for message in messages:
            message.topic = message.properties.get(RETRY_TOPIC, message.topic)

    def _has_enough(self, process_queue: ProcessQueue) -> bool:
        settings = self.settings
        count = len(process_queue)
        if count > settings.most_cached or process_queue.bytes > settings.most_cached_bytes:
            return True
        return not self.service.needs_lock and process_queue.span > settings.most_span

    async def _moved(self, process_queue: ProcessQueue, result: PullResult) -> None:
        """The broker has other offsets than we thought: begin anew where it says, a while later."""
        queue = process_queue.queue
        log.warning(
            "event=offset_illegal group=%s queue=%s offset=%d next=%d", self.group, queue, process_queue.next_offset,
            result.next_offset,
        )  # fmt: skip
        process_queue.is_moving = True
        process_queue.drop()
        await self.instance.kernel.sleep_ms(self.settings.moved_ms)
        process_queue.is_moving = False
        process_queue.begin_at = result.next_offset
        await self._remove(process_queue)
        self.rebalancing.soon()

    async def begin_at(self, queue: Queue, offset: int) -> None:
        """Begin a queue of ours anew at another offset."""
        process_queue = self.queues[queue]
        process_queue.drop()
        process_queue.begin_at = offset
        await self._remove(process_queue)
        self.rebalancing.soon()
