"""What plugins refuse (hook `halfmoon_authorize`) is refused with NO_PERMISSION."""

from __future__ import annotations

import json
from typing import Any

import pytest
from rocketmq_rig import Rig, sending, text_of

from halfmoon.adapters.rocketmq import names
from halfmoon.adapters.rocketmq.access import NEEDS
from halfmoon.adapters.rocketmq.request import registered
from halfmoon.adapters.tcp.access import OpinionAccess, RuleAccess
from halfmoon.remoting.codes import Code
from halfmoon.remoting.message import physical_offset
from halfmoon.schema.control import AclRule, AclsChanged
from halfmoon.services.acls.state import AclsState
from halfmoon.services.authorization.decisions import OPERATIONS, RESOURCE_TYPES
from halfmoon.services.authorization.service import Authorization


class Guard:
    def __init__(self, *refused: tuple[str, str, str]) -> None:
        self.refused = set(refused)
        self.asked: list[tuple[str, str, str]] = []

    def __call__(self, principal: str | None, host: str, operation: str, kind: str, resource: str) -> bool | None:
        assert (principal, host) == ("User:ANONYMOUS", "127.0.0.1")
        self.asked.append((operation, kind, resource))
        return False if (operation, kind, resource) in self.refused else None


def rig_with(guard: Guard) -> Rig:
    rig = Rig()
    rig.topic("orders")
    rig.topic("secret")
    rig.server.node.access = OpinionAccess(guard)
    return rig


def test_sending() -> None:
    guard = Guard(("write", "topic", "secret"))
    rig = rig_with(guard)
    client = rig.client()
    assert client.produce("orders", b"a").code == Code.SUCCESS
    assert client.ask(310, b"a", **sending("secret", 0, "")).code == Code.NO_PERMISSION
    assert guard.asked == [("write", "topic", "orders"), ("write", "topic", "secret")]


@pytest.mark.parametrize("refused", [("read", "topic", "orders"), ("read", "group", "g")])
def test_pulling(refused: tuple[str, str, str]) -> None:
    guard = Guard()
    rig = rig_with(guard)
    client = rig.client()
    client.produce("orders", b"a")
    client.beat(g=[("orders", "*")])
    assert client.pull("orders", consumerGroup="g").code == Code.SUCCESS
    guard.refused.add(refused)
    assert client.pull("orders", consumerGroup="g").code == Code.NO_PERMISSION


@pytest.mark.parametrize("refused", [("read", "topic", "orders"), ("read", "group", "g")])
def test_a_pull_that_waits_while_its_right_goes(refused: tuple[str, str, str]) -> None:
    guard = Guard()
    rig = rig_with(guard)
    client = rig.client()
    client.beat(g=[("orders", "*")])
    waiting = {"consumerGroup": "g", "sysFlag": 2, "suspendTimeoutMillis": 15_000}
    client.send(11, **{**PULL, **waiting})
    assert client.answers() == []
    guard.refused.add(refused)
    rig.client().produce("orders", b"secret")
    (answer,) = client.answers()
    assert (answer.code, bytes(answer.body)) == (Code.NO_PERMISSION, b"")


def test_membership() -> None:
    rig = rig_with(Guard(("read", "group", "g")))
    assert rig.client().beat(g=[("orders", "*")]).code == Code.NO_PERMISSION


def test_changing_topics() -> None:
    guard = Guard(("create", "topic", "new"), ("alter", "topic", "orders"), ("delete", "topic", "orders"))
    rig = rig_with(guard)
    client = rig.client()
    fields = {"readQueueNums": 1, "writeQueueNums": 1, "perm": 6, "topicFilterType": "SINGLE_TAG", "defaultTopic": "T"}
    assert client.ask(17, topic="new", **fields).code == Code.NO_PERMISSION
    assert client.ask(17, topic="orders", **fields).code == Code.NO_PERMISSION
    assert client.ask(215, topic="orders").code == Code.NO_PERMISSION
    asked = [(operation, kind) for operation, kind, _ in guard.asked]
    assert asked == [
        ("create", "cluster"),
        ("create", "topic"),
        ("describe", "topic"),
        ("alter", "topic"),
        ("delete", "cluster"),
        ("delete", "topic"),
    ]
    assert client.ask(310, b"a", **sending("new", 0, "", c="TBW102")).code == Code.NO_PERMISSION


# Every request.

