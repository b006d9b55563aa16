"""What a cluster of nodes does: `python -m benchmarks.cluster`, which writes docs/cluster-figures.md.

PostgreSQL (durable), versitygw and the nodes are real processes of one machine, and share its disk and its cores with
the clients: a network in between adds to each figure, and more machines take from each. The nodes are compiled, as what
users install is; `--pure`: they are not. A quarter of an hour, and what compiling takes.

The producers whose latency is measured are not idempotent. librdkafka's threads turn without a pause while an
idempotent producer's five requests are in the air: with `object` they took 52 of the 60 CPU seconds there were, and
messages waited for each other in the client; p99 was 760 ms instead of 220 ms.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import quantiles
from typing import Any

import asyncpg
from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.cluster_page import BARE, BULK_MB, DURABILITIES, LATENCY_S, PROBES, Gaps, Latency, page
from benchmarks.peer import ROOT
from halfmoon.testing.cluster import ClusterProcesses
from tools import compiled_tree

PAGE = ROOT / "docs" / "cluster-figures.md"
PRODUCERS, EACH_S, SIZE = 16, 64, 1_024
"""1 MB/s in messages of 1 KB."""
PARTITIONS = 32
DEATHS, MOVES, ROUNDS = 8, 20, 3
MOST_NODES = 3
QUIET = {"log_level": 2}
PUT_DOLLARS = 0.005 / 1000
"""S3 Standard's list price."""


def _topic(bootstrap: str, durability: str, partitions: int) -> str:
    name = f"{durability}-{random.randrange(1 << 32):08x}"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topic = NewTopic(name, partitions, 1, config={"halfmoon.durability": durability})
    admin.create_topics([topic])[name].result(30)
    return name


# -- latency -----------------------------------------------------------------------------------------------------------


def latency(cluster: ClusterProcesses, durability: str) -> Latency:
    topic = _topic(cluster.bootstrap, durability, PARTITIONS)
    found: list[float] = []
    sent: list[int] = []
    threads = [
        threading.Thread(target=_send_steadily, args=(cluster.bootstrap, topic, number, found, sent))
        for number in range(PRODUCERS)
    ]
    before, objects, begun_s = _database(cluster), _objects(cluster), time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    took_s = time.monotonic() - begun_s
    after = _database(cluster)
    cut = quantiles(found, n=100)
    return Latency(
        durability, cut[49] * 1e3, cut[98] * 1e3, len(found), (after[0] - before[0]) / took_s,
        (after[1] - before[1]) / (sum(sent) * SIZE), (_objects(cluster) - objects) / took_s,
        (_objects(cluster) - objects) / (sum(sent) * SIZE) * 1e9 * PUT_DOLLARS,
    )  # fmt: skip


