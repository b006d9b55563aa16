"""A mixed load for hours, at about half of what the machine can do: what grows, and what gets slower?

    python -m benchmarks.soak --hours 8 [--docs]

A broker as a process of its own, and its clients in this one (librdkafka works in threads of its own): a stream of
records, a group of consumers that nacks some, delayed messages, half messages, transactions, a share group, topics
that come and go. For the first minutes the rate follows the processors (`BUSY` of all of them); then it stays.

Written: `out/soak/samples.csv`, a row every few seconds; `out/soak.html`, one page; with `--docs` also docs/soak.md and
its picture. Exit 1 where something was lost: every record of the stream is consumed, each delayed one is delivered
once, each half message if and only if it was committed, each transaction as a whole.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import random
import shutil
import sys
import tempfile
import threading
import time
import urllib.request
from collections import Counter, defaultdict
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil
from confluent_kafka import AcknowledgeType, Consumer, KafkaException, Producer, ShareConsumer
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.soak_page import write_docs, write_html
from halfmoon.kafka import Nack, TransactionalOutbox
from halfmoon.server.build import build
from tests.crash.serving import Serving, free_port

BUSY = 0.5
"""Of all processors, the clients' share included."""
FIRST_RATE, LOWEST_RATE = 2_000, 200
CALIBRATES = 0.1
"""Of the whole time, at most CALIBRATES_S."""
CALIBRATES_S = 300.0
SAMPLES = 1_500
"""Rows of a run, at one in two seconds at most."""
PARTITIONS = 6
VALUE_BYTES = 200
GROUP = "soak"
STREAM, LATER, HALVES, MONEY, WORK = "soak.stream", "soak.later", "soak.halves", "soak.money", "soak.work"
RETENTION_MS = 15 * 60_000
"""So the disk is full of what it will hold within minutes."""
METRICS = ("halfmoon_loop_longest_turn_cpu_seconds", "halfmoon_loop_longest_turn_seconds")


class Load:
    """What all parts share: where the broker is, how fast to go, and what was seen."""

    def __init__(self, servers: str) -> None:
        self.servers = servers
        self.rate = float(FIRST_RATE)
        """Records a second of the stream; the others follow it."""
        self.feeding, self.reading = threading.Event(), threading.Event()
        self.feeding.set()
        self.reading.set()
        self.lock = threading.Lock()
        self.latencies_s: dict[str, list[float]] = defaultdict(list)
        """Since the last sample."""
        self.counts: Counter[str] = Counter()
        self.problems: list[str] = []
        self.sent: Counter[str] = Counter()
        self.came: dict[str, Counter[bytes]] = defaultdict(Counter)

    def took(self, what: str, seconds: float) -> None:
        with self.lock:
            self.latencies_s[what].append(seconds)

    def config(self, **more: Any) -> dict[str, Any]:
        return {"bootstrap.servers": self.servers, "log_level": 3, **more}

    def paced(self, share: float, work: Callable[[int], None], most_s: float = 0.05) -> None:
        """Call `work(number)` `rate * share` times a second, while there is to be fed."""
        number, owed, last_s = 0, 0.0, time.monotonic()
        while self.feeding.is_set():
            now_s = time.monotonic()
            owed = min(owed + (now_s - last_s) * self.rate * share, self.rate)
            last_s = now_s
            while owed >= 1:
                work(number)
                number += 1
                owed -= 1
            time.sleep(min(most_s, 1 / max(1.0, self.rate * share)))


def stream(load: Load) -> None:
    producer = Producer(load.config(**{"enable.idempotence": True, "linger.ms": 5, "compression.type": "lz4"}))
    filler = b"." * VALUE_BYTES

    def send(number: int) -> None:
        begun_s = time.time()
        on_delivery = None
        if number % 50 == 0:
            on_delivery = lambda error, _: load.took("produce", time.time() - begun_s) if error is None else None  # noqa: E731
        value = b"%d %.6f " % (number, begun_s) + filler
        while True:
            try:
                producer.produce(STREAM, value, on_delivery=on_delivery)
                break
            except BufferError:
                time.sleep(0.01)
        load.counts["stream sent"] += 1

    def poll() -> None:
        """Acknowledgements are heard when they come."""
        while load.feeding.is_set():
            producer.poll(0.1)

    threading.Thread(target=poll, daemon=True).start()
    load.paced(1.0, send)
    if producer.flush(60):
        load.problems.append("the stream could not be sent in the end")


