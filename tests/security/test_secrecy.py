"""Whether a topic or a group exists is told to nobody who may not describe it: each API answers the same of both."""

from __future__ import annotations

import json
import logging
import struct
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from tests.security.acting import User, batch
from tests.security.conftest import Secure, Secured

THERE, ABSENT = "secret", "absent"
PART = {"partition_index": 0}


def topics(field: str = "name", parts: str = "partitions", **part: Any) -> Any:
    return lambda name: {"topics": [{field: name, parts: [part]}]}


ASKED: dict[str, tuple[int, int, Any]] = {
    "Produce": (0, 9, lambda name: {"acks": -1, "timeout_ms": 1_000, "transactional_id": None, "topic_data": [
        {"name": name, "partition_data": [{"index": 0, "records": batch([(b"v", {})])}]}]}),
    "Fetch": (1, 11, lambda name: {"replica_id": -1, "max_wait_ms": 0, "min_bytes": 0, "session_epoch": -1,
                                   "topics": [{"topic": name, "partitions": [{"partition": 0, "fetch_offset": 0}]}]}),
    "ListOffsets": (2, 7, topics(**PART, timestamp=-1)),
    "Metadata": (3, 12, lambda name: {"topics": [{"name": name}], "allow_auto_topic_creation": True}),
    "OffsetCommit": (8, 8, lambda name: {"group_id": "mine", "topics": [
        {"name": name, "partitions": [{**PART, "committed_offset": 0}]}]}),
    "CreateTopics": (19, 7, lambda name: {"timeout_ms": 1_000, "topics": [
        {"name": name, "num_partitions": 1, "replication_factor": 1}]}),
    "CreateTopics, to validate": (19, 7, lambda name: {"timeout_ms": 1_000, "validate_only": True, "topics": [
        {"name": name, "num_partitions": 1, "replication_factor": 1}]}),
    "DeleteTopics": (20, 5, lambda name: {"topic_names": [name], "timeout_ms": 1_000}),
    "DeleteRecords": (21, 2, lambda name: {"timeout_ms": 1_000, "topics": [
        {"name": name, "partitions": [{**PART, "offset": -1}]}]}),
    "OffsetForLeaderEpoch": (23, 4, lambda name: {"replica_id": -1, "topics": [
        {"topic": name, "partitions": [{"partition": 0, "leader_epoch": 0}]}]}),
    "AddPartitionsToTxn": (24, 3, lambda name: {
        "v3_and_below_transactional_id": "mine", "v3_and_below_producer_id": 0, "v3_and_below_producer_epoch": 0,
        "v3_and_below_topics": [{"name": name, "partitions": [0]}]}),
    "TxnOffsetCommit": (28, 3, lambda name: {
        "transactional_id": "mine", "group_id": "mine", "producer_id": 0, "producer_epoch": 0, "topics": [
            {"name": name, "partitions": [{**PART, "committed_offset": 0}]}]}),
    "DescribeConfigs": (32, 4, lambda name: {"resources": [{"resource_type": 2, "resource_name": name}]}),
    "AlterConfigs": (33, 2, lambda name: {"resources": [{"resource_type": 2, "resource_name": name}]}),
    "CreatePartitions": (37, 3, lambda name: {"topics": [{"name": name, "count": 9}], "timeout_ms": 1_000}),
    "IncrementalAlterConfigs": (44, 1, lambda name: {"resources": [{"resource_type": 2, "resource_name": name}]}),
    "OffsetDelete": (47, 0, lambda name: {"group_id": "mine", "topics": [{"name": name, "partitions": [PART]}]}),
    "DescribeProducers": (61, 0, lambda name: {"topics": [{"name": name, "partition_indexes": [0]}]}),
    "ConsumerGroupHeartbeat": (68, 1, lambda name: {
        "group_id": "mine", "member_id": "m", "member_epoch": 0, "rebalance_timeout_ms": 1_000,
        "subscribed_topic_names": [name], "topic_partitions": []}),
    "DescribeTopicPartitions": (75, 0, lambda name: {"topics": [{"name": name}], "response_partition_limit": 10}),
    "ShareGroupHeartbeat": (76, 1, lambda name: {
        "group_id": "mine-s", "member_id": "m", "member_epoch": 0, "subscribed_topic_names": [name]}),
    "DescribeShareGroupOffsets": (90, 0, lambda name: {"groups": [
        {"group_id": "mine-s", "topics": [{"topic_name": name, "partitions": [0]}]}]}),
    "AlterShareGroupOffsets": (91, 0, lambda name: {"group_id": "mine-s", "topics": [
        {"topic_name": name, "partitions": [{**PART, "start_offset": 0}]}]}),
}  # fmt: skip

