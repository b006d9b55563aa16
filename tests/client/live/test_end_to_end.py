"""The whole client over sockets, with threads and with asyncio, against Halfmoon; and with ROCKETMQ_NAMESRV against the
real RocketMQ."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from halfmoon.client import (
    BrokerRefusedError,
    ConsumeFrom,
    Context,
    Message,
    MessageError,
    NotRunningError,
    PullStatus,
    ReceivedMessage,
    RouteError,
    SendStatus,
    Status,
    TransactionState,
    by_hash,
)
from tests import several_workers
from tests.client.live.conftest import Live, until


def numbered(topic: str, count: int, **more: Any) -> list[Message]:
    return [Message(topic, b"%d" % number, **more) for number in range(count)]


def numbers(bodies: Sequence[bytes]) -> list[int]:
    return sorted(int(body) for body in bodies)


def owned(consumer: Any, topic: str) -> list[tuple[str, int]]:
    """By broker and number."""
    return sorted((queue.broker, queue.queue_id) for queue in consumer.queues if queue.topic == topic)


def shared(consumers: Sequence[Any], topic: str) -> bool:
    """Whether each has some of the four queues, each queue once; and a moment later, too: a member that joins may have
    some for a moment that others have."""
    for _ in range(2):
        found = [owned(consumer, topic) for consumer in consumers]
        queues = sorted(queue for each in found for queue in each)
        if not all(found) or len(queues) != 4 or len(set(queues)) != 4:
            return False
        assert several_workers.WORKERS or [number for _, number in queues] == [0, 1, 2, 3]
        time.sleep(0.3)
    return True


def test_a_message_arrives_as_it_was_sent(live: Live, topic: str, producer: Any) -> None:
    _, got = live.consume(topic)
    big = bytes(range(256)) * 100
    sent = producer.send(
        Message(topic, b"body", tags="A", keys=["k1", "k2"], properties={"größe": "ü"}, flag=-7, sharding_key="s")
    )
    producer.send(Message(topic, big))
    got.wait(2)
    small, large = sorted(got.messages, key=lambda message: len(message.body))
    assert sent.status is SendStatus.OK
    assert (small.body, small.tags, small.keys, small.flag) == (b"body", "A", ["k1", "k2"], -7)
    assert small.properties["größe"] == "ü"
    assert (small.message_id, small.queue, small.queue_offset) == (sent.message_id, sent.queue, sent.queue_offset)
    assert small.offset_message_id == sent.offset_message_id
    assert abs(small.born_ms - 1e3 * time.time()) < 60_000
    assert abs(small.store_ms - 1e3 * time.time()) < 60_000
    assert large.body == big


def test_many_sends_at_once(live: Live, topic: str, producer: Any) -> None:
    _, got = live.consume(topic)
    if live.shell.name == "threads":
        heard: list[Any] = []
        futures = [
            producer.send_async(message, callback=lambda result, error: heard.append((result, error)))
            for message in numbered(topic, 300)
        ]
        results = [future.result(20) for future in futures]
        until(lambda: len(heard) == 300)
        assert all(error is None and result in results for result, error in heard)
    else:
        import asyncio

        async def all_of() -> list[Any]:
            return await asyncio.gather(*[producer._made.send(message) for message in numbered(topic, 300)])

        results = live.shell.wait(all_of())
    assert len({(result.queue, result.queue_offset) for result in results}) == 300
    assert Counter(result.queue for result in results).most_common()[-1][1] == 75, "queues take turns"
    assert numbers(got.wait(300)) == list(range(300))
    assert producer.counters.sent == 300
    assert producer.in_flight == 0


def test_one_way(live: Live, topic: str, producer: Any) -> None:
    _, got = live.consume(topic)
    for message in numbered(topic, 20):
        producer.send_oneway(message)
    assert numbers(got.wait(20)) == list(range(20))


def test_a_batch(live: Live, topic: str, producer: Any) -> None:
    _, got = live.consume({topic: "even"})
    messages = [
        Message(topic, b"%d" % number, tags="odd" if number % 2 else "even", keys=f"k{number}") for number in range(100)
    ]
    (result,) = producer.send_batch(messages)
    assert len(result.message_id.split(",")) == 100
    assert numbers(got.wait(50)) == list(range(0, 100, 2))
    assert {tuple(message.keys) for message in got.messages} == {(f"k{number}",) for number in range(0, 100, 2)}
    assert {message.message_id for message in got.messages} <= set(result.message_id.split(","))


def test_tags_and_sql92(live: Live, topic: str, producer: Any) -> None:
    _, by_tag = live.consume({topic: "Aa || C"}, "tags")
    sql = live.shell.make(
        "PushConsumer", live.name("sql"), (by_sql := Recorder()), namesrv=live.namesrv, consume_from=ConsumeFrom.FIRST
    )
    sql.subscribe(topic, sql="TAGS IN ('Aa', 'BB') AND price BETWEEN 2 AND 5")
    sql.start()
    for number, tag in enumerate(["Aa", "BB", "C", "D", "Aa", "BB"]):
        producer.send(Message(topic, f"{number} {tag}".encode(), tags=tag, properties={"price": str(number)}))
    assert sorted(by_tag.wait(3)) == [b"0 Aa", b"2 C", b"4 Aa"]
    until(lambda: len(by_sql.bodies) >= 2)
    sql.close()
    assert sorted(by_sql.bodies) == [b"4 Aa", b"5 BB"]


def test_sql92_by_fields_of_json(live: Live, topic: str, producer: Any) -> None:
    by_sql = Recorder()
    sql = live.shell.make(
        "PushConsumer", live.name("sql"), by_sql, namesrv=live.namesrv, consume_from=ConsumeFrom.FIRST
    )
    sql.subscribe(topic, sql="value.price > 2.5 AND value.items[0].sku = 'a' AND TAGS IN ('A', 'B')")
    sql.start()
    for number in range(6):
        body = b'{"price": %d.5, "items": [{"sku": "%s"}]}' % (number, b"ab"[number % 2 : number % 2 + 1])
        producer.send(Message(topic, body, tags="ABC"[number % 3]))
    producer.send(Message(topic, b'{"price": 9', tags="A"))
    producer.send(Message(topic, b'{"price": 9, "items": [{"sku": "a"}]}', tags="A"))
    until(lambda: len(by_sql.bodies) >= 2)
    sql.close()
    assert sorted(by_sql.bodies) == [
        b'{"price": 4.5, "items": [{"sku": "a"}]}',
        b'{"price": 9, "items": [{"sku": "a"}]}',
    ]


class Recorder:
    """A listener that is an object."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []

    def __call__(self, messages: Sequence[ReceivedMessage], context: Context) -> Status:
        self.bodies += [message.body for message in messages]
        return Status.SUCCESS


