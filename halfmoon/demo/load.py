"""Records into topics with confluent-kafka, going on from where a killed load stopped.

How a load goes on without duplicates: the dataset's order and its rule for partitions are fixed, so record n of a
partition is known. The producer is idempotent, so a partition never holds a record twice nor skips one. Then the
partition's end offset *is* the number of its records already there, and the rest is what is missing. That the topic
holds this dataset and not something else is checked by comparing the last record of each partition.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition

from halfmoon.demo.source import Dataset, Record
from halfmoon.pipeline.admin import Admin
from halfmoon.pipeline.brokers import Bootstrap, brokers
from halfmoon.pipeline.checksum import Checksum, record_number
from halfmoon.pipeline.errors import PipelineError
from halfmoon.pipeline.sending import LOOK_EVERY, Sender

REQUEST_TIMEOUT_S = 20
GROUP = "halfmoon-demo"
"""Of consumers, which never join it, and of half messages."""


@dataclass(slots=True, frozen=True)
class Loaded:
    """One topic after its load. `checksum` is over all records it should hold, from the source, not from the topic."""

    topic: str
    checksum: Checksum
    sent: int
    seconds: float
    ends: dict[int, int] = field(default_factory=dict)


def ensure_topic(bootstrap: Bootstrap, topic: str, partitions: int) -> int:
    """Create the topic unless it exists, and return its number of partitions.

    `retention.ms=-1`: the records are of 2013, and Kafka counts retention from a record's own time.
    """
    return Admin(bootstrap).ensure_topic(topic, partitions, {"retention.ms": "-1"})


class TopicView:
    """Reads a topic's ends and single records; commits nothing and joins no group."""

    def __init__(self, bootstrap: Bootstrap) -> None:
        self._consumer = Consumer(
            brokers(bootstrap).confluent(group_id=GROUP, enable_auto_commit=False, isolation_level="read_committed")
        )

    def __enter__(self) -> TopicView:
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()

    def bounds(self, topic: str, partition: int) -> tuple[int, int]:
        """First and next offset. A leader that is not known yet is asked again until the time is up."""
        deadline = time.monotonic() + REQUEST_TIMEOUT_S
        while True:
            try:
                first, end = self._consumer.get_watermark_offsets(
                    TopicPartition(topic, partition), timeout=REQUEST_TIMEOUT_S
                )
                return int(first), int(end)
            except KafkaException as failed:
                if time.monotonic() > deadline:
                    raise PipelineError(f"cannot read the end of {topic}-{partition}: {failed.args[0].str()}") from None
                time.sleep(0.1)

    def ends(self, topic: str, partitions: int) -> dict[int, int]:
        return {partition: self.bounds(topic, partition)[1] for partition in range(partitions)}

    def record(self, topic: str, partition: int, offset: int) -> Record:
        self._consumer.assign([TopicPartition(topic, partition, offset)])
        message = self._consumer.poll(REQUEST_TIMEOUT_S)
        error = None if message is None else message.error()
        if message is None or error is not None:
            reason = "no answer" if error is None else error.str()
            raise PipelineError(f"cannot read {topic}-{partition} at {offset}: {reason}")
        # The library's types allow more forms of headers than it hands out: they are (name, bytes or None) here.
        headers: Any = tuple(message.headers() or ())
        return Record(message.timestamp()[1], message.key(), message.value() or b"", headers)


def load(
    bootstrap: Bootstrap,
    dataset: Dataset,
    *,
    rows: int | None = None,
    on_progress: Callable[[int, int], None] = lambda _done, _total: None,
    check_alive: Callable[[], None] = lambda: None,
) -> Loaded:
    """Bring the topic to hold at least the first `rows` records of the dataset (all, by default), each once.

    A topic that holds more already keeps it. `on_progress(done, total)` and `check_alive` are called every few thousand
    records; what `check_alive` raises ends the load. Raises PipelineError if the topic holds something else, or if a
    record could not be delivered.
    """
    started = time.monotonic()
    topic = dataset.topic
    partitions = ensure_topic(bootstrap, topic, dataset.partitions)
    places = [dataset.partition(index, partitions) for index in range(len(dataset))]
    with TopicView(bootstrap) as view:
        present = _present(view, dataset, partitions, places)
        total = max(len(dataset) if rows is None else min(rows, len(dataset)), covering(places, present))
        checksum, sent = _send(bootstrap, dataset, places[:total], present, on_progress, check_alive)
        ends = view.ends(topic, partitions)
    expected = counts(places[:total], partitions)
    if ends != expected:
        raise PipelineError(f"topic {topic} ends at {ends}, expected {expected}: does another producer write to it?")
    return Loaded(topic, checksum, sent, time.monotonic() - started, ends)


def counts(places: list[int], partitions: int) -> dict[int, int]:
    """How many records each partition gets."""
    found = dict.fromkeys(range(partitions), 0)
    for partition in places:
        found[partition] += 1
    return found


def covering(places: list[int], present: dict[int, int]) -> int:
    """The fewest leading records of the dataset that contain all that is present: {partition: how many}."""
    missing = dict(present)
    left = sum(missing.values())
    for index, partition in enumerate(places):
        if left == 0:
            return index
        if missing[partition]:
            missing[partition] -= 1
            left -= 1
    return len(places)


def _present(view: TopicView, dataset: Dataset, partitions: int, places: list[int]) -> dict[int, int]:
    """{partition: records there}, after checking that they are this dataset's."""
    present: dict[int, int] = {}
    seen = counts([], partitions)
    index_of_last: dict[int, int] = {}
    for partition in range(partitions):
        first, present[partition] = view.bounds(dataset.topic, partition)
        if first != 0:
            raise PipelineError(f"{dataset.topic}-{partition} begins at {first}: its beginning has been deleted")
    for index, partition in enumerate(places):
        seen[partition] += 1
        if seen[partition] == present[partition]:
            index_of_last[partition] = index
    for partition, end in present.items():
        if end == 0:
            continue
        last = index_of_last.get(partition)
        if last is None or view.record(dataset.topic, partition, end - 1) != dataset.record(last):
            raise PipelineError(f"topic {dataset.topic} holds something else than this data: delete it first")
    return present


def _send(
    bootstrap: Bootstrap,
    dataset: Dataset,
    places: list[int],
    present: dict[int, int],
    on_progress: Callable[[int, int], None],
    check_alive: Callable[[], None],
) -> tuple[Checksum, int]:
    next_offset = dict.fromkeys(present, 0)
    count = total = 0

    def look_up() -> None:
        check_alive()
        waiting = sender.sent - sender.acknowledged
        on_progress(count - waiting, len(places))

    with Sender(bootstrap, dataset.topic, look_up) as sender:
        for index, partition in enumerate(places):
            record = dataset.record(index)
            offset = next_offset[partition]
            next_offset[partition] = offset + 1
            total += record_number(partition, offset, *record)
            count += 1
            if offset >= present[partition]:
                sender.send(record.value, record.key, partition, record.timestamp_ms, record.headers)
            elif count % LOOK_EVERY == 0:
                look_up()
    return Checksum(count, total), sender.sent
