"""Requests with many elements are worked at in slices: the answer is as before, others are served in between, and the
order of a connection's requests is kept."""

from __future__ import annotations

from itertools import count, pairwise
from typing import Any

import pytest
from kafka_rig import Rig, RigClient

from halfmoon.adapters.kafka.api import api_08_offset_commit, api_35_describe_log_dirs
from halfmoon.adapters.kafka.protocol import LARGE_BYTES, REQUESTS
from halfmoon.adapters.tcp.buffers import CHUNK_BYTES
from halfmoon.adapters.tcp.round_time import RoundTime
from halfmoon.services.groups.messages import Join
from halfmoon.services.groups.service import GroupService

MANY = 400


def ticking(rig: Rig) -> None:
    """Each look at the clock costs a millisecond, so a slice has some four steps."""
    now = 0

    def tick() -> float:
        nonlocal now
        now += 1
        return now / 1000

    rig.server.round_time = RoundTime(rig.loop.call_soon, tick)


@pytest.fixture
def rig() -> Rig:
    rig = Rig()
    ticking(rig)
    return rig


def element(key: int, path: str, **fields: Any) -> Any:
    kind: Any = REQUESTS[key]
    for name in path.split("."):
        kind = getattr(kind, name)
    return kind(**fields)


def turn(rig: Rig) -> None:
    """One turn of the loop, and no more."""
    calls, rig.loop.soon[:] = list(rig.loop.soon), []
    for call in calls:
        call()


def until_answered(rig: Rig, *clients: RigClient) -> list[list[Any]]:
    """Turns until nothing is left to be done; the answers of each client, turn by turn."""
    came = []
    for _ in range(10_000):
        turn(rig)
        if rig.broker.turn.dirty or not rig.loop.soon:
            rig.broker.flush()
            rig.broker.settle()
        came.append([client.answers() for client in clients])
        if not rig.loop.soon:
            break
    return came


def creation(names: list[str]) -> dict[str, Any]:
    topics = [
        element(19, "CreatableTopic", name=name, num_partitions=2, replication_factor=1, assignments=[], configs=[])
        for name in names
    ]
    return {"topics": topics, "timeout_ms": 1000, "validate_only": False}


NAMES = [f"t{at:03}" for at in range(MANY)]


def requests() -> list[tuple[int, int, dict[str, Any]]]:
    """In an order in which each finds what it needs."""
    names = [*NAMES, "missing"]
    found: list[tuple[int, int, dict[str, Any]]] = [(19, 7, creation(NAMES)), (19, 4, creation(NAMES))]
    for version in (0, 1, 4, 8, 9, 12, 13):
        asked = [element(3, "MetadataRequestTopic", name=name, topic_id=None) for name in names]
        found += [(3, version, {"topics": asked, "allow_auto_topic_creation": False})]
        found += [(3, version, {"topics": None if version else [], "allow_auto_topic_creation": False})]
    found += [(75, 0, {"topics": [], "response_partition_limit": 999, "cursor": None})]
    for version in (1, 4, 6, 11):
        topics = [
            element(2, "ListOffsetsTopic", name=name, partitions=[
                element(2, "ListOffsetsTopic.ListOffsetsPartition", partition_index=at, current_leader_epoch=-1,
                        timestamp=time) for at, time in ((0, -1), (1, -2), (2, -1))])
            for name in names
        ]  # fmt: skip
        found += [(2, version, {"replica_id": -1, "isolation_level": 0, "topics": topics})]
    for version in (2, 5, 8, 9):
        topics = [
            element(8, "OffsetCommitRequestTopic", name=name, partitions=[
                element(8, "OffsetCommitRequestTopic.OffsetCommitRequestPartition", partition_index=at,
                        committed_offset=version, committed_leader_epoch=-1, committed_metadata="m") for at in (0, 2)])
            for name in names
        ]  # fmt: skip
        found += [
            (8, version, {"group_id": "g", "generation_id_or_member_epoch": -1, "member_id": "", "topics": topics})
        ]
    for version in (1, 7):
        topics = [element(9, "OffsetFetchRequestTopic", name=name, partition_indexes=[0, 1]) for name in names]
        found += [(9, version, {"group_id": "g", "topics": topics})]
    groups = [element(9, "OffsetFetchRequestGroup", group_id="g", topics=None)]
    found += [(9, 8, {"groups": groups, "require_stable": True})]
    for version in (1, 4):
        resources = [
            element(
                32, "DescribeConfigsResource", resource_type=2, resource_name=name, configuration_keys=["retention.ms"]
            )
            for name in names
        ]
        found += [(32, version, {"resources": resources, "include_synonyms": True})]
    resources = [
        element(44, "AlterConfigsResource", resource_type=2, resource_name=name, configs=[
            element(44, "AlterConfigsResource.AlterableConfig", name="retention.ms", config_operation=0, value="5000")])
        for name in names
    ]  # fmt: skip
    found += [(44, 1, {"resources": resources, "validate_only": False})]
    found += [(35, 4, {"topics": None}), (74, 1, {"resource_types": []})]
    found += [(10, 4, {"key_type": 0, "coordinator_keys": names}), (65, 0, {"transactional_ids": names})]
    found += [(15, 5, {"groups": ["g", *names], "include_authorized_operations": False})]
    found += [(69, 1, {"group_ids": ["g", *names]}), (77, 1, {"group_ids": names})]
    asked = [element(37, "CreatePartitionsTopic", name=name, count=3, assignments=None) for name in names]
    found += [(37, 2, {"topics": asked, "timeout_ms": 1000, "validate_only": False})]
    topics = [
        element(47, "OffsetDeleteRequestTopic", name=name, partitions=[
            element(47, "OffsetDeleteRequestTopic.OffsetDeleteRequestPartition", partition_index=at) for at in (0, 1)])
        for name in names
    ]  # fmt: skip
    found += [(47, 0, {"group_id": "g", "topics": topics}), (16, 4, {"states_filter": []})]
    found += [(20, 4, {"topic_names": names, "timeout_ms": 1000})]
    return found


