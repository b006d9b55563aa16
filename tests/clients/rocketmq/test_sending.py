"""What the Java client's producers send, and what its consumers see of it."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from tests.clients.rocketmq.java import CLIENT, Clients, as_queue, body, queues_in, refusal

pytestmark = pytest.mark.spark
HEADERS = ["JSON", "ROCKETMQ"]

MESSAGE_ILLEGAL = 13
TOPIC_NOT_EXIST = 17


def test_routes(clients: Clients) -> None:
    topic = clients.topic(4)
    route = clients.admin.examineTopicRouteInfo(topic)
    assert queues_in(route) == (4, 4, 6)
    assert {each.getBrokerName() for each in route.getQueueDatas()} <= clients.brokers
    addresses = {each.selectBrokerAddr() for each in route.getBrokerDatas()}
    assert clients.broker.rocketmq in addresses if len(clients.brokers) == 1 else len(addresses) == 4
    assert refusal(lambda: clients.admin.examineTopicRouteInfo("no-such-topic")) == TOPIC_NOT_EXIST


def test_synchronously(clients: Clients, producer: Any) -> None:
    topic = clients.topic(4)
    last: dict[int, int] = {}
    for number in range(20):
        sent = producer.send(clients.message(topic, "A", f"m{number}"))
        assert sent.getSendStatus().toString() == "SEND_OK"
        assert len(sent.getMsgId()) in (32, 56)  # The client makes it: of its IPv4 or IPv6 address.
        assert len(sent.getOffsetMsgId()) == 32
        queue = clients.partition(sent.getMessageQueue())
        assert sent.getQueueOffset() == last.get(queue, -1) + 1
        last[queue] = sent.getQueueOffset()
    assert last == dict.fromkeys(range(4), 4)
    clients.consume(topic).exactly(20)


def test_asynchronously(clients: Clients, producer: Any) -> None:
    topic = clients.topic(4)
    answers: list[bool] = []
    done = threading.Event()

    def answered(well: bool) -> None:
        answers.append(well)
        if len(answers) == 100:
            done.set()

    callback = clients.callback(lambda result: answered(True), lambda error: answered(False))
    for number in range(100):
        producer.send(clients.message(topic, "A", f"m{number}"), callback)
    assert done.wait(15)
    assert all(answers)
    got = clients.consume(topic)
    got.exactly(100)
    assert set(got.bodies()) == {f"m{number}" for number in range(100)}


def test_one_way(clients: Clients, producer: Any) -> None:
    topic = clients.topic(4)
    producer.send(clients.message(topic, "A", "first"))
    for number in range(20):
        producer.sendOneway(clients.message(topic, "A", f"o{number}"))
    clients.consume(topic).exactly(21)


def test_to_a_queue_by_number_and_by_selector(clients: Clients, producer: Any) -> None:
    topic = clients.topic(4)
    assert len(producer.fetchPublishMessageQueues(topic)) == 4
    sent = producer.send(clients.message(topic, "A", "x"), clients.queue(topic, 3))
    assert clients.partition(sent.getMessageQueue()) == 3
    sent = producer.send(clients.message(topic, "A", "y"), clients.selector(lambda count: 6 % count), None)
    assert as_queue(sent.getMessageQueue()) == as_queue(producer.fetchPublishMessageQueues(topic)[2])


def test_batches(clients: Clients, topic: str, producer: Any) -> None:
    batch = [clients.message(topic, "EO"[n % 2], f"b{n}", f"k{n}", n=str(n)) for n in range(20)]
    sent = producer.send(clients.java.list(batch))
    assert sent.getSendStatus().toString() == "SEND_OK"
    assert len(set(sent.getMsgId().split(","))) == len(set(sent.getOffsetMsgId().split(","))) == 20
    assert sent.getQueueOffset() == 0
    assert producer.send(clients.message(topic, "E", "after")).getQueueOffset() == 20
    got = clients.consume(topic)
    got.exactly(21)
    found = sorted(got.messages, key=lambda message: message.getQueueOffset())  # Listeners run side by side.
    for number, message in enumerate(found[:20]):
        assert body(message) == f"b{number}"
        assert (message.getUserProperty("n"), message.getKeys()) == (str(number), f"k{number}")
        assert message.getQueueOffset() == number
    assert body(clients.admin.viewMessage(topic, sent.getOffsetMsgId().split(",")[7])) == "b7"
    odd = clients.consume(topic, "O")
    odd.exactly(10)


def test_everything_of_a_message_comes_back(clients: Clients, topic: str, producer: Any) -> None:
    message = clients.message(topic, "T1", "héllo 世界", "k1 k2", **{"région": "杭州"})
    message.setFlag(77)
    before_ms = int(time.time() * 1_000)
    sent = producer.send(message)
    large = bytes(number // 100 % 256 for number in range(200_000))
    producer.send(clients.message(topic, "T2", large))  # The client compresses it.
    producer.send(clients.message(topic, "T3", b"\0"))
    got = clients.consume(topic)
    got.exactly(3)
    by_tag = {message.getTags(): message for message in got.messages}
    first = by_tag["T1"]
    assert (body(first), first.getTopic(), first.getKeys(), first.getFlag()) == ("héllo 世界", topic, "k1 k2", 77)
    assert first.getUserProperty("région") == "杭州"
    assert (first.getMsgId(), first.getOffsetMsgId()) == (sent.getMsgId(), sent.getOffsetMsgId())
    assert before_ms <= first.getBornTimestamp() <= first.getStoreTimestamp() <= time.time() * 1_000
    assert first.getBornHost().toString().startswith("/127.0.0.1:")
    assert first.getStoreHost().toString() == f"/{clients.address(topic, 0)}"
    # From the answer to the pull; the last of the one that brought it.
    assert (first.getProperty("MIN_OFFSET"), int(first.getProperty("MAX_OFFSET")) >= 1) == ("0", True)
    assert bytes(by_tag["T2"].getBody()) == large
    assert bytes(by_tag["T3"].getBody()) == b"\0"


def test_messages_are_found_by_key_and_by_both_ids(clients: Clients, producer: Any) -> None:
    topic = clients.topic(2)
    begin_ms = int(time.time() * 1_000) - 1_000
    sent = producer.send(clients.message(topic, "A", "findme", "order-1 order-2"))
    producer.send(clients.message(topic, "A", "other"))
    end_ms = begin_ms + 60_000
    for key in "order-1", "order-2":
        (found,) = clients.admin.queryMessage(topic, key, 10, begin_ms, end_ms).getMessageList()
        assert body(found) == "findme"
    for message_id in sent.getMsgId(), sent.getOffsetMsgId():
        assert body(clients.admin.viewMessage(topic, message_id)) == "findme"
    assert refusal(lambda: clients.admin.queryMessage(topic, "nope", 10, begin_ms, end_ms)) == 208  # NO_MESSAGE


def test_what_is_too_large_is_refused(clients: Clients, topic: str) -> None:
    producer = clients.java.named(f"{CLIENT}.producer.DefaultMQProducer")(clients.name("producers"))
    producer.setMaxMessageSize(64 << 20)
    producer.setCompressMsgBodyOverHowmuch(1 << 30)
    producer.setRetryTimesWhenSendFailed(0)
    clients.started(producer)
    too_large = clients.message(topic, "A", b"\xa5" * ((4 << 20) + 1))
    assert refusal(lambda: producer.send(too_large)) == MESSAGE_ILLEGAL
    assert producer.send(clients.message(topic, "A", b"\xa5" * 4_000_000)).getSendStatus().toString() == "SEND_OK"
    # Properties have a length of two bytes on the wire.
    many = clients.message(topic, "A", "x", p="y" * 40_000)
    assert refusal(lambda: producer.send(many)) == MESSAGE_ILLEGAL


def test_topics_are_made_by_sending_to_them(clients: Clients) -> None:
    topic = clients.name("automatic")
    producer = clients.producer()
    assert producer.send(clients.message(topic, "A", "x")).getSendStatus().toString() == "SEND_OK"
    assert queues_in(clients.admin.examineTopicRouteInfo(topic)) == (4, 4, 6)
    for name in "a b", "a/b", "x" * 200:
        with pytest.raises(Exception, match="topic"):
            producer.send(clients.message(name, "A", "x"))
    with pytest.raises(Exception, match="SCHEDULE_TOPIC_XXXX"):
        producer.send(clients.message("SCHEDULE_TOPIC_XXXX", "A", "x"))
