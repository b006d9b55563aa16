"""Requests 11 and 361: what consumers get, and how long they wait for it."""

from __future__ import annotations

from typing import Any

import pytest
from rocketmq_rig import Rig, RigClient, properties_of

from halfmoon.adapters.rocketmq import windows
from halfmoon.config.listener_settings import RocketmqListener
from halfmoon.core.append_types import TransactionalProducer
from halfmoon.core.crc import crc32c
from halfmoon.core.records.batch_header import assemble, parse_header
from halfmoon.core.records.batches import build_batch
from halfmoon.core.records.record_codec import Headers
from halfmoon.plugins.filter.sql92 import compile_sql
from halfmoon.remoting.codes import Code
from halfmoon.remoting.message import decode_stored
from halfmoon.schema.transactions import Identity
from tests.services.transactions.transaction_bench import transactional_batch

PULLED = {
    "consumerGroup": "readers", "topic": "orders", "queueId": 0, "queueOffset": 0, "maxMsgNums": 32, "sysFlag": 4,
    "commitOffset": 0, "suspendTimeoutMillis": 0, "subVersion": 0,
}  # fmt: skip
HELD = {"sysFlag": 6, "suspendTimeoutMillis": 15_000}


def bodies(client: RigClient, topic: str, offset: int = 0, **fields: object) -> list[bytes]:
    return [message.body for message in client.read(topic, offset, **fields)]


def kafka_batch(rig: Rig, topic: str, *rows: tuple[bytes | None, bytes | None, Headers], codec: int = 0) -> None:
    """A batch from a Kafka client."""
    partition = rig.broker.catalog.by_name[topic].partitions[0]
    made = build_batch(
        [(key, value, 1_000 + at, headers) for at, (key, value, headers) in enumerate(rows)], codec=codec
    )
    rig.broker.append(partition, memoryview(bytearray(made)), rig.clock.now_ms)
    rig.turn()


