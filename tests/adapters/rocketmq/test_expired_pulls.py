"""What RocketMQ's consumers get of messages whose TTL is over: nothing, and a dead letter where the topic wants one."""

from __future__ import annotations

from typing import Any

import pytest
from rocketmq_rig import Rig, properties_of, sending, text_of

from halfmoon.adapters.rocketmq import expired, windows
from halfmoon.core.records.batches import build_batch
from halfmoon.errors import BrokerError, Fault
from halfmoon.remoting.codes import Code
from halfmoon.remoting.message import StoredMessage, decode_stored
from halfmoon.server.plugin_features import context_of
from tests.core.bench import append
from tests.core.relay_bench import found

TTL, ACTION = "halfmoon.ttl.ms", "halfmoon.ttl.action"
GROUP, DEAD = "readers", "dlq.readers"
OVER = b"expired: its TTL was over"


def rig_with(**configs: str) -> Rig:
    rig = Rig()
    for late in rig.plugins.features:
        if late.context.name == "retry":
            rig.broker.extend(late.call(context_of(rig.broker, late.context, rig.plugins.filters)))
    rig.topic("orders", **configs)
    return rig


def send(rig: Rig, *ttls: int | None, topic: str = "orders", **headers: str) -> None:
    """A batch of messages 0, 1, 2, … with these TTLs, in ms from now on."""
    more = tuple((name, text.encode()) for name, text in headers.items())
    rows = [
        (None, b"%d" % at, rig.clock.now_ms, (*(() if ttl is None else ((TTL, b"%d" % ttl),)), *more))
        for at, ttl in enumerate(ttls)
    ]
    partition = rig.broker.catalog.by_name[topic].partitions[0]
    append(rig.broker, partition, memoryview(bytearray(build_batch(rows))))
    rig.turns()


def bodies(rig: Rig, offset: int = 0, **fields: Any) -> list[bytes]:
    return [each.body for each in rig.client().read("orders", offset, **fields)]


def messages_of(answer: Any) -> list[StoredMessage]:
    return list(decode_stored(answer.body))


def consumer(rig: Rig, model: str = "CLUSTERING") -> Any:
    client = rig.client()
    assert client.beat(**{GROUP: {"subscriptions": [("orders", "*")], "model": model}}).code == 0
    return client


def dead_letters(rig: Rig) -> list[tuple[bytes | None, dict[str, bytes | None]]]:
    if DEAD not in rig.broker.catalog.by_name:
        return []
    return [(value, headers) for _, value, _, headers in found(rig.broker, DEAD)]


def test_what_has_expired_is_passed_over() -> None:
    rig = rig_with()
    send(rig, 100, None, 200, 100)
    assert bodies(rig) == [b"0", b"1", b"2", b"3"]
    rig.clock.now_ms += 100
    answer = rig.client().pull("orders")
    assert answer.fields["nextBeginOffset"] == "4"
    assert bodies(rig) == [b"1", b"2"], "the window is kept, and what has expired is not in it"
    assert bodies(rig, 3) == []
    rig.clock.now_ms += 100
    assert bodies(rig, maxMsgNums=1) == [b"1"]
    assert rig.broker.expiry.counts[("pull", "dropped")] > 0
    assert dead_letters(rig) == []


def test_the_property_of_a_message_and_the_topics_ttl() -> None:
    rig = rig_with(halfmoon_ttl_ms="1000")
    client = rig.client()
    for body, said in ((b"short", {TTL: "100"}), (b"long", {})):
        client.well(310, body, **sending("orders", 0, text_of(**said), g=rig.clock.now_ms))
    assert [properties_of(message).get(TTL) for message in client.read("orders")] == ["100", None]
    rig.clock.now_ms += 100
    assert bodies(rig) == [b"long"]
    rig.clock.now_ms += 900
    assert bodies(rig) == []


def test_where_all_has_expired_the_client_goes_on_behind_it() -> None:
    rig = rig_with()
    send(rig, *[100] * 40)
    rig.clock.now_ms += 100
    answer = rig.client().pull("orders")
    assert (answer.code, answer.fields["nextBeginOffset"]) == (Code.PULL_RETRY_IMMEDIATELY, "40")
    assert rig.broker.expiry.counts == {("pull", "dropped"): 40}


def test_with_a_filter() -> None:
    rig = rig_with()
    send(rig, 100, None, TAGS="x")
    send(rig, 100, None, TAGS="y")
    rig.clock.now_ms += 100
    assert bodies(rig, subscription="y") == [b"1"]
    assert rig.broker.expiry.counts == {("pull", "dropped"): 1}


def test_a_dead_letter_is_written_once_and_before_the_answer() -> None:
    rig = rig_with(halfmoon_ttl_action="dead-letter")
    send(rig, 100, None, 200, mine="x")
    rig.clock.now_ms += 100
    client = consumer(rig)
    assert [each.body for each in client.read("orders")] == [b"1", b"2"]
    ((value, headers),) = dead_letters(rig)
    assert value == b"0"
    assert headers == {
        "mine": b"x", "RETRY_TOPIC": b"orders", "ORIGIN_MESSAGE_ID": b"orders/0/0", "RECONSUME_TIME": b"0",
        "halfmoon.reason": OVER,
    }  # fmt: skip
    assert [each.body for each in client.read("orders")] == [b"1", b"2"]
    assert [each.body for each in consumer(rig).read("orders")] == [b"1", b"2"]
    assert len(dead_letters(rig)) == 1
    rig.clock.now_ms += 100
    assert [each.body for each in client.read("orders", 2)] == []
    assert [value for value, _ in dead_letters(rig)] == [b"0", b"2"]
    assert rig.broker.expiry.counts == {("retry", "dead_lettered"): 2}


