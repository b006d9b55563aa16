"""Groups of RocketMQ's consumers over shards: progress, members and what is handed back belong to the coordinator."""

from __future__ import annotations

import json
from collections.abc import Callable

import msgspec
import pytest
from rocketmq_rig import RigClient, properties_of, sending
from rocketmq_shards_rig import BASE_PORT, Rig, body

from halfmoon.adapters.rocketmq.coordinating import Coordinating
from halfmoon.cluster.messages import (
    AppendBatch,
    CommitProgress,
    ConsumerLeft,
    ConsumerSeen,
    Done,
    GroupsConsuming,
    QueueEnds,
    ReadProgress,
)
from halfmoon.core.catalog.topics import Topic
from halfmoon.errors import BrokerError, Fault
from halfmoon.remoting.codes import Code
from halfmoon.remoting.message import decode_message_id, decode_stored
from halfmoon.schema import control
from halfmoon.schema.group_topics import retry_topic
from halfmoon.services.groups.messages import Join, JoinResult
from halfmoon.services.groups.names import GroupNames
from halfmoon.services.groups.service import GroupService
from tests.adapters.kafka.shard_rig import SHARDS, name_in

HERE, THERE, LOST = name_in(0), name_in(2), name_in(1)
"""Groups: that the broker of shard 0 coordinates, that of shard 2, and nobody who can be reached."""


@pytest.fixture
def rig() -> Rig:
    rig = Rig()
    rig.topic("orders", 8)
    return rig


@pytest.fixture
def client(rig: Rig) -> RigClient:
    return rig.client(0)


def committed(rig: Rig, shard: int, group: str) -> dict[int, int]:
    """Partition of `orders` → offset, as the shard's own table has it."""
    number = rig.front.catalog.by_name["orders"].number
    found = rig.nodes[shard].services.get(GroupService).all_offsets.get(group, {})
    return {index: each.offset for (topic, index), each in found.items() if topic == number}


def orders(rig: Rig) -> Topic:
    return rig.front.catalog.by_name["orders"]


def update(client: RigClient, group: str, offset: int, queue: int = 1) -> int:
    return client.ask(15, consumerGroup=group, topic="orders", queueId=queue, commitOffset=offset).code


def query(client: RigClient, group: str, queue: int = 1) -> str | int:
    answer = client.ask(14, consumerGroup=group, topic="orders", queueId=queue, setZeroIfNotFound=False)
    return answer.fields["offset"] if answer.code == 0 else answer.code


def join(rig: Rig, shard: int, group: str) -> JoinResult:
    """A member that speaks Kafka's protocol."""
    joined: list[JoinResult] = []
    service = rig.nodes[shard].services.get(GroupService)
    asked = Join(group, "", None, "k", "/h", 10_000, 10_000, "consumer", (("range", b""),), require_known_member=False)
    service.join(asked, joined.append)
    rig.turns()
    if not joined:
        rig.pass_all(4_000)
    return joined[0]


