"""The Kafka server without a network (see tests/adapters/rig.py).

Bytes go into connections as a loop would hand them over, in pieces of any size; what a client would receive is parsed
by the definitions of `halfmoon/kafka_wire`.
"""

from __future__ import annotations

import struct
from typing import Any

from halfmoon.adapters.kafka.server import Server
from halfmoon.adapters.tcp.round_time import RoundTime
from tests.adapters.rig import BrokerRig, FakeTransport, batch
from tests.kafka_messages import read_answer, request_bytes

__all__ = ["Rig", "RigClient", "batch"]


class RigClient:
    """One connection, seen from its client."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.transport = FakeTransport()
        self.connection = rig.server.connection()
        self.transport.protocol = self.connection
        self.connection.connection_made(self.transport)  # type: ignore[arg-type]
        self._asked: dict[int, tuple[int, int]] = {}
        self._correlation_id = 0

    def encode(self, key: int, version: int, /, **fields: Any) -> bytes:
        """A framed request."""
        self._correlation_id += 1
        self._asked[self._correlation_id] = (key, version)
        return request_bytes(key, version, self._correlation_id, "rig", **fields)

    def feed(self, data: bytes) -> None:
        """Let the server receive, as far as it reads."""
        while data and not self.transport.closed:
            assert self.transport.reading, "the server does not read"
            buffer = self.connection.get_buffer(-1)
            size = min(len(buffer), len(data))
            buffer[:size] = data[:size]
            self.connection.buffer_updated(size)
            data = data[size:]

    def ask(self, key: int, version: int, /, **fields: Any) -> Any:
        """The one answer to a request, after a turn of the loop."""
        self.feed(self.encode(key, version, **fields))
        self.rig.turn()
        (answer,) = self.answers()
        return answer

    def frames(self) -> list[bytes]:
        """Whole responses that have arrived, without their sizes."""
        data, found = self.transport.received, []
        while len(data) >= 4:
            (size,) = struct.unpack_from(">i", data)
            assert len(data) >= 4 + size, "a response was cut short"
            found.append(data[4 : 4 + size])
            data = data[4 + size :]
        assert not data
        self.transport.received = b""
        return found

    def answers(self) -> list[Any]:
        """The responses that have arrived, decoded."""
        found = []
        for frame in self.frames():
            key, version = self._asked.pop(int.from_bytes(frame[:4], "big"))
            found.append(read_answer(key, version, frame))
        return found

    def correlation_ids(self) -> list[int]:
        return [int.from_bytes(frame[:4], "big") for frame in self.frames()]


class Rig(BrokerRig):
    """Broker and server in one loop."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.server = Server(self.broker.kernel, self.broker.services, self.settings, self.loop)  # type: ignore[arg-type]
        self.server.round_time = RoundTime(self.loop.call_soon, lambda: 0.0)  # what a turn takes is not this machine's

    def client(self) -> RigClient:
        return RigClient(self)