def test_a_wrong_expression_is_refused(live: Live, topic: str) -> None:
    consumer = live.shell.make("PushConsumer", live.name("g"), Recorder(), namesrv=live.namesrv)
    consumer.subscribe(topic, sql="price >")
    with pytest.raises(BrokerRefusedError) as refused:
        consumer.start()
    assert refused.value.code == 23
    consumer.close()


def test_delays_and_cancelling(live: Live, topic: str, producer: Any) -> None:
    _, got = live.consume(topic)
    producer.send(Message(topic, b"warm"))
    got.wait(1)
    began = time.monotonic()
    producer.send_delayed(Message(topic, b"level"), level=1)
    producer.send_delayed(Message(topic, b"seconds"), seconds=1.5)
    producer.send_delayed(Message(topic, b"at"), at=time.time() + 2)
    never = producer.send_delayed(Message(topic, b"never"), seconds=4)
    time.sleep(0.2)
    producer.cancel(never)
    got.wait(4)
    assert sorted(got.bodies[1:]) == [b"at", b"level", b"seconds"]  # RocketMQ's time has steps of a second
    assert 0.9 <= got.at_s[1] - began <= 3
    time.sleep(max(0.0, began + 5.5 - time.monotonic()))
    assert b"never" not in got.bodies


def test_transactions(live: Live, topic: str) -> None:
    _, got = live.consume(topic)
    checked: list[bytes] = []

    def execute(message: Message, argument: Any) -> Any:
        if argument == "raise":
            raise OSError("the database is away")
        return argument

    def check(message: ReceivedMessage) -> TransactionState:
        checked.append(message.body)
        return TransactionState.COMMIT if b"later" in message.body else TransactionState.ROLLBACK

    producer = live.start("TransactionProducer", live.name("tx"), live.shell.transactions(execute, check))
    states = [
        producer.send_in_transaction(Message(topic, body, tags="x", properties={"p": "q"}), says).state
        for body, says in [
            (b"commit", TransactionState.COMMIT), (b"rollback", TransactionState.ROLLBACK),
            (b"later", TransactionState.UNKNOWN), (b"never", None), (b"later too", "raise"),
        ]
    ]  # fmt: skip
    unknown = TransactionState.UNKNOWN
    assert states == [TransactionState.COMMIT, TransactionState.ROLLBACK, unknown, unknown, unknown]
    assert sorted(got.wait(3, 40)) == [b"commit", b"later", b"later too"]
    until(lambda: {b"later", b"never", b"later too"} <= set(checked), 40)
    assert {(message.tags, message.properties["p"]) for message in got.messages} == {("x", "q")}


