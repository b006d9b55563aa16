"""What RocketMQ's clients get where reads come late, and where half of them fail (halfmoon/testing/storages.py); and
where another node owns a queue."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from rocketmq_rig import Rig, RigClient, sending

from halfmoon.core.catalog.owners import Leader, OtherNode
from halfmoon.remoting.codes import Code
from halfmoon.remoting.message import decode_stored
from halfmoon.testing.node import BareNode
from halfmoon.testing.storages import FailingReader, failing, late

PULL, SEND, END, SEARCH = 11, 310, 37, 29
EXCUSES = (Code.SYSTEM_ERROR, Code.SERVICE_NOT_AVAILABLE)
"""What a read that fails is answered with: clients try again."""
HELD = {"sysFlag": 6, "suspendTimeoutMillis": 15_000}


@pytest.fixture(params=["late", "failing"])
def rig(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Rig:
    make = late() if request.param == "late" else failing(random.Random(3))
    monkeypatch.setattr(BareNode, "storage", staticmethod(make))
    rig = Rig()
    rig.topic("orders", 2)
    return rig


def insist(client: RigClient, code: int, **fields: Any) -> Any:
    for _ in range(100):
        answer = client.ask(code, **fields)
        if answer.code not in EXCUSES:
            assert answer.code == 0, answer.remark
            return answer
        assert isinstance(client.rig.broker.reader, FailingReader), answer.remark
        assert "Input/output error" in (answer.remark or "")
    raise AssertionError("it always fails")


def test_pulls(rig: Rig) -> None:
    client = rig.client()
    for number in range(10):
        client.produce("orders", b"m%d" % number)
    got: list[bytes] = []
    for _ in range(200):
        answer = client.pull("orders", len(got))
        if answer.code == 0:
            got += [message.body for message in decode_stored(answer.body)]
        else:
            assert answer.code in EXCUSES
        if len(got) == 10:
            break
    assert got == [b"m%d" % number for number in range(10)]


def test_a_held_pull_is_answered_with_what_arrives(rig: Rig) -> None:
    reader, producer = rig.client(), rig.client()
    for number in range(10):
        reader.send(PULL, **_pulling(number))
        assert reader.answers() == []
        producer.produce("orders", b"m%d" % number)
        rig.turns()
        (answer,) = reader.answers()
        if answer.code == 0:
            assert [message.body for message in decode_stored(answer.body)] == [b"m%d" % number]
        else:
            assert answer.code in EXCUSES


def _pulling(offset: int) -> dict[str, Any]:
    return {
        "consumerGroup": "readers", "topic": "orders", "queueId": 0, "queueOffset": offset, "maxMsgNums": 32,
        "commitOffset": 0, "subscription": "*", "subVersion": 0, "expressionType": "TAG", **HELD,
    }  # fmt: skip


def test_queues_are_searched_by_time(rig: Rig) -> None:
    client = rig.client()
    times = []
    for number in range(8):
        times.append(rig.clock.now_ms)
        client.produce("orders", b"m%d" % number)
        rig.clock.now_ms += 1_000
    for number, stored_ms in enumerate(times):
        answer = insist(client, SEARCH, topic="orders", queueId=0, timestamp=stored_ms)
        assert answer.fields["offset"] == str(number)


@pytest.mark.parametrize("state", [8, 12])
def test_half_messages_are_ended(rig: Rig, state: int) -> None:
    client = rig.client()
    for number in range(5):
        client.produce("orders", b"m%d" % number, TRAN_MSG="true", PGROUP="producers", UNIQ_KEY=f"u{number}")
    rig.turns()
    queue = rig.broker.topic("orders").partitions[0]
    assert queue.high_watermark == 0
    for number in range(5):
        for _ in range(100):
            answer = client.ask(
                END, producerGroup="producers", commitOrRollback=state, msgId=f"u{number}", fromTransactionCheck=False,
                tranStateTableOffset=0, commitLogOffset=0,
            )  # fmt: skip
            if answer.code == 0:
                break
            assert answer.code in EXCUSES
    rig.turns()
    assert queue.high_watermark == (5 if state == 8 else 0)
    assert rig.broker.waiting.waiting() == 0


def test_the_topic_of_ends_is_deleted_while_one_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BareNode, "storage", staticmethod(late()))
    rig = Rig()
    rig.topic("orders")
    client = rig.client()
    client.produce("orders", b"m", TRAN_MSG="true", PGROUP="producers", UNIQ_KEY="u")
    ending = {"producerGroup": "producers", "commitOrRollback": 8, "msgId": "u", "fromTransactionCheck": False}
    client.feed(client.encode(END, tranStateTableOffset=0, commitLogOffset=0, **ending))
    assert client.answers() == []
    rig.broker.administration.delete_topic(rig.broker.topic("halfmoon.transactions"))
    rig.turns()
    (answer,) = client.answers()
    assert answer.code == Code.TOPIC_NOT_EXIST


class Elsewhere:
    """Another node owns queue 1, or all."""

    def __init__(self, node_id: int, *, all_of_them: bool) -> None:
        self.node_id = node_id
        self.all_of_them = all_of_them

    def owner_of(self, partition: Any) -> int:
        return 9 if self.all_of_them or partition.index == 1 else self.node_id

    def leaders_of(self, topic: Any) -> list[Leader]:
        return [Leader(self.owner_of(partition), 1) for partition in topic.partitions]

    def others(self) -> list[OtherNode]:
        return [OtherNode(9, ("other.example", 9_192), "broker-9", ("other.example", 10_912))]


def test_sends_and_pulls_of_a_queue_that_another_node_owns_are_refused() -> None:
    rig = Rig()
    rig.topic("orders", 2)
    client = rig.client()
    rig.broker.owners = Elsewhere(rig.broker.node_id, all_of_them=False)
    client.produce("orders", b"here", 0)
    assert client.pull("orders", 0, 0).code == 0
    assert client.ask(SEND, b"there", **sending("orders", 1, "")).code == Code.NOT_LEADER_FOR_QUEUE
    assert client.pull("orders", 0, 1).code == Code.NOT_LEADER_FOR_QUEUE


def test_the_route_of_a_topic_that_another_node_owns() -> None:
    rig = Rig()
    rig.topic("orders", 2)
    rig.broker.owners = Elsewhere(rig.broker.node_id, all_of_them=True)
    route = json.loads(rig.client(names=True).well(105, topic="orders").body.tobytes())
    assert [(data["brokerName"], data["brokerAddrs"]) for data in route["brokerDatas"]] == [
        ("broker-9", {"0": "other.example:10912"})
    ]
    assert [(queue["brokerName"], queue["readQueueNums"]) for queue in route["queueDatas"]] == [("broker-9", 2)]