GROUP = ("read", "group", "g")
TOPIC = ("read", "topic", "orders")
QUEUE = {"topic": "orders", "queueId": 0}
LOCK = {"consumerGroup": "g", "clientId": "c", "mqSet": [{"topic": "orders", "brokerName": "b", "queueId": 0}]}
BEAT = {"clientID": "c", "consumerDataSet": [{"groupName": "g", "subscriptionDataSet": [
    {"topic": "orders"}, {"topic": "%RETRY%g"},
]}]}  # fmt: skip
PULL = {
    "consumerGroup": "g", "queueOffset": 0, "maxMsgNums": 1, "sysFlag": 4, "commitOffset": 0,
    "suspendTimeoutMillis": 0, "subscription": "*", "subVersion": 0,
} | QUEUE  # fmt: skip
SEND = {
    "producerGroup": "p", "topic": "orders", "defaultTopic": "T", "defaultTopicQueueNums": 1, "queueId": 0,
    "sysFlag": 0, "bornTimestamp": 0, "flag": 0, "properties": "",
}  # fmt: skip
TOPIC_CONFIG = {
    "readQueueNums": 1, "writeQueueNums": 1, "perm": 6, "topicFilterType": "SINGLE_TAG", "defaultTopic": "T",
}  # fmt: skip
POLICIES = {
    "policies": [{"entries": [{"resource": "Topic:orders", "actions": ["Pub"], "decision": "Allow"}]}],
}  # fmt: skip
STORED = {"namespace": "n", "key": "k"}

CASES: dict[int, tuple[dict[str, Any], Any, list[tuple[str, str, str]]]] = {
    10: (SEND, b"a", [("write", "topic", "orders")]),
    11: (PULL, b"", [TOPIC, GROUP]),
    12: ({"topic": "orders", "key": "k"}, b"", [TOPIC]),
    14: ({"consumerGroup": "g"} | QUEUE, b"", [("describe", "group", "g"), ("describe", "topic", "orders")]),
    15: ({"consumerGroup": "g", "commitOffset": 0} | QUEUE, b"", [TOPIC, GROUP]),
    17: ({"topic": "orders"} | TOPIC_CONFIG, b"", [("alter", "topic", "orders"), ("alter_configs", "topic", "orders")]),
    28: ({}, b"", [("describe", "cluster", "kafka-cluster")]),
    29: ({"timestamp": 0} | QUEUE, b"", [("describe", "topic", "orders")]),
    30: (QUEUE, b"", [("describe", "topic", "orders")]),
    31: (QUEUE, b"", [("describe", "topic", "orders")]),
    32: (QUEUE, b"", [("describe", "topic", "orders")]),
    33: ({"offset": "PLACE"}, b"", [TOPIC]),
    34: ({}, BEAT, [GROUP, TOPIC]),
    35: ({"clientID": "c", "consumerGroup": "g"}, b"", [GROUP]),
    36: ({"group": "g", "offset": "PLACE", "delayLevel": 1}, b"", [GROUP, TOPIC]),
    37: (
        {"producerGroup": "p", "topic": "orders", "commitOrRollback": 8, "transactionId": "t", "msgId": "t"},
        b"",
        [("write", "transactional_id", "p"), ("write", "topic", "orders")],
    ),
    38: ({"consumerGroup": "g"}, b"", [("describe", "group", "g")]),
    41: ({}, LOCK, [GROUP, TOPIC]),
    42: ({}, LOCK, [GROUP, TOPIC]),
    46: ({}, {"clientId": "c", "group": "g", "subscriptionData": {"topic": "orders"}}, [GROUP, TOPIC]),
    100: (STORED | {"value": "v"}, b"", [("alter", "cluster", "kafka-cluster")]),
    101: (STORED, b"", [("describe_configs", "cluster", "kafka-cluster")]),
    102: (STORED, b"", [("alter", "cluster", "kafka-cluster")]),
    105: ({"topic": "orders"}, b"", [("describe", "topic", "orders")]),
    106: ({}, b"", [("describe", "cluster", "kafka-cluster")]),
    202: ({"topic": "orders"}, b"", [("describe", "topic", "orders")]),
    203: ({"consumerGroup": "g"}, b"", [("describe", "group", "g")]),
    206: ({}, b"", []),
    208: (
        {"consumerGroup": "g", "topic": "orders"},
        b"",
        [("describe", "group", "g"), ("describe", "topic", "orders")],
    ),
    215: ({"topic": "orders"}, b"", [("delete", "topic", "orders")]),
    216: ({"topic": "orders"}, b"", [("delete", "topic", "orders")]),
    219: (STORED, b"", [("describe_configs", "cluster", "kafka-cluster")]),
    222: ({"topic": "orders", "group": "g", "timestamp": 0}, b"", [GROUP, TOPIC]),
    300: ({"topic": "orders"}, b"", [("describe", "topic", "orders")]),
    307: ({"consumerGroup": "g", "clientId": "c"}, b"", [("describe", "group", "g")]),
    310: (sending("orders", 0, ""), b"a", [("write", "topic", "orders")]),
    320: (sending("orders", 0, ""), b"a", [("write", "topic", "orders")]),
    351: ({"topic": "orders"}, b"", [("describe", "topic", "orders")]),
    361: (PULL, b"", [TOPIC, GROUP]),
    400: ({}, {"topic": "orders", "consumerGroup": "g", "clientId": "c"}, [GROUP, TOPIC]),
    3001: ({"username": "u"}, {"password": "p"}, [("alter", "cluster", "kafka-cluster")]),
    3002: ({"username": "u"}, {"password": "p"}, [("alter", "cluster", "kafka-cluster")]),
    3003: ({"username": "u"}, b"", [("alter", "cluster", "kafka-cluster")]),
    3004: ({"username": "u"}, b"", [("describe", "cluster", "kafka-cluster")]),
    3005: ({}, b"", [("describe", "cluster", "kafka-cluster")]),
    3006: ({"subject": "User:u"}, POLICIES, [("alter", "cluster", "kafka-cluster")]),
    3007: ({"subject": "User:u"}, POLICIES, [("alter", "cluster", "kafka-cluster")]),
    3008: ({"subject": "User:u"}, b"", [("alter", "cluster", "kafka-cluster")]),
    3009: ({"subject": "User:u"}, b"", [("describe", "cluster", "kafka-cluster")]),
    3010: ({}, b"", [("describe", "cluster", "kafka-cluster")]),
    18506: ({}, {"type": "list", "selection": {"topic": "orders"}}, [("describe", "topic", "orders")]),
}
"""Code → fields, body, what it needs."""


