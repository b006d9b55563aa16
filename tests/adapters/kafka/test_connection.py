"""Connections: bytes in any pieces, answers in order, memory that is not overwritten, peers that misbehave."""

from __future__ import annotations

import logging
import struct
import uuid

import pytest
from kafka_rig import Rig, batch

from halfmoon.adapters.kafka import connection as module
from halfmoon.adapters.kafka.connection import MAX_IN_THREADS
from halfmoon.adapters.kafka.protocol import FetchRequest, ListOffsetsRequest, ProduceRequest
from halfmoon.adapters.kafka.registry import Deferred
from halfmoon.adapters.tcp.listener import SWEEP_MS
from halfmoon.adapters.tcp.receiving import CONTROL_TURN_BYTES
from halfmoon.adapters.tcp.round_time import ROUND_S, TURN_S, RoundTime

PRODUCE, FETCH, API_VERSIONS = 0, 1, 18


def versions(client):
    return client.encode(API_VERSIONS, 3, client_software_name="rig", client_software_version="1")


def produce(client, partition, *values, acks=-1, version=9):
    topic = ProduceRequest.TopicProduceData
    data = [topic.PartitionProduceData(index=partition.index, records=batch(*values))]
    return client.encode(
        PRODUCE,
        version,
        transactional_id=None,
        acks=acks,
        timeout_ms=1000,
        topic_data=[topic(name=partition.topic.name, partition_data=data)],
    )


def fetch(client, partition, offset, *, max_wait_ms=1000, min_bytes=1, max_bytes=1 << 20):
    topic = FetchRequest.FetchTopic
    wanted = [
        topic.FetchPartition(
            partition=partition.index,
            current_leader_epoch=-1,
            fetch_offset=offset,
            last_fetched_epoch=-1,
            log_start_offset=-1,
            partition_max_bytes=max_bytes,
        )
    ]
    return client.encode(
        FETCH,
        13,
        replica_id=-1,
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        topics=[topic(topic_id=uuid.UUID(bytes=partition.topic.id), partitions=wanted)],
        forgotten_topics_data=[],
        rack_id="",
    )


def records(answer):
    """The record bytes of a fetch of one partition."""
    return bytes(answer.responses[0].partitions[0].records)


def stored(rig, partition, offset=0):
    return b"".join(bytes(piece) for piece in rig.broker.read(partition, offset, 1 << 30, min_one=True).slices)


# -- pieces and order --------------------------------------------------------------------------------------------------


def three_requests(rig, partition):
    client = rig.client()
    return client, versions(client) + produce(client, partition, b"x" * 50) + fetch(client, partition, 0, max_wait_ms=0)


def test_requests_are_whole_whatever_pieces_they_come_in(rig):
    (partition,) = rig.topic("t")
    _, stream = three_requests(rig, partition)
    for cut in range(1, len(stream)):
        client, stream = three_requests(rig, partition)
        client.feed(stream[:cut])
        client.feed(stream[cut:])
        rig.turn()
        assert client.correlation_ids() == [1, 2, 3]
    assert partition.next_offset == len(stream) - 1
    assert rig.server.counters.malformed == 0


def test_a_turn_may_come_as_soon_as_what_one_client_sent_is_handled(rig):
    """Its buffer is free again then, also where another client's requests and half of its next one lie in it."""
    (partition,) = rig.topic("t")
    other = rig.client()
    other.feed(produce(other, partition, b"other"))
    turns = []

    def turn():
        turns.append(partition.next_offset)
        rig.turn()

    rig.broker.on_handled = turn
    client = rig.client()
    values = [bytes([65 + number]) * 500 for number in range(4)]
    stream = b"".join(produce(client, partition, value) for value in values)
    client.feed(stream[:-10])
    assert turns == [1 + 3]
    assert client.correlation_ids() == [1, 2, 3]
    assert len(other.answers()) == 1
    client.feed(stream[-10:])
    assert client.correlation_ids()[-1] == 4
    assert turns == [1 + 3, 1 + 4]
    assert rig.server.pool.in_use_bytes == len(rig.server.pool.chunk().view)
    client.feed(fetch(client, partition, 0, max_wait_ms=0))
    found = stored(rig, partition)
    assert [found.count(value) for value in (b"other", *values)] == [1] * 5
    assert turns == [1 + 3, 1 + 4], "a fetch appends nothing"


