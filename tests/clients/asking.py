"""Requests that no client library offers, sent over a connection of their own."""

from __future__ import annotations

import socket
import struct
from typing import Any

from halfmoon.adapters.kafka.protocol import REQUESTS
from tests.kafka_messages import read_answer, request_bytes


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
