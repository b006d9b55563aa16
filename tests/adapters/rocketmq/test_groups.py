"""Requests 14, 15, 34, 35, 38, 41, 42, 400, and 40 to the clients: members of groups, their progress, their locks."""

from __future__ import annotations

import json
import logging

import pytest
from rocketmq_rig import Rig, RigClient

from halfmoon.adapters.rocketmq.registry import MOST_JSON_OBJECTS
from halfmoon.config.listener_settings import RocketmqListener
from halfmoon.core.records.batches import build_batch
from halfmoon.errors import BrokerError, Fault
from halfmoon.remoting.codes import Code
from halfmoon.services.groups.messages import Join, JoinResult

IDS_CHANGED = 40


def ids(client: RigClient, group: str = "g") -> list[str]:
    return list(json.loads(bytes(client.well(38, consumerGroup=group).body))["consumerIdList"])


def told(client: RigClient) -> list[str]:
    """The groups that the client was told of since the last time."""
    assert client.answers() == []
    found = [command.fields["consumerGroup"] for command in client.told if command.code == IDS_CHANGED]
    client.told.clear()
    return found


class TestMembers:
    def test_everybody_in_a_group_is_told_of_who_comes_and_goes(self) -> None:
        rig = Rig()
        first, second = rig.client(), rig.client()
        first.beat("c1", g=[("orders", "*")])
        assert told(first) == ["g"]
        second.beat("c2", g=[("orders", "*")])
        assert (told(first), told(second), ids(first)) == (["g"], ["g"], ["c1", "c2"])
        second.well(35, clientID="c2", consumerGroup="g", producerGroup="p")
        assert (told(first), told(second), ids(first)) == (["g"], [], ["c1"])

    def test_a_heartbeat_that_says_nothing_new_disturbs_nobody(self) -> None:
        rig = Rig()
        client = rig.client()
        client.beat(g=[("orders", "*")])
        told(client)
        client.beat(g=[("orders", "*")])
        assert told(client) == []
        client.beat(g=[("orders", "a", 2)])
        assert told(client) == ["g"]
        client.beat(g=[("orders", "a", 2), ("other", "*")])
        assert told(client) == ["g"]
        client.beat(g=[("other", "*")])
        assert told(client) == ["g"]

    def test_a_closed_connection_is_a_member_no_more(self) -> None:
        rig = Rig()
        first, second = rig.client(), rig.client()
        first.beat("c1", g=[("orders", "*")])
        second.beat("c2", g=[("orders", "*")])
        told(first)
        second.close()
        assert (told(first), ids(first)) == (["g"], ["c1"])
        first.close()
        answer = rig.client().ask(38, consumerGroup="g")
        assert (answer.code, answer.remark) == (Code.SYSTEM_ERROR, "no consumer for this group, g")

    def test_a_silent_client_is_dropped_after_two_minutes(self) -> None:
        rig = Rig()
        client = rig.client()
        client.beat(producers=["p"])
        for _ in range(11):
            rig.pass_time(10_000)
        assert not client.transport.closed
        rig.pass_time(10_000)
        assert client.transport.closed
        client.close()
        assert not rig.node.members.has_producers("p")

    def test_how_long_a_client_may_be_silent_is_a_setting(self, caplog: pytest.LogCaptureFixture) -> None:
        rig = Rig(RocketmqListener(client_timeout_ms=40_000))
        client = rig.client()
        client.beat(producers=["p"])
        for _ in range(3):
            rig.pass_time(10_000)
        assert not client.transport.closed
        rig.pass_time(10_000)
        assert client.transport.closed
        assert "has not sent a heartbeat for 40s" in caplog.text

    def test_silent_clients_are_looked_for_every_ten_seconds(self) -> None:
        rig = Rig(RocketmqListener(client_timeout_ms=15_000))
        client = rig.client()
        client.beat(producers=["p"])
        for _ in range(19):
            rig.pass_time(1_000)
        assert not client.transport.closed
        rig.pass_time(1_000)
        assert client.transport.closed

    def test_its_retry_topic_is_made_when_a_group_comes(self) -> None:
        rig = Rig()
        rig.client().beat(**{"g%1": [("orders", "*")]})
        assert len(rig.broker.catalog.by_name["retry.g_x25_1"].partitions) == 1
        route = rig.client(names=True).well(105, topic="%RETRY%g%1")
        assert json.loads(bytes(route.body))["queueDatas"][0]["readQueueNums"] == 1

    def test_a_broadcasting_group_needs_none(self) -> None:
        rig = Rig()
        rig.client().beat(g={"subscriptions": [("orders", "*")], "model": "BROADCASTING"})
        assert "retry.g" not in rig.broker.catalog.by_name

    def test_the_answer_offers_no_heartbeat_without_subscriptions(self) -> None:
        answer = Rig().client().beat(g=[("orders", "*")])
        assert (answer.fields, answer.version) == ({}, 479)

    def test_members_that_want_different_things_are_warned_of(self, caplog: pytest.LogCaptureFixture) -> None:
        rig = Rig()
        first, second = rig.client(), rig.client()
        with caplog.at_level(logging.WARNING, "halfmoon.rocketmq"):
            first.beat("c1", g=[("orders", "a", 1)])
            second.beat("c2", g=[("orders", "b", 2)])
            first.beat("c1", g=[("orders", "a", 1)])
        assert rig.node.members.conflicts == {("g", "orders", "c1", "c2"): 2}
        (warning,) = [record.getMessage() for record in caplog.records if "subscriptions_differ" in record.getMessage()]
        assert "client=c1 wants='a' client=c2 wants='b'" in warning

    def test_one_that_changes_its_mind_is_not(self) -> None:
        rig = Rig()
        client = rig.client()
        client.beat("c1", g=[("orders", "a", 1)])
        client.beat("c1", g=[("orders", "b", 2)])
        assert not rig.node.members.conflicts

    @pytest.mark.parametrize(
        "body", [b"", b"[]", b"{", b'{"clientID":"c","consumerDataSet":[{}]}', b'{"consumerDataSet":[1]}']
    )
    def test_a_heartbeat_that_is_none(self, body: bytes) -> None:
        assert Rig().client().ask(34, body).code == Code.INVALID_PARAMETER

    @pytest.mark.parametrize("body", [b"{}", b'{"clientID":1}'])
    def test_a_heartbeat_may_leave_out_what_it_has_nothing_to_say_of(self, body: bytes) -> None:
        rig = Rig()
        rig.client().well(34, body)
        assert not rig.node.members.consumers

    def test_a_heartbeat_of_too_many_groups(self) -> None:
        answer = Rig().client().beat(producers=[str(n) for n in range(1_001)])
        assert answer.code == Code.INVALID_PARAMETER

    def test_a_heartbeat_of_too_many_subscriptions(self) -> None:
        client = Rig().client()
        assert client.beat(g=[(f"t{n}", "*") for n in range(10_000)]).code == 0
        answer = client.beat(g=[(f"t{n}", "*") for n in range(10_001)])
        assert (answer.code, answer.remark) == (Code.INVALID_PARAMETER, "a client subscribes to 10000 topics at most")

    def test_a_group_with_a_name_that_is_too_long(self) -> None:
        client = Rig().client()
        assert client.beat(producers=["g" * 255]).code == 0
        answer = client.beat(producers=["g" * 256])
        assert (answer.code, answer.remark) == (Code.INVALID_PARAMETER, "a group's name has at most 255 characters")


