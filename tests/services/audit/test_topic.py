"""Audit's topic, on a broker whose loop is the test."""

from __future__ import annotations

import random
from typing import Any

import pytest

from halfmoon.adapters.kafka.protocol import REQUESTS, FetchRequest, ProduceRequest
from halfmoon.core.records.batches import iter_records
from halfmoon.errors import BrokerError, Fault
from halfmoon.schema import control
from halfmoon.schema.readable_topics import AUDIT_TOPIC
from halfmoon.services.audit import topic as audit_topic
from halfmoon.testing.node import BareNode
from tests.adapters.kafka.kafka_rig import Rig, batch

WEEK_MS = 7 * 86_400_000


@pytest.fixture
def rig() -> Rig:
    rig = Rig()
    rig.start_plugins()
    rig.turns()
    return rig


def put(rig: Rig, *lines: bytes) -> None:
    for line in lines:
        rig.broker.audit_topic.put(line, echo=False)


def lingered(rig: Rig) -> None:
    rig.pass_time(audit_topic.LINGER_MS)
    rig.turns()


def written(broker: BareNode) -> list[tuple[bytes | None, bytes | None, int]]:
    """(key, value, time) of all records."""
    topic = broker.catalog.topic(AUDIT_TOPIC)
    if topic is None:
        return []
    (partition,) = topic.partitions
    slices = broker.read(partition, 0, 1 << 30, min_one=True).slices
    return [(each.key, each.value, each.timestamp) for piece in slices for each in iter_records(piece)]


def lines(broker: BareNode) -> list[bytes | None]:
    return [value for _, value, _ in written(broker)]


def test_lines_become_records_a_moment_later(rig: Rig) -> None:
    begun_ms = rig.clock.now_ms
    put(rig, b"one")
    rig.pass_time(100)
    put(rig, b"two")
    rig.turns()
    assert rig.broker.catalog.topic(AUDIT_TOPIC) is None
    rig.pass_time(audit_topic.LINGER_MS - 100)
    rig.turns()
    assert written(rig.broker) == [(None, b"one", begun_ms), (None, b"two", begun_ms + 100)]
    put(rig, b"three")
    lingered(rig)
    assert lines(rig.broker) == [b"one", b"two", b"three"]
    topic = rig.broker.catalog.topic(AUDIT_TOPIC)
    assert topic is not None
    assert (topic.internal, topic.hidden, topic.configs["retention.ms"]) == (True, False, str(WEEK_MS))
    assert topic.configs["retention.bytes"] == str(1 << 30)


def test_many_bytes_do_not_wait(rig: Rig) -> None:
    count = audit_topic.AT_ONCE_BYTES // 1_000 + 1
    put(rig, *[b"x" * 1_000] * count)
    rig.turns()
    assert len(lines(rig.broker)) == count
    put(rig, *[b"y" * 1_000] * (3 * count))
    lingered(rig)
    assert len(lines(rig.broker)) == 4 * count
    assert rig.broker.audit_topic.dropped == 0


def test_what_does_not_fit_is_counted(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_topic, "MOST_BYTES", 1_000)
    put(rig, *[b"x" * 100] * 15)
    assert rig.broker.audit_topic.dropped == 5
    lingered(rig)
    assert len(lines(rig.broker)) == 10
    put(rig, b"again")
    lingered(rig)
    assert lines(rig.broker)[-1] == b"again"
    assert rig.broker.audit_topic.dropped == 5


def test_an_echo_is_not_written(rig: Rig) -> None:
    rig.broker.audit_topic.put(b"heard", echo=True)
    put(rig, b"said")
    lingered(rig)
    assert lines(rig.broker) == [b"said"]