def test_a_byte_at_a_time(rig):
    (partition,) = rig.topic("t")
    client, stream = three_requests(rig, partition)
    for byte in stream:
        client.feed(bytes((byte,)))
    rig.turn()
    assert client.correlation_ids() == [1, 2, 3]


def test_few_bytes_of_a_size_survive_other_connections_in_the_shared_chunk(rig):
    (partition,) = rig.topic("t")
    one, two = rig.client(), rig.client()
    request = produce(one, partition, b"one")
    one.feed(request[:3])
    two.feed(produce(two, partition, b"two" * 100))
    one.feed(request[3:])
    rig.turn()
    assert [len(client.answers()) for client in (one, two)] == [1, 1]
    assert partition.next_offset == 2


def test_answers_leave_in_the_order_of_the_requests(rig):
    (partition,) = rig.topic("t")
    client = rig.client()
    client.feed(produce(client, partition, b"a") + versions(client))
    client.feed(produce(client, partition, b"b") + versions(client))
    assert client.transport.received == b"", "nothing may overtake the first answer, which is not durable"
    rig.turn()
    assert client.correlation_ids() == [1, 2, 3, 4]
    assert client.transport.writes == 1, "answers that are ready together leave together"


def test_deferred_answers_that_complete_out_of_order_leave_in_order(rig):
    client = rig.client()
    waiting = []

    def handler(ctx, body):
        waiting.append(Deferred())
        return waiting[-1]

    for key, route in rig.server.routes.items():
        if route.key == API_VERSIONS:
            rig.server.routes[key] = route.handled_by(handler, sliced=route.sliced)
    client.feed(versions(client) + versions(client) + versions(client))
    waiting[2].complete(b"third")
    waiting[0].complete(b"first")
    rig.loop.run()
    assert client.correlation_ids() == [1]
    waiting[1].complete(b"second")
    assert [frame[4:] for frame in client.frames()] == [b"second", b"third"]


# -- parked fetches ----------------------------------------------------------------------------------------------------


def test_a_parked_fetch_is_answered_when_messages_arrive(rig):
    (partition,) = rig.topic("t")
    client = rig.client()
    client.feed(fetch(client, partition, 0))
    rig.turn()
    assert client.frames() == []
    assert len(rig.broker.hold) == 1
    rig.append(partition, b"here")
    (answer,) = client.answers()
    assert records(answer) == stored(rig, partition)


def test_a_parked_fetch_is_answered_empty_at_its_deadline(rig):
    (partition,) = rig.topic("t")
    client = rig.client()
    client.feed(fetch(client, partition, 0, max_wait_ms=500))
    rig.pass_time(499)
    assert client.frames() == []
    rig.pass_time(1)
    (answer,) = client.answers()
    assert records(answer) == b""


def test_the_next_request_ends_the_wait_of_a_parked_fetch(rig):
    (partition,) = rig.topic("t")
    client = rig.client()
    client.feed(fetch(client, partition, 0, max_wait_ms=30_000))
    assert client.frames() == []
    client.feed(versions(client))
    assert client.correlation_ids() == [1, 2]
    assert len(rig.broker.hold) == 0


def test_many_fetches_in_one_read_do_not_wait_for_each_other(rig):
    (partition,) = rig.topic("t")
    client = rig.client()
    client.feed(b"".join(fetch(client, partition, 0, max_wait_ms=30_000) for _ in range(5)))
    assert client.correlation_ids() == [1, 2, 3, 4], "only the last still waits"
    assert len(rig.broker.hold) == 1


def test_a_lost_connection_leaves_nothing_parked(rig):
    (partition,) = rig.topic("t")
    client = rig.client()
    client.feed(fetch(client, partition, 0))
    client.connection.connection_lost(None)
    assert len(rig.broker.hold) == 0
    rig.append(partition, b"x")
    assert client.frames() == []