class TestAnswers:
    def test_found(self) -> None:
        rig = Rig()
        rig.topic("orders", 2)
        client = rig.client()
        client.produce("orders", b"m0", 1, UNIQ_KEY="U0", TAGS="a", KEYS="k")
        answer = client.pull("orders", queue=1)
        assert (answer.code, answer.remark, answer.fields) == (0, "FOUND", {
            "nextBeginOffset": "1", "minOffset": "0", "maxOffset": "1", "suggestWhichBrokerId": "0",
            "topicSysFlag": "0", "groupSysFlag": "0",
        })  # fmt: skip
        (message,) = decode_stored(answer.body)
        partition = rig.broker.catalog.by_name["orders"].partitions[1]
        assert (message.queue_id, message.queue_offset, message.topic) == (1, 0, b"orders")
        assert message.physical_offset == partition.queue_number << 40
        assert (message.born_ms, message.store_ms) == (1_600_000_000_000, rig.clock.now_ms)
        assert (str(message.born), str(message.store)) == ("127.0.0.1:40000", "127.0.0.1:10911")
        assert properties_of(message) == {"UNIQ_KEY": "U0", "TAGS": "a", "KEYS": "k", "CLUSTER": "DefaultCluster"}

    def test_at_most_32_messages_whatever_is_asked_for(self) -> None:
        rig = Rig()
        rig.topic("orders")
        kafka_batch(rig, "orders", *[(None, b"m%d" % n, ()) for n in range(70)])
        client = rig.client()
        answer = client.pull("orders", maxMsgNums=1_000)
        assert (answer.fields["nextBeginOffset"], len(list(decode_stored(answer.body)))) == ("32", 32)
        assert bodies(client, "orders", 64) == [b"m%d" % n for n in range(64, 70)]
        assert bodies(client, "orders", 3, maxMsgNums=2) == [b"m3", b"m4"]
        assert bodies(client, "orders", 3, maxMsgNums=0) == [b"m3"]

    def test_at_most_256_kib_but_one_message_however_large(self) -> None:
        rig = Rig()
        rig.topic("orders")
        kafka_batch(rig, "orders", (None, bytes(300 << 10), ()), *[(None, bytes(100 << 10), ()) for _ in range(4)])
        client = rig.client()
        assert [len(each) >> 10 for each in bodies(client, "orders")] == [300]
        assert [len(each) >> 10 for each in bodies(client, "orders", 1)] == [100, 100]

    @pytest.mark.parametrize("most", [1, 5, 33, 512])
    def test_how_many_messages_is_a_setting(self, most: int) -> None:
        rig = Rig(RocketmqListener(pull_messages=most))
        rig.topic("orders")
        kafka_batch(rig, "orders", *[(None, b"m%d" % n, ()) for n in range(700)])
        client = rig.client()
        assert len(bodies(client, "orders", maxMsgNums=1_000)) == most
        assert len(bodies(client, "orders", maxMsgNums=4)) == min(most, 4)

    @pytest.mark.parametrize(("most_bytes", "counts"), [(1, [1, 1]), (250 << 10, [2, 2]), (1 << 20, [10, 2])])
    def test_how_many_bytes_is_a_setting(self, most_bytes: int, counts: list[int]) -> None:
        rig = Rig(RocketmqListener(pull_bytes=most_bytes))
        (partition,) = rig.topic("orders")
        for _ in range(12):
            rig.append(partition, bytes(100 << 10))
        client = rig.client()
        assert len(bodies(client, "orders")) == counts[0]
        assert len(bodies(client, "orders", 10)) == counts[1]

    @pytest.mark.parametrize(("offset", "corrected"), [(11, 10), (999, 10), (1, 4)])
    def test_an_offset_outside_the_queue(self, offset: int, corrected: int) -> None:
        rig = Rig()
        (partition,) = rig.topic("orders")
        kafka_batch(rig, "orders", *[(None, b"x", ())] * 10)
        rig.broker.delete_records(partition, 4)
        rig.turn()
        answer = rig.client().pull("orders", offset)
        assert (answer.code, answer.fields["nextBeginOffset"]) == (Code.PULL_OFFSET_MOVED, str(corrected))

    def test_an_empty_queue(self) -> None:
        rig = Rig()
        rig.topic("orders")
        client = rig.client()
        assert client.pull("orders").code == Code.PULL_NOT_FOUND
        moved = client.pull("orders", 5)
        assert (moved.code, moved.fields["nextBeginOffset"]) == (Code.PULL_OFFSET_MOVED, "0")

    def test_what_does_not_match_is_passed_over(self) -> None:
        rig = Rig()
        rig.topic("orders")
        client = rig.client()
        for tag in "aabab":
            client.produce("orders", tag.encode(), TAGS=tag)
        assert bodies(client, "orders", subscription="b") == [b"b", b"b"]
        answer = client.pull("orders", subscription="c")
        assert (answer.code, answer.fields["nextBeginOffset"]) == (Code.PULL_RETRY_IMMEDIATELY, "5")
        assert bodies(client, "orders", subscription="TAGS = 'a'", expressionType="SQL92") == [b"a"] * 3

    def test_a_pull_looks_at_four_stretches_of_the_queue_and_says_how_far_it_came(self) -> None:
        rig = Rig()
        (partition,) = rig.topic("orders")
        for _ in range(20):
            rig.append(partition, bytes(100 << 10))
        client = rig.client()
        for offset, after in ((0, 8), (8, 16)):  # two batches are 256 KiB, or would be more with a third
            answer = client.pull("orders", offset, subscription="paid")
            assert (answer.code, answer.fields["nextBeginOffset"]) == (Code.PULL_RETRY_IMMEDIATELY, str(after))

    @pytest.mark.parametrize(
        ("fields", "code"),
        [
            ({"subscription": "x >", "expressionType": "SQL92"}, Code.SUBSCRIPTION_PARSE_FAILED),
            ({"expressionType": "XPATH", "subscription": "x"}, Code.SYSTEM_ERROR),
            ({"sysFlag": 12}, Code.SYSTEM_ERROR),
            ({"sysFlag": 0}, Code.SUBSCRIPTION_NOT_EXIST),
            ({"queueId": 1}, Code.INVALID_PARAMETER),
            ({"queueId": -1}, Code.INVALID_PARAMETER),
            ({"topic": "nowhere"}, Code.TOPIC_NOT_EXIST),
            ({"topic": "SCHEDULE_TOPIC_XXXX"}, Code.TOPIC_NOT_EXIST),
        ],
    )
    def test_refused(self, fields: dict[str, object], code: Code) -> None:
        rig = Rig()
        rig.topic("orders")
        client = rig.client()
        client.produce("orders", b"x", DELAY="1")  # so that the internal topic exists
        assert client.ask(11, **{
            "consumerGroup": "g", "topic": "orders", "queueId": 0, "queueOffset": 0, "maxMsgNums": 32, "sysFlag": 4,
            "suspendTimeoutMillis": 0, **fields,
        }).code == code  # fmt: skip

    def test_361_is_the_same(self) -> None:
        rig = Rig()
        rig.topic("orders")
        client = rig.client()
        client.produce("orders", b"x")
        answer = client.ask(
            361, consumerGroup="g", topic="orders", queueId=0, queueOffset=0, maxMsgNums=10, sysFlag=0x16,
            suspendTimeoutMillis=20_000, subscription="*", subVersion=0,
        )  # fmt: skip
        assert [message.body for message in decode_stored(answer.body)] == [b"x"]