def test_many_and_large_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expired, "AT_ONCE_BYTES", 1_000)
    monkeypatch.setattr(windows, "LARGE_BYTES", 5_000)
    rig = rig_with(halfmoon_ttl_action="dead-letter")
    send(rig, *[100, None] * 600, text="x" * 50)
    rig.clock.now_ms += 100
    client, got, offset = consumer(rig), [], 0
    while offset < 1_200:
        answer = client.pull("orders", offset)
        got += [each.body for each in messages_of(answer)]
        offset = int(answer.fields["nextBeginOffset"])
    assert got == [b"%d" % at for at in range(1, 1_200, 2)]
    assert [value for value, _ in dead_letters(rig)] == [b"%d" % at for at in range(0, 1_200, 2)]


@pytest.mark.parametrize("who", ["a tool", "a broadcast", "nobody's group"])
def test_whose_pull_says_nothing_of_a_group_causes_none(who: str) -> None:
    rig = rig_with(halfmoon_ttl_action="dead-letter")
    send(rig, 100, None)
    rig.clock.now_ms += 100
    if who == "a broadcast":
        client = consumer(rig, "BROADCASTING")
    else:
        client = rig.client()
    assert [each.body for each in client.read("orders")] == [b"1"]
    assert dead_letters(rig) == []
    assert rig.broker.expiry.counts == {("pull", "dropped"): 1}


def test_while_none_can_be_written_the_group_does_not_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = rig_with(halfmoon_ttl_action="dead-letter")
    send(rig, 100, None)
    rig.clock.now_ms += 100
    client = consumer(rig)
    rig.broker.log.failed = OSError("no more")
    answer = client.pull("orders")
    assert answer.code not in (Code.SUCCESS, Code.PULL_RETRY_IMMEDIATELY, Code.PULL_NOT_FOUND)
    rig.broker.log.failed = None
    assert [each.body for each in client.read("orders")] == [b"1"]
    assert len(dead_letters(rig)) == 1


def test_what_can_never_be_written_does_not_hold_it_up(caplog: pytest.LogCaptureFixture) -> None:
    rig = rig_with(halfmoon_ttl_action="dead-letter")
    rig.topic("retry.readers", **{"max_message_bytes": "10"})
    send(rig, 100, None)
    rig.clock.now_ms += 100
    assert [each.body for each in consumer(rig).read("orders")] == [b"1"]
    assert dead_letters(rig) == []
    assert caplog.text.count("event=no_dead_letter group=readers") == 1


def test_a_pull_that_is_held_is_not_answered_by_what_has_expired() -> None:
    rig = rig_with(halfmoon_ttl_action="dead-letter")
    client = consumer(rig)
    client.send(
        11, consumerGroup=GROUP, topic="orders", queueId=0, queueOffset=0, maxMsgNums=32, sysFlag=6, commitOffset=0,
        suspendTimeoutMillis=15_000, subscription="*", subVersion=0, expressionType="TAG",
    )  # fmt: skip
    assert client.answers() == []
    partition = rig.broker.catalog.by_name["orders"].partitions[0]
    old = (None, b"old", rig.clock.now_ms - 1_000, ((TTL, b"10"),))
    append(rig.broker, partition, memoryview(bytearray(build_batch([old]))))
    rig.turns()
    assert client.answers() == []
    assert [value for value, _ in dead_letters(rig)] == [b"old"]
    send(rig, None)
    (answer,) = client.answers()
    assert [each.body for each in messages_of(answer)] == [b"0"]


def test_without_retry_it_is_passed_over() -> None:
    rig = Rig()
    rig.topic("orders", **{"halfmoon_ttl_action": "dead-letter"})
    send(rig, 100, None)
    rig.clock.now_ms += 100
    assert [each.body for each in consumer(rig).read("orders")] == [b"1"]


def test_a_message_that_is_sent_back_keeps_its_time() -> None:
    rig = rig_with()
    send(rig, 5_000)
    client = consumer(rig)
    (message,) = client.read("orders")
    client.well(36, group=GROUP, offset=message.physical_offset, delayLevel=1, originTopic="orders")
    rig.clock.now_ms += 1_002
    rig.broker.relays.expire(rig.clock.now_ms)
    rig.turns()
    ((_, _, _, headers),) = found(rig.broker, "retry.readers")
    assert headers["halfmoon.expires.ms"] == b"%d" % (rig.clock.now_ms - 1_002 + 5_000)
    rig.clock.now_ms += 5_000
    assert client.read("%RETRY%readers", consumerGroup=GROUP) == []


def test_the_ttl_of_a_half_message_begins_with_its_commit() -> None:
    rig = rig_with()
    client = rig.client()
    client.produce("orders", b"half", TRAN_MSG="true", PGROUP="shop", UNIQ_KEY="1", **{TTL: "100"})
    rig.clock.now_ms += 1_000
    client.send(
        37, oneway=True, producerGroup="shop", tranStateTableOffset=0, commitLogOffset=0, commitOrRollback=8,
        fromTransactionCheck=False, msgId="1", transactionId="1", topic="orders",
    )  # fmt: skip
    rig.clock.now_ms += 99
    assert bodies(rig) == [b"half"]
    rig.clock.now_ms += 1
    assert bodies(rig) == []


def test_a_group_goes_on_where_a_topic_cannot_be_made(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = rig_with(halfmoon_ttl_action="dead-letter")
    send(rig, 100, None)
    rig.clock.now_ms += 100
    client = consumer(rig)

    def refuse(*_: Any) -> None:
        raise BrokerError(Fault.POLICY_VIOLATION, "no more topics")

    monkeypatch.setattr(rig.node, "group_topic", refuse)
    assert [each.body for each in client.read("orders")] == [b"1"]