def _send_steadily(bootstrap: str, topic: str, number: int, found: list[float], sent: list[int]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "acks": "all", **QUIET})
    value = random.Random(number).randbytes(SIZE)
    partitions = [number * PARTITIONS // PRODUCERS + one for one in range(PARTITIONS // PRODUCERS)]
    begun_s = time.monotonic()
    warm_s = begun_s + 3.0

    def delivered(sent_s: float) -> Callable[[KafkaError | None, Message], None]:
        def told(error: KafkaError | None, _message: Message) -> None:
            if error is not None:
                raise SystemExit(f"not delivered: {error}")
            if sent_s > warm_s:
                found.append(time.monotonic() - sent_s)

        return told

    count = 0
    while (now_s := time.monotonic()) < begun_s + LATENCY_S:
        due = int((now_s - begun_s) * EACH_S)
        while count < due:
            producer.produce(topic, value, partition=partitions[count % len(partitions)], on_delivery=delivered(now_s))
            count += 1
        producer.poll(0.002)
    producer.flush(30)
    sent.append(count)


def bare(cluster: ClusterProcesses) -> Latency:
    """The same messages by as many connections to the database, each a row and a commit, without a broker: what `fast`
    cannot be quicker than here."""
    found: list[float] = []
    rows = int(EACH_S * LATENCY_S)

    async def send(number: int) -> None:
        connection = await asyncpg.connect(cluster.database.dsn())
        try:
            value = random.Random(number).randbytes(SIZE)
            insert = await connection.prepare("insert into bare values ($1, $2, $3)")
            begun_s = time.monotonic()
            for row in range(rows):
                due_s = begun_s + (row + number / PRODUCERS) / EACH_S
                await asyncio.sleep(max(0.0, due_s - time.monotonic()))
                await insert.fetch(number, row, value)
                found.append(time.monotonic() - due_s)
        finally:
            await connection.close()

    async def everybody() -> None:
        connection = await asyncpg.connect(cluster.database.dsn())
        try:
            await connection.execute("drop table if exists bare")
            await connection.execute("create table bare (shard int, at int, value bytea, primary key (shard, at))")
            await asyncio.gather(*(send(number) for number in range(PRODUCERS)))
            await connection.execute("drop table bare")
        finally:
            await connection.close()

    before, begun_s = _database(cluster), time.monotonic()
    asyncio.run(everybody())
    took_s = time.monotonic() - begun_s
    after, cut = _database(cluster), quantiles(found, n=100)
    sent_bytes = len(found) * SIZE
    return Latency(
        BARE, cut[49] * 1e3, cut[98] * 1e3, len(found), (after[0] - before[0]) / took_s,
        (after[1] - before[1]) / sent_bytes, 0.0, 0.0,
    )  # fmt: skip


def _database(cluster: ClusterProcesses) -> tuple[int, int]:
    """Commits, and bytes of its log, since its start."""

    async def ask() -> tuple[int, int]:
        connection = await asyncpg.connect(cluster.database.dsn())
        try:
            commits = await connection.fetchval("select xact_commit from pg_stat_database where datname = 'postgres'")
            log = await connection.fetchval("select pg_current_wal_lsn() - '0/0'::pg_lsn")
            return int(commits), int(log)
        finally:
            await connection.close()

    return asyncio.run(ask())


def _objects(cluster: ClusterProcesses) -> int:
    return sum(1 for path in cluster.store.folder.rglob("*") if path.is_file())


# -- throughput --------------------------------------------------------------------------------------------------------


def bulk(cluster: ClusterProcesses, durability: str) -> float:
    """MB/s of one producer that is never short of messages."""
    topic = _topic(cluster.bootstrap, durability, PARTITIONS)
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap, "linger.ms": 5, "batch.size": 1 << 20,
            "queue.buffering.max.kbytes": 65_536, "enable.idempotence": True, **QUIET,
        }
    )  # fmt: skip
    value = random.Random(1).randbytes(SIZE)
    count = BULK_MB * (1 << 20) // SIZE
    begun_s = time.monotonic()
    for number in range(count):
        while True:
            try:
                producer.produce(topic, value, partition=number // 64 % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.01)
        if not number % 256:
            producer.poll(0)
    producer.flush(120)
    return BULK_MB / (time.monotonic() - begun_s)


# -- deaths and moves --------------------------------------------------------------------------------------------------


class Probing:
    """Writes to each partition one message after the other, and notes when they are acknowledged."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap, "linger.ms": 0, "enable.idempotence": True, "retry.backoff.ms": 20,
                "reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 100, "socket.timeout.ms": 1_500,
                "topic.metadata.refresh.interval.ms": 500, "topic.metadata.refresh.fast.interval.ms": 20, **QUIET,
            }
        )  # fmt: skip
        self._topic = topic
        self._ended = threading.Event()
        self.acknowledged_s: list[list[float]] = [[] for _ in range(partitions)]
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Probing:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        for partition in range(len(self.acknowledged_s)):
            self._send(partition)
        while not self._ended.is_set():
            self._producer.poll(0.01)
        self._producer.flush(10)

    def _send(self, partition: int) -> None:
        self._producer.produce(self._topic, b"probe", partition=partition, on_delivery=self._told)

    def _told(self, error: KafkaError | None, message: Message) -> None:
        partition = message.partition()
        assert partition is not None
        if error is None:
            self.acknowledged_s[partition].append(time.monotonic())
        if not self._ended.is_set():
            self._send(partition)

    def gaps_s(self, since_s: float) -> list[float]:
        """By partition, the longest time between two acknowledgements."""
        found = []
        for times in self.acknowledged_s:
            late = [at for at in times if at >= since_s]
            before = [at for at in times if at < since_s][-1:]
            steps = [*before, *late]
            found.append(max((b - a for a, b in pairwise(steps)), default=0.0))
        return found


def deaths(cluster: ClusterProcesses, durability: str, times: int, how: int, back: Callable[[Any], None]) -> Gaps:
    """One node after the other is killed, or stopped, and comes back. The gap of an event is that of the partition that
    was without for longest."""
    topic = _topic(cluster.bootstrap, durability, PROBES)
    found = []
    with Probing(cluster.bootstrap, topic, PROBES) as probing:
        time.sleep(2)
        for number in range(times):
            node = list(cluster.nodes.values())[number % len(cluster.nodes)]
            since_s = time.monotonic()
            node.signal(how)
            time.sleep(8)
            found.append(max(probing.gaps_s(since_s)))
            back(node)
            cluster.wait_until_shared()
            time.sleep(1)
    return Gaps("kill -9" if how == signal.SIGKILL else "SIGSTOP past the lease", durability, found)


def moves(cluster: ClusterProcesses, durability: str, times: int) -> Gaps:
    topic = _topic(cluster.bootstrap, durability, PROBES)
    fast = sum(row["fast"] for row in cluster.state())
    found = []
    with Probing(cluster.bootstrap, topic, PROBES) as probing:
        time.sleep(2)
        for number in range(times):
            shard = number % fast if durability == "fast" else fast + number % fast
            since_s = time.monotonic()
            node = list(cluster.nodes)[number % len(cluster.nodes)]
            cluster.command(
                "cluster", "move", str(shard), str(node), "--config", str(cluster.nodes[1].config)
            )  # fmt: skip
            time.sleep(1.5)
            found.append(max(probing.gaps_s(since_s)))
    return Gaps("planned move", durability, found)


# -- the page ----------------------------------------------------------------------------------------------------------


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cluster", description=__doc__)
    parser.add_argument("--page", type=Path, default=PAGE)
    parser.add_argument("--deaths", type=int, default=DEATHS)
    parser.add_argument("--moves", type=int, default=MOVES)
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="of latency and throughput")
    parser.add_argument("--only-latency", action="store_true", help="print it, and write no page")
    parser.add_argument("--pure", action="store_true", help="the nodes as Python, not compiled")
    options = parser.parse_args(arguments)
    if not options.pure:
        if compiled_tree.main([]):
            return 1
        os.environ["PYTHONPATH"] = str(ROOT / compiled_tree.FOLDER)  # of the nodes, which this process starts
    how_often = options.deaths, options.moves
    latencies: list[Latency] = []
    rates: list[tuple[int, str, Sequence[float]]] = []
    gaps: list[Gaps] = []
    for nodes in range(MOST_NODES if options.only_latency else 1, MOST_NODES + 1):
        with (
            tempfile.TemporaryDirectory(prefix="halfmoon-cluster-") as folder,
            ClusterProcesses(Path(folder), nodes, fast=8, objects=8) as cluster,
        ):
            cluster.wait_until_shared(60)
            for durability in () if options.only_latency else DURABILITIES:
                rates.append((nodes, durability, [bulk(cluster, durability) for _ in range(options.rounds)]))
                print(nodes, durability, rates[-1][2], flush=True)
            if nodes == MOST_NODES:
                for _ in range(options.rounds):
                    for durability in DURABILITIES:
                        latencies.append(latency(cluster, durability))
                        print(latencies[-1], flush=True)
                    latencies.append(bare(cluster))
                    print(latencies[-1], flush=True)
                for durability in () if options.only_latency else DURABILITIES:
                    gaps += _gaps(cluster, durability, *how_often)
                    print(*gaps[-3:], sep="\n", flush=True)
    if options.only_latency:
        return 0
    options.page.write_text(page(latencies, rates, gaps, " ".join(["python -m benchmarks.cluster", *arguments])))
    return 0


def _gaps(cluster: ClusterProcesses, durability: str, died: int, moved: int) -> list[Gaps]:
    return [
        moves(cluster, durability, moved),
        deaths(cluster, durability, died, signal.SIGKILL, _start_again),
        deaths(cluster, durability, died, signal.SIGSTOP, lambda node: node.signal(signal.SIGCONT)),
    ]


def _start_again(node: Any) -> None:
    node.kill()  # it is waited for
    node.start()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
