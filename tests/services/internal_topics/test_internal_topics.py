"""Kafka's internal topics: made by the first request for them, and what is in them is what the broker knows."""

from __future__ import annotations

import random
import struct
from typing import Any

import pytest

from halfmoon.adapters.kafka.protocol import FetchRequest, MetadataRequest, ProduceRequest
from halfmoon.config.settings import load_settings
from halfmoon.core.records.batches import iter_records
from halfmoon.errors import BrokerError, Fault
from halfmoon.schema import control
from halfmoon.schema.control import Committed
from halfmoon.schema.groups import ConsumerGroupChange, GroupRecord
from halfmoon.schema.transactions import Identity
from halfmoon.services.internal_topics import records
from halfmoon.testing.node import BareNode
from tests.adapters.kafka.kafka_rig import Rig, batch
from tests.core.bench import sync

OFFSETS, TRANSACTIONS = "__consumer_offsets", "__transaction_state"


@pytest.fixture
def rig() -> Rig:
    rig = Rig()
    rig.start_plugins()
    return rig


def metadata(rig: Rig, *names: str, create: bool = False) -> Any:
    topics = None if not names else [MetadataRequest.MetadataRequestTopic(name=name, topic_id=None) for name in names]
    answer = rig.client().ask(
        3, 9, topics=topics, allow_auto_topic_creation=create,
        include_cluster_authorized_operations=False, include_topic_authorized_operations=False,
    )  # fmt: skip
    rig.turns()
    return {topic.name: topic for topic in answer.topics}


def produced(rig: Rig, name: str) -> int:
    """The error code of a batch for partition 0."""
    data = ProduceRequest.TopicProduceData
    part = data.PartitionProduceData(index=0, records=batch(b"x"))
    topics = [data(name=name, topic_id=None, partition_data=[part])]
    answer = rig.client().ask(0, 9, transactional_id=None, acks=-1, timeout_ms=1000, topic_data=topics)
    return int(answer.responses[0].partition_responses[0].error_code)


def fetched(rig: Rig, name: str, index: int) -> tuple[int, bytes]:
    """The error code and the records of a partition."""
    topic = FetchRequest.FetchTopic
    part = topic.FetchPartition(
        partition=index, current_leader_epoch=-1, fetch_offset=0, last_fetched_epoch=-1, log_start_offset=-1,
        partition_max_bytes=1 << 20,
    )  # fmt: skip
    answer = rig.client().ask(
        1, 11, replica_id=-1, max_wait_ms=0, min_bytes=0, max_bytes=1 << 20, isolation_level=0, session_id=0,
        session_epoch=-1, topics=[topic(topic=name, topic_id=None, partitions=[part])], forgotten_topics_data=[],
        rack_id="",
    )  # fmt: skip
    (found,) = answer.responses[0].partitions
    return found.error_code, bytes(found.records or b"")


def commit(rig: Rig, group: str, topic: str, *offsets: int) -> None:
    number = rig.broker.catalog.by_name[topic].number
    entries = [(number, index, Committed(offset, -1, "", 1_000 + offset)) for index, offset in enumerate(offsets)]
    rig.broker.append_control(control.OffsetsCommitted(group, entries))
    rig.turns()


def written(broker: BareNode, name: str) -> list[tuple[int, int, bytes, bytes | None]]:
    """(partition, offset, key, value) of all records."""
    found = []
    for partition in broker.catalog.by_name[name].partitions:
        for piece in broker.read(partition, partition.start_offset, 1 << 30, min_one=True).slices:
            base = struct.unpack_from(">q", piece)[0]
            found += [(partition.index, base + r.offset_delta, r.key, r.value) for r in iter_records(piece)]
    return found


def latest(broker: BareNode, name: str) -> dict[bytes, bytes]:
    """What a reader of the whole topic knows in the end."""
    known: dict[bytes, bytes] = {}
    for _, _, key, value in written(broker, name):
        known.pop(key, None)
        if value is not None:
            known[key] = value
    return known


def expected(broker: BareNode) -> dict[bytes, bytes]:
    """What the offsets' topic must say, from the state of groups."""
    groups = broker.state.groups
    known = {
        records.offset_key(group, broker.catalog.name_of(number), index): records.offset_value(committed)
        for group, offsets in groups.offsets.items()
        for (number, index), committed in offsets.items()
    }
    known |= {records.group_key(name): records.group_value(*saved) for name, saved in groups.groups.items()}
    for name, group in groups.consumer_groups.items():
        known[records.consumer_group_key(name)] = records.consumer_group_value(group.epoch)
    return known


def test_before_the_first_request_there_is_nothing_and_a_commit_writes_nothing_more(rig: Rig) -> None:
    rig.topic("t", 2)
    before = rig.broker.log.end
    commit(rig, "g", "t", 5)
    entry = [(rig.broker.catalog.by_name["t"].number, 0, Committed(5, -1, "", 1_005))]
    assert rig.broker.log.end - before < 200 + len(control.encode(control.OffsetsCommitted("g", entry)))
    assert rig.broker.state.internal_topics.unwritten == {}
    assert list(metadata(rig)) == ["t"]


