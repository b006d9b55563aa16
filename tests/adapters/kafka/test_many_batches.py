"""Produce requests of very many batches: read, appended and answered in slices, and everything else as always."""

from __future__ import annotations

import random
import uuid

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka_rig import Rig, batch
from test_api_00_produce import TIMED_OUT, Topic, fields, results, values
from test_late_produce import settle

from halfmoon.adapters.kafka import produce_codec
from halfmoon.adapters.kafka.errors import MalformedRequest
from halfmoon.adapters.kafka.late_produce import APPENDED_AT_ONCE
from halfmoon.adapters.kafka.produce_codec import FEW, ManyBatchesError, Stored, encode, encode_in_slices, parse
from halfmoon.core.steps import finish
from tests.kafka_messages import request_bytes

MANY = FEW + 50
METADATA = 3


@pytest.fixture
def rig():
    rig = Rig()
    rig.topic("t", MANY)
    return rig


def many(sequence=-1, producer_id=-1):
    made = batch(b"v%d" % sequence, producer_id=producer_id, sequence=sequence) if producer_id >= 0 else batch(b"v")
    return [(index, made) for index in range(MANY)]


@pytest.mark.parametrize("version", [3, 5, 8, 9, 12])
def test_all_are_stored_and_answered_in_their_order(rig, version):
    client = rig.client()
    client.feed(client.encode(0, version, **fields(*many(), (MANY, batch(b"nowhere")))))
    assert client.frames() == []
    settle(rig)
    (answer,) = client.answers()
    start_offset = 0 if version >= 5 else -1
    stored = [(index, 0, 0, -1, start_offset) for index in range(MANY)]
    assert results(answer) == [*stored, (MANY, 3, -1, -1, -1)]
    assert all(values(rig, partition) == [b"v"] for partition in rig.broker.topic("t").partitions)


def test_others_have_their_turn_between_slices(rig):
    client, witness = rig.client(), rig.client()
    client.feed(client.encode(0, 9, **fields(*many())))
    seen = []
    while not client.transport.received:
        due, rig.loop.soon[:] = list(rig.loop.soon), []
        for each in due:
            each()
        seen.append(sum(partition.next_offset for partition in rig.broker.topic("t").partitions))
        rig.turn()
    appended = [after - before for before, after in zip([0, *seen], seen, strict=False)]
    assert max(appended) <= 2 * APPENDED_AT_ONCE, "a turn of the rig has several rounds"
    assert results(witness.ask(0, 9, **fields((0, batch(b"quick")))))[0][:3] == (0, 0, 1)


def test_what_comes_behind_it_keeps_its_order(rig):
    """An idempotent producer's batches, sent ahead: what is not in its order is refused."""
    client = rig.client()
    stream = b"".join(client.encode(0, 9, **fields(*many(sequence, producer_id=7))) for sequence in range(3))
    stream += client.encode(0, 9, **fields((0, batch(b"last", producer_id=7, sequence=3))))
    stream += client.encode(METADATA, 9, topics=None)
    while stream:
        if client.transport.reading:
            buffer = client.connection.get_buffer(-1)
            size = min(len(buffer), len(stream), 30_000)
            buffer[:size] = stream[:size]
            client.connection.buffer_updated(size)
            stream = stream[size:]
        else:
            rig.turn()
    settle(rig)
    answers = client.answers()
    assert len(answers) == 5
    assert {row[1] for answer in answers[:-1] for row in results(answer)} == {0}
    assert values(rig, rig.broker.topic("t").partitions[0]) == [b"v0", b"v1", b"v2", b"last"]


def test_many_topics(rig):
    names = [f"topic{index}" for index in range(MANY)]
    for name in names[1:]:
        rig.topic(name)
    topics = [
        Topic(name=name, topic_id=None, partition_data=[Topic.PartitionProduceData(index=0, records=batch(b"v"))])
        for name in names
    ]
    client = rig.client()
    client.feed(client.encode(0, 9, transactional_id=None, acks=1, timeout_ms=1000, topic_data=topics))
    settle(rig)
    (answer,) = client.answers()
    errors = [(topic.name, topic.partition_responses[0].error_code) for topic in answer.responses]
    assert errors == [(names[0], 3), *((name, 0) for name in names[1:])]


def test_wrong_acks_and_no_records(rig):
    client = rig.client()
    client.feed(client.encode(0, 9, **fields(*many(), acks=5)))
    settle(rig)
    assert {row[1] for row in results(*client.answers())} == {21}
    client.feed(client.encode(0, 9, **fields(*many(), (0, None))))
    settle(rig)
    assert results(*client.answers())[-1][:2] == (0, 87)


def test_with_acks_0(rig):
    client = rig.client()
    client.feed(client.encode(0, 9, **fields(*many(), acks=0)))
    settle(rig)
    assert client.frames() == []
    assert not client.transport.closed
    client.feed(client.encode(0, 9, **fields(*many(), (MANY, batch(b"nowhere")), acks=0)))
    settle(rig)
    assert client.transport.closed


