"""Concurrent consumption: messages of a queue side by side, in no order; what fails comes again later (B19, B20).

(org.apache.rocketmq.client.impl.consumer.ConsumeMessageConcurrentlyService.)
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from halfmoon.client.engine.consuming import PushConsuming
from halfmoon.client.engine.group_queries import RETRY_PREFIX
from halfmoon.client.engine.kernel import Pending
from halfmoon.client.engine.listening import Listener, Status, Work
from halfmoon.client.engine.process_queue import ProcessQueue
from halfmoon.client.engine.producing import Producing
from halfmoon.client.errors import BrokerRefusedError, ClientError, RouteError
from halfmoon.client.messages import ReceivedMessage
from halfmoon.error_classes import CLASS_HEADER, MESSAGE_HEADER, error_classes, error_message
from halfmoon.plugin import Queue
from halfmoon.remoting.codes import Code, RequestCode

MOST_RECONSUMED = 16
SEND_BACK_TIMEOUT_MS = 5_000
EXPIRED_LEVEL = 3

Why = Mapping[str, str]
"""What a negative acknowledgement says of the listener's error, by header; empty where it has raised none."""
_FIELDS: Why = {CLASS_HEADER: "errorClass", MESSAGE_HEADER: "errorMessage"}
"""The same as fields of the request; they are Halfmoon's own."""

log = logging.getLogger("halfmoon.client.consumer")


