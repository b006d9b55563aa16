"""How long a broker takes to compact, what is left of it on disk, and what a running producer notices.

    python -m benchmarks.compaction BOOTSTRAP DATA_DIR [--halfmoon PID]

For Halfmoon and for Kafka alike, with librdkafka. The records are written while `min.compaction.lag.ms` keeps the
cleaner away; then the lag is taken back, and it is watched in the data directory until nothing is being written there
any more. Beside that a producer sends 500 messages a second to another topic, with acks=all, and notes how long each
takes: first with the cleaner at rest, then while it works. What is read back in the end must be the last record of each
key.

With Kafka, whose active segment is never cleaned, a first record of a new segment is sent after `segment.ms`.
"""

from __future__ import annotations

import argparse
import random
import threading
import time
import uuid
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

VALUE_BYTES = 100
RATE = 500
BASELINE_S = 10.0
SETTLED_S = 4.0
"""The cleaner is done when it has written nothing for so long after it began."""
LONGEST_S = 1800.0


def disk_bytes(directory: Path) -> int:
    """What the files take, allocated."""
    total = 0
    for path in directory.rglob("*"):
        try:
            total += path.stat().st_blocks * 512
        except FileNotFoundError:
            continue
    return total


def is_cleaning(directory: Path, halfmoon: int | None) -> bool:
    """Whether a cleaner is at work: the process that a Halfmoon has for it, or files that a Kafka writes."""
    if halfmoon is None:
        return any(path.suffix in (".cleaned", ".swap") for path in directory.glob("*/*"))
    return any(path.read_text() for path in Path(f"/proc/{halfmoon}/task").glob("*/children"))


class Latencies:
    """A producer at a fixed rate, in a thread."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 0})
        self._topic = topic
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._taken_ms: list[float] = []
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def take(self) -> list[float]:
        """Milliseconds of all since the last time."""
        with self._lock:
            taken, self._taken_ms = self._taken_ms, []
        return sorted(taken)

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        next_s = time.perf_counter()
        while not self._stop.is_set():
            begun = time.perf_counter()

            def delivered(error: Any, message: Any, begun: float = begun) -> None:
                assert error is None, error
                with self._lock:
                    self._taken_ms.append((time.perf_counter() - begun) * 1000)

            self._producer.produce(self._topic, b"x" * VALUE_BYTES, b"k", on_delivery=delivered)
            next_s += 1 / RATE
            while (left := next_s - time.perf_counter()) > 0:
                self._producer.poll(left)
        self._producer.flush(10)


def percentile(values: list[float], part: float) -> float:
    return values[min(len(values) - 1, int(len(values) * part))] if values else float("nan")


def said(name: str, values: list[float]) -> None:
    shown = "  ".join(f"p{100 * part:g} {percentile(values, part):.2f}" for part in (0.5, 0.99, 0.999))
    print(f"{name:28} {shown} ms, {len(values)} messages", flush=True)


def set_config(admin: AdminClient, topic: str, **configs: str) -> None:
    entries = [
        ConfigEntry(name.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
        for name, value in configs.items()
    ]
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
    admin.incremental_alter_configs([resource])[resource].result(30)


def fill(bootstrap: str, topic: str, records: int, keys: int) -> dict[bytes, bytes]:
    """Write the records; the last value of each key."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "linger.ms": 20,
            "batch.size": 1 << 20,
            "queue.buffering.max.messages": 500_000,
        }
    )
    chance = random.Random(1)
    last: dict[bytes, bytes] = {}
    padding = b"x" * (VALUE_BYTES - 8)
    for at in range(records):
        key = b"key-%08d" % chance.randrange(keys)
        value = b"%08d" % at + padding
        while True:
            try:
                producer.produce(topic, value, key)
                break
            except BufferError:
                producer.poll(0.1)
        last[key] = value
        if at % 10_000 == 0:
            producer.poll(0)
    assert producer.flush(120) == 0
    return last


def read_back(bootstrap: str, topic: str) -> tuple[int, dict[bytes, bytes]]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": uuid.uuid4().hex, "enable.auto.commit": False})
    place = TopicPartition(topic, 0, 0)
    _, end = consumer.get_watermark_offsets(place, timeout=30)
    consumer.assign([place])
    found: dict[bytes, bytes] = {}
    count, at = 0, 0
    while at < end:
        for message in consumer.consume(10_000, 5):
            assert message.error() is None, message.error()
            found[message.key()] = message.value()
            at = message.offset() + 1
            count += 1
    consumer.close()
    return count, found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bootstrap")
    parser.add_argument("data_dir", type=Path)
    parser.add_argument("--records", type=int, default=10_000_000)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--halfmoon", type=int, metavar="PID", help="the broker is this process, and no Kafka")
    options = parser.parse_args()
    admin = AdminClient({"bootstrap.servers": options.bootstrap})
    topic, other = f"compacted-{uuid.uuid4().hex[:6]}", f"other-{uuid.uuid4().hex[:6]}"
    configs = {
        "cleanup.policy": "compact",
        "min.compaction.lag.ms": "86400000",
        "min.cleanable.dirty.ratio": "0.01",
    }
    if options.halfmoon is None:
        configs |= {"segment.bytes": str(256 << 20), "segment.ms": "20000"}
    for created in admin.create_topics(
        [NewTopic(topic, 1, 1, config=configs), NewTopic(other, 1, 1)], operation_timeout=30
    ).values():
        created.result(30)
    begun = time.perf_counter()
    last = fill(options.bootstrap, topic, options.records, options.keys)
    print(f"{options.records} records of {len(last)} keys in {time.perf_counter() - begun:.1f} s", flush=True)
    if options.halfmoon is None:
        time.sleep(21)
    closing = Producer({"bootstrap.servers": options.bootstrap})
    closing.produce(topic, b"", b"end")
    closing.flush(10)
    last[b"end"] = b""
    latencies = Latencies(options.bootstrap, other)
    latencies.start()
    time.sleep(2)
    latencies.take()
    time.sleep(BASELINE_S)
    before = disk_bytes(options.data_dir)
    said("with the cleaner at rest", latencies.take())
    set_config(admin, topic, min_compaction_lag_ms="0", max_compaction_lag_ms="1000")
    asked = time.perf_counter()
    first_s = last_s = 0.0
    while time.perf_counter() - asked < LONGEST_S:
        now = time.perf_counter()
        if is_cleaning(options.data_dir, options.halfmoon):
            if not first_s:
                first_s = now
                latencies.take()
            last_s = now
        elif first_s and now - last_s > SETTLED_S:
            break
        time.sleep(0.1)
    said("while it works", latencies.take())
    latencies.stop()
    print(f"compacted in {last_s - first_s:.1f} s, begun {first_s - asked:.1f} s after it was allowed", flush=True)
    deadline = time.perf_counter() + 120
    while disk_bytes(options.data_dir) > before // 2 and time.perf_counter() < deadline:
        time.sleep(1)
    print(f"disk {before >> 20} MiB before, {disk_bytes(options.data_dir) >> 20} MiB after", flush=True)
    count, found = read_back(options.bootstrap, topic)
    print(f"{count} records left; {'equal to' if found == last else 'NOT'} the last of each key", flush=True)


if __name__ == "__main__":
    main()
