"""Sending a record of a helper with confluent-kafka, kafka-python or aiokafka, so that a refusal cannot go unseen.

The clients tell of a refusal in three ways: confluent-kafka calls a callback and says nothing else, kafka-python
completes a future, aiokafka awaits twice. Here each record gives one object that raises NotStoredError:

    confluent-kafka, kafka-python    a `Sent`, a concurrent.futures.Future: `result(timeout)`
    aiokafka                         an asyncio.Task: `await` it

Who does not look at each one calls `flush` or `close`, which raise if the broker has refused any. Each refusal is
logged as well.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Protocol

from halfmoon.errors import HalfmoonError
from halfmoon.kafka.clients import Header

log = logging.getLogger("halfmoon.kafka")

Headers = list[Header]

MOST_CHARACTERS = 200
"""Of a record's description: it may hold names of any length."""
MOST_REMEMBERED = 1_000
"""Refusals that wait for a flush, beside their number: who never flushes does not fill the memory."""
POLL_S = 0.1
"""confluent-kafka's callbacks run in whatever thread polls; one that waits may miss that another thread has polled."""
METADATA_TIMEOUT_S = 60.0
"""As librdkafka's `socket.timeout.ms`, and kafka-python's `max_block_ms`."""


class NotStoredError(HalfmoonError):
    """The broker has not stored a record, or nobody knows whether it has: `__cause__` is the client's own error."""


class Sending(Protocol):
    """One helper's records. `what` says in messages which record it is."""

    def send(
        self,
        what: str,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        headers: list[Header],
        partition: int | None,
    ) -> Any:
        """Something that waits for the broker's answer, see above."""
        ...

    def provide(self, topic: str) -> None:
        """Have the broker create its topic. Raises the client's error where that is not possible."""
        ...

    def flush(self, timeout: float | None) -> Any:
        """Wait for all answers. Raises NotStoredError if a record sent since the last flush was refused, TimeoutError
        after `timeout` seconds. To be awaited with aiokafka."""
        ...


class Helper:
    """What sends records by somebody else's producer, which stays theirs: it is not closed here."""

    def __init__(self, producer: Any) -> None:
        self._sending = sending(producer)
        self._closed = False

    def flush(self, timeout: float | None = None) -> Any:
        """Wait until the broker has answered all that was sent here; `await` it with aiokafka.

        Raises NotStoredError if the broker has refused a record since the last flush, also one whose `result` has said
        so. Raises TimeoutError if an answer is missing after `timeout` seconds.
        """
        return self._sending.flush(timeout)

    def close(self, timeout: float | None = None) -> Any:
        """`flush` for the last time: nothing can be sent afterwards. The producer stays open."""
        self._closed = True
        return self._sending.flush(timeout)

    def _send(
        self,
        what: str,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        headers: list[Header],
        partition: int | None,
    ) -> Any:
        if self._closed:
            raise ValueError(f"{type(self).__name__} is closed")
        return self._sending.send(what[:MOST_CHARACTERS], topic, value, key, headers, partition)


def sending(producer: Any) -> Sending:
    """For a confluent_kafka.Producer, kafka.KafkaProducer or aiokafka.AIOKafkaProducer; for None, one that cannot
    send."""
    if producer is None:
        return NoProducer()
    if hasattr(producer, "produce"):
        if inspect.iscoroutinefunction(producer.produce):
            raise TypeError("confluent_kafka.aio.AIOProducer sends no headers: give a confluent_kafka.Producer")
        return ConfluentSending(producer)
    return AwaitedSending(producer) if inspect.iscoroutinefunction(producer.send) else KafkaPythonSending(producer)


