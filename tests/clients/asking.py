"""Requests that no client library offers, sent over a connection of their own."""

from __future__ import annotations

import socket
import struct
from typing import Any

from halfmoon.adapters.kafka.protocol import REQUESTS, RESPONSES


def ask(servers: str, key: int, version: int, /, **fields: Any) -> Any:
    """The answer to one request, in kafka-python's classes."""
    host, _, port = servers.rpartition(":")
    request = REQUESTS[key](version=version, **fields)
    request.API_VERSION = version
    request.with_header(correlation_id=1, client_id="asking")
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(bytes(request.encode(header=True, framed=True)))
        stream = connection.makefile("rb")
        (size,) = struct.unpack(">i", stream.read(4))
        return RESPONSES[key].decode(stream.read(size), version=version, header=True)


def made(key: int, path: str, /, **fields: Any) -> Any:
    """A part of a request, by its name below the request: `EntryData.OpData`."""
    found = REQUESTS[key]
    for name in path.split("."):
        found = getattr(found, name)
    return found(**fields)