class TestProgress:
    @pytest.mark.parametrize(("group", "coordinator"), [(HERE, 0), (THERE, 2)])
    def test_it_is_committed_at_the_coordinator(
        self, rig: Rig, client: RigClient, group: str, coordinator: int
    ) -> None:
        index = rig.queues(orders(rig), 0)[1]
        assert update(client, group, 7) == 0
        assert committed(rig, coordinator, group) == {index: 7}
        assert committed(rig, 2 - coordinator, group) == {}
        assert query(client, group) == "7"
        assert query(client, group, 0) == Code.QUERY_NOT_FOUND

    def test_each_broker_has_its_queues(self, rig: Rig) -> None:
        for shard in (0, 2):
            assert update(rig.client(shard), THERE, 10 + shard) == 0
        assert [query(rig.client(shard), THERE) for shard in (0, 2)] == ["10", "12"]
        assert sorted(committed(rig, 2, THERE).values()) == [10, 12]

    def test_what_pulls_and_one_way_requests_say_comes_within_a_second(self, rig: Rig, client: RigClient) -> None:
        client.pull("orders", 0, 1, consumerGroup=THERE, sysFlag=5, commitOffset=3)
        client.send(15, consumerGroup=THERE, topic="orders", queueId=0, commitOffset=4, oneway=True)
        assert rig.asking.asked["CommitProgress"] == 0
        assert query(client, THERE) == "3", "what is noted here counts here"
        rig.pass_all(1_000)
        assert committed(rig, 2, THERE) == dict(zip(rig.queues(orders(rig), 0), (4, 3), strict=True))
        rig.pass_all(10_000)
        assert rig.asking.asked["CommitProgress"] == 1

    def test_what_is_committed_already_is_not_written_again(self, rig: Rig, client: RigClient) -> None:
        update(client, THERE, 7)
        end = rig.nodes[2].log.end
        assert update(client, THERE, 7) == 0
        assert rig.nodes[2].log.end == end
        assert update(client, THERE, 6) == 0
        assert rig.nodes[2].log.end > end

    def test_a_coordinator_that_cannot_be_reached_hears_of_it_later(self, rig: Rig, client: RigClient) -> None:
        rig.asking.loses = {CommitProgress}
        assert update(client, THERE, 7) == Code.SYSTEM_BUSY
        assert query(client, THERE) == "7"
        rig.pass_all(1_000)
        assert committed(rig, 2, THERE) == {}
        rig.asking.loses = set()
        rig.pass_all(1_000)
        assert list(committed(rig, 2, THERE).values()) == [7]
        assert query(rig.client(0), THERE) == "7"

    @pytest.mark.parametrize("stops", [True, False])
    @pytest.mark.parametrize("is_known", [True, False])
    def test_a_shard_that_another_node_has_by_now_takes_no_progress_back(
        self, rig: Rig, client: RigClient, stops: bool, is_known: bool
    ) -> None:
        """It was cut off from the coordinator, and does not know yet that it was lost. The coordinator knows it from
        the catalog, or from the new owner."""
        index = rig.queues(orders(rig), 0)[1]
        rig.asking.loses = {CommitProgress}
        assert update(client, THERE, 7) == Code.SYSTEM_BUSY
        if stops:
            rig.servers[0].node.stop()
        rig.asking.loses = set()
        epoch = rig.nodes[0].kernel.generation
        newer = CommitProgress(THERE, [(orders(rig).number, index, 20)], reset=False, shard=0, epoch=epoch + 1)
        if is_known:
            rig.change(lambda: rig.changes.append_control(control.ShardStarted(0, epoch + 1)))
            newer = msgspec.structs.replace(newer, shard=-1, epoch=-1)  # as a node of the last version says it
        told: list[object] = []
        rig.asking.ask(2, newer, told.append)
        rig.turns()
        assert told == [Done()]
        rig.pass_all(2_000)
        assert committed(rig, 2, THERE) == {index: 20}
        asked = rig.asking.asked["CommitProgress"]
        rig.pass_all(5_000)
        assert rig.asking.asked["CommitProgress"] == asked, "nothing is sent again"
        if not stops:
            assert update(client, THERE, 8) == Code.NOT_LEADER_FOR_QUEUE
            assert committed(rig, 2, THERE) == {index: 20}

    def test_what_is_noted_when_a_shard_is_closed_is_sent_once_more(self, rig: Rig, client: RigClient) -> None:
        index = rig.queues(orders(rig), 0)[1]
        client.send(15, consumerGroup=THERE, topic="orders", queueId=1, commitOffset=4, oneway=True)
        rig.servers[0].node.stop()
        rig.turns()
        assert committed(rig, 2, THERE) == {index: 4}
        rig.asking.loses = {CommitProgress}
        client.send(15, consumerGroup=THERE, topic="orders", queueId=1, commitOffset=5, oneway=True)
        rig.pass_all(5_000)
        assert rig.asking.asked["CommitProgress"] == 1

    def test_one_that_nobody_has(self, client: RigClient) -> None:
        assert query(client, LOST) == Code.SYSTEM_BUSY
        assert update(client, LOST, 7) == Code.SYSTEM_BUSY
        assert query(client, LOST) == "7"

    def test_an_answer_that_was_lost(self, rig: Rig, client: RigClient) -> None:
        rig.asking.loses_answers = {CommitProgress}
        assert update(client, THERE, 7) == Code.SYSTEM_BUSY
        assert list(committed(rig, 2, THERE).values()) == [7]
        rig.asking.loses_answers = set()
        rig.pass_all(1_000)
        assert rig.asking.asked["CommitProgress"] == 2
        rig.pass_all(5_000)
        assert rig.asking.asked["CommitProgress"] == 2

    def test_what_was_not_heard_does_not_come_behind_what_is_newer(self, rig: Rig, client: RigClient) -> None:
        rig.asking.waits = True
        client.send(15, consumerGroup=THERE, topic="orders", queueId=1, commitOffset=7)
        client.send(15, consumerGroup=THERE, topic="orders", queueId=1, commitOffset=8)
        assert client.answers() == []
        assert rig.asking.asked["CommitProgress"] == 1, "one at a time"
        rig.asking.loses = {CommitProgress}
        rig.asking.deliver()
        rig.turns()
        assert [each.code for each in client.answers()] == [Code.SYSTEM_BUSY] * 2
        rig.asking.loses = set()
        rig.pass_all(1_000)
        assert list(committed(rig, 2, THERE).values()) == [8]

    def test_it_is_answered_when_it_is_durable(self, rig: Rig, client: RigClient) -> None:
        client.feed(client.encode(15, consumerGroup=THERE, topic="orders", queueId=1, commitOffset=7))
        rig.loop.run()
        assert client.answers() == []
        rig.turns()
        assert [each.code for each in client.answers()] == [0]

    def test_members_of_kafka_keep_it(self, rig: Rig, client: RigClient) -> None:
        assert join(rig, 2, THERE).fault is None
        answer = client.ask(15, consumerGroup=THERE, topic="orders", queueId=1, commitOffset=7)
        assert (answer.code, "speak Kafka's protocol" in (answer.remark or "")) == (Code.SYSTEM_ERROR, True)
        client.pull("orders", 0, 1, consumerGroup=THERE, sysFlag=5, commitOffset=3)
        rig.pass_all(1_000)
        assert committed(rig, 2, THERE) == {}
        assert query(client, THERE) == Code.QUERY_NOT_FOUND, "it is forgotten here, too"

    def test_a_reset(self, rig: Rig, client: RigClient) -> None:
        for queue in range(2):
            client.produce("orders", b"m", queue)
            client.produce("orders", b"m", queue)
            update(client, THERE, 2, queue)
        client.beat("c", **{THERE: [("orders", "*")]})
        client.send(15, consumerGroup=THERE, topic="orders", queueId=1, commitOffset=1, oneway=True)
        table = bytes(client.well(222, topic="orders", group=THERE, timestamp=0, isForce=True).body).decode()
        rows = [f'{{"brokerName":"shard-00","queueId":{queue},"topic":"orders"}}:0' for queue in range(2)]
        assert table == '{"offsetTable":{' + ",".join(rows) + "}}"
        assert list(committed(rig, 2, THERE).values()) == [0, 0]
        assert update(client, THERE, 2) == 0, "told that it was reset"
        rig.pass_all(1_000)
        assert list(committed(rig, 2, THERE).values()) == [0, 0]
        moved = client.pull("orders", 2, 1, consumerGroup=THERE)
        assert (moved.code, moved.fields["nextBeginOffset"]) == (Code.PULL_OFFSET_MOVED, "0")

    def test_a_reset_that_nobody_hears(self, rig: Rig, client: RigClient) -> None:
        client.produce("orders", b"m", 1)
        update(client, THERE, 1)
        client.beat("c", **{THERE: [("orders", "*")]})
        rig.asking.loses = {CommitProgress}
        asked = {"topic": "orders", "group": THERE, "timestamp": 0, "isForce": True}
        assert client.ask(222, **asked).code == Code.SYSTEM_BUSY
        rig.asking.loses = set()
        assert client.pull("orders", 1, 1, consumerGroup=THERE).code == Code.PULL_NOT_FOUND

    def test_a_reset_stands_behind_what_is_on_its_way(self, rig: Rig, client: RigClient) -> None:
        """… and what was on its way is not sent again behind it."""
        for _ in range(2):
            client.produce("orders", b"m", 1)
        rig.asking.waits = True
        client.send(15, consumerGroup=THERE, topic="orders", queueId=1, commitOffset=2)
        client.send(222, topic="orders", group=THERE, timestamp=0, isForce=True, queueId=1, offset=1)
        rig.asking.loses_answers = {CommitProgress}
        rig.asking.deliver()
        rig.turns()
        rig.asking.loses_answers = set()
        rig.pass_all(2_000)
        assert list(committed(rig, 2, THERE).values()) == [1]

    def test_resetting_where_no_queue_is(self, rig: Rig) -> None:
        topic = rig.topic("small", 1)
        elsewhere = next(shard for shard in (0, 2) if not rig.queues(topic, shard))
        answer = rig.client(elsewhere).well(222, topic="small", group=THERE, timestamp=0, isForce=True)
        assert bytes(answer.body) == b'{"offsetTable":{}}'

    def test_what_is_open_goes_when_the_process_stops(self, rig: Rig, client: RigClient) -> None:
        client.send(15, consumerGroup=THERE, topic="orders", queueId=1, commitOffset=7, oneway=True)
        rig.servers[0].node.stop()
        assert list(committed(rig, 2, THERE).values()) == [7]


