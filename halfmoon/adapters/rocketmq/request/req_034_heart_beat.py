"""HEART_BEAT (34): a client says which groups it produces and consumes for, and what those want (B24).

The answer's version is what clients take for the broker's. It does not offer heartbeats without subscriptions
(IS_SUPPORT_HEART_BEAT_V2).
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from halfmoon.adapters.rocketmq.answers import DONE, Answer, refusal
from halfmoon.adapters.rocketmq.connection import LONGEST_CLIENT_ID
from halfmoon.adapters.rocketmq.errors import Refused
from halfmoon.adapters.rocketmq.groups import speaks_kafka
from halfmoon.adapters.rocketmq.members import BROADCASTING, CONSUMER, PRODUCER, Member, Subscription
from halfmoon.adapters.rocketmq.registry import Call, checked_group, request
from halfmoon.core.topic_names import is_legal
from halfmoon.errors import BrokerError, Fault
from halfmoon.remoting.codes import Code
from halfmoon.schema.group_topics import retry_topic
from halfmoon.services.groups.service import GroupService

MOST_GROUPS = 1_000
"""That one client is a member of."""
MOST_SUBSCRIPTIONS = 10_000
"""Of all its groups."""

# Java's enums, in the order of their numbers.
ConsumeType = Literal["CONSUME_ACTIVELY", "CONSUME_PASSIVELY", "CONSUME_POP"]
MessageModel = Literal["BROADCASTING", "CLUSTERING"]
ConsumeFromWhere = Literal[
    "CONSUME_FROM_LAST_OFFSET", "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST", "CONSUME_FROM_MIN_OFFSET",
    "CONSUME_FROM_MAX_OFFSET", "CONSUME_FROM_FIRST_OFFSET", "CONSUME_FROM_TIMESTAMP",
]  # fmt: skip


class ProducerData(Struct):
    groupName: str = ""  # noqa: N815 (the wire's names, here and below)


class SubscriptionData(Struct):
    topic: str = ""
    subString: str | None = "*"  # noqa: N815
    tagsSet: list[str] = []  # noqa: N815
    codeSet: list[int] = []  # noqa: N815
    subVersion: int = 0  # noqa: N815
    expressionType: str | None = "TAG"  # noqa: N815
    classFilterMode: bool = False  # noqa: N815


class ConsumerData(Struct):
    groupName: str = ""  # noqa: N815
    consumeType: ConsumeType = "CONSUME_PASSIVELY"  # noqa: N815
    messageModel: MessageModel = "CLUSTERING"  # noqa: N815
    consumeFromWhere: ConsumeFromWhere = "CONSUME_FROM_LAST_OFFSET"  # noqa: N815
    subscriptionDataSet: list[SubscriptionData] = []  # noqa: N815


class Heartbeat(Struct):
    clientID: str = ""  # noqa: N815
    producerDataSet: list[ProducerData] = []  # noqa: N815
    consumerDataSet: list[ConsumerData] = []  # noqa: N815


@request(34, "HEART_BEAT")
def handle(call: Call) -> Answer | None:
    heartbeat = call.body(Heartbeat)
    consumers, producers = heartbeat.consumerDataSet, heartbeat.producerDataSet
    named = {(CONSUMER, data.groupName) for data in consumers} | {(PRODUCER, data.groupName) for data in producers}
    if len(named | call.node.members.memberships(call.connection)) > MOST_GROUPS:
        raise Refused(Code.INVALID_PARAMETER, f"a client is a member of {MOST_GROUPS} groups at most")
    if sum(len(data.subscriptionDataSet) for data in consumers) > MOST_SUBSCRIPTIONS:
        raise Refused(Code.INVALID_PARAMETER, f"a client subscribes to {MOST_SUBSCRIPTIONS} topics at most")
    for producer in producers:
        checked_group(producer.groupName)
    if len(heartbeat.clientID) > LONGEST_CLIENT_ID:
        raise Refused(Code.INVALID_PARAMETER, f"a client's id has at most {LONGEST_CLIENT_ID} characters")
    call.connection.client_id = heartbeat.clientID
    for data in consumers:
        _check(call, data)
    shards = call.node.shards
    elsewhere = (
        () if shards is None else [each for each in consumers if not shards.coordinators.is_here(each.groupName)]
    )
    if shards is None or not elsewhere:
        return _seen(call, heartbeat)
    told = _Told(call, heartbeat, len(elsewhere))
    for data in elsewhere:
        shards.coordinators.consumer_seen(
            data.groupName, heartbeat.clientID, call.connection.peer_host, told.of_one
        )  # fmt: skip
    return None


class _Told:
    """What the shards say that coordinate the groups of a heartbeat. One that cannot be reached keeps no consumer from
    what it consumes: the members of a group agree among themselves, at each broker."""

    def __init__(self, call: Call, heartbeat: Heartbeat, groups: int) -> None:
        self._call = call
        self._heartbeat = heartbeat
        self._left = groups
        self._refused: BrokerError | None = None
        call.hold_on()

    def of_one(self, error: BrokerError | None) -> None:
        if error is not None and error.fault is Fault.INCONSISTENT_GROUP_PROTOCOL:
            self._refused = error
        self._left -= 1
        if not self._left:
            self._call.answer(self._answer)

    def _answer(self) -> Answer:
        if self._refused is not None:
            return refusal(self._refused)
        return DONE if self._call.connection.is_closed else _seen(self._call, self._heartbeat)


def _seen(call: Call, heartbeat: Heartbeat) -> Answer:
    for data in heartbeat.consumerDataSet:
        _consumer(call, heartbeat.clientID, data)
    for producer in heartbeat.producerDataSet:
        call.node.members.producer_seen(producer.groupName, _member(call, heartbeat.clientID))
        call.node.checks.follow(producer.groupName)
    return DONE


def _member(call: Call, client_id: str) -> Member:
    command = call.command
    return Member(client_id, call.connection, command.language, command.version, call.core.clock.mono_ms())


def _check(call: Call, data: ConsumerData) -> None:
    """Raises Refused."""
    if not checked_group(data.groupName):
        raise Refused(Code.INVALID_PARAMETER, "a group without a name")
    if not is_legal(retry_topic(data.groupName)):
        raise Refused(Code.INVALID_PARAMETER, f"the name of group '{data.groupName}' is too long for its topics")
    if call.services.get(GroupService).coordinator.is_active(data.groupName):
        raise BrokerError(Fault.INCONSISTENT_GROUP_PROTOCOL, speaks_kafka(data.groupName))


def _consumer(call: Call, client_id: str, data: ConsumerData) -> None:
    node = call.node
    subscriptions = [
        Subscription(
            each.topic, each.subString or "*", each.expressionType or "TAG", each.subVersion, tuple(each.tagsSet),
            tuple(each.codeSet), client_id,
        )
        for each in data.subscriptionDataSet
    ]  # fmt: skip
    changed = node.members.consumer_seen(
        data.groupName, _member(call, client_id), data.consumeType, data.messageModel, data.consumeFromWhere,
        subscriptions,
    )  # fmt: skip
    node.locks.is_there(data.groupName, client_id)
    if changed:
        if data.messageModel != BROADCASTING:
            node.ensure_group_topic(retry_topic(data.groupName))
        node.tell_consumers(data.groupName)