def test_a_thousand_idle_consumers_own_no_buffer(rig):
    (partition,) = rig.topic("t")
    before = rig.server.pool.in_use_bytes
    clients = [rig.client() for _ in range(1000)]
    for client in clients:
        client.feed(fetch(client, partition, 0))
    assert rig.server.pool.in_use_bytes - before <= len(clients[0].connection.get_buffer(-1))
    rig.append(partition, b"for everybody")
    assert all(len(client.answers()) == 1 for client in clients)


# -- memory ------------------------------------------------------------------------------------------------------------


def test_appended_bytes_stay_until_the_log_has_written_them(rig):
    (partition,) = rig.topic("t")
    one, two = rig.client(), rig.client()
    one.feed(produce(one, partition, b"first" * 20))
    for _ in range(50):
        two.feed(versions(two))
    two.feed(produce(two, partition, b"second" * 20))
    rig.turn()
    assert stored(rig, partition).count(b"first") == 20
    assert stored(rig, partition).count(b"second") == 20
    assert rig.server.pool.chunk().used == 0, "after the write the chunk is free from its start"


@pytest.mark.parametrize("size", [100, 3000, 70_000, 600_000, 2_000_000])
def test_requests_of_every_size_are_stored_as_they_came(rig, size):
    (partition,) = rig.topic("t")
    client = rig.client()
    for turn in range(4):
        for _ in range(3):
            client.feed(produce(client, partition, bytes((turn,)) * size))
        rig.turn()
        assert [answer.responses[0].partition_responses[0].error_code for answer in client.answers()] == [0, 0, 0]
    found = stored(rig, partition)
    assert [found.count(bytes((turn,)) * size) for turn in range(1, 4)] == [3, 3, 3]
    assert rig.server.pool.in_use_bytes <= 512 << 10, "only the shared chunk is still out"


def test_buffers_of_a_lost_connection_come_back(rig):
    (partition,) = rig.topic("t")
    client = rig.client()
    client.feed(produce(client, partition, b"x" * 1_000_000)[:600_000])
    assert rig.server.pool.in_use_bytes > 1_000_000
    client.connection.connection_lost(None)
    assert rig.server.pool.in_use_bytes <= 512 << 10


def test_requests_wait_while_the_memory_is_taken():
    rig = Rig(limits__max_request_bytes=2 << 20, limits__inflight_bytes=2 << 20)
    (partition,) = rig.topic("t")
    one, two = rig.client(), rig.client()
    first, second = produce(one, partition, b"1" * 1_000_000), produce(two, partition, b"2" * 1_000_000)
    one.feed(first[:900_000])
    two.feed(second[:1000])
    assert not two.transport.reading, "there is no memory for a second one"
    one.feed(first[900_000:])
    rig.turn()
    assert two.transport.reading
    two.feed(second[1000:])
    rig.turn()
    assert [len(one.answers()), len(two.answers())] == [1, 1]
    assert stored(rig, partition).count(b"2" * 1_000_000) == 1


# -- clients that do not read ------------------------------------------------------------------------------------------


def test_many_that_wait_for_memory_get_it_one_after_the_other():
    """They come back in a fresh call of the loop, so that neither the stack nor the work grows with their number."""
    rig = Rig(limits__max_request_bytes="1MiB", limits__inflight_bytes="1MiB")
    (partition,) = rig.topic("t")
    clients = [rig.client() for _ in range(300)]
    requests = [produce(client, partition, bytes(600_000)) for client in clients]
    for client, request in zip(clients, requests, strict=True):
        client.feed(request[:1000])
    assert sum(client.transport.reading for client in clients) == 1
    for client, request in zip(clients, requests, strict=True):
        assert client.transport.reading
        client.feed(request[1000:])
        rig.turn()
        assert [answer.responses[0].partition_responses[0].error_code for answer in client.answers()] == [0]
    assert rig.server.pool.in_use_bytes <= 1 << 20
    assert not rig.server.pool.has_waiters


