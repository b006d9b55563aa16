"""Fetch: every version against its definition, limits, waiting, errors."""

from __future__ import annotations

import errno
import uuid

import pytest

from halfmoon.adapters.kafka import fetch_codec, fetch_reading
from halfmoon.adapters.kafka.api import api_01_fetch
from halfmoon.adapters.kafka.errors import MalformedRequest
from halfmoon.adapters.kafka.protocol import FetchRequest, FetchResponse
from halfmoon.core.steps import finish
from halfmoon.core.storage import consume_queue
from halfmoon.core.storage.storage import Read
from halfmoon.errors import BrokerError, Fault
from tests.kafka_messages import request_bytes

Topic = FetchRequest.FetchTopic
VERSIONS = range(4, 19)
BY_ID = 13
IN_SLICES = "in slices"


@pytest.fixture(autouse=True, params=["at once", IN_SLICES])
def way(request, monkeypatch):
    """As nearly all requests are handled, and as those of very many partitions are."""
    if request.param == IN_SLICES:
        monkeypatch.setattr(api_01_fetch, "WIDE_BYTES", 0)
        monkeypatch.setattr(fetch_reading, "SLICE", 1)
        monkeypatch.setattr(fetch_codec, "SLICE", 1)
    return request.param


def wanted(index, offset=0, *, max_bytes=1 << 20, epoch=-1, last_epoch=-1):
    return Topic.FetchPartition(
        partition=index,
        current_leader_epoch=epoch,
        fetch_offset=offset,
        last_fetched_epoch=last_epoch,
        log_start_offset=-1,
        partition_max_bytes=max_bytes,
    )


def fields(partition, *wants, **given):
    """A request for one topic: `partition`'s, or that of a name or id."""
    topic = partition.topic if hasattr(partition, "topic") else None
    name = topic.name if topic else partition if isinstance(partition, str) else "?"
    topic_id = uuid.UUID(bytes=topic.id if topic else partition if isinstance(partition, bytes) else bytes(16))
    request = {
        "replica_id": -1,
        "max_wait_ms": 0,
        "min_bytes": 1,
        "max_bytes": 50 << 20,
        "isolation_level": 0,
        "session_id": 0,
        "session_epoch": -1,
        "topics": [Topic(topic=name, topic_id=topic_id, partitions=list(wants))],
        "forgotten_topics_data": [],
        "rack_id": "",
    }
    return request | given


def run_threads(rig):
    rig.loop.run()
    rig.loop.run_threads()
    rig.loop.run()


def parts(answer):
    return answer.responses[0].partitions


def batches(rig, partition, offset=0):
    return b"".join(bytes(piece) for piece in rig.broker.read(partition, offset, 1 << 30, min_one=True).slices)


@pytest.mark.parametrize("version", VERSIONS)
def test_every_version_round_trip(rig, version):
    partitions = rig.topic("t", 3)
    rig.append(partitions[0], b"a", b"b")
    rig.append(partitions[2], b"c")
    answer = rig.client().ask(1, version, **fields(partitions[0], wanted(0), wanted(1), wanted(2, 1), wanted(9)))
    assert answer.throttle_time_ms == 0
    assert (answer.error_code, answer.session_id) == (0, 0)
    topic = answer.responses[0]
    assert topic.topic_id.bytes == partitions[0].topic.id if version >= BY_ID else topic.topic == "t"
    start = 0 if version >= 5 else -1
    found = [
        (p.partition_index, p.error_code, p.high_watermark, p.last_stable_offset, p.log_start_offset)
        for p in topic.partitions
    ]
    assert found == [(0, 0, 2, 2, start), (1, 0, 0, 0, start), (2, 0, 1, 1, start), (9, 3, -1, -1, -1)]
    assert [bytes(p.records) for p in topic.partitions] == [batches(rig, partitions[0]), b"", b"", b""]
    assert all(p.aborted_transactions is None and p.preferred_read_replica == -1 for p in topic.partitions)


