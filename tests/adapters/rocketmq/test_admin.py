"""What tools and consoles ask: the name service, topics, offsets, messages, consumers."""

from __future__ import annotations

import json
import re
from typing import Any, ClassVar

import pytest
from rocketmq_rig import Rig, RigClient, sending, text_of

from halfmoon.config.listener_settings import RocketmqListener
from halfmoon.config.units import Address
from halfmoon.remoting import command as wire
from halfmoon.remoting.codes import Code
from halfmoon.remoting.command import Command
from halfmoon.remoting.message import BatchedMessage, decode_message_id, decode_stored, encode_batch


def body(answer: Command) -> Any:
    return json.loads(bytes(answer.body))


def offset_table(answer: Command) -> dict[tuple[str, int], Any]:
    """fastjson's map whose keys are queues: no JSON."""
    text = bytes(answer.body).decode()
    table = re.search(r'"offsetTable":\{(.*)\}', text)
    assert table is not None
    rows = re.findall(r'\{"brokerName":"(\w+)","queueId":(\d+),"topic":"([^"]+)"\}:(\{[^}]*\}|\d+)', table[1])
    return {(topic, int(queue)): json.loads(value) for _, queue, topic, value in rows}


class TestNameService:
    def test_a_route(self) -> None:
        rig = Rig()
        rig.topic("orders", 3)
        assert body(rig.client(names=True).well(105, topic="orders")) == {
            "brokerDatas": [{
                "brokerAddrs": {"0": "127.0.0.1:10911"}, "brokerName": "halfmoon", "cluster": "DefaultCluster",
                "enableActingMaster": False,
            }],
            "filterServerTable": {},
            "queueDatas": [
                {"brokerName": "halfmoon", "perm": 6, "readQueueNums": 3, "topicSysFlag": 0, "writeQueueNums": 3}
            ],
        }  # fmt: skip

    def test_a_topic_that_is_not_there(self) -> None:
        answer = Rig().client(names=True).ask(105, topic="nowhere")
        assert (answer.code, answer.remark) == (
            Code.TOPIC_NOT_EXIST, "No topic route info in name server for the topic: nowhere",
        )  # fmt: skip

    def test_tbw102_says_how_topics_are_made_by_sending(self) -> None:
        assert body(Rig().client(names=True).well(105, topic="TBW102"))["queueDatas"][0]["perm"] == 7
        rig = Rig(topics__auto_create=False)
        assert rig.client(names=True).ask(105, topic="TBW102").code == Code.TOPIC_NOT_EXIST

    def test_views_and_topics_with_dots_are_for_reading(self) -> None:
        rig = Rig()
        rig.topic("orders")
        rig.topic("a.b")
        rig.broker.create_topic("paid", -1, {"halfmoon.view.source": "orders", "halfmoon.view.tag": "paid"})
        rig.turn()
        names = rig.client(names=True)
        perms = {name: body(names.well(105, topic=name))["queueDatas"][0]["perm"] for name in ("orders", "a.b", "paid")}
        assert perms == {"orders": 6, "a.b": 4, "paid": 4}

    def test_the_address_may_be_configured(self) -> None:
        rig = Rig(RocketmqListener(advertise=Address("broker.example", 7), broker_name="b1", cluster="c1"))
        assert body(rig.client(names=True).well(106)) == {
            "brokerAddrTable": {"b1": {
                "brokerAddrs": {"0": "broker.example:7"}, "brokerName": "b1", "cluster": "c1",
                "enableActingMaster": False,
            }},
            "clusterAddrTable": {"c1": ["b1"]},
        }  # fmt: skip
        rig.topic("orders")
        store, _ = decode_message_id(rig.client().produce("orders", b"x").fields["msgId"])
        assert str(store) == "127.0.0.1:7"  # a name is no address: the one at which the client has reached us

    def test_all_topics_but_internal_ones(self) -> None:
        rig = Rig()
        rig.topic("orders")
        rig.topic("retry.g")
        rig.topic("dlq.g")
        rig.client().produce("orders", b"x", DELAY="1")
        assert body(rig.client(names=True).well(206))["topicList"] == ["%DLQ%g", "orders", "%RETRY%g"]

    def test_it_is_no_broker(self) -> None:
        rig = Rig()
        rig.topic("orders")
        answer = rig.client(names=True).ask(310, b"x", **sending("orders", 0, ""))
        assert answer.code == Code.REQUEST_CODE_NOT_SUPPORTED


