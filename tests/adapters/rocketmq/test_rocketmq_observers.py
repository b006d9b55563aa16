"""What observers hear of RocketMQ's clients, and of groups that negatively acknowledge (hook `halfmoon_observers`)."""

from __future__ import annotations

from typing import Any

import pytest
from rocketmq_rig import Rig

from halfmoon.core.records.batches import build_batch
from tests.adapters.heard import Heard


def test_rocketmq() -> None:
    rig = Rig()
    heard = Heard(rig)
    rig.topic("orders")
    client = rig.client()
    client.produce("orders", b"x")
    assert heard.take() == {("produced", "orders", 0): 1}
    (message,) = client.read("orders")
    assert heard.take() == {("fetched", "orders", 0): 1}

    def back(**fields: Any) -> None:
        client.well(36, group="g", offset=message.physical_offset, originTopic="orders", **fields)

    back(delayLevel=1)
    assert heard.take() == {("produced", "retry.g", 0): 1, ("redelivered", "g", "retry.g", 0): 1}
    rig.pass_time(1_001)
    rig.turns()
    assert heard.take() == {}
    (message,) = client.read("%RETRY%g")
    back(delayLevel=-1)
    assert heard.take() == {
        ("fetched", "retry.g", 0): 1, ("produced", "retry.g", 0): 1, ("dead_lettered", "g", "retry.g", 0): 1,
    }  # fmt: skip


@pytest.mark.parametrize(("times", "what"), [(b"0", "redelivered"), (b"16", "dead_lettered")])
def test_what_a_kafka_client_negatively_acknowledges(times: bytes, what: str) -> None:
    rig = Rig()
    (retry,) = rig.topic("retry.g")
    heard = Heard(rig)
    rows = [(None, b"v", 1000, (("RECONSUME_TIME", times),))] * 2
    rig.broker.append(retry, memoryview(bytearray(build_batch(rows))), rig.clock.now_ms)
    assert heard.take() == {("produced", "retry.g", 0): 2, (what, "g", "retry.g", 0): 2}