class TestMembers:
    def others(self, rig: Rig, shard: int) -> GroupNames:
        return rig.nodes[shard].services.get(GroupNames)

    def test_the_coordinator_hears_of_consumers_elsewhere(self, rig: Rig, client: RigClient) -> None:
        assert client.beat("c1", **{THERE: [("orders", "*")]}).code == 0
        names = self.others(rig, 2)
        assert names.other_protocol.has_members(THERE)
        (member,) = names.other_protocol.members(THERE)
        assert (member.member_id, member.client_host) == ("c1", "/127.0.0.1")
        assert list(names.other_protocol.groups()) == [THERE]
        assert join(rig, 2, THERE).fault is Fault.INCONSISTENT_GROUP_PROTOCOL

    def test_one_that_is_connected_to_both_is_one(self, rig: Rig, client: RigClient) -> None:
        other = rig.client(2)
        for each in (client, other):
            each.beat("c1", **{THERE: [("orders", "*")]})
        names = self.others(rig, 2)
        assert [each.member_id for each in names.other_protocol.members(THERE)] == ["c1"]
        other.close()
        assert names.other_protocol.has_members(THERE)

    @pytest.mark.parametrize("how", ["closes", "says so"])
    def test_it_hears_when_they_leave(self, rig: Rig, client: RigClient, how: str) -> None:
        client.beat("c1", **{THERE: [("orders", "*")]})
        client.send(15, consumerGroup=THERE, topic="orders", queueId=1, commitOffset=7, oneway=True)
        if how == "closes":
            client.close()
        else:
            client.well(35, clientID="c1", consumerGroup=THERE)
        assert not self.others(rig, 2).other_protocol.has_members(THERE)
        assert list(committed(rig, 2, THERE).values()) == [7], "what they have consumed comes first"
        assert join(rig, 2, THERE).fault is None

    def test_one_of_two_connections_of_a_client(self, rig: Rig, client: RigClient) -> None:
        other = rig.client(0)
        for each in (client, other):
            each.beat("c1", **{THERE: [("orders", "*")]})
        other.close()
        assert self.others(rig, 2).other_protocol.has_members(THERE)
        client.close()
        assert not self.others(rig, 2).other_protocol.has_members(THERE)

    def test_who_is_not_heard_of_is_forgotten(self, rig: Rig, client: RigClient) -> None:
        client.beat("c1", **{THERE: [("orders", "*")]})
        rig.asking.loses = {ConsumerLeft}
        client.close()
        names = self.others(rig, 2)
        rig.clock.now_ms += 119_000
        assert names.other_protocol.has_members(THERE)
        rig.clock.now_ms += 1_000
        assert not names.other_protocol.has_members(THERE)
        assert not list(names.other_protocol.groups())
        rig.pass_all(10_000)
        assert not rig.servers[2].node.elsewhere._groups

    def test_members_of_kafka_keep_them_out(self, rig: Rig, client: RigClient) -> None:
        join(rig, 2, THERE)
        answer = client.beat("c1", **{THERE: [("orders", "*")], HERE: [("orders", "*")]})
        assert (answer.code, "speak Kafka's protocol" in (answer.remark or "")) == (Code.SYSTEM_ERROR, True)
        assert not rig.servers[0].node.members.consumers

    def test_a_coordinator_that_cannot_be_reached_keeps_nobody_out(self, rig: Rig, client: RigClient) -> None:
        assert client.beat("c1", **{LOST: [("orders", "*")]}).code == 0
        found = body(client.well(38, consumerGroup=LOST))
        assert found == {"consumerIdList": ["c1"]}

    def test_a_heartbeat_waits_for_its_coordinators(self, rig: Rig, client: RigClient) -> None:
        rig.asking.waits = True
        client.feed(
            client.encode(34, json.dumps({
                "clientID": "c1", "producerDataSet": [{"groupName": "p"}],
                "consumerDataSet": [{"groupName": THERE, "subscriptionDataSet": [{"topic": "orders"}]}],
            }).encode())
        )  # fmt: skip
        rig.turns()
        node = rig.servers[0].node
        assert (client.answers(), node.members.consumers, node.members.has_producers("p")) == ([], {}, False)
        rig.asking.deliver()
        rig.turns()
        assert [each.code for each in client.answers()] == [0]
        assert node.members.has_consumer(THERE, "c1")
        assert node.members.has_producers("p")

    def test_a_client_that_is_gone_by_then_is_no_member(self, rig: Rig, client: RigClient) -> None:
        rig.asking.waits = True
        beat = {
            "clientID": "c1",
            "consumerDataSet": [{"groupName": THERE, "subscriptionDataSet": [{"topic": "orders"}]}],
        }
        client.feed(client.encode(34, json.dumps(beat).encode()))
        client.close()
        rig.asking.deliver()
        rig.turns()
        assert not rig.servers[0].node.members.consumers

    def test_each_broker_lists_those_that_are_connected_to_it(self, rig: Rig, client: RigClient) -> None:
        other = rig.client(2)
        client.beat("c1", **{THERE: [("orders", "*")]})
        assert other.ask(38, consumerGroup=THERE).code == Code.SYSTEM_ERROR
        for each in (client, other):
            each.beat("c1", **{THERE: [("orders", "*")]})
            assert body(each.well(38, consumerGroup=THERE)) == {"consumerIdList": ["c1"]}