class TestSubscriptions:
    def test_a_group_pulls_what_its_heartbeat_says(self) -> None:
        rig = Rig()
        rig.topic("orders")
        client = rig.client()
        client.beat(g=[("orders", "b", 7)])
        for tag in "ab":
            client.produce("orders", tag.encode(), TAGS=tag)
        said = {"consumerGroup": "g", "sysFlag": 0, "subscription": "ignored"}
        assert bodies(client, "orders", **said, subVersion=7) == [b"b"]
        assert client.pull("orders", **said, subVersion=8).code == Code.SUBSCRIPTION_NOT_LATEST
        client.beat(g=[("orders", "*", 8)])
        assert bodies(client, "orders", **said, subVersion=8) == [b"a", b"b"]

    def test_a_topic_that_the_group_does_not_subscribe_to(self) -> None:
        rig = Rig()
        rig.topic("orders")
        client = rig.client()
        client.beat(g=[("other", "*")])
        assert client.pull("orders", consumerGroup="g", sysFlag=0).code == Code.SUBSCRIPTION_NOT_EXIST

    def test_what_was_handed_back_is_not_filtered_again(self) -> None:
        rig = Rig()
        rig.topic("retry.g")
        kafka_batch(rig, "retry.g", (None, b"x", (("TAGS", b"a"), ("TIMER_DELAY_MS", b"0"))))
        assert bodies(rig.client(), "%RETRY%g", subscription="b") == [b"x"]


ORDERS = [(None, b'{"n": %d, "pad": "%s"}' % (n, b"x" * 1_000), ()) for n in range(40)]
BY_FIELD = {"subscription": "value.n > 37", "expressionType": "SQL92"}