@pytest.mark.parametrize("create", [False, True])
def test_the_first_request_makes_them(rig: Rig, create: bool) -> None:
    found = metadata(rig, OFFSETS, TRANSACTIONS, create=create)
    for name in (OFFSETS, TRANSACTIONS):
        assert (found[name].error_code, found[name].is_internal, len(found[name].partitions)) == (0, True, 50)
        topic = rig.broker.catalog.by_name[name]
        assert (topic.rules.compacts, topic.rules.deletes, topic.configs["segment.bytes"]) == (True, False, "104857600")
    assert list(metadata(rig)) == [OFFSETS, TRANSACTIONS], "tools that list all topics see them from then on"


def test_what_was_known_before_is_written_then_and_what_comes_after_too(rig: Rig) -> None:
    rig.topic("t", 3)
    commit(rig, "g", "t", 5, 6)
    rig.broker.append_control(control.GroupSaved(GroupRecord("g", 4, "consumer", "", "", False, ()), 77))
    rig.broker.append_control(control.ConsumerGroupSaved(ConsumerGroupChange("new", 5, 4, True), 78))
    metadata(rig, OFFSETS)
    assert latest(rig.broker, OFFSETS) == expected(rig.broker)
    assert len(expected(rig.broker)) == 4
    first = written(rig.broker, OFFSETS)
    assert {index for index, *_ in first} == {records.partition_for("g"), records.partition_for("new")}
    commit(rig, "g", "t", 8, 6, 1)
    commit(rig, "other", "t", 9)
    assert latest(rig.broker, OFFSETS) == expected(rig.broker)
    assert [row for row in written(rig.broker, OFFSETS) if row in first] == first, "offsets never change"


@pytest.mark.parametrize(
    "taken",
    [
        lambda number: control.OffsetsDeleted("g", [(number, 1)]),
        lambda number: control.GroupDeleted("g"),
        lambda number: control.TopicDeleted(number),
        lambda number: control.ConsumerGroupSaved(ConsumerGroupChange("g", 5, 4, True), 78),
        lambda number: control.GroupSaved(GroupRecord("new", 1, "consumer", "", "", False, ()), 79),
    ],
    ids=["offsets", "group", "topic", "upgraded", "downgraded"],
)
def test_what_is_taken_away_leaves_tombstones(rig: Rig, taken: Any) -> None:
    rig.topic("t", 2)
    number = rig.broker.catalog.by_name["t"].number
    metadata(rig, OFFSETS)
    commit(rig, "g", "t", 5, 6)
    rig.broker.append_control(control.GroupSaved(GroupRecord("g", 4, "consumer", "", "", False, ()), 77))
    rig.broker.append_control(control.ConsumerGroupSaved(ConsumerGroupChange("new", 5, 4, True), 78))
    rig.turns()
    before = expected(rig.broker)
    rig.broker.append_control(taken(number))
    rig.turns()
    assert latest(rig.broker, OFFSETS) == expected(rig.broker)
    assert before.keys() - expected(rig.broker).keys()


def test_transactional_ids_and_the_offsets_that_they_commit(rig: Rig) -> None:
    rig.topic("t", 2)
    number = rig.broker.catalog.by_name["t"].number
    metadata(rig, OFFSETS, TRANSACTIONS)
    for record in (
        control.TransactionalIdInitialized("x", Identity(7, 0), 60_000, 10),
        control.TransactionGrown("x", [(number, 0), (number, 1)], ["g"], 11),
        control.TransactionOffsets("x", "g", [(number, 1, Committed(3, -1, "", 12))]),
    ):
        rig.broker.append_control(record)
        rig.turns()
    value = latest(rig.broker, TRANSACTIONS)[records.transaction_key("x")]
    assert value == (
        struct.pack(">hqhib", 0, 7, 0, 60_000, 1) + struct.pack(">i", 2) + b"\0\1t" + struct.pack(">iii", 2, 0, 1)
        + b"\0\x12__consumer_offsets" + struct.pack(">ii", 1, records.partition_for("g")) + struct.pack(">qq", 11, 11)
    )  # fmt: skip
    assert latest(rig.broker, OFFSETS) == {}
    rig.broker.append_control(control.TransactionEnded("x", Identity(7, 0), True, 13))
    rig.turns()
    assert list(latest(rig.broker, OFFSETS)) == [records.offset_key("g", "t", 1)]
    assert latest(rig.broker, TRANSACTIONS)[records.transaction_key("x")][16] == 4
    rig.broker.append_control(control.TransactionalIdsExpired(["x"]))
    rig.turns()
    assert latest(rig.broker, TRANSACTIONS) == {}


