"""`advance`: what waits for a time happens at once, in its order, and clients stay what they are."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import timedelta

import pytest
from confluent_kafka import Consumer, Producer
from kafka import KafkaConsumer, KafkaProducer

from halfmoon.testing import Broker
from tests.testing.test_broker import QUIET

HOUR_MS = 3_600_000


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as made:
        yield made


def values(broker: Broker, topic: str) -> list[bytes | None]:
    try:
        return [each.value for each in broker.records(topic)]
    except LookupError:
        return []


def test_a_delayed_message_is_there_when_its_time_has_come(broker: Broker) -> None:
    broker.produce("orders", "later", headers={"TIMER_DELAY_MS": str(HOUR_MS)})
    broker.advance("59m")
    assert values(broker, "orders") == []
    broker.advance("1m")
    (found,) = broker.records("orders")
    assert found.value == b"later"
    assert abs(found.timestamp_ms - broker.now_ms) < 5_000
    assert abs(broker.now_ms - time.time() * 1000 - HOUR_MS) < 5_000


def test_delays_come_in_the_order_of_their_times(broker: Broker) -> None:
    for seconds in (30, 10, 20):
        broker.produce("orders", str(seconds), headers={"TIMER_DELAY_SEC": str(seconds)})
    broker.advance(timedelta(minutes=1))
    found = broker.records("orders")
    assert [each.value for each in found] == [b"10", b"20", b"30"]
    stamps = [each.timestamp_ms for each in found]
    assert [stamps[1] - stamps[0], stamps[2] - stamps[1]] == [pytest.approx(10_000, abs=500)] * 2


def test_an_appointment_of_the_wall_clock_is_kept(broker: Broker) -> None:
    due = broker.now_ms + 24 * HOUR_MS
    broker.produce("orders", "tomorrow", headers={"TIMER_DELIVER_MS": str(due)})
    broker.advance("23h")
    assert values(broker, "orders") == []
    broker.advance("1h")
    assert values(broker, "orders") == [b"tomorrow"]


def test_redeliveries_and_the_dead_letter_come_without_waiting(broker: Broker) -> None:
    """A record that nobody can process: each redelivery at its time, then the dead-letter topic."""
    config = {"bootstrap.servers": broker.bootstrap_servers, **QUIET}
    consumer = Consumer({**config, "group.id": "billing", "auto.offset.reset": "earliest"})
    producer = Producer({**config, "linger.ms": 0})
    broker.produce("orders", "x")
    consumer.subscribe(["orders", "retry.billing"])
    attempts = 0
    begun_s = time.monotonic()
    try:
        while not values(broker, "dlq.billing"):
            message = consumer.poll(0.2)
            if message is None:
                broker.advance("2h")
                continue
            assert message.error() is None
            attempts += 1
            headers = [*(message.headers() or [])]
            where = f"{message.topic()}/{message.partition()}/{message.offset()}"
            if message.topic() == "orders":
                headers.append(("RETRY_OF", where.encode()))
            producer.produce("retry.billing", message.value(), headers=headers)
            assert producer.flush(10) == 0
            assert attempts < 30
    finally:
        consumer.close()
    assert attempts > 10
    assert time.monotonic() - begun_s < 60


def test_members_stay_in_their_groups(broker: Broker) -> None:
    config = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "g", "auto.offset.reset": "earliest", **QUIET}
    consumer = Consumer({**config, "session.timeout.ms": 6000})
    lost: list[object] = []
    broker.produce("orders", "now")
    broker.produce("orders", "later", headers={"TIMER_DELAY_SEC": "3600"})
    consumer.subscribe(["orders"], on_lost=lambda _, partitions: lost.append(partitions))
    message = consumer.poll(20)
    assert message is not None
    assert message.value() == b"now"
    broker.advance("1h")
    message = consumer.poll(20)
    assert message is not None
    assert message.value() == b"later"
    consumer.commit(asynchronous=False)  # raises where it is no member any more
    assert not lost
    consumer.close()


def test_silent_members_lose_their_sessions(broker: Broker) -> None:
    config = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "g", "auto.offset.reset": "earliest", **QUIET}
    consumer = Consumer({**config, "session.timeout.ms": 60_000, "heartbeat.interval.ms": 50_000})
    broker.produce("orders", "now")
    consumer.subscribe(["orders"])
    assert consumer.poll(20) is not None
    app = broker.app
    assert app is not None

    def members() -> int:
        group = app.node.groups.coordinator.classic._groups.get("g")
        return 0 if group is None else len(group.members)

    assert members() == 1
    broker.advance("59s")
    assert members() == 1
    broker.advance("2m", silent=True)
    assert members() == 0
    consumer.close()


def test_a_transaction_that_is_left_open_is_aborted(broker: Broker) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "t", **QUIET})
    producer.init_transactions(10)
    producer.begin_transaction()
    producer.produce("orders", b"open")
    producer.flush(10)
    broker.produce("orders", "behind")
    assert [each.value for each in broker.records("orders", committed=True)] == []
    broker.advance("2m")
    assert [each.value for each in broker.records("orders", committed=True)] == [b"behind"]
    assert [each.value for each in broker.records("orders")] == [b"open", b"behind"]


def test_idle_connections_stay(broker: Broker) -> None:
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers)
    producer.send("orders", b"one").get(timeout=10)
    app = broker.app
    assert app is not None
    before = app.kafka.counters.accepted
    broker.advance("3d")
    broker._in_loop(lambda app: app.kafka._sweep())
    assert producer.send("orders", b"two").get(timeout=10).offset == 1
    assert app.kafka.counters.accepted == before
    producer.close()


def test_old_records_go(broker: Broker) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, **QUIET})
    admin.create_topics([NewTopic("short", 1, 1, config={"retention.ms": "60000"})])["short"].result(10)
    broker.produce("short", "old")
    broker.restart()  # what is being written stays, as with Kafka
    broker.advance("30s")
    assert values(broker, "short") == [b"old"]
    broker.advance("2m")
    assert values(broker, "short") == []


def test_the_clock_stays_ahead_over_restarts(broker: Broker) -> None:
    broker.advance("1h")
    broker.produce("orders", "later", headers={"TIMER_DELAY_SEC": "60"})
    broker.restart()
    assert values(broker, "orders") == []
    broker.kill()
    broker.restart()
    broker.advance("1m")
    assert values(broker, "orders") == [b"later"]
    assert broker.now_ms > time.time() * 1000 + HOUR_MS


def test_a_consumer_that_waits_gets_what_comes(broker: Broker) -> None:
    """A fetch is parked while the time passes."""
    broker.produce("orders", "later", headers={"TIMER_DELAY_SEC": "3600"})
    consumer = KafkaConsumer("orders", bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest")
    assert consumer.poll(500) == {}
    broker.advance("1h")
    (found,) = next(iter(consumer.poll(10_000).values()))
    assert found.value == b"later"
    consumer.close()


def test_thousands_of_times_do_not_take_long(broker: Broker) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, **QUIET})
    for number in range(1_500):
        producer.produce("orders", str(number).encode(), headers={"TIMER_DELAY_MS": str(10_000 + 1_977 * number)})
    assert producer.flush(20) == 0
    begun_s = time.process_time()
    broker.advance("1h")
    assert [each.value for each in broker.records("orders")] == [str(number).encode() for number in range(1_500)]
    assert time.process_time() - begun_s < 30


@pytest.mark.parametrize("wrong", ["10", "1 fortnight", -1, timedelta(seconds=-1)])
def test_what_is_no_duration_is_refused(broker: Broker, wrong: str | float | timedelta) -> None:
    with pytest.raises(ValueError, match=r"duration|unit|back|got|number"):
        broker.advance(wrong)


def test_a_broker_that_does_not_run_has_no_time_to_pass() -> None:
    with pytest.raises(ValueError, match="not running"):
        Broker().advance("1s")
