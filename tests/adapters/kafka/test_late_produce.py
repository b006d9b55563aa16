"""Batches that take long to check: in a thread or in slices, and everything keeps its order."""

from __future__ import annotations

import random

import pytest
from kafka_rig import Rig, batch
from test_api_00_produce import TIMED_OUT, fields, results, values

from halfmoon.core import checking
from halfmoon.core.records import walk
from halfmoon.core.records.batch_header import assemble
from halfmoon.core.records.batches import build_batch, parse_header
from halfmoon.core.records.compression import compress
from tests.adapters.heard import Heard

COMPILED = walk.load_compiled()
CODECS = [0, 1, 2, 3, 4]
INVALID, STORED = 87, 0
METADATA = 3
each_codec = pytest.mark.parametrize("codec", CODECS)


@pytest.fixture(params=["python"] if COMPILED is None else ["python", "compiled"])
def rig(request, monkeypatch):
    """Limits are so small that a hundred records are many."""
    monkeypatch.setattr(walk, "walk_compiled", COMPILED if request.param == "compiled" else None)
    monkeypatch.setattr(checking, "SLICE", 10)
    monkeypatch.setattr(checking, "WALKED_AT_ONCE_BYTES", 500)
    monkeypatch.setattr(checking, "OPENED_AT_ONCE_BYTES", 500)
    rig = Rig()
    rig.topic("t", 2)
    return rig


def long_values(name):
    return [b"%s-%03d" % (name, at) for at in range(100)]


def long(name, codec=0, producer_id=-1, sequence=-1):
    rows = [(b"key", value, 1000, ()) for value in long_values(name)]
    epoch = 0 if producer_id >= 0 else -1
    return build_batch(rows, codec=codec, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)


