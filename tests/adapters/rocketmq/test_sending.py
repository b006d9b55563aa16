"""Requests 10, 310, 320: what producers send, and what Kafka's clients read of it."""

from __future__ import annotations

import zlib

import cramjam
import pytest
from rocketmq_rig import Rig, properties_of, sending, text_of

from halfmoon.config.listener_settings import RocketmqListener
from halfmoon.core.catalog.topics import Partition
from halfmoon.core.records.batches import iter_records
from halfmoon.core.records.record_codec import Record
from halfmoon.remoting.codes import Code
from halfmoon.remoting.command import JSON, ROCKETMQ
from halfmoon.remoting.message import BatchedMessage, decode_message_id, encode_batch, place_of


def records(rig: Rig, partition: Partition) -> list[Record]:
    read = rig.broker.read(partition, partition.start_offset, 1 << 20, min_one=True)
    return [record for batch in read.slices for record in iter_records(batch)]


@pytest.mark.parametrize("kind", [JSON, ROCKETMQ])
def test_a_message_is_a_record(kind: int) -> None:
    rig = Rig()
    (_, partition) = rig.topic("orders", 2)
    client = rig.client(kind=kind)
    text = text_of(KEYS="k1 k2", UNIQ_KEY="FD01", TAGS="paid", WAIT="true", région="杭州")
    answer = client.well(310, "grüße".encode(), **sending("orders", 1, text))
    assert answer.kind == kind
    store, physical = decode_message_id(answer.fields.pop("msgId"))
    assert (str(store), place_of(physical)) == ("127.0.0.1:10911", (partition.queue_number, 0))
    assert answer.fields == {
        "queueId": "1", "queueOffset": "0", "transactionId": "FD01", "MSG_REGION": "DefaultRegion", "TRACE_ON": "true",
    }  # fmt: skip
    (record,) = records(rig, partition)
    assert (record.key, record.value, record.timestamp) == (b"k1 k2", "grüße".encode(), 1_600_000_000_000)
    assert record.headers == (
        ("UNIQ_KEY", b"FD01"), ("KEYS", b"k1 k2"), ("TAGS", b"paid"), ("WAIT", b"true"), ("région", "杭州".encode()),
        ("__BORNHOST", b"127.0.0.1:40000"),
    )  # fmt: skip


def test_the_long_names_of_request_10_say_the_same() -> None:
    rig = Rig()
    (partition,) = rig.topic("orders")
    fields = {
        "producerGroup": "g", "topic": "orders", "defaultTopic": "TBW102", "defaultTopicQueueNums": 4, "queueId": 0,
        "sysFlag": 0, "bornTimestamp": 5, "flag": 9, "properties": text_of(TAGS="a"),
    }  # fmt: skip
    assert rig.client().well(10, b"x", **fields).fields["queueOffset"] == "0"
    (record,) = records(rig, partition)
    assert (record.value, record.timestamp, dict(record.headers)["__FLAG"]) == (b"x", 5, b"9")


def test_the_sharding_key_is_the_records_key() -> None:
    rig = Rig()
    (partition,) = rig.topic("orders")
    rig.client().produce("orders", b"x", __SHARDINGKEY="s", KEYS="k")
    assert records(rig, partition)[0].key == b"s"


def test_oneway_gets_no_answer() -> None:
    rig = Rig()
    (partition,) = rig.topic("orders")
    client = rig.client()
    client.send(310, b"x", oneway=True, **sending("orders", 0, ""))
    client.send(310, b"x", oneway=True, **sending("orders", 99, ""))
    assert (client.answers(), partition.high_watermark) == ([], 1)


@pytest.mark.parametrize(
    ("bits", "pack"),
    [
        (0x001, zlib.compress),
        (0x301, zlib.compress),
        (0x101, lambda data: bytes(cramjam.lz4.compress(data))),
        (0x201, lambda data: bytes(cramjam.zstd.compress(data))),
    ],
)
def test_what_the_client_compressed_is_stored_plain(bits: int, pack: object) -> None:
    rig = Rig()
    (partition,) = rig.topic("orders")
    body = bytes(range(256)) * 40
    client = rig.client()
    client.well(310, pack(body), **sending("orders", 0, "", f=bits))  # type: ignore[operator]
    assert records(rig, partition)[0].value == body
    (message,) = client.read("orders")
    assert (message.body, message.system_flags) == (body, 0)


@pytest.mark.parametrize("bits", [0x001, 0x101, 0x201, 0x301])
def test_a_body_that_does_not_decompress_is_refused(bits: int) -> None:
    rig = Rig()
    (partition,) = rig.topic("orders")
    answer = rig.client().ask(310, b"nonsense", **sending("orders", 0, "", f=bits))
    assert (answer.code, partition.next_offset) == (Code.MESSAGE_ILLEGAL, 0)
    assert "decompress" in (answer.remark or "")