class TestHandingBack:
    @pytest.fixture
    def handed(self, rig: Rig, client: RigClient) -> Callable[[str], int]:
        client.produce("orders", b"m", 1, UNIQ_KEY="u", KEYS="k")
        (message,) = client.read("orders", 0, 1)

        def hand_back(group: str) -> int:
            asked = {"group": group, "offset": message.physical_offset, "delayLevel": 1, "maxReconsumeTimes": 16}
            return client.ask(36, **asked).code

        return hand_back

    def again(self, rig: Rig, group: str) -> list[dict[str, str]]:
        """Properties of what comes again, at the coordinator."""
        rig.pass_all(1_000)
        rig.pass_all(1_000)
        found = rig.client(2).pull(f"%RETRY%{group}", consumerGroup=group)
        return [properties_of(each) for each in decode_stored(found.body)]

    def test_it_comes_again_at_the_coordinator(self, rig: Rig, handed: Callable[[str], int]) -> None:
        assert handed(THERE) == 0
        assert rig.shared.placements[rig.front.catalog.by_name[retry_topic(THERE)].number] == bytes([2])
        (message,) = self.again(rig, THERE)
        assert (message["RETRY_TOPIC"], message["KEYS"], message["UNIQ_KEY"]) == ("orders", "k", "u")
        store, physical = decode_message_id(message["ORIGIN_MESSAGE_ID"])
        assert store.port == BASE_PORT
        shown = rig.client(0).well(33, offset=physical)
        (origin,) = decode_stored(shown.body)
        assert bytes(origin.body) == b"m"
        route = body(rig.client(0, names=True).well(105, topic=f"%RETRY%{THERE}"))
        assert [each["brokerName"] for each in route["brokerDatas"]] == ["shard-02"]

    def test_it_is_the_same_when_that_is_here(self, rig: Rig, handed: Callable[[str], int]) -> None:
        assert handed(HERE) == 0
        assert rig.asking.asked["AppendBatch"] == 0
        rig.pass_all(2_000)
        assert len(rig.client(0).read(f"%RETRY%{HERE}", consumerGroup=HERE)) == 1

    def test_once_however_often_it_is_said(self, rig: Rig, handed: Callable[[str], int]) -> None:
        rig.asking.loses_answers = {AppendBatch}
        assert handed(THERE) == Code.SYSTEM_BUSY
        rig.asking.loses_answers = set()
        assert handed(THERE) == handed(THERE) == 0
        assert len(self.again(rig, THERE)) == 1

    def test_nobody_hears_it(self, rig: Rig, handed: Callable[[str], int]) -> None:
        rig.asking.loses = {AppendBatch}
        assert handed(THERE) == Code.SYSTEM_BUSY
        assert self.again(rig, THERE) == []

    def test_the_retry_topic_is_made_first(self, rig: Rig, client: RigClient, handed: Callable[[str], int]) -> None:
        rig.catalog_changes.waits = True
        client.beat("c1", **{THERE: [("orders", "*")]})
        assert rig.front.catalog.topic(retry_topic(THERE)) is None
        (message,) = client.read("orders", 0, 1)
        client.feed(client.encode(36, group=THERE, offset=message.physical_offset, delayLevel=1))
        rig.turns()
        assert client.answers() == []
        rig.catalog_changes.carry_out()
        rig.turns()
        assert [each.code for each in client.answers()] == [0]

    def test_it_cannot_be_made(self, rig: Rig, handed: Callable[[str], int]) -> None:
        rig.catalog_changes.fails = BrokerError(Fault.COORDINATOR_NOT_AVAILABLE, "no catalog")
        assert handed(THERE) == Code.SYSTEM_BUSY
        assert rig.front.catalog.topic(retry_topic(THERE)) is None

    def test_it_is_made_when_that_is_possible_again(
        self, rig: Rig, client: RigClient, caplog: pytest.LogCaptureFixture
    ) -> None:
        rig.catalog_changes.fails = BrokerError(Fault.COORDINATOR_NOT_AVAILABLE, "no catalog")
        client.beat("c1", **{THERE: [("orders", "*")]})
        rig.pass_all(10_000)
        assert caplog.text.count("event=group_topic_not_created") == 1
        rig.catalog_changes.fails = None
        rig.pass_all(10_000)
        assert rig.front.catalog.topic(retry_topic(THERE)) is not None

    def test_a_shard_that_has_not_heard_of_the_topic_yet(self, rig: Rig, handed: Callable[[str], int]) -> None:
        appending = rig.asking.answers[2][AppendBatch]
        refusals = [BrokerError(Fault.COORDINATOR_LOAD_IN_PROGRESS)] * 2

        def answer(question: AppendBatch, told: Callable[[object], None]) -> None:
            if refusals:
                told(refusals.pop())
            else:
                appending(question, told)

        rig.asking.answers[2][AppendBatch] = answer
        client = rig.client(0)
        (message,) = client.read("orders", 0, 1)
        client.send(36, group=THERE, offset=message.physical_offset, delayLevel=1)
        assert client.answers() == []
        rig.pass_all(100)
        rig.pass_all(100)
        assert [each.code for each in client.answers()] == [0]
        assert rig.asking.asked["AppendBatch"] == 3
        refusals[:] = [BrokerError(Fault.COORDINATOR_LOAD_IN_PROGRESS)] * 100
        client.send(36, group=THERE, offset=message.physical_offset, delayLevel=1)
        for _ in range(20):
            rig.pass_all(100)
        assert [each.code for each in client.answers()] == [Code.SYSTEM_BUSY]