def test_who_sends_too_slowly_gives_way_to_those_who_wait_for_the_memory():
    rig = Rig(limits__max_request_bytes="1MiB", limits__inflight_bytes="1MiB", limits__send_timeout="1s")
    (partition,) = rig.topic("t")
    slow, other = rig.client(), rig.client()
    request = produce(slow, partition, bytes(600_000))
    slow.feed(request[:1000])
    for at in range(1000, 1010):
        rig.pass_time(200)
        slow.feed(request[at : at + 1])
        slow.connection.sweep(rig.clock.now_ms, None, 1000)
    assert not slow.transport.closed, "it is slow, and nobody minds"
    other.feed(produce(other, partition, bytes(600_000))[:1000])
    assert not other.transport.reading
    slow.feed(request[1010:1011])
    slow.connection.sweep(rig.clock.now_ms, None, 1000)
    assert slow.transport.closed
    slow.connection.connection_lost(None)
    rig.loop.run()
    assert other.transport.reading


def test_many_requests_of_objects_in_one_read_take_several_turns(rig):
    """Half a megabyte of them takes seconds; other connections come in between."""
    client = rig.client()
    one = client.encode(15, 0, groups=["g" * 1000] * 10)
    client.feed(one * 40)
    handled = []
    while rig.loop.soon:
        handled.append(len(client.correlation_ids()))
        rig.loop.soon.pop(0)()
    handled.append(len(client.correlation_ids()))
    assert sum(handled) == 40
    assert max(handled) <= CONTROL_TURN_BYTES // 10_000 + 1
    assert client.transport.reading


def slow_rounds(rig, seconds):
    """Each look at the time is so much later: as if each request took so long."""
    now = 0.0

    def look():
        nonlocal now
        now += seconds
        return now

    rig.server.round_time = RoundTime(rig.loop.call_soon, look)


def rounds_of(rig, *clients):
    """How many answers each client has got after each round of the loop."""
    seen = [[len(client.correlation_ids()) for client in clients]]
    while rig.loop.soon:
        this_round, rig.loop.soon = rig.loop.soon, []
        for callback in this_round:
            callback()
        seen.append([len(client.correlation_ids()) for client in clients])
    return seen


def test_a_client_that_has_sent_many_requests_ahead_keeps_the_loop_from_nobody(rig):
    slow_rounds(rig, TURN_S * 0.6)
    ahead, other = rig.client(), rig.client()
    ahead.feed(b"".join(versions(ahead) for _ in range(10)))
    other.feed(versions(other))
    first, *later = rounds_of(rig, ahead, other)
    assert first == [2, 1], "two take longer than a turn"
    assert sum(answered for answered, _ in later) == 8
    assert max(answered for answered, _ in later) == 2
    assert ahead.transport.reading


def test_all_clients_together_have_a_round_and_each_of_them_gets_on(rig):
    slow_rounds(rig, ROUND_S / 3)
    clients = [rig.client() for _ in range(8)]
    for client in clients:
        client.feed(b"".join(versions(client) for _ in range(3)))
    rounds = rounds_of(rig, *clients)
    assert rounds[0] == [2, *[1] * 7], "whoever comes later has one request handled"
    assert [sum(answered) for answered in zip(*rounds, strict=True)] == [3] * 8
    assert all(client.transport.reading for client in clients)


def test_a_client_that_does_not_read_is_not_read_from(rig):
    (partition,) = rig.topic("t")
    for _ in range(3):
        rig.append(partition, b"x" * 1_000_000)
    client = rig.client()
    client.transport.slow = True
    client.feed(b"".join(fetch(client, partition, 0, max_bytes=4 << 20) for _ in range(20)))
    assert not client.transport.reading
    assert len(client.transport.unsent) < 8_000_000, "the requests behind are not handled yet"
    while client.transport.unsent:
        client.transport.drain()
        rig.loop.run()
    assert client.correlation_ids() == list(range(1, 21))
    assert client.transport.reading


def test_a_client_may_have_so_many_requests_unanswered(rig):
    (partition,) = rig.topic("t")
    client = rig.client()
    count = module.MAX_UNANSWERED + 50
    client.feed(b"".join(produce(client, partition, b"x") for _ in range(count)))
    assert not client.transport.reading
    assert partition.next_offset == module.MAX_UNANSWERED
    rig.turn()
    rig.turn()
    assert client.correlation_ids() == list(range(1, count + 1))
    assert client.transport.reading
    assert partition.next_offset == count


