"""Produce: every version against its definition, and what happens to a batch that cannot be kept."""

from __future__ import annotations

import uuid

import pytest
from kafka_rig import batch

from halfmoon.adapters.kafka.errors import MalformedRequest
from halfmoon.adapters.kafka.produce_codec import Stored, encode, parse
from halfmoon.adapters.kafka.protocol import ProduceRequest, ProduceResponse
from halfmoon.core.records.batches import build_batch, iter_records
from tests.core.bench import sync

Topic = ProduceRequest.TopicProduceData
VERSIONS = range(3, 14)
BY_ID = 13
TIMED_OUT = 7
"""REQUEST_TIMED_OUT, which all clients take for "perhaps stored"."""


def fields(*parts, topic="t", topic_id=None, acks=-1, transactional_id=None):
    """A request for one topic; parts are (partition index, batch or None)."""
    data = [Topic.PartitionProduceData(index=index, records=records) for index, records in parts]
    topics = [Topic(name=topic, topic_id=topic_id, partition_data=data)]
    return {"transactional_id": transactional_id, "acks": acks, "timeout_ms": 1000, "topic_data": topics}


def results(answer):
    """(index, error code, base offset, append time, start offset) by partition."""
    return [
        (p.index, p.error_code, p.base_offset, p.log_append_time_ms, p.log_start_offset)
        for p in answer.responses[0].partition_responses
    ]


def values(rig, partition):
    slices = rig.broker.read(partition, partition.start_offset, 1 << 30, min_one=True).slices
    return [record.value for piece in slices for record in iter_records(piece)]


@pytest.mark.parametrize("version", VERSIONS)
def test_every_version_round_trip(rig, version):
    partitions = rig.topic("t", 3)
    topic_id = uuid.UUID(bytes=partitions[0].topic.id)
    client = rig.client()
    for turn in range(2):
        parts = [(0, batch(b"a", b"b")), (2, batch(b"c")), (7, batch(b"nowhere"))]
        answer = client.ask(0, version, **fields(*parts, topic_id=topic_id))
        start_offset = 0 if version >= 5 else -1
        assert results(answer) == [
            (0, 0, 2 * turn, -1, start_offset),
            (2, 0, turn, -1, start_offset),
            (7, 3, -1, -1, -1),
        ]
        found = answer.responses[0]
        assert found.topic_id == topic_id if version >= BY_ID else found.name == "t"
        assert bool(found.partition_responses[2].error_message) == (version >= 8)
    assert [values(rig, partition) for partition in partitions] == [[b"a", b"b"] * 2, [], [b"c", b"c"]]


@pytest.mark.parametrize("version", VERSIONS)
def test_the_answer_is_byte_for_byte_as_defined(version):
    results = [
        ("t", [Stored(3, 0, 70, -1, 5, None), Stored(4, 87, -1, -1, -1, "tëxt")]),
        ("u", []),
    ]
    if version >= BY_ID:
        results = [(uuid.UUID(int=9).bytes, parts) for _, parts in results]
    response = ProduceResponse()
    row_class = ProduceResponse.TopicProduceResponse
    response.responses = [
        row_class(
            name=key if isinstance(key, str) else None,
            topic_id=uuid.UUID(bytes=key) if isinstance(key, bytes) else None,
            partition_responses=[
                row_class.PartitionProduceResponse(
                    index=part.index,
                    error_code=part.error_code,
                    base_offset=part.base_offset,
                    log_append_time_ms=part.append_time_ms,
                    log_start_offset=part.start_offset,
                    record_errors=[],
                    error_message=part.message,
                )
                for part in parts
            ],
        )
        for key, parts in results
    ]
    assert encode(results, version) == response.encode(version=version)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_body_cut_anywhere_is_malformed(version):
    body = memoryview(bytes(ProduceRequest(**fields((0, b"records"), topic_id=uuid.uuid4())).encode(version=version)))
    parsed = parse(body, version)
    assert [(index, bytes(records)) for index, records in parsed.topics[0][1]] == [(0, b"records")]
    for end in range(len(body)):
        with pytest.raises(MalformedRequest):
            parse(body[:end], version)


def test_nothing_is_answered_before_it_is_durable(rig):
    rig.topic("t")
    client = rig.client()
    client.feed(client.encode(0, 9, **fields((0, batch(b"x")))))
    rig.broker.write()
    rig.broker.settle()
    assert client.frames() == [], "written is not flushed"
    rig.turn()
    assert len(client.frames()) == 1


def test_a_failing_disk_is_told_to_whoever_waits(rig):
    rig.topic("t", 2)
    client = rig.client()
    rig.fs.fail_sync = True
    client.feed(client.encode(0, 9, **fields((0, batch(b"x")), (5, batch(b"y")))))
    rig.turn()
    (answer,) = client.answers()
    assert [(index, code) for index, code, *_ in results(answer)] == [(0, TIMED_OUT), (5, 3)]


