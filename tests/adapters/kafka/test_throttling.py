"""Quotas at the connection: what clients are told, for how long they are not read from, and that their rate holds."""

from __future__ import annotations

import gc
from typing import Any
from uuid import UUID

import pytest
from kafka_rig import Rig, RigClient, batch

from halfmoon.adapters.kafka import throttling
from halfmoon.adapters.kafka.registry import Deferred
from halfmoon.services.quotas.service import CONNECTIONS, CONSUMED, MUTATIONS, PRODUCED, REQUEST_TIME, Alteration
from tests.kafka_messages import made

PRODUCE, FETCH, METADATA, API_VERSIONS, CREATE, DELETE, PARTITIONS, DESCRIBE_PARTITIONS = 0, 1, 3, 18, 19, 20, 37, 75
SHARE_FETCH = 78


@pytest.fixture
def rig() -> Rig:
    rig = Rig()
    rig.topic("t")
    return rig


def limit(rig: Rig, key: str, value: float, **entity: str | None) -> None:
    parts = [(kind.replace("_", "-"), name) for kind, name in (entity or {"client_id": "rig"}).items()]
    rig.broker.quotas.alter(Alteration(parts, [(key, value)]))
    rig.turn()


def produce(client: RigClient, size: int, version: int = 9, acks: int = 1) -> bytes:
    data = made(PRODUCE, "TopicProduceData.PartitionProduceData", index=0, records=batch(b"x" * size))
    topic = made(PRODUCE, "TopicProduceData", name="t", partition_data=[data])
    return client.encode(PRODUCE, version, transactional_id=None, acks=acks, timeout_ms=1000, topic_data=[topic])


def fetch(client: RigClient, version: int = 12, offset: int = 0, **fields: Any) -> bytes:
    wanted = made(
        FETCH, "FetchTopic.FetchPartition", partition=0, current_leader_epoch=-1, fetch_offset=offset,
        last_fetched_epoch=-1, log_start_offset=-1, partition_max_bytes=1 << 20,
    )  # fmt: skip
    topic = made(FETCH, "FetchTopic", topic="t", partitions=[wanted])
    given = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1 << 26} | fields
    return client.encode(
        FETCH, version, replica_id=-1, isolation_level=0, session_id=0, session_epoch=-1, topics=[topic],
        forgotten_topics_data=[], rack_id="", **given,
    )  # fmt: skip


def test_nothing_is_measured_while_no_quota_is_set(rig: Rig) -> None:
    assert rig.server.shared.throttling is None
    limit(rig, PRODUCED, 1, client_id="somebody else")
    assert rig.server.shared.throttling is not None
    client = rig.client()
    client.feed(produce(client, 10_000))
    rig.turn()
    assert client.answers()[0].throttle_time_ms == 0


@pytest.mark.parametrize("version", [3, 8, 9, 12])
def test_a_producer_is_told_to_wait_and_not_read_from_meanwhile(rig: Rig, version: int) -> None:
    limit(rig, PRODUCED, 1_000)
    client = rig.client()
    requests = [produce(client, 20_000, version) for _ in range(3)]
    client.feed(b"".join(requests))
    rig.turn()
    (answer,) = client.answers()
    (stored,) = answer.responses[0].partition_responses
    assert stored.error_code == 0
    wait_ms = answer.throttle_time_ms
    assert wait_ms == len(requests[0]) - 4 - 10_000  # ten seconds' worth is free, and a byte more is a millisecond
    assert not client.transport.reading
    rig.pass_time(wait_ms - 1)
    rig.turn()
    assert client.answers() == []
    rig.pass_time(1)
    rig.turn()
    (second,) = client.answers()
    assert second.throttle_time_ms > 0
    rig.pass_time(second.throttle_time_ms)
    rig.turn()
    (third,) = client.answers()
    rig.pass_time(third.throttle_time_ms)
    assert client.transport.reading
    assert rig.broker.quotas.throttled == {PRODUCED: 3}
    assert rig.broker.quotas.throttled_ms[PRODUCED] == wait_ms + second.throttle_time_ms + third.throttle_time_ms