def test_failing_messages_come_again_and_are_dead_letters_in_the_end(live: Live, topic: str, producer: Any) -> None:

    def listener(messages: Sequence[ReceivedMessage], context: Context) -> Status | None:
        context.delay_level = 1
        if messages[0].body == b"raises":
            raise OSError("no")
        return None if messages[0].body == b"none" else Status.RECONSUME_LATER

    consumer, got = live.consume(topic, listener=listener, max_reconsume_times=2)
    for body in (b"later", b"none", b"raises"):
        producer.send(Message(topic, body, keys="key"))
    until(lambda: Counter(got.bodies) == {b"later": 3, b"none": 3, b"raises": 3}, 40, lambda: str(got.bodies))
    assert {message.topic for message in got.messages} == {topic}
    assert sorted({message.reconsume_times for message in got.messages}) == [0, 1, 2]
    until(lambda: consumer.counters.nacked == 9)
    _, dead = live.consume(f"%DLQ%{live.name('g')}", "undertakers")
    assert sorted(dead.wait(3)) == [b"later", b"none", b"raises"]
    assert {tuple(message.keys) for message in dead.messages} == {("key",)}


def test_order_is_kept_by_two_consumers(live: Live, topic: str, producer: Any) -> None:
    seen: list[tuple[str, int]] = []

    def listener(messages: Sequence[ReceivedMessage], context: Context) -> Status:
        for message in messages:
            key, number = message.body.decode().split()
            seen.append((key, int(number)))
        return Status.SUCCESS

    for number in range(30):
        for key in "abcdefgh":
            producer.send(Message(topic, f"{key} {number}".encode()), select=by_hash, key=key)
    one, _ = live.consume(topic, listener=listener, ordered=True)
    two, _ = live.consume(topic, listener=listener, ordered=True)
    until(lambda: len(set(seen)) == 240, 60)
    for key in "abcdefgh":
        assert [number for each, number in seen if each == key] == list(range(30))
    until(lambda: len(one.queues) and len(two.queues), 40)


def test_an_ordered_message_that_fails_holds_up_what_is_behind_it(live: Live, topic: str, producer: Any) -> None:
    queue = producer.queues(topic)[0]
    tries: list[int] = []

    def listener(messages: Sequence[ReceivedMessage], context: Context) -> Status:
        if messages[0].body == b"1":
            tries.append(messages[0].reconsume_times)
            context.suspend_ms = 100
            if len(tries) < 4:
                return Status.SUSPEND
        return Status.SUCCESS

    for message in numbered(topic, 3):
        producer.send(message, queue=queue)
    _, got = live.consume(topic, listener=listener, ordered=True)
    got.wait(6)
    assert got.bodies == [b"0", b"1", b"1", b"1", b"1", b"2"]
    assert tries == [0, 1, 2, 3]


def test_a_group_shares_and_takes_over(live: Live, topic: str, producer: Any) -> None:
    one, got_one = live.consume(topic)
    two, got_two = live.consume(topic)
    until(lambda: shared([one, two], topic))
    for message in numbered(topic, 40):
        producer.send(message)
    until(lambda: len(got_one) + len(got_two) >= 40)
    assert numbers(got_one.bodies + got_two.bodies) == list(range(40))
    assert len(got_one) == len(got_two) == 20
    one.close()
    until(lambda: len(owned(two, topic)) == 4, 30)
    for message in numbered(topic, 8):
        producer.send(message)
    got_two.wait(28)


def test_progress_outlives_a_consumer(live: Live, topic: str, producer: Any) -> None:
    first, got = live.consume(topic)
    for message in numbered(topic, 20):
        producer.send(message)
    got.wait(20)
    first.close()
    for number in range(20, 30):
        producer.send(Message(topic, b"%d" % number))
    _, again = live.consume(topic)
    assert numbers(again.wait(10)) == list(range(20, 30))
    time.sleep(0.3)
    assert len(again) == 10


def test_broadcasting(live: Live, topic: str, producer: Any, tmp_path: Any) -> None:
    options = {"model": "broadcasting", "offset_dir": tmp_path}
    one, got_one = live.consume(topic, instance_name="one", **options)
    _, got_two = live.consume(topic, instance_name="two", **options)
    until(lambda: len(one.queues) == 4)
    for message in numbered(topic, 20):
        producer.send(message)
    assert numbers(got_one.wait(20)) == numbers(got_two.wait(20)) == list(range(20))
    one.close()
    producer.send(Message(topic, b"20"))
    _, again = live.consume(topic, instance_name="one", **options)
    assert again.wait(1) == [b"20"]


