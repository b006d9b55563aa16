"""Consumers that ask for messages themselves (org.apache.rocketmq.client.consumer.DefaultMQPullConsumer).

Each pull says which queue, which offset, which expression; progress is the caller's business.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from halfmoon.client.engine.group_queries import ConsumeFrom, max_offset, min_offset, offset_for_time
from halfmoon.client.engine.instance import Instance
from halfmoon.client.engine.offsets import OffsetStore
from halfmoon.client.engine.pulling import Pull, PullResult, PullStatus, pull
from halfmoon.client.engine.subscriptions import Subscription
from halfmoon.client.errors import BrokerRefusedError
from halfmoon.plugin import Queue
from halfmoon.remoting.codes import Code
from halfmoon.remoting.errors import MalformedFrame


class Pulling:
    """A pull consumer."""

    def __init__(self, instance: Instance, group: str, store: OffsetStore) -> None:
        self.instance = instance
        self.group = group
        self.store = store

    async def start(self) -> None:
        """The group is known to brokers from the first topic on that is asked about."""
        self.instance.consumers[self.group] = self.said
        self.instance.start()

    def said(self) -> Mapping[str, Any]:
        return {
            "groupName": self.group, "consumeType": "CONSUME_ACTIVELY", "messageModel": "CLUSTERING",
            "consumeFromWhere": ConsumeFrom.LAST.value, "subscriptionDataSet": [], "unitMode": False,
        }  # fmt: skip

    async def close(self) -> None:
        await self.instance.unregister(consumer=self.group)
        self.instance.consumers.pop(self.group, None)

    async def queues(self, topic: str) -> list[Queue]:
        """Those that can be read. Raises RouteError."""
        if self.instance.routes.known(topic) is None:
            await self.instance.routes.ask(topic)
            self.instance.routes.want(topic)
            self.instance.tell_new()
        return list((await self.instance.routes.get(topic)).readable)

    async def pull(
        self, queue: Queue, offset: int, subscription: Subscription, most: int, hold_ms: int, timeout_ms: float
    ) -> PullResult:
        """Raises ClientError."""
        await self.queues(queue.topic)
        asked = Pull(
            queue=queue, offset=offset, subscription=subscription, most=most, hold_ms=hold_ms, timeout_ms=timeout_ms,
            with_subscription=True,
        )  # fmt: skip
        try:
            result = await pull(self.instance, self.group, asked)
        except MalformedFrame as error:
            raise BrokerRefusedError(Code.SUCCESS, f"unreadable messages: {error}", queue.broker) from None
        return _only(result, subscription)

    async def committed(self, queue: Queue) -> int:
        """−1: none is stored. Raises ClientError."""
        await self.queues(queue.topic)
        return await self.store.read(queue)

    async def commit(self, queue: Queue, offset: int) -> None:
        """Raises ClientError."""
        await self.queues(queue.topic)
        self.store.update(queue, offset, only_forward=False)
        failure = await self.store.persist([queue], surely=True, again=True)
        if failure is not None:
            raise failure

    async def max_offset(self, queue: Queue) -> int:
        await self.queues(queue.topic)
        return await max_offset(self.instance, queue)

    async def min_offset(self, queue: Queue) -> int:
        await self.queues(queue.topic)
        return await min_offset(self.instance, queue)

    async def offset_for_time(self, queue: Queue, time_ms: int) -> int:
        await self.queues(queue.topic)
        return await offset_for_time(self.instance, queue, time_ms)


def _only(result: PullResult, subscription: Subscription) -> PullResult:
    """Without messages whose tag has the hash of a wanted one, and is another."""
    wanted = subscription.wanted(result.messages)
    if len(wanted) == len(result.messages):
        return result
    status = result.status if wanted else PullStatus.NO_MATCHED_MSG
    return PullResult(status, result.next_offset, result.min_offset, result.max_offset, wanted, result.node_id)