def test_one_that_is_cut_short_closes_its_connection(rig):
    whole = request_bytes(0, 9, 1, "rig", **fields(*many()))
    cut = len(whole) - 40
    client = rig.client()
    client.feed(cut.to_bytes(4, "big") + whole[4 : cut + 4])
    settle(rig)
    assert client.transport.closed
    assert client.frames() == []


def test_a_disk_that_fails_meanwhile(rig):
    client, other = rig.client(), rig.client()
    client.feed(client.encode(0, 9, **fields(*many())))
    rig.fs.fail_sync = True
    other.feed(other.encode(0, 9, **fields((0, batch(b"x")))))
    rig.broker.write()
    settle(rig)
    assert {row[1] for row in results(*client.answers())} == {TIMED_OUT}


def test_a_large_request_is_not_copied(rig):
    """It lies in a buffer of its own, and stays there."""
    pool = rig.server.pool
    client = rig.client()
    large = [(index, batch(b"x" * 4_000)) for index in range(MANY)]
    data = client.encode(0, 9, **fields(*large))
    before = pool.in_use_bytes
    client.feed(data)
    assert len(data) > 1_000_000
    assert pool.in_use_bytes - before <= 2_097_152 + (512 << 10)
    assert client.frames() == []
    settle(rig)
    assert {row[1] for row in results(*client.answers())} == {0}
    assert all(values(rig, partition) == [b"x" * 4_000] for partition in rig.broker.topic("t").partitions)
    assert pool.in_use_bytes <= before + (512 << 10), "and is given back"


# -- the codec ---------------------------------------------------------------------------------------------------------


def fields_of(request):
    return request.transactional_id, request.acks, request.topics


@pytest.mark.parametrize("version", [3, 8, 9, 13])
def test_slices_read_the_same(version, monkeypatch):
    monkeypatch.setattr(produce_codec, "SLICE", 3)
    dice = random.Random(version)
    for _ in range(50):
        topics = [
            Topic(
                name=f"n{index}", topic_id=None,
                partition_data=[
                    Topic.PartitionProduceData(index=at, records=dice.choice([None, b"r" * at]))
                    for at in range(dice.choice([0, 1, 2, 3, 4, 10]))
                ],
            )
            for index in range(dice.randint(0, 6))
        ]  # fmt: skip
        said = request_bytes(0, version, 1, "", transactional_id=None, acks=1, timeout_ms=1, topic_data=topics)
        body = memoryview(said)[14 + (version >= 9) :]
        assert fields_of(finish(produce_codec.parse_in_slices(body, version))) == fields_of(parse(body, version))
        for cut in range(len(body)):
            with pytest.raises(MalformedRequest):
                finish(produce_codec.parse_in_slices(body[:cut], version))


def read(parsed):
    """What a reader finds, or what it says."""
    try:
        return fields_of(parsed())
    except MalformedRequest as error:
        return str(error)


@settings(max_examples=500)
@given(
    st.sampled_from([3, 8, 9, 12, 13]),
    st.text(max_size=3) | st.just("n" * 200),
    st.none() | st.binary(max_size=200),
    st.sampled_from([None, "", "id"]),
    st.lists(st.tuples(st.floats(0, 1), st.integers(0, 2), st.binary(max_size=2)), max_size=3),
)
def test_a_single_batch_reads_as_one_of_many(version, name, records, transactional_id, changes):
    """Requests of one batch have a reader of their own: it finds the same, also where bytes are changed, are missing or
    are too many."""
    part = Topic.PartitionProduceData(index=3, records=records)
    topics = [Topic(name=name, topic_id=uuid.UUID(int=5), partition_data=[part])]
    said = request_bytes(0, version, 1, "", transactional_id=transactional_id, acks=1, timeout_ms=1, topic_data=topics)
    body = bytearray(said)[14 + (version >= 9) :]
    for where, gone, new in changes:
        at = int(where * len(body))
        body[at : at + gone] = new
    view = memoryview(body)
    assert read(lambda: parse(view, version)) == read(lambda: finish(produce_codec.parse_in_slices(view, version)))


@pytest.mark.parametrize("version", [3, 4, 5, 8, 9, 13])
def test_slices_write_the_same(version, monkeypatch):
    monkeypatch.setattr(produce_codec, "SLICE", 3)
    found = [
        (bytes(16) if version >= 13 else f"t{topic}",
         [Stored(index, index % 3, index, -1, 0, "why" if index % 3 else None) for index in range(count)])
        for topic, count in enumerate([0, 1, 2, 3, 7, 1, 1, 1])
    ]  # fmt: skip
    assert finish(encode_in_slices(found, version)) == encode(found, version)


def test_few_are_read_at_once():
    few = request_bytes(0, 9, 1, "", **fields(*many()[:FEW]))
    assert len(parse(memoryview(few)[15:], 9, FEW).topics[0][1]) == FEW
    more = request_bytes(0, 9, 1, "", **fields(*many()[: FEW + 1]))
    with pytest.raises(ManyBatchesError):
        parse(memoryview(more)[15:], 9, FEW)