def test_a_producer_that_waits_for_no_answer_is_not_read_from(rig: Rig) -> None:
    limit(rig, PRODUCED, 1_000)
    client = rig.client()
    client.feed(produce(client, 20_000, acks=0))
    rig.turn()
    assert client.frames() == []
    assert not client.transport.reading
    rig.pass_time(12_000)
    assert client.transport.reading


def test_a_producers_rate_holds(rig: Rig) -> None:
    """In virtual time, one request after the other: within 10 % once the first windows are over."""
    limit(rig, PRODUCED, 100_000)
    client = rig.client()
    sent, begun_ms, start_ms = 0, 0, rig.clock.now_ms
    while rig.clock.now_ms < start_ms + 120_000:
        request = produce(client, 20_000)
        client.feed(request)
        rig.turn()
        if rig.clock.now_ms >= start_ms + 20_000:
            begun_ms = begun_ms or rig.clock.now_ms
            sent += len(request)
        rig.pass_time(max(client.answers()[0].throttle_time_ms, 1))
    assert sent / (rig.clock.now_ms - begun_ms) * 1000 == pytest.approx(100_000, rel=0.1)


@pytest.mark.parametrize("version", [4, 7, 12])
def test_a_consumer_gets_nothing_and_is_told_to_wait(rig: Rig, version: int) -> None:
    (partition,) = rig.broker.topic("t").partitions
    for _ in range(30):
        rig.append(partition, b"y" * 1_000)
    limit(rig, CONSUMED, 1_000)
    client = rig.client()
    client.feed(fetch(client, version))
    rig.turn()
    (answer,) = client.answers()
    size = len(answer.responses[0].partitions[0].records)
    assert 9_000 < size <= 10_000  # never more at once than ten seconds' worth
    assert answer.throttle_time_ms == 0
    client.feed(fetch(client, version))
    rig.turn()
    (answer,) = client.answers()
    assert answer.responses == []
    assert 8_000 < answer.throttle_time_ms <= 10_000
    assert not client.transport.reading
    assert rig.broker.quotas.throttled == {CONSUMED: 1}
    rig.pass_time(11_000)
    client.feed(fetch(client, version))
    rig.turn()
    (answer,) = client.answers()
    assert len(answer.responses[0].partitions[0].records) == size


def test_a_batch_larger_than_the_quota_is_had_by_who_had_nothing_before(rig: Rig) -> None:
    """Kafka never delivers it: with what is left of nothing, it is always too much."""
    (partition,) = rig.broker.topic("t").partitions
    for _ in range(2):
        rig.append(partition, b"y" * 20_000)
    limit(rig, CONSUMED, 1_000)
    client = rig.client()
    for offset in range(2):
        client.feed(fetch(client, offset=offset))
        rig.turn()
        (answer,) = client.answers()
        size = len(answer.responses[0].partitions[0].records)
        assert size > 20_000
        assert answer.throttle_time_ms >= size - 10_000
        rig.pass_time(answer.throttle_time_ms)
        client.feed(fetch(client, offset=offset))
        rig.turn()
        (answer,) = client.answers()
        assert answer.responses == []  # it was had within the time that is looked at
        rig.pass_time(answer.throttle_time_ms)


def test_a_consumers_rate_holds(rig: Rig) -> None:
    (partition,) = rig.broker.topic("t").partitions
    rig.append(partition, b"y" * 20_000)
    limit(rig, CONSUMED, 100_000)
    client = rig.client()
    got, begun_ms, start_ms = 0, 0, rig.clock.now_ms
    while rig.clock.now_ms < start_ms + 120_000:
        client.feed(fetch(client))
        rig.turn()
        size = len(client.transport.received)
        (answer,) = client.answers()
        if answer.responses and rig.clock.now_ms >= start_ms + 20_000:
            begun_ms = begun_ms or rig.clock.now_ms
            got += size
        rig.pass_time(max(answer.throttle_time_ms, 1))
    assert got / (rig.clock.now_ms - begun_ms) * 1000 == pytest.approx(100_000, rel=0.1)