@pytest.mark.parametrize("version", VERSIONS)
def test_the_answer_is_byte_for_byte_as_defined(version):
    ours = [
        fetch_codec.Fetched(3, 0, 70, 69, 5, [b"abc", b"d" * 200], 203),
        fetch_codec.Fetched(4, 1),
        fetch_codec.Fetched(5, 0, 9, 9, 0, diverging=(2, 7) if version >= 12 else None),
    ]
    row_class = FetchResponse.FetchableTopicResponse
    rows = []
    for part in ours:
        row = row_class.PartitionData(
            partition_index=part.index,
            error_code=part.error_code,
            high_watermark=part.high_watermark,
            last_stable_offset=part.stable_offset,
            log_start_offset=part.start_offset,
            aborted_transactions=[],
            preferred_read_replica=-1,
            records=b"".join(part.records),
        )
        if part.diverging is not None:
            epoch, end_offset = part.diverging
            point = row_class.PartitionData.EpochEndOffset
            row.diverging_epoch = point(epoch=epoch, end_offset=end_offset)
        rows.append(row)
    topic_id = uuid.UUID(int=9)
    theirs = FetchResponse(throttle_time_ms=0, error_code=0, session_id=0)
    theirs.responses = [row_class(topic="t", topic_id=topic_id, partitions=rows)]
    out = fetch_codec.encode([(topic_id.bytes if version >= BY_ID else "t", ours)], version, True)
    assert b"".join(out) == theirs.encode(version=version)
    assert out[1] is ours[0].records[0], "records are not copied"


@pytest.mark.parametrize("version", VERSIONS)
def test_requests_are_read_as_defined_and_malformed_when_cut(version):
    forgotten = [FetchRequest.ForgottenTopic(topic="gone", topic_id=uuid.UUID(int=3), partitions=[1, 2])]
    given = fields(
        "t",
        wanted(7, 2**40, max_bytes=5, epoch=8, last_epoch=6),
        max_wait_ms=11,
        min_bytes=12,
        max_bytes=13,
        isolation_level=1,
        session_id=14,
        session_epoch=15,
        forgotten_topics_data=forgotten,
        rack_id="rack",
    )
    body = memoryview(bytes(FetchRequest(**given).encode(version=version)))
    parsed = fetch_codec.parse(body, version)
    assert (parsed.max_wait_ms, parsed.min_bytes, parsed.max_bytes, parsed.read_committed) == (11, 12, 13, True)
    assert (parsed.session_id, parsed.session_epoch) == ((14, 15) if version >= 7 else (0, -1))
    epoch, last_epoch = 8 if version >= 9 else -1, 6 if version >= 12 else -1
    key = bytes(16) if version >= BY_ID else "t"
    assert parsed.topics == [(key, [fetch_codec.Wanted(7, epoch, 2**40, last_epoch, 5)])]
    for end in range(len(body)):
        with pytest.raises(MalformedRequest):
            fetch_codec.parse(body[:end], version)


def test_tagged_fields_are_stepped_over():
    request = FetchRequest(**fields("t", wanted(0)))
    part = request.topics[0].partitions[0]
    part.replica_directory_id = uuid.UUID(int=1)
    part.high_watermark = 4
    request.cluster_id = "somewhere"
    request.replica_state = FetchRequest.ReplicaState(replica_id=3, replica_epoch=4)
    parsed = fetch_codec.parse(memoryview(bytes(request.encode(version=18))), 18)
    assert parsed.topics[0][1] == [fetch_codec.Wanted(0, -1, 0, -1, 1 << 20)]


# -- limits ------------------------------------------------------------------------------------------------------------


