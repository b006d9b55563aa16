"""The RocketMQ server without a network (see tests/adapters/rig.py): a client that speaks its protocol."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Mapping
from typing import Any

from halfmoon.adapters.rocketmq.registry import Port
from halfmoon.adapters.rocketmq.server import Server
from halfmoon.adapters.tcp.round_time import RoundTime
from halfmoon.config.listener_settings import RocketmqListener
from halfmoon.remoting import command as wire
from halfmoon.remoting import properties
from halfmoon.remoting.command import JSON, ONEWAY, Command
from halfmoon.remoting.message import StoredMessage, decode_stored
from halfmoon.services.common.filters import FilterCompiler
from tests.adapters.rig import BrokerRig, FakeTransport

BROKER_PORT = 10_911


def text_of(**values: str) -> str:
    """Properties as one text."""
    return properties.encode((name.encode(), value.encode()) for name, value in values.items()).decode()


def properties_of(message: StoredMessage) -> dict[str, str]:
    return {name.decode(): value.decode() for name, value in properties.decode(message.properties)}


class RigClient:
    """One connection, seen from its client."""

    def __init__(self, rig: Rig, port: Port, peer: str, kind: int) -> None:
        self.rig = rig
        self.kind = kind
        self.transport = FakeTransport((peer, 40_000), ("127.0.0.1", BROKER_PORT))
        self.connection = rig.server.connection(port)
        self.transport.protocol = self.connection
        self.connection.connection_made(self.transport)  # type: ignore[arg-type]
        self.told: list[Command] = []
        """Requests of the broker's."""
        self._opaque = 0

    def encode(self, code: int, body: bytes = b"", *, oneway: bool = False, **fields: Any) -> bytes:
        self._opaque += 1
        said = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in fields.items()}
        flag = ONEWAY if oneway else 0
        return wire.encode(Command(code, self._opaque, flag, 479, "JAVA", None, said, body, self.kind))

    def feed(self, data: bytes) -> None:
        while data and not self.transport.closed:
            assert self.transport.reading, "the server does not read"
            buffer = self.connection.get_buffer(-1)
            size = min(len(buffer), len(data))
            buffer[:size] = data[:size]
            self.connection.buffer_updated(size)
            data = data[size:]

    def send(self, code: int, body: bytes = b"", *, oneway: bool = False, **fields: Any) -> None:
        self.feed(self.encode(code, body, oneway=oneway, **fields))
        self.rig.turns()

    def ask(self, code: int, body: bytes = b"", **fields: Any) -> Command:
        """The one answer to a request, after turns of the loop."""
        self.send(code, body, **fields)
        (answer,) = self.answers()
        return answer

    def well(self, code: int, body: bytes = b"", **fields: Any) -> Command:
        """An answer that must be a success."""
        answer = self.ask(code, body, **fields)
        assert answer.code == 0, answer.remark
        return answer

    def answers(self) -> list[Command]:
        """The answers that have arrived; the broker's own requests are put aside (`told`)."""
        data, found = memoryview(self.transport.received), []
        while data:
            (size,) = struct.unpack_from(">i", data)
            assert len(data) >= 4 + size, "a frame was cut short"
            command = wire.decode(data[4 : 4 + size])
            (found if command.is_response else self.told).append(command)
            data = data[4 + size :]
        self.transport.received = b""
        return found

    def close(self) -> None:
        self.connection.connection_lost(None)
        self.rig.turns()

    # What clients do most.

    def produce(self, topic: str, body: bytes, queue: int = 0, **more: str) -> Command:
        return self.well(310, body, **sending(topic, queue, text_of(**more)))

    def pull(self, topic: str, offset: int = 0, queue: int = 0, **fields: Any) -> Command:
        """A pull that brings its subscription and is not held."""
        asked = {
            "consumerGroup": "readers", "topic": topic, "queueId": queue, "queueOffset": offset, "maxMsgNums": 32,
            "sysFlag": 4, "commitOffset": 0, "suspendTimeoutMillis": 0, "subscription": "*", "subVersion": 0,
            "expressionType": "TAG",
        }  # fmt: skip
        return self.ask(11, **(asked | fields))

    def read(self, topic: str, offset: int = 0, queue: int = 0, **fields: Any) -> list[StoredMessage]:
        return list(decode_stored(self.pull(topic, offset, queue, **fields).body))

    def beat(self, client_id: str = "c1", *, producers: Iterable[str] = (), **consumers: Any) -> Command:
        """A heartbeat; consumers: group=[(topic, expression), …] or a whole ConsumerData."""
        data = []
        for group, wanted in consumers.items():
            said = wanted if isinstance(wanted, dict) else {"subscriptions": wanted}
            subscriptions = []
            for topic, expression, *rest in said["subscriptions"]:
                version, kind = (*rest, 1, "TAG")[:2] if len(rest) != 1 else (rest[0], "TAG")
                subscriptions.append(
                    {"topic": topic, "subString": expression, "subVersion": version, "expressionType": kind}
                )
            data.append({
                "groupName": group, "consumeType": "CONSUME_PASSIVELY",
                "messageModel": said.get("model", "CLUSTERING"), "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
                "subscriptionDataSet": subscriptions,
            })  # fmt: skip
        body = {
            "clientID": client_id,
            "producerDataSet": [{"groupName": each} for each in producers],
            "consumerDataSet": data,
        }
        return self.ask(34, json.dumps(body).encode())


def sending(topic: str, queue: int, text: str, **more: Any) -> dict[str, Any]:
    """The fields of SEND_MESSAGE_V2."""
    fields = {
        "a": "producers", "b": topic, "c": "TBW102", "d": 4, "e": queue, "f": 0, "g": 1_600_000_000_000, "h": 0,
        "i": text, "j": 0, "k": False, "m": False, "n": "halfmoon",
    }  # fmt: skip
    return fields | more


class Rig(BrokerRig):
    """Broker, plugins and server in one loop."""

    def __init__(
        self,
        listener: RocketmqListener | None = None,
        languages: Mapping[str, FilterCompiler] | None = None,
        **settings: Any,
    ) -> None:
        """`languages`: filter languages of more plugins."""
        super().__init__(**settings)
        self.start_plugins()
        self.server = Server(
            self.broker.kernel,
            self.broker.services,
            self.settings,
            listener or RocketmqListener(),
            self.plugins.allocators,
            {**self.plugins.filters, **(languages or {})},
            self.loop,  # type: ignore[arg-type]
        )
        self.server.round_time = RoundTime(self.loop.call_soon, lambda: 0.0)  # what a turn takes is not this machine's
        self.node = self.server.node
        self.node.start(("127.0.0.1", BROKER_PORT))

    def client(self, *, names: bool = False, peer: str = "127.0.0.1", kind: int = JSON) -> RigClient:
        return RigClient(self, Port.NAMES if names else Port.BROKER, peer, kind)
