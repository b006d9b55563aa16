"""RocketMQ's brokers are shards: queues, routes, and what is asked of one broker that lies in another."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from rocketmq_rig import RigClient, properties_of, sending, text_of
from rocketmq_shards_rig import BASE_PORT, Rig, body

from halfmoon.adapters.rocketmq.producers_elsewhere import ProducersElsewhere
from halfmoon.adapters.rocketmq.windows import Windows
from halfmoon.errors import BrokerError, Fault
from halfmoon.remoting.codes import Code
from halfmoon.remoting.message import BatchedMessage, decode_message_id, decode_stored, encode_batch
from halfmoon.server.plugin_host import Host
from halfmoon.server.workers.wanted import WantedTopics
from tests.adapters.kafka.shard_rig import SHARDS

HERE = (0, 2)
HERE_NAMES = ("shard-00", "shard-02")


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_a_brokers_queues_are_the_partitions_in_its_shard(rig: Rig) -> None:
    topic = rig.topic("orders", 10)
    for shard in HERE:
        client, indexes = rig.client(shard), rig.queues(topic, shard)
        for queue, index in enumerate(indexes):
            answer = client.produce("orders", b"%d" % index, queue)
            assert (answer.fields["queueId"], answer.fields["queueOffset"]) == (str(queue), "0")
            partition = rig.nodes[shard].topic("orders").partitions[index]
            assert partition.high_watermark == 1
            (message,) = client.read("orders", 0, queue)
            assert (message.queue_id, bytes(message.body)) == (queue, b"%d" % index)
            assert client.well(30, topic="orders", queueId=queue).fields["offset"] == "1"
            assert client.well(31, topic="orders", queueId=queue).fields["offset"] == "0"
        none = client.pull("orders", 0, len(indexes))
        assert (none.code, f"readQueueNums:[{len(indexes)}]" in (none.remark or "")) == (Code.INVALID_PARAMETER, True)


def test_the_id_of_a_message_names_the_broker_and_the_place(rig: Rig) -> None:
    topic = rig.topic("orders", 8)
    for shard in HERE:
        client = rig.client(shard)
        answer = client.produce("orders", b"m", 1)
        store, physical = decode_message_id(answer.fields["msgId"])
        assert store.port == BASE_PORT + shard
        assert physical >> 40 == rig.nodes[shard].topic("orders").partitions[rig.queues(topic, shard)[1]].queue_number
        assert client.well(33, offset=physical).body.tobytes().count(b"m") >= 1
        other = rig.client(2 - shard)
        assert other.ask(33, offset=physical).code == Code.QUERY_NOT_FOUND


def test_messages_are_found_by_key_in_their_broker(rig: Rig) -> None:
    rig.topic("orders", 8)
    client, other = rig.client(0), rig.client(2)
    client.produce("orders", b"m", 1, KEYS="k", UNIQ_KEY="u")
    found = client.well(12, topic="orders", key="k", maxNum=32, beginTimestamp=0, endTimestamp=1 << 60)
    assert b"k" in bytes(found.body)
    missing = other.ask(12, topic="orders", key="k", maxNum=32, beginTimestamp=0, endTimestamp=1 << 60)
    assert missing.code == Code.QUERY_NOT_FOUND


class TestRoutes:
    def test_a_topic_is_at_each_broker_that_has_queues_of_it(self, rig: Rig) -> None:
        topic = rig.topic("orders", 6)
        counts = {shard: len(rig.queues(topic, shard)) for shard in range(SHARDS)}
        assert sorted(counts.values()) == [1, 1, 2, 2]
        for shard in HERE:  # each name service answers for all
            route = body(rig.client(shard, names=True).well(105, topic="orders"))
            assert {each["brokerName"]: each["brokerAddrs"] for each in route["brokerDatas"]} == {
                f"shard-{number:02d}": {"0": f"127.0.0.1:{BASE_PORT + number}"} for number in range(SHARDS)
            }
            for kind in "readQueueNums", "writeQueueNums":
                assert {each["brokerName"]: each[kind] for each in route["queueDatas"]} == {
                    f"shard-{number:02d}": count for number, count in counts.items()
                }

    def test_one_that_has_none_is_not_named(self, rig: Rig) -> None:
        topic = rig.topic("orders", 1)
        (holder,) = [shard for shard in range(SHARDS) if rig.queues(topic, shard)]
        route = body(rig.client(0, names=True).well(105, topic="orders"))
        assert [each["brokerName"] for each in route["brokerDatas"]] == [f"shard-{holder:02d}"]
        assert [(each["brokerName"], each["readQueueNums"]) for each in route["queueDatas"]] == [
            (f"shard-{holder:02d}", 1)
        ]

    def test_a_broker_that_nobody_has_now_is_left_out(self, rig: Rig) -> None:
        rig.topic("orders", 4)
        del rig.addresses[3]
        route = body(rig.client(0, names=True).well(105, topic="orders"))
        assert [each["brokerName"] for each in route["brokerDatas"]] == ["shard-00", "shard-01", "shard-02"]
        rig.addresses.clear()
        assert rig.client(0, names=True).ask(105, topic="orders").code == Code.TOPIC_NOT_EXIST

    def test_the_cluster_has_all_brokers(self, rig: Rig) -> None:
        rig.addresses[1] = "other.example", 7
        info = body(rig.client(2, names=True).well(106))
        names = [f"shard-{number:02d}" for number in range(SHARDS)]
        assert info["clusterAddrTable"] == {"DefaultCluster": names}
        assert {name: data["brokerAddrs"]["0"] for name, data in info["brokerAddrTable"].items()} == {
            "shard-00": "127.0.0.1:10911", "shard-01": "other.example:7", "shard-02": "127.0.0.1:10913",
            "shard-03": "127.0.0.1:10914",
        }  # fmt: skip

    def test_a_topic_is_made_by_sending_to_any_of_them(self, rig: Rig) -> None:
        route = body(rig.client(0, names=True).well(105, topic="TBW102"))
        assert [(each["brokerName"], each["writeQueueNums"], each["perm"]) for each in route["queueDatas"]] == [
            (f"shard-{number:02d}", 8, 7) for number in range(SHARDS)
        ]


class TestOffsetsOutsideOfAQueue:
    """Another node may have the shard by now, and more of the queue. RocketMQ's client commits where it is moved to."""

    @pytest.fixture
    def doubts(self, rig: Rig) -> list[Callable[[bool], None]]:
        """To be told whether the shard was this node's. The queue has the offsets 4 and 5."""
        asked: list[Callable[[bool], None]] = []
        node = rig.servers[0].node
        assert node.shards is not None
        node.shards = node.shards._replace(confirm=asked.append)
        topic, client = rig.topic("orders", 4), rig.client(0)
        for at in range(6):
            client.produce("orders", b"%d" % at)
        partition = rig.nodes[0].topic("orders").partitions[rig.queues(topic, 0)[0]]
        rig.nodes[0].delete_records(partition, 4)
        rig.turns()
        return asked

    @pytest.mark.parametrize("code", [11, 361])
    @pytest.mark.parametrize(("offset", "corrected"), [(7, 6), (1 << 40, 6), (3, 4), (0, 4)])
    @pytest.mark.parametrize("certain", [True, False])
    def test_a_client_is_moved_once_that_is_certain(
        self, rig: Rig, doubts: list[Callable[[bool], None]], code: int, offset: int, corrected: int, certain: bool
    ) -> None:
        client = rig.client(0)
        client.send(code, **pulling(offset))
        assert client.answers() == []
        (told,) = doubts
        told(certain)
        rig.turns()
        (answer,) = client.answers()
        if certain:
            assert (answer.code, answer.fields["nextBeginOffset"]) == (Code.PULL_OFFSET_MOVED, str(corrected))
        else:
            assert (answer.code, dict(answer.fields)) == (Code.SYSTEM_BUSY, {})

    def test_nor_is_it_told_at_once_that_a_queue_is_empty(self, rig: Rig, doubts: list[Callable[[bool], None]]) -> None:
        rig.topic("empty", 4)
        client = rig.client(0)
        client.send(11, **pulling(5, topic="empty"))
        assert client.answers() == []
        doubts.pop()(False)
        rig.turns()
        assert [answer.code for answer in client.answers()] == [Code.SYSTEM_BUSY]

    @pytest.mark.pure
    def test_nor_where_a_queue_loses_its_start_while_it_is_read(
        self, rig: Rig, doubts: list[Callable[[bool], None]], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def gone(*_: object) -> None:
            raise BrokerError(Fault.OFFSET_OUT_OF_RANGE)

        monkeypatch.setattr(Windows, "batches", gone)
        client = rig.client(0)
        client.send(11, **pulling(5))
        assert client.answers() == []
        doubts.pop()(True)
        rig.turns()
        (answer,) = client.answers()
        assert (answer.code, answer.fields["nextBeginOffset"]) == (Code.PULL_OFFSET_MOVED, "4")

    def test_who_is_given_messages_or_waits_for_some_asks_nobody(
        self, rig: Rig, doubts: list[Callable[[bool], None]]
    ) -> None:
        client, other = rig.client(0), rig.client(0)
        assert [bytes(each.body) for each in client.read("orders", 4)] == [b"4", b"5"]
        assert client.pull("orders", 4, subscription="nothing").code == Code.PULL_RETRY_IMMEDIATELY
        assert client.pull("orders", 6).code == Code.PULL_NOT_FOUND
        client.send(11, **pulling(6, sysFlag=6, suspendTimeoutMillis=15_000))
        other.produce("orders", b"6")
        (answer,) = client.answers()
        assert [bytes(each.body) for each in decode_stored(answer.body)] == [b"6"]
        assert doubts == []


def pulling(offset: int, **more: object) -> dict[str, Any]:
    """The fields of a pull that brings its subscription and is not held."""
    fields: dict[str, Any] = {
        "consumerGroup": "readers", "topic": "orders", "queueId": 0, "queueOffset": offset, "maxMsgNums": 32,
        "sysFlag": 4, "subscription": "*", "expressionType": "TAG",
    }  # fmt: skip
    return fields | more


class TestQuestionsAboutQueues:
    def test_how_a_topic_stands(self, rig: Rig) -> None:
        topic = rig.topic("orders", 10)
        client = rig.client(2)
        client.produce("orders", b"m", 1)
        table = bytes(client.well(202, topic="orders").body).decode()
        queues = len(rig.queues(topic, 2))
        assert table.count('"brokerName":"shard-02"') == queues
        assert [f'"queueId":{queue},' in table for queue in range(queues + 1)] == [True] * queues + [False]
        queue_1 = table.split('"queueId":1,')[1]
        assert queue_1.index('"maxOffset":1') < queue_1.index("}", queue_1.index("}") + 1)

    def test_its_configuration(self, rig: Rig) -> None:
        topic = rig.topic("orders", 10)
        found = body(rig.client(2).well(351, topic="orders", lo=True))
        assert found["readQueueNums"] == found["writeQueueNums"] == len(rig.queues(topic, 2)) < 10

    def test_by_time(self, rig: Rig) -> None:
        topic = rig.topic("orders", 8)
        client = rig.client(2)
        client.produce("orders", b"m", 1)
        begun_ms = rig.clock.wall_ms()
        rig.clock.now_ms += 1_000
        client.produce("orders", b"m", 1)
        found = client.well(29, topic="orders", queueId=1, timestamp=begun_ms + 1)
        assert found.fields["offset"] == "1"
        assert client.well(32, topic="orders", queueId=1).fields["timestamp"] == str(begun_ms)
        assert client.well(32, topic="orders", queueId=0).fields["timestamp"] == "-1"
        assert client.ask(32, topic="orders", queueId=len(rig.queues(topic, 2))).code == Code.INVALID_PARAMETER

    def test_locks_are_of_queues_here(self, rig: Rig) -> None:
        topic = rig.topic("orders", 10)
        queues = len(rig.queues(topic, 2))
        wanted = [
            {"topic": "orders", "brokerName": name, "queueId": queue}
            for name in ("shard-00", "shard-02")
            for queue in range(10)
        ]
        asked = {"consumerGroup": "g", "clientId": "c1", "mqSet": wanted}
        held = body(rig.client(2).well(41, json.dumps(asked).encode()))["lockOKMQSet"]
        assert [(each["brokerName"], each["queueId"]) for each in held] == [("shard-02", at) for at in range(queues)]
        asked["clientId"] = "c2"
        assert body(rig.client(2).well(41, json.dumps(asked).encode()))["lockOKMQSet"] == []
        rig.client(2).well(42, json.dumps(asked | {"clientId": "c1"}).encode())
        assert len(body(rig.client(2).well(41, json.dumps(asked).encode()))["lockOKMQSet"]) == queues

    def test_queues_of_all_brokers_are_shared_out(self, rig: Rig) -> None:
        topic = rig.topic("orders", 6)
        for shard in HERE:
            for name in "c1", "c2":
                rig.client(shard).beat(name, g=[("orders", "*")])
        assigned = {}
        for name, shard in (("c1", 0), ("c2", 2)):  # a client asks any broker
            asked = {
                "topic": "orders", "consumerGroup": "g", "clientId": name, "strategyName": "AVG",
                "messageModel": "CLUSTERING",
            }  # fmt: skip
            found = body(rig.client(shard).well(400, json.dumps(asked).encode()))["messageQueueAssignments"]
            assigned[name] = [(each["messageQueue"]["brokerName"], each["messageQueue"]["queueId"]) for each in found]
        assert [len(queues) for queues in assigned.values()] == [3, 3]
        every = [
            (f"shard-{shard:02d}", queue) for shard in range(SHARDS) for queue in range(len(rig.queues(topic, shard)))
        ]
        assert sorted(assigned["c1"] + assigned["c2"]) == every


def test_a_topic_that_lies_here_as_a_whole_has_its_partitions_indexes(rig: Rig) -> None:
    queues = rig.servers[0].node.queues
    rig.nodes[0].create_topic("own", 3, {}, internal=True)
    own = rig.nodes[0].catalog.by_name["own"]
    assert queues.of(own) is own.partitions
    assert [queues.id_of(each) for each in own.partitions] == [0, 1, 2]


def test_queues_that_are_added_leave_the_others_as_they_are(rig: Rig) -> None:
    topic = rig.topic("orders", 3)
    first = {shard: rig.servers[shard].node.queues.of(rig.nodes[shard].topic("orders")) for shard in HERE}
    rig.change(lambda: rig.front.administration.add_partitions(rig.front.catalog.by_name["orders"], 10))
    for shard in HERE:
        node = rig.servers[shard].node
        grown = node.queues.of(rig.nodes[shard].topic("orders"))
        assert grown[: len(first[shard])] == first[shard]
        assert len(grown) > len(first[shard])
        assert [each.index for each in grown] == rig.queues(topic, shard)
        assert [node.queues.id_of(each) for each in grown] == list(range(len(grown)))
        assert {node.queues.id_of(each) for each in rig.nodes[shard].topic("orders").partitions} == {
            -1, *range(len(grown))
        }  # fmt: skip


def test_half_messages_wait_and_end_where_they_were_sent(rig: Rig) -> None:
    rig.topic("orders", 8)
    rig.topic("halfmoon.transactions", SHARDS)
    rig.topic("check.producers", SHARDS)
    for shard in HERE:
        client = rig.client(shard)
        client.beat(f"p{shard}", producers=["producers"])
        half = client.produce("orders", b"half", 1, TRAN_MSG="true", PGROUP="producers", UNIQ_KEY=f"u{shard}")
        assert half.fields["queueId"] == "1"
        assert client.read("orders", 0, 1) == []
        rig.pass_all(7_000)
        rig.pass_all(60_000)
        client.answers()
        asked = [command for command in client.told if command.code == 39]
        assert asked
        assert {command.fields["bname"] for command in asked} == {f"shard-{shard:02d}"}
        client.well(
            37, producerGroup="producers", tranStateTableOffset=0, commitLogOffset=0, commitOrRollback=8,
            fromTransactionCheck=False, msgId=f"u{shard}",
        )  # fmt: skip
        (message,) = client.read("orders", 0, 1)
        assert bytes(message.body) == b"half"
        assert properties_of(message)["REAL_QID"] == "1"


def orphaned(rig: Rig) -> None:
    """A half message waits in shard 0, whose producer is gone."""
    rig.topic("orders", 8)
    rig.topic("halfmoon.transactions", SHARDS)
    rig.topic("check.producers", SHARDS)
    dying = rig.client(0)
    dying.beat("dying", producers=["producers"])
    dying.produce("orders", b"half", 1, TRAN_MSG="true", PGROUP="producers", UNIQ_KEY="u")
    dying.close()


def questions(rig: Rig, client: RigClient) -> list[Any]:
    """That have come about half messages until a check later."""
    client.told.clear()
    rig.pass_all(31_000)
    client.answers()
    return [command for command in client.told if command.code == 39]


def test_a_producer_that_is_connected_to_another_shard_is_asked(rig: Rig) -> None:
    orphaned(rig)
    heir = rig.client(2)
    heir.beat("heir", producers=["producers"])
    (asked,) = questions(rig, heir)
    (message,) = decode_stored(asked.body)
    assert (message.topic, bytes(message.body)) == (b"orders", b"half")
    assert properties_of(message)["UNIQ_KEY"] == asked.fields["transactionId"] == "u"
    assert asked.fields["bname"] == "shard-00"
    # Who is connected to the shard itself is asked instead.
    near = rig.client(0)
    near.beat("near", producers=["producers"])
    assert len(questions(rig, near)) == 1
    assert questions(rig, heir) == []


@pytest.mark.parametrize("oneway", [True, False])
@pytest.mark.parametrize("broker", ["shard-00", "shard-02", "unknown", None])
def test_its_answer_ends_the_half_message_wherever_that_waits(rig: Rig, oneway: bool, broker: str | None) -> None:
    """`bname`: what the question has said, which old clients do not repeat. shard-02: that is who hears of it."""
    orphaned(rig)
    heir = rig.client(2)
    heir.beat("heir", producers=["producers"])
    (asked,) = questions(rig, heir)
    given = {} if broker is None else {"bname": broker}
    heir.send(
        37, oneway=oneway, producerGroup="producers", tranStateTableOffset=0, commitLogOffset=0, commitOrRollback=8,
        fromTransactionCheck=True, msgId=asked.fields["msgId"], **given,
    )  # fmt: skip
    rig.turns()
    found = rig.client(0).read("orders", 0, 1)
    assert [bytes(each.body) for each in found] == ([] if broker == "shard-02" else [b"half"])
    if not oneway:
        (answer,) = heir.answers()
        # Who does not say which broker tells all of them, and two shards cannot be reached.
        assert answer.code == (Code.SUCCESS if broker in HERE_NAMES else Code.SYSTEM_BUSY)


def test_a_shard_that_has_no_producers_any_more_is_not_asked_again(rig: Rig) -> None:
    orphaned(rig)
    heir = rig.client(2)
    heir.beat("heir", producers=["producers"])
    heir.close()
    elsewhere = rig.servers[0].node.producers_elsewhere
    assert elsewhere.has("producers")
    rig.pass_all(31_000)
    assert not elsewhere.has("producers")
    again = rig.client(2)
    again.beat("again", producers=["producers"])
    assert len(questions(rig, again)) == 1


def test_several_shards_with_producers_are_asked_in_turn(rig: Rig) -> None:
    class Port:
        def __init__(self) -> None:
            self.told: list[str] = []
            self.asked: list[int] = []
            self.without = {4}

        def tell(self, group: str) -> None:
            self.told.append(group)

        def ask(self, shard: int, group: str, messages: bytes, told: Callable[[bool], None]) -> None:
            self.asked.append(shard)
            told(shard not in self.without)

    now = [0]
    port = Port()
    elsewhere = ProducersElsewhere(port, 120_000, lambda: now[0])
    elsewhere.ask("g", b"m")
    assert port.asked == []
    for shard in (3, 4, 5):
        elsewhere.seen("g", shard)
    for _ in range(3):
        elsewhere.ask("g", b"m")
    assert port.asked == [3, 4, 5, 3]
    for when, told in (0, 1), (9_999, 1), (10_000, 2):
        now[0] = when
        elsewhere.tell("g")
        assert len(port.told) == told
    now[0] = 120_000
    assert not elsewhere.has("g")
    elsewhere.expire()
    assert not elsewhere._shards
    assert not elsewhere._told


def test_a_batch(rig: Rig) -> None:
    topic = rig.topic("orders", 8)
    client = rig.client(2)
    sent = [BatchedMessage(0, each, text_of(UNIQ_KEY=each.decode()).encode()) for each in (b"a", b"b")]
    answer = client.well(320, encode_batch(sent), **sending("orders", 1, "", m=True))
    assert len(answer.fields["msgId"].split(",")) == 2
    assert rig.nodes[2].topic("orders").partitions[rig.queues(topic, 2)[1]].high_watermark == 2


def test_an_end_that_comes_while_its_topic_is_made_waits(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients say it once, and do not wait for an answer."""
    wanted = WantedTopics(SHARDS)  # in a shard all are made a moment later
    monkeypatch.setattr(rig.nodes[0].kernel.administration, "_shared", wanted)
    monkeypatch.setattr(
        Host, "create_topic", lambda _, topic, configs, partitions: wanted.make(topic, partitions, configs)
    )
    rig.topic("orders", 8)
    rig.topic("check.producers", SHARDS)
    rig.catalog_changes.waits = True
    client = rig.client(0)
    client.produce("orders", b"half", 1, TRAN_MSG="true", PGROUP="producers", UNIQ_KEY="u")
    assert rig.nodes[0].kernel.catalog.topic("halfmoon.transactions") is None
    client.send(
        37, oneway=True, producerGroup="producers", tranStateTableOffset=0, commitLogOffset=0, commitOrRollback=8,
        fromTransactionCheck=False, msgId="u",
    )  # fmt: skip
    rig.catalog_changes.carry_out()
    rig.turns()
    (message,) = client.read("orders", 0, 1)
    assert bytes(message.body) == b"half"