def ask(code: int, guard: Guard) -> Any:
    rig = Rig()
    rig.topic("orders")
    fields, body, _ = CASES[code]
    rig.client().produce("orders", b"a")
    (sent,) = rig.client().read("orders")
    place = sent.physical_offset
    given = {name: place if value == "PLACE" else value for name, value in fields.items()}
    rig.server.node.access = OpinionAccess(guard)
    return rig.client().ask(code, body if isinstance(body, bytes) else json.dumps(body).encode(), **given)


def test_every_request_has_a_line() -> None:
    assert set(NEEDS) == set(registered()) == set(CASES)
    assert {code for code, needs in NEEDS.items() if needs is None} == {33, 206, 18506}


@pytest.mark.parametrize("code", CASES)
def test_everything_is_asked_and_without_an_opinion_allowed(code: int) -> None:
    guard = Guard()
    assert ask(code, guard).code != Code.NO_PERMISSION
    assert set(guard.asked) >= set(CASES[code][2])


@pytest.mark.parametrize(
    ("code", "use"), [(code, use) for code, (_, _, uses) in CASES.items() for use in uses], ids=str
)
def test_what_is_refused_is_not_permitted(code: int, use: tuple[str, str, str]) -> None:
    assert ask(code, Guard(use)).code == Code.NO_PERMISSION


def test_refused_topics_are_not_listed() -> None:
    rig = rig_with(Guard(("describe", "topic", "secret")))
    assert json.loads(rig.client().ask(206).body.tobytes())["topicList"] == ["orders"]


def test_what_is_refused_of_a_group_is_not_told() -> None:
    guard = Guard()
    rig = rig_with(guard)
    client = rig.client()
    for topic in ("orders", "secret"):
        client.well(15, topic=topic, consumerGroup="g", queueId=0, commitOffset=0)
    assert json.loads(client.well(300, topic="orders").body.tobytes())["groupList"] == ["g"]
    assert b"secret" in bytes(client.well(208, consumerGroup="g").body)
    guard.refused |= {("describe", "topic", "secret"), ("describe", "group", "g")}
    assert json.loads(client.well(300, topic="orders").body.tobytes())["groupList"] == []
    guard.refused.remove(("describe", "group", "g"))
    stats = bytes(client.well(208, consumerGroup="g").body)
    assert b"orders" in stats
    assert b"secret" not in stats


def test_who_may_create_and_delete_any_topic() -> None:
    class Admin(Guard):
        def __call__(self, principal: str | None, host: str, operation: str, kind: str, resource: str) -> bool | None:
            return kind == "cluster"

    rig = rig_with(Admin())
    client = rig.client()
    assert client.ask(17, topic="new", **TOPIC_CONFIG).code == Code.SUCCESS
    assert client.ask(215, topic="orders").code == Code.SUCCESS
    assert client.ask(17, topic="new", **TOPIC_CONFIG).code == Code.NO_PERMISSION