def test_a_decompression_bomb_costs_no_more_than_a_message_may_have() -> None:
    rig = Rig()
    rig.topic("orders")
    bomb = zlib.compress(bytes(200 << 20))
    answer = rig.client().ask(310, bomb, **sending("orders", 0, "", f=0x301))
    assert answer.code == Code.MESSAGE_ILLEGAL
    assert "takes more than 4194304 bytes" in (answer.remark or "")


def test_a_topic_may_keep_bodies_as_they_come() -> None:
    rig = Rig()
    rig.broker.create_topic("orders", 1, {"halfmoon.rocketmq.body": "verbatim"})
    rig.turn()
    (partition,) = rig.broker.catalog.by_name["orders"].partitions
    packed = zlib.compress(b"x" * 5_000)
    client = rig.client()
    client.well(310, packed, **sending("orders", 0, "", f=0x301))
    assert records(rig, partition)[0].value == packed
    (message,) = client.read("orders")
    assert (message.body, message.system_flags) == (packed, 0x301)


class TestBatches:
    def test_a_batch_is_one_record_batch(self) -> None:
        rig = Rig()
        (partition,) = rig.topic("orders")
        client = rig.client()
        sent = [BatchedMessage(n, b"m%d" % n, text_of(UNIQ_KEY=f"U{n}", TAGS="EO"[n % 2]).encode()) for n in range(3)]
        answer = client.well(320, encode_batch(sent), **sending("orders", 0, text_of(UNIQ_KEY="U"), m=True))
        ids = [place_of(decode_message_id(each)[1])[1] for each in answer.fields["msgId"].split(",")]
        assert (ids, answer.fields["queueOffset"]) == ([0, 1, 2], "0")
        assert len(rig.broker.read(partition, 0, 1 << 20, min_one=True).slices) == 1
        assert [record.value for record in records(rig, partition)] == [b"m0", b"m1", b"m2"]
        read = client.read("orders", 1)
        assert [(each.queue_offset, each.flag, each.body) for each in read] == [(1, 1, b"m1"), (2, 2, b"m2")]
        assert [properties_of(each)["TAGS"] for each in client.read("orders", subscription="E")] == ["E", "E"]

    @pytest.mark.parametrize("name", ["DELAY", "TIMER_DELAY_MS", "TRAN_MSG"])
    def test_its_messages_are_not_delayed_or_part_of_transactions(self, name: str) -> None:
        rig = Rig()
        rig.topic("orders")
        body = encode_batch([BatchedMessage(0, b"x", text_of(**{name: "1"}).encode())])
        answer = rig.client().ask(320, body, **sending("orders", 0, ""))
        assert (answer.code, answer.remark) == (
            Code.MESSAGE_ILLEGAL, "messages of a batch cannot be delayed, retried or transactional",
        )  # fmt: skip

    @pytest.mark.parametrize("body", [b"", b"abc", b"\0\0\0\x16" + bytes(30)])
    def test_a_body_that_is_no_batch_is_refused(self, body: bytes) -> None:
        rig = Rig()
        rig.topic("orders")
        assert rig.client().ask(320, body, **sending("orders", 0, "")).code == Code.MESSAGE_ILLEGAL

    def test_one_of_very_many_messages_is_stored_in_slices(self) -> None:
        """A batch of 100,000 held up everybody for 0.4 s. What costs are properties that differ."""
        rig = Rig()
        (partition,) = rig.topic("orders")
        rig.topic("other")
        client, witness = rig.client(), rig.client(peer="127.0.0.2")
        sent = [BatchedMessage(n, b"m%d" % n, text_of(UNIQ_KEY=f"U{n}", KEYS=f"K{n}").encode()) for n in range(5_000)]
        client.feed(client.encode(320, encode_batch(sent), **sending("orders", 0, text_of(UNIQ_KEY="U"), m=True)))
        assert not partition.next_offset, "not in the turn in which it came"
        witness.feed(witness.encode(310, b"x", **sending("other", 0, "")))
        while not (answers := client.answers()):
            rig.turn()
            answered_before = bool(witness.transport.received)
        assert answered_before
        (answer,) = answers
        ids = [place_of(decode_message_id(each)[1])[1] for each in answer.fields["msgId"].split(",")]
        assert ids == list(range(5_000))
        (stored,) = rig.broker.read(partition, 0, 1 << 30, min_one=True).slices
        found = list(iter_records(stored))
        assert [record.value for record in found] == [b"m%d" % n for n in range(5_000)]
        assert dict(found[4_999].headers)["UNIQ_KEY"] == b"U4999"

    @pytest.mark.parametrize("last", [text_of(DELAY="1"), None])
    def test_what_is_wrong_with_the_last_of_very_many_refuses_all(self, last: str | None) -> None:
        rig = Rig()
        (partition,) = rig.topic("orders")
        sent = [BatchedMessage(n, b"m", b"") for n in range(2_000)]
        body = encode_batch([*sent, BatchedMessage(0, b"x", (last or "").encode())])
        answer = rig.client().ask(320, body if last else body[:-1], **sending("orders", 0, ""))
        assert answer.code == Code.MESSAGE_ILLEGAL
        assert partition.next_offset == 0


