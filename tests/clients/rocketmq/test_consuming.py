"""What the Java client's consumers read: filters, pulls, waiting, where they begin."""

from __future__ import annotations

import datetime
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.clients.rocketmq.java import Clients, Got, body, refusal, until

pytestmark = pytest.mark.spark

SUBSCRIPTION_PARSE_FAILED = 23
ROWS = [  # body, tag, and properties
    ("a", "logistics", {"region": "HZ", "price": "5", "vip": "true"}),
    ("b", "logistics", {"region": "SH", "price": "10", "note": "x", "vip": "false"}),
    ("c", "logistics", {"region": "BJ", "price": "15"}),
    ("d", "trade", {"region": "HZ", "price": "20", "note": "y", "vip": "true"}),
    ("e", "trade", {"price": "25.5"}),
    ("f", "trade", {"region": "GZ", "note": "it's", "vip": "false"}),
]
SELECTED = {
    "TAGS='logistics' AND region IN ('HZ','SH')": "ab",
    "price BETWEEN 10 AND 20": "bcd",
    "price NOT BETWEEN 10 AND 20": "a",  # 25.5 is no whole number, and so compares with none
    "price NOT BETWEEN 10.0 AND 20.0": "ae",
    "note IS NULL": "ace",
    "price > 15": "d",
    "price > 15.0": "de",
    "NOT (price > 15)": "abc",
    "region NOT IN ('HZ','SH')": "cf",
    "vip = TRUE": "ad",
    "note = 'it''s'": "f",
    "price > 15 OR note IS NULL": "acd",
    "note IS NULL OR price > 15": "acde",
    "vip": "",
    "region = 'HZ' AND NOT vip = FALSE": "",  # NOT binds more tightly than =
    "region CONTAINS 'Z'": "adf",
    "missing = 1": "",
    "TRUE = TRUE": "abcdef",
}


def test_tags(clients: Clients, producer: Any) -> None:
    topic = clients.topic(4)
    for number in range(30):
        producer.send(clients.message(topic, f"Tag{'ABC'[number % 3]}", f"m{number}"))
    producer.send(clients.message(topic, None, "untagged"))
    wanted = {"*": 31, "TagA": 10, "TagA || TagB": 20, "TagA||TagB": 20, "Nope": 0}
    got = {expression: clients.consume(topic, expression) for expression in wanted}
    for expression, count in wanted.items():
        got[expression].wait(count)
    time.sleep(0.3)
    assert {expression: len(each) for expression, each in got.items()} == wanted


def test_tags_with_the_same_hash(clients: Clients, topic: str, producer: Any) -> None:
    objects = clients.java.gateway.jvm.java.util.Objects
    assert objects.hashCode("Aa") == objects.hashCode("BB")
    for number in range(5):
        producer.send(clients.message(topic, "Aa", f"x{number}"))
        producer.send(clients.message(topic, "BB", f"y{number}"))
    got = clients.consume(topic, "Aa")
    got.exactly(5)
    assert sorted(got.bodies()) == [f"x{number}" for number in range(5)]


def test_sql92(clients: Clients, producer: Any) -> None:
    topic = clients.topic(2)
    for content, tag, properties in ROWS:
        producer.send(clients.message(topic, tag, content, **properties))
    puller = clients.sql_puller(topic)

    def selected(expression: str) -> str:
        found = []
        for queue in range(2):
            result = puller.pull(clients.queue(topic, queue), clients.by_sql(expression), 0, 32)
            found += [body(message) for message in result.getMsgFoundList() or []]
        return "".join(sorted(found))

    assert {expression: selected(expression) for expression in SELECTED} == SELECTED
    # A subscription that a heartbeat brings.
    got = clients.consume(topic, clients.by_sql("price BETWEEN 10 AND 20"))
    got.exactly(3)
    assert sorted(got.bodies()) == ["b", "c", "d"]


@pytest.mark.parametrize("expression", ["region >", "region IN (1,2)"])
def test_sql92_that_is_none(clients: Clients, expression: str) -> None:
    consumer = clients.push()
    consumer.subscribe(clients.topic(), clients.by_sql(expression))
    assert refusal(lambda: clients.listen(consumer)) == SUBSCRIPTION_PARSE_FAILED


def test_pulls(clients: Clients) -> None:
    topic = clients.topic(2)
    producer, puller = clients.producer(), clients.sql_puller(topic)
    queue = clients.queue(topic, 0)
    assert len(puller.fetchSubscribeMessageQueues(topic)) == 2
    sent_ms = []
    for number in range(10):
        producer.send(clients.message(topic, "EO"[number % 2], f"m{number}"), queue)
        sent_ms.append(int(time.time() * 1_000))
        time.sleep(0.02)

    def pull(offset: int, expression: Any = "*", most: int = 32) -> tuple[str, int, int]:
        result = puller.pull(queue, expression, offset, most)
        assert result.getMinOffset() == 0
        assert result.getMaxOffset() == 10
        found = result.getMsgFoundList() or []
        return result.getPullStatus().toString(), len(found), result.getNextBeginOffset()

    assert pull(3, most=4) == ("FOUND", 4, 7)
    assert pull(0, "E") == ("FOUND", 5, 10)
    assert pull(0, clients.by_sql("TAGS = 'O'")) == ("FOUND", 5, 10)
    assert pull(0, "Z") == ("NO_MATCHED_MSG", 0, 10)
    assert pull(10) == ("NO_NEW_MSG", 0, 10)
    assert pull(999) == ("OFFSET_ILLEGAL", 0, 10)
    assert (puller.minOffset(queue), puller.maxOffset(queue), puller.searchOffset(queue, 0)) == (0, 10, 0)
    assert puller.searchOffset(queue, sent_ms[4]) in (4, 5)
    assert puller.earliestMsgStoreTime(queue) > 0
    assert puller.fetchConsumeOffset(queue, True) in (0, -1)

    def persisted() -> bool:
        """A rebalance of the client forgets what was updated and not yet persisted (5.3.3:
        RebalancePullImpl.removeDirtyOffset), and persist() then sends nothing."""
        puller.updateConsumeOffset(queue, 6)
        puller.getOffsetStore().persist(queue)
        return bool(puller.fetchConsumeOffset(queue, True) == 6)

    until(persisted)
    queue.setQueueId(9)
    assert refusal(lambda: puller.pull(queue, "*", 0, 32)) in (1, 29)


