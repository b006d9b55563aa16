"""Which queues are ours: worked out by each member alone, from the same members and queues (B22).

At the start, every 20 s, and whenever a broker says that the members have changed. Queues that are not ours any more
are dropped before new ones are taken; members may disagree for a moment, so a message may come twice, and none is lost.

(org.apache.rocketmq.client.impl.consumer.RebalanceImpl.)
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Protocol

from halfmoon.client.engine.group_queries import assigned_by, members_of
from halfmoon.client.engine.instance import Instance
from halfmoon.client.engine.kernel import Pending, Task
from halfmoon.client.engine.network import Connection
from halfmoon.client.engine.routes import Route
from halfmoon.client.errors import BrokerRefusedError, ClientError, TopicUnknownError
from halfmoon.plugin import AnyAllocator, Queue, allocate
from halfmoon.remoting.codes import RequestCode
from halfmoon.remoting.command import Command

UNSETTLED_MS = 1_000
"""Until it is looked at again where a queue could not be taken, or given away, yet."""
STOP_MS = 10_000

log = logging.getLogger("halfmoon.client.consumer")


class Owner(Protocol):
    """Who has the queues."""

    def owned(self, topic: str) -> Sequence[Queue]: ...

    async def change(self, topic: str, mine: Sequence[Queue], readable: Sequence[Queue]) -> bool:
        """These are ours; whether they are now: one that somebody else has locked still is not, and one that was lost
        may be in use for a moment."""
        ...


class Rebalancing:
    """Of one group."""

    def __init__(
        self, instance: Instance, group: str, allocator: AnyAllocator, owner: Owner,
        topics: Callable[[], Sequence[str]], *, everything: bool, interval_ms: float, strategy: str = "",
    ) -> None:  # fmt: skip
        self._instance = instance
        self._group = group
        self._allocator = allocator
        self._owner = owner
        self._topics = topics
        self._everything = everything
        """Broadcasting: all queues are ours."""
        self._interval_ms = interval_ms
        self._asked: Pending[None] = Pending()
        self._strategy = strategy
        self._task: Task[None] | None = None
        self._is_stopping = False

    def soon(self) -> None:
        """Not only when it is time."""
        self._asked.set(None)

    def listen(self) -> None:
        """Hear from brokers that members have come or gone, and that a topic's route has changed."""
        self._instance.handlers[RequestCode.NOTIFY_CONSUMER_IDS_CHANGED] = self._members_changed
        self._instance.routes.on_changed = self._route_changed

    def _members_changed(self, connection: Connection, command: Command) -> None:
        if command.fields.get("consumerGroup") == self._group:
            self.soon()

    def _route_changed(self, topic: str, route: Route) -> None:
        if topic in self._topics():
            self._instance.tell_new()
            self.soon()

    def start(self) -> None:
        """From now on, until `stop`."""
        self._task = self._instance.kernel.keep(self._run, "rebalancing")

    async def stop(self) -> None:
        """Let what is under way end: a queue that is being taken is to be given back."""
        self._is_stopping = True
        self.soon()
        if self._task is not None:
            await self._instance.kernel.within_ms(self._task, STOP_MS)

    async def _run(self) -> None:
        while not self._is_stopping:
            self._asked = Pending()
            is_settled = await self.once()
            # What could not be taken yet is looked at again before the others are.
            if not self._is_stopping:
                await self._instance.kernel.within_ms(self._asked, self._interval_ms if is_settled else UNSETTLED_MS)

    async def once(self) -> bool:
        """All topics; whether everything is as it should be."""
        settled = True
        for topic in self._topics():
            if self._is_stopping:
                break
            try:
                settled &= await self._rebalance(topic)
            except TopicUnknownError:
                log.debug("event=no_route group=%s topic=%s", self._group, topic)
            except ClientError as error:
                log.warning("event=rebalance_failed group=%s topic=%s error=%s", self._group, topic, error)
            except Exception:
                log.exception("event=rebalance_failed group=%s topic=%s", self._group, topic)
                settled = False
        return settled

    async def _rebalance(self, topic: str) -> bool:
        route = await self._instance.routes.get(topic)
        readable = route.readable
        if self._everything:
            return await self._owner.change(topic, readable, readable)
        if not readable:
            return await self._owner.change(topic, (), ())
        members = await self._members(readable)
        me = self._instance.client_id
        if me not in members:
            self._instance.versions.clear()  # they do not know us: all are told again
            self._instance.tell_new()
            return False
        mine: Sequence[Queue] | None = None
        if self._strategy and getattr(self._allocator, "wants_previous", False):
            mine = await self._ask_brokers(topic, readable)
        if mine is None:
            try:
                mine = allocate(self._allocator, members, readable).get(me, [])
            except Exception:
                log.exception("event=allocation_failed group=%s topic=%s", self._group, topic)
                return True
        return await self._owner.change(topic, mine, readable)

    async def _ask_brokers(self, topic: str, readable: Sequence[Queue]) -> list[Queue] | None:
        """What is ours by a strategy that wants to know who had what before: members have seen different things, so
        only somebody who has seen all can say. None: a broker that does not know the strategy; then it goes without
        memory, as everybody's does."""
        mine: list[Queue] = []
        for broker in dict.fromkeys(queue.broker for queue in readable):
            try:
                mine += await assigned_by(self._instance, self._group, topic, broker, self._strategy)
            except BrokerRefusedError as error:
                log.info("event=not_assigned group=%s topic=%s broker=%s error=%s", self._group, topic, broker, error)
                return None
        return [queue for queue in mine if queue in readable]

    async def _members(self, readable: Sequence[Queue]) -> list[str]:
        """As any of the brokers knows them."""
        error: ClientError | None = None
        for broker in dict.fromkeys(queue.broker for queue in readable):
            try:
                return await members_of(self._instance, self._group, broker)
            except ClientError as failure:
                error = failure
        assert error is not None
        raise error
