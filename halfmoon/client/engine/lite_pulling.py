"""Consumers that pull in the background, and are polled (org.apache.rocketmq.client.consumer.DefaultLitePullConsumer).

Queues are assigned, by the caller or by rebalancing. Progress is what was polled, and is stored every 5 s
(`auto_commit`), or when the caller says so.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from msgspec import Struct

from halfmoon.client.engine.consumer_settings import MOST_HOLD_MS, check_limits
from halfmoon.client.engine.group_queries import ConsumeFrom, first_offset, max_offset, min_offset, offset_for_time
from halfmoon.client.engine.instance import CLIENT_LIMITS, HEARTBEAT_MS, Instance
from halfmoon.client.engine.kernel import Pending
from halfmoon.client.engine.offsets import OffsetStore
from halfmoon.client.engine.pulling import Pull, PullStatus, pull
from halfmoon.client.engine.rebalancing import Rebalancing
from halfmoon.client.engine.routes import REFRESH_MS
from halfmoon.client.engine.subscriptions import Subscription
from halfmoon.client.errors import ClientError, ConfigError
from halfmoon.client.messages import ReceivedMessage
from halfmoon.plugin import AnyAllocator, Queue
from halfmoon.remoting.errors import MalformedFrame

HOLD_MS = 20_000
"""How long a pull may be held (brokerSuspendMaxTimeMillis)."""
TIMEOUT_MS = 30_000
FLOW_CONTROL_MS = 50
PAUSED_MS = 1_000
FAILED_MS = 1_000

log = logging.getLogger("halfmoon.client.consumer")


class LiteSettings(Struct, frozen=True, kw_only=True):
    """Of a lite pull consumer. The names and numbers are DefaultLitePullConsumer's, with units."""

    model: Literal["clustering", "broadcasting"] = "clustering"
    consume_from: ConsumeFrom = ConsumeFrom.LAST
    consume_from_ms: int = 0
    """Unix ms, for ConsumeFrom.TIMESTAMP."""
    strategy: str = "averagely"
    pull_batch_size: int = 10
    most_cached: int = 1_000
    """Messages of a queue that were not polled, above which it is not pulled."""
    most_cached_bytes: int = 100 << 20
    auto_commit: bool = True
    commit_ms: int = 5_000
    rebalance_ms: int = 20_000
    hold_ms: int = HOLD_MS
    pull_timeout_ms: int = TIMEOUT_MS
    heartbeat_ms: int = HEARTBEAT_MS
    route_refresh_ms: int = REFRESH_MS

    def __post_init__(self) -> None:
        check_limits(
            self, ("pull_batch_size", 1, 1_024), ("most_cached", 1, 65_535), ("most_cached_bytes", 1, 1 << 40),
            ("commit_ms", 100, 3_600_000), ("rebalance_ms", 100, 3_600_000), ("hold_ms", 1, MOST_HOLD_MS),
            *CLIENT_LIMITS,
        )  # fmt: skip
        if self.pull_timeout_ms <= self.hold_ms:
            raise ConfigError(f"pull_timeout_ms is {self.pull_timeout_ms}, expected more than hold_ms ({self.hold_ms})")

    @property
    def is_broadcasting(self) -> bool:
        return self.model == "broadcasting"


class _Assigned:
    """A queue that is pulled in the background."""

    __slots__ = ("bytes", "cached", "is_dropped", "is_paused", "next_offset", "node_id", "queue")

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self.cached: deque[ReceivedMessage] = deque()
        self.bytes = 0
        self.next_offset = -1
        """To pull from; −1: to be learnt."""
        self.node_id = 0
        self.is_paused = False
        self.is_dropped = False


