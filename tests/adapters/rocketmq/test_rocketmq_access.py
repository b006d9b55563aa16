"""What plugins refuse (hook `halfmoon_authorize`) is refused with NO_PERMISSION."""

from __future__ import annotations

import pytest
from rocketmq_rig import Rig, sending

from halfmoon.adapters.tcp.access import Access
from halfmoon.remoting.codes import Code


class Guard:
    def __init__(self, *refused: tuple[str, str, str]) -> None:
        self.refused = set(refused)
        self.asked: list[tuple[str, str, str]] = []

    def __call__(self, principal: str | None, host: str, operation: str, kind: str, resource: str) -> bool:
        assert (principal, host) == ("User:ANONYMOUS", "127.0.0.1")
        self.asked.append((operation, kind, resource))
        return (operation, kind, resource) not in self.refused


def rig_with(guard: Guard) -> Rig:
    rig = Rig()
    rig.topic("orders")
    rig.topic("secret")
    rig.server.node.access = Access(guard)
    return rig


def test_sending() -> None:
    guard = Guard(("write", "topic", "secret"))
    rig = rig_with(guard)
    client = rig.client()
    assert client.produce("orders", b"a").code == Code.SUCCESS
    assert client.ask(310, b"a", **sending("secret", 0, "")).code == Code.NO_PERMISSION
    assert guard.asked == [("write", "topic", "orders"), ("write", "topic", "secret")]


@pytest.mark.parametrize("refused", [("read", "topic", "orders"), ("read", "group", "g")])
def test_pulling(refused: tuple[str, str, str]) -> None:
    guard = Guard()
    rig = rig_with(guard)
    client = rig.client()
    client.produce("orders", b"a")
    client.beat(g=[("orders", "*")])
    assert client.pull("orders", consumerGroup="g").code == Code.SUCCESS
    guard.refused.add(refused)
    assert client.pull("orders", consumerGroup="g").code == Code.NO_PERMISSION


def test_membership() -> None:
    rig = rig_with(Guard(("read", "group", "g")))
    assert rig.client().beat(g=[("orders", "*")]).code == Code.NO_PERMISSION


def test_changing_topics() -> None:
    guard = Guard(("create", "topic", "new"), ("alter", "topic", "orders"), ("delete", "topic", "orders"))
    rig = rig_with(guard)
    client = rig.client()
    fields = {"readQueueNums": 1, "writeQueueNums": 1, "perm": 6, "topicFilterType": "SINGLE_TAG", "defaultTopic": "T"}
    assert client.ask(17, topic="new", **fields).code == Code.NO_PERMISSION
    assert client.ask(17, topic="orders", **fields).code == Code.NO_PERMISSION
    assert client.ask(215, topic="orders").code == Code.NO_PERMISSION
    assert [operation for operation, _, _ in guard.asked] == ["create", "alter", "delete"]