class TestTopics:
    def test_a_topic_is_made_by_sending(self) -> None:
        rig = Rig()
        rig.client().well(310, b"x", **sending("fresh", 1, "", d=4))
        assert len(rig.broker.catalog.by_name["fresh"].partitions) == 4

    def test_it_gets_eight_queues_at_most(self) -> None:
        rig = Rig()
        rig.client().well(310, b"x", **sending("fresh", 1, "", d=1_000_000))
        assert len(rig.broker.catalog.by_name["fresh"].partitions) == 8

    def test_not_where_the_broker_makes_none(self) -> None:
        rig = Rig(topics__auto_create=False)
        answer = rig.client().ask(310, b"x", **sending("fresh", 1, ""))
        assert (answer.code, answer.remark) == (
            Code.TOPIC_NOT_EXIST, "topic[fresh] not exist, apply first please!",
        )  # fmt: skip
        assert "fresh" not in rig.broker.catalog.by_name

    @pytest.mark.parametrize("topic", ["a.b", "a/../b", "%RETRY%", "", "x" * 300, "SCHEDULE_TOPIC_XXXX"])
    def test_names_that_are_none(self, topic: str) -> None:
        rig = Rig()
        assert rig.client().ask(310, b"x", **sending(topic, 0, "")).code == Code.MESSAGE_ILLEGAL

    def test_a_topic_with_dots_is_for_reading(self) -> None:
        rig = Rig()
        (partition,) = rig.topic("orders.paid")
        rig.append(partition, b"x")
        client = rig.client()
        assert client.ask(310, b"x", **sending("orders.paid", 0, "")).code == Code.NO_PERMISSION
        assert [each.body for each in client.read("orders.paid")] == [b"x"]

    def test_a_queue_that_is_not_there(self) -> None:
        rig = Rig()
        rig.topic("orders", 2)
        assert rig.client().ask(310, b"x", **sending("orders", 2, "")).code == Code.INVALID_PARAMETER

    def test_no_queue_is_any(self) -> None:
        rig = Rig()
        rig.topic("orders", 2)
        assert rig.client().well(310, b"x", **sending("orders", -1, "")).fields["queueId"] in ("0", "1")


class TestLimits:
    def test_a_message_that_is_too_large(self) -> None:
        rig = Rig()
        rig.topic("orders")
        client = rig.client()
        client.well(310, bytes(4_000_000), **sending("orders", 0, ""))
        answer = client.ask(310, bytes((4 << 20) + 1), **sending("orders", 0, ""))
        assert answer.code == Code.MESSAGE_ILLEGAL
        assert rig.broker.refused_batches.total() == 1

    def test_properties_that_are_too_long(self) -> None:
        rig = Rig()
        rig.topic("orders")
        client = rig.client()
        assert client.ask(310, b"x", **sending("orders", 0, text_of(p="y" * 32_765))).code == Code.MESSAGE_ILLEGAL
        client.well(310, b"x", **sending("orders", 0, text_of(p="y" * 32_000)))

    def test_a_delay_that_is_too_long(self) -> None:
        rig = Rig(RocketmqListener(max_delay_ms=5_000))
        rig.topic("orders")
        client = rig.client()
        far = rig.clock.now_ms + 6_000
        for said in ({"TIMER_DELAY_SEC": "6"}, {"TIMER_DELAY_MS": "5001"}, {"TIMER_DELIVER_MS": str(far)}):
            answer = client.ask(310, b"x", **sending("orders", 0, text_of(**said)))
            assert answer.code == Code.MESSAGE_ILLEGAL, said
            assert "should not be bigger than the max delay 5000ms" in (answer.remark or "")
        client.produce("orders", b"x", TIMER_DELAY_SEC="5")

    @pytest.mark.parametrize("field", ["a", "b", "e", "f", "g"])
    def test_a_field_that_is_missing(self, field: str) -> None:
        rig = Rig()
        rig.topic("orders")
        fields = sending("orders", 0, "")
        del fields[field]
        answer = rig.client().ask(310, b"x", **fields)
        assert (answer.code, answer.remark) == (Code.INVALID_PARAMETER, f"the request has no field '{field}'")

    @pytest.mark.parametrize("value", ["", "x", "9" * 19, "9" * 500, "1.5"])
    def test_a_field_that_is_no_number(self, value: str) -> None:
        rig = Rig()
        rig.topic("orders")
        assert rig.client().ask(310, b"x", **sending("orders", 0, "", g=value)).code == Code.INVALID_PARAMETER


def test_a_log_that_takes_no_more_is_said_to_the_client() -> None:
    rig = Rig()
    rig.topic("orders")
    client = rig.client()
    rig.fs.fail_sync = True
    client.feed(client.encode(310, b"x", **sending("orders", 0, "")))
    rig.turn()
    (answer,) = client.answers()
    assert answer.code == Code.SERVICE_NOT_AVAILABLE