class LitePulling:
    """A lite pull consumer."""

    def __init__(
        self, instance: Instance, group: str, settings: LiteSettings, allocator: AnyAllocator, store: OffsetStore
    ) -> None:
        self.instance = instance
        self.group = group
        self.settings = settings
        self.store = store
        self.subscriptions: dict[str, Subscription] = {}
        self._wanted: dict[str, Subscription] = {}
        """Of assigned queues, by topic: nobody else in the group need want the same."""
        self._is_assigned = False
        """By the caller, not by rebalancing."""
        self._assigned: dict[Queue, _Assigned] = {}
        self._ready: deque[_Assigned] = deque()
        """Have something cached; the first is polled next."""
        self._arrived: Pending[None] = Pending()
        self._is_started = False
        self.rebalancing = Rebalancing(
            instance, group, allocator, self, lambda: list(self.subscriptions),
            everything=settings.is_broadcasting, interval_ms=settings.rebalance_ms,
            strategy=settings.strategy,
        )  # fmt: skip

    # -- life --------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        instance = self.instance
        for topic in {*self.subscriptions, *(queue.topic for queue in self._assigned)}:
            await instance.routes.learn(topic)
        instance.consumers[self.group] = self.said
        self.rebalancing.listen()
        instance.start(self.settings.heartbeat_ms, self.settings.route_refresh_ms)
        await instance.heartbeat()
        instance.check_taken()
        self._is_started = True
        if self._is_assigned:
            for assigned in self._assigned.values():
                self._begin(assigned)
        else:
            self.rebalancing.start()
        if self.settings.auto_commit:
            instance.kernel.keep(self._commit_for_ever, "progress")

    def said(self) -> Mapping[str, Any]:
        return {
            "groupName": self.group, "consumeType": "CONSUME_ACTIVELY", "messageModel": self.settings.model.upper(),
            "consumeFromWhere": self.settings.consume_from.value,
            "subscriptionDataSet": [each.said() for each in self.subscriptions.values()], "unitMode": False,
        }  # fmt: skip

    async def close(self) -> None:
        await self.rebalancing.stop()
        if self.settings.auto_commit:
            await self.store.persist(list(self._assigned), surely=True)
        for assigned in self._assigned.values():
            assigned.is_dropped = True
        self._arrived.set(None)
        await self.instance.unregister(consumer=self.group)
        self.instance.consumers.pop(self.group, None)

    # -- what is read ------------------------------------------------------------------------------------------------

    def subscribe(self, subscription: Subscription) -> None:
        """Raises ConfigError where queues are assigned."""
        if self._is_assigned:
            raise ConfigError("a consumer that was assigned queues does not subscribe")
        self.subscriptions[subscription.topic] = subscription
        self.instance.routes.want(subscription.topic)
        if self._is_started:
            self.instance.kernel.spawn(self.instance.heartbeat(), "heartbeat")
            self.rebalancing.soon()

    def assign(self, queues: Iterable[Queue], subscriptions: Mapping[str, Subscription]) -> None:
        """These, and no others; what is wanted of them, by topic. Raises ConfigError where topics are subscribed
        to."""
        if self.subscriptions:
            raise ConfigError("a consumer that subscribes is not assigned queues")
        self._is_assigned = True
        self._wanted.update(subscriptions)
        wanted = list(dict.fromkeys(queues))
        lost = [queue for queue in self._assigned if queue not in wanted]
        if lost and self.settings.auto_commit and self._is_started:
            self.instance.kernel.spawn(self.store.persist(lost, surely=True), "progress of what was assigned")
        for queue in lost:
            self._drop(queue)
        for queue in wanted:
            self.instance.routes.want(queue.topic)
            if queue not in self._assigned:
                self._assigned[queue] = _Assigned(queue)
                if self._is_started:
                    self._begin(self._assigned[queue])

    @property
    def assignment(self) -> list[Queue]:
        return list(self._assigned)

    def owned(self, topic: str) -> Sequence[Queue]:
        return [queue for queue in self._assigned if queue.topic == topic]

    async def change(self, topic: str, mine: Sequence[Queue], readable: Sequence[Queue]) -> bool:
        lost = [queue for queue in self.owned(topic) if queue not in mine]
        if lost and self.settings.auto_commit:
            await self.store.persist(lost, surely=True)
        for queue in lost:
            self._drop(queue)
        for queue in mine:
            if queue not in self._assigned:
                self.store.forget(queue)
                self._assigned[queue] = _Assigned(queue)
                self._begin(self._assigned[queue])
        return True

    def _drop(self, queue: Queue) -> None:
        assigned = self._assigned.pop(queue)
        assigned.is_dropped = True
        assigned.cached.clear()

    # -- pulling -----------------------------------------------------------------------------------------------------

    def _begin(self, assigned: _Assigned) -> None:
        self.instance.kernel.keep(lambda: self._pull_for_ever(assigned), f"pull {assigned.queue}")

    async def _pull_for_ever(self, assigned: _Assigned) -> None:
        kernel = self.instance.kernel
        while not assigned.is_dropped:
            try:
                pause_ms = await self._pull_once(assigned)
            except (ClientError, MalformedFrame) as error:
                if assigned.is_dropped:
                    return
                log.warning("event=pull_failed group=%s queue=%s error=%s", self.group, assigned.queue, error)
                pause_ms = FAILED_MS
            if pause_ms:
                await kernel.sleep_ms(pause_ms)

    async def _pull_once(self, assigned: _Assigned) -> float:
        """How long to wait before the next one, ms."""
        settings = self.settings
        queue = assigned.queue
        if assigned.is_paused:
            return PAUSED_MS
        if len(assigned.cached) > settings.most_cached or assigned.bytes > settings.most_cached_bytes:
            return FLOW_CONTROL_MS
        if assigned.next_offset < 0:
            await self.instance.routes.get(queue.topic)
            assigned.next_offset = await first_offset(
                self.instance, self.store, queue, settings.consume_from, settings.consume_from_ms
            )
        subscription = self.subscriptions.get(queue.topic) or self._wanted[queue.topic]
        asked = Pull(
            queue=queue, offset=assigned.next_offset, subscription=subscription, most=settings.pull_batch_size,
            hold_ms=settings.hold_ms, timeout_ms=settings.pull_timeout_ms, node_id=assigned.node_id,
            with_subscription=True, is_lite=True,
        )  # fmt: skip
        result = await pull(self.instance, self.group, asked)
        if assigned.is_dropped:
            return 0
        assigned.node_id = result.node_id
        assigned.next_offset = result.next_offset
        if result.status is PullStatus.OFFSET_ILLEGAL:
            log.warning("event=offset_illegal group=%s queue=%s next=%d", self.group, queue, result.next_offset)
            return 0
        messages = subscription.wanted(result.messages)
        if messages:
            if not assigned.cached:
                self._ready.append(assigned)
            assigned.cached.extend(messages)
            assigned.bytes += sum(len(message.body) for message in messages)
            self._arrived.set(None)
        elif not assigned.cached:
            self.store.update(queue, result.next_offset, only_forward=True)
        return 0

    # -- polling -----------------------------------------------------------------------------------------------------

    async def wait_for_some(self, timeout_ms: float) -> None:
        """Until there is something to take, but no longer. Takes nothing: whoever waits may lose interest. Raises
        BrokerRefusedError where no broker takes the group."""
        self.instance.check_taken()
        if self._arrived.is_done:
            self._arrived = Pending()
        if not any(each.cached and not each.is_paused and not each.is_dropped for each in self._ready):
            await self.instance.kernel.within_ms(self._arrived, timeout_ms)

    def take(self, most: int) -> list[ReceivedMessage]:
        """What was pulled of one queue, which counts as consumed then. Raises ConfigError."""
        if most < 1:
            raise ConfigError(f"most is {most}, expected at least 1")
        while self._ready:
            assigned = self._ready[0]
            if assigned.is_dropped or assigned.is_paused or not assigned.cached:
                self._ready.popleft()
                continue
            taken = [assigned.cached.popleft() for _ in range(min(most, len(assigned.cached)))]
            assigned.bytes -= sum(len(message.body) for message in taken)
            if assigned.cached:
                self._ready.rotate(-1)
            else:
                self._ready.popleft()
            self.store.update(assigned.queue, taken[-1].queue_offset + 1, only_forward=False)
            return taken
        return []

    def seek(self, queue: Queue, offset: int) -> None:
        """Go on there. Raises ConfigError where the queue is not ours."""
        assigned = self._assigned.get(queue)
        if assigned is None:
            raise ConfigError(f"{queue} is not assigned to this consumer")
        self.store.update(queue, offset, only_forward=False)
        # A pull that is held at the old place may take long: another one goes on at once.
        assigned.is_dropped = True
        fresh = self._assigned[queue] = _Assigned(queue)
        fresh.next_offset, fresh.is_paused = offset, assigned.is_paused
        if self._is_started:
            self._begin(fresh)

    def pause(self, queues: Iterable[Queue], *, paused: bool) -> None:
        for queue in queues:
            assigned = self._assigned.get(queue)
            if assigned is None:
                continue
            assigned.is_paused = paused
            if not paused and assigned.cached:
                if assigned not in self._ready:
                    self._ready.append(assigned)
                self._arrived.set(None)

    # -- progress ----------------------------------------------------------------------------------------------------

    async def commit(self, offsets: Mapping[Queue, int] | None = None) -> None:
        """Store what was polled, or these offsets. Raises ClientError."""
        for queue, offset in (offsets or {}).items():
            self.store.update(queue, offset, only_forward=False)
        failure = await self.store.persist(list(offsets or self._assigned), surely=True, again=True)
        if failure is not None:
            raise failure

    async def _commit_for_ever(self) -> None:
        while True:
            await self.instance.kernel.sleep_ms(self.settings.commit_ms)
            await self.store.persist(list(self._assigned))

    async def queues(self, topic: str) -> list[Queue]:
        """Those that can be read. Raises RouteError."""
        return list((await self.instance.routes.get(topic)).readable)

    async def committed(self, queue: Queue) -> int:
        """What is stored; −1: nothing. Raises ClientError."""
        await self.queues(queue.topic)
        return await self.store.read(queue)

    async def offset_for_time(self, queue: Queue, time_ms: int) -> int:
        await self.queues(queue.topic)
        return await offset_for_time(self.instance, queue, time_ms)

    async def bounds(self, queue: Queue) -> tuple[int, int]:
        """The first offset, and the one behind the last."""
        await self.queues(queue.topic)
        return await min_offset(self.instance, queue), await max_offset(self.instance, queue)
