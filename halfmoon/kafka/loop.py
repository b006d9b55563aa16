"""A consumer's loop that loses nothing: poll, handle, negatively acknowledge what failed, commit, and stop in order.

    def pay(record): ...                                  # raises: the record is redelivered later

    consumer = Consumer({..., "group.id": "billing", "enable.auto.commit": False})
    ConsumerLoop(consumer, ["orders"], pay, nack=Nack("billing", producer)).run()      # until SIGTERM or Ctrl-C

The order of a round:

    1. poll              nothing is uncommitted here: so a rebalance, which runs inside, takes nothing away
    2. handle each       one after the other; a stop ends this after the record at hand
    3. flush the nacks   the broker has stored them, else the loop ends with NotStoredError
    4. commit            what was handled, and what the broker has stored

So a record is handled at least once, and twice only after a crash, a lost commit or a handler that outlives the group's
patience (`max.poll.interval.ms`): `halfmoon.outbox`'s Inbox recognizes it.
"""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

from halfmoon.kafka.handling import BACKOFF_S, Done, Rules
from halfmoon.kafka.nacking import Nack
from halfmoon.kafka.polling import CommitLostError, polling

BATCH = 100
POLL_S = 0.5
"""The longest a stop waits for a poll."""
SLEEP_S = 0.1
"""The longest a stop waits for a back-off. An event would not do: a signal's handler that sets one while its own thread
waits for it may wait for ever."""
FLUSH_TIMEOUT_S = 60.0
SIGNALS = (signal.SIGTERM, signal.SIGINT)

log = logging.getLogger("halfmoon.kafka")


class ConsumerLoop:
    """For a confluent_kafka.Consumer or a kafka.KafkaConsumer, which must not commit automatically; the loop subscribes
    and closes it. aiokafka has `AsyncConsumerLoop`.

    `topics`: those that the group consumes; the retry topic of `nack` is added. `handle`: called with each record;
    returns when it is done, and raises when it is not: RetryLater, DeadLetter, or anything else. `retries`: attempts
    here after a failure, before the record is negatively acknowledged, `backoff_s` after it, then twice as long.
    `no_retry`: exceptions that dead-letter a record at once. `batch`: records handled between two commits; with their
    time they must stay below `max.poll.interval.ms`. `on_poll`: called between two polls. `signals`: that stop it,
    where `run` is called in the main thread.

    `handled`, `nacked` and `dead_lettered` count records.
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
        self._client = polling(consumer)
        self._topics = [*topics, *([nack.topic] if nack is not None else [])]
        self._handle = handle
        self._rules = Rules(nack, retries, backoff_s, no_retry)
        self._batch = batch
        self._on_poll = on_poll
        self._signals = signals
        self._done = Done()
        self._is_stopping = False

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
        """Have `run` return after the record at hand; from any thread, and from the handler. Does not wait."""
        self._is_stopping = True

    def run(self) -> None:
        """Until a signal or `stop`; a second signal does what it does without the loop. Then, and also where it raises,
        what was handled is committed and the consumer leaves its group.

        Raises what the handler raised, where there is no `nack`, or where it is no Exception; NotStoredError or
        TimeoutError where the broker has not stored a negative acknowledgement; and errors of the client after which it
        cannot go on.
        """
        with self._stopped_by_signals():
            try:
                self._client.subscribe(self._topics)
                while not self._is_stopping:
                    if self._on_poll is not None:
                        self._on_poll()
                    try:
                        for record in self._client.poll(self._batch, POLL_S):
                            if self._is_stopping:
                                break
                            self._handle_one(record)
                    finally:
                        self._commit()
            finally:
                self._client.close()

    def _handle_one(self, record: Any) -> None:
        attempt = 1
        while True:
            try:
                self._handle(record)
            except Exception as error:
                wait_s = self._rules.again_after_s(record, error, attempt, self._is_stopping)
                if wait_s is None:
                    self._rules.failed(record, error)
                    break
                self._sleep(wait_s)
                attempt += 1
            else:
                self._rules.handled += 1
                break
        self._done.add(record)

    def _sleep(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while not self._is_stopping and (left := end - time.monotonic()) > 0:
            time.sleep(min(SLEEP_S, left))

    def _commit(self) -> None:
        if not self._done.offsets:
            return
        if self._rules.nack is not None:
            self._rules.nack.flush(FLUSH_TIMEOUT_S)
        try:
            self._client.commit(self._done.take())
        except CommitLostError as error:
            log.warning("event=commit_lost error=%s", error)

    @contextmanager
    def _stopped_by_signals(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        # None: a handler that Python did not set, and cannot restore.
        before = {number: signal.getsignal(number) or signal.SIG_DFL for number in self._signals}

        def stop(number: int, frame: FrameType | None) -> None:
            self._is_stopping = True
            signal.signal(number, before[signal.Signals(number)])

        for number in self._signals:
            signal.signal(number, stop)
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
