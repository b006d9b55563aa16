"""`fail_next`, `latency`, `disconnect`: what clients meet, and what the broker has done meanwhile."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaProducer
from kafka.errors import NotEnoughReplicasError

from halfmoon.adapters.kafka.errors import CODES
from halfmoon.kafka_wire.messages import REQUESTS
from halfmoon.testing import Broker
from halfmoon.testing.admin_socket import AdminSocket
from halfmoon.testing.error_names import FIRST, KAFKA, code_of
from tests.testing.any_request import any_request
from tests.testing.test_broker import QUIET

POLICY_VIOLATION = 44


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as made:
        yield made


@pytest.fixture(autouse=True)
def _healed(broker: Broker) -> Iterator[None]:
    yield
    broker.heal()


def producer_of(broker: Broker, **more: object) -> Producer:
    return Producer(
        {"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 0, "retry.backoff.ms": 10, **QUIET, **more}
    )


def test_a_producer_rides_out_errors(broker: Broker, halfmoon_topic: str) -> None:
    failure = broker.fail_next("Produce", "NOT_LEADER_OR_FOLLOWER", 3)
    producer = producer_of(broker)
    producer.produce(halfmoon_topic, b"one")
    assert producer.flush(20) == 0
    assert failure.met == 3
    assert [each.value for each in broker.records(halfmoon_topic)] == [b"one"]


def test_an_error_that_does_not_pass_is_handed_to_the_caller(broker: Broker, halfmoon_topic: str) -> None:
    broker.fail_next("Produce", "INVALID_RECORD")
    told: list[object] = []
    producer = producer_of(broker)
    producer.produce(halfmoon_topic, b"one", on_delivery=lambda error, _: told.append(error and error.name()))
    assert producer.flush(20) == 0
    assert told == ["INVALID_RECORD"]
    assert broker.records(halfmoon_topic) == []


def test_kafka_python_sees_the_same(broker: Broker, halfmoon_topic: str) -> None:
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers, retries=0, enable_idempotence=False)
    producer.send(halfmoon_topic, b"zero").get(timeout=10)
    broker.fail_next("Produce", "NOT_ENOUGH_REPLICAS")
    with pytest.raises(NotEnoughReplicasError):
        producer.send(halfmoon_topic, b"one").get(timeout=10)
    assert producer.send(halfmoon_topic, b"two").get(timeout=10).offset == 1
    producer.close()


def test_a_fetch_fails_and_goes_on(broker: Broker, halfmoon_topic: str) -> None:
    broker.produce(halfmoon_topic, "one")
    failure = broker.fail_next("Fetch", "NOT_LEADER_OR_FOLLOWER", 2)
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": halfmoon_topic, **QUIET})
    consumer.assign([TopicPartition(halfmoon_topic, 0, 0)])
    message = consumer.poll(20)
    assert message is not None
    assert message.value() == b"one"
    assert failure.met == 2
    consumer.close()


def test_a_member_that_is_unknown_joins_again(broker: Broker, halfmoon_topic: str) -> None:
    broker.produce(halfmoon_topic, "one")
    config = {"bootstrap.servers": broker.bootstrap_servers, "group.id": halfmoon_topic, **QUIET}
    consumer = Consumer({**config, "auto.offset.reset": "earliest", "heartbeat.interval.ms": 100})
    lost: list[object] = []
    consumer.subscribe([halfmoon_topic], on_lost=lambda _, partitions: lost.append(partitions))
    assert consumer.poll(20) is not None
    failure = broker.fail_next("Heartbeat", "UNKNOWN_MEMBER_ID")
    until_s = time.monotonic() + 20
    while not lost:
        consumer.poll(0.1)
        assert time.monotonic() < until_s
    assert failure.met == 1
    consumer.close()


def test_a_commit_is_refused(broker: Broker, halfmoon_topic: str) -> None:
    broker.produce(halfmoon_topic, "one")
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": halfmoon_topic, **QUIET})
    broker.fail_next("OffsetCommit", "GROUP_AUTHORIZATION_FAILED")
    with pytest.raises(KafkaException, match="GROUP_AUTHORIZATION_FAILED"):
        consumer.commit(offsets=[TopicPartition(halfmoon_topic, 0, 1)], asynchronous=False)
    consumer.commit(offsets=[TopicPartition(halfmoon_topic, 0, 1)], asynchronous=False)
    consumer.close()


def test_administration_fails(broker: Broker, halfmoon_topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, **QUIET})
    broker.fail_next("CreateTopics", "POLICY_VIOLATION")
    with pytest.raises(KafkaException, match="POLICY_VIOLATION"):
        admin.create_topics([NewTopic(halfmoon_topic, 1, 1)])[halfmoon_topic].result(10)
    admin.create_topics([NewTopic(halfmoon_topic, 1, 1)])[halfmoon_topic].result(10)


def test_only_one_client_meets_it(broker: Broker, halfmoon_topic: str) -> None:
    failure = broker.fail_next("Produce", "INVALID_RECORD", client="bad")
    told: list[object] = []
    for client in ("good", "bad"):
        producer = producer_of(broker, **{"client.id": client})
        producer.produce(halfmoon_topic, b"one", on_delivery=lambda error, _: told.append(error and error.name()))
        assert producer.flush(20) == 0
    assert told == [None, "INVALID_RECORD"]
    assert failure.met == 1


def test_a_failure_can_end_before_anybody_has_met_it(broker: Broker, halfmoon_topic: str) -> None:
    with broker.fail_next("Produce", "INVALID_RECORD", 5) as failure:
        pass
    producer = producer_of(broker)
    producer.produce(halfmoon_topic, b"one")
    assert producer.flush(20) == 0
    assert failure.met == 0
    assert len(broker.records(halfmoon_topic)) == 1


def test_without_failures_the_broker_is_as_before(broker: Broker) -> None:
    app = broker.app
    assert app is not None
    before = dict(app.kafka.routes)
    with broker.fail_next("Produce", "INVALID_RECORD"), broker.latency("1s"):
        assert app.kafka.routes != before
    assert app.kafka.routes == before


def test_answers_are_late(broker: Broker, halfmoon_topic: str) -> None:
    producer = producer_of(broker)
    producer.produce(halfmoon_topic, b"zero")
    assert producer.flush(20) == 0
    with broker.latency("300ms", "Produce"):
        begun_s = time.monotonic()
        producer.produce(halfmoon_topic, b"one")
        assert producer.flush(20) == 0
        assert 0.3 <= time.monotonic() - begun_s < 5
    begun_s = time.monotonic()
    producer.produce(halfmoon_topic, b"two")
    assert producer.flush(20) == 0
    assert time.monotonic() - begun_s < 0.3


def test_a_request_times_out_that_is_answered_too_late(broker: Broker, halfmoon_topic: str) -> None:
    """The record is there all the same: the client does not know it."""
    broker.produce(halfmoon_topic, "zero")
    told: list[object] = []
    with broker.latency("5s", "Produce"):
        producer = producer_of(broker, **{"message.timeout.ms": 1000, "request.timeout.ms": 500, "retries": 0})
        producer.produce(halfmoon_topic, b"one", on_delivery=lambda error, _: told.append(error and error.name()))
        assert producer.flush(20) == 0
    assert told in (["_MSG_TIMED_OUT"], ["_TIMED_OUT"], ["REQUEST_TIMED_OUT"])
    assert len(broker.records(halfmoon_topic)) >= 2


@pytest.mark.parametrize("handled", [False, True])
def test_a_lost_answer_makes_no_duplicate(broker: Broker, halfmoon_topic: str, handled: bool) -> None:
    producer = producer_of(broker, **{"enable.idempotence": True, "reconnect.backoff.ms": 10})
    producer.produce(halfmoon_topic, b"zero")
    assert producer.flush(20) == 0
    failure = broker.disconnect("Produce", 2, handled=handled)
    assert failure is not None
    producer.produce(halfmoon_topic, b"one")
    assert producer.flush(20) == 0
    assert failure.met == 2
    assert [each.value for each in broker.records(halfmoon_topic)] == [b"zero", b"one"]


def test_all_are_disconnected(broker: Broker, halfmoon_topic: str) -> None:
    producer = producer_of(broker, **{"reconnect.backoff.ms": 10})
    producer.produce(halfmoon_topic, b"one")
    assert producer.flush(20) == 0
    app = broker.app
    assert app is not None
    accepted = app.kafka.counters.accepted
    assert broker.disconnect(client="somebody else") is None
    producer.produce(halfmoon_topic, b"two")
    assert producer.flush(20) == 0
    assert app.kafka.counters.accepted == accepted
    broker.disconnect()
    producer.produce(halfmoon_topic, b"three")
    assert producer.flush(20) == 0
    assert app.kafka.counters.accepted > accepted
    assert len(broker.records(halfmoon_topic)) == 3


def test_a_failure_outlasts_a_restart() -> None:
    with Broker() as broker:
        failure = broker.fail_next("Produce", "INVALID_RECORD")
        broker.restart()
        told: list[object] = []
        producer = producer_of(broker)
        producer.produce("t", b"one", on_delivery=lambda error, _: told.append(error and error.name()))
        assert producer.flush(20) == 0
        assert (told, failure.met) == (["INVALID_RECORD"], 1)


@pytest.mark.parametrize(
    ("api", "error", "said"),
    [
        ("Produces", "INVALID_RECORD", "is no API"),
        ("produce", "INVALID_RECORD", r"Produce\?"),
        ("Produce", "INVALID_RECORDS", "is no error"),
        ("Produce", "NONE", "is no error"),
        ("Produce", 0, "is no error's number"),
        ("SEND_MESSAGE_V2", "SUCCESS", "is no error"),
        ("SEND_MESSAGE_V2", "SYSTEM_BUSY", "no listener"),  # this broker has none of RocketMQ's
    ],
)
def test_what_nobody_knows_is_refused(broker: Broker, api: str, error: str | int, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        broker.fail_next(api, error)
    assert broker.records  # it goes on
    broker.heal()


def test_errors_have_kafkas_numbers() -> None:
    for fault, code in CODES.items():
        assert KAFKA[code - FIRST] == fault.name
    import kafka.errors

    for name in dir(kafka.errors):
        number = getattr(getattr(kafka.errors, name), "errno", None)
        message = getattr(getattr(kafka.errors, name), "message", None)
        if isinstance(number, int) and number > 0 and isinstance(message, str) and message in KAFKA:
            assert KAFKA[number - FIRST] == message
    assert code_of("Fetch", "unknown_server_error") == -1
    assert code_of("SEND_MESSAGE_V2", "SYSTEM_BUSY") == 2


def test_each_api_can_fail(broker: Broker, halfmoon_topic: str) -> None:
    """Each answer that has a place for an error has it there, in each version."""
    assert broker.app is not None
    (admin,) = broker.administrators
    broker.produce(halfmoon_topic, "one")
    asker, wrong = AdminSocket(admin.path, "a client"), {}
    for route in [*broker.app.kafka.routes.values()]:
        if route.key not in REQUESTS or (route.name, route.version < 3) == ("DescribeLogDirs", True):
            continue  # an API of our own; and answers without directories, which alone have errors
        with broker.fail_next(route.name, "POLICY_VIOLATION") as failure:
            answer = asker.ask_in(route.version, route.key, **any_request(route.key, route.version, halfmoon_topic))
            codes = set(_codes(answer, route.version))
            if failure.met != 1 or codes not in ({POLICY_VIOLATION}, {0, POLICY_VIOLATION}):  # 0: of the whole
                wrong[route.name, route.version] = failure.met, codes
    assert not wrong


def _codes(record: object, version: int) -> Iterator[int]:
    for field in record.DEFINITION.fields:  # type: ignore[attr-defined]
        value = getattr(record, field.name)
        if field.struct is not None:
            for each in (value or ()) if field.is_array else [value]:
                if each is not None:
                    yield from _codes(each, version)
        elif field.name.endswith("error_code") and field.is_in(version):
            yield value
