"""Every API asks for what it touches, and answers with Kafka's code where that is refused (hook `halfmoon_authorize`).

The requests name what may be used ("orders", "g", "t") beside what is refused ("secret"), where they can name two.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple
from uuid import UUID

import pytest
from kafka_rig import Rig, RigClient, batch

from halfmoon.adapters.kafka.access import IN_ITS_HANDLER, NEEDS, NOTHING, guarded
from halfmoon.adapters.kafka.api import registered
from halfmoon.adapters.kafka.auditing import CHANGES
from halfmoon.adapters.kafka.protocol import REQUESTS
from halfmoon.adapters.kafka.registry import Context, Deferred
from halfmoon.adapters.tcp.access import CLUSTER, OpinionAccess
from halfmoon.hooks.features import NackedMessages
from halfmoon.plugins.allocate.averagely import averagely
from tests.kafka_messages import as_dict
from tests.services.transactions.transaction_bench import transactional_batch

CODE_OF = {"topic": 29, "group": 30, "cluster": 31, "transactional_id": 53}
NAMES = ("orders", "secret")
NOT_ATTEMPTED = 55
OWN, USERS, SECURITY, DELAYS, SCHEDULES = 18502, 18503, 18504, 18506, 18508

Use = tuple[str, str, str]


class Guard:
    """Has an opinion about what it is told."""

    def __init__(self) -> None:
        self.said: dict[Use, bool] = {}
        self.asked: set[Use] = set()
        self.default: bool | None = None

    def __call__(self, principal: str | None, host: str, operation: str, kind: str, resource: str) -> bool | None:
        assert (principal, host) == ("User:ANONYMOUS", "10.0.0.9")
        self.asked.add((operation, kind, resource))
        return self.said.get((operation, kind, resource), self.default)


class World:
    """Two topics with a record each, and a guard who has no opinion yet."""

    def __init__(self) -> None:
        self.rig = Rig()
        self.guard = Guard()
        self.ids: dict[str, UUID] = {}
        for name in NAMES:
            (partition,) = self.rig.topic(name)
            self.rig.append(partition, b"a")
            self.ids[name] = UUID(bytes=partition.topic.id)
        self.rig.server.shared.access = OpinionAccess(self.guard, lambda: ("orders", "secret"))
        self.rig.server.shared.routes = guarded(self.rig.server.routes)
        self.client: RigClient = self.rig.client()

    def ask(self, key: int, version: int, fields: dict[str, Any]) -> Any:
        self.client.feed(self.client.encode(key, version, **fields))
        self.rig.turn()
        self.rig.loop.run_threads()
        self.rig.turn()
        (answer,) = self.client.answers()
        return answer


def codes(answer: Any) -> list[int]:
    """All error codes of an answer, wherever they stand."""
    return list(_codes(as_dict(answer)))


def _codes(value: Any) -> Iterator[int]:
    if isinstance(value, dict):
        for name, each in value.items():
            if name.endswith("error_code"):
                yield each
            else:
                yield from _codes(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _codes(each)


class Case(NamedTuple):
    """An API: its request, and the rights it needs, each with how many codes say so where it is refused."""

    fields: Callable[[Any, int, World], dict[str, Any]]
    """(request's class, version, world) → its fields."""
    needs: dict[Use, int]
    also: frozenset[int] = frozenset()
    """Codes that the request meets anyway."""


def topics(kind: str, part: str | None = None, field: str = "name", into: str = "topics", **given: Any) -> Any:
    """A request with both topics, and partition 0 of each: a number, or an object."""
    partitions = given.pop("partitions", "partitions")
    index = given.pop("index", "partition_index")
    values = given.pop("values", {})

    def fields(request: Any, version: int, world: World) -> dict[str, Any]:
        topic = getattr(request, kind)
        made = []
        for name in NAMES:
            one = topic(**{field: name})
            parts = [0] if part is None else [getattr(topic, part)(**{index: 0}, **values)]
            if partitions:
                setattr(one, partitions, parts)
            if hasattr(one, "topic_id"):
                one.topic_id = world.ids[name]
            made.append(one)
        return {into: made, **given}

    return fields


def just(**fields: Any) -> Any:
    return lambda request, version, world: fields


def of(build: Callable[[Any], dict[str, Any]]) -> Any:
    return lambda request, version, world: build(request)


def topic(operation: str) -> dict[Use, int]:
    return {(operation, "topic", "secret"): 1}


def group(operation: str, count: int = 1) -> dict[Use, int]:
    return {(operation, "group", "g"): count}


def cluster(operation: str, count: int = 1) -> dict[Use, int]:
    return {(operation, "cluster", CLUSTER): count}


def transactional(operation: str = "write", count: int = 1) -> dict[Use, int]:
    return {(operation, "transactional_id", "t"): count}


def offset_fetch(request: Any, version: int, world: World) -> dict[str, Any]:
    if version < 8:
        return topics("OffsetFetchRequestTopic", partitions="partition_indexes", group_id="g")(request, version, world)
    kind = request.OffsetFetchRequestGroup
    return {"groups": [kind(group_id="g", **topics(
        "OffsetFetchRequestTopics", partitions="partition_indexes"
    )(kind, version, world))]}  # fmt: skip


def find_coordinator(key_type: int) -> Any:
    def fields(request: Any, version: int, world: World) -> dict[str, Any]:
        given = {"coordinator_keys": ["gt"[key_type], "other"]} if version >= 4 else {"key": "gt"[key_type]}
        return given | ({"key_type": key_type} if version else {})

    return fields


def add_partitions(request: Any, version: int, world: World) -> dict[str, Any]:
    if version >= 4:
        return {"transactions": [request.AddPartitionsToTxnTransaction(transactional_id="t", topics=[])]}
    asked = topics("AddPartitionsToTxnTopic", into="v3_and_below_topics")(request, version, world)
    return {"v3_and_below_transactional_id": "t", **asked}


def produce(request: Any, version: int, world: World) -> dict[str, Any]:
    made = topics(
        "TopicProduceData", "PartitionProduceData", into="topic_data", partitions="partition_data", index="index",
        values={"records": batch(b"a")}, acks=-1,
    )  # fmt: skip
    return dict(made(request, version, world))


def fetch(request: Any, version: int, world: World) -> dict[str, Any]:
    return dict(topics("FetchTopic", "FetchPartition", "topic", index="partition", values={
        "partition_max_bytes": 1 << 20, "current_leader_epoch": -1, "last_fetched_epoch": -1, "log_start_offset": -1,
    })(request, version, world))  # fmt: skip


def share_fetch(request: Any, version: int, world: World) -> dict[str, Any]:
    kind = request.FetchTopic
    named = [
        kind(topic_id=each, partitions=[kind.FetchPartition(partition_index=0, acknowledgement_batches=[])])
        for each in world.ids.values()
    ]
    return {"group_id": "g", "member_id": "m", "max_records": 10, "max_bytes": 1 << 20, "topics": named}


def share_acknowledge(request: Any, version: int, world: World) -> dict[str, Any]:
    world.ask(78, version, share_fetch(REQUESTS[78], version, world))
    kind = request.AcknowledgeTopic
    part = kind.AcknowledgePartition
    done = part.AcknowledgementBatch(first_offset=0, last_offset=0, acknowledge_types=[1])
    return {
        "group_id": "g", "member_id": "m", "share_session_epoch": 1,
        "topics": [
            kind(topic_id=each, partitions=[part(partition_index=0, acknowledgement_batches=[done])])
            for each in world.ids.values()
        ],
    }  # fmt: skip


def offset_delete(request: Any, version: int, world: World) -> dict[str, Any]:
    commit = topics("OffsetCommitRequestTopic", "OffsetCommitRequestPartition", group_id="g")
    world.ask(8, 8, commit(REQUESTS[8], 8, world))  # of a group that there is not, nothing is said of topics
    made = topics("OffsetDeleteRequestTopic", "OffsetDeleteRequestPartition", group_id="g")
    return dict(made(request, version, world))


def configs(kind: str) -> Any:
    def fields(request: Any, version: int, world: World) -> dict[str, Any]:
        made = getattr(request, kind)
        more = {"configuration_keys": None} if kind == "DescribeConfigsResource" else {"configs": []}
        resources = [(2, "orders"), (2, "secret"), (4, str(world.rig.broker.node_id)), (32, "g")]
        return {"resources": [made(resource_type=code, resource_name=name, **more) for code, name in resources]}

    return fields


def configs_need(operation: str) -> dict[Use, int]:
    return topic(operation) | cluster(operation) | group(operation)


def describe_share_offsets(request: Any, version: int, world: World) -> dict[str, Any]:
    kind = request.DescribeShareGroupOffsetsRequestGroup
    made = topics("DescribeShareGroupOffsetsRequestTopic", field="topic_name")(kind, version, world)
    return {"groups": [kind(group_id="g", **made)]}


CASES: dict[int, list[Case]] = {
    0: [Case(produce, topic("write"))],
    1: [Case(fetch, topic("read"))],
    2: [Case(topics("ListOffsetsTopic", "ListOffsetsPartition", values={"timestamp": -1}), topic("describe"))],
    3: [Case(of(lambda request: {"topics": [request.MetadataRequestTopic(name=name) for name in NAMES]}),
             topic("describe"))],
    8: [Case(topics("OffsetCommitRequestTopic", "OffsetCommitRequestPartition", group_id="g"),
             group("read", 2) | topic("read"))],
    9: [Case(offset_fetch, group("describe") | topic("describe"))],
    10: [Case(find_coordinator(0), group("describe"))],
    11: [Case(just(group_id="g", session_timeout_ms=10_000, protocol_type="consumer"), group("read"),
              frozenset({23, 79}))],
    12: [Case(just(group_id="g", member_id="m"), group("read"), frozenset({25}))],
    13: [Case(just(group_id="g"), group("read"), frozenset({25}))],
    14: [Case(just(group_id="g", member_id="m"), group("read"), frozenset({23, 25}))],
    15: [Case(just(groups=["g", "other"]), group("describe"), frozenset({69}))],
    16: [Case(just(), {})],
    17: [Case(just(mechanism="PLAIN"), {}, frozenset({34}))],
    18: [Case(just(client_software_name="c", client_software_version="1"), {})],
    19: [Case(of(lambda request: {"topics": [
        request.CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in ("new", "newer")
    ]}), {("create", "topic", "new"): 1})],
    20: [Case(lambda request, version, world:
              {"topic_names": list(NAMES)} if version < 6 else
              {"topics": [request.DeleteTopicState(name=name) for name in NAMES]}, topic("delete"))],
    21: [Case(topics("DeleteRecordsTopic", "DeleteRecordsPartition"), topic("delete"))],
    22: [Case(just(transactional_id="t", transaction_timeout_ms=1000), transactional())],
    23: [Case(topics("OffsetForLeaderTopic", "OffsetForLeaderPartition", "topic", index="partition",
                     values={"current_leader_epoch": -1}), topic("describe"))],
    24: [Case(add_partitions, {}, frozenset({49, 105}))],
    25: [Case(just(transactional_id="t", group_id="g"), transactional() | group("read"), frozenset({49}))],
    26: [Case(just(transactional_id="t"), transactional(), frozenset({49}))],
    27: [Case(of(lambda request: {"markers": [request.WritableTxnMarker(producer_id=1, topics=[
        request.WritableTxnMarker.WritableTxnMarkerTopic(name="orders", partition_indexes=[0])
    ])]}), cluster("alter"))],
    28: [Case(topics("TxnOffsetCommitRequestTopic", "TxnOffsetCommitRequestPartition", transactional_id="t",
                     group_id="g"), transactional(count=2) | group("read", 2) | topic("read"), frozenset({49}))],
    29: [Case(just(resource_type_filter=1, resource_name_filter=None, principal_filter=None, host_filter=None,
                   operation=1, permission_type=1), cluster("describe"))],
    30: [Case(of(lambda request: {"creations": [request.AclCreation(), request.AclCreation()]}), cluster("alter", 2),
              frozenset({42}))],
    31: [Case(of(lambda request: {"filters": [request.DeleteAclsFilter()]}), cluster("alter"), frozenset({42}))],
    32: [Case(configs("DescribeConfigsResource"), configs_need("describe_configs"))],
    33: [Case(configs("AlterConfigsResource"), configs_need("alter_configs"))],
    34: [Case(of(lambda request: {"dirs": [request.AlterReplicaLogDir(path="/x", topics=[
        request.AlterReplicaLogDir.AlterReplicaLogDirTopic(name="orders", partitions=[0, 1])
    ])]}), cluster("alter", 2), frozenset({57}))],
    35: [Case(just(topics=None), cluster("describe"))],
    36: [Case(just(), {}, frozenset({34}))],
    37: [Case(of(lambda request: {"topics": [
        request.CreatePartitionsTopic(name=name, count=2, assignments=None) for name in NAMES
    ]}), topic("alter"))],
    38: [Case(just(), {}, frozenset({64}))],
    39: [Case(just(), {}, frozenset({64}))],
    40: [Case(just(), {}, frozenset({64}))],
    41: [Case(just(), {}, frozenset({64}))],
    42: [Case(just(groups_names=["g", "other"]), group("delete"), frozenset({69}))],
    43: [Case(topics("TopicPartitions", field="topic", into="topic_partitions"), cluster("alter", 3),
              frozenset({84}))],
    44: [Case(configs("AlterConfigsResource"), configs_need("alter_configs"))],
    45: [Case(topics("ReassignableTopic", "ReassignablePartition"), cluster("alter", 3), frozenset({39, 85}))],
    46: [Case(just(), cluster("describe"))],
    47: [Case(offset_delete,
              group("delete") | topic("read"), frozenset({69}))],
    48: [Case(just(), cluster("describe_configs"))],
    49: [Case(of(lambda request: {"entries": [request.EntryData(
        entity=[request.EntryData.EntityData(entity_type="client-id", entity_name="c")], ops=[]
    )]}), cluster("alter_configs"), frozenset({42}))],
    50: [Case(just(), cluster("describe"))],
    51: [Case(of(lambda request: {"deletions": [request.ScramCredentialDeletion(name=n, mechanism=1) for n in "ab"]}),
              cluster("alter", 2), frozenset({91}))],
    55: [Case(of(lambda request: {"topics": []}), cluster("describe"))],
    57: [Case(just(), cluster("alter"))],
    60: [Case(just(), {})],
    61: [Case(topics("TopicRequest", partitions="partition_indexes"), topic("read"))],
    65: [Case(just(transactional_ids=["t", "other"]), transactional("describe"), frozenset({105}))],
    66: [Case(just(), {})],
    68: [Case(just(group_id="g", member_id="m", rebalance_timeout_ms=10_000, subscribed_topic_names=list(NAMES),
                   topic_partitions=[]), group("read") | topic("describe"))],
    69: [Case(just(group_ids=["g", "other"]), group("describe"), frozenset({69}))],
    71: [Case(just(), {})],
    72: [Case(just(), {}, frozenset({42}))],
    74: [Case(just(), cluster("describe_configs"))],
    75: [Case(of(lambda request: {"topics": [request.TopicRequest(name=name) for name in NAMES]}),
              topic("describe"))],
    76: [Case(just(group_id="g", member_id="m", subscribed_topic_names=list(NAMES)),
              group("read") | topic("describe"))],
    77: [Case(just(group_ids=["g", "other"]), group("describe"), frozenset({69}))],
    78: [Case(share_fetch, group("read") | topic("read"))],
    79: [Case(share_acknowledge, group("read") | topic("read"))],
    90: [Case(describe_share_offsets, group("describe") | topic("describe"))],
    91: [Case(topics("AlterShareGroupOffsetsRequestTopic", "AlterShareGroupOffsetsRequestPartition", "topic_name",
                     group_id="g"), group("read") | topic("read"), frozenset({69}))],
    92: [Case(topics("DeleteShareGroupOffsetsRequestTopic", None, "topic_name", partitions=None, group_id="g"),
              group("delete") | topic("read"), frozenset({69}))],
}  # fmt: skip
"""By key. What they answer without a code (they filter, or have more than one way) is tested one by one below."""

CASES[10].append(Case(find_coordinator(1), transactional("describe")))

EVERY_VERSION = [
    pytest.param(key, number, version, id=f"{api.name}-{number}-v{version}")
    for key, api in sorted(registered().items())
    for number in range(len(CASES.get(key, ())))
    for version in range(api.min_version, api.max_version + 1)
    if not (key == 10 and number == 1 and version == 0)
]
NEEDED = [
    pytest.param(key, number, version, use, id=f"{registered()[key].name}-{number}-v{version}-{'-'.join(use)}")
    for key, number, version in (each.values for each in EVERY_VERSION)
    for use in CASES[key][number].needs
]


OTHERWISE: dict[tuple[int, int], dict[Use, int]] = {
    (9, 1): group("describe", 2),
    (43, 0): cluster("alter", 2),
    **{(35, version): cluster("describe", 0) for version in range(3)},
}
"""Versions in which there is no code at the top: OffsetFetch says it of every partition, DescribeLogDirs nowhere."""


def test_every_api_has_a_line() -> None:
    assert set(NEEDS) == set(registered())
    assert set(CASES) == set(registered()) - {OWN, USERS, SECURITY, DELAYS, SCHEDULES}


def test_what_needs_nothing_is_little() -> None:
    """The line of an API that asks by itself, or needs nothing, is empty: that is not to happen by accident."""
    empty = {key for key, guards in NEEDS.items() if guards in (NOTHING, IN_ITS_HANDLER)}
    own = {OWN, USERS, SECURITY, DELAYS, SCHEDULES}
    assert empty == {17, 18, 36, 38, 39, 40, 41, 71, 72} | {0, 1, 3, 19, 20, 75, 78} | own


@pytest.mark.parametrize(("key", "number", "version"), EVERY_VERSION)
def test_without_an_opinion_everything_is_allowed_and_everything_asked(key: int, number: int, version: int) -> None:
    world = World()
    case = CASES[key][number]
    answer = world.ask(key, version, case.fields(REQUESTS[key], version, world))
    assert set(codes(answer)).isdisjoint(CODE_OF.values())
    assert world.guard.asked >= set(case.needs)
    assert set(codes(answer)) <= {0} | case.also


@pytest.mark.parametrize(("key", "number", "version", "use"), NEEDED)
def test_what_is_refused_has_its_code(key: int, number: int, version: int, use: Use) -> None:
    world = World()
    case = CASES[key][number]
    fields = case.fields(REQUESTS[key], version, world)
    world.guard.said[use] = False
    answer = world.ask(key, version, fields)
    expected = OTHERWISE.get((key, version), {}).get(use, case.needs[use])
    assert codes(answer).count(CODE_OF[use[1]]) == expected, answer


# What is left out, and what has more than one way.


def asked(key: int, version: int, said: dict[Use, bool], **fields: Any) -> Any:
    world = World()
    world.guard.said.update(said)
    return world.ask(key, version, fields)


ALL_TOPICS = [(3, {"topics": None}), (75, {"topics": []})]


@pytest.mark.parametrize(("key", "fields"), ALL_TOPICS, ids=["Metadata", "DescribeTopicPartitions"])
def test_a_refused_topic_is_left_out_of_all_topics(key: int, fields: dict[str, Any]) -> None:
    answer = asked(key, 12 if key == 3 else 0, {("describe", "topic", "secret"): False}, **fields)
    assert [(each.name, each.error_code) for each in answer.topics] == [("orders", 0)]


def test_metadata_does_not_say_whether_a_refused_topic_exists() -> None:
    world = World()
    for name in ("secret", "missing"):
        world.guard.said["describe", "topic", name] = False
    topic = REQUESTS[3].MetadataRequestTopic
    answer = world.ask(3, 12, {"topics": [topic(name="secret"), topic(name="missing")]})
    assert [(each.error_code, each.topic_id, each.partitions) for each in answer.topics] == [(29, None, [])] * 2
    assert world.rig.broker.topic("missing") is None
    by_id = world.ask(3, 12, {"topics": [topic(name=None, topic_id=world.ids["secret"])]})
    assert [(each.error_code, each.name, each.topic_id) for each in by_id.topics] == [(29, None, world.ids["secret"])]


@pytest.mark.parametrize(
    ("said", "error_code"),
    [
        ({}, 0),
        ({("create", "topic", "new"): False}, 29),
        ({("create", "cluster", CLUSTER): True, ("create", "topic", "new"): False}, 0),
        ({("create", "cluster", CLUSTER): False, ("create", "topic", "new"): True}, 0),
    ],
)
def test_a_topic_is_made_by_who_may_create_it_or_any(said: dict[Use, bool], error_code: int) -> None:
    topic = REQUESTS[19].CreatableTopic(name="new", num_partitions=1, replication_factor=1)
    assert [each.error_code for each in asked(19, 7, said, topics=[topic]).topics] == [error_code]
    missing = REQUESTS[3].MetadataRequestTopic(name="new")
    assert [each.error_code for each in asked(3, 9, said, topics=[missing]).topics] == [error_code]


def test_a_new_topic_hides_its_configurations_from_who_may_not_describe_them() -> None:
    topic = REQUESTS[19].CreatableTopic(name="new", num_partitions=1, replication_factor=1)
    (made,) = asked(19, 7, {("describe_configs", "topic", "new"): False}, topics=[topic]).topics
    assert (made.error_code, made.topic_config_error_code, made.num_partitions, made.configs) == (0, 29, -1, [])


def test_who_may_delete_any_topic_deletes_each() -> None:
    said = {("delete", "cluster", CLUSTER): True, ("delete", "topic", "secret"): False}
    assert [each.error_code for each in asked(20, 3, said, topic_names=["secret"]).responses] == [0]


@pytest.mark.parametrize("describes", [True, False])
def test_the_name_of_an_id_is_told_to_who_may_describe_it(describes: bool) -> None:
    world = World()
    world.guard.said = {("delete", "topic", "secret"): False, ("describe", "topic", "secret"): describes}
    state = REQUESTS[20].DeleteTopicState(name=None, topic_id=world.ids["secret"])
    (answer,) = world.ask(20, 6, {"topics": [state]}).responses
    assert (answer.error_code, answer.name) == (29, "secret" if describes else None)


@pytest.mark.parametrize(
    ("said", "error_code"),
    [
        ({}, 0),
        ({("idempotent_write", "cluster", CLUSTER): False}, 0),
        ({("write", "topic", "orders"): False, ("write", "topic", "secret"): False}, 31),
        ({("write", "topic", "secret"): False}, 0),
        (
            {
                ("idempotent_write", "cluster", CLUSTER): True,
                ("write", "topic", "orders"): False,
                ("write", "topic", "secret"): False,
            },
            0,
        ),
    ],
)
def test_who_may_write_anywhere_may_be_idempotent(said: dict[Use, bool], error_code: int) -> None:
    assert asked(22, 4, said, transactional_id=None).error_code == error_code


def test_groups_are_listed_for_who_may_describe_them_or_the_cluster() -> None:
    world = World()
    for name in ("g", "h"):
        commit = REQUESTS[8]
        part = commit.OffsetCommitRequestTopic.OffsetCommitRequestPartition(partition_index=0, committed_offset=0)
        topic = commit.OffsetCommitRequestTopic(name="orders", partitions=[part])
        world.ask(8, 8, {"group_id": name, "topics": [topic]})
    world.guard.said["describe", "group", "h"] = False
    assert [each.group_id for each in world.ask(16, 4, {}).groups] == ["g"]
    world.guard.said["describe", "cluster", CLUSTER] = True
    assert sorted(each.group_id for each in world.ask(16, 4, {}).groups) == ["g", "h"]


def test_all_offsets_of_a_group_leave_out_refused_topics() -> None:
    world = World()
    world.ask(8, 8, topics("OffsetCommitRequestTopic", "OffsetCommitRequestPartition", group_id="g")(
        REQUESTS[8], 8, world
    ))  # fmt: skip
    world.guard.said["describe", "topic", "secret"] = False
    assert [each.name for each in world.ask(9, 7, {"group_id": "g", "topics": None}).topics] == ["orders"]
    groups = [REQUESTS[9].OffsetFetchRequestGroup(group_id="g", topics=None)]
    (found,) = world.ask(9, 9, {"groups": groups}).groups
    assert [each.name for each in found.topics] == ["orders"]


def test_one_refused_topic_keeps_all_out_of_a_transaction() -> None:
    world = World()
    identity = world.ask(22, 4, {"transactional_id": "t", "transaction_timeout_ms": 60_000})
    named = {"v3_and_below_producer_id": identity.producer_id, "v3_and_below_producer_epoch": 0}
    fields = add_partitions(REQUESTS[24], 3, world) | named

    def added() -> dict[str, int]:
        found = world.ask(24, 3, fields).results_by_topic_v3_and_below
        return {each.name: each.results_by_partition[0].partition_error_code for each in found}

    world.guard.said["write", "topic", "secret"] = False
    assert added() == {"orders": NOT_ATTEMPTED, "secret": 29}
    assert [each.transaction_state for each in world.ask(66, 0, {}).transaction_states] == ["Empty"]
    world.guard.said = {("write", "transactional_id", "t"): False}
    assert added() == {"orders": 53, "secret": 53}
    world.guard.said = {}
    assert added() == {"orders": 0, "secret": 0}
    (state,) = world.ask(65, 0, {"transactional_ids": ["t"]}).transaction_states
    assert sorted(each.topic for each in state.topics) == ["orders", "secret"]
    world.guard.said = {("describe", "topic", "secret"): False}
    (state,) = world.ask(65, 0, {"transactional_ids": ["t"]}).transaction_states
    assert [each.topic for each in state.topics] == ["orders"]
    world.guard.said = {("describe", "transactional_id", "t"): False}
    assert world.ask(66, 0, {}).transaction_states == []


def test_only_brokers_add_the_partitions_of_several_transactions() -> None:
    world = World()
    world.guard.said["cluster_action", "cluster", CLUSTER] = False
    assert world.ask(24, 4, add_partitions(REQUESTS[24], 4, world)).error_code == 31


def test_a_transactional_id_is_needed_to_produce_with_it() -> None:
    world = World()
    world.guard.said["write", "transactional_id", "t"] = False
    fields = produce(REQUESTS[0], 9, world) | {"transactional_id": "t"}
    assert codes(world.ask(0, 9, fields)) == [53, 53]


@pytest.mark.parametrize(("topic", "index"), [("orders", 0), ("orders", 7), ("secret", 0), ("unknown", 0)])
@pytest.mark.parametrize("broken", [False, True])
def test_a_transaction_without_an_id_is_refused_as_such(topic: str, index: int, broken: bool) -> None:
    """Whatever else is wrong: Kafka looks at that first."""
    world = World()
    world.guard.said["write", "topic", "secret"] = False
    records = bytearray(transactional_batch(b"v", producer_id=7, epoch=0, sequence=0))
    if broken:
        records[-1] ^= 1  # its checksum is wrong
    request = REQUESTS[0]
    part = request.TopicProduceData.PartitionProduceData(index=index, records=bytes(records))
    fields = {"acks": -1, "topic_data": [request.TopicProduceData(name=topic, partition_data=[part])]}
    assert codes(world.ask(0, 9, fields)) == [53]


@pytest.mark.parametrize(("join", "describe"), [(68, 69), (76, 77)], ids=["consumer", "share"])
def test_a_group_that_reads_a_refused_topic_is_not_described(join: int, describe: int) -> None:
    world = World()
    world.rig.broker.groups.allocators = {"averagely": averagely}
    version = 0 if join == 68 else 1
    fields = {"group_id": "g", "member_id": "m", "subscribed_topic_names": ["secret"]}
    more = {"rebalance_timeout_ms": 10_000, "topic_partitions": []} if join == 68 else {}
    assert world.ask(join, version, fields | more).error_code == 0
    (found,) = world.ask(describe, version, {"group_ids": ["g"]}).groups
    assert len(found.members) == 1
    world.guard.said["describe", "topic", "secret"] = False
    (found,) = world.ask(describe, version, {"group_ids": ["g"]}).groups
    assert (found.error_code, found.group_id, found.members) == (29, "g", [])


def test_the_bits_say_what_is_not_refused() -> None:
    """KIP-430."""
    world = World()
    world.guard.default = False
    for kind, name in (("topic", "orders"), ("group", "g"), ("cluster", CLUSTER)):
        for operation in ("read", "describe"):
            world.guard.said[operation, kind, name] = True
    topic = REQUESTS[3].MetadataRequestTopic(name="orders")
    answer = world.ask(3, 9, {
        "topics": [topic], "include_topic_authorized_operations": True, "include_cluster_authorized_operations": True,
    })  # fmt: skip
    assert answer.topics[0].authorized_operations == {3, 8}
    assert answer.authorized_operations == {8}
    (found,) = world.ask(75, 0, {"topics": [REQUESTS[75].TopicRequest(name="orders")]}).topics
    assert found.topic_authorized_operations == 1 << 3 | 1 << 8
    assert world.ask(60, 0, {"include_cluster_authorized_operations": True}).authorized_operations == {8}
    world.guard.said["describe", "cluster", CLUSTER] = False
    assert not world.ask(60, 0, {"include_cluster_authorized_operations": True}).authorized_operations


@pytest.mark.parametrize(("key", "described"), [(15, 3), (69, 0), (77, 1)])
def test_the_bits_of_a_group(key: int, described: int) -> None:
    world = World()
    if key == 15:
        commit = REQUESTS[8]
        part = commit.OffsetCommitRequestTopic.OffsetCommitRequestPartition(partition_index=0, committed_offset=0)
        topic = commit.OffsetCommitRequestTopic(name="orders", partitions=[part])
        world.ask(8, 8, {"group_id": "g", "topics": [topic]})
    else:
        more = {"rebalance_timeout_ms": 10_000, "topic_partitions": []} if key == 69 else {}
        fields = {"group_id": "g", "member_id": "m", "subscribed_topic_names": ["orders"]} | more
        world.ask(key - 1, described, fields)
    world.guard.said["delete", "group", "g"] = False
    names = "groups" if key == 15 else "group_ids"
    (found,) = world.ask(key, described, {names: ["g"], "include_authorized_operations": True}).groups
    bits = found.authorized_operations
    assert (bits if isinstance(bits, int) else sum(1 << each for each in bits)) == 1 << 3 | 1 << 8 | 1 << 10 | 1 << 11


def test_messages_are_shown_to_who_may_read_them() -> None:
    world = World()
    world.guard.said["read", "topic", "secret"] = False

    def shown(name: str) -> Any:
        return ask_own(world, {"type": "show", "topic": name, "partition": 0, "offset": 0})

    hidden = shown("secret")["shown"]["message"]
    assert (hidden["value"], hidden["hidden"]) == (None, True)
    assert shown("orders")["shown"]["message"]["value"] == "YQ=="
    world.guard.said["describe", "topic", "secret"] = False
    assert shown("secret")["fault"] == "TOPIC_AUTHORIZATION_FAILED"


def test_what_groups_have_nacked_is_shown_to_who_may_see_topics_and_groups() -> None:
    world = World()
    world.guard.said["describe", "topic", "secret"] = False
    world.guard.said["describe", "group", "hidden"] = False
    everything = NackedMessages(lambda names: lambda: [(group, "orders", 0, [(0, 1)]) for group in ("g", "hidden")])
    world.rig.broker.services.add(everything)
    asked = {"type": "nacked", "topics": ["orders", "secret"]}
    assert ask_own(world, asked)["fault"] == "TOPIC_AUTHORIZATION_FAILED"
    found = ask_own(world, {"type": "nacked", "topics": ["orders"]})
    assert found == {"nacked": [{"group": "g", "topic": "orders", "partition": 0, "runs": [[0, 1]]}]}


def ask_own(world: World, question: dict[str, Any]) -> Any:
    context = Context(
        world.rig.broker.kernel, world.rig.broker.services, world.client.connection, 0, 1, "rig",
        world.rig.server.shared.access.rights("User:ANONYMOUS", "10.0.0.9"),
    )  # fmt: skip
    answer = registered()[OWN].handler(context, memoryview(json.dumps(question).encode()))
    for _ in range(3):
        world.rig.turn()
        world.rig.loop.run_threads()
    body = answer.value if isinstance(answer, Deferred) else answer
    return json.loads(body if isinstance(body, bytes) else b"".join(body))


def test_an_api_of_a_plugin_guards_itself() -> None:
    rig = Rig()
    key = 30_000
    route = next(iter(rig.server.routes.values()))
    route.key = key
    routes = {key << 16: route}
    assert guarded(routes, [key]) == routes
    with pytest.raises(KeyError):
        guarded(routes)


def test_audit_knows_which_apis_change_something() -> None:
    """An API that needs such a right and is not in `CHANGES` would change something that nobody is told of."""
    changing = {
        key
        for key, cases in CASES.items()
        for case in cases
        for operation, _, _ in case.needs
        if operation in ("create", "delete", "alter", "alter_configs")
    }
    assert changing - CHANGES == set()
    # 3 makes topics by the way; 91 needs Read.
    assert CHANGES - changing - {USERS, SECURITY, DELAYS, SCHEDULES} == {3, 91}
