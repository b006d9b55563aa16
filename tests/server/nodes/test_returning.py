"""A cluster is backed up while clients write, and is there again as it was; a directory is brought into a cluster.

Nodes are processes, over a real PostgreSQL and a real object store. What is shorter: tests/test_docs_cluster.py.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from halfmoon.cluster.backup.ports import EPOCHS
from halfmoon.errors import StartError
from halfmoon.testing import Broker
from halfmoon.testing.cluster import ClusterProcesses
from tests.server.nodes.load import PARTITIONS, WAIT_S, Writing, make_topic, need_services, read_all
from tests.server.workers.test_import_served import (
    CONFIG,
    LATE_S,
    commit,
    commit_half,
    committed,
    look_at_all,
    read,
    send,
    send_half,
    set_all,
)
from tests.server.workers.test_import_served import PARTITIONS as MANY
from tests.testing.test_broker import QUIET

pytestmark = pytest.mark.timeout(240)
FAST, OBJECTS = 4, 4


class Served:
    """A cluster as functions see it that are about a Broker."""

    def __init__(self, cluster: ClusterProcesses) -> None:
        self._config = {"bootstrap.servers": cluster.bootstrap}

    def client_config(self) -> dict[str, str]:
        return dict(self._config)


@contextmanager
def one_node(folder: Path, make: Callable[[ClusterProcesses], object]) -> Iterator[ClusterProcesses]:
    with ClusterProcesses(folder, 1, fast=FAST, objects=OBJECTS, durable=False, make=make) as found:
        found.wait_until_shared()
        yield found


def progress_of(bootstrap: str, group: str, topics: list[str], offsets: int | None = None) -> list[int]:
    """What a group has committed, by topic and partition; `offsets`: after it has committed these."""
    places = [TopicPartition(topic, partition) for topic in topics for partition in range(PARTITIONS)]
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, **QUIET})
    try:
        if offsets is not None:
            for place in places:
                place.offset = offsets
            consumer.commit(offsets=places, asynchronous=False)
        return [each.offset for each in consumer.committed(places, timeout=WAIT_S)]
    finally:
        consumer.close()


def transactional(bootstrap: str, name: str) -> Producer:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": name, **QUIET})
    producer.init_transactions(WAIT_S)
    producer.begin_transaction()
    return producer


EPOCHS_OF = "select json_object_agg(shard, epoch)::text from shard"


def epochs(cluster: ClusterProcesses) -> dict[int, int]:
    return {int(shard): epoch for shard, epoch in json.loads(query(cluster, EPOCHS_OF)).items()}


def test_a_cluster_is_there_again_as_it_was_at_one_moment(tmp_path: Path) -> None:
    need_services()
    names = ["numbers-fast", "numbers-object"]
    saved = tmp_path / "saved"
    with ClusterProcesses(tmp_path / "first", 2, fast=FAST, objects=OBJECTS, durable=False) as first:
        first.wait_until_shared()
        for durability in ("fast", "object"):
            make_topic(first.bootstrap, f"numbers-{durability}", durability)
        make_topic(first.bootstrap, "sold", "fast")
        writings = [Writing(first.bootstrap, name) for name in names]
        for writing in writings:
            writing.until(100)
        assert progress_of(first.bootstrap, "billing", names, 50) == [50] * 2 * PARTITIONS
        open_transaction = transactional(first.bootstrap, "shop")
        open_transaction.produce("sold", b"before", partition=0)
        assert open_transaction.flush(WAIT_S) == 0
        before = [[list(each) for each in writing.acknowledged] for writing in writings]
        said = first.cluster("backup", str(saved))
        assert said.endswith("\nwhole\n")
        for writing in writings:
            writing.until(50)
        assert progress_of(first.bootstrap, "billing", names, 100) == [100] * 2 * PARTITIONS
        again = first.cluster("backup", str(tmp_path / "again"), "--base", str(saved))
        assert not again.splitlines()[5].endswith(" 0"), again
        acknowledged = [writing.end() for writing in writings]
        old_epochs = epochs(first)

        def make(cluster: ClusterProcesses) -> None:
            shutil.copytree(first.folder / "keys", cluster.folder / "keys")
            cluster.cluster("restore", str(saved))

        with one_node(tmp_path / "second", make) as second:
            assert all(epoch > old_epochs[shard] + EPOCHS // 2 for shard, epoch in epochs(second).items())
            for name, known, all_of_it in zip(names, before, acknowledged, strict=True):
                found = read_all(second.bootstrap, name)
                for partition in range(PARTITIONS):
                    values = found[partition]
                    assert values == all_of_it[partition][: len(values)]
                    assert len(values) >= len(known[partition])
            progress = progress_of(second.bootstrap, "billing", names)
            assert progress == [50] * 2 * PARTITIONS
            # Its producer may have written more since: it must not commit what is left of that.
            new = transactional(second.bootstrap, "shop")
            new.produce("sold", b"after", partition=0)
            new.commit_transaction(WAIT_S)
            assert committed_values(second.bootstrap, "sold") == [b"after"]
            with pytest.raises(StartError, match="has a cluster already"):
                second.cluster("restore", str(saved))
            writing = Writing(second.bootstrap, make_new(second, "new"))
            writing.until(20)
            numbers = writing.end()
            assert read_all(second.bootstrap, "new") == numbers


def make_new(cluster: ClusterProcesses, name: str) -> str:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic(name, PARTITIONS, 1)])[name].result(WAIT_S)
    return name


def committed_values(bootstrap: str, topic: str) -> list[bytes]:
    """Of partition 0, without transactions that were aborted."""
    config: dict[str, Any] = {
        "bootstrap.servers": bootstrap, "group.id": "unused", "isolation.level": "read_committed",
        "enable.partition.eof": True, **QUIET,
    }  # fmt: skip
    consumer = Consumer(config)
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        found, until_s = [], time.monotonic() + WAIT_S
        while time.monotonic() < until_s:
            message = consumer.poll(1)
            if message is not None and message.error() is not None:
                return found
            if message is not None:
                found.append(message.value())
        raise AssertionError("the end was not reached")
    finally:
        consumer.close()


def test_a_directory_of_one_process_is_brought_into_a_cluster(tmp_path: Path) -> None:
    need_services()
    folder = tmp_path / "data"
    values = [b"%d" % number + b"x" * 5_000 for number in range(10 * MANY)]
    halves = [b"half %d" % number for number in range(MANY)]
    delayed = [b"late %d" % number for number in range(MANY)]
    with Broker(data_dir=str(folder), config=CONFIG) as broker:
        admin = AdminClient(broker.client_config())
        admin.create_topics([NewTopic("t", MANY, 1)])["t"].result(10)
        send(broker, "t", *values)
        send(broker, "t", *[b"txn"] * MANY, transactional_id="a")
        send(broker, "t", *delayed, TIMER_DELAY_MS=str(LATE_S * 1_000))
        send_half(broker, "t", halves)
        set_all(broker)
        before = read(broker, "t", len(values) + MANY)
        for number in range(5):
            commit(broker, f"g{number}", "t", 3 + number)

    def make(cluster: ClusterProcesses) -> None:
        cluster.init()
        cluster.cluster("import", str(folder), "--object", "t")
        with pytest.raises(StartError, match="the cluster is not empty"):
            cluster.cluster("import", str(folder))

    with one_node(tmp_path / "cluster", make) as cluster:
        served: Any = Served(cluster)
        for number in range(5):
            assert committed(served, f"g{number}", "t") == {3 + number}
        send(served, "t", *[b"txn"] * 2, transactional_id="a")
        commit_half(served, len(halves))
        look_at_all(served)
        found = read(served, "t", len(before) + len(delayed) + len(halves) + 2)
        assert {place: found[place] for place in before} == before
        new = sorted(value for place, value in found.items() if place not in before and value)
        assert new == sorted([*delayed, *halves, b"txn", b"txn"])


ARCHIVED = "archive_mode = on\narchive_command = 'cp %p {0}/%f'\nrestore_command = 'cp {0}/%f %p'\nwal_level = replica"


def test_the_database_is_brought_back_to_an_earlier_moment_over_the_same_store(tmp_path: Path) -> None:
    """By PostgreSQL's archive: what was committed until that moment is there, and what came later is not."""
    need_services()
    names = ["numbers-fast", "numbers-object"]
    with ExitStack() as stack:
        archive = Path(stack.enter_context(TemporaryDirectory(prefix="halfmoon-archive-")))
        give_away(archive)
        postgres = ARCHIVED.format(archive)
        cluster = stack.enter_context(
            ClusterProcesses(tmp_path / "cluster", 2, fast=2, objects=2, durable=False, postgres=postgres)
        )
        cluster.wait_until_shared()
        for durability in ("fast", "object"):
            make_topic(cluster.bootstrap, f"numbers-{durability}", durability)
        base = archive / "base"
        cluster.database.call("pg_basebackup", "-h", "127.0.0.1", "-U", "halfmoon", "-p", str(cluster.database.port),
                              "-D", str(base), "-c", "fast")  # fmt: skip
        writings = [Writing(cluster.bootstrap, name) for name in names]
        for writing in writings:
            writing.until(50)
        known = [[list(each) for each in writing.acknowledged] for writing in writings]
        moment = query(cluster, "select clock_timestamp()::text")
        for writing in writings:
            writing.until(50)
        acknowledged = [writing.end() for writing in writings]
        query(cluster, "select pg_switch_wal()::text")
        with pytest.raises(StartError, match="stop the nodes first: 1, 2"):
            cluster.cluster("resume")
        for node in cluster.nodes.values():
            assert node.stop() == 0
        old_epochs = epochs(cluster)
        cluster.database.stop("fast")
        cluster.database.replace_by(base, f"recovery_target_time = '{moment}'\nrecovery_target_action = 'promote'")
        cluster.database.start()
        until_promoted(cluster)
        said = cluster.cluster("resume")
        assert "objects are there; 4 shards begin anew" in said
        assert all(epoch > old_epochs[shard] + EPOCHS // 2 for shard, epoch in epochs(cluster).items())
        for node in cluster.nodes.values():
            node.start()
        cluster.wait_until_shared()
        for name, before, all_of_it in zip(names, known, acknowledged, strict=True):
            found = read_all(cluster.bootstrap, name)
            for partition in range(PARTITIONS):
                values = found[partition]
                assert values == all_of_it[partition][: len(values)]
                assert len(before[partition]) <= len(values) < len(all_of_it[partition])
            writing = Writing(cluster.bootstrap, name)
            writing.until(20)
            more = writing.end()
            again = read_all(cluster.bootstrap, name)
            assert again == [old + new for old, new in zip(found, more, strict=True)]


def give_away(folder: Path) -> None:
    """To whom PostgreSQL runs as."""
    if os.geteuid() == 0:
        shutil.chown(folder, "postgres", "postgres")


def ends_of(cluster: ClusterProcesses, database: str) -> dict[int, int]:
    found = query(cluster, "select json_object_agg(shard, end_position)::text from shard", database)
    return {int(shard): end for shard, end in json.loads(found).items()}


def query(cluster: ClusterProcesses, statement: str, database: str = "postgres") -> str:
    import asyncpg

    async def ask() -> str:
        connection = await asyncpg.connect(cluster.database.dsn(database))
        try:
            return str(await connection.fetchval(statement))
        finally:
            await connection.close()

    return asyncio.run(ask())


def until_promoted(cluster: ClusterProcesses) -> None:
    until_s = time.monotonic() + WAIT_S
    while query(cluster, "select pg_is_in_recovery()::text") != "false":
        assert time.monotonic() < until_s
        time.sleep(0.05)


def test_a_database_that_is_lost_is_made_of_the_store(tmp_path: Path) -> None:
    """Topics of objects lose nothing; those that are fast, what was in the database only."""
    need_services()
    names = ["numbers-fast", "numbers-object"]
    with ClusterProcesses(tmp_path / "cluster", 2, fast=2, objects=2, durable=False) as cluster:
        cluster.wait_until_shared()
        for durability in ("fast", "object"):
            make_topic(cluster.bootstrap, f"numbers-{durability}", durability)
        writings = [Writing(cluster.bootstrap, name) for name in names]
        for writing in writings:
            writing.until(200)
        cluster.nodes[2].kill()
        for writing in writings:
            writing.until(200)
        acknowledged = [writing.end() for writing in writings]
        cluster.nodes[1].kill()
        ends = ends_of(cluster, "postgres")
        query(cluster, "create database another")
        for node in cluster.nodes.values():
            node.config.write_text(node.config.read_text().replace('/postgres"', '/another"'))
        said = cluster.cluster("rebuild", "--fast", "2", "--objects", "2")
        assert [line.split()[-1] for line in said.splitlines()[1:]] == ["-"] * 4, said
        found_ends = ends_of(cluster, "another")
        assert all(found_ends[shard] <= ends[shard] for shard in (0, 1)), (ends, found_ends)
        assert all(found_ends[shard] >= ends[shard] for shard in (2, 3)), (ends, found_ends)
        for node in cluster.nodes.values():
            node.start()
        cluster.wait_until_shared()
        of_rows, of_objects = (read_all(cluster.bootstrap, name) for name in names)
        assert [len(each) for each in of_objects] == [len(each) for each in acknowledged[1]]
        assert of_objects == acknowledged[1]
        for found, known in zip(of_rows, acknowledged[0], strict=True):
            assert found == known[: len(found)]
        writing = Writing(cluster.bootstrap, "numbers-object")
        writing.until(20)
        more = writing.end()
        again = read_all(cluster.bootstrap, "numbers-object")
        assert again == [old + new for old, new in zip(of_objects, more, strict=True)]
