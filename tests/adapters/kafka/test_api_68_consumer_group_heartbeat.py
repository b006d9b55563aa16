"""ConsumerGroupHeartbeat, ConsumerGroupDescribe, and what other APIs say of groups of the new protocol."""

from __future__ import annotations

from uuid import UUID

import pytest
from group_broker import group_broker, versions

from halfmoon.adapters.kafka.protocol import (
    REQUESTS,
    ConsumerGroupHeartbeatRequest,
    LeaveGroupRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
)
from halfmoon.errors import BrokerError, Fault
from halfmoon.plugins.allocate.averagely import averagely
from halfmoon.plugins.allocate.uniform import uniform

COMMIT, FETCH, LEAVE, DESCRIBE, LIST, DELETE, OFFSET_DELETE, BEAT, DESCRIBE_NEW = 8, 9, 13, 15, 16, 42, 47, 68, 69
Owned = ConsumerGroupHeartbeatRequest.TopicPartitions
CommitTopic = OffsetCommitRequest.OffsetCommitRequestTopic
FetchGroup = OffsetFetchRequest.OffsetFetchRequestGroup


@pytest.fixture
def client(tmp_path):
    with group_broker(tmp_path) as client:
        client.broker.groups.allocators = {"averagely": averagely, "uniform": uniform}
        yield client


def topic_id(client, name="t"):
    return UUID(bytes=client.broker.topic(name).id)