class TestInOrder:
    """A group that consumes in order has tried often enough where a message was: what it sends back is given up."""

    def send_back(self, rig: Rig) -> str:
        """As clients do that hand a message back by sending it; the topic in which it is."""
        rig.client(2).send(310, b"m", **sending(f"%RETRY%{THERE}", 0, "", j=2, l=16))
        rig.pass_all(60_000)
        rig.pass_all(60_000)
        dead = rig.nodes[2].catalog.topic(f"dlq.{THERE}")
        return "dlq" if dead is not None and any(each.high_watermark for each in dead.here()) else "retry"

    def lock(self, client: RigClient, code: int = 41, name: str = "shard-00") -> None:
        wanted = [{"topic": "orders", "brokerName": name, "queueId": 1}]
        client.well(code, json.dumps({"consumerGroup": THERE, "clientId": "c", "mqSet": wanted}).encode())

    @pytest.fixture
    def rig(self, rig: Rig) -> Rig:
        rig.topic(f"dlq.{THERE}", SHARDS)
        rig.client(0).beat("c", **{THERE: [("orders", "*")]})
        return rig

    def test_the_coordinator_knows_of_locks_elsewhere(self, rig: Rig) -> None:
        self.lock(rig.client(0))
        assert self.send_back(rig) == "dlq"

    def test_without_any(self, rig: Rig) -> None:
        self.lock(rig.client(0), name="other")
        assert self.send_back(rig) == "retry"

    @pytest.mark.parametrize("how", ["unlocked", "left", "expired"])
    def test_until_they_are_given_up(self, rig: Rig, how: str) -> None:
        client = rig.client(0)
        client.beat("c", **{THERE: [("orders", "*")]})
        self.lock(client)
        if how == "unlocked":
            self.lock(client, 42)
        elif how == "left":
            client.well(35, clientID="c", consumerGroup=THERE)
        else:
            rig.pass_all(60_000)
            assert not rig.servers[2].node.elsewhere._in_order
        assert self.send_back(rig) == "retry"