GROUPS: dict[str, tuple[int, int, Any]] = {
    "OffsetFetch": (9, 7, lambda name: {"group_id": name, "topics": None}),
    "DescribeGroups": (15, 5, lambda name: {"groups": [name]}),
    "DeleteGroups": (42, 2, lambda name: {"groups_names": [name]}),
    "OffsetDelete": (47, 0, lambda name: {"group_id": name, "topics": []}),
    "ConsumerGroupDescribe": (69, 1, lambda name: {"group_ids": [name]}),
}  # fmt: skip


@pytest.fixture
def asking(secured: Secure) -> Iterator[tuple[User, User]]:
    """alice, who has a group, a transactional id and a topic of her own, and root. There are others'."""
    found: Secured = secured("SCRAM-SHA-256", security={"super_users": ["User:root"]})
    root = User(found, "root")
    made = User(found, "alice", "read group mine*", "delete group mine*", "write transactional_id mine",
                "read topic own", "write topic own")  # fmt: skip
    with closing(root.connection), closing(made.connection):
        for name in (THERE, "own"):
            assert root.create(name) == 0
        root.produce(THERE, b"v")
        for group in (THERE, "mine"):
            committed = {"name": "own", "partitions": [{**PART, "committed_offset": 0}]}
            said = {"group_id": group, "generation_id_or_member_epoch": -1, "member_id": "", "topics": [committed]}
            assert root.ask(8, 8, **said).topics[0].partitions[0].error_code == 0
        yield made, root


def told(user: User, key: int, version: int, said: Any, name: str) -> str:
    """The answer, but for the name in it."""
    return repr(user.ask(key, version, **said(name))).replace(name, "NAME")


@pytest.mark.parametrize("api", ASKED)
def test_topics(asking: tuple[User, User], api: str) -> None:
    alice, root = asking
    assert told(alice, *ASKED[api], THERE) == told(alice, *ASKED[api], ABSENT)
    assert told(root, *ASKED[api], THERE) != told(root, *ASKED[api], ABSENT), "there is nothing to be told"


@pytest.mark.parametrize("api", GROUPS)
def test_groups(asking: tuple[User, User], api: str) -> None:
    alice, root = asking
    assert told(alice, *GROUPS[api], THERE) == told(alice, *GROUPS[api], ABSENT)
    assert told(root, *GROUPS[api], THERE) != told(root, *GROUPS[api], ABSENT), "there is nothing to be told"


@pytest.mark.parametrize(
    "question", [{"type": "find", "key": "a2V5"}, {"type": "show", "partition": 0, "offset": 0}], ids=["find", "show"]
)
def test_messages_of_topics(asking: tuple[User, User], question: dict[str, Any]) -> None:
    alice, root = asking

    def told_of(user: User, name: str) -> str:
        return repr(user.ask_own(18502, {**question, "topic": name})).replace(name, "NAME")

    assert told_of(alice, THERE) == told_of(alice, ABSENT)
    assert told_of(root, THERE) != told_of(root, ABSENT), "there is nothing to be told"


@pytest.mark.parametrize("question", [{"type": "list"}, {"type": "count"}, {"type": "cancel"}], ids=str)
def test_scheduled_messages_of_topics(asking: tuple[User, User], question: dict[str, Any]) -> None:
    alice, root = asking

    def told_of(user: User, name: str) -> str:
        return repr(user.ask_own(18506, {**question, "selection": {"topic": name}})).replace(name, "NAME")

    assert root.send(THERE, [(b"later", {"TIMER_DELAY_SEC": b"3600"})]) == 0
    assert told_of(alice, THERE) == told_of(alice, ABSENT)
    assert told_of(root, THERE) != told_of(root, ABSENT), "there is nothing to be told"


@pytest.mark.parametrize("key", [18502, 18503, 18504, 18506, 18508])
@pytest.mark.parametrize(
    "body", [b'{"x":' + b"[" * 100_000, b'{"x":' * 50_000, b'{"type":"find","x":' + b"[" * 100_000]
)
def test_depths_are_no_errors_of_the_broker(
    asking: tuple[User, User], key: int, body: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """Each would be a traceback in the log, by a user without rights."""
    alice, _ = asking
    said = struct.pack(">hhih", key, 0, 7, -1) + body
    answer = json.loads(alice.connection.exchange(struct.pack(">i", len(said)) + said)[4:])
    assert answer["fault"] == "INVALID_REQUEST"
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]
