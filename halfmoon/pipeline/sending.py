"""Records into a topic from the driver, by confluent-kafka: each once, with its timestamp, as fast as it goes.

For what Spark's sink cannot do: it has no timestamps, and writes again what it tries again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any

from confluent_kafka import KafkaException, Producer

from halfmoon.pipeline.brokers import Bootstrap, brokers
from halfmoon.pipeline.errors import PipelineError

DELIVERY_TIMEOUT_MS = 60_000
LARGEST_BYTES = 1_000_000_000
"""Of a message, to librdkafka: what is too large says the broker."""
LOOK_EVERY = 1_000
"""Records between looks at what became of those before."""

Headers = Sequence[tuple[str, bytes | None]]


class Sender:
    """An idempotent, gapless producer for one topic: what has arrived of a partition is always a beginning of it.

    As a context manager it waits at the end until everything is acknowledged; a block that raises drops what is still
    to be sent. `on_look` is called every thousand records, and some times a second while it waits; what it raises ends
    the block. Raises PipelineError for a record that the topic does not take.
    """

    def __init__(self, bootstrap: Bootstrap, topic: str, on_look: Callable[[], None] = lambda: None) -> None:
        self.sent = 0
        self._topic = topic
        self._on_look = on_look
        self._failure: str | None = None
        self._producer = Producer(
            brokers(bootstrap).confluent()
            | {
                "enable.idempotence": True,
                "enable.gapless.guarantee": True,
                "compression.type": "lz4",
                "linger.ms": 20,
                "queue.buffering.max.messages": 50_000,
                "message.max.bytes": LARGEST_BYTES,
                "message.timeout.ms": DELIVERY_TIMEOUT_MS,
                # Success is that flush() leaves nothing behind; a callback for each record would double the time.
                "delivery.report.only.error": True,
            }
        )

    @property
    def acknowledged(self) -> int:
        """How many of those that were sent."""
        return self.sent - len(self._producer)

    def send(self, value: bytes | None, key: bytes | None, partition: int, timestamp_ms: int, headers: Headers) -> None:
        """Hand one record over; waits while there is no room. The timestamp 0 is sent as 1: librdkafka takes 0 for
        "now"."""
        stamped: list[tuple[str, str | bytes | None]] = list(headers)
        while True:
            try:
                self._producer.produce(
                    self._topic, value, key, partition,
                    timestamp=timestamp_ms or 1, headers=stamped, on_delivery=self._ended,
                )  # fmt: skip
                break
            except BufferError:
                self.wait(0.05)
            except KafkaException as refused:
                raise self._refused(refused.args[0].str()) from None
        self.sent += 1
        if self.sent % LOOK_EVERY == 0:
            self.wait(0)

    def wait(self, seconds: float) -> None:
        """Let the producer work for so long, and look at what has become of what was sent."""
        self._producer.poll(seconds)
        self._look()

    def __enter__(self) -> Sender:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        try:
            if error is None:
                while self._producer.flush(0.2):
                    self._look()
                self._look()
        except BaseException:
            self._producer.purge()
            raise
        if error is not None:
            self._producer.purge()  # Else the producer's end would wait for records nobody wants any more.

    def _look(self) -> None:
        if self._failure is not None:
            raise self._refused(self._failure)
        self._on_look()

    def _ended(self, error: Any, _message: Any) -> None:
        if error is not None and self._failure is None:
            self._failure = error.str()

    def _refused(self, why: str) -> PipelineError:
        return PipelineError(f"topic {self._topic} did not take a record: {why}")