class TestOneProtocolAtATime:
    def join(self, rig: Rig) -> JoinResult:
        results = [JoinResult(None, "")]
        for _ in range(2):  # the first gives out the member's id
            join = Join(
                group="g", member_id=results[-1].member_id, instance_id=None, client_id="k", client_host="h",
                session_timeout_ms=10_000, rebalance_timeout_ms=10_000, protocol_type="consumer",
                protocols=(("range", b""),),
            )  # fmt: skip
            rig.broker.groups.join(join, results.append)
            rig.turn()
        rig.broker.groups.expire(rig.clock.now_ms + 1_000)
        rig.turn()
        return results[-1]

    def test_kafkas_members_are_refused_while_rocketmqs_are_there(self) -> None:
        rig = Rig()
        (partition,) = rig.topic("orders")
        client = rig.client()
        client.beat(g=[("orders", "*")])
        assert self.join(rig).fault is Fault.INCONSISTENT_GROUP_PROTOCOL
        with pytest.raises(BrokerError, match="another protocol"):
            rig.broker.groups.commit("g", -1, "", None, [(partition, 1, -1, "")])
        client.answers()
        client.well(15, consumerGroup="g", topic="orders", queueId=0, commitOffset=0)
        with pytest.raises(BrokerError, match="the group has members"):
            rig.broker.group_names.delete("g")
        client.close()
        assert self.join(rig).fault is None

    def test_and_the_other_way_round(self) -> None:
        rig = Rig()
        rig.topic("orders")
        assert self.join(rig).fault is None
        client = rig.client()
        answer = client.beat(g=[("orders", "*")])
        assert answer.code == Code.SYSTEM_ERROR
        assert "speak Kafka's protocol" in (answer.remark or "")
        assert not rig.node.members.has_consumers("g")
        assert client.ask(15, consumerGroup="g", topic="orders", queueId=0, commitOffset=1).code == Code.SYSTEM_ERROR