def test_whole_batches_within_the_limits_and_the_first_whatever_its_size(rig):
    partitions = rig.topic("t", 2)
    for partition in partitions:
        for _ in range(4):
            rig.append(partition, b"x" * 1000)
    size = len(batches(rig, partitions[0])) // 4
    client = rig.client()

    def sizes(*wants, **given):
        answer = client.ask(1, 12, **fields(partitions[0], *wants, **given))
        return [len(part.records) // size for part in parts(answer)]

    assert sizes(wanted(0), wanted(1)) == [4, 4]
    assert sizes(wanted(0, max_bytes=2 * size), wanted(1, max_bytes=3 * size)) == [2, 3]
    assert sizes(wanted(0, max_bytes=1), wanted(1, max_bytes=1)) == [1, 0], "only one first batch in an answer"
    assert sizes(wanted(0), wanted(1), max_bytes=6 * size) == [4, 2]
    assert sizes(wanted(0), wanted(1), max_bytes=1) == [1, 0]
    assert sizes(wanted(0, 4), wanted(1, max_bytes=0), max_bytes=0) == [0, 1], "the first partition that has any"
    assert sizes(wanted(0, max_bytes=-1)) == [1]


def test_a_reader_at_the_end_gets_nothing_and_one_outside_an_error(rig):
    (partition,) = rig.topic("t")
    rig.append(partition, b"a", b"b")
    client = rig.client()
    answers = [client.ask(1, 12, **fields(partition, wanted(0, offset))) for offset in (2, 3, -1)]
    assert [parts(answer)[0].error_code for answer in answers] == [0, 1, 1]


def test_unknown_topics_and_partitions(rig):
    client = rig.client()
    assert parts(client.ask(1, 12, **fields("none", wanted(0))))[0].error_code == 3
    assert parts(client.ask(1, 13, **fields(b"\x01" * 16, wanted(0))))[0].error_code == 100


def test_an_internal_topic_is_closed(rig):
    topic, _ = rig.broker.create_topic("inside", 1, internal=True)
    assert parts(rig.client().ask(1, 12, **fields(topic.partitions[0], wanted(0))))[0].error_code == 29


def test_leader_epochs_are_compared(rig):
    (partition,) = rig.topic("t")
    now = rig.broker.generation
    client = rig.client()
    answers = [client.ask(1, 12, **fields(partition, wanted(0, epoch=now + change))) for change in (-1, 0, 1)]
    assert [parts(answer)[0].error_code for answer in answers] == [74, 0, 75]


def test_a_reader_with_another_history_is_told_where_it_parts(rig):
    (partition,) = rig.topic("t")
    rig.append(partition, b"a", b"b")
    now = rig.broker.generation
    client = rig.client()
    (same,) = parts(client.ask(1, 12, **fields(partition, wanted(0, 2, last_epoch=now))))
    (further,) = parts(client.ask(1, 12, **fields(partition, wanted(0, 9, last_epoch=now))))
    assert same.diverging_epoch is None
    assert (further.diverging_epoch.epoch, further.diverging_epoch.end_offset) == (now, 2)


@pytest.mark.parametrize("version", [4, 11, 12, 17])
def test_read_committed_gets_an_empty_list_of_aborted_transactions(rig, version):
    (partition,) = rig.topic("t")
    (part,) = parts(rig.client().ask(1, version, **fields(partition, wanted(0), isolation_level=1)))
    assert part.aborted_transactions == []


@pytest.mark.parametrize(("session_id", "epoch", "code"), [(0, 0, 0), (5, -1, 0), (5, 3, 70), (0, 1, 70)])
def test_sessions_are_not_kept(rig, session_id, epoch, code):
    (partition,) = rig.topic("t")
    answer = rig.client().ask(1, 12, **fields(partition, wanted(0), session_id=session_id, session_epoch=epoch))
    assert (answer.error_code, answer.session_id) == (code, 0)
    assert len(answer.responses) == (0 if code else 1)


# -- waiting -----------------------------------------------------------------------------------------------------------


def park(rig, partition, *wants, **given):
    client = rig.client()
    client.feed(client.encode(1, 12, **fields(partition, *wants, **({"max_wait_ms": 500} | given))))
    rig.turn()
    return client


def test_waits_until_min_bytes_have_come_over_all_partitions(rig):
    partitions = rig.topic("t", 2)
    rig.append(partitions[0], b"x" * 100)
    size = len(batches(rig, partitions[0]))
    client = park(rig, partitions[0], wanted(0), wanted(1), min_bytes=3 * size)
    assert client.frames() == []
    rig.append(partitions[1], b"x" * 100)
    assert client.frames() == []
    rig.append(partitions[0], b"x" * 100)
    (answer,) = client.answers()
    assert [len(part.records) for part in parts(answer)] == [2 * size, size]


@pytest.mark.parametrize("given", [{"max_wait_ms": 0}, {"min_bytes": 0}, {"topics": []}])
def test_does_not_wait(rig, given):
    (partition,) = rig.topic("t")
    assert len(park(rig, partition, wanted(0), **given).answers()) == 1


def test_an_error_is_answered_at_once(rig):
    (partition,) = rig.topic("t")
    (answer,) = park(rig, partition, wanted(0), wanted(5)).answers()
    assert [part.error_code for part in parts(answer)] == [0, 3]


def test_a_deleted_topic_ends_the_wait(rig):
    (partition,) = rig.topic("t")
    client = park(rig, partition, wanted(0))
    rig.broker.delete_topic(partition.topic)
    rig.loop.run()
    assert [part.error_code for part in parts(client.answers()[0])] == [3]


@pytest.mark.pure
def test_a_lost_notification_costs_only_until_the_next_check(rig, way):
    """But for one of very many partitions that reads all records."""
    (partition,) = rig.topic("t")
    client = park(rig, partition, wanted(0), isolation_level=int(way == IN_SLICES))
    rig.broker.hold.on_arrival = lambda *arrival: None
    rig.append(partition, b"x")
    assert client.frames() == []
    rig.broker.hold.check()
    rig.loop.run()
    assert len(client.frames()) == 1


def test_a_failure_while_waking_does_not_reach_the_others(rig):
    (partition,) = rig.topic("t")
    bad, good = park(rig, partition, wanted(0)), park(rig, partition, wanted(0))
    read, calls = rig.broker.read, []

    def failing(*args, **given):
        calls.append(args)
        if len(calls) == 1:
            raise ZeroDivisionError
        return read(*args, **given)

    rig.broker.read = failing
    rig.append(partition, b"x")
    assert [bad.transport.closed, good.transport.closed] == [True, False]
    assert len(good.answers()) == 1


# -- cold reads --------------------------------------------------------------------------------------------------------


def make_cold(rig, load):
    """What partition 0 holds must be loaded by `load`, in a thread."""
    read = rig.broker.read

    def cold(partition, offset, max_bytes, **how):
        found = read(partition, offset, max_bytes, **how)
        return Read((), found.size, lambda: load(found.slices)) if partition.index == 0 and found.size else found

    rig.broker.read = cold


def test_cold_data_is_read_in_a_thread(rig):
    partitions = rig.topic("t", 2)
    rig.append(partitions[0], b"cold")
    rig.append(partitions[1], b"hot")
    expected = [batches(rig, partition) for partition in partitions]
    make_cold(rig, list)
    client = park(rig, partitions[0], wanted(0), wanted(1))
    assert client.frames() == []
    run_threads(rig)
    assert [bytes(part.records) for part in parts(client.answers()[0])] == expected


@pytest.mark.parametrize(
    ("error", "code"),
    [(OSError(errno.EIO, "disk"), 56), (BrokerError(Fault.CORRUPT_MESSAGE), 2), (ZeroDivisionError(), -1)],
)
def test_a_cold_read_that_fails_is_an_error_of_its_partition(rig, error, code):
    partitions = rig.topic("t", 2)
    rig.append(partitions[0], b"cold")
    rig.append(partitions[1], b"hot")

    def load(slices):
        raise error

    make_cold(rig, load)
    client = park(rig, partitions[0], wanted(0), wanted(1))
    run_threads(rig)
    cold, hot = parts(client.answers()[0])
    assert (cold.error_code, bytes(cold.records), cold.high_watermark) == (code, b"", -1)
    assert hot.error_code == 0
    assert len(hot.records) > 0


def all_cold(rig):
    """Nothing is in memory: each read is left to a thread."""
    rig.fs.cold = True
    rig.broker.reader._hot_bytes = 0


def test_one_fetch_loads_a_part_of_the_memory_and_the_next_goes_on_behind_it(rig):
    partitions = rig.topic("t", 2)
    for partition in partitions:
        for _ in range(10):
            rig.append(partition, b"x" * 10_000)
    all_cold(rig)
    rig.broker.fetch_buffers.limit_bytes = 100_000
    client = park(rig, partitions[0], wanted(0), wanted(1))
    run_threads(rig)
    first, second = parts(client.answers()[0])
    assert 20_000 < len(first.records) < 25_000
    assert bytes(second.records) == b""
    assert second.error_code == 0
    client = park(rig, partitions[1], wanted(1, 2))
    run_threads(rig)
    (found,) = parts(client.answers()[0])
    assert len(found.records) > 20_000


def test_a_fetch_that_finds_no_room_waits_until_another_is_sent(rig):
    partition = rig.topic("t", 1)[0]
    rig.append(partition, b"x" * 10_000)
    all_cold(rig)
    buffers = rig.broker.fetch_buffers
    buffers.limit_bytes = 15_000
    buffers.on_freed = buffers.retry
    others = buffers.take(10_000)
    client = park(rig, partition, wanted(0))
    run_threads(rig)
    assert client.frames() == []
    assert buffers.waited == 1
    del others
    run_threads(rig)
    (found,) = parts(client.answers()[0])
    assert len(found.records) > 10_000


def test_who_leaves_while_waiting_for_room_leaves_the_line(rig):
    partition = rig.topic("t", 1)[0]
    rig.append(partition, b"x" * 10_000)
    all_cold(rig)
    buffers = rig.broker.fetch_buffers
    buffers.limit_bytes = 15_000
    buffers.on_freed = buffers.retry
    others = buffers.take(10_000)
    gone, stays = park(rig, partition, wanted(0)), park(rig, partition, wanted(0))
    gone.connection.connection_lost(None)
    del others
    run_threads(rig)
    assert len(parts(stays.answers()[0])[0].records) > 10_000
    assert not buffers.has_waiters


def test_a_connection_that_loads_is_not_served_further(rig):
    """Else one connection could have any number of answers read from the disk."""
    partition = rig.topic("t", 1)[0]
    for _ in range(3):
        rig.append(partition, b"x" * 700_000)
    all_cold(rig)
    client = park(rig, partition, wanted(0, max_bytes=2 << 20))
    fetches = rig.broker.read
    asked = []

    def counting(*args, **given):
        asked.append(args)
        return fetches(*args, **given)

    rig.broker.read = counting
    client.feed(client.encode(1, 12, **fields(partition, wanted(0, max_bytes=2 << 20))))
    assert asked == []
    run_threads(rig)
    rig.loop.run()
    assert len(asked) == 1


def test_of_tiny_batches_there_are_only_so_many_in_an_answer(rig, monkeypatch):
    """And it does not wait for more, though `min_bytes` are not there: the reader gets on."""
    partitions = rig.topic("t", 3)
    for _ in range(25):
        for partition in partitions[:2]:
            rig.append(partition, b"v")
    rig.append(partitions[2], b"v")
    whole = [batches(rig, partition) for partition in partitions]
    monkeypatch.setattr(consume_queue, "MOST_PLACES", 10)
    monkeypatch.setattr(fetch_reading, "MOST_PLACES", 10)
    client = rig.client()
    found = {0: b"", 1: b""}
    one = len(batches(rig, partitions[2]))
    for _ in range(4):
        wants = [wanted(index, len(found[index]) // one) for index in (0, 1)]
        answer = client.ask(1, 12, **fields(partitions[0], *wants, max_wait_ms=1000, min_bytes=1 << 20))
        given = [bytes(part.records) for part in parts(answer)]
        assert one <= sum(map(len, given)) < 2 * 10 * one
        found = {index: found[index] + given[index] for index in (0, 1)}
    assert found == {0: whole[0], 1: whole[1][: 20 * one]}


def test_what_arrives_while_very_many_partitions_are_read_is_not_missed(rig, way):
    """Between any two slices, before and after the request is parked; other clients have their turn there."""
    partitions = rig.topic("t", 4)
    for moment in range(14):
        start = [partition.next_offset for partition in partitions]
        client = rig.client()
        wants = [wanted(index, start[index]) for index in range(4)]
        client.feed(client.encode(1, 12, **fields(partitions[0], *wants, max_wait_ms=500)))
        for _ in range(moment):
            if rig.loop.soon:
                rig.loop.soon.pop(0)()
        rig.append(partitions[0], b"x")
        rig.turn()
        rig.loop.run()
        (answer,) = client.answers()
        assert [len(bytes(part.records)) > 0 for part in parts(answer)] == [True, False, False, False]


def test_a_malformed_request_of_very_many_partitions_closes_its_connection(rig, way):
    (partition,) = rig.topic("t")
    whole = request_bytes(1, 12, 1, "rig", **fields(partition, wanted(0), wanted(1)))
    cut = len(whole) - 10
    client = rig.client()
    client.feed(cut.to_bytes(4, "big") + whole[4 : cut + 4])
    rig.loop.run()
    assert client.transport.closed
    assert client.frames() == []


@pytest.mark.parametrize("version", VERSIONS)
def test_slices_read_and_write_the_same(version, monkeypatch):
    monkeypatch.setattr(fetch_codec, "SLICE", 3)
    for counts in ([], [0], [1], [3], [4, 2, 0, 7], [1] * 8):
        wants = [[wanted(index, index) for index in range(count)] for count in counts]
        said = fields("t", *[])
        said["topics"] = [
            Topic(topic=f"t{at}", topic_id=uuid.uuid4(), partitions=each) for at, each in enumerate(wants)
        ]
        body = memoryview(request_bytes(1, version, 1, "", **said))[14 + (version >= 12) :]
        request = fetch_codec.parse(body, version)
        assert finish(fetch_codec.parse_in_slices(body, version)) == request
        for cut in range(len(body)):
            with pytest.raises(MalformedRequest):
                finish(fetch_codec.parse_in_slices(body[:cut], version))
        found = [
            (key, [fetch_codec.Fetched(part.index, size=part.index % 2 * 3, records=[b"abc"]) for part in parts])
            for key, parts in request.topics
        ]
        in_slices = finish(fetch_codec.encode_in_slices(found, version, True))
        assert b"".join(in_slices) == b"".join(fetch_codec.encode(found, version, True))
