"""What the name service says: where a topic's queues are, which brokers and topics there are (B36)."""

from __future__ import annotations

from collections.abc import Sequence

from halfmoon.adapters.rocketmq import names
from halfmoon.adapters.rocketmq.members import Client
from halfmoon.adapters.rocketmq.node import Node
from halfmoon.adapters.rocketmq.sending import MOST_AUTO_QUEUES
from halfmoon.adapters.rocketmq.shards import Broker
from halfmoon.core.catalog.owners import OtherNode
from halfmoon.core.catalog.topics import Topic

READ, WRITE, INHERIT = 4, 2, 1
"""org.apache.rocketmq.common.constant.PermName."""


def permissions(topic: Topic) -> int:
    """A view is filled by the broker, and no RocketMQ client sends to a topic with a dot in its name."""
    return READ if topic.view is not None or not names.is_sendable(topic.name) else READ | WRITE


def broker_data(node: Node, connection: Client) -> dict[str, object]:
    host, port = node.address_for(connection)
    return {
        "brokerAddrs": {"0": _address(host, port)},
        "brokerName": node.settings.broker_name,
        "cluster": node.settings.cluster,
        "enableActingMaster": False,
    }


def all_brokers(node: Node, connection: Client) -> dict[str, dict[str, object]]:
    """By name."""
    if node.shards is None:
        return {node.settings.broker_name: broker_data(node, connection)}
    return {each.name: _data_of(node, connection, each) for each in node.shards.brokers.all()}


def queue_counts(node: Node, topic: Topic) -> list[tuple[str, int]]:
    """Which brokers have how many of a topic's queues."""
    if node.shards is None:
        return [(node.settings.broker_name, len(topic.partitions))]
    return [(broker.name, count) for broker, count in node.shards.brokers.of_topic(topic)]


def _data_of(node: Node, connection: Client, broker: Broker) -> dict[str, object]:
    return {
        "brokerAddrs": {"0": _address(broker.host or node.address_for(connection)[0], broker.port)},
        "brokerName": broker.name,
        "cluster": node.settings.cluster,
        "enableActingMaster": False,
    }


def _over_brokers(
    node: Node, connection: Client, perm: int, brokers: Sequence[tuple[Broker, int]]
) -> dict[str, object]:
    return {
        "brokerDatas": [_data_of(node, connection, broker) for broker, _ in brokers],
        "filterServerTable": {},
        "queueDatas": [_queue_data(broker.name, perm, count) for broker, count in brokers],
    }


def topic_route(node: Node, connection: Client, topic: Topic) -> dict[str, object]:
    """Without brokers where none can be reached now."""
    if node.shards is not None:
        return _over_brokers(node, connection, permissions(topic), node.shards.brokers.of_topic(topic))
    route = _route(node, connection, permissions(topic), len(topic.partitions))
    leaders = node.core.owners.leaders_of(topic)
    owners = {leader.node_id for leader in leaders or ()}
    owner = owners.pop() if len(owners) == 1 else None
    # Of a topic whose queues have several owners, a queue is named by its index here: pulls and sends that come here
    # for another node's queue are refused.
    for other in node.core.owners.others():
        if other.node_id == owner:
            return _elsewhere(node, other, route)
    return route


def _elsewhere(node: Node, other: OtherNode, route: dict[str, object]) -> dict[str, object]:
    """The same queues, at another node."""
    host, port = other.rocketmq
    data = {"brokerAddrs": {"0": _address(host, port)}, "brokerName": other.broker_name}
    queues = [queue | {"brokerName": other.broker_name} for queue in route["queueDatas"]]  # type: ignore[attr-defined]
    rest = {"cluster": node.settings.cluster, "enableActingMaster": False}
    return route | {"brokerDatas": [data | rest], "queueDatas": queues}


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def auto_create_route(node: Node, connection: Client) -> dict[str, object]:
    """What producers make of it: a topic made by sending has its permissions, and at most so many queues."""
    if node.shards is not None:
        brokers = [(broker, MOST_AUTO_QUEUES) for broker in node.shards.brokers.all()]
        return _over_brokers(node, connection, READ | WRITE | INHERIT, brokers)
    return _route(node, connection, READ | WRITE | INHERIT, MOST_AUTO_QUEUES)


def _route(node: Node, connection: Client, perm: int, queues: int) -> dict[str, object]:
    return {
        "brokerDatas": [broker_data(node, connection)],
        "filterServerTable": {},
        "queueDatas": [_queue_data(node.settings.broker_name, perm, queues)],
    }


def _queue_data(broker_name: str, perm: int, queues: int) -> dict[str, object]:
    return {
        "brokerName": broker_name,
        "perm": perm,
        "readQueueNums": queues,
        "topicSysFlag": 0,
        "writeQueueNums": queues,
    }