def consume(load: Load) -> None:
    """A member of the group; nacks one in 500, and reads what comes back."""
    helper = Producer(load.config(**{"enable.idempotence": True, "linger.ms": 5}))
    nack = Nack(GROUP, helper)
    consumer = Consumer(
        load.config(**{"group.id": GROUP, "auto.offset.reset": "earliest", "enable.auto.commit": False})
    )
    consumer.subscribe([STREAM, nack.topic])
    try:
        while load.reading.is_set():
            messages = [each for each in consumer.consume(500, 0.2) if each.error() is None]
            now_s = time.time()
            for message in messages:
                value = message.value() or b""
                if message.topic() != STREAM:
                    load.counts["retried"] += 1
                    continue
                number, sent_s, _ = value.split(b" ", 2)
                load.came[STREAM][number] += 1
                if int(number) % 50 == 0:
                    load.took("end to end", now_s - float(sent_s))
                if int(number) % 500 == 0:
                    nack(message, delay_ms=1_000)
                    load.counts["nacked"] += 1
            if messages:
                nack.flush(30)
                try:
                    consumer.commit(asynchronous=False)
                except KafkaException:
                    pass  # a rebalance; what is not committed comes again
    finally:
        consumer.close()


def delay(load: Load) -> None:
    producer = Producer(load.config(**{"enable.idempotence": True, "linger.ms": 20}))
    dice = random.Random(1)

    def send(number: int) -> None:
        delay_ms = dice.choice([100, 1_000, 10_000, 60_000])
        value = b"%d %.6f" % (number, time.time() + delay_ms / 1000)
        producer.produce(LATER, value, headers={"TIMER_DELAY_MS": str(delay_ms)})
        producer.poll(0)
        load.sent[LATER] = number + 1

    load.paced(0.02, send)
    producer.flush(60)


def half(load: Load) -> None:
    producer = Producer(load.config(**{"enable.idempotence": True, "linger.ms": 5}))
    outbox = TransactionalOutbox("soak", producer)
    waiting: list[tuple[int, str, Any]] = []

    def send(number: int) -> None:
        name, sent = outbox.prepare(HALVES, b"%d" % number, transaction=f"t{number}")
        waiting.append((number, name, sent))
        if len(waiting) > 20:
            decide(*waiting.pop(0))

    def decide(number: int, name: str, sent: Any) -> None:
        sent.result(60)
        if number % 4:
            outbox.commit(name)
            load.sent[HALVES] += 1
        else:
            outbox.rollback(name)

    load.paced(0.01, send)
    for each in waiting:
        decide(*each)
    outbox.close(60)


def transact(load: Load) -> None:
    producer = Producer(load.config(**{"transactional.id": "soak", "linger.ms": 0}))
    producer.init_transactions(60)
    number = 0
    while load.feeding.is_set():
        producer.begin_transaction()
        try:
            for index in range(50):
                producer.produce(MONEY, b"%d" % number, partition=index % PARTITIONS)
            if number % 5:
                producer.commit_transaction(60)
                load.sent[MONEY] += 1
            else:
                producer.abort_transaction(60)
        except KafkaException as error:
            # An abort drops what librdkafka has queued; where that had a sequence number already, the next transaction
            # meets the gap, and must be aborted too.
            if not error.args[0].txn_requires_abort():
                raise
            producer.abort_transaction(60)
            load.counts["transactions aborted by an error"] += 1
        number += 1
        time.sleep(min(5.0, 2_000 / load.rate))


def deliver(load: Load) -> None:
    """Reads what is delivered later, half messages and transactions."""
    consumer = Consumer(
        load.config(**{"group.id": "deliveries", "auto.offset.reset": "earliest", "isolation.level": "read_committed"})
    )
    consumer.subscribe([LATER, HALVES, MONEY])
    while load.reading.is_set():
        for message in consumer.consume(500, 0.2):
            if message.error() is not None:
                continue
            value, _, due_s = (message.value() or b"").partition(b" ")
            load.came[str(message.topic())][value] += 1
            if due_s:
                load.took("lateness", max(0.0, time.time() - float(due_s)))
    consumer.close()


def work(load: Load) -> None:
    producer = Producer(load.config(**{"enable.idempotence": True, "linger.ms": 20}))

    def send(number: int) -> None:
        producer.produce(WORK, b"%d" % number)
        producer.poll(0)
        load.sent[WORK] = number + 1

    load.paced(0.02, send)
    producer.flush(60)


def share(load: Load) -> None:
    consumer = ShareConsumer(load.config(**{"group.id": "sharers", "share.acknowledgement.mode": "explicit"}))
    consumer.subscribe([WORK])
    while load.reading.is_set():
        for message in consumer.poll(0.5) or ():
            if message.error() is not None:
                continue
            value = message.value() or b""
            first = load.came[WORK][value] == 0 and int(value) % 100 == 0
            consumer.acknowledge(message, AcknowledgeType.RELEASE if first else AcknowledgeType.ACCEPT)
            load.came[WORK][value] += 1
    consumer.close()


