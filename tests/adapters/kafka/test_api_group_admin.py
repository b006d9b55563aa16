"""DescribeGroups, ListGroups and DeleteGroups in every version, on a real broker."""

from __future__ import annotations

import pytest
from group_broker import SUBSCRIBED_TO_T, group_broker, versions

from halfmoon.adapters.kafka.protocol import OffsetCommitRequest

COMMIT, DESCRIBE, LIST, DELETE = 8, 15, 16, 42
Topic = OffsetCommitRequest.OffsetCommitRequestTopic


@pytest.fixture
def client(tmp_path):
    with group_broker(tmp_path) as client:
        yield client


def commit(client, group_id):
    part = Topic.OffsetCommitRequestPartition(partition_index=0, committed_offset=5, committed_metadata=None)
    answer = client.ask(COMMIT, 9, group_id=group_id, topics=[Topic(name="t", partitions=[part])])
    assert answer.topics[0].partitions[0].error_code == 0


@pytest.mark.parametrize("version", versions(DESCRIBE))
def test_describe(client, version):
    joined = client.settle(9, group_instance_id="i")
    commit(client, "offsets")
    stable, simple, missing = client.ask(DESCRIBE, version, groups=["g", "offsets", "nobody"]).groups
    assert (stable.error_code, stable.group_id, stable.group_state) == (0, "g", "Stable")
    assert (stable.protocol_type, stable.protocol_data) == ("consumer", "range")
    [member] = stable.members
    assert (member.member_id, member.client_id, member.client_host) == (joined.member_id, "test", "/127.0.0.1")
    assert (member.member_metadata, member.member_assignment) == (SUBSCRIBED_TO_T, b"share")
    if version >= 4:
        assert member.group_instance_id == "i"
    assert (simple.error_code, simple.group_state, simple.protocol_type, simple.members) == (0, "Empty", "", [])
    assert (missing.group_state, missing.members) == ("Dead", [])
    assert missing.error_code == (69 if version >= 6 else 0)
    if version >= 6:
        assert missing.error_message == "Group nobody not found."


@pytest.mark.parametrize("version", range(3, 7))
def test_operations_are_told_to_who_asks(client, version):
    client.settle()
    [group] = client.ask(DESCRIBE, version, groups=["g"], include_authorized_operations=True).groups
    assert set(group.authorized_operations) == {3, 6, 8, 10, 11}
    [group] = client.ask(DESCRIBE, version, groups=["g"]).groups
    assert not group.authorized_operations


def test_metadata_is_hidden_while_the_group_rebalances(client):
    client.join()
    [group] = client.ask(DESCRIBE, 5, groups=["g"]).groups
    assert (group.group_state, group.protocol_data) == ("CompletingRebalance", "")
    assert [m.member_metadata for m in group.members] == [b""]


@pytest.mark.parametrize("version", versions(LIST))
def test_list(client, version):
    client.settle()
    commit(client, "a")
    answer = client.ask(LIST, version)
    assert answer.error_code == 0
    assert [(g.group_id, g.protocol_type) for g in answer.groups] == [("a", ""), ("g", "consumer")]
    if version >= 4:
        assert [g.group_state for g in answer.groups] == ["Empty", "Stable"]
        listed = client.ask(LIST, version, states_filter=["stable", "Dead"]).groups
        assert [g.group_id for g in listed] == ["g"]
    if version >= 5:
        assert {g.group_type for g in answer.groups} == {"classic"}
        assert client.ask(LIST, version, types_filter=["consumer"]).groups == []
        assert len(client.ask(LIST, version, types_filter=["Classic"]).groups) == 2


@pytest.mark.parametrize("version", versions(DELETE))
def test_delete(client, version):
    client.settle()
    commit(client, "offsets")
    answer = client.ask(DELETE, version, groups_names=["offsets", "g", "nobody", "offsets"])
    assert [(r.group_id, r.error_code) for r in answer.results] == [("offsets", 0), ("g", 68), ("nobody", 69)]
    assert client.broker.groups.offsets("offsets") == {}
    assert client.broker.groups.describe("offsets") is None


def test_a_deleted_group_is_gone_after_a_restart(tmp_path):
    with group_broker(tmp_path) as client:
        joined = client.settle()
        client.broker.groups.leave("g", [(joined.member_id, None)])
        assert client.ask(DELETE, 2, groups_names=["g"]).results[0].error_code == 0
    with group_broker(tmp_path) as client:
        assert client.ask(LIST, 5).groups == []