def test_a_parked_fetch_counts_when_it_is_answered(rig: Rig) -> None:
    (partition,) = rig.broker.topic("t").partitions
    limit(rig, CONSUMED, 100)
    client = rig.client()
    client.feed(fetch(client, max_wait_ms=5_000))
    rig.turn()
    assert client.answers() == []
    rig.broker.quotas.record(CONSUMED, "rig", 1)
    rig.append(partition, b"z" * 2_000)
    rig.turn()
    (answer,) = client.answers()
    assert answer.responses == []
    assert answer.throttle_time_ms > 9_000


class Sharer:
    """A member of a share group, which fetches topic t; `answer` is how many bytes of records it got, and for how long
    it is to wait."""

    def __init__(self, rig: Rig, name: str = "m") -> None:
        topic = rig.broker.topic("t")
        assert topic is not None
        self.rig, self.name, self.client, self.epoch = rig, name, rig.client(), 0
        part = made(SHARE_FETCH, "FetchTopic.FetchPartition", partition_index=0, acknowledgement_batches=[])
        self.topics = [made(SHARE_FETCH, "FetchTopic", topic_id=UUID(bytes=topic.id), partitions=[part])]

    def send(self, **fields: Any) -> None:
        given = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1 << 26, "max_records": 100} | fields
        asked = self.client.encode(
            SHARE_FETCH, 2, group_id="g", member_id=self.name, share_session_epoch=self.epoch, topics=self.topics,
            forgotten_topics_data=[], batch_size=100, share_acquire_mode=0, is_renew_ack=False, **given,
        )  # fmt: skip
        self.epoch += 1
        self.client.feed(asked)
        self.rig.turn()

    def answer(self) -> tuple[int, int]:
        (answer,) = self.client.answers()
        assert answer.error_code == 0
        parts = [part for topic in answer.responses for part in topic.partitions]
        assert [bool(part.records) for part in parts] == [bool(part.acquired_records) for part in parts]
        return sum(len(part.records or b"") for part in parts), answer.throttle_time_ms


@pytest.fixture
def sharer(rig: Rig) -> Sharer:
    rig.broker.group_configs.alter("g", {"share.auto.offset.reset": "earliest"})
    return Sharer(rig)


def test_a_member_of_a_share_group_is_told_to_wait_and_acquires_nothing_meanwhile(rig: Rig, sharer: Sharer) -> None:
    """What it has acquired it must get, since nobody else does; so what is too much is waited for afterwards."""
    (partition,) = rig.broker.topic("t").partitions
    for _ in range(30):
        rig.append(partition, b"y" * 1_000)
    limit(rig, CONSUMED, 1_000)
    sharer.send()
    first, wait_ms = sharer.answer()
    assert 9_000 < first <= 10_000  # never more at once than ten seconds' worth
    assert wait_ms < 500
    rig.pass_time(wait_ms)
    sharer.send()
    second, wait_ms = sharer.answer()
    assert 9_000 < second <= 10_000
    assert 8_000 < wait_ms <= 11_000
    assert not sharer.client.transport.reading
    assert rig.broker.quotas.throttled[CONSUMED] >= 1
    other = Sharer(rig, "n")  # on another connection, which is still read from
    other.send()
    third, wait_ms = other.answer()
    assert (third, wait_ms > 8_000) == (0, True)
    start_ms = rig.clock.now_ms
    while not third:
        rig.pass_time(wait_ms)
        sharer.send()
        third, wait_ms = sharer.answer()
    assert third > 9_000
    assert rig.clock.now_ms - start_ms <= (first + second) + 1_000  # a byte is a millisecond