class TestTopics:
    def test_made_grown_and_deleted(self) -> None:
        rig = Rig()
        client = rig.client()
        client.well(17, topic="orders", readQueueNums=2, writeQueueNums=2, perm=6)
        client.well(17, topic="orders", readQueueNums=5, writeQueueNums=5, perm=6)
        client.well(17, topic="orders", readQueueNums=5, writeQueueNums=5, perm=6)
        assert body(client.well(351, topic="orders", lo=True)) == {
            "attributes": {}, "order": False, "perm": 6, "readQueueNums": 5, "topicFilterType": "SINGLE_TAG",
            "topicName": "orders", "topicSysFlag": 0, "writeQueueNums": 5,
        }  # fmt: skip
        names = rig.client(names=True)
        assert names.ask(216, topic="orders").code == Code.SYSTEM_ERROR
        client.well(215, topic="orders")
        names.well(216, topic="orders")
        assert client.ask(351, topic="orders").code == Code.TOPIC_NOT_EXIST
        assert client.ask(215, topic="orders").code == Code.TOPIC_NOT_EXIST

    @pytest.mark.parametrize(
        ("fields", "code"),
        [
            ({"readQueueNums": 1, "writeQueueNums": 1}, Code.INVALID_PARAMETER),
            ({"perm": 4}, Code.INVALID_PARAMETER),
            ({"perm": 14}, Code.INVALID_PARAMETER),
            ({"topic": "../../etc"}, Code.MESSAGE_ILLEGAL),
            ({"topic": "SCHEDULE_TOPIC_XXXX"}, Code.MESSAGE_ILLEGAL),
            ({"topic": "big", "readQueueNums": 1_000_000}, Code.SYSTEM_ERROR),
        ],
    )
    def test_refused(self, fields: dict[str, Any], code: Code) -> None:
        rig = Rig()
        rig.topic("orders", 2)
        said = {"topic": "orders", "readQueueNums": 2, "writeQueueNums": 2, "perm": 6}
        assert rig.client().ask(17, **(said | fields)).code == code

    @pytest.mark.parametrize("code", [17, 100, 102, 215, 216, 222])
    @pytest.mark.parametrize("peer", ["10.0.0.9", "::2", "192.168.127.1"])
    def test_changes_are_taken_from_this_machine_only(self, code: int, peer: str) -> None:
        rig = Rig()
        rig.topic("orders", 2)
        answer = rig.client(names=code in (100, 102, 216), peer=peer).ask(code, topic="orders", group="g", timestamp=0)
        assert answer.code == Code.NO_PERMISSION
        assert "this machine only" in (answer.remark or "")
        assert "orders" in rig.broker.catalog.by_name


MQADMIN = {
    "topic": "orders", "defaultTopic": "TBW102", "readQueueNums": "8", "writeQueueNums": "8", "perm": "6",
    "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false",
}  # fmt: skip
"""What `mqadmin updateTopic -b … -t orders` of 5.3.3 sends; with `-a` also `attributes`."""


