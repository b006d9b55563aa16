"""Requests that no client library offers, sent over a connection of their own."""

from __future__ import annotations

import socket
import struct
from typing import Any

from halfmoon.adapters.kafka.protocol import REQUESTS
from tests.kafka_messages import read_answer, request_bytes

METADATA = 3


def ask(servers: str, key: int, version: int, /, **fields: Any) -> Any:
    """The answer to one request."""
    host, _, port = servers.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(request_bytes(key, version, 1, "asking", **fields))
        stream = connection.makefile("rb")
        (size,) = struct.unpack(">i", stream.read(4))
        return read_answer(key, version, stream.read(size))


def made(key: int, path: str, /, **fields: Any) -> Any:
    """A part of a request, by its name below the request: `EntryData.OpData`."""
    found = REQUESTS[key]
    for name in path.split("."):
        found = getattr(found, name)
    return found(**fields)


def leader_of(servers: str, topic: str, partition: int) -> str:
    """The address of the node that leads a partition."""
    wanted = made(METADATA, "MetadataRequestTopic", name=topic)
    answer = ask(servers, METADATA, 12, topics=[wanted], allow_auto_topic_creation=False)
    nodes = {node.node_id: f"{node.host}:{node.port}" for node in answer.brokers}
    (leader,) = (each.leader_id for each in answer.topics[0].partitions if each.partition_index == partition)
    return nodes[leader]