class TestOperators:
    def test_how_far_a_group_is_in_all_queues(self, rig: Rig, client: RigClient) -> None:
        """As its coordinator answers."""
        other = rig.client(2)
        for each, offset in ((client, 1), (other, 2)):
            for _ in range(3):
                each.produce("orders", b"m", 1)
            update(each, THERE, offset)
        rig.asking.answers |= {shard: {QueueEnds: _nothing_there} for shard in (1, 3)}
        table = bytes(other.well(208, consumerGroup=THERE, topic="orders").body).decode()
        for shard, offset in ((0, 1), (2, 2)):
            queue = f'{{"brokerName":"shard-{shard:02d}","queueId":1,"topic":"orders"}}:'
            assert f'{queue}{{"brokerOffset":3,"consumerOffset":{offset},"lastTimestamp":' in table
        queues = sum(len(rig.queues(orders(rig), shard)) for shard in (0, 2))
        assert table.count('"queueId"') == queues
        assert bytes(other.well(208, consumerGroup=THERE).body).decode() == table
        own = bytes(client.well(208, consumerGroup=THERE).body).decode()
        assert "shard-02" not in own
        assert own.count('"queueId"') == len(rig.queues(orders(rig), 0))

    def test_it_is_not_told_while_a_broker_cannot_be_reached(self, client: RigClient) -> None:
        assert client.ask(208, consumerGroup=HERE, topic="orders").code == Code.SYSTEM_BUSY
        assert client.ask(208, consumerGroup=LOST, topic="orders").code == Code.SYSTEM_BUSY

    def test_who_consumes_a_topic(self, rig: Rig, client: RigClient) -> None:
        update(client, THERE, 1)
        update(client, HERE, 1)
        client.beat("c", member=[("orders", "*")])
        assert client.ask(300, topic="orders").code == Code.SYSTEM_BUSY
        rig.asking.answers |= {shard: {GroupsConsuming: _nobody_there} for shard in (1, 3)}
        assert body(client.well(300, topic="orders")) == {"groupList": sorted([HERE, THERE, "member"])}
        assert body(rig.client(2).well(300, topic="orders")) == {"groupList": sorted([HERE, THERE])}