class TestAttributes:
    def set(self, client: RigClient, attributes: str, **fields: str) -> Command:
        return client.ask(17, **MQADMIN, attributes=attributes, **fields)

    def shown(self, client: RigClient) -> Any:
        return body(client.well(351, topic="orders", lo="true"))["attributes"]

    def test_they_are_kept_changed_and_taken_away(self) -> None:
        rig = Rig()
        client = rig.client()
        assert self.set(client, "+message.type=DELAY").code == Code.SUCCESS
        assert self.shown(client) == {"message.type": "DELAY"}
        client.well(17, **MQADMIN)
        assert self.shown(client) == {"message.type": "DELAY"}, "what is not mentioned stays"
        assert self.set(client, "+message.type=FIFO,+reserve.time=72").code == Code.SUCCESS
        assert self.shown(client) == {"message.type": "FIFO", "reserve.time": "72"}
        assert self.set(client, "-message.type").code == Code.SUCCESS
        assert self.shown(client) == {"reserve.time": "72"}

    def test_they_are_the_topics_configurations(self) -> None:
        rig = Rig()
        self.set(rig.client(), "+message.type=TRANSACTION,+queue.type=BatchCQ")
        assert rig.broker.catalog.by_name["orders"].configs == {
            "halfmoon.rocketmq.message.type": "TRANSACTION", "halfmoon.rocketmq.queue.type": "BatchCQ",
        }  # fmt: skip

    @pytest.mark.parametrize("kind", ["UNSPECIFIED", "NORMAL", "FIFO", "DELAY", "TRANSACTION", "MIXED"])
    def test_messages_of_every_type_are_taken(self, kind: str) -> None:
        client = Rig().client()
        assert self.set(client, f"+message.type={kind}").code == Code.SUCCESS
        client.produce("orders", b"x", DELAY="1")
        client.produce("orders", b"y")
        assert self.shown(client) == {"message.type": kind}

    def test_a_compacted_topic_is_kafkas(self) -> None:
        rig = Rig()
        client = rig.client()
        self.set(client, "+cleanup.policy=COMPACTION")
        assert self.shown(client) == {"cleanup.policy": "COMPACTION"}
        assert rig.broker.catalog.by_name["orders"].rules.compacts
        assert client.ask(310, b"x", **sending("orders", 0, text_of(UNIQ_KEY="U"))).code == Code.MESSAGE_ILLEGAL
        client.produce("orders", b"x", KEYS="k")
        rig.broker.create_topic("both", 1, {"cleanup.policy": "compact,delete"})
        rig.turn()
        assert body(client.well(351, topic="both"))["attributes"] == {"cleanup.policy": "COMPACTION"}

    @pytest.mark.parametrize(
        ("attributes", "remark"),
        [
            ("+no.such=1", "unsupported key: no.such"),
            ("+message.type=OTHER", "invalid value 'OTHER' of attribute message.type"),
            ("+reserve.time=-2", "invalid value '-2' of attribute reserve.time"),
            ("message.type=DELAY", "add/alter attribute format is wrong: message.type"),
            ("-message.type=DELAY", "add/alter attribute format is wrong: -message.type"),
            ("message.type", "delete attribute format is wrong: message.type"),
            ("+", "delete attribute format is wrong: +"),
            ("-", "kv string format wrong."),
            ("++message.type=DELAY", "kv string format wrong."),
            ("+message.type=DELAY,+message.type=FIFO", "alter duplication key. key: message.type"),
        ],
    )
    @pytest.mark.parametrize("new", [True, False])
    def test_refused(self, attributes: str, remark: str, new: bool) -> None:
        rig = Rig()
        if not new:
            rig.topic("orders", 2)
        answer = self.set(rig.client(), attributes)
        assert (answer.code, remark in (answer.remark or "")) == (Code.SYSTEM_ERROR, True), answer.remark
        assert [len(topic.partitions) for topic in rig.broker.catalog.by_name.values()] == ([] if new else [2])

    def test_what_only_a_new_topic_or_an_old_one_may_say(self) -> None:
        client = Rig().client()
        answer = self.set(client, "-message.type")
        assert answer.remark == "only add attribute is supported while creating topic. key: message.type"
        client.well(17, **MQADMIN)
        answer = self.set(client, "-message.type")
        assert answer.remark == "attempt to delete a nonexistent key: message.type"
        answer = self.set(client, "+cleanup.policy=COMPACTION")
        assert answer.remark == "attempt to update an unchangeable attribute. key: cleanup.policy"


