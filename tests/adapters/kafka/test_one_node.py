"""What one node answers to requests that are about many: elections, reassignments, the quorum, features."""

from __future__ import annotations

from typing import Any

import pytest
from kafka_rig import Rig, RigClient

from halfmoon.adapters.kafka.api import registered
from halfmoon.adapters.kafka.features import Feature, features
from tests.kafka_messages import made

ELECT, REASSIGN, LIST_REASSIGNMENTS, QUORUM, UPDATE_FEATURES, API_VERSIONS = 43, 45, 46, 55, 57, 18


@pytest.fixture
def rig() -> Rig:
    rig = Rig(node__id=4)
    rig.topic("t", 2)
    rig.broker.create_topic("hidden", 1, internal=True)
    rig.turn()
    return rig


@pytest.fixture
def client(rig: Rig) -> RigClient:
    return rig.client()


# -- elections -------------------------------------------------------------------------------------------------------


def elect(client: RigClient, version: int, kind: int = 0, **topics: list[int]) -> Any:
    asked = [made(ELECT, "TopicPartitions", topic=name, partitions=indexes) for name, indexes in topics.items()]
    return client.ask(ELECT, version, election_type=kind, topic_partitions=asked, timeout_ms=1000)


@pytest.mark.parametrize(("version", "kind"), [(0, 0), (1, 0), (1, 1), (2, 0), (2, 1)])
def test_no_election_is_needed(client: RigClient, version: int, kind: int) -> None:
    answer = elect(client, version, kind, t=[0, 1, 2], missing=[0], hidden=[0])
    if version >= 1:
        assert answer.error_code == 0
    told = {
        topic.topic: [(p.partition_id, p.error_code) for p in topic.partition_result]
        for topic in answer.replica_election_results
    }
    assert told == {"t": [(0, 84), (1, 84), (2, 3)], "missing": [(0, 3)], "hidden": [(0, 17)]}


def test_all_partitions(client: RigClient) -> None:
    answer = client.ask(ELECT, 2, election_type=0, topic_partitions=None, timeout_ms=1000)
    assert (answer.error_code, answer.replica_election_results) == (0, [])


@pytest.mark.parametrize("version", [1, 2])
def test_an_unknown_kind_of_election(client: RigClient, version: int) -> None:
    answer = elect(client, version, 2, t=[0])
    assert answer.error_code == 42
    assert answer.replica_election_results[0].partition_result[0].error_code == 42


# -- reassignments ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize(
    ("topic", "index", "replicas", "code"),
    [
        ("t", 0, [4], 0),
        ("t", 1, [4], 0),
        ("t", 0, [5], 39),
        ("t", 0, [4, 5], 39),
        ("t", 0, [4, 4], 39),
        ("t", 0, [-1], 39),
        ("t", 0, [], 39),
        ("t", 0, None, 85),
        ("t", 2, [4], 3),
        ("t", 2, None, 3),
        ("t", -1, [4], 3),
        ("missing", 0, [4], 3),
        ("hidden", 0, [4], 17),
    ],
)
def test_reassignments(
    client: RigClient, version: int, topic: str, index: int, replicas: list[int] | None, code: int
) -> None:
    partition = made(REASSIGN, "ReassignableTopic.ReassignablePartition", partition_index=index, replicas=replicas)
    asked = made(REASSIGN, "ReassignableTopic", name=topic, partitions=[partition])
    answer = client.ask(REASSIGN, version, timeout_ms=1000, topics=[asked])
    assert answer.error_code == 0
    ((told,),) = [topic.partitions for topic in answer.responses]
    assert (told.partition_index, told.error_code) == (index, code)


@pytest.mark.parametrize("named", [True, False])
def test_none_is_ever_in_progress(client: RigClient, named: bool) -> None:
    asked = made(LIST_REASSIGNMENTS, "ListPartitionReassignmentsTopics", name="t", partition_indexes=[0, 7])
    answer = client.ask(LIST_REASSIGNMENTS, 0, timeout_ms=1000, topics=[asked] if named else None)
    assert (answer.error_code, answer.topics) == (0, [])


# -- the quorum ------------------------------------------------------------------------------------------------------


def quorum(client: RigClient, version: int, topic: str, *indexes: int) -> Any:
    partitions = [made(QUORUM, "TopicData.PartitionData", partition_index=index) for index in indexes]
    asked = made(QUORUM, "TopicData", topic_name=topic, partitions=partitions)
    return client.ask(QUORUM, version, topics=[asked])