def _nothing_there(question: QueueEnds, told: Callable[[object], None]) -> None:
    from halfmoon.cluster.messages import QueueEndsFound

    told(QueueEndsFound([]))


def _nobody_there(question: GroupsConsuming, told: Callable[[object], None]) -> None:
    from halfmoon.cluster.messages import GroupsFound

    told(GroupsFound([]))


class TestAnswers:
    """What a shard answers that knows less, or more, than who asks."""

    @pytest.fixture
    def coordinating(self, rig: Rig) -> Coordinating:
        node, soon = rig.servers[2].node, rig.loop.call_soon
        return Coordinating(node, lambda work, then: then(work(), None), soon, lambda *_: None)

    def test_topics_and_partitions_that_are_not_known_yet(self, rig: Rig, coordinating: Coordinating) -> None:
        number = orders(rig).number
        for place in ((number + 1, 0), (number, 8)):
            with pytest.raises(BrokerError) as refused:
                coordinating.commit("g", [(number, 0, 5), (*place, 5)], reset=False)
            assert refused.value.fault is Fault.COORDINATOR_LOAD_IN_PROGRESS
            with pytest.raises(BrokerError) as refused:
                coordinating.append(*place, b"", lambda stored: None)
            assert refused.value.fault is Fault.COORDINATOR_LOAD_IN_PROGRESS
        assert committed(rig, 2, "g") == {}

    def test_topics_that_are_gone(self, rig: Rig, coordinating: Coordinating) -> None:
        number = orders(rig).number
        rig.topic("more", 4)
        rig.change(lambda: rig.delete(orders(rig)))
        coordinating.commit("g", [(number, 0, 5), (number + 1, 0, 6)], reset=False)
        assert coordinating.committed("g", None) == [(number + 1, 0, 6)]
        assert coordinating.ends([(number, 0, 5)]) == []
        with pytest.raises(BrokerError) as refused:
            coordinating.append(number, 0, b"", lambda stored: None)
        assert refused.value.fault is Fault.UNKNOWN_TOPIC_OR_PARTITION

    def test_queues_of_others(self, rig: Rig, coordinating: Coordinating) -> None:
        (index, *_) = rig.queues(orders(rig), 0)
        with pytest.raises(BrokerError) as refused:
            coordinating.append(orders(rig).number, index, b"", lambda stored: None)
        assert refused.value.fault is Fault.NOT_LEADER_OR_FOLLOWER
        assert coordinating.ends([(orders(rig).number, index, 5)]) == []

    def test_a_batch_that_is_none(self, rig: Rig) -> None:
        (index, *_) = rig.queues(orders(rig), 2)
        told: list[object] = []
        rig.asking.ask(2, AppendBatch(orders(rig).number, index, b"nothing"), told.append)
        (error,) = told
        assert isinstance(error, BrokerError)
        assert error.fault is Fault.INVALID_RECORD

    def test_progress_is_read_where_it_is_asked_for(self, rig: Rig, coordinating: Coordinating) -> None:
        number = orders(rig).number
        coordinating.commit("g", [(number, index, index) for index in range(4)], reset=False)
        assert coordinating.committed("g", [(number, 2), (number, 7)]) == [(number, 2, 2)]
        told: list[object] = []
        rig.asking.ask(2, ReadProgress("g", None), told.append)
        assert told == [], "it is not durable yet"
        rig.turns()
        assert len(told) == 1

    def test_seen_twice_is_seen_once(self, rig: Rig) -> None:
        for _ in range(2):
            rig.asking.ask(2, ConsumerSeen(0, "g", "c", "h"), lambda _: None)
        assert rig.servers[2].node.elsewhere.of("g") == {"c": "h"}
        for _ in range(2):
            rig.asking.ask(2, ConsumerLeft(0, "g", "c"), lambda _: None)
        assert rig.servers[2].node.elsewhere.of("g") == {}
        assert SHARDS > 2