def answer_to(rig: Rig, client: RigClient, key: int, version: int, fields: dict[str, Any]) -> tuple[bytes, int]:
    """The bytes of the answer, and how many turns it took."""
    client.feed(client.encode(key, version, **fields))
    for turns in range(10_000):
        rig.broker.flush()
        frames = client.frames()
        if frames:
            (frame,) = frames
            return frame, turns
        turn(rig)
    raise AssertionError("no answer came")


def test_answers_are_what_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same requests in the same order to two brokers, one of which has all the time there is."""
    monkeypatch.setattr(
        api_35_describe_log_dirs, "_disk", lambda _: (2_000, 1_000)
    )  # others fill the real one meanwhile
    whole, sliced = Rig(), Rig()
    ticking(sliced)
    clients = whole.client(), sliced.client()
    for key, version, fields in requests():
        expected, _ = answer_to(whole, clients[0], key, version, fields)
        found, turns = answer_to(sliced, clients[1], key, version, fields)
        assert found == expected, (key, version)
        assert turns > 20 or key in (3, 16, 35, 74, 75), (key, version, turns)


def test_another_client_is_served_in_between(rig: Rig) -> None:
    busy, other = rig.client(), rig.client()
    said = busy.encode(19, 7, **creation(NAMES))
    assert len(said) > LARGE_BYTES
    busy.feed(said)
    asked = 0
    while not (answers := busy.answers()):
        turn(rig)
        rig.broker.flush()
        if rig.loop.soon:
            other.feed(other.encode(18, 3, client_software_name="c", client_software_version="1"))
            (answer,) = other.answers()
            assert answer.error_code == 0
            asked += 1
    assert [topic.error_code for topic in answers[0].topics] == [0] * MANY
    assert asked > MANY / 10


def test_no_turn_makes_more_than_a_few_topics(rig: Rig) -> None:
    client = rig.client()
    client.feed(client.encode(19, 7, **creation(NAMES)))
    made = [len(rig.broker.catalog.by_name)]
    while not client.answers():
        turn(rig)
        rig.broker.flush()
        made.append(len(rig.broker.catalog.by_name))
    assert made[-1] == MANY
    assert max(after - before for before, after in pairwise(made)) <= 5


def test_requests_of_one_client_keep_their_order(rig: Rig) -> None:
    client = rig.client()
    names = [element(20, "DeleteTopicState", name=name, topic_id=None) for name in NAMES]
    everything = {"topics": None, "allow_auto_topic_creation": False}
    client.feed(
        client.encode(19, 7, **creation(NAMES))
        + client.encode(3, 12, **everything)
        + client.encode(20, 6, topics=names, timeout_ms=1000)
        + client.encode(3, 12, **everything)
        + client.encode(18, 3, client_software_name="c", client_software_version="1")
    )
    came = [answer for answers in until_answered(rig, client) for answer in answers[0]]
    created, full, deleted, empty, versions = came
    assert {topic.error_code for topic in created.topics} == {0}
    assert len(full.topics) == MANY
    assert {result.error_code for result in deleted.responses} == {0}
    assert empty.topics == []
    assert versions.api_keys


def test_a_client_that_leaves_ends_its_work(rig: Rig) -> None:
    client = rig.client()
    before_bytes = rig.server.pool.in_use_bytes
    client.feed(client.encode(19, 7, **creation(NAMES)))
    while len(rig.broker.catalog.by_name) < 50:
        turn(rig)
    client.transport.closed = True
    client.connection.connection_lost(None)
    made = len(rig.broker.catalog.by_name)
    rig.turns()
    assert len(rig.broker.catalog.by_name) == made < MANY
    assert rig.server.pool.in_use_bytes <= max(before_bytes, CHUNK_BYTES), "the request's buffer is given back"
    after = rig.client()
    assert len(after.ask(3, 12, topics=None, allow_auto_topic_creation=False).topics) == made


def test_nonsense_behind_the_first_slice_closes_the_connection(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    client, other = rig.client(), rig.client()
    said = client.encode(19, 7, **creation(NAMES))
    client.feed(said[:4] + said[4:-40] + b"\xff" * 40)
    until_answered(rig, client)
    assert client.transport.closed
    assert rig.server.counters.malformed == 1
    assert not rig.broker.catalog.by_name, "nothing of it has been done"
    assert "event=connection_closed" in caplog.text
    assert other.ask(18, 3, client_software_name="c", client_software_version="1").api_keys


def test_a_topic_that_somebody_else_deletes_meanwhile(rig: Rig) -> None:
    one, other = rig.client(), rig.client()
    one.feed(one.encode(19, 7, **creation(NAMES)))
    until_answered(rig, one)
    targets = [element(20, "DeleteTopicState", name=name, topic_id=None) for name in NAMES]
    one.feed(one.encode(20, 6, topics=targets, timeout_ms=1000))
    while len(rig.broker.catalog.by_name) > MANY - 5:  # it looks all of them up first
        turn(rig)
    left = next(iter(rig.broker.catalog.by_name))
    other.feed(other.encode(20, 6, topics=[element(20, "DeleteTopicState", name=left, topic_id=None)], timeout_ms=1))
    came = until_answered(rig, one, other)
    (deleted,) = [answer for answers in came for answer in answers[0]]
    (quick,) = [answer for answers in came for answer in answers[1]]
    assert quick.responses[0].error_code == 0
    codes = {result.name: result.error_code for result in deleted.responses}
    assert codes.pop(left) == 3
    assert set(codes.values()) == {0}
    assert not rig.broker.catalog.by_name


def join(groups: GroupService) -> None:
    joined: list[object] = []
    groups.join(Join("g", "", None, "c", "h", 10_000, 10_000, "consumer", (("range", b""),), False), joined.append)


@pytest.mark.parametrize("happens", ["it gets members", "its shard goes"])
def test_a_group_is_committed_for_no_more_after_what_happens_between_two_slices(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, happens: str
) -> None:
    monkeypatch.setattr(api_08_offset_commit, "AT_ONCE", 10)
    rig.topic("t", MANY)
    client = rig.client()
    part = "OffsetCommitRequestTopic.OffsetCommitRequestPartition"
    parts = [
        element(8, part, partition_index=at, committed_offset=5, committed_leader_epoch=-1, committed_metadata="x" * 9)
        for at in range(MANY)
    ]
    topics = [element(8, "OffsetCommitRequestTopic", name="t", partitions=parts)]
    client.feed(client.encode(8, 8, group_id="g", generation_id_or_member_epoch=-1, member_id="", topics=topics))
    groups = rig.broker.groups
    while not groups.offsets("g"):
        turn(rig)
    if happens == "it gets members":
        join(groups)
        refusal = 25
    else:
        rig.broker.appender.leaves = True
        refusal = 16
    (answers,) = [answers[0] for answers in until_answered(rig, client) if answers[0]]
    codes = [each.error_code for each in answers[0].topics[0].partitions]
    committed = {partition.index for partition in groups.offsets("g")}
    assert 0 < len(committed) < MANY
    assert committed == {at for at, error_code in enumerate(codes) if error_code == 0}
    assert set(codes) == {0, refusal}


class Over(RoundTime):
    """No turn has any time."""

    def is_over(self, until: float) -> bool:
        return True


@pytest.mark.pure
def test_a_short_request_is_read_before_its_buffer_serves_others(rig: Rig) -> None:
    """Its turn may be over before it has begun, where others have come in the same round."""
    rig.server.round_time = Over(rig.loop.call_soon)
    client, other = rig.client(), rig.client()
    client.feed(client.encode(19, 7, **creation(["mine", "mine.too"])))
    other.feed(other.encode(19, 7, **creation(["x" * 200, "y" * 200])))
    until_answered(rig, client, other)
    assert {"mine", "mine.too", "x" * 200, "y" * 200} <= rig.broker.catalog.by_name.keys()


@pytest.mark.pure
def test_of_a_short_request_what_takes_long_is_done_turn_by_turn(rig: Rig) -> None:
    """As a few topics of very many partitions are, each of which takes longer than a turn should."""
    ticks = count()
    rig.server.round_time = Over(rig.loop.call_soon, lambda: next(ticks) / 100)
    client = rig.client()
    said = client.encode(19, 7, **creation([f"t{at}" for at in range(6)]))
    assert len(said) < LARGE_BYTES
    client.feed(said)
    counts = [len(rig.broker.catalog.by_name)]
    while rig.loop.soon:
        turn(rig)
        counts.append(len(rig.broker.catalog.by_name))
    assert max(after - before for before, after in pairwise([0, *counts])) == 1
    assert counts[-1] == 6