class TestFieldsOfJsonBodies:
    def test_small_bodies_are_looked_at_at_once(self) -> None:
        rig = Rig()
        rig.topic("orders")
        client = rig.client()
        for n in range(3):
            client.produce("orders", b'{"n": %d}' % n, TAGS=f"t{n}")
        asked = {"subscription": "value.n >= 1 AND TAGS <> 't2'", "expressionType": "SQL92"}
        assert bodies(client, "orders", **asked) == [b'{"n": 1}']

    @pytest.mark.parametrize("codec", [0, 4])
    def test_large_batches_in_a_thread(self, codec: int) -> None:
        rig = Rig()
        rig.topic("orders")
        kafka_batch(rig, "orders", *ORDERS, codec=codec)
        client = rig.client()
        client.feed(client.encode(11, **(PULLED | BY_FIELD)))
        rig.loop.run()
        assert len(rig.loop.threads) == 1, "the loop has not looked at them"
        rig.turns()
        (answer,) = client.answers()
        assert [message.body for message in decode_stored(answer.body)] == [ORDERS[38][1], ORDERS[39][1]]

    def test_each_of_many_windows_of_a_batch(self) -> None:
        rig = Rig()
        rig.topic("orders")
        rows = [(None, b'{"n": %d, "pad": "%s"}' % (n, b"x" * 200), ()) for n in range(2_000)]
        kafka_batch(rig, "orders", *rows)
        client = rig.client()
        offset, found = 0, []
        while offset < 2_000:
            answer = client.pull("orders", offset, subscription="value.n > 99", expressionType="SQL92")
            found += [message.body for message in decode_stored(answer.body)]
            offset = int(answer.fields["nextBeginOffset"])
        assert found == [row[1] for row in rows[100:]]

    def test_one_that_is_held_ends_only_for_a_match(self) -> None:
        rig = Rig()
        rig.topic("orders")
        client = rig.client()
        TestHolding().held(rig, client, subVersion=0, **BY_FIELD)
        kafka_batch(rig, "orders", *ORDERS[:30])
        rig.turns()
        assert (client.answers(), len(rig.broker.hold)) == ([], 1), "a thread found none"
        kafka_batch(rig, "orders", *ORDERS[30:])
        rig.turns()
        (answer,) = client.answers()
        assert [message.body for message in decode_stored(answer.body)] == [ORDERS[38][1], ORDERS[39][1]]
        assert answer.fields["nextBeginOffset"] == "40"

    def test_what_is_too_large_does_not_match_and_is_counted(self) -> None:
        rig = Rig(languages={"sql92": lambda expression: compile_sql(expression, 2_000)})
        rig.topic("orders")
        kafka_batch(rig, "orders", (None, b'{"n": 38, "pad": "%s"}' % (b"x" * 20_000), ()), *ORDERS)
        client = rig.client()
        assert bodies(client, "orders", **BY_FIELD) == [ORDERS[38][1], ORDERS[39][1]]
        assert rig.node.windows.filter_errors == 1
        assert bodies(client, "orders", subscription="value.n >= 0 AND a = 'x'", expressionType="SQL92") == []
        assert rig.node.windows.filter_errors == 1, "no record has the header, so none was parsed"

    def test_a_batch_that_a_thread_cannot_read_is_passed_over(self) -> None:
        rig = Rig(log__validate="header")
        rig.topic("orders")
        made = bytearray(build_batch([(None, ORDERS[38][1], 0, ())] * 20 + [(None, b'{"n": 39}', 0, ())]))
        made[made.index(b'{"n": 39}') - 1] = 0x7F  # the value's length
        made[17:21] = crc32c(made[21:]).to_bytes(4, "big")
        rig.broker.append(rig.broker.catalog.by_name["orders"].partitions[0], memoryview(made), rig.clock.now_ms)
        rig.turn()
        kafka_batch(rig, "orders", ORDERS[39])
        client = rig.client()
        assert bodies(client, "orders", **BY_FIELD) == [ORDERS[39][1]]
        assert rig.node.windows.unreadable == 1


