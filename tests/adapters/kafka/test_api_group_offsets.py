"""OffsetCommit, OffsetFetch and OffsetDelete in every version, on a real broker."""

from __future__ import annotations

from uuid import UUID

import pytest
from group_broker import group_broker, versions

from halfmoon.adapters.kafka.protocol import REQUESTS, OffsetCommitRequest, OffsetDeleteRequest, OffsetFetchRequest
from halfmoon.errors import BrokerError, Fault

COMMIT, FETCH, DELETE = 8, 9, 47
CommitTopic = OffsetCommitRequest.OffsetCommitRequestTopic
FetchGroup = OffsetFetchRequest.OffsetFetchRequestGroup
DeleteTopic = OffsetDeleteRequest.OffsetDeleteRequestTopic


@pytest.fixture
def client(tmp_path):
    with group_broker(tmp_path) as client:
        yield client


def topic_id(client, name):
    topic = client.broker.topic(name)
    return UUID(bytes=topic.id) if topic is not None else UUID(int=99)


def commit_topics(client, version, wanted):
    """Request topics for {name: {partition: (offset, epoch, metadata)}}."""
    return [
        CommitTopic(
            **({"topic_id": topic_id(client, name)} if version >= 10 else {"name": name}),
            partitions=[
                CommitTopic.OffsetCommitRequestPartition(
                    partition_index=index,
                    committed_offset=offset,
                    committed_metadata=metadata,
                    **({"committed_leader_epoch": epoch} if version >= 6 else {}),
                )
                for index, (offset, epoch, metadata) in partitions.items()
            ],
        )
        for name, partitions in wanted.items()
    ]


def commit(client, version, wanted, **who):
    """Error codes, by topic and partition in the order asked."""
    answer = client.ask(COMMIT, version, topics=commit_topics(client, version, wanted), **{"group_id": "g"} | who)
    return [[part.error_code for part in topic.partitions] for topic in answer.topics]


def fetch(client, version, wanted, group_id="g"):
    """{(topic, partition): (offset, epoch, metadata, error)} for {name: [partitions]} or None for all."""
    names = {topic_id(client, name): name for name in ("t", "u", "missing")}
    if version < 8:
        topic_class = OffsetFetchRequest.OffsetFetchRequestTopic
        topics = None if wanted is None else [topic_class(name=n, partition_indexes=p) for n, p in wanted.items()]
        answer = client.ask(FETCH, version, group_id=group_id, topics=topics)
        assert answer.error_code == 0
        topics = answer.topics
    else:
        topic_class = FetchGroup.OffsetFetchRequestTopics
        topics = (
            None
            if wanted is None
            else [
                topic_class(
                    **({"topic_id": topic_id(client, name)} if version >= 10 else {"name": name}),
                    partition_indexes=parts,
                )
                for name, parts in wanted.items()
            ]
        )
        [group] = client.ask(FETCH, version, groups=[FetchGroup(group_id=group_id, topics=topics)]).groups
        assert (group.group_id, group.error_code) == (group_id, 0)
        topics = group.topics
    return {
        (names[topic.topic_id] if version >= 10 else topic.name, part.partition_index): (
            part.committed_offset,
            part.committed_leader_epoch if version >= 5 else None,
            part.metadata,
            part.error_code,
        )
        for topic in topics
        for part in topic.partitions
    }


@pytest.mark.parametrize("version", versions(COMMIT))
def test_a_simple_consumer_commits(client, version):
    wanted = {"t": {0: (5, 3, "note"), 1: (0, -1, None), 2: (1, -1, "")}, "missing": {0: (1, -1, "")}}
    missing = 100 if version >= 10 else 3
    assert commit(client, version, wanted) == [[0, 0, 3], [missing]]
    epoch = 3 if version >= 6 else -1
    assert fetch(client, 8, {"t": [0, 1]}) == {("t", 0): (5, epoch, "note", 0), ("t", 1): (0, -1, "", 0)}
    # Progress may go back.
    assert commit(client, version, {"t": {0: (2, 3, "")}}) == [[0]]
    assert fetch(client, 8, {"t": [0]})["t", 0][0] == 2


@pytest.mark.parametrize("version", versions(FETCH))
def test_fetch(client, version):
    commit(client, 9, {"t": {1: (7, 4, "x")}, "u": {0: (9, -1, "")}})
    epoch = 4 if version >= 5 else None
    none = -1 if version >= 5 else None
    found = fetch(client, version, {"t": [1, 0, 5], "missing": [0]})
    assert found == {
        ("t", 1): (7, epoch, "x", 0),
        ("t", 0): (-1, none, "", 0),
        ("t", 5): (-1, none, "", 0),
        ("missing", 0): (-1, none, "", 100 if version >= 10 else 0),
    }
    assert fetch(client, version, {"t": [1]}, "nobody") == {("t", 1): (-1, none, "", 0)}
    if version >= 2:
        assert fetch(client, version, None) == {("t", 1): (7, epoch, "x", 0), ("u", 0): (9, none, "", 0)}
        assert fetch(client, version, None, "nobody") == {}