def offset(client: RigClient, group: str = "g", **more: object) -> int | None:
    answer = client.ask(14, consumerGroup=group, topic="orders", queueId=0, **more)
    assert answer.code in (Code.SUCCESS, Code.QUERY_NOT_FOUND)
    return int(answer.fields["offset"]) if answer.code == Code.SUCCESS else None


class TestProgress:
    def test_it_is_one_table_for_both_protocols(self) -> None:
        rig = Rig()
        (partition,) = rig.topic("orders")
        client = rig.client()
        client.send(15, oneway=True, consumerGroup="g", topic="orders", queueId=0, commitOffset=7)
        assert offset(client) == 7
        assert rig.broker.state.groups.offsets.get("g") is None
        rig.pass_time(1_000)
        place = partition.topic.number, partition.index
        assert rig.broker.state.groups.offsets["g"][place].offset == 7
        rig.broker.groups.commit("g", -1, "", None, [(partition, 3, -1, "")])
        assert offset(client) == 3

    def test_whoever_asks_knows_at_once(self) -> None:
        rig = Rig()
        (partition,) = rig.topic("orders")
        client = rig.client()
        client.send(15, oneway=True, consumerGroup="g", topic="orders", queueId=0, commitOffset=7)
        assert rig.broker.groups.offsets("g")[partition].offset == 7

    def test_what_comes_behind_a_goodbye_does_not_take_back_what_others_commit(self) -> None:
        rig = Rig()
        (partition,) = rig.topic("orders")
        client = rig.client()
        client.send(15, oneway=True, consumerGroup="g", topic="orders", queueId=0, commitOffset=5)
        rig.broker.groups.commit("g", -1, "", None, [(partition, 8, -1, "")])
        rig.pass_time(1_000)
        assert rig.broker.groups.offsets("g")[partition].offset == 8

    def test_groups_with_live_members_are_shown_and_kept(self) -> None:
        rig = Rig()
        (partition,) = rig.topic("orders")
        client = rig.client()
        client.beat("c1", g=[("orders", "*")])
        groups, names = rig.broker.groups, rig.broker.group_names
        described = groups.describe("g")
        assert described is not None
        assert (described.state, described.protocol_type) == ("Stable", "rocketmq")
        assert [(member.client_id, member.client_host) for member in described.members] == [("c1", "/127.0.0.1")]
        assert [(each.group, each.state) for each in names.list(["stable"])] == [("g", "Stable")]
        assert names.list(["Empty"]) == []
        assert [each.group for each in names.list(types=["Classic"])] == ["g"]
        assert names.list(types=["Consumer"]) == []
        assert groups.check_offset_delete("g") is Fault.NON_EMPTY_GROUP
        with pytest.raises(BrokerError):
            groups.commit("g", -1, "", None, [(partition, 1, -1, "")])
        client.close()
        assert names.list() == []

    def test_pulls_bring_it(self) -> None:
        rig = Rig()
        (partition,) = rig.topic("orders")
        client = rig.client()
        client.beat(g=[("orders", "*")], b={"subscriptions": [("orders", "*")], "model": "BROADCASTING"})
        for group, flags, committed in (("g", 5, 0), ("g", 4, 9), ("b", 5, 8)):
            client.pull("orders", consumerGroup=group, sysFlag=flags, commitOffset=committed)
            assert offset(client, group) is None
        client.pull("orders", consumerGroup="g", sysFlag=5, commitOffset=6)
        assert offset(client) == 6
        client.close()  # what is known of the group is written down
        assert rig.broker.groups.offsets("g")[partition].offset == 6

    def test_many_reports_are_one_frame_of_the_log(self) -> None:
        rig = Rig()
        rig.topic("orders", 3)
        client = rig.client()
        end = rig.broker.log.end
        for number in range(300):
            client.pull("orders", queue=number % 3, sysFlag=5, commitOffset=number + 1)
        assert rig.broker.log.end == end
        rig.pass_time(1_000)
        assert len(rig.broker.groups.offsets("readers")) == 3
        assert 0 < rig.broker.log.end - end < 500

    def test_a_group_that_never_said_begins_at_the_beginning_while_that_is_in_memory(self) -> None:
        rig = Rig()
        (partition,) = rig.topic("orders")
        client = rig.client()
        assert offset(client) is None
        rig.append(partition, b"x", b"y")
        assert offset(client) == 0
        assert offset(client, setZeroIfNotFound=False) is None
        rig.fs.memory = 100
        assert offset(client) is None
        rig.fs.memory = 1 << 30
        rig.broker.delete_records(partition, 1)
        rig.turn()
        assert offset(client) is None

    @pytest.mark.parametrize(("ratio", "found"), [(0.4, None), (0.6, 0), (0.0, None)])
    def test_how_much_of_the_memory_counts_is_a_setting(self, ratio: float, found: int | None) -> None:
        rig = Rig(RocketmqListener(memory_ratio=ratio))
        (partition,) = rig.topic("orders")
        rig.append(partition, b"x")
        ((position, _),) = partition.queue.places(0, 1, min_one=True)
        rig.fs.memory = 2 * (rig.broker.log.end - position)
        assert offset(rig.client()) == found

    def test_of_a_topic_that_went_meanwhile_nothing_is_written(self) -> None:
        rig = Rig()
        rig.topic("orders")
        client = rig.client()
        client.send(15, oneway=True, consumerGroup="g", topic="orders", queueId=0, commitOffset=7)
        client.well(215, topic="orders")
        rig.pass_time(1_000)
        assert rig.broker.groups.offsets("g") == {}

    @pytest.mark.parametrize(
        ("fields", "code"),
        [
            ({"commitOffset": -1}, Code.INVALID_PARAMETER),
            ({"queueId": 5}, Code.INVALID_PARAMETER),
            ({"topic": "no"}, 17),
        ],
    )
    def test_reports_that_make_no_sense(self, fields: dict[str, object], code: int) -> None:
        rig = Rig()
        rig.topic("orders")
        said = {"consumerGroup": "g", "topic": "orders", "queueId": 0, "commitOffset": 1}
        assert rig.client().ask(15, **(said | fields)).code == code


