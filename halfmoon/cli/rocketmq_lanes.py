"""Messages on their way to a topic's queues, each queue's in order.

RocketMQ's brokers take up the requests of one connection side by side: what is to be stored in order has to wait for
the answer before, and who sends thousands at once is told that the broker is busy. So each queue has a lane with one
request under way, and what comes meanwhile is its next request, a batch.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from threading import Lock
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from halfmoon.client import Message, Producer, Queue, SendResult, SendStatus

BATCH_BYTES = 256 << 10
BATCH_MESSAGES = 1_000
LAST_WAIT_S = 2.0
"""For what is not answered when an error or Ctrl-C ends the command."""


class Stored(NamedTuple):
    """What has become of a message."""

    partition: int
    offset: int
    message_id: str
    status: SendStatus


class _Waiting(NamedTuple):
    message: Message
    stored: Future[Stored]

    def goes_with(self, other: _Waiting) -> bool:
        """Whether RocketMQ takes the two in one batch."""
        return not (self.is_delayed or other.is_delayed) and self.message.wait_for_disk == other.message.wait_for_disk

    @property
    def is_delayed(self) -> bool:
        message = self.message
        return bool(message.delay_level or message.delay_ms or message.deliver_at_ms)


class Lanes:
    """A lane for each queue, and one for messages that may go to any: the client's next one."""

    def __init__(self, producer: Producer, queues: Sequence[Queue]) -> None:
        self._producer = producer
        self._lanes: dict[Queue | None, _Lane] = {}
        self._pool = ThreadPoolExecutor(len(queues) + 1, thread_name_prefix="halfmoon-lane")
        self._runs: set[Future[None]] = set()

    @contextmanager
    def running(self) -> Iterator[Lanes]:
        """At the end, what is not answered is given a moment; what is still waiting then is dropped."""
        try:
            yield self
        finally:
            wait(self._runs, LAST_WAIT_S)
            for lane in self._lanes.values():
                lane.is_over = True
            self._pool.shutdown(wait=False, cancel_futures=True)

    def send(self, message: Message, queue: Queue | None) -> Future[Stored]:
        """It fails with ClientError. Of a lane where one has failed, the others are never done."""
        lane = self._lanes.get(queue)
        if lane is None:
            lane = self._lanes[queue] = _Lane(self._producer, queue)
        stored: Future[Stored] = Future()
        if lane.put(_Waiting(message, stored)):
            run = self._pool.submit(lane.run)
            self._runs.add(run)
            run.add_done_callback(self._runs.discard)
        return stored


class _Lane:
    """One thread fills it, another one, if there is something in it, empties it."""

    def __init__(self, producer: Producer, queue: Queue | None) -> None:
        self.is_over = False
        self._producer = producer
        self._queue = queue
        self._waiting: deque[_Waiting] = deque()
        self._is_busy = False
        self._lock = Lock()

    def put(self, waiting: _Waiting) -> bool:
        """Whether `run` is to be called."""
        with self._lock:
            self._waiting.append(waiting)
            is_idle, self._is_busy = not self._is_busy, True
        return is_idle

    def run(self) -> None:
        """Until nothing is left."""
        while batch := self._next():
            self._send(batch)

    def _next(self) -> list[_Waiting]:
        with self._lock:
            waiting = self._waiting
            if self.is_over or not waiting:
                self._is_busy = False
                return []
            batch = [waiting.popleft()]
            room = BATCH_BYTES - len(batch[0].message.body)
            while waiting and len(batch) < BATCH_MESSAGES and waiting[0].goes_with(batch[0]):
                room -= len(waiting[0].message.body)
                if room < 0:
                    break
                batch.append(waiting.popleft())
            return batch

    def _send(self, batch: list[_Waiting]) -> None:
        from halfmoon.client import BrokerRefusedError, MessageError

        if self.is_over:
            return
        messages = [each.message for each in batch]
        try:
            if len(messages) == 1:
                results = [self._producer.send(messages[0], queue=self._queue)]
            else:
                results = self._producer.send_batch(messages, queue=self._queue)
            for each, stored in zip(batch, _places(results), strict=True):
                each.stored.set_result(stored)
        except (BrokerRefusedError, MessageError) as error:
            if len(batch) == 1:
                self._failed(batch, error)
                return
            # Nothing of it is stored, because of one of them, or because together they are too much.
            half = len(batch) // 2
            self._send(batch[:half])
            self._send(batch[half:])
        except BaseException as error:  # handed to who waits
            self._failed(batch, error)

    def _failed(self, batch: list[_Waiting], error: BaseException) -> None:
        self.is_over = True
        for each in batch:
            if not each.stored.done():
                each.stored.set_exception(error)


def _places(results: Sequence[SendResult]) -> Iterator[Stored]:
    """Of each message: an answer for many has all their ids, and the first one's offset."""
    for result in results:
        for nth, message_id in enumerate(result.message_id.split(",")):
            yield Stored(result.queue.queue_id, result.queue_offset + nth, message_id, result.status)
