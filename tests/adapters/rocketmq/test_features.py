"""Requests 36, 37, 46, and 39 to the clients: handing back, transactions, delays, filters."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest
from rocketmq_rig import Rig, RigClient, properties_of, sending, text_of

from halfmoon.remoting.codes import Code
from halfmoon.remoting.message import StoredMessage, decode_message_id, decode_stored
from halfmoon.remoting.properties import decode

CHECK = 39


class TestHandingBack:
    def back(self, client: RigClient, message: StoredMessage, **more: object) -> None:
        client.well(36, **{
            "group": "g", "offset": message.physical_offset, "delayLevel": 1, "originMsgId": "U",
            "originTopic": "orders", "unitMode": False, "maxReconsumeTimes": 2, "bname": "halfmoon", **more,
        })  # fmt: skip

    def test_a_message_comes_again_and_is_given_up_in_the_end(self) -> None:
        rig = Rig()
        rig.topic("orders")
        client = rig.client()
        client.produce("orders", b"x", UNIQ_KEY="U", TAGS="a", KEYS="k")
        (message,) = client.read("orders")
        first = message
        for times in (1, 2):
            self.back(client, message)
            assert client.read("%RETRY%g", times - 1) == []
            rig.pass_time(1_001)
            rig.turns()
            (message,) = client.read("%RETRY%g", times - 1)
            assert (message.topic, message.body, message.reconsume_times) == (b"%RETRY%g", b"x", times)
            said = properties_of(message)
            assert (said["RETRY_TOPIC"], said["ORIGIN_MESSAGE_ID"]) == ("orders", first.message_id)
            assert (said["UNIQ_KEY"], said["TAGS"], said["DELAY"]) == ("U", "a", "1")
        self.back(client, message)
        (letter,) = client.read("%DLQ%g")
        assert (letter.topic, letter.body, letter.reconsume_times) == (b"%DLQ%g", b"x", 3)
        assert properties_of(letter)["RETRY_TOPIC"] == "orders"
        assert rig.broker.catalog.by_name["dlq.g"].partitions[0].high_watermark == 1

    def test_a_request_sent_again_hands_it_back_once(self) -> None:
        rig = Rig()
        rig.topic("orders")
        client = rig.client()
        client.produce("orders", b"x")
        (message,) = client.read("orders")
        self.back(client, message)
        self.back(client, message)
        rig.pass_time(1_001)
        rig.turns()
        assert len(client.read("%RETRY%g")) == 1

    def test_the_groups_policy_holds_where_the_client_says_no_limit_of_its_own(self) -> None:
        """16 is what clients send whose user has set none."""
        rig = Rig()
        rig.topic("orders")
        client = rig.client()
        rig.broker.group_configs.alter("g", {"halfmoon.retry.steps": "300ms"})
        for body, limit in ((b"x", 16), (b"y", 2)):
            client.produce("orders", body)
            message = client.read("orders")[-1]
            self.back(client, message, delayLevel=0, maxReconsumeTimes=limit)
        rig.pass_time(299)
        rig.turns()
        assert client.read("%RETRY%g") == []
        rig.pass_time(2)
        rig.turns()
        again = client.read("%RETRY%g")
        assert [(message.body, message.reconsume_times) for message in again] == [(b"x", 1), (b"y", 1)]
        for message, limit in zip(again, (16, 2), strict=True):
            self.back(client, message, delayLevel=0, maxReconsumeTimes=limit)
        assert [letter.body for letter in client.read("%DLQ%g")] == [b"x"]
        assert "MAX_RECONSUME_TIMES" not in properties_of(again[0])

    def test_by_sending_16_is_no_limit_either(self) -> None:
        rig = Rig()
        client = rig.client()
        rig.broker.group_configs.alter("g", {"halfmoon.retry.max.attempts": "1"})
        client.well(310, b"x", **sending("%RETRY%g", 0, text_of(DELAY="1"), j=2, l=16))
        assert [letter.body for letter in client.read("%DLQ%g")] == [b"x"]

    def test_an_error_that_is_not_retryable(self) -> None:
        rig = Rig()
        rig.topic("orders")
        client = rig.client()
        rig.broker.group_configs.alter("g", {"halfmoon.retry.not.retryable": "ValueError"})
        client.produce("orders", b"x", RETRY_ERROR_CLASS="old.Error")
        said = {"errorClass": "acme.BadOrder,builtins.ValueError", "errorMessage": "no total"}
        self.back(client, client.read("orders")[0], **said)
        (letter,) = client.read("%DLQ%g")
        found = properties_of(letter)
        assert (found["RETRY_ERROR_CLASS"], found["RETRY_ERROR_MESSAGE"]) == tuple(said.values())
        assert found["halfmoon.reason"] == "not retryable: acme.BadOrder (ValueError)"

    def test_a_negative_level_gives_it_up_at_once(self) -> None:
        rig = Rig()
        rig.topic("orders")
        client = rig.client()
        client.produce("orders", b"x")
        self.back(client, client.read("orders")[0], delayLevel=-1)
        assert [letter.body for letter in client.read("%DLQ%g")] == [b"x"]

    def test_without_a_level_the_delay_grows(self) -> None:
        rig = Rig()
        rig.topic("orders")
        client = rig.client()
        client.produce("orders", b"x")
        self.back(client, client.read("orders")[0], delayLevel=0)
        rig.pass_time(9_999)
        rig.turns()
        assert client.read("%RETRY%g") == []
        rig.pass_time(10)
        rig.turns()
        assert len(client.read("%RETRY%g")) == 1

    @pytest.mark.parametrize("physical", [-1, 0, 1 << 40, (1 << 62)])
    def test_a_message_that_is_not_there(self, physical: int) -> None:
        rig = Rig()
        answer = rig.client().ask(36, group="g", offset=physical, delayLevel=1, maxReconsumeTimes=2)
        assert answer.code == Code.QUERY_NOT_FOUND
        assert "retry.g" not in rig.broker.catalog.by_name

    def test_by_sending_as_clients_do_whose_request_failed(self) -> None:
        rig = Rig()
        client = rig.client()
        text = text_of(RETRY_TOPIC="orders", DELAY="1")
        client.well(310, b"x", **sending("%RETRY%g", 0, text, j=2, l=2))
        rig.pass_time(1_001)
        rig.turns()
        (message,) = client.read("%RETRY%g")
        assert (message.reconsume_times, properties_of(message)["RETRY_TOPIC"]) == (2, "orders")
        client.well(310, b"y", **sending("%RETRY%g", 0, text, j=3, l=2))
        assert [(letter.body, letter.reconsume_times) for letter in client.read("%DLQ%g")] == [(b"y", 3)]

    def test_who_consumes_in_order_has_tried_often_enough(self) -> None:
        rig = Rig()
        rig.topic("t")
        client = rig.client()
        lock = {
            "consumerGroup": "g",
            "clientId": "c",
            "mqSet": [{"topic": "t", "brokerName": "halfmoon", "queueId": 0}],
        }
        client.well(41, json.dumps(lock).encode())
        client.well(310, b"x", **sending("%RETRY%g", 0, text_of(DELAY="3"), j=1, l=16))
        assert [letter.body for letter in client.read("%DLQ%g")] == [b"x"]


class TestDelays:
    @pytest.mark.parametrize(
        ("name", "value", "delay_ms"),
        [
            ("DELAY", "2", 5_000),
            ("DELAY", "18", 7_200_000),
            ("DELAY", "19", 7_200_000),
            ("TIMER_DELAY_SEC", "3", 3_000),
            ("TIMER_DELAY_MS", "2500", 2_500),
        ],
    )
    def test_a_message_is_delivered_as_rocketmq_would(self, name: str, value: str, delay_ms: int) -> None:
        rig = Rig()
        rig.topic("orders", 2)
        client = rig.client()
        answer = client.produce("orders", b"x", 1, UNIQ_KEY="U", **{name: value})
        _, physical = decode_message_id(answer.fields["msgId"])
        waiting = rig.broker.catalog.by_queue_number[physical >> 40]
        assert waiting.topic.name == ("SCHEDULE_TOPIC_XXXX" if name == "DELAY" else "halfmoon.timers")
        assert (answer.fields["queueId"], answer.fields["queueOffset"]) == ("1", "0")
        rig.pass_time(delay_ms - 1)
        rig.turns()
        assert client.read("orders", queue=1) == []
        rig.pass_time(2)
        rig.turns()
        (message,) = client.read("orders", queue=1)
        assert properties_of(message) == {
            "UNIQ_KEY": "U", name: value, "REAL_TOPIC": "orders", "REAL_QID": "1", "CLUSTER": "DefaultCluster",
        }  # fmt: skip
        assert (message.born_ms, message.store_ms) == (1_600_000_000_000, rig.clock.now_ms)


class TestTransactions:
    def half(self, client: RigClient, key: str = "U1") -> dict[str, str]:
        text = text_of(UNIQ_KEY=key, TRAN_MSG="true", PGROUP="p", TAGS="a")
        return client.well(310, b"half", **sending("orders", 1, text, f=4)).fields

    def end(self, client: RigClient, state: int, key: str = "U1") -> None:
        client.send(
            37, oneway=True, producerGroup="p", tranStateTableOffset=0, commitLogOffset=0, commitOrRollback=state,
            fromTransactionCheck=False, msgId=key, transactionId=key, topic="orders",
        )  # fmt: skip

    def test_committed(self) -> None:
        rig = Rig()
        rig.topic("orders", 2)
        client = rig.client()
        sent = self.half(client)
        _, physical = decode_message_id(sent["msgId"])
        assert rig.broker.catalog.by_queue_number[physical >> 40].topic.name == "RMQ_SYS_TRANS_HALF_TOPIC"
        assert (sent["queueId"], sent["queueOffset"], sent["transactionId"]) == ("1", "0", "U1")
        assert client.read("orders", queue=1) == []
        self.end(client, 8)
        (message,) = client.read("orders", queue=1)
        assert (message.body, message.system_flags & 12, message.prepared_offset) == (b"half", 8, physical)
        said = properties_of(message)
        assert (said["UNIQ_KEY"], said["TRAN_MSG"], said["PGROUP"]) == ("U1", "true", "p")
        assert (said["REAL_TOPIC"], said["REAL_QID"]) == ("orders", "1")
        self.end(client, 8)
        self.end(client, 12)
        assert len(client.read("orders", queue=1)) == 1

    def test_committed_together(self) -> None:
        rig = Rig()
        rig.topic("orders", 2)
        client = rig.client()
        waited = [decode_message_id(self.half(client, f"U{number}")["msgId"])[1] for number in range(12)]
        ends = [
            client.encode(37, oneway=True, producerGroup="p", commitOrRollback=8, msgId=f"U{number}", topic="orders")
            for number in (0, 1, 2, 4, 5, 7)
        ]
        client.feed(b"".join(ends))
        rig.turns()
        found = client.read("orders", queue=1)
        assert [properties_of(message)["UNIQ_KEY"] for message in found] == ["U0", "U1", "U2", "U4", "U5", "U7"]
        assert [message.prepared_offset for message in found] == [waited[number] for number in (0, 1, 2, 4, 5, 7)]
        assert client.read("orders", 1, 1)[0].prepared_offset == waited[1]

    def test_rolled_back(self) -> None:
        rig = Rig()
        rig.topic("orders", 2)
        client = rig.client()
        self.half(client)
        self.end(client, 12)
        self.end(client, 8)
        assert client.read("orders", queue=1) == []

    def test_a_live_producer_is_asked(self) -> None:
        rig = Rig()
        rig.topic("orders", 2)
        dying, living = rig.client(), rig.client()
        dying.beat("c1", producers=["p"])
        self.half(dying)
        dying.close()
        living.beat("c2", producers=["p"])
        for state in (0, 8):
            assert living.told == []
            rig.pass_time(6_001 if state == 0 else 30_001)
            rig.turns()
            assert living.answers() == []
            (asked,) = living.told
            living.told.clear()
            assert (asked.code, asked.is_oneway, asked.fields["msgId"]) == (CHECK, True, "U1")
            (half,) = decode_stored(asked.body)
            said = dict(decode(half.properties))
            assert (half.topic, half.body, half.system_flags & 12) == (b"orders", b"half", 0)
            assert (said[b"PGROUP"], said[b"UNIQ_KEY"], said[b"REAL_TOPIC"]) == (b"p", b"U1", b"orders")
            assert said[b"TRANSACTION_CHECK_TIMES"] == (b"1" if state == 0 else b"2")
            assert decode_message_id(asked.fields["offsetMsgId"])[1] == int(asked.fields["commitLogOffset"])
            self.end(living, state)
        assert [message.body for message in living.read("orders", queue=1)] == [b"half"]

    def test_producers_are_asked_in_turn_and_only_those_of_the_group(self) -> None:
        rig = Rig()
        rig.topic("orders", 2)
        clients = [rig.client() for _ in range(3)]
        for number, client in enumerate(clients):
            client.beat(f"c{number}", producers=["other" if number == 2 else "p"])
        for number in range(4):
            self.half(clients[0], f"U{number}")
        rig.pass_time(6_001)
        rig.turns()
        for client in clients:
            client.answers()
        assert [len(client.told) for client in clients] == [2, 2, 0]

    def test_a_producer_that_comes_later_is_asked_the_next_time(self) -> None:
        rig = Rig()
        rig.topic("orders", 2)
        first = rig.client()
        self.half(first)
        first.close()
        rig.pass_time(6_001)
        rig.turns()
        late = rig.client()
        late.beat("c", producers=["p"])
        assert late.told == []
        rig.pass_time(30_001)
        rig.turns()
        late.answers()
        assert len(late.told) == 1

    def test_after_the_check_topic_was_deleted_producers_are_asked_again(self) -> None:
        rig = Rig()
        rig.topic("orders", 2)
        client = rig.client()
        client.beat("c", producers=["p"])
        self.half(client)
        for _ in range(2):
            topic = rig.broker.topic("check.p")
            assert topic is not None
            rig.broker.delete_topic(topic)
            rig.turns()
            for _ in range(2):
                rig.pass_time(30_001)
                client.beat("c", producers=["p"])
                rig.turns()
            client.answers()
            assert {asked.fields["msgId"] for asked in client.told} == {"U1"}
            client.told.clear()
        self.end(client, 8)
        assert [message.body for message in client.read("orders", queue=1)] == [b"half"]

    @pytest.mark.parametrize("state", [8, 12])
    def test_after_the_topic_of_ends_was_deleted_a_half_message_can_be_ended(self, state: int) -> None:
        rig = Rig()
        rig.topic("orders", 2)
        client = rig.client()
        self.half(client)
        topic = rig.broker.topic("halfmoon.transactions")
        assert topic is not None
        rig.broker.delete_topic(topic)
        self.end(client, state)
        assert len(client.read("orders", queue=1)) == (state == 8)
        assert rig.broker.waiting.waiting() == 0

    def test_an_end_before_any_half_message(self) -> None:
        answer = Rig().client().ask(37, producerGroup="p", msgId="U", commitOrRollback=8)
        assert answer.code == Code.SYSTEM_ERROR


class TestCheckClientConfig:
    def ask(self, expression: str, kind: str = "SQL92") -> tuple[int, str | None]:
        body = {"clientId": "c", "group": "g", "subscriptionData": {
            "topic": "orders", "subString": expression, "expressionType": kind, "tagsSet": [], "codeSet": [],
            "subVersion": 1, "classFilterMode": False,
        }}  # fmt: skip
        answer = Rig().client().ask(46, json.dumps(body).encode())
        return answer.code, answer.remark

    def test_a_good_one(self) -> None:
        assert self.ask("price > 3 AND region IN ('HZ')") == (0, None)

    def test_a_bad_one_is_refused_with_the_place_of_the_error(self) -> None:
        code, remark = self.ask("region >")
        assert code == Code.SUBSCRIPTION_PARSE_FAILED
        assert "column 9" in (remark or "")

    def test_a_language_that_nobody_knows(self) -> None:
        assert self.ask("x", "XPATH")[0] == Code.SYSTEM_ERROR


def test_what_is_done_now_and_then_goes_on_after_an_exception() -> None:
    rig = Rig()
    calls: list[int] = []

    def fail(mono_ms: int) -> list[RigClient]:
        calls.append(mono_ms)
        raise ValueError("broken")

    rig.node.members.silent = fail  # type: ignore[method-assign, assignment]
    for _ in range(2):
        with suppress(ValueError):
            rig.pass_time(60_000)
    assert len(calls) == 2