class TestLocks:
    def ask(self, client: RigClient, code: int, client_id: str, *queues: int) -> list[int]:
        body = {
            "consumerGroup": "g", "clientId": client_id, "onlyThisBroker": False,
            "mqSet": [{"topic": "orders", "brokerName": "halfmoon", "queueId": queue} for queue in queues],
        }  # fmt: skip
        answer = client.well(code, json.dumps(body).encode())
        return [each["queueId"] for each in json.loads(bytes(answer.body) or b'{"lockOKMQSet":[]}')["lockOKMQSet"]]

    def test_a_queue_is_one_clients(self) -> None:
        rig = Rig()
        rig.topic("orders", 3)
        first, second = rig.client(), rig.client()
        assert self.ask(first, 41, "c1", 0, 1) == [0, 1]
        assert self.ask(second, 41, "c2", 1, 2) == [2]
        assert self.ask(second, 42, "c2", 1) == []
        assert self.ask(second, 41, "c2", 1) == []
        self.ask(first, 42, "c1", 1)
        assert self.ask(second, 41, "c2", 1) == [1]

    def test_a_queue_is_one_lock(self) -> None:
        """Each takes one of 100,000, which all groups share."""
        rig = Rig()
        rig.topic("orders")
        queues = [{"topic": "orders", "brokerName": f"broker-{number}", "queueId": 0} for number in range(1_000)]
        body = json.dumps({"consumerGroup": "g", "clientId": "c1", "mqSet": queues}).encode()
        assert json.loads(bytes(rig.client().well(41, body).body)) == {"lockOKMQSet": []}
        assert rig.server.node.locks.held(0) == 0

    def test_who_unregisters_has_none_any_more(self) -> None:
        """Java's client may lock its queues once more after it has unlocked them for good, even after its goodbye."""
        rig = Rig()
        rig.topic("orders", 3)
        first, second = rig.client(), rig.client()
        first.beat("c1", g=[("orders", "*")])
        assert self.ask(first, 41, "c1", 0, 1) == [0, 1]
        first.well(35, clientID="c1", consumerGroup="g")
        assert self.ask(first, 41, "c1", 0, 1) == []
        assert self.ask(second, 41, "c2", 0) == [0]
        first.beat("c1", g=[("orders", "*")])
        assert self.ask(first, 41, "c1", 0, 1) == [1]

    def test_who_is_gone_without_a_word_keeps_them_for_a_while(self) -> None:
        rig = Rig()
        rig.topic("orders", 3)
        first, second = rig.client(), rig.client()
        first.beat("c1", g=[("orders", "*")])
        assert self.ask(first, 41, "c1", 0) == [0]
        first.close()
        assert self.ask(second, 41, "c2", 0) == []

    def test_only_queues_that_there_are_can_be_locked(self) -> None:
        rig = Rig()
        assert self.ask(rig.client(), 41, "c1", 0) == []
        rig.topic("orders", 3)
        assert self.ask(rig.client(), 41, "c1", 0, 3, -1, 2) == [0, 2]

    def test_a_body_of_very_many_objects_is_not_read(self) -> None:
        """700,000 that are empty, in 2 MiB, take half a second to read."""
        rig = Rig()
        for code, field in (34, "consumerDataSet"), (41, "mqSet"), (42, "mqSet"):
            empty = b'{"%s":[%s]}' % (field.encode(), b",".join([b"{}"] * MOST_JSON_OBJECTS))
            answer = rig.client().ask(code, empty)
            assert (answer.code, answer.remark) == (Code.INVALID_PARAMETER, "a body of more than 12500 objects")

    @pytest.mark.pure
    def test_each_topic_is_looked_up_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        rig = Rig()
        rig.topic("orders", 3)
        looked: list[str] = []
        find = rig.node.find_topic
        monkeypatch.setattr(rig.node, "find_topic", lambda name: looked.append(name) or find(name))
        assert self.ask(rig.client(), 41, "c1", *range(3), *range(3)) == [0, 1, 2, 0, 1, 2]
        assert looked == ["orders"]

    def test_a_lock_ends_a_minute_after_it_was_last_asked_for(self) -> None:
        rig = Rig()
        rig.topic("orders")
        first, second = rig.client(), rig.client()
        self.ask(first, 41, "c1", 0)
        rig.pass_time(50_000)
        assert self.ask(first, 41, "c1", 0) == [0]
        first.close()  # it may be consuming still
        rig.pass_time(59_999)
        assert self.ask(second, 41, "c2", 0) == []
        rig.pass_time(1)
        assert self.ask(second, 41, "c2", 0) == [0]

    def test_how_long_a_lock_is_kept_is_a_setting(self) -> None:
        rig = Rig(RocketmqListener(queue_lock_ms=35_000))
        rig.topic("orders")
        first, second = rig.client(), rig.client()
        assert self.ask(first, 41, "c1", 0) == [0]
        rig.pass_time(34_999)
        assert self.ask(second, 41, "c2", 0) == []
        rig.pass_time(1)
        assert self.ask(second, 41, "c2", 0) == [0]