def test_clients_may_read_and_not_write_them(rig: Rig) -> None:
    for name in (OFFSETS, TRANSACTIONS):
        assert produced(rig, name) == 17
        with pytest.raises(BrokerError) as refused:
            rig.broker.create_topic(name, 1)
        assert refused.value.fault is Fault.INVALID_TOPIC_EXCEPTION
    rig.topic("t")
    metadata(rig, OFFSETS, TRANSACTIONS)
    commit(rig, "g", "t", 5)
    for name in (OFFSETS, TRANSACTIONS):
        assert produced(rig, name) == 17
    error, data = fetched(rig, OFFSETS, records.partition_for("g"))
    assert error == 0
    assert [record.key for record in iter_records(data)] == [records.offset_key("g", "t", 0)]


def test_with_groups_off_nothing_is_offered() -> None:
    rig = Rig(services__groups=False, services__share=False)
    rig.start_plugins()
    assert metadata(rig, OFFSETS, create=True)[OFFSETS].error_code == 17
    assert metadata(rig, TRANSACTIONS)[TRANSACTIONS].error_code == 0


def reopened(rig: Rig, fs: Any) -> BareNode:
    broker = BareNode(fs, load_settings(None, {}, {"log.segment_bytes": "1MiB", "log.low_disk_bytes": 0}), rig.clock,
                      random.Random(3).randbytes)  # fmt: skip
    broker.open()
    broker.start()
    return broker


def finish(broker: BareNode) -> None:
    while broker.relays.has_work or broker.dirty:
        loading = broker.relays.step() if broker.relays.has_work else None
        if loading is not None:
            loading.loaded(loading.load())
        broker.write()
        sync(broker)
        broker.settle()


@pytest.mark.parametrize("steps", range(12))
def test_a_power_cut_anywhere_loses_nothing_and_writes_nothing_twice(steps: int) -> None:
    rig = Rig()
    rig.start_plugins()
    rig.topic("t", 2)
    commit(rig, "g", "t", 1)
    metadata(rig, OFFSETS)
    number = rig.broker.catalog.by_name["t"].number
    changes = [
        control.OffsetsCommitted("g", [(number, 0, Committed(2, -1, "", 5))]),
        control.GroupSaved(GroupRecord("g", 4, "consumer", "", "", False, ()), 77),
        control.OffsetsCommitted("h", [(number, 1, Committed(3, -1, "", 6))]),
        control.GroupDeleted("h"),
    ]
    for done in range(steps):
        if done % 3 == 0:
            rig.broker.append_control(changes[done // 3])
        elif done % 3 == 1:
            rig.turn()
        elif rig.broker.relays.has_work:
            rig.broker.relays.step()
    broker = reopened(rig, rig.fs.power_loss())
    finish(broker)
    assert latest(broker, OFFSETS) == expected(broker)
    assert broker.state.internal_topics.unwritten == {}
    once = written(broker, OFFSETS)
    again = reopened(rig, broker.fs.power_loss())
    finish(again)
    assert written(again, OFFSETS) == once


def test_an_ordinary_topic_of_that_name_is_renamed_at_the_start(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    for name in (OFFSETS, f"renamed.{OFFSETS}"):
        made = control.TopicCreated(rig.broker.catalog.next_topic_number, name, name[:16].encode(), 2, {})
        rig.broker.append_control(made)
    rig.append(rig.broker.catalog.by_name[OFFSETS].partitions[1], b"mine")
    broker = reopened(rig, rig.fs.power_loss())
    topic = broker.catalog.by_name[f"renamed.1.{OFFSETS}"]
    assert OFFSETS not in broker.catalog.by_name
    assert [value for _, _, _, value in written(broker, topic.name)] == [b"mine"]
    assert "event=topic_renamed topic=__consumer_offsets name=renamed.1.__consumer_offsets" in caplog.text
    finish(broker)
    assert f"renamed.1.{OFFSETS}" in reopened(rig, broker.fs.power_loss()).catalog.by_name


def test_many_records_are_written_in_pieces(rig: Rig) -> None:
    rig.topic("t", 1)
    metadata(rig, OFFSETS)
    number = rig.broker.catalog.by_name["t"].number
    for group in range(1_000):
        entry = (number, 0, Committed(group, -1, "m" * 500, 1))
        rig.broker.append_control(control.OffsetsCommitted(f"g{group}", [entry]))
    rig.turns()
    assert latest(rig.broker, OFFSETS) == expected(rig.broker)
    assert len({index for index, *_ in written(rig.broker, OFFSETS)}) == 50


def test_what_is_unwritten_when_the_broker_ends_is_written_at_the_next_start(rig: Rig) -> None:
    rig.topic("t", 1)
    metadata(rig, OFFSETS)
    number = rig.broker.catalog.by_name["t"].number
    rig.broker.append_control(control.OffsetsCommitted("g", [(number, 0, Committed(2, -1, "", 5))]))
    rig.turn()
    assert rig.broker.state.internal_topics.unwritten
    rig.broker.close()
    broker = reopened(rig, rig.fs)
    assert broker.report.clean
    finish(broker)
    assert latest(broker, OFFSETS) == expected(broker) != {}