def test_the_rate_of_a_member_of_a_share_group_holds(rig: Rig, sharer: Sharer) -> None:
    (partition,) = rig.broker.topic("t").partitions
    limit(rig, CONSUMED, 100_000)
    got, begun_ms, start_ms = 0, 0, rig.clock.now_ms
    while rig.clock.now_ms < start_ms + 120_000:
        rig.append(partition, b"y" * 20_000)
        sharer.send()
        size, wait_ms = sharer.answer()
        if rig.clock.now_ms >= start_ms + 20_000:
            begun_ms = begun_ms or rig.clock.now_ms
            got += size
        rig.pass_time(max(wait_ms, 1))
    assert got / (rig.clock.now_ms - begun_ms) * 1000 == pytest.approx(100_000, rel=0.1)


def test_a_member_of_a_share_group_that_waited_acquires_nothing_above_the_quota(rig: Rig, sharer: Sharer) -> None:
    (partition,) = rig.broker.topic("t").partitions
    limit(rig, CONSUMED, 100)
    sharer.send(max_wait_ms=5_000)
    assert sharer.client.frames() == []
    rig.broker.quotas.record(CONSUMED, "rig", 2_000)
    rig.append(partition, b"z" * 100)
    size, wait_ms = sharer.answer()
    assert (size, wait_ms > 9_000) == (0, True)


def test_time_counts_for_members_of_share_groups(rig: Rig, sharer: Sharer, monkeypatch: pytest.MonkeyPatch) -> None:
    limit(rig, REQUEST_TIME, 1)
    clock = iter(range(0, 10**12, 400_000_000))
    monkeypatch.setattr(throttling.time, "perf_counter_ns", lambda: next(clock))
    sharer.send()
    assert sharer.answer() == (0, 1_000)
    assert not sharer.client.transport.reading