# With access rules. Nobody signs requests here, so every client is ANONYMOUS.


def by_rules(rig: Rig, *rights: str, host: str = "*") -> None:
    """`read topic orders`: everybody's rights who comes from there, and no others."""
    acls = AclsState()
    rig.server.node.access = RuleAccess(Authorization(acls, lambda principal: False))
    rules = []
    for operation, kind, name in map(str.split, rights):
        rules.append(AclRule(RESOURCE_TYPES[kind], name, 3, "User:ANONYMOUS", host, OPERATIONS.get(operation, 2), 3))
    acls.apply(AclsChanged(rules, []))


@pytest.mark.parametrize("code", CASES)
def test_who_has_no_rights_may_nothing(code: int) -> None:
    rig = Rig()
    rig.topic("orders")
    rig.client().produce("orders", b"a")
    (sent,) = rig.client().read("orders")
    fields, body, _ = CASES[code]
    given = {name: sent.physical_offset if value == "PLACE" else value for name, value in fields.items()}
    by_rules(rig)
    answer = rig.client().ask(code, body if isinstance(body, bytes) else json.dumps(body).encode(), **given)
    if code == 206:
        assert json.loads(answer.body.tobytes()) == {"topicList": []}
    else:
        assert answer.code == Code.NO_PERMISSION
        assert not bytes(answer.body)


def test_nor_learns_how_topics_are_made() -> None:
    rig = Rig()
    by_rules(rig)
    assert rig.client().ask(105, topic="TBW102").code == Code.NO_PERMISSION
    by_rules(rig, "create topic new")
    assert rig.client().ask(105, topic="TBW102").code == Code.SUCCESS


def test_another_groups_retry_topic() -> None:
    """RocketMQ takes %RETRY%b from everybody who is a member of any group."""
    rig = Rig()
    rig.topic("orders")
    rig.topic("retry.b")
    by_rules(rig, "read group a", "all topic *")
    client = rig.client()
    for topic in ("%RETRY%b", "%DLQ%b"):
        assert client.pull(topic, consumerGroup="a").code == Code.NO_PERMISSION
        assert client.ask(310, b"x", **sending(topic, 0, "")).code == Code.NO_PERMISSION
        assert client.ask(105, topic=topic).code == Code.NO_PERMISSION
        assert client.beat(a=[(topic, "*")]).code == Code.NO_PERMISSION
    assert client.ask(310, b"x", **sending("%RETRY%a", 0, "")).code == Code.SUCCESS
    assert client.beat(a=[("%RETRY%a", "*")]).code == Code.SUCCESS
    assert client.pull("%RETRY%a", consumerGroup="a").code != Code.NO_PERMISSION


@pytest.mark.parametrize("topic", ["RMQ_SYS_TRANS_HALF_TOPIC", "SCHEDULE_TOPIC_XXXX", "halfmoon.timers"])
def test_internal_topics(topic: str) -> None:
    rig = Rig()
    by_rules(rig, "all topic *", "all group *")
    client = rig.client()
    assert client.pull(topic, consumerGroup="a").code == Code.NO_PERMISSION
    assert client.ask(310, b"x", **sending(topic, 0, "")).code == Code.NO_PERMISSION
    assert client.ask(105, topic=topic).code == Code.NO_PERMISSION


def half(client: Any, key: str, group: str = "p") -> Code:
    text = text_of(UNIQ_KEY=key, TRAN_MSG="true", PGROUP=group)
    return Code(client.ask(310, b"half", **sending("orders", 0, text, f=4)).code)


TOPIC_FIELDS = {
    "readQueueNums": 1,
    "writeQueueNums": 1,
    "perm": 6,
    "topicFilterType": "SINGLE_TAG",
    "defaultTopic": "T",
}
OF_A_TOPIC: dict[int, dict[str, Any]] = {
    10: SEND, 11: PULL, 12: {"key": "k"}, 17: TOPIC_FIELDS, 29: {"queueId": 0, "timestamp": 0}, 30: {"queueId": 0},
    31: {"queueId": 0}, 32: {"queueId": 0}, 105: {}, 202: {},
    208: {}, 215: {}, 216: {}, 222: {"group": "a"}, 300: {}, 351: {},
}  # fmt: skip


