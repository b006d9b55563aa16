"""What plugins refuse (hook `halfmoon_authorize`) is refused with Kafka's codes, resource by resource."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from kafka_rig import Rig, RigClient, batch

from halfmoon.adapters.kafka.access import guarded
from halfmoon.adapters.tcp.access import OpinionAccess

TOPIC, GROUP, CLUSTER = 29, 30, 31


def plain(value: Any) -> Any:
    """Dicts as objects, as the protocol's classes want them."""
    if isinstance(value, dict):
        return SimpleNamespace(**{name: plain(each) for name, each in value.items()}, tags=None)
    return [plain(each) for each in value] if isinstance(value, list) else value


def ask(client: RigClient, key: int, version: int, **fields: Any) -> Any:
    return client.ask(key, version, **{name: plain(value) for name, value in fields.items()})


class Guard:
    """Refuses what it is told to, and notes what it is asked."""

    def __init__(self, *refused: tuple[str, str, str]) -> None:
        self.refused = set(refused)
        self.asked: list[tuple[str | None, str, str, str, str]] = []

    def __call__(self, principal: str | None, host: str, operation: str, kind: str, resource: str) -> bool | None:
        self.asked.append((principal, host, operation, kind, resource))
        return False if (operation, kind, resource) in self.refused else None


def rig_with(guard: Guard) -> Rig:
    rig = Rig()
    rig.server.shared.access = OpinionAccess(guard)
    rig.server.shared.routes = guarded(rig.server.routes)
    return rig


def test_a_refused_topic_leaves_the_others_of_a_produce_alone() -> None:
    guard = Guard(("write", "topic", "secret"))
    rig = rig_with(guard)
    rig.topic("secret")
    rig.topic("orders")
    client = rig.client()

    topics = [{"name": name, "partition_data": [{"index": 0, "records": batch(b"a")}]} for name in ("secret", "orders")]
    answer = produce(rig, client, topics)
    codes = {each.name: each.partition_responses[0].error_code for each in answer.responses}
    assert codes == {"secret": TOPIC, "orders": 0}
    assert guard.asked[0] == ("User:ANONYMOUS", "10.0.0.9", "write", "topic", "secret")
    assert rig.broker.refused_batches.total() == 1


def produce(rig: Rig, client: Any, topics: list[dict[str, Any]]) -> Any:
    client.feed(client.encode(0, 9, transactional_id=None, acks=-1, timeout_ms=1000, topic_data=plain(topics)))
    rig.turn()
    (answer,) = client.answers()
    return answer


def test_a_refused_topic_is_not_read() -> None:
    rig = rig_with(Guard(("read", "topic", "secret")))
    for name in ("secret", "orders"):
        (partition,) = rig.topic(name)
        rig.append(partition, b"a")
    topics = [
        {
            "topic": name,
            "partitions": [
                {
                    "partition": 0, "current_leader_epoch": -1, "fetch_offset": 0, "last_fetched_epoch": -1,
                    "log_start_offset": -1, "partition_max_bytes": 1 << 20,
                }
            ],
        }
        for name in ("secret", "orders")
    ]  # fmt: skip
    answer = ask(
        rig.client(), 1, 12, replica_id=-1, max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, isolation_level=0,
        session_id=0, session_epoch=-1, topics=topics, forgotten_topics_data=[], rack_id="",
    )  # fmt: skip
    parts = {each.topic: each.partitions[0] for each in answer.responses}
    assert (parts["secret"].error_code, parts["orders"].error_code) == (TOPIC, 0)
    assert not parts["secret"].records
    assert parts["orders"].records


GROUP_REQUESTS: list[tuple[int, int, dict[str, Any]]] = [
    (11, 5, {
        "session_timeout_ms": 10_000, "rebalance_timeout_ms": 10_000, "member_id": "", "group_instance_id": None,
        "protocol_type": "consumer", "protocols": [],
    }),
    (12, 3, {"generation_id": 1, "member_id": "m", "group_instance_id": None}),
    (13, 3, {"members": []}),
    (14, 3, {"generation_id": 1, "member_id": "m", "group_instance_id": None, "assignments": []}),
    (68, 0, {
        "member_id": "m", "member_epoch": 0, "instance_id": None, "rack_id": None, "rebalance_timeout_ms": 10_000,
        "subscribed_topic_names": ["orders"], "server_assignor": None, "topic_partitions": [],
    }),
    (76, 1, {"member_id": "m", "member_epoch": 0, "rack_id": None, "subscribed_topic_names": ["orders"]}),
]  # fmt: skip


@pytest.mark.parametrize(("key", "version", "fields"), GROUP_REQUESTS, ids=[str(key) for key, _, _ in GROUP_REQUESTS])
def test_a_refused_group_has_no_members(key: int, version: int, fields: dict[str, Any]) -> None:
    guard = Guard(("read", "group", "mine"))
    answer = ask(rig_with(guard).client(), key, version, group_id="mine", **fields)
    assert answer.error_code == GROUP
    assert guard.asked == [("User:ANONYMOUS", "10.0.0.9", "read", "group", "mine")]


def test_topics_are_created_and_deleted_by_those_who_may() -> None:
    rig = rig_with(Guard(("create", "topic", "secret"), ("delete", "topic", "orders"), ("alter", "topic", "orders")))
    client = rig.client()
    topics = [
        {"name": name, "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
        for name in ("secret", "orders")
    ]
    client.feed(client.encode(19, 4, topics=plain(topics), timeout_ms=1000, validate_only=False))
    rig.turn()
    (answer,) = client.answers()
    assert {each.name: each.error_code for each in answer.topics} == {"secret": TOPIC, "orders": 0}
    wanted = [{"name": "orders", "count": 2, "assignments": None}]
    answer = ask(client, 37, 1, topics=wanted, timeout_ms=1000, validate_only=False)
    assert [each.error_code for each in answer.results] == [TOPIC]
    answer = ask(client, 20, 3, topic_names=["orders"], timeout_ms=1000)
    assert [each.error_code for each in answer.responses] == [TOPIC]
    assert rig.broker.topic("orders") is not None


@pytest.mark.parametrize(("kind", "name", "resource", "refusal"), [
    (2, "orders", ("topic", "orders"), TOPIC),
    (4, "", ("cluster", "kafka-cluster"), CLUSTER),
    (32, "mine", ("group", "mine"), GROUP),
])  # fmt: skip
def test_configurations_are_altered_by_those_who_may(
    kind: int, name: str, resource: tuple[str, str], refusal: int
) -> None:
    rig = rig_with(Guard(("alter_configs", *resource)))
    rig.topic("orders")
    resources = [{"resource_type": kind, "resource_name": name, "configs": []}]
    for key, version in ((33, 1), (44, 0)):
        answer = ask(rig.client(), key, version, resources=resources, validate_only=False)
        assert [each.error_code for each in answer.responses] == [refusal]
