"""The consumer's loop (`loop.py`) for aiokafka.

aiokafka rebalances in the background, also while records are handled. So before partitions are taken away, the listener
waits until the record at hand is done and all of that is committed; what was polled and is not handled is forgotten,
since it is redelivered to whoever has the partition then.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from halfmoon.kafka.handling import BACKOFF_S, Done, Rules
from halfmoon.kafka.loop import BATCH, FLUSH_TIMEOUT_S, POLL_S, SIGNALS
from halfmoon.kafka.nacking import Nack

log = logging.getLogger("halfmoon.kafka")


class AsyncConsumerLoop:
    """For an aiokafka.AIOKafkaConsumer, which must not commit automatically; the loop starts, subscribes and stops it.

    Arguments and counters are those of `ConsumerLoop`. `handle` is an `async def`, or a function, which must be fast.
    `signals` stop it where the event loop is in the main thread.
    """

    def __init__(
        self,
        consumer: Any,
        topics: Sequence[str],
        handle: Callable[[Any], object],
        *,
        nack: Nack | None = None,
        retries: int = 0,
        backoff_s: float = BACKOFF_S,
        no_retry: Sequence[type[Exception]] = (),
        batch: int = BATCH,
        on_poll: Callable[[], object] | None = None,
        signals: Sequence[signal.Signals] = SIGNALS,
    ) -> None:
        if isinstance(topics, str):
            raise TypeError("topics is a sequence of names, not one name")
        if not hasattr(consumer, "getmany"):
            raise TypeError("this is no consumer of aiokafka: use ConsumerLoop")
        if getattr(consumer, "_enable_auto_commit", False):
            raise ValueError("the consumer commits automatically: set enable_auto_commit=False")
        self._consumer = consumer
        self._topics = [*topics, *([nack.topic] if nack is not None else [])]
        self._handle = handle
        self._rules = Rules(nack, retries, backoff_s, no_retry)
        self._batch = batch
        self._on_poll = on_poll
        self._signals = signals
        self._done = Done()
        self._stopping = asyncio.Event()
        self._round = asyncio.Lock()
        """Held while records are handled and committed."""
        self._is_revoking = False

    @property
    def handled(self) -> int:
        return self._rules.handled

    @property
    def nacked(self) -> int:
        return self._rules.nacked

    @property
    def dead_lettered(self) -> int:
        return self._rules.dead_lettered

    def stop(self) -> None:
        """Have `run` return after the record at hand. In the event loop's thread; does not wait."""
        self._stopping.set()

    async def run(self) -> None:
        """As `ConsumerLoop.run`. A task that is cancelled commits what was handled and leaves the group, too."""
        with self._stopped_by_signals():
            try:
                self._consumer.subscribe(self._topics, listener=_listener(self))
                await self._consumer.start()
                while not self._stopping.is_set():
                    if self._on_poll is not None:
                        await _awaited(self._on_poll())
                    await self._poll_once()
            finally:
                await self._consumer.stop()

    async def revoking(self) -> None:
        """The group is about to take partitions away."""
        self._is_revoking = True
        async with self._round:
            self._is_revoking = False

    async def _poll_once(self) -> None:
        timeout_ms = int(POLL_S * 1_000)
        found = await self._consumer.getmany(timeout_ms=timeout_ms, max_records=self._batch)
        async with self._round:
            try:
                for place, records in found.items():
                    for record in records:
                        if self._stopping.is_set() or self._is_revoking:
                            return
                        if place not in self._consumer.assignment():
                            break
                        await self._handle_one(record)
                        await asyncio.sleep(0)  # a function that never waits would keep out signals and heartbeats
            finally:
                await asyncio.shield(self._commit())

    async def _handle_one(self, record: Any) -> None:
        attempt = 1
        while True:
            try:
                await _awaited(self._handle(record))
            except Exception as error:
                wait_s = self._rules.again_after_s(record, error, attempt, self._stopping.is_set())
                if wait_s is None:
                    self._rules.failed(record, error)
                    break
                try:
                    await asyncio.wait_for(self._stopping.wait(), wait_s)
                except TimeoutError:
                    pass
                attempt += 1
            else:
                self._rules.handled += 1
                break
        self._done.add(record)

    async def _commit(self) -> None:
        from aiokafka import TopicPartition, errors

        if not self._done.offsets:
            return
        if self._rules.nack is not None:
            await self._rules.nack.flush(FLUSH_TIMEOUT_S)
        lost = (
            errors.CommitFailedError, errors.IllegalStateError, errors.RebalanceInProgressError,
            errors.IllegalGenerationError, errors.UnknownMemberIdError,
        )  # fmt: skip
        try:
            await self._consumer.commit({TopicPartition(*place): offset for place, offset in self._done.take().items()})
        except lost as error:
            log.warning("event=commit_lost error=%r", error)

    @contextmanager
    def _stopped_by_signals(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        loop = asyncio.get_running_loop()
        before = {number: signal.getsignal(number) or signal.SIG_DFL for number in self._signals}

        def stop(number: signal.Signals) -> None:
            self._stopping.set()
            restore(number)

        def restore(number: signal.Signals) -> None:
            if loop.remove_signal_handler(number):
                signal.signal(number, before[number])

        for number in self._signals:
            loop.add_signal_handler(number, stop, number)
        try:
            yield
        finally:
            for number in self._signals:
                restore(number)


async def _awaited(result: Any) -> Any:
    return await result if inspect.isawaitable(result) else result


def _listener(consumer_loop: AsyncConsumerLoop) -> Any:
    from aiokafka import ConsumerRebalanceListener

    class Listener(ConsumerRebalanceListener):  # type: ignore[misc,unused-ignore]
        async def on_partitions_revoked(self, revoked: Any) -> None:
            await consumer_loop.revoking()

        async def on_partitions_assigned(self, assigned: Any) -> None:
            pass

    return Listener()
