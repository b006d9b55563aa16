"""Share groups byte for byte: what Apache Kafka 4.3.1 said (tests/golden/share_groups.json), and what is said here."""

from __future__ import annotations

import json
import re
import uuid
from typing import Any

import pytest
from kafka_rig import Rig, RigClient
from share_steps import BATCHES, DESCRIBE, FETCH, GOLDEN, HEARTBEAT, LIST_GROUPS, RECORDS, TOPIC, steps

from halfmoon.adapters.kafka.protocol import decode_request, encode_response
from halfmoon.adapters.kafka.share_codec import SharedPart, encode
from halfmoon.services.share.share_partition import Acquired
from tests.core.bench import batch
from tests.kafka_messages import read_answer, read_request

_FILE = json.loads(GOLDEN.read_text())
ROWS = {
    name: (key, version, bytes.fromhex(sent), bytes.fromhex(got)) for name, key, version, sent, got in _FILE["steps"]
}
TOPIC_ID = uuid.UUID(_FILE["topic_id"])
HEADER = 4 + 1
"""Of a response: correlation id, no tagged fields."""
ALTERED = "the assignment"


def kafkas(name: str) -> Any:
    key, version, _, got = ROWS[name]
    return read_answer(key, version, got)


@pytest.mark.parametrize("name", ROWS)
def test_requests_that_kafka_has_understood_are_read(name: str) -> None:
    key, version, sent, _ = ROWS[name]
    body = memoryview(sent)[8 + 2 + len("golden") + 1 :]
    assert decode_request(key, version, body) == read_request(key, version, sent)


@pytest.mark.parametrize("name", ROWS)
def test_responses_are_written_as_kafka_does(name: str) -> None:
    key, version, _, got = ROWS[name]
    answer = kafkas(name)
    if key != FETCH:
        assert encode_response(version, answer) == got[HEADER:]
        return
    topics = {topic.topic_id.bytes: [_part(part) for part in topic.partitions] for topic in answer.responses}
    made = encode(topics, answer.acquisition_lock_timeout_ms, answer.error_code, answer.error_message)
    assert b"".join(bytes(piece) for piece in made) == got[HEADER:]


def _part(part: Any) -> SharedPart:
    acquired = [
        Acquired(each.first_offset, each.last_offset + 1, each.delivery_count) for each in part.acquired_records
    ]
    records = part.records or b""
    return SharedPart(
        part.partition_index, part.error_code, part.error_message, part.acknowledge_error_code,
        part.acknowledge_error_message, [records] if records else [], len(records), acquired,
    )  # fmt: skip


@pytest.fixture(scope="module")
def answers() -> dict[str, Any]:
    """What Halfmoon says at each step."""
    rig = Rig(groups__share__auto_offset_reset="earliest", groups__share__dead_letters=False)
    rig.broker.create_topic(TOPIC, 1)
    topic = rig.broker.topic(TOPIC)
    assert topic is not None
    for number in range(BATCHES):
        values = [f"{number}-{at}".encode() for at in range(RECORDS)]
        rig.broker.append(topic.partitions[0], batch(*values), 1000)
        rig.turn()
    client = RigClient(rig)
    found = {}
    for step in steps(uuid.UUID(bytes=topic.id)):
        client.feed(client.encode(step.key, step.version, **step.fields))
        rig.turn()
        rig.clock.now_ms += 200
        rig.broker.hold.expire(rig.clock.now_ms)
        rig.turn()
        (found[step.name],) = client.answers()
    return found


def test_every_step_has_golden_bytes(answers: dict[str, Any]) -> None:
    assert {*answers, ALTERED} == {*ROWS}


DIFFERENT = {
    "a topic that is not there": "Kafka 4.3.1: UNKNOWN_SERVER_ERROR for the whole answer; here UNKNOWN_TOPIC_ID for it",
    "acknowledge and fetch": "a record that the request releases can be given out by it here, in Kafka by the next",
    "a partition that is not there": "and so that one is here with nothing",
}