class ConcurrentService:
    """Of one consumer."""

    needs_lock = False

    def __init__(self, consuming: PushConsuming, producing: Producing, listener: Listener) -> None:
        self._consuming = consuming
        self._producing = producing
        self._listener = listener
        self._works: dict[Work, None] = {}
        """Submitted, and not finished."""
        self._handing_back = 0
        self._idle: Pending[None] | None = None
        self._cleaning = False
        most = consuming.settings.max_reconsume_times
        self._most = MOST_RECONSUMED if most < 0 else most

    @property
    def in_flight(self) -> int:
        """Messages that listeners have, or are to get."""
        return sum(len(work.messages) for work in self._works)

    def begin(self, process_queue: ProcessQueue) -> None:
        if not self._cleaning:
            self._cleaning = True
            self._consuming.instance.kernel.keep(self._clean_up, "clean-up")

    def arrived(self, process_queue: ProcessQueue, messages: Sequence[ReceivedMessage]) -> None:
        size = self._consuming.settings.batch_size
        self._submit(
            [
                Work(self._listener, messages[at : at + size], process_queue, self.finished)
                for at in range(0, len(messages), size)
            ]
        )

    def _submit(self, works: Sequence[Work]) -> None:
        for work in works:
            self._works[work] = None
        self._consuming.instance.driver.submit(works)

    def finished(self, work: Work, status: Status | None, error: BaseException | None) -> None:
        """A listener has said what became of its messages."""
        self._works.pop(work, None)
        process_queue, messages = work.process_queue, work.messages
        if not work.is_over:
            consuming = self._consuming
            process_queue.last_consume_ms = consuming.instance.kernel.now_ms
            if error is not None:
                log.error("event=listener_failed group=%s message=%r", consuming.group, messages[0], exc_info=error)
            count = 0
            if status is Status.SUCCESS:
                count = work.context.acknowledged
                count = len(messages) if count < 0 else min(count, len(messages))
            consumed, failed = messages[:count], messages[count:]
            if work.expired:
                consumed = [message for message in consumed if message.queue_offset not in work.expired]
                failed = [message for message in failed if message.queue_offset not in work.expired]
            consuming.counters.consumed += len(consumed)
            # Of a queue that was dropped, somebody else has them, and consumes them again.
            if not process_queue.is_dropped:
                if consumed:
                    self._dealt_with(process_queue, consumed)
                if failed:
                    self._failed(work, failed, error)
        self._look_whether_idle()

    def _dealt_with(self, process_queue: ProcessQueue, messages: Sequence[ReceivedMessage]) -> None:
        offset = process_queue.remove(messages)
        if offset >= 0 and not process_queue.is_dropped:
            self._consuming.store.update(process_queue.queue, offset, only_forward=True)

    # -- what fails --------------------------------------------------------------------------------------------------

    def _failed(self, work: Work, failed: Sequence[ReceivedMessage], error: BaseException | None) -> None:
        consuming = self._consuming
        consuming.counters.failed += len(failed)
        if consuming.settings.is_broadcasting:
            consuming.counters.dropped += len(failed)
            for message in failed:
                log.warning("event=message_dropped group=%s message=%r", consuming.group, message)
            self._dealt_with(work.process_queue, failed)
            return
        self._handing_back += 1
        consuming.instance.kernel.spawn(
            self._hand_back(work.process_queue, failed, work.context.delay_level, _said_of(error)), "hand back"
        )

    async def _hand_back(
        self, process_queue: ProcessQueue, failed: Sequence[ReceivedMessage], delay_level: int, why: Why
    ) -> None:
        again = []
        try:
            for message in failed:
                if await self._send_back(message, delay_level, why):
                    self._dealt_with(process_queue, [message])
                else:
                    message.reconsume_times += 1
                    again.append(message)
        finally:
            self._handing_back -= 1
            self._look_whether_idle()
        if again:
            await self._consuming.instance.kernel.sleep_ms(self._consuming.settings.consume_again_ms)
            if not process_queue.is_dropped and not self._consuming.is_closing:
                self.arrived(process_queue, again)

    async def _send_back(self, message: ReceivedMessage, delay_level: int, why: Why) -> bool:
        """Whether a broker has it, to be delivered again: by CONSUMER_SEND_MSG_BACK, else as a message of ours.
        RocketMQ ignores fields that it does not know."""
        consuming = self._consuming
        instance = consuming.instance
        fields = {
            "offset": str(message.physical_offset), "group": consuming.group, "delayLevel": str(delay_level),
            "originMsgId": message.message_id, "originTopic": message.topic, "unitMode": "false",
            "maxReconsumeTimes": str(self._most), "bname": message.queue.broker,
            **{_FIELDS[name]: text for name, text in why.items()},
        }  # fmt: skip
        try:
            address = instance.routes.master(message.queue.broker)
            if address is None:
                raise RouteError(f"broker {message.queue.broker} has no master")
            answer = await instance.network.request(
                address, RequestCode.CONSUMER_SEND_MSG_BACK, fields, timeout_ms=SEND_BACK_TIMEOUT_MS
            )
            if answer.code != Code.SUCCESS:
                raise BrokerRefusedError(answer.code, answer.remark, message.queue.broker)
        except ClientError as error:
            log.warning("event=send_back_failed group=%s message=%r error=%s", consuming.group, message, error)
            try:
                await self._producing.send_again(message, consuming.group, self._most, why)
            except ClientError as failure:
                log.warning("event=send_back_failed group=%s message=%r error=%s", consuming.group, message, failure)
                return False
        consuming.counters.nacked += 1
        self._see_to_retries()
        return True

    def _see_to_retries(self) -> None:
        """The group's retry topic may have been made just now: do not wait half a minute to hear of it."""
        topic = RETRY_PREFIX + self._consuming.group
        if not self._consuming.owned(topic) and self._consuming.instance.routes.known(topic) is None:
            self._consuming.rebalancing.soon()

    # -- what takes too long -----------------------------------------------------------------------------------------

    async def _clean_up(self) -> None:
        consuming = self._consuming
        timeout_ms = consuming.settings.consume_timeout_ms
        while True:
            await consuming.instance.kernel.sleep_ms(timeout_ms)
            if consuming.settings.is_broadcasting:
                continue
            counts: dict[Queue, int] = {}
            for work in list(self._works):
                queue = work.process_queue.queue
                is_late = 0 <= work.began_ms < consuming.instance.kernel.now_ms - timeout_ms
                left = len(work.messages) - len(work.expired)
                if work.is_over or work.process_queue.is_dropped or not is_late or not left:
                    continue
                counts[queue] = counts.get(queue, 0) + left
                if counts[queue] <= consuming.settings.most_expired or counts[queue] == left:
                    await self._expire(work)

    async def _expire(self, work: Work) -> None:
        for message in work.messages:
            if message.queue_offset in work.expired:
                continue
            log.warning("event=message_expired group=%s message=%r", self._consuming.group, message)
            if await self._send_back(message, EXPIRED_LEVEL, {}):
                self._consuming.counters.expired += 1
                work.expired.add(message.queue_offset)
                self._dealt_with(work.process_queue, [message])

    # -- the end -----------------------------------------------------------------------------------------------------

    async def lock(self, queues: Sequence[Queue]) -> set[Queue]:
        return set(queues)

    async def quiet(self, process_queue: ProcessQueue) -> bool:
        return True

    async def release(self, queues: Sequence[Queue]) -> None:
        pass

    def _look_whether_idle(self) -> None:
        if self._idle is None or self._handing_back or any(self._is_running(work) for work in self._works):
            return
        self._idle.set(None)

    def _is_running(self, work: Work) -> bool:
        return work.began_ms >= 0 and not work.is_over

    async def end(self) -> None:
        for work in self._works:
            if work.began_ms < 0:
                work.is_over = True
        self._idle = Pending()
        self._look_whether_idle()
        await self._consuming.instance.kernel.within_ms(self._idle, self._consuming.settings.shutdown_ms)


def _said_of(error: BaseException | None) -> Why:
    if error is None:
        return {}
    return {CLASS_HEADER: error_classes(error), MESSAGE_HEADER: error_message(error)}