class TestHolding:
    def held(self, rig: Rig, client: RigClient, **fields: object) -> None:
        asked = {
            "consumerGroup": "readers", "topic": "orders", "queueId": 0, "queueOffset": 0, "maxMsgNums": 32,
            "commitOffset": 0, "subscription": "*", **HELD, **fields,
        }  # fmt: skip
        client.send(11, **asked)
        assert client.answers() == []
        assert len(rig.broker.hold) == 1

    def test_a_message_ends_the_wait(self) -> None:
        rig = Rig()
        rig.topic("orders")
        client = rig.client()
        self.held(rig, client)
        rig.client().produce("orders", b"x")
        (answer,) = client.answers()
        assert [message.body for message in decode_stored(answer.body)] == [b"x"]

    def test_only_one_that_matches_does(self) -> None:
        rig = Rig()
        rig.topic("orders")
        client = rig.client()
        self.held(rig, client, subscription="b")
        producer = rig.client()
        producer.produce("orders", b"x", TAGS="a")
        assert (client.answers(), len(rig.broker.hold)) == ([], 1)
        producer.produce("orders", b"y", TAGS="b")
        (answer,) = client.answers()
        assert [message.body for message in decode_stored(answer.body)] == [b"y"]
        assert answer.fields["nextBeginOffset"] == "2"

    def test_it_ends_in_time(self) -> None:
        rig = Rig()
        rig.topic("orders")
        client = rig.client()
        self.held(rig, client)
        rig.pass_time(14_999)
        assert client.answers() == []
        rig.pass_time(1)
        (answer,) = client.answers()
        assert (answer.code, answer.fields["nextBeginOffset"]) == (Code.PULL_NOT_FOUND, "0")

    def test_at_its_end_the_client_is_told_what_was_passed_over(self) -> None:
        rig = Rig()
        rig.topic("orders")
        client = rig.client()
        self.held(rig, client, subscription="b")
        rig.client().produce("orders", b"x", TAGS="a")
        rig.pass_time(15_000)
        (answer,) = client.answers()
        assert (answer.code, answer.fields["nextBeginOffset"]) == (Code.PULL_RETRY_IMMEDIATELY, "1")

    def test_many_wait_and_all_are_answered(self) -> None:
        rig = Rig()
        rig.topic("orders")
        clients = [rig.client() for _ in range(20)]
        for client in clients:
            client.send(11, consumerGroup="g", topic="orders", queueId=0, queueOffset=0, maxMsgNums=32, **HELD)
        assert len(rig.broker.hold) == 20
        rig.client().produce("orders", b"x")
        assert [len(client.answers()) for client in clients] == [1] * 20

    def test_one_that_goes_away_is_forgotten(self) -> None:
        rig = Rig()
        rig.topic("orders")
        client = rig.client()
        self.held(rig, client)
        client.close()
        assert len(rig.broker.hold) == 0
        rig.client().produce("orders", b"x")

    def test_a_deleted_topic_ends_the_wait(self) -> None:
        rig = Rig()
        rig.topic("orders")
        client = rig.client()
        self.held(rig, client)
        rig.client().well(215, topic="orders")
        (answer,) = client.answers()
        assert answer.code == Code.TOPIC_NOT_EXIST

    def test_it_is_not_held_where_it_does_not_ask_for_it(self) -> None:
        rig = Rig()
        rig.topic("orders")
        for fields in ({"sysFlag": 4, "suspendTimeoutMillis": 9_999}, {"sysFlag": 6, "suspendTimeoutMillis": 0}):
            assert rig.client().pull("orders", **fields).code == Code.PULL_NOT_FOUND

    def test_without_long_polling_it_is_held_for_a_second(self) -> None:
        rig = Rig(hold__long_polling=False)
        rig.topic("orders")
        client = rig.client()
        self.held(rig, client)
        rig.pass_time(1_000)
        assert client.answers()[0].code == Code.PULL_NOT_FOUND