def churn(load: Load) -> None:
    """A topic comes and goes every ten seconds."""
    admin = AdminClient(load.config())
    number = 0
    while load.feeding.is_set():
        name = f"soak.temporary.{number}"
        admin.create_topics([NewTopic(name, 3, 1)])[name].result(60)
        producer = Producer(load.config())
        for index in range(300):
            producer.produce(name, b"." * 500, partition=index % 3)
        producer.flush(60)
        time.sleep(5)
        admin.delete_topics([name])[name].result(60)
        number += 1
        time.sleep(5)


PARTS: tuple[tuple[Callable[[Load], None], int], ...] = (
    (stream, 1), (consume, 2), (delay, 1), (half, 1), (transact, 1), (deliver, 1), (work, 1), (share, 2), (churn, 1),
)  # fmt: skip


class Sampler:
    """Looks at the broker's process, its disk and what clients have seen."""

    def __init__(self, load: Load, pid: int, data: Path, http: str) -> None:
        self._load = load
        self._process = psutil.Process(pid)
        self._data = data
        self._http = http
        self._begun_s = time.monotonic()
        self.rows: list[dict[str, float]] = []
        self.longest_s: dict[str, float] = {}
        """Processor time of the longest turn of the loop that each cause had."""
        self._cpu_s = self._used_cpu_s()
        self._last_s = self._begun_s
        self._sent = 0

    def _used_cpu_s(self) -> float:
        times = self._process.cpu_times()
        return float(times.user + times.system)

    def look(self) -> dict[str, float]:
        now_s = time.monotonic()
        load = self._load
        with load.lock:
            latencies, load.latencies_s = load.latencies_s, defaultdict(list)
        cpu_s, sent, passed_s = self._used_cpu_s(), load.counts["stream sent"], now_s - self._last_s
        row = {
            "time_s": now_s - self._begun_s,
            "rate": (sent - self._sent) / passed_s,
            "broker_cpu": (cpu_s - self._cpu_s) / passed_s,
            "rss_anon_mb": _anonymous_bytes(self._process.pid) / 1e6,
            "descriptors": float(self._process.num_fds()),
            "threads": float(self._process.num_threads()),
            "disk_mb": sum(each.stat().st_blocks * 512 for each in self._data.rglob("*") if each.is_file()) / 1e6,
        }
        for what in ("produce", "end to end", "lateness"):
            found = sorted(latencies.get(what, ()))
            for name, part in (("p50", 0.5), ("p99", 0.99)):
                row[f"{what} {name} ms"] = 1000 * found[int(part * (len(found) - 1))] if found else float("nan")
        row |= self._metrics()
        self._cpu_s, self._sent, self._last_s = cpu_s, sent, now_s
        self.rows.append(row)
        return row

    def _metrics(self) -> dict[str, float]:
        """The longest turn of the loop, where the broker tells it."""
        found = dict.fromkeys(METRICS, float("nan"))
        try:
            with urllib.request.urlopen(f"http://{self._http}/metrics", timeout=10) as answer:
                text = answer.read().decode()
        except OSError:
            return found
        for line in text.splitlines():
            name, _, value = line.rpartition(" ")
            metric, _, labels = name.partition("{")
            if metric in METRICS:
                known = found[metric]
                found[metric] = max(float(value), known) if known == known else float(value)
                if metric == METRICS[0]:
                    cause = labels.removeprefix('cause="').removesuffix('"}')
                    self.longest_s[cause] = max(float(value), self.longest_s.get(cause, 0.0))
        return found