def test_pulls_that_wait(clients: Clients, topic: str) -> None:
    producer, puller = clients.producer(), clients.puller()
    queue = clients.queue(topic, 0)
    puller.setBrokerSuspendMaxTimeMillis(1_500)
    puller.setConsumerTimeoutMillisWhenSuspend(20_000)
    producer.send(clients.message(topic, "A", "first"), queue)

    def waiting(expression: str, offset: int) -> tuple[threading.Thread, list[Any]]:
        found: list[Any] = []

        def pull() -> None:
            found.append(puller.pullBlockIfNotFound(queue, expression, offset, 32))
            found.append(time.monotonic())

        thread = threading.Thread(target=pull)
        thread.start()
        return thread, found

    for number in range(5):
        thread, found = waiting("*", number + 1)
        time.sleep(0.1)
        assert not found
        producer.send(clients.message(topic, "A", f"m{number}"), queue)
        thread.join(10)
        assert found[0].getPullStatus().toString() == "FOUND"
    # Nothing comes: the answer is neither early nor later than 100 ms.
    begin = time.monotonic()
    thread, found = waiting("*", 6)
    thread.join(10)
    assert found[0].getPullStatus().toString() in ("NO_NEW_MSG", "NO_MATCHED_MSG")
    assert found[1] - begin >= 1.4
    # What does not match wakes nobody.
    thread, found = waiting("B", 6)
    time.sleep(0.1)
    producer.send(clients.message(topic, "A", "no match"), queue)
    time.sleep(0.2)
    assert not found
    producer.send(clients.message(topic, "B", "match"), queue)
    thread.join(10)
    assert [body(message) for message in found[0].getMsgFoundList()] == ["match"]


def test_lite_pulls(clients: Clients, producer: Any) -> None:
    topic = clients.topic(4)
    for number in range(40):
        producer.send(clients.message(topic, "EO"[number % 2], f"m{number}"))
    subscribed = clients.lite()
    subscribed.subscribe(topic, "E")
    subscribed.start()
    polled: list[Any] = []

    def poll(consumer: Any) -> list[Any]:
        polled.extend(consumer.poll(300))
        return polled

    until(lambda: len(poll(subscribed)) == 20)
    subscribed.commit()
    assigned = clients.lite()
    assigned.setAutoCommit(False)
    assigned.start()
    first = min(assigned.fetchMessageQueues(topic), key=clients.partition)
    assigned.assign(clients.java.list([first]))

    def follows(seek: Callable[[], None], offsets: set[int]) -> bool:
        """Whether they come after the seek. What a pull found that began before it may come too.

        seek() interrupts the pull that is being sent, and the client closes its connection over that (5.3.3: "send
        request exception, so close the channel"). A new pull that is on it already fails too. It is tried again a
        second later, from where the one before the seek had ended.
        """
        seek()
        return any({message.getQueueOffset() for message in poll(assigned)} >= offsets for _ in range(6))

    polled.clear()
    until(lambda: follows(lambda: assigned.seek(first, 5), {5, 6, 7, 8, 9}))
    polled.clear()
    until(lambda: follows(lambda: assigned.seekToBegin(first), set(range(10))))
    assigned.commitSync()
    assert assigned.committed(first) == 10
    assert assigned.offsetForTimestamp(first, 0) == 0


def test_where_new_groups_begin(clients: Clients, topic: str, producer: Any) -> None:
    for number in range(5):
        producer.send(clients.message(topic, "A", f"old{number}"))
    time.sleep(2.1)  # The client's time has seconds.
    stamp = datetime.datetime.now().strftime("%Y%m%d%H%M%S")
    time.sleep(0.1)
    for number in range(5):
        producer.send(clients.message(topic, "A", f"new{number}"))
    got: dict[str, Got] = {}
    for where in "FIRST_OFFSET", "LAST_OFFSET", "TIMESTAMP":
        consumer = clients.push()
        consumer.setConsumeFromWhere(clients.from_where(f"CONSUME_FROM_{where}"))
        consumer.setConsumeTimestamp(stamp)
        consumer.subscribe(topic, "*")
        got[where] = clients.listen(consumer)
    got["FIRST_OFFSET"].exactly(10)
    # RocketMQ's broker gives a group that has no offset 0 as long as the queue begins there: all of them read all.
    for each in got.values():
        each.exactly(10, quiet_s=0)