def test_a_peer_that_does_not_read_its_answers_is_closed_after_a_while(rig):
    client = rig.client()
    client.transport.slow = True
    client.feed(versions(client))
    limits = rig.broker.settings.limits

    def sweep():
        client.connection.sweep(rig.clock.now_ms, limits.idle_timeout_ms, limits.send_timeout_ms)

    sweep()
    for _ in range(5):
        rig.clock.now_ms += limits.send_timeout_ms - 1
        client.transport.drain(1)
        sweep()
        assert not client.transport.closed, "it reads, if slowly"
    rig.clock.now_ms += limits.send_timeout_ms
    sweep()
    assert client.transport.closed


def test_idle_connections_are_closed_and_waiting_ones_are_not(rig):
    (partition,) = rig.topic("t")
    idle, waiting = rig.client(), rig.client()
    waiting.feed(fetch(waiting, partition, 0))
    limits = rig.broker.settings.limits
    for client in (idle, waiting):
        client.connection.sweep(rig.clock.now_ms, limits.idle_timeout_ms, limits.send_timeout_ms)
    rig.clock.now_ms += limits.idle_timeout_ms
    for client in (idle, waiting):
        client.connection.sweep(rig.clock.now_ms, limits.idle_timeout_ms, limits.send_timeout_ms)
    assert [idle.transport.closed, waiting.transport.closed] == [True, False]
    assert rig.server.counters.idle_closed == 1


def test_what_is_set_at_run_time_holds_for_the_next_connection_and_the_next_look(rig):
    configs = rig.broker.dynamic_configs
    configs.alter("0", {"max.connections": "10"})
    clients = [rig.client() for _ in range(11)]
    assert [client.transport.closed for client in clients] == [False] * 10 + [True]
    configs.alter("0", {"max.connections": "11"})
    clients.append(rig.client())
    assert not clients[-1].transport.closed
    rig.server._sweep()
    rig.pass_time(11_000)
    assert rig.server.counters.idle_closed == 0
    configs.alter("0", {"connections.max.idle.ms": "10000"})
    rig.pass_time(SWEEP_MS)
    assert rig.server.counters.idle_closed == 11


@pytest.mark.parametrize("size", [2, 40, 5000])
def test_a_peer_that_stops_in_the_middle_of_a_request_is_closed(rig, size):
    (partition,) = rig.topic("t")
    client = rig.client()
    client.feed(produce(client, partition, b"x" * 10_000)[:size])
    client.connection.sweep(rig.clock.now_ms, None, 60_000)
    rig.clock.now_ms += 60_000
    client.connection.sweep(rig.clock.now_ms, None, 60_000)
    assert client.transport.closed


# -- requests that make no sense ---------------------------------------------------------------------------------------

HEADER = struct.Struct(">hhih")


def frame(content):
    return struct.pack(">i", len(content)) + content


MALFORMED = {
    "negative size": struct.pack(">i", -1),
    "size 0": struct.pack(">i", 0),
    "size 2**31-1": struct.pack(">i", 2**31 - 1),
    "a control request of 50 MiB": struct.pack(">i", 50 << 20) + HEADER.pack(3, 12, 1, -1),
    "client id beyond the request": frame(HEADER.pack(API_VERSIONS, 0, 1, 500)),
    "client id that is not text": frame(HEADER.pack(API_VERSIONS, 0, 1, 1) + b"\xff"),
    "no tags": frame(HEADER.pack(API_VERSIONS, 3, 1, -1)),
    "tags beyond the request": frame(HEADER.pack(API_VERSIONS, 3, 1, -1) + b"\x7f"),
    "no body": frame(HEADER.pack(PRODUCE, 9, 1, -1) + b"\x00"),
    "an array beyond the request": frame(HEADER.pack(FETCH, 4, 1, -1) + bytes(17) + b"\x7f\xff\xff\xff"),
    "http": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
}


@pytest.mark.parametrize("data", MALFORMED.values(), ids=MALFORMED.keys())
def test_malformed_requests_close_their_connection_and_touch_nothing_else(rig, data, caplog):
    (partition,) = rig.topic("t")
    good, bad = rig.client(), rig.client()
    good.feed(fetch(good, partition, 0))
    used = rig.server.pool.in_use_bytes
    with caplog.at_level(logging.WARNING, "halfmoon.kafka"):
        bad.feed(versions(bad) + data)
    assert bad.correlation_ids() == [1], "what came before is answered"
    assert bad.transport.closed
    assert rig.server.counters.malformed == 1
    assert "reason=" in caplog.text
    assert rig.server.pool.in_use_bytes <= max(used, 512 << 10)
    rig.append(partition, b"x")
    assert len(good.answers()) == 1


