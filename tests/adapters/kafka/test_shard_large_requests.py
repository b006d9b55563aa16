"""Large requests whose answers come later, since other shards or the shared catalog are asked first. They are read in
slices and let go of in slices, and not before that."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from kafka_rig import RigClient
from shard_rig import SHARDS
from two_processes import TwoProcesses

from halfmoon.adapters.kafka.protocol import LARGE_BYTES, REQUESTS

COUNT = 260
CREATE_TOPICS, DELETE_TOPICS, DELETE_RECORDS, CREATE_ACLS, DESCRIBE_CONFIGS = 19, 20, 21, 30, 32
CREATE_PARTITIONS = 37
TOPIC = 2
NAMES = [f"topic-{number:03}-{'x' * 40}" for number in range(COUNT)]


@pytest.fixture
def two() -> TwoProcesses:
    return TwoProcesses()


class Asking:
    """Of the first process, whose changes of the catalog are made when the loop has turned."""

    def __init__(self, two: TwoProcesses, monkeypatch: pytest.MonkeyPatch) -> None:
        self._two = two
        self._client: RigClient = two.client(0)
        self._changes: list[Callable[[], None]] = []
        administer = two.rigs[0].administer
        monkeypatch.setattr(
            two.rigs[0], "administer", lambda work, told: self._changes.append(lambda: administer(work, told))
        )

    def __call__(self, key: int, version: int, **fields: Any) -> Any:
        data = self._client.encode(key, version, **fields)
        assert len(data) > LARGE_BYTES
        self._client.feed(data)
        for _ in range(4 * COUNT):  # more slices than there can be
            self._two.turn()
        for change in self._changes:
            change()
        for _ in range(4 * COUNT):
            self._two.turn()
        (answer,) = self._client.answers()
        return answer


@pytest.fixture
def ask(two: TwoProcesses, monkeypatch: pytest.MonkeyPatch) -> Asking:
    return Asking(two, monkeypatch)


def part(key: int, name: str) -> Any:
    return getattr(REQUESTS[key], name)


def made(two: TwoProcesses) -> list[str]:
    return sorted(name for name in two.rigs[0].front.catalog.by_name if name.startswith("topic-"))


def test_topics_are_made(two: TwoProcesses, ask: Asking) -> None:
    topic = part(CREATE_TOPICS, "CreatableTopic")
    wanted = [topic(name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[]) for name in NAMES]
    answer = ask(CREATE_TOPICS, 5, topics=wanted, timeout_ms=1_000, validate_only=False)
    assert [(each.name, each.error_code) for each in answer.topics] == [(name, 0) for name in NAMES]
    assert made(two) == NAMES


@pytest.mark.parametrize("by_id", [True, False])
def test_topics_are_deleted(two: TwoProcesses, ask: Asking, by_id: bool) -> None:
    topics = [two.topic(name, 1) for name in NAMES]
    state = part(DELETE_TOPICS, "DeleteTopicState")
    wanted = [
        state(name=None, topic_id=UUID(bytes=topic.id)) if by_id else state(name=topic.name, topic_id=UUID(int=0))
        for topic in topics
    ]
    answer = ask(DELETE_TOPICS, 6, topics=wanted, timeout_ms=1_000)
    assert sorted((each.name, each.error_code) for each in answer.responses) == [(name, 0) for name in NAMES]
    assert made(two) == []


def test_records_are_deleted_in_several_shards(two: TwoProcesses, ask: Asking) -> None:
    topic, partition = part(DELETE_RECORDS, "DeleteRecordsTopic"), part(DELETE_RECORDS, "DeleteRecordsPartition")
    for name in NAMES:
        two.topic(name, SHARDS)
    wanted = [
        topic(name=name, partitions=[partition(partition_index=index, offset=0) for index in range(SHARDS)])
        for name in NAMES
    ]
    answer = ask(DELETE_RECORDS, 2, topics=wanted, timeout_ms=1_000)
    found = {(each.name, row.partition_index) for each in answer.topics for row in each.partitions}
    assert found == {(name, index) for name in NAMES for index in range(SHARDS)}


def test_rules_are_added(two: TwoProcesses, ask: Asking) -> None:
    creation = part(CREATE_ACLS, "AclCreation")
    wanted = [
        creation(
            resource_type=TOPIC, resource_name=name, resource_pattern_type=3, principal="User:a", host="*",
            operation=3, permission_type=3,
        )
        for name in NAMES
    ]  # fmt: skip
    answer = ask(CREATE_ACLS, 3, creations=wanted)
    assert [each.error_code for each in answer.results] == [0] * COUNT


def test_configurations_are_described(two: TwoProcesses, ask: Asking) -> None:
    for name in NAMES:
        two.topic(name, 1)
    resource = part(DESCRIBE_CONFIGS, "DescribeConfigsResource")
    wanted = [resource(resource_type=TOPIC, resource_name=name, configuration_keys=["retention.ms"]) for name in NAMES]
    answer = ask(DESCRIBE_CONFIGS, 4, resources=wanted)
    assert [(each.resource_name, len(each.configs)) for each in answer.results] == [(name, 1) for name in NAMES]


def test_partitions_are_added(two: TwoProcesses, ask: Asking) -> None:
    for name in NAMES:
        two.topic(name, 1)
    topic = part(CREATE_PARTITIONS, "CreatePartitionsTopic")
    wanted = [topic(name=name, count=2, assignments=None) for name in NAMES]
    answer = ask(CREATE_PARTITIONS, 3, topics=wanted, timeout_ms=1_000, validate_only=False)
    assert [(each.name, each.error_code) for each in answer.results] == [(name, 0) for name in NAMES]
    assert {len(two.rigs[0].front.catalog.by_name[name].partitions) for name in NAMES} == {2}