def test_a_fetch_that_waited_waits_no_more_for_the_time_of_others_before(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    (partition,) = rig.broker.topic("t").partitions
    limit(rig, REQUEST_TIME, 1)
    clock = iter(range(0, 10**12, 400_000_000))
    monkeypatch.setattr(throttling.time, "perf_counter_ns", lambda: next(clock))
    client = rig.client()
    client.feed(fetch(client, max_wait_ms=60_000))
    rig.pass_time(50_000)
    rig.append(partition, b"z")
    rig.turn()
    (answer,) = client.answers()
    assert answer.throttle_time_ms == 0
    assert answer.responses[0].partitions[0].records


def test_another_request_still_ends_the_wait_of_a_fetch(rig: Rig) -> None:
    limit(rig, CONSUMED, 100)
    client = rig.client()
    client.feed(fetch(client, max_wait_ms=5_000))
    client.feed(client.encode(API_VERSIONS, 0))
    rig.turn()
    assert len(client.answers()) == 2


@pytest.mark.parametrize(
    ("key", "version"), [(METADATA, 2), (METADATA, 3), (METADATA, 13), (DESCRIBE_PARTITIONS, 0), (32, 4)]
)
def test_time_counts_for_every_api(rig: Rig, monkeypatch: pytest.MonkeyPatch, key: int, version: int) -> None:
    limit(rig, REQUEST_TIME, 1)
    clock = iter(range(0, 10**12, 400_000_000))
    monkeypatch.setattr(throttling.time, "perf_counter_ns", lambda: next(clock))
    client = rig.client()
    fields: dict[str, Any] = {
        METADATA: {"topics": [], "allow_auto_topic_creation": False},
        DESCRIBE_PARTITIONS: {"topics": [], "response_partition_limit": 10, "cursor": None},
        32: {"resources": [], "include_synonyms": False, "include_documentation": False},
    }[key]
    client.feed(client.encode(key, version, **fields))
    rig.turn()
    (answer,) = client.answers()
    if (key, version) != (METADATA, 2):  # which has no place for it
        assert answer.throttle_time_ms == 1_000
    assert not client.transport.reading
    rig.pass_time(1_000)
    assert client.transport.reading


def test_asking_for_the_versions_is_free(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    limit(rig, REQUEST_TIME, 1)
    clock = iter(range(0, 10**12, 400_000_000))
    monkeypatch.setattr(throttling.time, "perf_counter_ns", lambda: next(clock))
    client = rig.client()
    assert client.ask(API_VERSIONS, 3, client_software_name="a", client_software_version="1").throttle_time_ms == 0
    assert client.transport.reading


def test_changes_of_topics(rig: Rig) -> None:
    limit(rig, MUTATIONS, 1)
    client = rig.client()

    def create(version: int, *names: str) -> Any:
        given = {"num_partitions": 6, "replication_factor": 1, "assignments": [], "configs": []}
        topics = [made(CREATE, "CreatableTopic", name=name, **given) for name in names]
        return client.ask(CREATE, version, topics=topics, timeout_ms=1000, validate_only=False)

    answer = create(7, "a", "b", "c")
    assert [topic.error_code for topic in answer.topics] == [0, 0, 89]
    assert answer.throttle_time_ms == 1_000
    rig.pass_time(1_000)
    answer = create(5, "d")  # of before the refusal was known: is only made to wait
    assert [topic.error_code for topic in answer.topics] == [0]
    assert answer.throttle_time_ms == 6_000
    rig.pass_time(5_000)
    assert not client.transport.reading
    rig.pass_time(1_000)
    wanted = made(PARTITIONS, "CreatePartitionsTopic", name="t", count=13, assignments=None)
    answer = client.ask(PARTITIONS, 3, topics=[wanted], timeout_ms=1000, validate_only=False)
    assert [topic.error_code for topic in answer.results] == [0]
    deleted = made(DELETE, "DeleteTopicState", name="a", topic_id=None)
    answer = client.ask(DELETE, 6, topics=[deleted], topic_names=[], timeout_ms=1000)
    assert [topic.error_code for topic in answer.responses] == [89]
    assert answer.throttle_time_ms == 12_000


def test_a_connection_that_comes_too_early_is_closed_after_a_while(rig: Rig) -> None:
    limit(rig, CONNECTIONS, 1, ip="10.0.0.9")
    clients = [rig.client() for _ in range(11)]
    assert [client.transport.reading for client in clients] == [True] * 10 + [False]
    assert not clients[-1].transport.closed
    rig.pass_time(1_000)
    assert clients[-1].transport.closed
    assert not clients[0].transport.closed
    assert rig.broker.quotas.throttled == {CONNECTIONS: 1}


def test_no_wait_is_longer_than_an_answer_can_say(rig: Rig) -> None:
    """At a byte a second, three gigabytes are a wait of 95 years, and the field has place for 25 days."""
    producer, consumer, other = rig.client(), rig.client(), rig.client()
    for key in (PRODUCED, CONSUMED):
        limit(rig, key, 1)
        rig.broker.quotas.record(key, "rig", 3e9)
    consumer.feed(fetch(consumer, max_wait_ms=5_000))
    other.feed(fetch(other, max_wait_ms=5_000).replace(b"rig", b"not", 1))
    producer.feed(produce(producer, 1_000))
    rig.turn()
    assert [client.answers()[0].throttle_time_ms for client in (producer, consumer, other)] == [2**31 - 1] * 2 + [0]


def test_answers_that_come_later_leave_nothing_for_the_garbage_collector(rig: Rig) -> None:
    """A broker process lets it look seldom (`server.garbage`), and an answer may be megabytes."""
    (partition,) = rig.broker.topic("t").partitions
    limit(rig, CONSUMED, 1e9)
    client = rig.client()

    def deferred() -> set[int]:
        return {id(found) for found in gc.get_objects() if isinstance(found, Deferred)}

    gc.collect()
    gc.disable()
    others = deferred()
    try:
        for offset in range(5):
            client.feed(fetch(client, offset=offset, max_wait_ms=5_000))
            rig.turn()
            rig.append(partition, b"z" * 1_000)
            assert client.answers()[0].responses[0].partitions[0].records
            rig.pass_time(5_000)
        assert deferred() <= others
    finally:
        gc.enable()


def test_a_fault_in_counting_closes_the_connection_and_no_other(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    (partition,) = rig.broker.topic("t").partitions
    limit(rig, CONSUMED, 1)
    clients = rig.client(), rig.client()
    for client in clients:
        client.feed(fetch(client, max_wait_ms=5_000).replace(b"rig", b"%03d" % clients.index(client), 1))
    record = rig.broker.quotas.record

    def failing(key: str, client_id: str, value: float, user: str) -> int:
        assert client_id != "000"
        return record(key, client_id, value)

    monkeypatch.setattr(rig.broker.quotas, "record", failing)
    rig.append(partition, b"z")
    assert [client.transport.closed for client in clients] == [True, False]
    assert len(clients[1].frames()) == 1


def test_a_muted_connection_that_is_lost_leaves_no_timer(rig: Rig) -> None:
    limit(rig, PRODUCED, 1)
    client = rig.client()
    client.feed(produce(client, 1_000))
    rig.turn()
    assert len(rig.loop.later) == 1
    client.connection.connection_lost(None)
    assert rig.loop.later == []


def sweep(rig: Rig, client: RigClient) -> None:
    limits = rig.broker.settings.limits
    client.connection.sweep(rig.clock.now_ms, limits.idle_timeout_ms, limits.send_timeout_ms)


def test_waiting_for_a_quota_is_idleness(rig: Rig) -> None:
    """At a byte a second a client may have to wait for hours: no reason to keep its connection for so long."""
    limit(rig, PRODUCED, 1)
    client = rig.client()
    client.feed(produce(client, 10_000))
    rig.turn()
    sweep(rig, client)
    rig.pass_time(599_999)
    sweep(rig, client)
    assert not client.transport.closed
    rig.pass_time(1)
    sweep(rig, client)
    assert client.transport.closed
    assert rig.server.counters.idle_closed == 1


def test_who_is_read_from_again_was_not_idle_before(rig: Rig) -> None:
    limit(rig, PRODUCED, 50)
    client = rig.client()
    client.feed(b"".join(produce(client, 20_000) for _ in range(2)))
    rig.turn()
    sweep(rig, client)
    for _ in range(2):
        rig.pass_time(395_000)
        rig.turn()
        sweep(rig, client)
    assert not client.transport.closed
    assert len(client.answers()) == 2


def test_a_client_that_has_left_while_it_had_to_wait_is_forgotten_earlier(rig: Rig) -> None:
    """Nothing is read from it, so the end of its stream is not seen."""
    limit(rig, PRODUCED, 1)
    client, staying = rig.client(), rig.client()
    for each in (client, staying):
        each.feed(produce(each, 10_000))
        rig.turn()
        sweep(rig, each)
    client.transport.peer_has_left = True
    rig.pass_time(59_999)
    sweep(rig, client)
    assert not client.transport.closed  # what it sent before may still have its turn
    rig.pass_time(1)
    for each in (client, staying):
        sweep(rig, each)
    assert [each.transport.closed for each in (client, staying)] == [True, False]


def test_a_request_cut_in_two_by_a_wait_is_no_stopped_one(rig: Rig) -> None:
    (partition,) = rig.broker.topic("t").partitions
    limit(rig, CONSUMED, 100)
    client = rig.client()
    request = fetch(client, max_wait_ms=5_000)
    half = produce(client, 10_000)
    client.feed(request + half[:-10])
    rig.broker.quotas.record(CONSUMED, "rig", 20_000)
    rig.append(partition, b"z")
    rig.turn()
    assert not client.transport.reading
    sweep(rig, client)
    rig.pass_time(60_000)
    sweep(rig, client)
    assert not client.transport.closed


def test_a_longer_wait_takes_the_place_of_a_shorter_one(rig: Rig) -> None:
    client = rig.client()
    client.connection.mute(1_000)
    client.connection.mute(500)
    client.connection.mute(2_000)
    rig.pass_time(1_000)
    assert not client.transport.reading
    rig.pass_time(1_000)
    assert client.transport.reading


def test_a_default_for_client_ids(rig: Rig) -> None:
    limit(rig, PRODUCED, 1_000, client_id=None)
    client = rig.client()
    client.feed(produce(client, 20_000))
    rig.turn()
    assert client.answers()[0].throttle_time_ms > 10_000
