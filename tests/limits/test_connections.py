"""How many connections there may be, and how long they may be silent, deaf, or in the middle of a sentence."""

from __future__ import annotations

import contextlib
import resource
import socket
import struct
import time

from halfmoon.adapters.kafka.protocol import FetchRequest
from tests.fuzz.peer import ClosedError, Peer, framed
from tests.fuzz.process import eventually
from tests.limits.conftest import create_topic, metric

API_VERSIONS = framed(struct.pack(">hhih", 18, 0, 1, -1))


def is_served(peer: Peer) -> bool:
    peer.send(API_VERSIONS)
    try:
        peer.frame()
    except ClosedError:
        return False
    return True


def test_connections_over_the_limit_are_refused_and_counted(start):
    broker = start(max_connections=3)
    peers = [Peer(broker.address) for _ in range(3)]
    assert all(is_served(peer) for peer in peers)
    for _ in range(5):
        with Peer(broker.address) as refused:
            assert not is_served(refused)
    assert metric(broker, "halfmoon_connections_refused_total") == 5
    assert metric(broker, "halfmoon_connections") == 3
    assert all(is_served(peer) for peer in peers)
    peers.pop().close()
    eventually(lambda: metric(broker, "halfmoon_connections") == 2)
    with Peer(broker.address) as next_one:
        assert is_served(next_one)
    for peer in peers:
        peer.close()
    broker.check()
    assert len([line for line in broker.lines if "refused" in line]) == 1, "one line, however many are refused"


def fetch(max_wait_ms: int) -> dict[str, object]:
    topic = FetchRequest.FetchTopic
    part = topic.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
    return {
        "replica_id": -1, "max_wait_ms": max_wait_ms, "min_bytes": 1, "max_bytes": 1000, "isolation_level": 0,
        "session_id": 0, "session_epoch": -1, "topics": [topic(topic="idle", partitions=[part])],
    }  # fmt: skip


def test_idle_connections_are_closed_and_waiting_ones_are_not(start):
    broker = start(idle_timeout="500ms")
    with Peer(broker.address) as silent, Peer(broker.address) as waiting, Peer(broker.address) as talking:
        create_topic(waiting, "idle")
        waiting.send(waiting.request(1, 11, **fetch(3000)))
        begun = time.monotonic()
        while not silent.is_closed_within(0.1):
            assert is_served(talking)
            assert time.monotonic() - begun < 5
        assert time.monotonic() - begun >= 0.4
        assert waiting.answer(1, 11).responses[0].partitions[0].error_code == 0, "a parked fetch is no silence"
        assert metric(broker, "halfmoon_connections_idle_closed_total") >= 1


def test_a_client_that_does_not_read_its_answers_is_closed(start):
    broker = start(send_timeout="500ms")
    with Peer(broker.address, receive_bytes=4096) as deaf, Peer(broker.address) as other:
        create_topic(other, "idle", 500)
        request = other.request(3, 1, topics=None) * 100
        deaf.socket.settimeout(0.2)
        with contextlib.suppress(TimeoutError, ConnectionError):
            while True:
                deaf.socket.sendall(request)
        eventually(lambda: metric(broker, "halfmoon_connections") == 1)
        assert is_served(other)
    broker.check()
    assert any("does not read its answers" in line for line in broker.lines)


def test_a_client_that_reads_slowly_is_not_closed(start):
    broker = start(send_timeout="500ms")
    with Peer(broker.address, receive_bytes=4096) as slow:
        create_topic(slow, "idle", 2000)
        slow.send(slow.request(3, 1, topics=None) * 20)
        begun = time.monotonic()
        received = 0
        while time.monotonic() - begun < 2:
            received += len(slow.socket.recv(4096))
            time.sleep(0.02)
        assert received > 100_000
    broker.check()
    assert not any("event=connection_closed" in line for line in broker.lines)


def test_a_request_that_does_not_go_on_ends_its_connection(start):
    broker = start(send_timeout="500ms")
    with Peer(broker.address) as peer:
        peer.send(struct.pack(">i", 5000) + API_VERSIONS[4:])
        assert peer.is_closed_within(5)
    broker.check()
    assert any("stopped in the middle of a request" in line for line in broker.lines)


def test_more_connections_than_file_descriptors(start):
    """The kernel's limit may be the lower one. Those that are in are served; who waits gets in when there is room."""
    broker = start(max_connections=1000)
    soft, hard = resource.prlimit(broker.pid, resource.RLIMIT_NOFILE)
    assert soft == hard, "it takes as many as it may have"
    resource.prlimit(broker.pid, resource.RLIMIT_NOFILE, (80, hard))
    first = Peer(broker.address)
    assert is_served(first)
    peers = []
    for _ in range(150):
        peer = socket.socket()
        peer.settimeout(5)
        peer.connect(broker.address)
        peers.append(peer)
    assert is_served(first)
    before = broker.cpu_s()
    for peer in peers:
        peer.close()
    eventually(lambda: served_anew(broker.address))
    assert broker.cpu_s() - before < 2
    first.close()
    assert len(broker.read_log()) < 50


def served_anew(address: tuple[str, int]) -> bool:
    with Peer(address) as peer:
        peer.send(API_VERSIONS)
        try:
            peer.frame(0.5)
        except (ClosedError, TimeoutError):
            return False
        return True
