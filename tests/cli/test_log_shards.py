"""`log`, `backup` and `restore` over the data directory of several workers."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    NewTopic,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from halfmoon.testing import Broker
from tests.cli.conftest import CommandLine

PARTITIONS = 16
CONFIG = {"log": {"segment_bytes": "1MiB"}}


def _produce(servers: str, values: range) -> None:
    producer = Producer({"bootstrap.servers": servers})
    for partition in range(PARTITIONS):
        for value in values:
            producer.produce("kept", b"%d" % value, partition=partition)
    assert producer.flush(30) == 0


def _read(servers: str, partitions: Iterable[int] = range(PARTITIONS)) -> dict[int, list[int]]:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "eof", "enable.partition.eof": True})
    consumer.assign([TopicPartition("kept", partition, 0) for partition in partitions])
    found: dict[int, list[int]] = {partition: [] for partition in partitions}
    left = set(found)
    while left:
        for message in consumer.consume(100, 1):
            error = message.error()
            if error is None:
                found[message.partition()].append(int(message.value() or b""))
            else:
                assert error.code() == KafkaError._PARTITION_EOF
                left.discard(message.partition())
    consumer.close()
    return found


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """Ten records in each partition, a committed offset, a user."""
    folder = tmp_path_factory.mktemp("several") / "data"
    with Broker(data_dir=str(folder), workers=2, config=CONFIG) as broker:
        servers = broker.bootstrap_servers
        admin = AdminClient({"bootstrap.servers": servers})
        admin.create_topics([NewTopic("kept", PARTITIONS, config={"retention.ms": "-1"})])["kept"].result(30)
        _produce(servers, range(10))
        offsets = [TopicPartition("kept", partition, 7) for partition in range(PARTITIONS)]
        admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions("readers", offsets)])["readers"].result(30)
        scram = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
        user = UserScramCredentialUpsertion("alice", scram, b"a good password")
        admin.alter_user_scram_credentials([user])["alice"].result(30)
        yield broker


@pytest.fixture(scope="module")
def directory(running: Broker) -> Path:
    return Path(running.data_dir)


@pytest.fixture
def saved(cli: CommandLine, directory: Path, tmp_path: Path) -> Path:
    cli.ok("backup", str(directory), str(tmp_path / "saved"))
    return tmp_path / "saved"


def test_shards_are_verified_while_they_are_served(cli: CommandLine, directory: Path) -> None:
    said = cli.ok("log", "verify", str(directory), "-o", "json").json()
    assert sorted(said["shards"]) == [f"shard-{number:02}" for number in range(16)]
    assert said["ok"]
    assert sum(shard["records"] for shard in said["shards"].values()) >= 10 * PARTITIONS
    text = cli.ok("log", "verify", str(directory)).out
    assert "shard-15" in text
    assert text.endswith("whole\n")


def test_a_backup_of_running_workers_is_served_as_it_was(
    cli: CommandLine, running: Broker, directory: Path, tmp_path: Path
) -> None:
    said = cli.ok("backup", str(directory), str(tmp_path / "saved"), "-o", "json").json()
    assert said["ok"]
    assert said["topics"] >= 1
    assert said["shards"]["shard-03"]["records"] >= 10
    _produce(running.bootstrap_servers, range(10, 12))
    said = cli.ok("restore", str(tmp_path / "saved"), str(tmp_path / "restored"), "-o", "json").json()
    assert said["ok"]
    assert said["bytes"] > 0
    for count in (3, 1):
        with Broker(data_dir=str(tmp_path / "restored"), workers=count, config=CONFIG) as broker:
            assert _read(broker.bootstrap_servers) == {partition: [*range(10)] for partition in range(PARTITIONS)}
            admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
            asked = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions("readers")])
            found = asked["readers"].result(30).topic_partitions
            assert [each.offset for each in found] == [7] * PARTITIONS
            assert list(admin.describe_user_scram_credentials(["alice"])) == ["alice"]
    assert sorted(path.name for path in (tmp_path / "saved").iterdir()) == [
        "catalog.sqlite",
        *(f"shard-{number:02}" for number in range(16)),
    ]


def test_a_backup_needs_an_empty_target(cli: CommandLine, directory: Path, saved: Path) -> None:
    outcome = cli("backup", str(directory), str(saved))
    assert outcome.code == 1
    assert f"{saved} exists already" in outcome.err


def test_the_directory_of_running_workers_is_not_restored_from(
    cli: CommandLine, directory: Path, tmp_path: Path
) -> None:
    outcome = cli("restore", str(directory), str(tmp_path / "restored"))
    assert outcome.code == 1
    assert "running broker: use halfmoon backup" in outcome.err
    assert not (tmp_path / "restored" / "catalog.sqlite").exists()


def test_a_damaged_shard_is_named_and_repaired_alone(cli: CommandLine, saved: Path, tmp_path: Path) -> None:
    cli.ok("restore", str(saved), str(tmp_path / "restored"))
    shard = tmp_path / "restored" / "shard-04"
    (segment,) = (shard / "log").iterdir()
    data = bytearray(segment.read_bytes())
    at = data.rindex(b"\x029")  # the value 9 of a record
    data[at + 1] ^= 0xFF
    segment.write_bytes(data)
    outcome = cli("log", "verify", str(tmp_path / "restored"))
    assert outcome.code == 1
    assert "problem: shard-04: log positions" in outcome.out
    assert "are damaged, in log/00000000000000000000" in outcome.out
    assert outcome.out.endswith("damaged\n")
    said = cli.ok("log", "repair", str(shard), "--yes", "-o", "json").json()
    assert [(each["topic"], each["high"]) for each in said["lost"]] == [("kept", 10)]
    cli.ok("log", "verify", str(tmp_path / "restored"))
    with Broker(data_dir=str(tmp_path / "restored"), workers=2, config=CONFIG) as broker:
        _produce(broker.bootstrap_servers, range(10, 11))
        lost = {each["partition"] for each in said["lost"]}
        assert len(lost) == 1
        for partition, values in _read(broker.bootstrap_servers, set(range(PARTITIONS)) - lost).items():
            assert (values[:10], values[-1]) == ([*range(10)], 10), partition


def test_a_damaged_catalog_is_found(cli: CommandLine, saved: Path) -> None:
    with closing(sqlite3.connect(saved / "catalog.sqlite")) as connection:
        connection.execute("update change set records = cast(substr(records, 1, length(records) - 1) || x'07' as blob)")
        connection.execute("update snapshot set data = cast(data || x'07' as blob)")
        connection.commit()
    outcome = cli("log", "verify", str(saved))
    assert outcome.code == 1
    assert "of the catalog is damaged" in outcome.err


def test_a_backup_that_was_cut_off_is_none(cli: CommandLine, saved: Path, tmp_path: Path) -> None:
    (saved / "catalog.sqlite").unlink()
    outcome = cli("restore", str(saved), str(tmp_path / "restored"))
    assert outcome.code == 1
    assert f"{saved} is no backup" in outcome.err


@pytest.mark.parametrize("command", [("dump",), ("repair", "--yes")])
def test_commands_about_one_log_want_a_shard(cli: CommandLine, saved: Path, command: tuple[str, ...]) -> None:
    outcome = cli("log", *command, str(saved))
    assert outcome.code == 1
    assert "give the folder of one of its shards" in outcome.err
    assert cli.ok("log", "dump", str(saved / "shard-00"), "-t", "kept").out.count("topic=kept") >= 1
