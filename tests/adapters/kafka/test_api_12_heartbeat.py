"""Heartbeats of clients that can wait for the answer wait for a rebalance; nobody else's do."""

from __future__ import annotations

import gc

import pytest

from halfmoon.adapters.kafka.protocol import JoinGroupRequest, SyncGroupRequest
from halfmoon.adapters.kafka.registry import Deferred
from tests.adapters.kafka.kafka_rig import Rig, RigClient

JOIN, HEARTBEAT, SYNC, API_VERSIONS = 11, 12, 14, 18
SUBSCRIBED_TO_T = b"\x00\x01\x00\x00\x00\x01\x00\x01t" + bytes(8)
RANGE = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=SUBSCRIBED_TO_T)
MEMBER = {"group_id": "g", "generation_id": 1, "group_instance_id": None}
JAVA = "apache-kafka-java"


def member(rig: Rig, software: str, age_ms: int = 3_000) -> tuple[RigClient, str]:
    """The one member of a stable group, whose connection is so old, and its id."""
    client = rig.client()
    client.ask(API_VERSIONS, 3, client_software_name=software, client_software_version="1")
    client.feed(join(client))
    rig.pass_time(100)
    rig.turn()
    (joined,) = client.answers()
    share = SyncGroupRequest.SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"share")
    client.ask(SYNC, 3, **MEMBER, member_id=joined.member_id, assignments=[share])
    rig.pass_time(age_ms - 100)
    return client, joined.member_id


def join(client: RigClient, member_id: str = "") -> bytes:
    return client.encode(
        JOIN, 3, group_id="g", session_timeout_ms=30_000, rebalance_timeout_ms=60_000, member_id=member_id,
        protocol_type="consumer", protocols=[RANGE],
    )  # fmt: skip


def beat(client: RigClient, member_id: str) -> None:
    client.feed(client.encode(HEARTBEAT, 4, **MEMBER, member_id=member_id))
    client.rig.turn()


def codes(client: RigClient) -> list[int]:
    return [answer.error_code for answer in client.answers()]


@pytest.fixture
def rig() -> Rig:
    rig = Rig()
    rig.broker.create_topic("t", 1)
    rig.turn()
    return rig


@pytest.mark.parametrize("software", [JAVA, "librdkafka", "confluent-kafka-python"])
def test_a_rebalance_is_told_when_it_begins(rig, software):
    client, member_id = member(rig, software)
    beat(client, member_id)
    rig.pass_time(2_999)
    assert codes(client) == []
    other = rig.client()
    other.feed(join(other))
    rig.turn()
    assert codes(client) == [27]


def test_it_waits_for_three_seconds(rig):
    client, member_id = member(rig, JAVA)
    beat(client, member_id)
    rig.pass_time(3_000)
    assert codes(client) == [0]


@pytest.mark.parametrize("software", ["kafkajs", "sarama", "Java"])
def test_clients_that_nobody_knows_are_answered_at_once(rig, software):
    client, member_id = member(rig, software)
    beat(client, member_id)
    assert codes(client) == [0]


def test_a_client_that_has_not_said_what_it_is(rig):
    client, member_id = member(rig, JAVA)
    client.connection.connection_lost(None)
    client = rig.client()
    beat(client, member_id)
    assert codes(client) == [0]


def test_a_young_connection_is_answered_at_once(rig):
    """Else a member whose connection is lost again and again would never hear that its session goes on."""
    client, member_id = member(rig, JAVA, age_ms=2_999)
    beat(client, member_id)
    assert codes(client) == [0]
    rig.pass_time(1)
    beat(client, member_id)
    assert codes(client) == []


def test_what_is_wrong_is_said_at_once(rig):
    client, _ = member(rig, JAVA)
    beat(client, "somebody")
    assert codes(client) == [25]


def test_whatever_comes_next_ends_the_wait(rig):
    client, member_id = member(rig, JAVA)
    beat(client, member_id)
    beat(client, member_id)
    assert codes(client) == [0]
    client.feed(client.encode(API_VERSIONS, 3, client_software_name=JAVA, client_software_version="1"))
    rig.turn()
    assert codes(client) == [0, 0]
    rig.pass_time(10_000)
    assert codes(client) == []


def test_a_stopping_server_ends_the_wait(rig):
    client, member_id = member(rig, JAVA)
    beat(client, member_id)
    client.connection.finish()
    rig.turn()
    assert codes(client) == [0]


def test_it_can_be_switched_off():
    rig = Rig(groups__heartbeat_wait="0ms")
    rig.broker.create_topic("t", 1)
    rig.turn()
    client, member_id = member(rig, JAVA)
    beat(client, member_id)
    assert codes(client) == [0]


@pytest.mark.parametrize("end", ["time", "rebalance", "next request", "lost connection"])
def test_nothing_is_left_for_the_garbage_collector(rig, end):
    client, member_id = member(rig, JAVA)

    def deferred() -> set[int]:
        return {id(found) for found in gc.get_objects() if isinstance(found, Deferred)}

    gc.collect()
    gc.disable()
    others = deferred()
    try:
        beat(client, member_id)
        assert deferred() > others
        if end == "rebalance":
            rig.broker.groups.leave("g", [(member_id, None)])
        elif end == "next request":
            client.feed(client.encode(API_VERSIONS, 3, client_software_name=JAVA, client_software_version="1"))
        elif end == "lost connection":
            client.connection.connection_lost(None)
        rig.pass_time(3_000)
        assert deferred() <= others
    finally:
        gc.enable()