@pytest.mark.parametrize("name", [name for name in ROWS if ROWS[name][0] == FETCH and name not in DIFFERENT])
def test_a_fetch_gets_what_kafka_gives(name: str, answers: dict[str, Any]) -> None:
    assert _fetched(answers[name]) == _fetched(kafkas(name))


def _fetched(answer: Any) -> Any:
    parts = {
        part.partition_index: (
            part.error_code, part.acknowledge_error_code, len(part.records or b""),
            [(each.first_offset, each.last_offset, each.delivery_count) for each in part.acquired_records],
        )
        for topic in answer.responses
        for part in topic.partitions
    }  # fmt: skip
    return answer.error_code, answer.acquisition_lock_timeout_ms, parts


def test_what_a_request_releases_it_may_get_again(answers: dict[str, Any]) -> None:
    ours, theirs = answers["acknowledge and fetch"], kafkas("acknowledge and fetch")
    later_theirs = kafkas("a partition that is not there")
    assert _fetched(ours)[2][0][3] == [(6, 6, 2), (7, 11, 1)]
    assert _fetched(theirs)[2][0][3] == [(7, 7, 1), (8, 11, 1)]
    assert _fetched(later_theirs)[2][0][3] == [(6, 6, 2)]
    assert _fetched(answers["a partition that is not there"])[2] == {7: _fetched(later_theirs)[2][7]}


def test_a_topic_that_is_not_there_is_told_as_such(answers: dict[str, Any]) -> None:
    answer = answers["a topic that is not there"]
    assert answer.error_code == 0
    assert [part.error_code for topic in answer.responses for part in topic.partitions] == [100]


@pytest.mark.parametrize(
    "name", [name for name in ROWS if ROWS[name][0] not in (FETCH, HEARTBEAT, DESCRIBE, LIST_GROUPS)]
)
def test_everything_else_is_answered_as_kafka_does(name: str, answers: dict[str, Any]) -> None:
    assert _told(answers[name]) == _told(kafkas(name))


@pytest.mark.parametrize("name", [name for name in ROWS if ROWS[name][0] == HEARTBEAT and name != ALTERED])
def test_a_heartbeat_is_answered_as_kafka_does(name: str, answers: dict[str, Any]) -> None:
    ours, theirs = answers[name], kafkas(name)
    assert (ours.error_code, ours.member_id, ours.heartbeat_interval_ms) == (
        theirs.error_code, theirs.member_id, theirs.heartbeat_interval_ms,
    )  # fmt: skip
    if name != "join":  # where Kafka assigns nothing yet
        assert (ours.member_epoch, ours.assignment) == (theirs.member_epoch, theirs.assignment)


def test_who_joins_is_assigned_partitions_at_once(answers: dict[str, Any]) -> None:
    joined, theirs = answers["join"], kafkas(ALTERED)
    assert joined.member_epoch == 1
    assert [topic.partitions for topic in joined.assignment.topic_partitions] == [
        topic.partitions for topic in theirs.assignment.topic_partitions
    ]


def test_a_group_is_described_as_by_kafka(answers: dict[str, Any]) -> None:
    for name in ("describe", "describe a group that is not there"):
        ours, theirs = answers[name].groups[0], kafkas(name).groups[0]
        for field in (
            "error_code",
            "error_message",
            "group_state",
            "assignor_name",
            "authorized_operations",
            "members",
        ):
            assert getattr(ours, field) == getattr(theirs, field), field
    assert answers["describe"].groups[0].group_epoch == 2


def test_share_groups_are_listed_as_such(answers: dict[str, Any]) -> None:
    listed = {
        each.group_id: (each.protocol_type, each.group_state, each.group_type) for each in answers["list groups"].groups
    }
    assert listed == {"golden": ("share", "Empty", "share"), "nobody": ("share", "Empty", "share")}


def _told(answer: Any) -> str:
    """All that it says, but for ids, and messages that are our own."""
    return re.sub(
        r"(leader_epoch=\d+|topic_id=UUID\('[^']*'\)|error_message=('[^']*'|\"[^\"]*\"|None))", "…", repr(answer)
    )
