"""Partitions of one topic in several shards: they are written and read as if they lay in one log."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from kafka_rig import RigClient, batch
from shard_rig import HERE, ShardRig
from test_api_00_produce import fields as producing
from test_api_00_produce import results
from test_api_01_fetch import fields as fetching
from test_api_01_fetch import parts, wanted
from test_api_02_list_offsets import asking, only
from test_api_75_describe_topic_partitions import asking as describing
from test_late_produce import long
from test_owners import endpoints, leader

from halfmoon.adapters.kafka.produce_codec import FEW
from halfmoon.cluster.store import CatalogUnavailableError
from halfmoon.core import checking
from halfmoon.core.records.batches import iter_records
from halfmoon.core.storage.segment import Sync
from tests.kafka_messages import made

NOT_LEADER, TIMED_OUT, UNKNOWN = 6, 7, 3
PRODUCE, FETCH, OFFSETS, METADATA, CREATE, DESCRIBE = 0, 1, 2, 3, 19, 75
MANY = FEW + 60


@pytest.fixture
def rig() -> ShardRig:
    return ShardRig()


@pytest.fixture
def client(rig: ShardRig) -> RigClient:
    return RigClient(rig)  # type: ignore[arg-type]


def here(rig: ShardRig, name: str = "t") -> list[int]:
    """The indexes of the partitions that lie in this process."""
    topic = rig.front.catalog.by_name[name]
    return [index for index in range(len(topic.partitions)) if rig.shard_of(topic, index) in HERE]


def values(rig: ShardRig, index: int, name: str = "t") -> list[bytes]:
    partition = rig.front.catalog.by_name[name].partitions[index]
    slices = rig.front.read(partition, 0, 1 << 20, min_one=True).slices
    return [bytes(record.value or b"") for piece in slices for record in iter_records(piece)]


def settle(rig: ShardRig) -> None:
    while rig.loop.soon or rig.loop.threads:
        rig.loop.run_threads()
        rig.turn()
    rig.turn()


def test_metadata_names_all_leaders_and_their_epochs(rig: ShardRig, client: RigClient) -> None:
    topic = rig.topic("t", 8)
    answer = client.ask(METADATA, 12, topics=None, allow_auto_topic_creation=False)
    assert sorted((node.node_id, node.port) for node in answer.brokers)[1] == (9, 9_192)
    (told,) = answer.topics
    found = [(part.leader_id, part.leader_epoch) for part in told.partitions]
    epochs = {0: rig.nodes[0].generation, 1: 21, 2: rig.nodes[2].generation, 3: 23}
    shards = [rig.shard_of(topic, index) for index in range(8)]
    assert found == [(7 if shard in HERE else 9, epochs[shard]) for shard in shards]
    assert sorted(shards) == [0, 0, 1, 1, 2, 2, 3, 3]
    described = client.ask(DESCRIBE, 0, **describing("t")).topics[0].partitions
    assert [(part.leader_id, part.leader_epoch) for part in described] == found


@pytest.mark.parametrize("version", [3, 8, 9, 12, 13])
def test_a_request_is_taken_apart_by_shard(rig: ShardRig, client: RigClient, version: int) -> None:
    topic = rig.topic("t", 4)
    sent = [(index, batch(b"v%d" % index)) for index in (3, 1, 0, 2, 9)]
    answer = client.ask(PRODUCE, version, **producing(*sent, topic_id=uuid.UUID(bytes=topic.id)))
    codes = {index: 0 if index in here(rig) else NOT_LEADER for index in range(4)} | {9: UNKNOWN}
    assert [row[:2] for row in results(answer)] == [(index, codes[index]) for index in (3, 1, 0, 2, 9)]
    assert [values(rig, index) for index in here(rig)] == [[b"v%d" % index] for index in here(rig)]
    if version >= 10:
        told = {part.index: leader(part) for part in answer.responses[0].partition_responses}
        assert {index for index, found in told.items() if found is not None} == {0, 1, 2, 3} - set(here(rig))
        assert [node[:2] for node in endpoints(answer)] == [(9, "other.example")]


def test_it_is_answered_when_all_shards_have_it_on_the_disk(rig: ShardRig, client: RigClient) -> None:
    rig.topic("t", 4)
    client.feed(client.encode(PRODUCE, 9, **producing(*[(index, batch(b"v")) for index in here(rig)])))
    first, last = rig.nodes.values()
    for node in (first, last):
        node.write()
        assert client.frames() == []
        job = node.log.sync_job()
        assert job is not None
        job.run()
        node.finish_sync(job, None)
        rig.loop.run()
    (answer,) = client.answers()
    assert [row[1] for row in results(answer)] == [0, 0]


@pytest.mark.parametrize("acks", [0, 1])
def test_any_acks(rig: ShardRig, client: RigClient, acks: int) -> None:
    rig.topic("t", 4)
    client.feed(client.encode(PRODUCE, 9, **producing(*[(index, batch(b"v")) for index in here(rig)], acks=acks)))
    rig.turn()
    assert len(client.frames()) == acks
    assert not client.transport.closed
    assert [values(rig, index) for index in here(rig)] == [[b"v"]] * 2
    if not acks:
        client.feed(client.encode(PRODUCE, 9, **producing((here(rig)[0], batch(b"v")), (9, batch(b"v")), acks=0)))
        rig.turn()
        assert client.transport.closed


def test_a_partition_that_is_named_twice(rig: ShardRig, client: RigClient) -> None:
    rig.topic("t", 4)
    one, other = here(rig)
    answer = client.ask(PRODUCE, 9, **producing(*[(index, batch(b"v")) for index in (one, other, one)]))
    assert [row[:3] for row in results(answer)] == [(one, 0, 0), (other, 0, 0), (one, 0, 1)]


def test_requests_without_batches(rig: ShardRig, client: RigClient) -> None:
    answer = client.ask(PRODUCE, 9, transactional_id=None, acks=-1, timeout_ms=1, topic_data=[])
    assert answer.responses == []


@pytest.mark.parametrize("version", [3, 9, 12])
def test_very_many_batches(rig: ShardRig, client: RigClient, version: int) -> None:
    rig.topic("t", MANY)
    client.feed(client.encode(PRODUCE, version, **producing(*[(index, batch(b"v")) for index in range(MANY)])))
    assert client.frames() == []
    settle(rig)
    (answer,) = client.answers()
    mine = set(here(rig))
    assert len(mine) == MANY // 2
    assert [row[:2] for row in results(answer)] == [
        (index, 0 if index in mine else NOT_LEADER) for index in range(MANY)
    ]
    assert all(values(rig, index) == [b"v"] for index in mine)


def test_batches_that_take_long_to_check(rig: ShardRig, client: RigClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checking, "SLICE", 10)
    monkeypatch.setattr(checking, "WALKED_AT_ONCE_BYTES", 500)
    monkeypatch.setattr(checking, "OPENED_AT_ONCE_BYTES", 500)
    rig.topic("t", 4)
    one, other = here(rig)
    client.feed(client.encode(PRODUCE, 9, **producing((one, batch(b"short")), (other, long(b"a")), (9, batch(b"v")))))
    client.feed(client.encode(PRODUCE, 9, **producing((other, batch(b"behind")))))
    settle(rig)
    first, second = client.answers()
    assert [row[:3] for row in results(first)] == [(one, 0, 0), (other, 0, 0), (9, UNKNOWN, -1)]
    assert results(second)[0][:3] == (other, 0, 100)
    assert len(values(rig, other)) == 101


def test_a_shard_that_has_failed_disturbs_no_other(rig: ShardRig, client: RigClient) -> None:
    topic = rig.topic("t", 4)
    one, other = here(rig)
    node = rig.nodes[rig.shard_of(topic, other)]
    job: Sync | None = None
    client.feed(client.encode(PRODUCE, 9, **producing((one, batch(b"v")), (other, batch(b"v")))))
    node.write()
    job = node.log.sync_job()
    assert job is not None
    node.finish_sync(job, OSError("the disk is broken"))
    rig.turn()
    (answer,) = client.answers()
    assert [row[:2] for row in results(answer)] == [(one, 0), (other, TIMED_OUT)]
    answer = client.ask(PRODUCE, 9, **producing((one, batch(b"w"))))
    assert results(answer)[0][:3] == (one, 0, 1)
    answer = client.ask(PRODUCE, 9, **producing((other, batch(b"w")), (one, batch(b"x"))))
    assert [row[:2] for row in results(answer)] == [(other, TIMED_OUT), (one, 0)]


def fetch(client: RigClient, rig: ShardRig, *indexes: int, **given: Any) -> dict[int, tuple[int, int]]:
    """Partition → error, bytes of records."""
    answer = client.ask(FETCH, 12, **fetching("t", *[wanted(index) for index in indexes], **given))
    return {part.partition_index: (part.error_code, len(part.records or b"")) for part in parts(answer)}


def test_one_fetch_reads_of_all_shards(rig: ShardRig, client: RigClient) -> None:
    rig.topic("t", 4)
    client.ask(PRODUCE, 9, **producing(*[(index, batch(b"v" * (index + 1))) for index in here(rig)]))
    found = fetch(client, rig, *range(4))
    assert [index for index, (error, size) in found.items() if not error and size] == here(rig)
    assert {error for index, (error, _) in found.items() if index not in here(rig)} == {NOT_LEADER}


@pytest.mark.parametrize("at", [0, 1])
def test_a_held_fetch_waits_for_all_shards(rig: ShardRig, client: RigClient, at: int) -> None:
    """Whichever has something first."""
    rig.topic("t", 4)
    waiting = RigClient(rig)  # type: ignore[arg-type]
    asked = fetching("t", *[wanted(index) for index in here(rig)], max_wait_ms=1_000)
    waiting.feed(waiting.encode(FETCH, 12, **asked))
    rig.turn()
    assert waiting.frames() == []
    client.ask(PRODUCE, 9, **producing((here(rig)[at], batch(b"v"))))
    (answer,) = waiting.answers()
    assert [bool(part.records) for part in parts(answer)] == [at == 0, at == 1]


def test_a_shard_that_goes_to_another_process_takes_its_partitions_along(rig: ShardRig, client: RigClient) -> None:
    rig.topic("t", 4)
    stays, goes = here(rig)
    client.ask(PRODUCE, 9, **producing((stays, batch(b"v")), (goes, batch(b"v"))))
    waiting = RigClient(rig)  # type: ignore[arg-type]
    asked = fetching("t", wanted(stays, 1), wanted(goes, 1), max_wait_ms=1_000)
    waiting.feed(waiting.encode(FETCH, 12, **asked))
    rig.turn()
    assert waiting.frames() == []
    rig.lose(rig.shard_of(rig.front.catalog.by_name["t"], goes))
    (answer,) = waiting.answers()
    assert {part.partition_index: part.error_code for part in parts(answer)} == {stays: 0, goes: NOT_LEADER}
    answer = client.ask(PRODUCE, 9, **producing((stays, batch(b"w")), (goes, batch(b"w"))))
    assert {row[0]: row[1] for row in results(answer)} == {stays: 0, goes: NOT_LEADER}
    assert {index: error for index, (error, _) in fetch(client, rig, *range(4)).items() if not error} == {stays: 0}


def test_a_shard_that_comes_brings_its_partitions_and_is_told_what_it_has_missed(
    rig: ShardRig, client: RigClient
) -> None:
    topic = rig.topic("t", 4)
    _, goes = here(rig)
    number = rig.shard_of(topic, goes)
    client.ask(PRODUCE, 9, **producing((goes, batch(b"before"))))
    rig.lose(number)
    rig.topic("made-meanwhile", 4)
    rig.change(lambda: rig.delete(topic))
    rig.topic("u", 4)
    rig.get_back(number)
    assert rig.nodes[number].catalog.topic("t") is None
    for name in ("made-meanwhile", "u"):
        of_it = here(rig, name)
        assert [rig.front.find_kernel(rig.front.catalog.by_name[name].partitions[at]) is not None for at in of_it] == [
            True,
            True,
        ]
        answer = client.ask(PRODUCE, 9, **producing(*[(at, batch(b"x")) for at in of_it], topic=name))
        assert {row[1] for row in results(answer)} == {0}


@pytest.mark.parametrize(("timestamp", "offset"), [(-1, 2), (-2, 0)])
def test_offsets_of_each_shard(rig: ShardRig, client: RigClient, timestamp: int, offset: int) -> None:
    rig.topic("t", 4)
    client.ask(PRODUCE, 9, **producing(*[(index, batch(b"a", b"b")) for index in here(rig)]))
    for index in range(4):
        found = only(
            client.ask(OFFSETS, 7, replica_id=-1, isolation_level=0, topics=asking(timestamp, index=index))
        )  # fmt: skip
        assert (found.error_code, found.offset) == ((0, offset) if index in here(rig) else (NOT_LEADER, -1))


def test_topics_that_come_and_go(rig: ShardRig, client: RigClient) -> None:
    topic = rig.topic("t", 2)
    rig.change(lambda: rig.front.administration.add_partitions(topic, 6))
    answer = client.ask(PRODUCE, 9, **producing(*[(index, batch(b"v")) for index in here(rig)]))
    assert [row[1] for row in results(answer)] == [0] * 3
    gone = topic.partitions[here(rig)[0]]
    assert rig.front.find_kernel(gone) is not None
    rig.change(lambda: rig.delete(topic))
    assert rig.front.find_kernel(gone) is None
    answer = client.ask(PRODUCE, 9, **producing((0, batch(b"v"))))
    assert results(answer)[0][:2] == (0, UNKNOWN)
    assert all("t" not in node.catalog.by_name for node in rig.nodes.values())
    assert topic.partitions == []  # taken apart, since it and its partitions know each other


def test_a_change_is_answered_when_it_is_committed(rig: ShardRig, client: RigClient) -> None:
    asked: list[tuple[Any, Any]] = []
    rig.administer = lambda work, told: asked.append((work, told))  # type: ignore[method-assign]
    topics = [made(CREATE, "CreatableTopic", name=name, num_partitions=4, replication_factor=1) for name in ("a", "b")]
    version = rig.shared.version
    for faults in [0, 0], [36, 36]:
        client.feed(client.encode(CREATE, 5, topics=topics, timeout_ms=1_000, validate_only=False))
        rig.turn()
        assert client.frames() == []
        ((work, told),) = asked
        asked.clear()
        told(rig.change(work))
        (answer,) = client.answers()
        assert [each.error_code for each in answer.topics] == faults
        assert rig.shared.version == version + 1
        assert [sorted(node.catalog.by_name) for node in rig.nodes.values()] == [["a", "b"]] * 2


def test_a_change_that_cannot_be_made_ends_the_connection(rig: ShardRig, client: RigClient) -> None:
    rig.administer = lambda work, told: told(CatalogUnavailableError("locked"))  # type: ignore[method-assign]
    topics = [made(CREATE, "CreatableTopic", name="a", num_partitions=4, replication_factor=1)]
    client.feed(client.encode(CREATE, 5, topics=topics, timeout_ms=1_000, validate_only=False))
    rig.turn()
    assert client.transport.closed
    assert rig.shared.catalog.by_name == {}


def test_metadata_makes_topics_by_a_change(rig: ShardRig, client: RigClient) -> None:
    answer = client.ask(METADATA, 9, topics=[made(METADATA, "MetadataRequestTopic", name="new")])
    assert [(each.name, each.error_code, len(each.partitions)) for each in answer.topics] == [("new", 0, 4)]
    assert {each.leader_id for each in answer.topics[0].partitions} == {7, 9}
    version = rig.shared.version
    assert client.ask(METADATA, 9, topics=[made(METADATA, "MetadataRequestTopic", name="new")]).topics == answer.topics
    assert rig.shared.version == version
