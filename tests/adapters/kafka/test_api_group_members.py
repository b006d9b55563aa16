"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup in every version, on a real broker."""

from __future__ import annotations

import pytest
from group_broker import HEARTBEAT, JOIN, LEAVE, SUBSCRIBED_TO_T, SYNC, group_broker, versions

from halfmoon.adapters.kafka.protocol import LeaveGroupRequest
from halfmoon.errors import BrokerError, Fault


@pytest.fixture
def client(tmp_path):
    with group_broker(tmp_path) as client:
        yield client


@pytest.mark.parametrize("version", versions(JOIN))
def test_the_first_join(client, version):
    pending = client.start_join(version)
    if version >= 4:
        asked = pending.answer
        assert (asked.error_code, asked.generation_id) == (79, -1)
        assert asked.member_id.startswith("test-")
        assert asked.protocol_name == (None if version >= 7 else "")
        pending = client.start_join(version, member_id=asked.member_id)
    assert pending.answer is None, "the initial delay has not passed"
    client.pass_time(100)
    joined = pending.answer
    assert (joined.error_code, joined.generation_id, joined.protocol_name) == (0, 1, "range")
    assert joined.leader == joined.member_id
    assert [(m.member_id, m.metadata) for m in joined.members] == [(joined.member_id, SUBSCRIBED_TO_T)]
    if version >= 7:
        assert joined.protocol_type == "consumer"
    if version >= 9:
        assert joined.skip_assignment is False


@pytest.mark.parametrize("version", versions(JOIN))
def test_a_refused_join(client, version):
    answer = client.start_join(version, session_timeout_ms=1).answer
    assert (answer.error_code, answer.generation_id, answer.leader, answer.members) == (26, -1, "", [])


def test_version_0_waits_for_the_session_timeout(client):
    """Its join has no rebalance time-out of its own."""
    joined = client.settle(0)
    other = client.start_join(3, rebalance_timeout_ms=1_000)
    client.pass_time(5_000)
    beat = {"group_id": "g", "generation_id": 1, "member_id": joined.member_id}
    assert client.ask(HEARTBEAT, 0, **beat).error_code == 27
    client.pass_time(4_999)
    assert other.answer is None
    client.pass_time(1)
    assert len(other.answer.members) == 1


@pytest.mark.parametrize("version", range(5, 10))
def test_a_static_member_is_back(client, version):
    first = client.settle(version, group_instance_id="i")
    assert [m.group_instance_id for m in first.members] == ["i"]
    again = client.start_join(version, group_instance_id="i").answer
    assert (again.error_code, again.generation_id) == (0, 1)
    assert again.member_id != first.member_id
    if version >= 9:
        assert (again.leader, again.skip_assignment, len(again.members)) == (again.member_id, True, 1)
    else:
        assert (again.leader, again.members) == (first.member_id, [])
    share = client.start_sync(3, 1, again.member_id, group_instance_id="i").answer
    assert (share.error_code, share.assignment) == (0, b"share")
    old = client.start_sync(3, 1, first.member_id, group_instance_id="i").answer
    assert old.error_code == 82


@pytest.mark.parametrize("version", versions(SYNC))
def test_sync(client, version):
    joined = client.join()
    answer = client.start_sync(version, 1, joined.member_id, shares={joined.member_id: b"mine"}).answer
    assert (answer.error_code, answer.assignment) == (0, b"mine")
    if version >= 5:
        assert (answer.protocol_type, answer.protocol_name) == ("consumer", "range")
    stale = client.start_sync(version, 7, joined.member_id).answer
    assert (stale.error_code, stale.assignment) == (22, b"")


def test_sync_with_another_protocol(client):
    joined = client.join()
    assert client.start_sync(5, 1, joined.member_id, protocol_name="sticky").answer.error_code == 23
    assert client.start_sync(5, 1, joined.member_id, protocol_type="connect").answer.error_code == 23
    assert client.start_sync(4, 1, joined.member_id).answer.error_code == 0


@pytest.mark.parametrize("version", versions(HEARTBEAT))
def test_heartbeat(client, version):
    joined = client.settle()

    def beat(**fields):
        request = {"group_id": "g", "generation_id": 1, "member_id": joined.member_id} | fields
        return client.ask(HEARTBEAT, version, **request).error_code

    assert beat() == 0
    assert beat(generation_id=2) == 22
    assert beat(member_id="other") == 25
    assert beat(group_id="other") == 25
    assert beat(group_id="") == 24
    if version >= 3:
        assert beat(group_instance_id="i") == 25
    client.start_join(3)
    assert beat() == 27


@pytest.mark.parametrize("version", versions(LEAVE))
def test_leave(client, version):
    joined = client.settle()

    def leave(group_id, *members):
        if version < 3:
            [(member_id, _)] = members
            return client.ask(LEAVE, version, group_id=group_id, member_id=member_id).error_code
        identities = [
            LeaveGroupRequest.MemberIdentity(member_id=member_id, group_instance_id=instance_id)
            for member_id, instance_id in members
        ]
        answer = client.ask(LEAVE, version, group_id=group_id, members=identities)
        if answer.error_code:
            assert answer.members == []
            return answer.error_code
        assert [(m.member_id, m.group_instance_id) for m in answer.members] == list(members)
        codes = [m.error_code for m in answer.members]
        return codes[0] if len(codes) == 1 else codes

    assert leave("", (joined.member_id, None)) == 24
    assert leave("elsewhere", (joined.member_id, None)) == 25
    assert leave("g", ("stranger", None)) == 25
    assert client.broker.groups.describe("g").state == "Stable"
    assert leave("g", (joined.member_id, None)) == 0
    assert client.broker.groups.describe("g").state == "Empty"
    if version >= 3:
        client.settle(9, group_instance_id="i")
        assert leave("g", ("", "nobody"), ("", "i")) == [25, 0]


def test_a_generation_is_told_only_when_it_is_durable(client):
    pending = client.start_join(3)
    client.clock.now += 100
    client.broker.groups.expire(client.clock.now)
    assert pending.answer is None
    client.broker.flush()
    assert pending.answer.generation_id == 1


def test_a_log_that_fails_is_told_as_a_coordinator_away(client):
    pending = client.start_join(3)
    client.clock.now += 100
    client.broker.groups.expire(client.clock.now)
    client.broker.turn._fail(BrokerError(Fault.KAFKA_STORAGE_ERROR, "no disk"))
    assert pending.answer.error_code == 15


def test_members_and_generations_go_on_after_a_restart(tmp_path):
    with group_broker(tmp_path) as client:
        dynamic = client.settle()
        static = client.settle(9, group_id="s", group_instance_id="i")
    with group_broker(tmp_path) as client:
        request = {"group_id": "g", "generation_id": 1, "member_id": dynamic.member_id}
        assert client.ask(HEARTBEAT, 4, **request).error_code == 0
        assert client.join(member_id=dynamic.member_id).generation_id == 2
        request = {"group_id": "s", "generation_id": 1, "member_id": static.member_id, "group_instance_id": "i"}
        assert client.ask(HEARTBEAT, 4, **request).error_code == 0
        share = client.start_sync(5, 1, static.member_id, group_id="s", group_instance_id="i").answer
        assert (share.error_code, share.assignment) == (0, b"share")
