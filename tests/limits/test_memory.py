"""What clients can make the broker keep in memory: RssAnon of its process. Run with -s to see the figures."""

from __future__ import annotations

import os
import struct
import urllib.request
from pathlib import Path

import pytest

from halfmoon.adapters.kafka.protocol import FetchRequest
from halfmoon.core.records.batches import build_batch, iter_records
from tests.fuzz.attacks import produce
from tests.fuzz.canary import Canary
from tests.fuzz.peer import Peer, framed
from tests.fuzz.process import BrokerProcess, MemoryWatch, eventually
from tests.limits.conftest import create_topic

MIB = 1 << 20
CONSUMERS = 1000
CONSUMERS_MIB = 40
"""What a thousand idle long-polling consumers may cost."""


def fetch(*topics: str, max_wait_ms: int = 60_000, max_bytes: int = 50 * MIB, partition: int = 0) -> dict[str, object]:
    topic = FetchRequest.FetchTopic
    part = topic.FetchPartition(partition=partition, fetch_offset=0, partition_max_bytes=max_bytes)
    return {
        "replica_id": -1, "max_wait_ms": max_wait_ms, "min_bytes": 1, "max_bytes": max_bytes, "isolation_level": 0,
        "session_id": 0, "session_epoch": -1, "topics": [topic(topic=name, partitions=[part]) for name in topics],
    }  # fmt: skip


def test_a_thousand_idle_long_polling_consumers(start):
    broker = start(idle_timeout=None)
    with Peer(broker.address) as admin:
        create_topic(admin, "t", 4)
        admin.ask(1, 11, **fetch("t", max_wait_ms=0))
        with MemoryWatch(broker) as memory:
            peers = [Peer(broker.address) for _ in range(CONSUMERS)]
            for peer in peers:
                peer.send(peer.request(1, 11, **fetch("t")))
            eventually(lambda: parked(broker) == CONSUMERS)
            grown = memory.grown_bytes / MIB
        print(f"\n{CONSUMERS} idle long-polling consumers: {grown:.1f} MiB, {grown * 1024 / CONSUMERS:.1f} KiB each")
        assert grown < CONSUMERS_MIB
        # And they are not merely forgotten: one record wakes them all.
        admin.send(framed(produce(build_batch([(None, b"x", 0, ())]), "t")))
        admin.frame()
        for peer in peers:
            assert peer.answer(1, 11).responses[0].partitions[0].high_watermark == 1
            peer.close()


def parked(broker: BrokerProcess) -> int:
    return int(gauge(broker, "halfmoon_held_requests"))


def gauge(broker: BrokerProcess, name: str) -> float:
    with urllib.request.urlopen(f"http://{broker.http}/metrics", timeout=5) as answer:
        for line in answer.read().decode().splitlines():
            if line.startswith((f"{name} ", f'{name}{{worker="0"}} ')):
                return float(line.split()[1])
    raise AssertionError(f"no metric {name}")


HALVES = 100
FRAME_BYTES = 90 * MIB