@pytest.mark.pure
def test_a_log_that_takes_nothing_is_tried_again(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    appender = rig.broker.kernel.appender
    with monkeypatch.context() as patched:

        def refuse(*_: Any, **__: Any) -> int:
            raise BrokerError(Fault.KAFKA_STORAGE_ERROR, "the disk is full")

        patched.setattr(appender, "append_group", refuse)
        put(rig, b"one")
        lingered(rig)
        put(rig, b"two")
        lingered(rig)
        assert any("writer of the audit topic: the disk is full" in each for each in rig.broker.health())
    rig.pass_time(60_000)
    rig.turns()
    assert lines(rig.broker) == [b"one", b"two"]
    assert rig.broker.health() == []


def reopened(rig: Rig) -> BareNode:
    broker = BareNode(rig.fs, rig.settings, rig.clock, random.Random(3).randbytes)
    broker.open()
    broker.use({})
    broker.start()
    return broker


def test_what_waits_is_written_at_the_stop(rig: Rig) -> None:
    put(rig, b"the last")
    rig.broker.close()
    assert lines(reopened(rig)) == [b"the last"]


@pytest.mark.pure
def test_a_stop_with_a_log_that_takes_nothing(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> int:
        raise BrokerError(Fault.KAFKA_STORAGE_ERROR, "the disk is full")

    put(rig, b"one", b"two")
    monkeypatch.setattr(rig.broker.kernel.appender, "append_group", refuse)
    rig.broker.close()
    assert rig.broker.audit_topic.dropped == 2


def test_clients_may_read_it_and_nothing_else(rig: Rig) -> None:
    put(rig, b"one")
    lingered(rig)
    data = ProduceRequest.TopicProduceData
    part = data.PartitionProduceData(index=0, records=batch(b"forged"))
    topics = [data(name=AUDIT_TOPIC, topic_id=None, partition_data=[part])]
    answer = rig.client().ask(0, 9, transactional_id=None, acks=-1, timeout_ms=1000, topic_data=topics)
    assert answer.responses[0].partition_responses[0].error_code == 17  # INVALID_TOPIC_EXCEPTION
    deleted = rig.client().ask(20, 5, topic_names=[AUDIT_TOPIC], timeout_ms=1000)
    assert deleted.responses[0].error_code != 0
    cut = rig.client().ask(21, 2, topics=[_cut()], timeout_ms=1000)
    assert cut.topics[0].partitions[0].error_code != 0
    assert _fetched(rig) == (0, [b"one"])
    names = [each.name for each in _metadata(rig).topics]
    assert names == [AUDIT_TOPIC]


def _cut() -> Any:
    topic = REQUESTS[21].DeleteRecordsTopic
    part = topic.DeleteRecordsPartition(partition_index=0, offset=-1)
    return topic(name=AUDIT_TOPIC, partitions=[part])


def _metadata(rig: Rig) -> Any:
    return rig.client().ask(
        3, 9, topics=None, allow_auto_topic_creation=False, include_cluster_authorized_operations=False,
        include_topic_authorized_operations=False,
    )  # fmt: skip


def _fetched(rig: Rig) -> tuple[int, list[bytes | None]]:
    topic = FetchRequest.FetchTopic
    part = topic.FetchPartition(
        partition=0, current_leader_epoch=-1, fetch_offset=0, last_fetched_epoch=-1, log_start_offset=-1,
        partition_max_bytes=1 << 20,
    )  # fmt: skip
    answer = rig.client().ask(
        1, 11, replica_id=-1, max_wait_ms=0, min_bytes=0, max_bytes=1 << 20, isolation_level=0, session_id=0,
        session_epoch=-1, topics=[topic(topic=AUDIT_TOPIC, topic_id=None, partitions=[part])],
        forgotten_topics_data=[], rack_id="",
    )  # fmt: skip
    (found,) = answer.responses[0].partitions
    return found.error_code, [each.value for each in iter_records(bytes(found.records))]


def test_the_name_is_reserved_and_makes_way_where_clients_had_it(rig: Rig) -> None:
    with pytest.raises(BrokerError, match="reserved"):
        rig.topic(AUDIT_TOPIC)
    for name in (AUDIT_TOPIC, f"renamed.{AUDIT_TOPIC}"):
        number = rig.broker.catalog.next_topic_number
        rig.broker.append_control(control.TopicCreated(number, name, name[-16:].encode(), 1, {}))
    rig.append(rig.broker.catalog.by_name[AUDIT_TOPIC].partitions[0], b"mine")
    rig.broker.close()
    broker = reopened(rig)
    assert AUDIT_TOPIC not in broker.catalog.by_name
    assert f"renamed.1.{AUDIT_TOPIC}" in broker.catalog.by_name


SASL = {"listeners__kafka__sasl": ["SCRAM-SHA-512"]}


def test_where_audit_writes_there_it_is_made_at_the_start() -> None:
    assert Rig().broker.audit is None
    rig = Rig(**SASL)
    rig.start_plugins()
    assert rig.broker.catalog.topic(AUDIT_TOPIC) is not None
    assert rig.broker.audit.sinks == (rig.broker.audit_topic,)


def test_where_it_cannot_be_made_the_start_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig(**SASL, limits__max_partitions=1)
    rig.topic("t")
    rig.start_plugins()
    assert rig.broker.catalog.topic(AUDIT_TOPIC) is None
    assert "event=audit_topic_not_made" in caplog.text
    put(rig, b"one")
    lingered(rig)
    assert any("writer of the audit topic" in each for each in rig.broker.health())
    rig.broker.delete_topic(rig.broker.catalog.by_name["t"])
    rig.pass_time(60_000)
    rig.turns()
    assert lines(rig.broker) == [b"one"]