def long_and_broken(codec=0):
    """Its last record is there twice."""
    whole = long(b"broken")
    header, body = parse_header(whole), whole[61:]
    record = body[-len(body) // 100 - 2 :]
    assert body.count(record[-5:]) == 1
    return assemble(header._replace(attributes=codec), compress(codec, body[:-1]))


def settle(rig):
    """Turns until nothing is to be done any more."""
    while rig.loop.soon or rig.loop.threads:
        rig.loop.run_threads()
        rig.turn()
    rig.turn()


def codes(client):
    return [row[:3] for answer in client.answers() for row in results(answer)]


@each_codec
def test_a_long_batch_is_checked_and_stored(rig, codec):
    client = rig.client()
    client.feed(client.encode(0, 9, **fields((0, long(b"a", codec)))))
    assert client.frames() == []
    assert rig.broker.topic("t").partitions[0].next_offset == 0
    settle(rig)
    assert codes(client) == [(0, STORED, 0)]
    assert values(rig, rig.broker.topic("t").partitions[0]) == long_values(b"a")


@each_codec
def test_a_long_batch_with_a_fault_is_refused(rig, codec):
    heard = Heard(rig)
    client = rig.client()
    client.feed(client.encode(0, 9, **fields((0, long_and_broken(codec)), (1, long(b"good", codec)))))
    settle(rig)
    assert codes(client) == [(0, INVALID, -1), (1, STORED, 0)]
    assert sum(rig.broker.refused_batches.values()) == 1
    assert heard.take() == {("produced", "t", 1): 100}


@pytest.mark.parametrize("seed", range(20))
def test_the_order_of_a_connection_is_kept(rig, seed):
    """Long and short batches of one idempotent producer, sent ahead in pieces of any size: what is not in its order is
    refused. Each partition has the records in the order in which they were sent."""
    dice = random.Random(seed)
    client, sent, stream, sequences = rig.client(), {0: [], 1: []}, b"", {0: 0, 1: 0}
    for at in range(12):
        parts = []
        for partition in dice.sample([0, 1], dice.randint(1, 2)):
            name, sequence = b"%d" % at, sequences[partition]
            if dice.random() < 0.5:
                parts.append((partition, long(name, dice.choice(CODECS), 7, sequence)))
                new = long_values(name)
            else:
                parts.append((partition, batch(name, producer_id=7, sequence=sequence)))
                new = [name]
            sent[partition] += new
            sequences[partition] += len(new)
        stream += client.encode(0, 9, **fields(*parts))
    stream += client.encode(METADATA, 9, topics=None)
    while stream:
        if client.transport.reading:
            buffer = client.connection.get_buffer(-1)
            size = min(len(buffer), len(stream), dice.choice([1, 50, 3_000, len(stream)]))
            buffer[:size] = stream[:size]
            client.connection.buffer_updated(size)
            stream = stream[size:]
        elif dice.random() < 0.5:
            rig.loop.run_threads()
        else:
            rig.turn()
    settle(rig)
    answers = client.answers()
    assert len(answers) == 13, "in the order of the requests, or a client could not read them"
    assert {row[1] for answer in answers[:-1] for row in results(answer)} == {STORED}
    partitions = rig.broker.topic("t").partitions
    assert [values(rig, partition) for partition in partitions] == [sent[0], sent[1]]


def test_others_are_served_meanwhile(rig):
    client, witness = rig.client(), rig.client()
    client.feed(client.encode(0, 9, **fields((0, long(b"a", 1)))))
    assert results(witness.ask(0, 9, **fields((0, batch(b"quick")))))[0][:3] == (0, STORED, 0)
    settle(rig)
    assert codes(client) == [(0, STORED, 1)]


def test_python_walks_in_slices(monkeypatch):
    """Between two of them others have their turn."""
    monkeypatch.setattr(walk, "walk_compiled", None)
    monkeypatch.setattr(checking, "SLICE", 10)
    rig = Rig()
    partition = rig.topic("t")[0]
    client = rig.client()
    client.feed(client.encode(0, 9, **fields((0, long(b"a")))))
    slices = 0
    while not partition.next_offset:
        assert not rig.loop.threads
        due, rig.loop.soon[:] = list(rig.loop.soon), []
        for each in due:
            each()
        slices += 1
    assert slices == 10, "the first was looked at at once"
    settle(rig)
    assert codes(client) == [(0, STORED, 0)]


def test_with_acks_0(rig):
    client = rig.client()
    client.feed(client.encode(0, 9, **fields((0, long(b"a", 4)), acks=0)))
    client.feed(client.encode(METADATA, 9, topics=None))
    settle(rig)
    assert len(client.answers()) == 1
    assert not client.transport.closed
    assert rig.broker.topic("t").partitions[0].next_offset == 100
    client.feed(client.encode(0, 9, **fields((0, long_and_broken(4)), acks=0)))
    settle(rig)
    assert client.transport.closed
    assert client.frames() == []


def test_a_topic_that_is_deleted_meanwhile(rig):
    client = rig.client()
    client.feed(client.encode(0, 9, **fields((0, long(b"a", 3)))))
    rig.broker.delete_topic(rig.broker.topic("t"))
    settle(rig)
    assert codes(client) == [(0, 3, -1)]


def test_a_disk_that_fails_meanwhile(rig):
    """As every Produce then: perhaps stored."""
    client, other = rig.client(), rig.client()
    client.feed(client.encode(0, 9, **fields((0, long(b"a", 3)))))
    rig.fs.fail_sync = True
    other.feed(other.encode(0, 9, **fields((0, batch(b"x")))))
    rig.broker.write()
    settle(rig)
    assert [row[1] for row in codes(client)] == [TIMED_OUT]


def test_a_client_that_leaves_meanwhile(rig):
    """What it has sent whole is stored, as in Kafka, and its memory is given back."""
    before = rig.server.pool.in_use_bytes
    client = rig.client()
    request = client.encode(0, 9, **fields((0, long(b"a", 2))))
    client.feed(request + request)
    assert rig.server.pool.in_use_bytes > before
    client.connection.connection_lost(None)
    settle(rig)
    assert rig.broker.topic("t").partitions[0].next_offset == 100, "the second was not looked at"
    assert rig.server.pool.in_use_bytes - before <= 512 << 10, "no more than the chunk that all share"
    assert client.frames() == []


def test_whoever_cannot_wait_gets_it_at_once(rig):
    partition = rig.broker.topic("t").partitions[0]
    for codec in CODECS:
        rig.broker.append(partition, memoryview(bytearray(long(b"a", codec))), 1000)
    assert partition.next_offset == 500
