"""Whatever bytes come, the broker lives, its memory is bounded, and a well-behaved client notices nothing.

Every test runs against one broker in a process of its own, with a canary beside it. Afterwards: the process lives,
has logged no programmer's error and at most one line on a connection, has not grown, and the canary had its answers.
Seeds are fixed and printed with a failure; `python -m tests.fuzz --seconds 600` runs the random cases for as long as
you like.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from halfmoon.adapters.kafka.protocol import CreateTopicsRequest
from halfmoon.kafka_wire.primitives import MAX_ELEMENTS, MAX_TAGS
from tests.fuzz import attacks
from tests.fuzz.attacks import answered_or_closed
from tests.fuzz.campaign import MEMORY_BYTES, SETTINGS, STRICT, Campaign, lying_batches, versions
from tests.fuzz.canary import Canary
from tests.fuzz.grammar import World, join, valid_request
from tests.fuzz.peer import ClosedError, Peer, framed
from tests.fuzz.process import BrokerProcess, MemoryWatch, eventually

SEEDS = (20130101, 20131231)
CASES = 2500
"""Of each seed."""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("fuzz"), **SETTINGS) as broker:
        yield broker
        assert broker.stop() == 0
        broker.read_log()
        assert not [line for line in broker.lines if "level=ERROR" in line or "level=CRITICAL" in line]


@pytest.fixture(scope="module")
def canary(broker: BrokerProcess) -> Iterator[Canary]:
    canary = Canary(broker.address, broker.cpu_s)
    canary.start()
    yield canary
    canary.stop()


@pytest.fixture
def memory(broker: BrokerProcess, canary: Canary) -> Iterator[MemoryWatch]:
    """Also checks everything else when the test is over."""
    with MemoryWatch(broker) as memory:
        broker.forget_peers()
        yield memory
        canary.wait_for_rounds(3)
        broker.check()
        assert memory.grown_bytes < MEMORY_BYTES, f"grown by {memory.grown_bytes >> 20} MiB"


@pytest.mark.parametrize("seed", SEEDS)
def test_random_cases(broker, canary, memory, seed):
    campaign = Campaign(broker, canary, memory, seed)
    for number in range(CASES):
        campaign.case(number)
    # Otherwise the cases would not test what they are for.
    assert campaign.outcomes["answered"] > CASES * 0.3
    assert campaign.outcomes["closed"] > CASES * 0.2


def test_random_cases_where_every_record_is_looked_at(tmp_path: Path):
    with BrokerProcess(tmp_path, **STRICT) as broker:
        canary = Canary(broker.address, broker.cpu_s)
        canary.start()
        with MemoryWatch(broker) as memory:
            campaign = Campaign(broker, canary, memory, 20130704)
            for number in range(CASES):
                campaign.case(number)
        canary.stop()
        assert broker.stop() == 0


def test_every_version_has_a_valid_request(broker, memory):
    for key, version in versions():
        request = framed(join(valid_request(Random(key * 100 + version), World(), key, version)))
        assert answered_or_closed(broker.address, request) or key == 0


def test_cut_requests(broker, memory):
    for _, _, beginning in attacks.prefixes(Random(1)):
        answered_or_closed(broker.address, framed(beginning))


def test_requests_that_say_they_are_longer_and_never_become_whole(broker, memory):
    peers = []
    for _, _, beginning in list(attacks.prefixes(Random(2)))[::10]:
        peer = Peer(broker.address)
        peer.send(struct.pack(">i", len(beginning) + 1) + beginning)
        peers.append(peer)
    for peer in peers:
        peer.close()


def test_versions_and_keys_that_are_not_offered(broker, memory):
    for body in attacks.wrong_versions():
        is_api_versions = body[:2] == struct.pack(">h", 18)
        assert answered_or_closed(broker.address, framed(body)) == is_api_versions


@pytest.mark.parametrize("size", attacks.FRAME_SIZES)
def test_sizes_of_frames_that_are_not_believed(broker, memory, size):
    with Peer(broker.address) as peer:
        peer.send(struct.pack(">i", size) + bytes(100))
        assert peer.is_closed_within(2)
    assert memory.grown_bytes < 16 << 20


@pytest.mark.parametrize("name", attacks.SMALL_ELEMENTS)
def test_millions_of_small_elements(broker, canary, memory, name):
    """4 MiB of them used to stop everybody else for up to a minute, with gigabytes of memory."""
    make = attacks.SMALL_ELEMENTS[name]
    begun = broker.cpu_s()
    assert not answered_or_closed(broker.address, framed(make(MAX_ELEMENTS + 1)))
    assert answered_or_closed(broker.address, framed(make(MAX_ELEMENTS - 10)), 20.0)
    assert broker.cpu_s() - begun < 3
    assert memory.grown_bytes < 64 << 20


def test_tagged_fields_without_end(broker, memory):
    assert not answered_or_closed(broker.address, framed(attacks.tag_bomb(1_000_000)))
    assert not answered_or_closed(broker.address, framed(attacks.tag_bomb(MAX_TAGS + 1)))
    assert not answered_or_closed(broker.address, framed(struct.pack(">hhih", 3, 9, 1, -1) + b"\xff" * (1 << 20)))


def topic(broker: BrokerProcess, name: str) -> None:
    with Peer(broker.address) as peer:
        wanted = CreateTopicsRequest.CreatableTopic(
            name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[]
        )
        peer.ask(19, 5, topics=[wanted], timeout_ms=1000, validate_only=False)


def test_decompression_bombs(broker, memory):
    """They are stored as they come, since nobody looks into them; a time look-up does, and stops at its limit."""
    topic(broker, "fuzz-bombs")
    for name, batch in attacks.bombs(256 << 20):
        assert answered_or_closed(broker.address, framed(attacks.produce(batch))), name
        assert answered_or_closed(broker.address, framed(attacks.offset_for_time()) * 3, 20), name


def test_records_that_lie_about_lengths(broker, memory):
    topic(broker, "fuzz-lengths")
    for batch in attacks.lengths_in_records():
        assert answered_or_closed(broker.address, framed(attacks.produce(batch, "fuzz-lengths")))
        assert answered_or_closed(broker.address, framed(attacks.offset_for_time("fuzz-lengths")))


def test_batches_that_lie_with_a_right_checksum(broker, canary, memory):
    topic(broker, "fuzz-lies")
    chance = Random(3)
    batches = [
        token.data for _ in range(300) for token in valid_request(chance, World(), 0, 9) if token.kind.name == "RECORDS"
    ]
    with Peer(broker.address) as peer:
        lying_batches(Campaign(broker, canary, memory, 3), peer, chance, batches)


def test_garbage_behind_valid_requests(broker, memory):
    """What was asked before the garbage is answered, then the connection ends."""
    good = framed(struct.pack(">hhih", 18, 0, 1, -1))
    for garbage in (b"\xff" * 100, bytes(100), b"GET / HTTP/1.1\r\n\r\n", Random(4).randbytes(5000)):
        with Peer(broker.address) as peer:
            peer.send(good * 50 + garbage)
            for _ in range(50):
                peer.frame()
            if garbage[:4] == bytes(4) or garbage[0] & 0x80 or garbage.startswith(b"GET"):
                with pytest.raises(ClosedError):
                    peer.frame(2)


def test_slow_partial_requests(broker, canary, memory):
    """400 connections that begin a request and never end it: closed after `send_timeout` (2 s, seen every 2 s)."""
    peers = [Peer(broker.address) for _ in range(400)]
    for number, peer in enumerate(peers):
        peer.send(struct.pack(">i", 100_000 if number % 2 else 3000) + struct.pack(">hhih", 0, 7, 1, -1))
    canary.wait_for_rounds(20)
    assert memory.grown_bytes < 64 << 20
    deadline = time.monotonic() + 12
    for peer in peers:
        assert peer.is_closed_within(deadline - time.monotonic())
        peer.close()


def test_many_connections_at_once(broker, canary, memory):
    """800 connections, some silent, some half-said, some that ask and go."""
    chance = Random(5)
    peers = [Peer(broker.address) for _ in range(800)]
    for peer in peers:
        request = framed(join(valid_request(chance, World(), *chance.choice(versions()))))
        peer.send(request[: chance.choice((0, 1, 3, 4, 10, len(request)))])
    canary.wait_for_rounds(10)
    for peer in peers:
        peer.close()


def test_clients_that_never_read(broker, canary, memory):
    """They ask for all they can get; what is kept for them is bounded, and after a while they are closed."""
    ask = framed(struct.pack(">hhihi", 3, 1, 1, -1, -1)) * 200
    peers = [Peer(broker.address, receive_bytes=4096) for _ in range(20)]
    for peer in peers:
        peer.socket.settimeout(0.2)
        try:
            for _ in range(2000):
                peer.socket.sendall(ask)
        except (TimeoutError, ConnectionError):
            pass
        else:
            pytest.fail("all that was asked was read: this tests nothing")
    canary.wait_for_rounds(10)
    assert memory.grown_bytes < 96 << 20
    eventually(lambda: all(closed(peer) for peer in peers), 60)
    for peer in peers:
        peer.close()


def closed(peer: Peer) -> bool:
    try:
        peer.socket.send(b"\0")
    except TimeoutError:
        return False
    except ConnectionError:
        return True
    return False


def test_nothing_of_it_is_left(broker, canary, tmp_path: Path):
    """After all that, and a pause for what is freed now and then, the broker is as small as any."""
    eventually(lambda: broker.anonymous_bytes() < MEMORY_BYTES, 10)
    broker.check()