class TestWhatKafkaClientsProduced:
    @pytest.mark.parametrize("codec", [0, 1, 2, 3, 4])
    def test_batches_in_every_codec_message_by_message(self, codec: int) -> None:
        rig = Rig()
        rig.topic("orders")
        kafka_batch(rig, "orders", *[(b"k%d" % n, b"v%d" % n, (("TAGS", b"t"),)) for n in range(5)], codec=codec)
        messages = rig.client().read("orders", 2)
        assert [(each.queue_offset, each.body, each.born_ms) for each in messages] == [
            (n, b"v%d" % n, 1_000 + n) for n in (2, 3, 4)
        ]
        assert properties_of(messages[0]) == {"TAGS": "t", "KEYS": "k2", "CLUSTER": "DefaultCluster"}
        assert str(messages[0].born) == "0.0.0.0:0"

    def test_what_a_property_cannot_hold_is_left_out_and_named(self) -> None:
        rig = Rig()
        rig.topic("orders")
        headers: Headers = (
            ("a", b"1"), ("a", b"2"), ("null", None), ("empty", b""), ("latin", b"\xff"), ("one", b"x\x01y"),
            ("two\x02", b"x"), ("long", b"z" * 40_000), ("b", b"2"),
        )  # fmt: skip
        kafka_batch(rig, "orders", (b"\xff", None, headers))
        (message,) = rig.client().read("orders")
        assert (message.body, len(message.properties) <= 32_767) == (b"", True)
        assert properties_of(message) == {
            "a": "2", "b": "2", "CLUSTER": "DefaultCluster", "HALFMOON_OMITTED": "a,null,empty,latin,one,?,KEYS,long",
        }  # fmt: skip

    def test_names_of_what_is_left_out_may_be_too_many_too(self) -> None:
        rig = Rig()
        rig.topic("orders")
        kafka_batch(rig, "orders", (None, b"x", tuple((f"name-{n}", None) for n in range(10_000))))
        (message,) = rig.client().read("orders")
        omitted = properties_of(message)["HALFMOON_OMITTED"]
        assert (omitted[:14], omitted[-3:]) == ("name-0,name-1,", "...")
        assert len(omitted) < 256

    @pytest.mark.parametrize("size", [63, 64, 100, 8_191, 8_192, 70_000])
    def test_lengths_of_any_number_of_bytes(self, size: int) -> None:
        rig = Rig()
        rig.topic("orders")
        kafka_batch(rig, "orders", (b"k" * min(size, 9_000), b"v" * size, (("UNIQ_KEY", b"u" * min(size, 20_000)),)))
        (message,) = rig.client().read("orders")
        assert message.body == b"v" * size
        assert properties_of(message)["UNIQ_KEY"] == "u" * min(size, 20_000)

    def test_a_batch_without_readable_records_is_passed_over(self) -> None:
        rig = Rig(log__validate="header")
        (partition,) = rig.topic("orders")
        good = build_batch([(None, b"x", 1, ())])
        bad = bytearray(build_batch([(None, b"xyz", 1, ())]))
        bad[61] = 0x7E  # the record's length
        for batch in (good, assemble(parse_header(bad), bad[61:]), good):
            rig.broker.append(partition, memoryview(bytearray(batch)), rig.clock.now_ms)
        rig.turn()
        client = rig.client()
        assert [each.queue_offset for each in client.read("orders")] == [0, 2]
        assert rig.node.windows.unreadable == 1

    def test_a_topic_that_stamps_its_records_leaves_the_born_time_alone(self) -> None:
        rig = Rig()
        rig.topic("orders", 1, message_timestamp_type="LogAppendTime")
        kafka_batch(rig, "orders", (None, b"x", ()))
        (message,) = rig.client().read("orders")
        assert (message.born_ms, message.store_ms) == (1_000, rig.clock.now_ms)

    def test_a_forged_flag_of_the_adapters_own_changes_no_body(self) -> None:
        rig = Rig()
        rig.topic("orders")
        kafka_batch(rig, "orders", (None, b"plain", (("__SYSFLAG", b"1"),)))
        (message,) = rig.client().read("orders")
        assert (message.body, message.system_flags) == (b"plain", 0)

    @pytest.mark.parametrize("length", [127, 128, 249])
    def test_long_topic_names(self, length: int) -> None:
        rig = Rig()
        name = "t" * length
        rig.topic(name)
        kafka_batch(rig, name, (None, b"1", ()), (None, b"2", ()))
        found = rig.client().read(name)
        assert [(message.topic.decode(), message.body) for message in found] == [(name, b"1"), (name, b"2")]

    def test_large_batches_are_opened_once_and_read_in_parts(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(windows, "LARGE_BYTES", 4_000)
        rig = Rig()
        rig.topic("orders")
        kafka_batch(rig, "orders", *[(None, b"%05d" % n, (("TAGS", b"ab"[n % 2 : n % 2 + 1]),)) for n in range(2_000)])
        client = rig.client()
        read: list[bytes] = []
        while len(read) < 2_000:
            client.send(
                11, consumerGroup="g", topic="orders", queueId=0, queueOffset=len(read), maxMsgNums=32, sysFlag=4
            )
            (answer,) = client.answers()
            read += [message.body for message in decode_stored(answer.body)]
        assert read == [b"%05d" % n for n in range(2_000)]
        assert len(rig.node.windows._open) == 1
        offset, odd = 0, 0
        while offset < 2_000:
            answer = client.pull("orders", offset, subscription="b")
            odd += len(list(decode_stored(answer.body)))
            offset = int(answer.fields["nextBeginOffset"])
        assert odd == 1_000


def test_windows_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(windows, "KEPT_BYTES", 20_000)
    rig = Rig()
    topics = [rig.topic(f"t{n}")[0].topic.name for n in range(6)]
    client = rig.client()
    for topic in topics:
        kafka_batch(rig, topic, *[(None, b"x" * 50, ())] * 64)
    for _ in range(2):
        for topic in topics:
            assert len(client.read(topic)) == 32
    kept = rig.node.windows
    assert 0 < kept._kept_bytes <= 20_000
    assert kept._kept_bytes == sum(len(window.data) for window in kept._kept.values())
    assert sum(map(len, kept._by_key.values())) == len(kept._kept)


class TestTransactionsOfKafkaProducers:
    """Up to the last stable offset; aborted messages and markers are holes."""

    def send(self, rig: Rig, identity: Identity, *values: bytes) -> None:
        partition = rig.broker.catalog.by_name["orders"].partitions[0]
        made = transactional_batch(*values, producer_id=identity.producer_id, epoch=identity.epoch, sequence=0)
        rig.broker.append(partition, made, rig.clock.now_ms, TransactionalProducer("x", True))
        rig.turn()

    def end(self, rig: Rig, identity: Identity, *, commit: bool) -> Identity:
        after, _ = rig.broker.transactions.end("x", identity.producer_id, identity.epoch, commit=commit, bumps=True)
        rig.turn()
        return after

    def test_what_is_open_waits_and_what_is_aborted_is_left_out(self) -> None:
        rig = Rig()
        rig.topic("orders")
        client = rig.client()
        identity, _ = rig.broker.transactions.init_producer_id("x", 60_000, None)
        self.send(rig, identity, b"lost", b"lost too")
        client.produce("orders", b"plain")
        assert client.pull("orders").code == Code.PULL_NOT_FOUND
        identity = self.end(rig, identity, commit=False)
        assert bodies(client, "orders") == [b"plain"]
        self.send(rig, identity, b"kept")
        client.send(
            11, consumerGroup="readers", topic="orders", queueId=0, queueOffset=4, maxMsgNums=32, commitOffset=0,
            subscription="*", **HELD,
        )  # fmt: skip
        assert client.answers() == []
        self.end(rig, identity, commit=True)
        (answer,) = client.answers()
        assert [message.body for message in decode_stored(answer.body)] == [b"kept"]
        assert bodies(client, "orders") == [b"plain", b"kept"]


class Begins:
    """A filter language of a plugin."""

    needle = None

    def __init__(self, expression: str) -> None:
        self._start = expression.encode()

    def match(self, record: Any) -> bool:
        return bool(record.value.startswith(self._start))


def test_a_plugins_filter_language_is_an_expression_type() -> None:
    rig = Rig(languages={"begins": Begins})
    rig.topic("orders")
    client = rig.client()
    for body in (b"apple", b"pear", b"almond"):
        client.produce("orders", body)
    found = client.read("orders", subscription="a", expressionType="BEGINS")
    assert [message.body for message in found] == [b"apple", b"almond"]
    client.beat(g=[("orders", "p", 1, "BEGINS")])
    found = client.read("orders", consumerGroup="g", sysFlag=0, subVersion=1)
    assert [message.body for message in found] == [b"pear"]