@pytest.mark.parametrize("version", range(8, 11))
def test_several_groups_at_once(client, version):
    commit(client, 9, {"t": {0: (1, -1, "")}}, group_id="a")
    commit(client, 9, {"t": {0: (2, -1, "")}}, group_id="b")
    groups = [FetchGroup(group_id=name, topics=None) for name in ("b", "a", "c")]
    answer = client.ask(FETCH, version, groups=groups)
    found = [(g.group_id, [t.partitions[0].committed_offset for t in g.topics]) for g in answer.groups]
    assert found == [("b", [2]), ("a", [1]), ("c", [])]


@pytest.mark.parametrize("version", versions(COMMIT))
def test_members_commit_and_strangers_do_not(client, version):
    joined = client.join()
    wanted = {"t": {0: (5, -1, ""), 9: (5, -1, "")}}
    member = {"member_id": joined.member_id, "generation_id_or_member_epoch": 1}
    assert commit(client, version, wanted, **member) == [[27, 3]]
    client.start_sync(5, 1, joined.member_id)
    assert commit(client, version, wanted, **member) == [[0, 3]]
    assert commit(client, version, wanted, **member | {"generation_id_or_member_epoch": 0}) == [[22, 3]]
    assert commit(client, version, wanted, **member | {"member_id": "stranger"}) == [[25, 3]]
    assert commit(client, version, wanted) == [[25, 3]]
    missing = 69 if version >= 9 else 22
    assert commit(client, version, wanted, **member | {"group_id": "nobody"}) == [[missing, 3]]


@pytest.mark.parametrize("version", range(7, 11))
def test_a_fenced_static_member_does_not_commit(client, version):
    old = client.settle(9, group_instance_id="i")
    new = client.start_join(9, group_instance_id="i").answer
    who = {"generation_id_or_member_epoch": 1, "group_instance_id": "i"}
    assert commit(client, version, {"t": {0: (5, -1, "")}}, member_id=old.member_id, **who) == [[82]]
    assert commit(client, version, {"t": {0: (5, -1, "")}}, member_id=new.member_id, **who) == [[0]]


def test_metadata_has_a_limit(client):
    assert commit(client, 8, {"t": {0: (1, -1, "x" * 4096), 1: (1, -1, "x" * 4097)}}) == [[0, 12]]
    assert set(fetch(client, 8, None)) == {("t", 0)}


def test_a_commit_is_answered_when_it_is_durable(client):
    topics = commit_topics(client, 8, {"t": {0: (5, -1, "")}})
    pending = client.send(COMMIT, 8, REQUESTS[COMMIT](group_id="g", topics=topics))
    assert pending.answer is None
    client.broker.flush()
    assert pending.answer.topics[0].partitions[0].error_code == 0
    pending = client.send(COMMIT, 8, REQUESTS[COMMIT](group_id="g", topics=topics))
    client.broker.turn._fail(BrokerError(Fault.KAFKA_STORAGE_ERROR, "no disk"))
    assert pending.answer.topics[0].partitions[0].error_code == 15


def test_offsets_survive_a_restart_and_go_with_their_topic(tmp_path):
    with group_broker(tmp_path) as client:
        commit(client, 9, {"t": {0: (5, 1, "note")}, "u": {0: (6, -1, "")}})
    with group_broker(tmp_path) as client:
        assert fetch(client, 9, None) == {("t", 0): (5, 1, "note", 0), ("u", 0): (6, -1, "", 0)}
        client.broker.delete_topic(client.broker.topic("t"))
        assert fetch(client, 9, None) == {("u", 0): (6, -1, "", 0)}
        client.broker.create_topic("t", 2)
        assert fetch(client, 9, {"t": [0]}) == {("t", 0): (-1, -1, "", 0)}


def delete(client, wanted, group_id="g"):
    topics = [
        DeleteTopic(
            name=name, partitions=[DeleteTopic.OffsetDeleteRequestPartition(partition_index=p) for p in partitions]
        )
        for name, partitions in wanted.items()
    ]
    answer = client.ask(DELETE, 0, group_id=group_id, topics=topics)
    return answer.error_code or [[part.error_code for part in topic.partitions] for topic in answer.topics]


def test_delete_offsets_of_an_empty_group(client):
    commit(client, 9, {"t": {0: (5, -1, ""), 1: (5, -1, "")}, "u": {0: (6, -1, "")}})
    assert delete(client, {"t": [0, 7], "missing": [0], "u": []}) == [[0, 3], [3], []]
    assert set(fetch(client, 9, None)) == {("t", 1), ("u", 0)}
    assert delete(client, {"t": [0]}) == [[0]]
    assert delete(client, {"t": [0]}, "nobody") == 69
    assert delete(client, {"t": [0]}, "") == 24


def test_offsets_of_topics_that_are_consumed_stay(client):
    commit(client, 9, {"t": {0: (5, -1, "")}, "u": {0: (6, -1, "")}})
    client.settle()
    assert delete(client, {"t": [0], "u": [0]}) == [[86], [0]]
    assert set(fetch(client, 9, None)) == {("t", 0)}


def test_other_kinds_of_groups_must_be_empty(client):
    client.settle(9, protocol_type="connect")
    assert delete(client, {"t": [0]}) == 68