class TestOrder:
    ASKED: ClassVar = {"namespace": "ORDER_TOPIC_CONFIG", "key": "orders"}

    def order(self, client: RigClient) -> bool:
        return bool(body(client.well(351, topic="orders"))["order"])

    def test_what_mqadmin_does_with_o_true(self) -> None:
        rig = Rig()
        client, names = rig.client(), rig.client(names=True)
        client.well(17, **(MQADMIN | {"order": "true"}))
        assert self.order(client)
        answer = names.ask(101, **self.ASKED)
        assert (answer.code, answer.remark) == (
            Code.QUERY_NOT_FOUND, "No config item, Namespace: ORDER_TOPIC_CONFIG Key: orders",
        )  # fmt: skip
        names.well(100, **self.ASKED, value="halfmoon:8")
        assert names.well(101, **self.ASKED).fields == {"value": "halfmoon:8"}
        assert body(names.well(219, namespace="ORDER_TOPIC_CONFIG")) == {"table": {"orders": "halfmoon:8"}}
        client.well(17, **MQADMIN)
        assert self.order(client), "a broker of RocketMQ asks the name server"
        names.well(102, **self.ASKED)
        names.well(102, **self.ASKED)
        assert not self.order(client)
        assert names.ask(219, namespace="ORDER_TOPIC_CONFIG").code == Code.QUERY_NOT_FOUND

    def test_values_are_limited(self) -> None:
        names = Rig().client(names=True)
        for field in "namespace", "key", "value":
            answer = names.ask(100, **{"namespace": "n", "key": "k", "value": "v", field: "x" * 4_097})
            assert (answer.code, "at most 4096" in (answer.remark or "")) == (Code.SYSTEM_ERROR, True)
        for number in range(100):
            names.well(100, namespace=f"n{number}", key="k", value="v")
        assert names.ask(100, namespace="another", key="k", value="v").code == Code.SYSTEM_ERROR
        names.well(100, namespace="n7", key="k", value="w")


class TestOffsets:
    def filled(self) -> tuple[Rig, RigClient]:
        """Messages 0 to 9 of queue 0, stored 10 ms apart."""
        rig = Rig()
        rig.topic("orders", 2)
        client = rig.client()
        for number in range(10):
            client.produce("orders", b"%d" % number)
            rig.clock.now_ms += 10
        return rig, client

    def ask(self, client: RigClient, code: int, field: str = "offset", **fields: Any) -> int:
        return int(client.well(code, **({"topic": "orders", "queueId": 0} | fields)).fields[field])

    def test_ends(self) -> None:
        rig, client = self.filled()
        rig.broker.delete_records(rig.broker.catalog.by_name["orders"].partitions[0], 4)
        rig.turn()
        assert (self.ask(client, 31), self.ask(client, 30), self.ask(client, 30, queueId=1)) == (4, 10, 0)

    def test_by_store_time(self) -> None:
        rig, client = self.filled()
        begin_ms = rig.clock.now_ms - 100
        for at_ms, lower, upper in ((0, 0, 0), (begin_ms + 25, 3, 2), (begin_ms + 30, 3, 3), (begin_ms + 500, 10, 10)):
            assert self.ask(client, 29, timestamp=at_ms) == lower, at_ms
            assert self.ask(client, 29, timestamp=at_ms, boundaryType="UPPER") == upper, at_ms
        assert self.ask(client, 32, "timestamp") == begin_ms
        assert self.ask(client, 32, "timestamp", queueId=1) == -1

    def test_statistics_of_a_topic(self) -> None:
        _, client = self.filled()
        table = offset_table(client.well(202, topic="orders"))
        assert table["orders", 0] == {"lastUpdateTimestamp": 1_600_000_000_000, "maxOffset": 10, "minOffset": 0}
        assert table["orders", 1] == {"lastUpdateTimestamp": 0, "maxOffset": 0, "minOffset": 0}

    def test_statistics_of_a_group(self) -> None:
        _, client = self.filled()
        client.beat(g=[("orders", "*"), ("nowhere", "*")])
        client.answers()
        client.send(15, oneway=True, consumerGroup="g", topic="orders", queueId=0, commitOffset=7)
        table = offset_table(client.well(208, consumerGroup="g"))
        assert table.keys() == {("orders", 0), ("orders", 1)}
        assert (table["orders", 0]["brokerOffset"], table["orders", 0]["consumerOffset"]) == (10, 7)
        assert offset_table(client.well(208, consumerGroup="h", topic="orders"))["orders", 0]["consumerOffset"] == 0
        assert body(client.well(300, topic="orders")) == {"groupList": ["g"]}

    def test_a_reset_counts_at_once_and_reaches_who_is_online(self) -> None:
        rig, client = self.filled()
        client.beat(g=[("orders", "*")])
        client.answers()
        pull = {"consumerGroup": "g", "topic": "orders", "maxMsgNums": 32, "sysFlag": 3, "subVersion": 1}
        client.send(11, **pull, queueId=0, queueOffset=10, commitOffset=10, suspendTimeoutMillis=15_000)
        client.send(11, **pull, queueId=1, queueOffset=0, commitOffset=0, suspendTimeoutMillis=15_000)
        tool = rig.client()
        at_ms = rig.clock.now_ms - 60
        table = offset_table(tool.well(222, topic="orders", group="g", timestamp=at_ms, isForce=True))
        assert table == {("orders", 0): 4, ("orders", 1): 0}
        answers = sorted(client.answers(), key=lambda answer: answer.opaque)
        assert [(each.code, each.fields["nextBeginOffset"]) for each in answers] == [
            (Code.PULL_OFFSET_MOVED, "4"), (Code.PULL_OFFSET_MOVED, "0"),
        ]  # fmt: skip
        assert self.ask(client, 14, consumerGroup="g") == 4
        assert client.pull("orders", 4, consumerGroup="g").code == 0

    def test_what_is_reported_before_it_is_known_does_not_count(self) -> None:
        rig, client = self.filled()
        client.beat(g=[("orders", "*")])
        client.answers()
        rig.client().well(222, topic="orders", group="g", timestamp=-1, queueId=0, offset=3)
        client.send(15, oneway=True, consumerGroup="g", topic="orders", queueId=0, commitOffset=9)
        assert self.ask(client, 14, consumerGroup="g") == 3
        moved = client.pull("orders", 9, consumerGroup="g", sysFlag=5, commitOffset=9)
        assert (moved.code, moved.fields["nextBeginOffset"]) == (Code.PULL_OFFSET_MOVED, "3")
        client.send(15, oneway=True, consumerGroup="g", topic="orders", queueId=0, commitOffset=5)
        assert self.ask(client, 14, consumerGroup="g") == 5

    def test_a_group_that_is_not_online(self) -> None:
        _, client = self.filled()
        client.well(222, topic="orders", group="g", timestamp=-1)
        assert self.ask(client, 14, consumerGroup="g") == 10
        assert client.pull("orders", 0, consumerGroup="g").code == 0