class TestAssignment:
    def ask(self, client: RigClient, client_id: str, **more: object) -> list[int]:
        body = {"topic": "orders", "consumerGroup": "g", "clientId": client_id, **more}
        answer = client.well(400, json.dumps(body).encode())
        return [each["messageQueue"]["queueId"] for each in json.loads(bytes(answer.body))["messageQueueAssignments"]]

    @pytest.mark.parametrize(
        ("strategy", "shares"),
        [
            (None, [[0, 1, 2], [3, 4]]),
            ("AVG", [[0, 1, 2], [3, 4]]),
            ("AVG_BY_CIRCLE", [[0, 2, 4], [1, 3]]),
            ("averagely_by_circle", [[0, 2, 4], [1, 3]]),
        ],
    )
    def test_the_broker_shares_the_queues_out(self, strategy: str | None, shares: list[list[int]]) -> None:
        rig = Rig()
        rig.topic("orders", 5)
        first, second = rig.client(), rig.client()
        first.beat("c1", g=[("orders", "*")])
        second.beat("c2", g=[("orders", "*")])
        said = {} if strategy is None else {"strategyName": strategy}
        first.answers(), second.answers()
        assert [self.ask(first, "c1", **said), self.ask(second, "c2", **said)] == shares
        assert self.ask(first, "c1", messageModel="BROADCASTING") == [0, 1, 2, 3, 4]

    def test_who_is_no_member_gets_none(self) -> None:
        rig = Rig()
        rig.topic("orders", 5)
        body = json.dumps({"topic": "orders", "consumerGroup": "g", "clientId": "c1"}).encode()
        assert rig.client().ask(400, body).code == Code.SYSTEM_ERROR

    def test_a_strategy_that_nobody_has(self) -> None:
        rig = Rig()
        rig.topic("orders", 5)
        client = rig.client()
        client.beat("c1", g=[("orders", "*")])
        body = {"topic": "orders", "consumerGroup": "g", "clientId": "c1", "strategyName": "by_moon"}
        assert client.ask(400, json.dumps(body).encode()).code == Code.INVALID_PARAMETER


def test_progress_survives_a_restart() -> None:
    rig = Rig()
    (partition,) = rig.topic("orders")
    rig.broker.append(partition, memoryview(bytearray(build_batch([(None, b"x", 1, ())]))), 1)
    client = rig.client()
    client.send(15, oneway=True, consumerGroup="g", topic="orders", queueId=0, commitOffset=1)
    rig.node.stop()
    rig.turn()
    assert rig.broker.groups.offsets("g")[partition].offset == 1
