"""Who leads a partition that this node was asked for in vain, told with the refusal (KIP-951).

Produce (10+) and Fetch (16+) have room for it in tagged fields: beside the partition's error the leader's id and epoch,
and once for the answer the addresses of the nodes that were named. So a client need not ask for metadata first.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import pack
from typing import NamedTuple

from halfmoon.adapters.kafka.registry import Context
from halfmoon.core.catalog.owners import OtherNode
from halfmoon.core.catalog.topics import Topic
from halfmoon.kafka_wire import primitives as wire


class CurrentLeader(NamedTuple):
    node: OtherNode
    """As this client reaches it."""
    epoch: int


def current_leader(ctx: Context, topic: Topic | None, index: int) -> CurrentLeader | None:
    """None where this node leads the partition, or nobody does."""
    owners = ctx.core.owners
    leaders = None if topic is None else owners.leaders_of(topic)
    if leaders is None or not 0 <= index < len(leaders):
        return None
    leader = leaders[index]
    for node in owners.others():
        if node.node_id == leader.node_id:
            return CurrentLeader(node._replace(kafka=ctx.peer.address_of(node)), leader.epoch)
    return None


def leader_tags(leader: CurrentLeader, tag: int) -> bytes:
    """A partition's tagged fields: id, epoch, no tagged fields within."""
    return pack(">BBBiiB", 1, tag, 9, leader.node.node_id, leader.epoch, 0)


def endpoint_tags(leaders: Iterable[CurrentLeader]) -> bytes:
    """The answer's tagged fields: tag 0, an array of id, host, port, rack."""
    nodes = {leader.node.node_id: leader.node for leader in leaders}
    if not nodes:  # as nearly always
        return b"\x00"
    found = [wire.encode_array_size(len(nodes), True)]
    for node in nodes.values():
        host, port = node.kafka
        found.append(pack(">i", node.node_id) + wire.encode_string(host, True) + pack(">i", port))
        found.append(wire.encode_string(node.rack, True) + b"\x00")
    data = b"".join(found)
    return b"\x01\x00" + wire.encode_uvarint(len(data)) + data