class TestMessages:
    def test_by_key_by_unique_key_and_by_id(self) -> None:
        rig = Rig()
        rig.topic("orders", 2)
        client = rig.client()
        sent = client.produce("orders", b"x", 1, KEYS="k1 k2", UNIQ_KEY="U1")
        client.produce("orders", b"y", 0, KEYS="k2")
        query = {"topic": "orders", "maxNum": 10, "beginTimestamp": 0, "endTimestamp": rig.clock.now_ms}
        for key, found in (("k1", [b"x"]), ("U1", [b"x"]), ("k2", [b"y", b"x"])):
            answer = client.well(12, key=key, **query)
            assert [message.body for message in decode_stored(answer.body)] == found
        (message,) = decode_stored(client.well(12, key="k1", **query).body)
        assert (message.queue_id, message.queue_offset, message.message_id) == (1, 0, sent.fields["msgId"])
        _, physical = decode_message_id(sent.fields["msgId"])
        (viewed,) = decode_stored(client.well(33, offset=physical).body)
        assert viewed == message
        assert client.ask(12, key="k3", **query).code == Code.QUERY_NOT_FOUND
        assert client.ask(12, key="k1", **(query | {"endTimestamp": 5})).code == Code.QUERY_NOT_FOUND
        assert client.ask(33, offset=physical + 1).code == Code.QUERY_NOT_FOUND

    def test_by_key_no_more_than_64(self) -> None:
        rig = Rig()
        rig.topic("orders")
        client = rig.client()
        for number in range(70):
            client.produce("orders", b"%d" % number, KEYS="k")
        query = {"topic": "orders", "key": "k", "beginTimestamp": 0, "endTimestamp": rig.clock.now_ms}
        for asked, count in ((3, 3), (64, 64), (1_000, 64)):
            assert len(list(decode_stored(client.well(12, maxNum=asked, **query).body))) == count

    def test_ids_stay_true_over_a_restart_and_after_other_topics_go(self) -> None:
        rig = Rig()
        rig.topic("first", 3)
        rig.topic("orders", 2)
        rig.broker.add_partitions(rig.broker.catalog.by_name["first"], 5)
        rig.topic("later", 1)
        client = rig.client()
        sent = {name: client.produce(name, name.encode()).fields["msgId"] for name in ("orders", "later")}
        numbers = [partition.queue_number for partition in rig.broker.catalog.partitions()]
        assert len(set(numbers)) == len(numbers) == 8
        client.well(215, topic="first")
        rig.topic("newest", 4)
        for name, message_id in sent.items():
            (message,) = decode_stored(client.well(33, offset=decode_message_id(message_id)[1]).body)
            assert message.body == name.encode()


