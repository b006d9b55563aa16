"""What each request needs: which operation on which resource, for those who may object (hook `halfmoon_authorize`).

Each request code has its line in `NEEDS` (a test sees to it). A refusal is NO_PERMISSION and goes for the
whole request. `IN_ITS_HANDLER` are those that find only as they go what they touch (`Call.check`); lists of topics and
groups leave out what is refused.

Operations are Kafka's, so that one rule speaks for both protocols. Rules: RocketMQ's
DefaultAuthorizationContextBuilder, where PUB is to write, SUB to read, GET and LIST are to describe, and UPDATE of the
cluster is to alter it. Unlike there, a request that names nothing needs a right on the cluster, and a group's retry
topic is the group's whoever names it (services/authorization/own_topics.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from msgspec import Struct

from halfmoon.adapters.rocketmq import names
from halfmoon.adapters.rocketmq.registry import Call
from halfmoon.adapters.tcp.access import CLUSTER, Use


class _Subscription(Struct, frozen=True):
    topic: str = ""


class _Consumer(Struct):
    groupName: str = ""  # noqa: N815 (the wire's names, here and below)
    subscriptionDataSet: list[_Subscription] = []  # noqa: N815


class _Heartbeat(Struct):
    consumerDataSet: list[_Consumer] = []  # noqa: N815


class _Check(Struct):
    subscriptionData: _Subscription = _Subscription()  # noqa: N815
    group: str = ""


class _Locks(Struct):
    consumerGroup: str = ""  # noqa: N815
    mqSet: list[_Subscription] = []  # noqa: N815


class _Assignment(Struct):
    topic: str = ""
    consumerGroup: str = ""  # noqa: N815


Needs = Callable[[Call], Iterator[Use]]


def _topic(operation: str, field: str = "topic") -> Needs:
    def uses(call: Call) -> Iterator[Use]:
        yield operation, "topic", names.from_rocketmq(call.text(field))

    return uses


def _group(operation: str, field: str = "consumerGroup") -> Needs:
    def uses(call: Call) -> Iterator[Use]:
        yield operation, "group", call.text(field)

    return uses


def _cluster(operation: str) -> Needs:
    def uses(_call: Call) -> Iterator[Use]:
        yield operation, "cluster", CLUSTER

    return uses


def _all(*needs: Needs) -> Needs:
    def uses(call: Call) -> Iterator[Use]:
        for each in needs:
            yield from each(call)

    return uses


def _change(call: Call) -> Iterator[Use]:
    """Who may not describe a topic is refused as if there were none: whether there is one is not told."""
    name = names.from_rocketmq(call.text("topic"))
    is_there = call.core.catalog.topic(name) is not None
    if not is_there or not call.allows("describe", "topic", name):
        call.check_either(("create", "cluster", CLUSTER), ("create", "topic", name))
    if is_there:
        yield "alter", "topic", name
        yield "alter_configs", "topic", name


def _delete(call: Call) -> Iterator[Use]:
    """Who may delete any topic may delete this one."""
    call.check_either(("delete", "cluster", CLUSTER), ("delete", "topic", names.from_rocketmq(call.text("topic"))))
    yield from ()


def _route(call: Call) -> Iterator[Use]:
    name = call.text("topic")
    if name == names.AUTO_CREATE_TOPIC:  # what producers ask for that make topics
        call.check_either(("create", "cluster", CLUSTER), ("create", "topic", None))
    else:
        yield "describe", "topic", names.from_rocketmq(name)


def _heartbeat(call: Call) -> Iterator[Use]:
    beat = call.body(_Heartbeat)
    for consumer in beat.consumerDataSet:
        yield from _subscribes(consumer.groupName, consumer.subscriptionDataSet)


def _subscribes(group: str, topics: list[_Subscription]) -> Iterator[Use]:
    """Every client reads its group's own retry topic, which is the group's."""
    if group:
        yield "read", "group", group
    for name in dict.fromkeys(each.topic for each in topics):
        if name and name != names.RETRY_PREFIX + group:
            yield "read", "topic", names.from_rocketmq(name)


def _check(call: Call) -> Iterator[Use]:
    asked = call.body(_Check)
    yield from _subscribes(asked.group, [asked.subscriptionData])


def _lock(call: Call) -> Iterator[Use]:
    asked = call.body(_Locks)
    yield from _subscribes(asked.consumerGroup, asked.mqSet)


def _assignment(call: Call) -> Iterator[Use]:
    asked = call.body(_Assignment)
    yield from _subscribes(asked.consumerGroup, [_Subscription(asked.topic)])


def _leave(call: Call) -> Iterator[Use]:
    if call.text("consumerGroup", ""):
        yield from _group("read")(call)


def _end(call: Call) -> Iterator[Use]:
    """A producer group is to half messages what a transactional id is to Kafka's transactions."""
    yield "write", "transactional_id", call.text("producerGroup")
    # Who was asked about a half message names the topic in which it waits, as he was told to.
    if call.text("topic", names.HALF_TOPIC) not in ("", names.HALF_TOPIC):
        yield from _topic("write")(call)


_READ = _all(_topic("read"), _group("read"))
IN_ITS_HANDLER: None = None

NEEDS: Mapping[int, Needs | None] = {
    10: _topic("write"),
    11: _READ,
    12: _topic("read"),
    14: _all(_group("describe"), _topic("describe")),
    15: _READ,
    17: _change,
    28: _cluster("describe"),
    29: _topic("describe"),
    30: _topic("describe"),
    31: _topic("describe"),
    32: _topic("describe"),
    33: IN_ITS_HANDLER,
    34: _heartbeat,
    35: _leave,
    36: _group("read", "group"),  # and the message's topic in its handler
    37: _end,
    38: _group("describe"),
    41: _lock,
    42: _lock,
    46: _check,
    100: _cluster("alter"),
    101: _cluster("describe_configs"),
    102: _cluster("alter"),
    105: _route,
    106: _cluster("describe"),
    202: _topic("describe"),
    203: _group("describe"),
    206: IN_ITS_HANDLER,
    208: _group("describe"),  # and topics in its handler
    215: _delete,
    216: _delete,
    219: _cluster("describe_configs"),
    222: _all(_group("read", "group"), _topic("read")),
    300: _topic("describe"),  # and groups in its handler
    307: _group("describe"),
    310: _topic("write", "b"),
    320: _topic("write", "b"),
    351: _topic("describe"),
    361: _READ,
    400: _assignment,
    3001: _cluster("alter"),
    3002: _cluster("alter"),
    3003: _cluster("alter"),
    3004: _cluster("describe"),
    3005: _cluster("describe"),
    3006: _cluster("alter"),
    3007: _cluster("alter"),
    3008: _cluster("alter"),
    3009: _cluster("describe"),
    3010: _cluster("describe"),
    18506: IN_ITS_HANDLER,
}


def check(call: Call) -> None:
    """Raises BrokerError where the request is refused, and Refused where it lacks a field."""
    uses = NEEDS[call.command.code]
    if uses is not None:
        for use in uses(call):
            call.check_either(use)
