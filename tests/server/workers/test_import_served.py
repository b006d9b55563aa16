"""A broker of one process, then its directory imported and served by two processes, by five, and by one of several."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from halfmoon.server.workers.importing import import_directory
from halfmoon.testing import Broker
from tests.testing.test_broker import QUIET

PARTITIONS = 20
RECORDS = 200
LATE_S = 12
CONFIG = {"log": {"segment_bytes": "1MiB", "low_disk_bytes": 0}}
Found = dict[tuple[int, int], bytes | None]
"""By partition and offset."""


def send(broker: Broker, topic: str, *values: bytes, transactional_id: str = "", **headers: str) -> None:
    ids = {"transactional.id": transactional_id} if transactional_id else {}
    producer = Producer({**broker.client_config(), **ids, "enable.idempotence": True, **QUIET})
    if ids:
        producer.init_transactions(20)
        producer.begin_transaction()
    for number, value in enumerate(values):
        producer.produce(topic, value, partition=number % PARTITIONS, headers=list(headers.items()))
    assert producer.flush(20) == 0
    if ids:
        producer.commit_transaction(20)


def send_half(broker: Broker, topic: str, values: list[bytes]) -> None:
    """One to each partition, each under a key of its own."""
    producer = Producer({**broker.client_config(), **QUIET})
    for number, value in enumerate(values):
        headers = {"TRAN_MSG": "true", "PGROUP": "shop", "UNIQ_KEY": f"u{number}"}
        producer.produce(topic, value, partition=number, headers=list(headers.items()))
    assert producer.flush(20) == 0


def commit_half(broker: Broker, count: int) -> None:
    producer = Producer({**broker.client_config(), **QUIET})
    for number in range(count):
        headers = {"PGROUP": "shop", "UNIQ_KEY": f"u{number}", "TRAN_STATE": "commit"}
        producer.produce("halfmoon.transactions", b"", partition=0, headers=list(headers.items()))
    assert producer.flush(20) == 0


def read(broker: Broker, topic: str, count: int) -> Found:
    consumer = Consumer({**broker.client_config(), "group.id": "unused", "isolation.level": "read_committed", **QUIET})
    consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in range(PARTITIONS)])
    found: Found = {}
    end_s = time.monotonic() + 20
    while len(found) < count and time.monotonic() < end_s:
        for message in consumer.consume(count, timeout=0.5):
            assert message.error() is None, message.error()
            partition, offset = message.partition(), message.offset()
            assert partition is not None
            assert offset is not None
            assert (partition, offset) not in found
            found[partition, offset] = message.value()
    assert not consumer.consume(1, timeout=0.5), "there is more"
    consumer.close()
    return found


def commit(broker: Broker, group: str, topic: str, offset: int) -> None:
    consumer = Consumer({**broker.client_config(), "group.id": group, **QUIET})
    consumer.commit(offsets=[TopicPartition(topic, number, offset) for number in range(PARTITIONS)], asynchronous=False)
    consumer.close()


def committed(broker: Broker, group: str, topic: str) -> set[int]:
    consumer = Consumer({**broker.client_config(), "group.id": group, **QUIET})
    found = consumer.committed([TopicPartition(topic, number) for number in range(PARTITIONS)], timeout=20)
    consumer.close()
    return {each.offset for each in found}


def set_all(broker: Broker) -> None:
    """What administrators set for all."""
    admin = AdminClient(broker.client_config())
    entry = ConfigEntry("log.retention.ms", "7200000", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.BROKER, "1", incremental_configs=[entry])
    for done in admin.incremental_alter_configs([resource]).values():
        done.result(10)
    credential = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
    upsertion = UserScramCredentialUpsertion("alice", credential, b"secret")
    for done in admin.alter_user_scram_credentials([upsertion]).values():
        done.result(10)


def look_at_all(broker: Broker) -> None:
    admin = AdminClient(broker.client_config())
    (found,) = admin.describe_configs([ConfigResource(ConfigResource.Type.TOPIC, "t")]).values()
    assert found.result(10)["retention.ms"].value == "7200000"
    (known,) = admin.describe_user_scram_credentials(["alice"])["alice"].result(10).scram_credential_infos
    assert known.iterations == 4096


@pytest.mark.timeout(240)
def test_records_are_there_whoever_serves_them(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    values = [b"%d" % number + b"x" * 5_000 for number in range(RECORDS)]
    halves = [b"half %d" % number for number in range(PARTITIONS)]
    delayed = [b"late %d" % number for number in range(PARTITIONS)]
    with Broker(data_dir=str(folder), config=CONFIG) as broker:
        admin = AdminClient(broker.client_config())
        admin.create_topics([NewTopic("t", PARTITIONS, 1)])["t"].result(10)
        send(broker, "t", *values)
        send(broker, "t", *[b"txn"] * PARTITIONS, transactional_id="a")
        send(broker, "t", *delayed, TIMER_DELAY_MS=str(LATE_S * 1_000))
        sent_s = time.monotonic()
        send_half(broker, "t", halves)
        set_all(broker)
        before = read(broker, "t", RECORDS + PARTITIONS)
        for number in range(5):
            commit(broker, f"g{number}", "t", 3 + number)
    made = import_directory(folder, 16)
    assert made is not None
    assert made.transactional_ids == 1
    more = 0
    for workers in (2, 5, 1):
        with Broker(data_dir=str(folder), workers=workers, config=CONFIG) as broker:
            for number in range(5):
                assert committed(broker, f"g{number}", "t") == {3 + number}
            send(broker, "t", b"with %d" % workers)
            send(broker, "t", *[b"txn"] * 2, transactional_id="a")
            if workers == 5:
                commit_half(broker, len(halves))
                more += len(halves)
            more += 3
            look_at_all(broker)
            if workers == 2:
                time.sleep(max(0, sent_s + LATE_S - time.monotonic()))
            found = read(broker, "t", len(before) + len(delayed) + more)
            assert {place: found[place] for place in before} == before
            assert sorted(value for value in found.values() if value and value.startswith(b"late")) == sorted(delayed)
            ended = sorted(value for value in found.values() if value and value.startswith(b"half"))
            assert ended == ([] if workers == 2 else sorted(halves))
            admin = AdminClient(broker.client_config())
            name = f"made-by-{workers}"
            admin.create_topics([NewTopic(name, PARTITIONS, 1)])[name].result(10)
            send(broker, name, b"v")
            assert list(read(broker, name, 1).values()) == [b"v"]
            admin.delete_topics([name])[name].result(10)
