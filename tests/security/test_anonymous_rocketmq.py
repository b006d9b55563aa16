"""A RocketMQ client that neither signs nor shows a certificate is ANONYMOUS where access rules decide."""

from __future__ import annotations

import json
import socket
import struct
from typing import Any

from halfmoon.remoting import command as wire
from halfmoon.remoting.codes import Code
from halfmoon.remoting.command import JSON, Command
from tests.adapters.rocketmq.rocketmq_rig import sending
from tests.security.acting import User, rule
from tests.security.conftest import Secure

ROCKETMQ = {"rocketmq": {"bind": "127.0.0.1:0", "namesrv": "127.0.0.1:0"}}


def ask(address: str, code: int, body: bytes = b"", **fields: Any) -> Command:
    host, _, port = address.rpartition(":")
    said = {name: str(value) for name, value in fields.items()}
    with socket.create_connection((host, int(port)), 20) as connection:
        connection.sendall(wire.encode(Command(code, 7, 0, 479, "JAVA", None, said, body, JSON)))
        stream = connection.makefile("rb")
        (size,) = struct.unpack(">i", stream.read(4))
        return wire.decode(memoryview(stream.read(size)))


def test_it_may_nothing(secured: Secure) -> None:
    found = secured(listeners=ROCKETMQ, security={"super_users": ["User:root"]})
    broker = found.broker
    root = User(found, "root")
    assert root.create("orders") == 0
    beat = {"clientID": "c", "producerDataSet": [], "consumerDataSet": [
        {"groupName": "g", "subscriptionDataSet": [{"topic": "orders"}]}
    ]}  # fmt: skip
    asked = [
        ask(broker.rocketmq, 310, b"a", **sending("orders", 0, "")),
        ask(broker.rocketmq, 310, b"a", **sending("new", 0, "", c="TBW102")),
        ask(broker.rocketmq, 34, json.dumps(beat).encode()),
        ask(broker.rocketmq, 28),
        ask(broker.namesrv, 105, topic="orders"),
        ask(broker.namesrv, 105, topic="TBW102"),
        ask(broker.namesrv, 106),
    ]
    assert {answer.code for answer in asked} == {Code.NO_PERMISSION}
    for address in (broker.rocketmq, broker.namesrv):
        assert json.loads(bytes(ask(address, 206).body)) == {"topicList": []}
    rules = [rule("ANONYMOUS", right) for right in ("write topic orders", "describe topic orders")]
    found.in_loop(lambda: found.app.node.acls.change(rules))
    assert ask(broker.rocketmq, 310, b"a", **sending("orders", 0, "")).code == Code.SUCCESS
    assert json.loads(bytes(ask(broker.namesrv, 206).body)) == {"topicList": ["orders"]}
    root.connection.close()