def test_broadcasting_continues_where_it_was_without_a_name(
    live: Live, topic: str, producer: Any, tmp_path: Path
) -> None:
    """As Java's client does, whose instance name is DEFAULT then: one directory, however often it starts."""
    options = {"model": "broadcasting", "offset_dir": tmp_path, "group": live.name("g")}
    one, got = live.consume(topic, **options)
    for message in numbered(topic, 20):
        producer.send(message)
    assert numbers(got.wait(20)) == list(range(20))
    one.close()
    producer.send(Message(topic, b"20"))
    two, again = live.consume(topic, **options)
    assert again.wait(1) == [b"20"]
    two.close()
    assert [path.name for path in tmp_path.iterdir()] == ["DEFAULT"]


def test_pulling(live: Live, topic: str, producer: Any) -> None:
    consumer = live.start("PullConsumer", live.name("g"))
    queue = producer.queues(topic)[2]
    for message in numbered(topic, 10, tags="x"):
        producer.send(message, queue=queue)
    assert queue in consumer.queues(topic)
    begin = consumer.min_offset(queue)
    until(lambda: consumer.max_offset(queue) - begin >= 10)
    end = consumer.max_offset(queue)
    result = consumer.pull(queue, end - 10, "x", most=4)
    assert result.status is PullStatus.FOUND
    assert [message.body for message in result.messages] == [b"0", b"1", b"2", b"3"]
    assert result.next_offset == end - 6
    assert consumer.pull(queue, end).status is PullStatus.NO_NEW_MSG
    assert consumer.pull(queue, end + 100).status is PullStatus.OFFSET_ILLEGAL
    consumer.commit(queue, end - 6)
    until(lambda: consumer.committed(queue) == end - 6)
    with pytest.warns(DeprecationWarning, match="committed"):
        assert consumer.progress(queue) == end - 6
    assert consumer.offset_for_time(queue, time.time() + 3_600) == end
    assert consumer.offset_for_time(queue, time.time() - 3_600) == begin


def test_lite_pulling(live: Live, topic: str, producer: Any) -> None:
    consumer = live.start("LitePullConsumer", live.name("g"), {topic: "x"}, consume_from=ConsumeFrom.FIRST)
    for message in numbered(topic, 40, tags="x"):
        producer.send(message)
    found: list[bytes] = []
    limit = time.monotonic() + 30
    while len(found) < 40 and time.monotonic() < limit:
        found += [message.body for message in consumer.poll(1.0)]
    assert numbers(found) == list(range(40))
    queue = consumer.assignment[0]
    consumer.commit()
    until(lambda: consumer.committed(queue) > 0, 20, lambda: f"{queue}: {consumer.committed(queue)}")
    consumer.seek_to_begin(queue)
    again = {message.body for _ in range(3) for message in consumer.poll(1.0)}
    assert again <= set(found)
    assert again
    consumer.seek_to_end(queue)
    producer.send(Message(topic, b"new", tags="x"), queue=queue)
    assert [message.body for message in consumer.poll(5.0)] == [b"new"]
    consumer.pause([queue])
    producer.send(Message(topic, b"paused", tags="x"), queue=queue)
    assert consumer.poll(0.5) == []
    consumer.resume([queue])
    assert [message.body for message in consumer.poll(5.0)] == [b"paused"]


def test_what_a_consumer_says_of_itself(live: Live, topic: str, producer: Any) -> None:
    consumer, got = live.consume(topic)
    for message in numbered(topic, 10):
        producer.send(message)
    got.wait(10)
    until(lambda: consumer.counters.consumed == 11 and consumer.lag == 0)
    assert (consumer.cached, consumer.in_flight, consumer.counters.failed) == (0, 0, 0)
    assert {queue.topic for queue in consumer.queues} >= {topic}
    consumer.pause()
    time.sleep(0.1)
    consumer.resume()


def test_what_is_wrong_is_said_so(live: Live) -> None:
    producer = live.producer(timeout_ms=1_000)
    with pytest.raises(MessageError):
        producer.send(Message("t", b""))
    nobody = live.shell.make("Producer", live.name("p"), namesrv="127.0.0.1:9")
    with pytest.raises(NotRunningError):
        nobody.send(Message("t", b"x"))
    nobody.start()
    with pytest.raises(RouteError, match="no name server answers"):
        nobody.send(Message("t", b"x"))
    with pytest.raises(NotRunningError):
        nobody.start()
    nobody.close()
    nobody.close()
    with pytest.raises(NotRunningError):
        nobody.send(Message("t", b"x"))