@pytest.mark.parametrize("code", OF_A_TOPIC)
def test_whether_a_topic_is_there_is_not_told(code: int) -> None:
    rig = Rig()
    rig.topic("secret")
    by_rules(rig, "read group a", "read topic orders")
    client = rig.client()
    told = []
    for name in ("secret", "absent"):
        answer = client.ask(code, **{**OF_A_TOPIC[code], "consumerGroup": "a", "topic": name})
        assert answer.code == Code.NO_PERMISSION
        told.append((answer.fields, (answer.remark or "").replace(name, "NAME"), bytes(answer.body)))
    assert told[0] == told[1]


@pytest.mark.parametrize(("code", "more"), [(33, {}), (36, {"group": "a", "delayLevel": 1})])
def test_whether_a_message_is_there_is_not_told(code: int, more: dict[str, Any]) -> None:
    rig = Rig()
    rig.topic("orders")
    (secret,) = rig.topic("secret")
    rig.append(secret, b"x")
    by_rules(rig, "read group a", "read topic orders")
    client = rig.client()
    for offset in (0, 1, 1_000):
        asked = client.ask(code, offset=secret.queue_number << 40 | offset, **more)
        assert asked.code == Code.NO_PERMISSION, offset


def test_producers_are_asked_about_what_they_may_send_themselves() -> None:
    """In RocketMQ everybody who says that he is a producer of the group is sent the messages."""
    rig = Rig()
    rig.topic("orders")
    by_rules(rig, "write topic orders", "write transactional_id p", host="127.0.0.1")
    alice, mallory = rig.client(), rig.client(peer="10.0.0.2")
    assert mallory.beat("m", producers=["p"]).code == Code.SUCCESS
    assert alice.beat("a", producers=["p"]).code == Code.SUCCESS
    for number in range(4):
        assert half(alice, f"U{number}") == Code.SUCCESS
    rig.pass_time(6_001)
    rig.turns()
    for client in (alice, mallory):
        client.answers()
    assert [len(client.told) for client in (alice, mallory)] == [4, 0]


def test_half_messages_are_sent_and_ended_by_their_group() -> None:
    rig = Rig()
    rig.topic("orders")
    by_rules(rig, "write topic orders", "write transactional_id p")
    client = rig.client()
    assert half(client, "U", "q") == Code.NO_PERMISSION
    assert rig.broker.topic("check.q") is None
    assert half(client, "U") == Code.SUCCESS
    end = {"commitOrRollback": 8, "msgId": "U", "transactionId": "U"}
    assert client.ask(37, producerGroup="q", **end).code == Code.NO_PERMISSION
    assert client.ask(37, producerGroup="p", topic="secret", **end).code == Code.NO_PERMISSION
    assert client.ask(37, producerGroup="p", **end).code == Code.SUCCESS
    assert half(client, "V") == Code.SUCCESS
    asked = {**end, "msgId": "V", "transactionId": "V", "topic": "RMQ_SYS_TRANS_HALF_TOPIC"}  # as after a check-back
    assert client.ask(37, producerGroup="p", **asked).code == Code.SUCCESS


def test_a_half_message_is_nobodys_before_its_end() -> None:
    """By a key, by its place, or by handing it back."""
    rig = Rig()
    rig.topic("orders")
    text = text_of(TRAN_MSG="true", PGROUP="producers", UNIQ_KEY="u", KEYS="k")
    assert rig.client().ask(310, b"the body", **sending("orders", 0, text)).code == Code.SUCCESS
    rig.turns()
    (half,) = rig.broker.catalog.by_name[names.HALF_TOPIC].partitions
    assert half.next_offset == 1
    place = physical_offset(half.queue_number, 0)
    by_rules(rig, "read topic orders", "read topic *", "read group *", "describe topic *")
    client = rig.client()
    asked = [
        (12, {"topic": "orders", "key": "k", "maxNum": 9}),
        (12, {"topic": "orders", "key": "u", "maxNum": 9}),
        (33, {"offset": place}),
        (36, {"offset": place, "group": "g", "delayLevel": 0}),
        (11, {"topic": names.HALF_TOPIC, "consumerGroup": "g", "queueId": 0, "queueOffset": 0, "maxMsgNums": 1,
              "sysFlag": 0, "commitOffset": 0, "suspendTimeoutMillis": 0}),
    ]  # fmt: skip
    for code, fields in asked:
        answer = client.ask(code, **fields)
        assert answer.code in (Code.NO_PERMISSION, Code.QUERY_NOT_FOUND), code
        assert b"the body" not in bytes(answer.body)
    assert "retry.g" not in rig.broker.catalog.by_name