def beat(client, member_id="m", epoch=0, version=1, **fields):
    join = {} if epoch else {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": ["t"], "topic_partitions": []}
    request = {"group_id": "g", "member_id": member_id, "member_epoch": epoch} | join | fields
    return client.ask(BEAT, version, **request)


def share(answer):
    return None if answer.assignment is None else {t.topic_id: t.partitions for t in answer.assignment.topic_partitions}


@pytest.mark.parametrize("version", versions(BEAT))
def test_two_members_share_a_topic(client, version):
    ids = topic_id(client)
    first = beat(client, version=version)
    assert (first.error_code, first.error_message, first.member_id, first.member_epoch) == (0, None, "m", 1)
    assert share(first) == {ids: [0, 1]}
    second = beat(client, "n", version=version)
    assert (second.error_code, second.member_epoch, share(second)) == (0, 2, {})
    assert share(beat(client, epoch=1, version=version)) == {ids: [0]}
    given_up = beat(client, epoch=1, version=version, topic_partitions=[Owned(topic_id=ids, partitions=[0])])
    assert (given_up.member_epoch, given_up.assignment) == (2, None)
    assert share(beat(client, "n", 2, version)) == {ids: [1]}
    left = beat(client, "n", -1, version)
    assert (left.error_code, left.member_epoch) == (0, -1)
    assert share(beat(client, epoch=2, version=version)) == {ids: [0, 1]}


def test_members_make_up_their_ids_from_version_1_on(client):
    named = beat(client, "", version=0)
    assert named.error_code == 0
    assert named.member_id
    refused = beat(client, "", version=1)
    assert (refused.error_code, refused.error_message) == (42, "MemberId can't be empty.")


def test_patterns_find_topics_that_come_later_and_no_internal_ones_of_our_own(client):
    client.broker.create_topic("u.inside", 1, internal=True)
    joined = beat(client, subscribed_topic_names=None, subscribed_topic_regex="u.*")
    assert share(joined) == {topic_id(client, "u"): [0]}
    client.broker.create_topic("uu", 1)
    client.broker.flush()
    assert share(beat(client, epoch=1)) == {topic_id(client, name): [0] for name in ("u", "uu")}
    refused = beat(client, "n", subscribed_topic_names=None, subscribed_topic_regex="(a")
    assert refused.error_code == 128
    assert "missing )" in refused.error_message


def test_patterns_find_kafkas_internal_topics(client):
    """As Kafka's TopicRegexResolver: franz-go's suite expects it."""
    client.broker.create_topic("__consumer_offsets", 1, internal=True)
    joined = beat(client, subscribed_topic_names=None, subscribed_topic_regex="__consumer_.*")
    assert share(joined) == {topic_id(client, "__consumer_offsets"): [0]}


def test_what_is_refused(client):
    assert beat(client, server_assignor="nobody").error_code == 112
    assert beat(client, epoch=3).error_code == 69
    beat(client)
    assert beat(client, epoch=3).error_code == 110
    assert beat(client, "n", 3).error_code == 25
    assert beat(client, "s", instance_id="i").error_code == 0
    assert beat(client, "s2", instance_id="i").error_code == 111
    assert beat(client, "s2", 2, instance_id="i").error_code == 82


def test_a_partition_of_an_unknown_topic_is_nobodys(client):
    beat(client)
    beat(client, "n")
    beat(client, epoch=1)
    owned = [Owned(topic_id=topic_id(client), partitions=[0]), Owned(topic_id=UUID(int=9), partitions=[0, 1])]
    assert beat(client, epoch=1, topic_partitions=owned).member_epoch == 2
    assert beat(client, "x", topic_partitions=[Owned(topic_id=UUID(int=9), partitions=[0])]).error_code == 42


def test_the_interval_grows_with_the_number_of_members(tmp_path):
    settings = {"groups__consumer_heartbeats_per_second": 5, "groups__consumer_heartbeat_max": "1s"}
    with group_broker(tmp_path, **settings) as client:
        client.broker.groups.allocators = {"averagely": averagely}
        intervals = [beat(client, f"m{number}").heartbeat_interval_ms for number in range(7)]
        assert intervals == [200, 400, 600, 800, 1_000, 1_000, 1_000]


@pytest.mark.pure
def test_a_log_that_takes_nothing(client, monkeypatch):
    def full(record):
        raise BrokerError(Fault.KAFKA_STORAGE_ERROR)

    append = client.broker.appender.append_control
    monkeypatch.setattr(client.broker.appender, "append_control", full)
    assert beat(client).error_code == 15
    monkeypatch.setattr(client.broker.appender, "append_control", append)
    assert beat(client, "n").error_code == 0
    remembered = client.broker.state.groups.consumer_groups["g"]
    assert set(remembered.members) == {"m", "n"}, "what was not written then is now"


@pytest.mark.parametrize("version", versions(DESCRIBE_NEW))
def test_describe(client, version):
    beat(client, rack_id="r1", server_assignor="uniform", subscribed_topic_regex="u.*")
    beat(client, "n", instance_id="i")
    classic = client.settle(9, group_id="classic")
    asked = ["g", "classic", "nobody", "", "g"]
    answer = client.ask(DESCRIBE_NEW, version, group_ids=asked, include_authorized_operations=True)
    found, other, missing, unnamed = answer.groups
    assert (found.error_code, found.error_message, found.group_id, found.group_state) == (0, None, "g", "Reconciling")
    assert (found.group_epoch, found.assignment_epoch, found.assignor_name) == (2, 2, "uniform")
    assert found.authorized_operations == 3_400
    first, second = found.members
    assert (first.member_id, first.instance_id, first.rack_id, first.member_epoch) == ("m", None, "r1", 1)
    assert (first.client_id, first.client_host) == ("test", "/127.0.0.1")
    assert (first.subscribed_topic_names, first.subscribed_topic_regex) == (["t"], "u.*")
    assert {t.topic_name: t.partitions for t in first.assignment.topic_partitions} == {"t": [0, 1], "u": [0]}
    assert {t.topic_id for t in first.assignment.topic_partitions} == {topic_id(client), topic_id(client, "u")}
    assert sum(len(t.partitions) for t in first.target_assignment.topic_partitions) == 2
    assert (second.instance_id, second.assignment.topic_partitions) == ("i", [])
    assert first.member_type == (1 if version >= 1 else -1)
    assert [group.error_code for group in (other, missing, unnamed)] == [69, 69, 24]
    assert other.error_message == "Group classic is not a consumer group."
    assert missing.error_message == "Group nobody not found."
    assert classic.error_code == 0


def test_to_the_other_apis_it_is_a_consumer_group(client):
    beat(client)
    client.settle(9, group_id="classic")
    [old] = client.ask(DESCRIBE, 6, groups=["g"]).groups
    assert (old.error_code, old.error_message) == (69, "Group g is not a classic group.")
    [old] = client.ask(DESCRIBE, 5, groups=["g"]).groups
    assert (old.error_code, old.group_state) == (0, "Dead")
    listed = client.ask(LIST, 5, states_filter=[], types_filter=[]).groups
    assert [(g.group_id, g.protocol_type, g.group_state, g.group_type) for g in listed] == [
        ("classic", "consumer", "Stable", "classic"),
        ("g", "consumer", "Stable", "consumer"),
    ]
    [only] = client.ask(LIST, 5, states_filter=["stable"], types_filter=["Consumer"]).groups
    assert only.group_id == "g"
    assert [each.error_code for each in client.ask(DELETE, 2, groups_names=["g"]).results] == [68]
    beat(client, epoch=-1)
    assert [each.error_code for each in client.ask(DELETE, 2, groups_names=["g"]).results] == [0]
    assert "g" not in client.broker.state.groups.consumer_groups
    assert client.ask(LIST, 5, states_filter=[], types_filter=["consumer"]).groups == []


def test_an_operator_sends_members_away(client):
    beat(client)
    beat(client, "s", instance_id="i")
    leaving = [LeaveGroupRequest.MemberIdentity(member_id=m, group_instance_id=i) for m, i in (("m", None), ("", "i"))]
    answer = client.ask(LEAVE, 5, group_id="g", members=leaving)
    assert [member.error_code for member in answer.members] == [0, 0]
    assert beat(client, epoch=1).error_code == 25


def commit(client, version, epoch, member_id="m", partitions=(0, 1)):
    name = {"topic_id": topic_id(client)} if version >= 10 else {"name": "t"}
    parts = [
        CommitTopic.OffsetCommitRequestPartition(partition_index=index, committed_offset=7, committed_metadata="")
        for index in partitions
    ]
    answer = client.ask(
        COMMIT, version, group_id="g", generation_id_or_member_epoch=epoch, member_id=member_id,
        topics=[CommitTopic(**name, partitions=parts)],
    )  # fmt: skip
    return [part.error_code for part in answer.topics[0].partitions]


def fetch(client, version, epoch=-1, member_id=None, partitions=(0, 1)):
    name = {"topic_id": topic_id(client)} if version >= 10 else {"name": "t"}
    who = {"member_id": member_id, "member_epoch": epoch} if version >= 9 else {}
    topics = [FetchGroup.OffsetFetchRequestTopics(**name, partition_indexes=list(partitions))]
    [group] = client.ask(FETCH, version, groups=[FetchGroup(group_id="g", topics=topics, **who)]).groups
    return group.error_code or [part.committed_offset for topic in group.topics for part in topic.partitions]


def test_members_commit_with_their_epochs(client):
    beat(client)
    assert [commit(client, version, 1) for version in (9, 10)] == [[0, 0], [0, 0]]
    assert commit(client, 8, 1) == [35, 35]
    assert commit(client, 9, 2) == [113, 113]
    assert commit(client, 9, 1, "stranger") == [25, 25]
    assert commit(client, 9, -1, "") == [25, 25]
    assert [fetch(client, version, 1, "m") for version in (9, 10)] == [[7, 7], [7, 7]]
    assert [fetch(client, version) for version in (8, 9, 10)] == [[7, 7]] * 3
    assert fetch(client, 9, 2, "m") == 113
    assert fetch(client, 9, 1, "stranger") == 25


def test_an_old_epoch_is_good_for_what_the_member_had_then(client):
    beat(client)
    beat(client, "n")
    beat(client, epoch=1)
    beat(client, epoch=1, topic_partitions=[Owned(topic_id=topic_id(client), partitions=[0])])
    beat(client, "n", 2)
    beat(client, "n", -1)
    assert share(beat(client, epoch=2)) == {topic_id(client): [0, 1]}
    assert commit(client, 9, 2) == [0, 113]
    assert commit(client, 9, 2, partitions=[1]) == [113]
    assert fetch(client, 8) == [7, -1]


def test_offsets_of_topics_that_are_read_stay(client):
    beat(client, subscribed_topic_names=["u"], subscribed_topic_regex="t")
    commit(client, 9, 1)
    request = REQUESTS[OFFSET_DELETE]
    topic = request.OffsetDeleteRequestTopic
    parts = [topic.OffsetDeleteRequestPartition(partition_index=0)]
    answer = client.ask(OFFSET_DELETE, 0, group_id="g", topics=[topic(name="t", partitions=parts)])
    assert answer.topics[0].partitions[0].error_code == 86
    beat(client, epoch=1, subscribed_topic_regex="")
    answer = client.ask(OFFSET_DELETE, 0, group_id="g", topics=[topic(name="t", partitions=parts)])
    assert answer.topics[0].partitions[0].error_code == 0
    assert fetch(client, 8) == [-1, 7]


def test_a_classic_group_is_upgraded_and_goes_back(client):
    old = client.join(4)
    assert client.start_sync(3, old.generation_id, old.member_id).answer.error_code == 0
    joined = beat(client)
    assert (joined.error_code, joined.member_epoch) == (0, 2)
    assert client.broker.groups.describe("g").type == "consumer"
    beat(client, epoch=-1)
    assert client.broker.groups.describe("g").type == "classic"


def test_a_new_group_is_on_disk_before_anyone_is_told(client):
    pending = client.send(
        BEAT, 1, REQUESTS[BEAT](
            group_id="g", member_id="m", member_epoch=0, rebalance_timeout_ms=1, subscribed_topic_names=["t"],
            topic_partitions=[],
        ),
    )  # fmt: skip
    assert pending.answer is None
    client.broker.flush()
    assert pending.answer.member_epoch == 1