class TestConsumers:
    def test_connections(self) -> None:
        rig = Rig()
        client = rig.client()
        client.beat("c1", g=[("orders", "a||b", 3)])
        client.answers()
        assert body(client.well(203, consumerGroup="g")) == {
            "connectionSet": [{"clientAddr": "127.0.0.1:40000", "clientId": "c1", "language": "JAVA", "version": 479}],
            "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET", "consumeType": "CONSUME_PASSIVELY",
            "messageModel": "CLUSTERING",
            "subscriptionTable": {"orders": {
                "classFilterMode": False, "codeSet": [], "expressionType": "TAG", "subString": "a||b", "subVersion": 3,
                "tagsSet": [], "topic": "orders",
            }},
        }  # fmt: skip
        assert client.ask(203, consumerGroup="h").code == Code.CONSUMER_NOT_ONLINE

    def test_what_a_consumer_does_is_asked_of_it(self) -> None:
        rig = Rig()
        consumer, tool = rig.client(), rig.client()
        consumer.beat("c1", g=[("orders", "*")])
        consumer.answers()
        consumer.told.clear()
        tool.send(307, consumerGroup="g", clientId="c1", jstackEnable=False)
        assert (tool.answers(), consumer.answers()) == ([], [])
        (asked,) = consumer.told
        assert (asked.code, asked.is_oneway, asked.fields["clientId"]) == (307, False, "c1")
        consumer.feed(wire.encode(Command(0, asked.opaque, wire.RESPONSE, body=b'{"mqTable":{}}')))
        rig.turns()
        (answer,) = tool.answers()
        assert (answer.code, bytes(answer.body)) == (0, b'{"mqTable":{}}')

    def test_one_that_goes_away_meanwhile(self) -> None:
        rig = Rig()
        consumer, tool = rig.client(), rig.client()
        consumer.beat("c1", g=[("orders", "*")])
        tool.send(307, consumerGroup="g", clientId="c1")
        consumer.close()
        assert [answer.code for answer in tool.answers()] == [Code.CONSUMER_NOT_ONLINE]
        assert tool.ask(307, consumerGroup="g", clientId="c1").code == Code.CONSUMER_NOT_ONLINE

    def test_how_the_broker_is(self) -> None:
        table = body(Rig().client().well(28))["table"]
        assert table["brokerVersionDesc"].startswith("Halfmoon ")
        assert all(isinstance(value, str) for value in table.values())


def test_properties_of_a_batch_are_read_as_those_of_single_messages() -> None:
    """Batches are written by other means than single messages; what is read must be the same."""
    rig = Rig()
    rig.topic("one")
    rig.topic("many")
    client = rig.client()
    texts = [
        *[text_of(UNIQ_KEY=f"U{n:04}", TAGS="a", KEYS=f"k{n % 3}") for n in range(70)],
        text_of(TAGS="a"), text_of(TAGS="a", UNIQ_KEY="X" * 100), text_of(XUNIQ_KEY="no", UNIQ_KEY="yes"), "",
        text_of(UNIQ_KEY="last").removesuffix("\x02"), "broken", text_of(a="1") + text_of(a="2", UNIQ_KEY="twice"),
    ]  # fmt: skip
    messages = [BatchedMessage(n % 2 * 7, b"%d" % n * (n % 4), text.encode()) for n, text in enumerate(texts)]
    client.well(320, encode_batch(messages), **sending("many", 0, ""))
    for message in messages:
        client.well(310, message.body, **sending("one", 0, message.properties.decode(), h=message.flag))
    for offset in range(0, len(messages), 32):
        one, many = client.read("one", offset), client.read("many", offset)
        assert len(one) == len(many) > 0
        for first, second in zip(one, many, strict=True):
            assert first._replace(topic=b"", physical_offset=0) == second._replace(topic=b"", physical_offset=0)