@pytest.mark.parametrize("first", [1, 3, 4, 5, 6, 7, 13, 14, 40])
def test_a_large_request_that_is_not_produce_is_refused_however_its_beginning_comes(rig, first):
    client = rig.client()
    data = struct.pack(">i", 5 << 20) + HEADER.pack(3, 12, 1, -1) + bytes(60)
    client.feed(data[:first])
    client.feed(data[first:])
    assert client.transport.closed
    assert rig.server.counters.malformed == 1
    assert rig.server.pool.in_use_bytes <= 512 << 10


@pytest.mark.parametrize(("key", "version"), [(999, 0), (PRODUCE, 2), (FETCH, 99), (-1, 0)])
def test_what_is_not_offered_closes_the_connection(rig, key, version, caplog):
    client = rig.client()
    with caplog.at_level(logging.WARNING, "halfmoon.kafka"):
        client.feed(frame(HEADER.pack(key, version, 1, -1) + bytes(30)))
    assert client.transport.closed
    assert client.frames() == []
    assert "is not offered" in caplog.text


def test_a_failing_handler_costs_its_own_connection_only(rig, caplog):
    (partition,) = rig.topic("t")

    def handler(ctx, body):
        raise ZeroDivisionError

    route = rig.server.routes[API_VERSIONS << 16 | 3]
    rig.server.routes[API_VERSIONS << 16 | 3] = route.handled_by(handler, sliced=route.sliced)
    good, bad = rig.client(), rig.client()
    bad.feed(versions(bad))
    good.feed(fetch(good, partition, 0, max_wait_ms=0))
    assert bad.transport.closed
    assert len(good.answers()) == 1
    assert "ZeroDivisionError" in caplog.text


# -- addresses, limits, the end ----------------------------------------------------------------------------------------


def test_the_address_told_is_the_one_reached_unless_another_is_set():
    assert (Rig().client().connection.host, Rig().client().connection.port) == ("10.0.0.1", 9092)
    advertised = Rig(listeners__kafka__advertise="broker.example:19092").client().connection
    assert (advertised.host, advertised.port) == ("broker.example", 19092)


def test_connections_beyond_the_limit_are_refused():
    rig = Rig(limits__max_connections=2)
    clients = [rig.client() for _ in range(3)]
    assert [client.transport.closed for client in clients] == [False, False, True]
    clients[2].connection.connection_lost(None)
    assert (rig.server.counters.connections, rig.server.counters.refused) == (2, 1)
    clients[0].connection.connection_lost(None)
    assert not rig.client().transport.closed


def test_a_stopping_server_lets_answers_out(rig):
    (partition,) = rig.topic("t")
    waits, writes = rig.client(), rig.client()
    waits.feed(fetch(waits, partition, 0))
    writes.feed(produce(writes, partition, b"x"))
    for client in (waits, writes):
        client.connection.finish()
    assert len(waits.answers()) == 1
    assert waits.transport.closed
    assert not writes.transport.closed
    rig.turn()
    assert len(writes.answers()) == 1
    assert writes.transport.closed


def test_one_connection_has_few_threads(rig):
    """All connections share them. What it asks beyond that waits, and is answered in its turn."""
    partition = rig.topic("t")[0]
    rig.append(partition, b"x")
    client = rig.client()
    part = ListOffsetsRequest.ListOffsetsTopic.ListOffsetsPartition(partition_index=0, timestamp=0)
    topics = [ListOffsetsRequest.ListOffsetsTopic(name="t", partitions=[part])]
    asked = [client.encode(2, 5, replica_id=-1, isolation_level=0, topics=topics) for _ in range(30)]
    client.feed(b"".join(asked))
    assert len(rig.loop.threads) == MAX_IN_THREADS
    for _ in range(30):
        rig.loop.run_threads()
        rig.loop.run()
    assert len(client.answers()) == 30