class Sent(Future[Any]):
    """A record on its way; complete when the broker has answered. `result` gives what the client says of the stored
    record."""

    def __init__(self, what: str, wait: Callable[[Sent, float | None], None] | None = None) -> None:
        super().__init__()
        self.what = what
        self._wait = wait
        self.set_running_or_notify_cancel()  # what is sent cannot be taken back

    def result(self, timeout: float | None = None) -> Any:
        """Wait until the record is stored. Raises NotStoredError, or TimeoutError after `timeout` seconds."""
        self._await(timeout)
        return super().result(None if self.done() else 0 if self._wait else timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait for the answer: NotStoredError, or None. Raises TimeoutError."""
        self._await(timeout)
        return super().exception(None if self.done() else 0 if self._wait else timeout)

    def get(self, timeout: float | None = None) -> Any:
        """`result`, by the name that it has in kafka-python's futures."""
        return self.result(timeout)

    def _await(self, timeout: float | None) -> None:
        if self._wait is not None and not self.done():
            self._wait(self, timeout)


class Refusals:
    """Those since the last flush."""

    def __init__(self) -> None:
        self._first: list[BaseException] = []
        self._count = 0

    def add(self, error: BaseException) -> None:
        log.error("event=not_stored error=%s", error)
        self._count += 1
        if len(self._first) < MOST_REMEMBERED:
            self._first.append(error)

    def tell(self) -> None:
        """Raises NotStoredError if there are any, and forgets them."""
        first, count = self._first, self._count
        self._first, self._count = [], 0
        if count == 1:
            raise first[0]
        if first:
            raise NotStoredError(f"{count} records are not stored, the first: {first[0]}") from first[0]


def not_stored(what: str, error: object) -> NotStoredError:
    return NotStoredError(f"{what} is not stored: {error}")


class BlockingSending:
    """For clients that threads use."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._unanswered: set[Sent] = set()
        self._refused = Refusals()

    def flush(self, timeout: float | None) -> None:
        deadline = None if timeout is None else time.monotonic() + timeout
        with self._lock:
            unanswered = list(self._unanswered)
        for sent in unanswered:
            try:
                sent.exception(None if deadline is None else max(0.0, deadline - time.monotonic()))
            except TimeoutError:
                raise TimeoutError(f"no answer after {timeout} s to {sent.what}") from None
        with self._lock:
            self._refused.tell()

    def _track(self, sent: Sent) -> None:
        with self._lock:
            self._unanswered.add(sent)

    def _untrack(self, sent: Sent) -> None:
        """It was never sent: who called has the error."""
        with self._lock:
            self._unanswered.discard(sent)

    def _answered(self, sent: Sent, value: object, error: BaseException | None) -> None:
        refusal = None if error is None else not_stored(sent.what, error)
        if refusal is not None:
            refusal.__cause__ = error
        with self._lock:
            self._unanswered.discard(sent)
            if refusal is not None:
                self._refused.add(refusal)
        if refusal is None:
            sent.set_result(value)
        else:
            sent.set_exception(refusal)


class ConfluentSending(BlockingSending):
    """confluent-kafka: answers come in a callback, which runs while some thread polls."""

    def __init__(self, producer: Any) -> None:
        super().__init__()
        self._producer = producer

    def send(
        self,
        what: str,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        headers: list[Header],
        partition: int | None,
    ) -> Sent:
        from confluent_kafka import KafkaException

        sent = Sent(what, self._poll)

        def delivered(error: Any, message: Any) -> None:
            self._answered(sent, message, None if error is None else KafkaException(error))

        where = {} if partition is None else {"partition": partition}
        self._track(sent)
        try:
            self._producer.produce(topic, value=value, key=key, headers=headers, on_delivery=delivered, **where)
        except BaseException:
            self._untrack(sent)
            raise
        self._producer.poll(0)
        return sent

    def provide(self, topic: str) -> None:
        from confluent_kafka import KafkaException

        error = self._producer.list_topics(topic, timeout=METADATA_TIMEOUT_S).topics[topic].error
        if error is not None:
            raise KafkaException(error)

    def _poll(self, sent: Sent, timeout: float | None) -> None:
        deadline = None if timeout is None else time.monotonic() + timeout
        while not sent.done():
            left = POLL_S if deadline is None else min(POLL_S, deadline - time.monotonic())
            self._producer.poll(max(0.0, left))
            if left <= 0:
                return


class KafkaPythonSending(BlockingSending):
    """kafka-python: futures, completed by a thread of its own."""

    def __init__(self, producer: Any) -> None:
        super().__init__()
        self._producer = producer

    def send(
        self,
        what: str,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        headers: list[Header],
        partition: int | None,
    ) -> Sent:
        sent = Sent(what)
        self._track(sent)
        try:
            future = self._producer.send(topic, value=value, key=key, headers=headers, partition=partition)
        except BaseException:
            self._untrack(sent)
            raise
        future.add_callback(lambda value: self._answered(sent, value, None))
        future.add_errback(lambda error: self._answered(sent, None, error))
        return sent

    def provide(self, topic: str) -> None:
        self._producer.partitions_for(topic)


class AwaitedSending:
    """aiokafka: coroutines. All in the thread of one event loop."""

    def __init__(self, producer: Any) -> None:
        self._producer = producer
        self._unanswered: set[asyncio.Task[Any]] = set()
        self._refused = Refusals()
        self._provided: asyncio.Task[None] | None = None

    def send(
        self,
        what: str,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        headers: list[Header],
        partition: int | None,
    ) -> asyncio.Task[Any]:
        task = asyncio.get_running_loop().create_task(self._send(what, topic, value, key, headers, partition))
        self._unanswered.add(task)
        task.add_done_callback(lambda task: self._answered(what, task))
        return task

    async def _send(self, what: str, topic: str, value: Any, key: Any, headers: Headers, partition: Any) -> Any:
        try:
            future = await self._producer.send(topic, value=value, key=key, headers=headers, partition=partition)
            return await future
        except Exception as error:
            raise not_stored(what, repr(error)) from error

    def _answered(self, what: str, task: asyncio.Task[Any]) -> None:
        self._unanswered.discard(task)
        error = not_stored(what, "cancelled before the answer") if task.cancelled() else task.exception()
        if error is not None:
            self._refused.add(error)

    def provide(self, topic: str) -> None:
        """In the background: the producer may not have started yet, and waits until it has."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return  # made outside of the loop: the first who asks for the topic makes it
        self._provided = loop.create_task(self._provide(topic))

    async def _provide(self, topic: str) -> None:
        try:
            await self._producer.partitions_for(topic)
        except Exception as error:
            log.warning("event=topic_not_created topic=%s error=%r", topic, error)

    async def flush(self, timeout: float | None) -> None:
        if self._unanswered:
            _, late = await asyncio.wait(self._unanswered, timeout=timeout)
            if late:
                raise TimeoutError(f"no answer after {timeout} s to {len(late)} records")
        self._refused.tell()


class NoProducer:
    """Of a helper that is made for its names alone."""

    def send(self, *_: object) -> Any:
        raise TypeError("this helper was made without a producer")

    def provide(self, topic: str) -> None:
        pass

    def flush(self, timeout: float | None) -> None:
        pass
