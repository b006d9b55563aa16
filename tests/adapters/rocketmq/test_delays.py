"""HALFMOON_DELAYS: what waits, over RocketMQ's port."""

from __future__ import annotations

from typing import Any

import msgspec
from rocketmq_rig import Rig, RigClient

from halfmoon.remoting.codes import Code
from halfmoon.services.delays.questions import Answer, Cancel, List, Question, Reschedule, Selection

HOUR_S = 3_600


def rig(**more: Any) -> Rig:
    made = Rig(**more)
    return made


def ask(client: RigClient, question: Question | bytes) -> Answer:
    body = question if isinstance(question, bytes) else msgspec.json.encode(question)
    return msgspec.json.decode(bytes(client.well(18506, body).body), type=Answer)


def test_asked_and_changed() -> None:
    made = rig()
    made.topic("orders", 2)
    client = made.client()
    client.produce("orders", b"a", TIMER_DELAY_SEC=str(HOUR_S), UNIQ_KEY="a")
    client.produce("orders", b"b", TIMER_DELAY_SEC=str(2 * HOUR_S), UNIQ_KEY="b")
    listed = ask(client, List()).listed
    assert listed is not None
    a, b = listed.messages
    assert [each.uniq_key for each in (a, b)] == [b"a", b"b"]
    changed = ask(client, Reschedule(ids=(b.id,), in_ms=1_000)).changed
    assert changed is not None
    assert changed.count == 1
    changed = ask(client, Cancel(selection=Selection(topic="orders"))).changed
    assert changed is not None
    assert changed.count == 2
    made.pass_time(4 * HOUR_S * 1_000)
    assert not [partition for partition in made.broker.catalog.topic("orders").partitions if partition.next_offset]


def test_no_question() -> None:
    client = rig().client()
    for body in (b"", b"{", b"[]", b'{"type": "drop"}', b'{"type": "list", "most": 0}', b'{"type": "cancel"}'):
        assert client.ask(18506, body).code == Code.INVALID_PARAMETER, body


def test_off() -> None:
    answer = Rig(services__delays=False).client().ask(18506, b'{"type": "list"}')
    assert answer.code == Code.REQUEST_CODE_NOT_SUPPORTED