def _anonymous_bytes(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    return 0


def _checked(load: Load) -> list[str]:
    """What is not as it must be, now that everything is over."""
    problems = list(load.problems)
    numbers = load.came[STREAM]
    missing = load.counts["stream sent"] - len(numbers)
    if missing:
        problems.append(f"{missing} of {load.counts['stream sent']} records of the stream were not consumed")
    for topic in (LATER, HALVES):
        found = load.came[topic]
        if len(found) != load.sent[topic] or any(count > 1 for count in found.values()):
            problems.append(f"{topic}: {len(found)} of {load.sent[topic]} came, {sum(found.values())} in all")
    money = load.came[MONEY]
    if len(money) != load.sent[MONEY] or any(count != 50 for count in money.values()):
        problems.append(f"{MONEY}: {len(money)} of {load.sent[MONEY]} transactions, or parts of some")
    if len(load.came[WORK]) != load.sent[WORK]:
        problems.append(f"{WORK}: {len(load.came[WORK])} of {load.sent[WORK]} were given out")
    if load.counts["retried"] < load.counts["nacked"]:
        problems.append(f"{load.counts['nacked']} were nacked, {load.counts['retried']} came again")
    return problems


def run(hours: float, folder: Path, *, data_dir: Path) -> tuple[list[dict[str, float]], dict[str, Any]]:
    """The rows, and what there is to say in all."""
    http = f"127.0.0.1:{free_port()}"
    serving = Serving(
        data_dir, log_flush="sync", log_segment_bytes="64MiB", listeners_http_bind=http,
        groups_share_auto_offset_reset="earliest",
    )  # fmt: skip
    serving.start()
    load = Load(serving.address)
    admin = AdminClient(load.config())
    config = {"retention.ms": str(RETENTION_MS)}
    names = [STREAM, LATER, HALVES, MONEY, WORK, f"retry.{GROUP}"]
    for future in admin.create_topics([NewTopic(name, PARTITIONS, 1, config=config) for name in names]).values():
        future.result(30)
    threads: list[tuple[Callable[[Load], None], threading.Thread]] = []

    def guarded(part: Callable[[Load], None]) -> None:
        try:
            part(load)
        except Exception as error:
            load.problems.append(f"{part.__name__}: {error!r}")

    for part, count in PARTS:
        for _ in range(count):
            thread = threading.Thread(target=guarded, args=(part,), name=part.__name__, daemon=True)
            threads.append((part, thread))
            thread.start()
    assert serving._process is not None
    sampler = Sampler(load, serving._process.pid, data_dir / "data", http)
    seconds = hours * 3600
    every_s = max(2.0, seconds / SAMPLES)
    calibrated_s = min(CALIBRATES * seconds, CALIBRATES_S)
    begun_s = time.monotonic()
    psutil.cpu_percent()
    try:
        while (passed_s := time.monotonic() - begun_s) < seconds:
            time.sleep(every_s)
            row = sampler.look()
            if passed_s < calibrated_s:
                busy = psutil.cpu_percent() / 100
                load.rate = max(LOWEST_RATE, load.rate * min(1.5, max(0.6, BUSY / max(busy, 0.01))))
            print(
                f"{row['time_s']:7.0f} s {row['rate']:8.0f}/s, {row['rss_anon_mb']:6.1f} MB, {row['descriptors']:.0f} "
                f"descriptors, produce p99 {row['produce p99 ms']:.1f} ms, disk {row['disk_mb']:.0f} MB", flush=True,
            )  # fmt: skip
        load.feeding.clear()
        wait_for([thread for part, thread in threads if part not in (consume, deliver, share)], 120)
        deadline_s = time.monotonic() + 150
        while _checked(load) and time.monotonic() < deadline_s:  # what is delayed is still to come
            time.sleep(1)
    finally:
        load.feeding.clear()
        load.reading.clear()
        wait_for([thread for _, thread in threads], 60)
        serving.stop()
    said = {
        "hours": hours, "rate": load.rate, "problems": _checked(load), "counts": dict(load.counts),
        "sent": dict(load.sent), "processors": os.cpu_count(), "log": serving.log()[-2_000:], "build": build(),
        "longest turns": dict(sorted(sampler.longest_s.items(), key=lambda turn: -turn[1])[:3]),
    }  # fmt: skip
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "samples.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, sampler.rows[0])
        writer.writeheader()
        writer.writerows(sampler.rows)
    (folder / "soak.json").write_text(json.dumps(said, indent=1))
    return sampler.rows, said


def wait_for(threads: list[threading.Thread], seconds: float) -> None:
    until_s = time.monotonic() + seconds
    for thread in threads:
        thread.join(max(0.0, until_s - time.monotonic()))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak", description=__doc__.partition("\n")[0])
    parser.add_argument("--hours", type=float, default=8.0)
    parser.add_argument("--docs", action="store_true", help="write docs/soak.md, too")
    given = parser.parse_args()
    data_dir = Path(tempfile.mkdtemp(prefix="halfmoon-soak-"))
    try:
        rows, said = run(given.hours, Path("out/soak"), data_dir=data_dir)
    finally:
        shutil.rmtree(data_dir, ignore_errors=True)
    made_at = datetime.now(UTC).replace(tzinfo=None)
    write_html(Path("out/soak.html"), rows, said, made_at)
    if given.docs:
        write_docs(Path("docs"), rows, said, made_at)
    for problem in said["problems"]:
        print(f"problem: {problem}")
    print("written: out/soak.html, out/soak/samples.csv" + (", docs/soak.md" if given.docs else ""))
    return bool(said["problems"])


if __name__ == "__main__":
    sys.exit(main())