@pytest.mark.parametrize("version", [0, 1, 2])
def test_this_node_is_the_quorum(rig: Rig, client: RigClient, version: int) -> None:
    answer = quorum(client, version, "__cluster_metadata", 0)
    assert answer.error_code == 0
    (partition,) = answer.topics[0].partitions
    log = rig.broker.log
    assert (partition.error_code, partition.leader_id, partition.leader_epoch) == (0, 4, rig.broker.generation)
    assert partition.high_watermark == log.flushed == log.end
    (voter,) = partition.current_voters
    assert (voter.replica_id, voter.log_end_offset, partition.observers) == (4, log.end, [])
    if version >= 1:
        assert voter.last_fetch_timestamp == voter.last_caught_up_timestamp == rig.clock.now_ms
    if version >= 2:
        (node,) = answer.nodes
        assert (node.node_id, [(each.host, each.port) for each in node.listeners]) == (4, [("10.0.0.1", 9092)])
        assert voter.replica_directory_id is not None


def test_the_watermark_is_what_is_durable(rig: Rig, client: RigClient) -> None:
    before = rig.broker.log.end
    rig.broker.create_topic("new", 1)
    client.feed(
        client.encode(
            QUORUM,
            2,
            topics=[
                made(
                    QUORUM,
                    "TopicData",
                    topic_name="__cluster_metadata",
                    partitions=[made(QUORUM, "TopicData.PartitionData", partition_index=0)],
                )
            ],
        )
    )
    (answer,) = client.answers()
    (partition,) = answer.topics[0].partitions
    assert partition.high_watermark == before < partition.current_voters[0].log_end_offset


@pytest.mark.parametrize(("topic", "index"), [("t", 0), ("__cluster_metadata", 1)])
def test_nothing_else_has_a_quorum(client: RigClient, topic: str, index: int) -> None:
    answer = quorum(client, 2, topic, index)
    assert [partition.error_code for partition in answer.topics[0].partitions] == [3]
    assert answer.nodes == []


# -- features --------------------------------------------------------------------------------------------------------


def test_features_follow_from_the_apis() -> None:
    assert features({}) == []
    assert features({68: 1, 76: 1, 88: 0, 26: 5}) == [
        Feature("group.version", 0, 1),
        Feature("share.version", 0, 1),
        Feature("streams.version", 0, 1),
        Feature("transaction.version", 0, 2),
    ]
    assert features({26: 4}) == [Feature("transaction.version", 0, 0)]


PRETENDED = (Feature("group.version", 0, 1), Feature("metadata.version", 7, 30), Feature("transaction.version", 0, 0))


@pytest.fixture
def pretended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("halfmoon.adapters.kafka.registry.features", lambda by_key: list(PRETENDED))


def update(client: RigClient, version: int, *updates: tuple[str, int, int]) -> Any:
    asked = [
        made(UPDATE_FEATURES, "FeatureUpdateKey", feature=name, max_version_level=level,
               allow_downgrade=kind != 1, upgrade_type=kind)
        for name, level, kind in updates
    ]  # fmt: skip
    return client.ask(UPDATE_FEATURES, version, timeout_ms=1000, feature_updates=asked, validate_only=False)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_feature_stays_at_its_level(pretended: None, client: RigClient, version: int) -> None:
    answer = update(client, version, ("group.version", 1, 1), ("metadata.version", 30, 1))
    assert (answer.error_code, answer.error_message) == (0, None)
    if version < 2:
        assert [(each.feature, each.error_code) for each in answer.results] == [
            ("group.version", 0),
            ("metadata.version", 0),
        ]
    for name, level, kind, says in (
        ("no.such.version", 1, 1, "unknown feature no.such.version"),
        ("group.version", 2, 1, "0 to 1"),
        ("group.version", 0, 1, "no upgrade"),
        ("group.version", 0, 2, "stays at level 1"),
        ("metadata.version", 6, 3, "7 to 30"),
    ):
        answer = update(client, version, ("group.version", 1, 1), (name, level, kind))
        assert answer.error_code == 95
        assert says in answer.error_message
        assert not answer.results


def test_no_update_at_all(client: RigClient) -> None:
    assert update(client, 2).error_code == 0


def test_versions_tell_the_features(pretended: None, client: RigClient) -> None:
    def asked(version: int) -> Any:
        return client.ask(API_VERSIONS, version, client_software_name="a", client_software_version="1")

    new, old = asked(4), asked(3)
    assert [(f.name, f.min_version, f.max_version) for f in new.supported_features] == list(PRETENDED)
    assert [f.name for f in old.supported_features] == ["metadata.version"]  # KIP-1022
    for answer in (new, old):
        assert [(f.name, f.min_version_level, f.max_version_level) for f in answer.finalized_features] == [
            ("group.version", 1, 1),
            ("metadata.version", 30, 30),
        ]
        assert answer.finalized_features_epoch == 0
        assert {key.api_key for key in answer.api_keys} == {api.key for api in registered().values() if not api.own}