@pytest.mark.parametrize("sent", [100, 2 * MIB, 45 * MIB])
def test_a_hundred_large_requests_half_way(start, sent):
    """Each says 90 MiB and has sent a part. They would take 9 GB; the budget is 256 MiB, and the others go on."""
    broker = start(inflight_bytes="256MiB", max_request_bytes="100MiB", send_timeout="2s")
    canary = Canary(broker.address, broker.cpu_s)
    canary.start()
    beginning = struct.pack(">ihhih", FRAME_BYTES, 0, 7, 1, -1)
    with MemoryWatch(broker) as memory:
        peers = [Peer(broker.address) for _ in range(HALVES)]
        for peer in peers:
            peer.socket.setblocking(False)
        left = dict.fromkeys(peers, sent)
        for _ in range(sent // MIB * 3 + 1):
            for peer in list(left):
                part = (beginning if left[peer] == sent else b"") + bytes(min(left[peer], MIB))
                try:
                    left[peer] -= peer.socket.send(part[: left[peer]])
                except BlockingIOError:
                    continue
                except ConnectionError:
                    left[peer] = 0
                if left[peer] <= 0:
                    del left[peer]
            canary.check()
        canary.wait_for_rounds(50)
    print(f"\n{HALVES} requests of 90 MiB, {sent} bytes sent: {memory.grown_bytes / MIB:.0f} MiB; "
          f"the canary waited {canary.worst_s * 1000:.0f} ms at most")  # fmt: skip
    for peer in peers:
        peer.close()
    canary.stop()
    assert memory.grown_bytes < 300 * MIB
    eventually(lambda: broker.anonymous_bytes() < memory.before_bytes + 64 * MIB)
    broker.check()


def test_a_request_over_the_limit_closes_its_connection(start):
    broker = start(max_request_bytes="1MiB", inflight_bytes="4MiB")
    with Peer(broker.address) as peer:
        peer.send(struct.pack(">i", MIB + 1) + bytes(100))
        assert peer.is_closed_within(2)
    broker.check()
    assert sum("a request of 1048577 bytes" in line for line in broker.lines) == 1


READERS = 30


def leave_memory(folder: Path) -> None:
    """What the log's files hold is on the disk only from now on."""
    for path in (folder / "data").glob("**/log/*"):
        with path.open("rb+") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


@pytest.fixture
def old_data(start, tmp_path):
    """`old_data()` → a broker and a topic of 64 MiB, of which nothing is in memory."""

    def make(batch_bytes=MIB, **limits):
        broker = start(log={"segment_bytes": "16MiB", "hot_bytes": 0}, **limits)
        with Peer(broker.address) as peer:
            create_topic(peer, "old", max_message_bytes=str(batch_bytes))
            for _ in range(64 * MIB // batch_bytes):
                peer.send(framed(produce(build_batch([(None, os.urandom(batch_bytes - 200), 0, ())]), "old")))
                assert error_of(peer) == 0
        leave_memory(tmp_path)
        return broker

    return make


def test_readers_of_old_data_that_take_nothing(old_data):
    """Thirty connections ask for 50 MiB each, and do not read it: 1.5 GB. A canary's fetches go on."""
    broker = old_data(fetch_buffer_bytes="64MiB")
    canary = Canary(broker.address, broker.cpu_s)
    canary.start()
    with MemoryWatch(broker) as memory:
        peers = [Peer(broker.address, receive_bytes=4096) for _ in range(READERS)]
        for peer in peers:
            peer.send(peer.request(1, 11, **fetch("old")))
        eventually(lambda: gauge(broker, "halfmoon_fetch_buffer_bytes") > 16 * MIB)
        canary.wait_for_rounds(50)
    print(f"\n{READERS} fetches of 50 MiB that nobody reads: {memory.grown_bytes / MIB:.0f} MiB; "
          f"the canary waited {canary.worst_s * 1000:.0f} ms at most")  # fmt: skip
    assert gauge(broker, "halfmoon_cold_reads_total") > 0
    assert memory.grown_bytes < 110 * MIB
    for peer in peers:
        peer.close()
    eventually(lambda: gauge(broker, "halfmoon_fetch_buffer_bytes") == 0)
    canary.stop()
    broker.check()


SHARDS = 16


def test_the_shards_of_a_process_share_that_memory(start, tmp_path):
    """Each of sixteen connections asks another shard for 12 MiB, and reads nothing."""
    broker = start(log={"segment_bytes": "16MiB", "hot_bytes": 0}, fetch_buffer_bytes="32MiB", workers=1)
    with Peer(broker.address) as peer:
        create_topic(peer, "old", SHARDS, max_message_bytes=str(12 * MIB))
        for partition in range(SHARDS):
            batch = build_batch([(None, os.urandom(12 * MIB - 200), 0, ())])
            peer.send(framed(produce(batch, "old", partition=partition)))
            assert error_of(peer) == 0
    leave_memory(tmp_path)
    peers = [Peer(broker.address, receive_bytes=4096) for _ in range(SHARDS)]
    for partition, peer in enumerate(peers):
        peer.send(peer.request(1, 11, **fetch("old", partition=partition)))
    eventually(lambda: gauge(broker, "halfmoon_fetch_buffer_waits_total") >= SHARDS // 2)  # there is room for two
    assert gauge(broker, "halfmoon_fetch_buffer_bytes") <= 32 * MIB
    for peer in peers:
        peer.close()
    eventually(lambda: gauge(broker, "halfmoon_fetch_buffer_bytes") == 0)
    broker.check()


def test_a_connection_that_asks_thirty_times_and_takes_nothing(old_data):
    broker = old_data()
    with MemoryWatch(broker) as memory, Peer(broker.address, receive_bytes=4096) as peer:
        peer.send(b"".join(peer.request(1, 11, **fetch("old")) for _ in range(30)))
        eventually(lambda: gauge(broker, "halfmoon_fetch_buffer_bytes") > MIB)
    print(f"\n30 fetches of 50 MiB by one that reads none: {memory.grown_bytes / MIB:.0f} MiB")
    assert memory.grown_bytes < 48 * MIB
    broker.check()


def test_those_who_hold_the_memory_are_closed_once_others_wait_for_it(old_data):
    broker = old_data(batch_bytes=12 * MIB, fetch_buffer_bytes="1MiB", send_timeout="60s")
    with Peer(broker.address, receive_bytes=4096) as stuck, Peer(broker.address) as other:
        stuck.send(stuck.request(1, 11, **fetch("old")))
        eventually(lambda: gauge(broker, "halfmoon_fetch_buffer_bytes") > 0)
        (part,) = other.ask(1, 11, timeout_s=30, **fetch("old")).responses[0].partitions
        assert len(part.records) > 11 * MIB
    broker.check()
    assert any("others wait for the memory" in line for line in broker.lines)


def test_a_message_near_the_limit(start):
    """One record of the largest batch that the topic takes: stored, and read back whole; a byte more is refused."""
    broker = start(max_request_bytes="16MiB", inflight_bytes="32MiB", log={"segment_bytes": "32MiB"})
    limit = 15 * MIB
    overhead = len(build_batch([(None, bytes(limit - 200), 0, ())])) - (limit - 200)
    value = bytes(range(256)) * (limit // 256)
    value = value[: limit - overhead]
    with Peer(broker.address) as peer, MemoryWatch(broker) as memory:
        create_topic(peer, "large", max_message_bytes=str(limit))
        batch = build_batch([(None, value, 0, ())])
        assert len(batch) == limit
        peer.send(framed(produce(batch, "large")))
        assert error_of(peer) == 0
        (part,) = peer.ask(1, 11, **fetch("large", max_bytes=1000)).responses[0].partitions
        (record,) = iter_records(bytes(part.records))
        assert record.value == value, "the first batch comes whole, whatever the limits of the fetch"
        peer.send(framed(produce(build_batch([(None, value + b"x", 0, ())]), "large")))
        assert error_of(peer) == 10, "MESSAGE_TOO_LARGE"
        peer.send(framed(produce(build_batch([(None, b"small", 0, ())]), "large")))
        assert error_of(peer) == 0
    print(f"\na message of 15 MiB in and out: {memory.grown_bytes / MIB:.0f} MiB")
    assert memory.grown_bytes < 64 * MIB


def error_of(peer: Peer) -> int:
    """The error code of the one partition of a Produce 7 answer."""
    frame = peer.frame()
    # Correlation id, topics, name, partitions, index.
    (name_size,) = struct.unpack_from(">h", frame, 8)
    return struct.unpack_from(">h", frame, 10 + name_size + 4 + 4)[0]