def test_a_failed_disk_never_says_that_a_batch_is_not_stored(rig):
    """Neither of what is uncertain nor of what follows on it: an idempotent producer would send it as a new one."""
    rig.topic("t")
    client = rig.client()
    rig.fs.fail_sync = True
    client.feed(client.encode(0, 9, **fields((0, batch(b"uncertain", producer_id=5, sequence=0)))))
    rig.turn()
    for sequence in (0, 1, 2, 7):
        client.feed(client.encode(0, 9, **fields((0, batch(b"x", producer_id=5, sequence=sequence)))))
    rig.turn()
    assert [results(answer)[0][1] for answer in client.answers()] == [TIMED_OUT] * 5
    assert rig.broker.topic("t").partitions[0].next_offset == 1
    client.feed(client.encode(0, 9, **fields((0, batch(b"x")), acks=0)))
    assert client.transport.closed


def test_unknown_names_and_ids(rig):
    client = rig.client()
    assert results(client.ask(0, 9, **fields((0, batch(b"x")), topic="none")))[0][1] == 3
    assert results(client.ask(0, 13, **fields((0, batch(b"x")), topic_id=uuid.UUID(int=5))))[0][1] == 100


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({"acks": 2}, 21),
        ({"acks": -2}, 21),
        ({"transactional_id": ""}, 42),
    ],
)
def test_a_request_refused_as_a_whole_stores_nothing(rig, given, code):
    (partition,) = rig.topic("t")
    answer = rig.client().ask(0, 9, **fields((0, batch(b"x")), (1, batch(b"y")), **given))
    assert [row[1] for row in results(answer)] == [code, code]
    assert partition.next_offset == 0


@pytest.mark.parametrize(
    ("records", "code"),
    [
        (None, 87),
        (b"", 87),
        (batch(b"x")[:-1], 87),
        (batch(b"x") + batch(b"y"), 87),
        (batch(b"x")[:16] + b"\x01" + batch(b"x")[17:], 87),
        (batch(b"x" * 100)[:-1] + b"!", 2),
    ],
    ids=["null", "empty", "cut", "two batches", "magic 1", "bad checksum"],
)
def test_one_refused_batch_leaves_the_others_intact(rig, records, code):
    partitions = rig.topic("t", 3)
    answer = rig.client().ask(0, 9, **fields((0, batch(b"before")), (1, records), (2, batch(b"behind"))))
    assert [row[1] for row in results(answer)] == [0, code, 0]
    assert [values(rig, partition) for partition in partitions] == [[b"before"], [], [b"behind"]]


def test_an_internal_topic_is_closed(rig):
    topic, _ = rig.broker.create_topic("inside", 1, internal=True)
    assert results(rig.client().ask(0, 9, **fields((0, batch(b"x")), topic="inside")))[0][1] == 17
    assert topic.partitions[0].next_offset == 0


def test_acks_0_has_no_answer(rig):
    (partition,) = rig.topic("t")
    client = rig.client()
    client.feed(client.encode(0, 9, **fields((0, batch(b"x")), acks=0)))
    rig.turn()
    assert client.frames() == []
    assert values(rig, partition) == [b"x"]
    assert not client.transport.closed


def test_acks_0_and_an_error_closes_the_connection(rig):
    client = rig.client()
    client.feed(client.encode(0, 9, **fields((0, batch(b"x")), topic="none", acks=0)))
    assert client.transport.closed


def test_log_append_time_is_told(rig):
    rig.topic("t", message_timestamp_type="LogAppendTime")
    answer = rig.client().ask(0, 9, **fields((0, batch(b"x"))))
    assert results(answer) == [(0, 0, 0, rig.clock.now_ms, 0)]


@pytest.mark.parametrize(("acks", "code"), [(-1, 19), (1, 0)])
def test_acks_all_needs_as_many_replicas_as_the_topic_says(rig, acks, code):
    (partition,) = rig.topic("t", min_insync_replicas="2")
    answer = rig.client().ask(0, 9, **fields((0, batch(b"x")), acks=acks))
    assert results(answer)[0][1] == code
    assert partition.next_offset == (0 if code else 1)
    if code:
        said = answer.responses[0].partition_responses[0].error_message
        assert said == "1 replica is in sync, fewer than min.insync.replicas of topic 't', which is 2"


def test_acks_all_of_a_topic_without_enough_replicas_goes_on_when_the_topic_needs_fewer(rig):
    (partition,) = rig.topic("t", min_insync_replicas="3")
    client = rig.client()
    assert results(client.ask(0, 9, **fields((0, batch(b"x")))))[0][1] == 19
    rig.broker.kernel.administration.alter_configs(partition.topic, {"min.insync.replicas": "1"})
    assert results(client.ask(0, 9, **fields((0, batch(b"x")))))[0][1] == 0


