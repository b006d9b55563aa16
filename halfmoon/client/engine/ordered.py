"""Ordered consumption: a queue's messages one after the other, by one member of the group at a time (B21).

The broker lends a queue to one client for 60 s; that is renewed every 20 s, and trusted here for 30. A queue is pulled,
and its listener called, only as long as the loan is trusted. What a listener does not consume comes again at once after
a moment, and nothing behind it before.

A queue that rebalancing takes away is given back only when no listener is at it; then its progress is stored first, and
the next owner begins where this one ended. RocketMQ's client leaves the lock 20 s longer on a queue with messages that
it had pulled and not consumed; they are nobody's here, so it is free at once.

(org.apache.rocketmq.client.impl.consumer.ConsumeMessageOrderlyService.)
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

import msgspec

from halfmoon.client.engine.consumer_settings import MAX_SUSPEND_MS, MIN_SUSPEND_MS
from halfmoon.client.engine.consuming import PushConsuming
from halfmoon.client.engine.group_queries import UNREADABLE
from halfmoon.client.engine.kernel import Pending
from halfmoon.client.engine.listening import Context, Listener, Status, Work
from halfmoon.client.engine.process_queue import ProcessQueue
from halfmoon.client.engine.producing import Producing
from halfmoon.client.errors import ClientError
from halfmoon.client.messages import ReceivedMessage
from halfmoon.plugin import Queue
from halfmoon.remoting.codes import Code, RequestCode

NOT_LOCKED_MS, EXPIRED_MS, BREATHER_MS = 100, 10, 10
"""Until a queue is looked at again whose lock we never had; whose lock is lost or too old; that was consumed for
long."""
TIMEOUT_MS = 3_000
UNLIMITED = (1 << 31) - 1

log = logging.getLogger("halfmoon.client.consumer")


class _Locked(msgspec.Struct):
    lockOKMQSet: list[_Name] = []  # noqa: N815 (the wire's names, here and below)


class _Name(msgspec.Struct):
    topic: str
    brokerName: str  # noqa: N815
    queueId: int  # noqa: N815


class OrderedService:
    """Of one consumer."""

    needs_lock = True

    def __init__(self, consuming: PushConsuming, producing: Producing, listener: Listener) -> None:
        self._consuming = consuming
        self._producing = producing
        self._listener = listener
        self._works: dict[Work, Pending[Status | None]] = {}
        self._idle: Pending[None] | None = None
        self._renewing = False
        most = consuming.settings.max_reconsume_times
        self._most = UNLIMITED if most < 0 else most

    @property
    def in_flight(self) -> int:
        """Messages that listeners have."""
        return sum(len(work.messages) for work in self._works)

    @property
    def _is_locking(self) -> bool:
        return not self._consuming.settings.is_broadcasting

    def begin(self, process_queue: ProcessQueue) -> None:
        kernel = self._consuming.instance.kernel
        if self._is_locking and not self._renewing:
            self._renewing = True
            kernel.keep(self._renew, "locks")
        kernel.keep(lambda: self._consume(process_queue), f"consume {process_queue.queue}")

    def arrived(self, process_queue: ProcessQueue, messages: Sequence[ReceivedMessage]) -> None:
        pass  # who consumes the queue has been woken

    # -- locks -------------------------------------------------------------------------------------------------------

    async def lock(self, queues: Sequence[Queue]) -> set[Queue]:
        return {queue for queue, is_ours in (await self._ask(queues)).items() if is_ours}

    async def _ask(self, queues: Sequence[Queue]) -> dict[Queue, bool]:
        """Whether they are ours; without those whose broker does not say."""
        said: dict[Queue, bool] = {}
        for broker, some in _by_broker(queues):
            locked = await self._lock_at(broker, some)
            if locked is not None:
                said |= {queue: queue in locked for queue in some}
        return said

    async def _lock_at(self, broker: str, queues: Sequence[Queue]) -> set[Queue] | None:
        instance = self._consuming.instance
        address = instance.routes.master(broker)
        try:
            if address is None:
                return None
            answer = await instance.network.request(
                address, RequestCode.LOCK_BATCH_MQ, {}, self._body(queues), timeout_ms=TIMEOUT_MS
            )
            if answer.code != Code.SUCCESS:
                log.warning("event=lock_refused broker=%s code=%d remark=%s", broker, answer.code, answer.remark)
                return None
            names = msgspec.json.decode(answer.body, type=_Locked).lockOKMQSet
        except (ClientError, *UNREADABLE) as error:
            log.warning("event=lock_failed group=%s broker=%s error=%s", self._consuming.group, broker, error)
            return None
        return {Queue(name.topic, name.brokerName, name.queueId) for name in names} & set(queues)

    def _body(self, queues: Iterable[Queue]) -> bytes:
        return msgspec.json.encode(
            {
                "consumerGroup": self._consuming.group, "clientId": self._consuming.instance.client_id,
                "mqSet": [
                    {"topic": queue.topic, "brokerName": queue.broker, "queueId": queue.queue_id} for queue in queues
                ],
                "onlyThisBroker": False,
            }
        )  # fmt: skip

    async def _renew(self) -> None:
        kernel = self._consuming.instance.kernel
        while True:
            await kernel.sleep_ms(self._consuming.settings.lock_renew_ms)
            await self._relock([each for each in self._consuming.queues.values() if not each.is_dropped])

    async def _relock(self, process_queues: Sequence[ProcessQueue]) -> None:
        asked_ms = self._consuming.instance.kernel.now_ms
        said = await self._ask([each.queue for each in process_queues])
        for each in process_queues:
            if said.get(each.queue):
                each.locked(asked_ms)  # the loan began no later than the broker had the request
            elif each.queue in said and each.is_locked:
                log.warning("event=lock_lost group=%s queue=%s", self._consuming.group, each.queue)
                each.is_locked = False

    async def release(self, queues: Sequence[Queue]) -> None:
        if not self._is_locking:
            return
        instance = self._consuming.instance
        for broker, some in _by_broker(queues):
            address = instance.routes.master(broker)
            if address is None:
                continue
            try:
                await instance.network.request(
                    address, RequestCode.UNLOCK_BATCH_MQ, {}, self._body(some), timeout_ms=TIMEOUT_MS
                )
            except ClientError as error:
                log.info("event=unlock_failed group=%s broker=%s error=%s", self._consuming.group, broker, error)

    # -- consuming ---------------------------------------------------------------------------------------------------

    async def _consume(self, process_queue: ProcessQueue) -> None:
        consuming = self._consuming
        kernel = consuming.instance.kernel
        began_ms = kernel.now_ms
        process_queue.put_back()  # where this has failed before, it may have had some
        process_queue.is_consuming = False
        while not process_queue.is_dropped and not consuming.is_closing:
            if self._is_locking and not process_queue.is_lock_trusted(kernel.now_ms):
                await kernel.sleep_ms(EXPIRED_MS if process_queue.is_locked else NOT_LOCKED_MS)
                if not process_queue.is_dropped:
                    await self._relock([process_queue])
                    if not process_queue.is_lock_trusted(kernel.now_ms):
                        await kernel.sleep_ms(consuming.settings.lock_again_ms)
                continue
            if process_queue.reread:
                try:
                    await consuming.read_again(process_queue)
                except ClientError as error:
                    log.warning("event=committed_offset_unknown queue=%s error=%s", process_queue.queue, error)
                    await kernel.sleep_ms(consuming.settings.lock_again_ms)
                continue
            if kernel.now_ms - began_ms > consuming.settings.longest_run_ms:
                await kernel.sleep_ms(BREATHER_MS)
                began_ms = kernel.now_ms
                continue
            messages = process_queue.take(consuming.settings.batch_size)
            if not messages:
                process_queue.arrived = Pending()
                await process_queue.arrived
                began_ms = kernel.now_ms
                continue
            work = Work(self._listener, messages, process_queue, self._finished)
            process_queue.is_consuming = True
            answer = self._works[work] = Pending()
            consuming.instance.driver.submit([work])
            status = await answer
            if work.is_skipped:
                process_queue.put_back()
                process_queue.is_consuming = False
                self._look_whether_idle()
                return
            process_queue.last_consume_ms = kernel.now_ms
            pause_ms = await self._finish(process_queue, messages, status, work.context)
            process_queue.is_consuming = False
            self._look_whether_idle()
            if pause_ms:
                await kernel.sleep_ms(pause_ms)

    def _finished(self, work: Work, status: Status | None, error: BaseException | None) -> None:
        if error is not None:
            log.error(
                "event=listener_failed group=%s message=%r", self._consuming.group, work.messages[0], exc_info=error
            )
        answer = self._works.pop(work, None)
        if answer is not None:
            answer.set(status)

    async def _finish(
        self, process_queue: ProcessQueue, messages: Sequence[ReceivedMessage], status: Status | None, context: Context
    ) -> float:
        """What a listener has said is carried out. How long to wait before the next, ms."""
        consuming = self._consuming
        if status is Status.SUCCESS:
            consuming.counters.consumed += len(messages)
        elif await self._comes_again(process_queue, messages):
            process_queue.put_back()
            pause_ms = context.suspend_ms if context.suspend_ms >= 0 else consuming.settings.suspend_ms
            return min(max(pause_ms, MIN_SUSPEND_MS), MAX_SUSPEND_MS)
        offset = process_queue.commit()
        # A queue that was dropped meanwhile is still ours at the broker: it waits for us.
        if offset >= 0 and (not self._is_locking or process_queue.is_lock_trusted(consuming.instance.kernel.now_ms)):
            consuming.store.update(process_queue.queue, offset, only_forward=True)
        return 0

    async def _comes_again(self, process_queue: ProcessQueue, messages: Sequence[ReceivedMessage]) -> bool:
        """Whether any of them does. Those that were tried often enough go to the group's retry topic, which makes dead
        letters of them; broadcasting, they are dropped."""
        consuming = self._consuming
        consuming.counters.failed += len(messages)
        again = False
        for message in messages:
            if message.reconsume_times < self._most:
                again = True
            elif consuming.settings.is_broadcasting:
                consuming.counters.dropped += 1
                log.warning("event=message_dropped group=%s message=%r", consuming.group, message)
                process_queue.settle(message)
            else:
                try:
                    await self._producing.send_again(message, consuming.group, self._most)
                    consuming.counters.nacked += 1
                    process_queue.settle(message)
                except ClientError as error:
                    log.warning("event=send_back_failed group=%s message=%r error=%s", consuming.group, message, error)
                    again = True
            message.reconsume_times += 1
        return again

    # -- the end -----------------------------------------------------------------------------------------------------

    async def quiet(self, process_queue: ProcessQueue) -> bool:
        kernel = self._consuming.instance.kernel
        until_ms = kernel.now_ms + self._consuming.settings.handover_ms
        while process_queue.is_consuming and kernel.now_ms < until_ms:
            await kernel.sleep_ms(MIN_SUSPEND_MS)
        return not process_queue.is_consuming

    def _look_whether_idle(self) -> None:
        if self._idle is not None and not any(each.is_consuming for each in self._consuming.queues.values()):
            self._idle.set(None)

    async def end(self) -> None:
        self._idle = Pending()
        self._look_whether_idle()
        await self._consuming.instance.kernel.within_ms(self._idle, self._consuming.settings.shutdown_ms)


def _by_broker(queues: Sequence[Queue]) -> list[tuple[str, list[Queue]]]:
    found: dict[str, list[Queue]] = {}
    for queue in queues:
        found.setdefault(queue.broker, []).append(queue)
    return list(found.items())