@pytest.mark.parametrize(
    ("configs", "timestamp", "code"),
    [
        ({"message_timestamp_before_max_ms": "1000"}, -1000, 0),
        ({"message_timestamp_before_max_ms": "1000"}, -1001, 32),
        ({"message_timestamp_before_max_ms": "1000"}, 10**9, 0),
        ({"message_timestamp_after_max_ms": "1000"}, 1000, 0),
        ({"message_timestamp_after_max_ms": "1000"}, 1001, 32),
        ({"message_timestamp_after_max_ms": "1000"}, -(10**9), 0),
        ({"message_timestamp_after_max_ms": "1", "message_timestamp_type": "LogAppendTime"}, 1001, 0),
        ({}, 10**12, 0),
    ],
)
def test_timestamps_must_lie_where_the_topic_says(rig, configs, timestamp, code):
    (partition,) = rig.topic("t", **configs)
    records = batch(b"x", timestamp_ms=rig.clock.now_ms + timestamp)
    assert results(rig.client().ask(0, 9, **fields((0, records))))[0][1] == code
    assert partition.next_offset == (0 if code else 1)


def test_a_record_without_a_timestamp_is_not_too_old(rig):
    rig.topic("t", message_timestamp_before_max_ms="1000")
    assert results(rig.client().ask(0, 9, **fields((0, batch(b"x", timestamp_ms=-1)))))[0][1] == 0


def test_a_repeated_batch_gets_the_same_answer_and_is_stored_once(rig):
    (partition,) = rig.topic("t")
    client = rig.client()
    request = fields((0, batch(b"x", producer_id=5, sequence=0)))
    client.feed(client.encode(0, 9, **request) + client.encode(0, 9, **request))
    rig.turn()
    assert [results(answer) for answer in client.answers()] == [[(0, 0, 0, -1, 0)]] * 2
    assert partition.next_offset == 1
    gap = client.ask(0, 9, **fields((0, batch(b"x", producer_id=5, sequence=7))))
    assert results(gap)[0][1] == 45


def test_a_batch_that_is_prepared_in_slices_keeps_its_place_and_holds_up_nobody_else(rig):
    rig.start_plugins()
    (partition,) = rig.topic("t")
    rows = [(None, b"%d" % at, 5, (("DELAY", b"1"),) if at % 2 else ()) for at in range(2_000)]
    sent = {"producer_id": 5, "producer_epoch": 0}
    batches = [
        build_batch(rows, base_sequence=0, **sent),
        build_batch([(None, b"behind", 5, ())], base_sequence=2_000, **sent),
        build_batch(rows[:1], base_sequence=2_001, **sent),
    ]
    ahead, other = rig.client(), rig.client()
    ahead.feed(b"".join(ahead.encode(0, 9, **fields((0, each))) for each in batches))
    rounds = 0
    while not rig.broker.waiting.waiting() and partition.next_offset < 1_000:
        this_round, rig.loop.soon = rig.loop.soon, []
        for callback in this_round:
            callback()
        rounds += 1
        other.feed(other.encode(0, 9, **fields((0, batch(b"other")))))
        rig.loop.run_threads()
        rig.broker.write()
        sync(rig.broker)
        rig.broker.settle()
    assert rounds > 10
    rig.turns()
    assert all(results(answer)[0][1] == 0 for answer in other.answers())
    answers = [results(answer)[0] for answer in ahead.answers()]
    assert [error for _, error, *_ in answers] == [0, 0, 0]
    first, behind, last = (offset for _, _, offset, *_ in answers)
    assert first + 1_998 < behind < last
    found = [value for value in values(rig, partition) if value != b"other"]
    assert found == [*(b"%d" % at for at in range(0, 2_000, 2)), b"behind", b"0"]


def test_a_batch_that_is_refused_while_it_is_prepared_stores_nothing_and_the_next_is_taken(rig):
    rig.start_plugins()
    (partition,) = rig.topic("t")
    rows = [(None, b"%d" % at, 5, (("DELAY", b"1" if at < 900 else b"soon"),)) for at in range(1_000)]
    client = rig.client()
    for each in (build_batch(rows), batch(b"next")):
        client.feed(client.encode(0, 9, **fields((0, each))))
    rig.turns()
    assert [results(answer)[0][1] for answer in client.answers()] == [87, 0]
    assert values(rig, partition) == [b"next"]
    assert rig.broker.waiting.waiting() == 0


def test_a_client_that_leaves_while_its_batch_is_prepared_leaves_nothing_behind(rig):
    rig.start_plugins()
    rig.topic("t")
    client = rig.client()
    client.feed(client.encode(0, 9, **fields((0, build_batch([(None, b"", 5, (("DELAY", b"1"),))] * 1_000)))))
    client.connection.connection_lost(None)
    rig.turns()
    assert rig.broker.waiting.waiting() == 1_000, "it was sent"
