"""Whatever bytes come to RocketMQ's ports, the broker lives, its memory is bounded, and well-behaved clients of both
protocols notice nothing.

As for Kafka's port (test_fuzz.py): one broker in a process of its own, a canary that speaks Kafka's protocol and one
that speaks RocketMQ's. After every test the process lives, has logged no programmer's error and at most one line on a
connection, has not grown, has closed what was closed, and the canaries had their answers. Seeds are fixed and printed
with a failure; `python -m tests.fuzz --rocketmq --seconds 600` runs the random cases for as long as you like.
"""

from __future__ import annotations

import json
import struct
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from random import Random

import cramjam
import pytest

from halfmoon.adapters.rocketmq.registry import Port
from halfmoon.adapters.rocketmq.request import registered
from halfmoon.core.records.batches import build_batch
from tests.fuzz import attacks
from tests.fuzz.campaign import MEMORY_BYTES, SETTINGS
from tests.fuzz.canary import Canary
from tests.fuzz.mutations import lying_batch
from tests.fuzz.peer import ClosedError, Peer
from tests.fuzz.peer import framed as kafka_framed
from tests.fuzz.process import BrokerProcess, MemoryWatch, eventually
from tests.fuzz.remoting import (
    CHECK,
    CREATE,
    HEARTBEAT,
    ILLEGAL,
    JSON,
    LOCK,
    MAX_OFFSET,
    NOT_FOUND,
    NOT_SUPPORTED,
    OLD_SEND,
    ONEWAY,
    PULL,
    QUERY,
    RESPONSE,
    RETRY_AT_ONCE,
    ROCKETMQ,
    RUNTIME_INFO,
    SEND,
    SEND_BATCH,
    SUCCESS,
    UPDATE_OFFSET,
    Remote,
    RemoteCanary,
    batch_body,
    binary_header,
    framed,
    json_header,
    parsed,
    pulling,
    request,
    said,
    sending,
    stored,
)
from tests.fuzz.remoting_campaign import (
    LISTENERS,
    MAX_FRAME_BYTES,
    MAX_HEADER_BYTES,
    NUMBER,
    RemotingCampaign,
    exchange,
)
from tests.fuzz.remoting_cases import corpus, golden_frames, placed

DELETE_TOPIC_IN_NAMESRV = 216
SEEDS = (20120214, 20161121)
CASES = 2500
"""Of each seed."""
KINDS = (JSON, ROCKETMQ)
MIB = 1 << 20


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("fuzz"), **SETTINGS, **LISTENERS) as broker:
        yield broker
        assert broker.stop() == 0
        broker.read_log()
        assert not [line for line in broker.lines if "level=ERROR" in line or "level=CRITICAL" in line]


@pytest.fixture(scope="module")
def canaries(broker: BrokerProcess) -> Iterator[list[Canary]]:
    canaries = [Canary(broker.address, broker.cpu_s), RemoteCanary(broker.rocketmq, broker.names, broker.cpu_s)]
    for canary in canaries:
        canary.start()
    yield canaries
    for canary in canaries:
        canary.stop()


@pytest.fixture(scope="module")
def quiet(broker: BrokerProcess, canaries: list[Canary]) -> int:
    """How many sockets the broker has with the canaries alone, one of which comes and goes."""
    rounds(canaries, 10)
    return min(broker.sockets() for _ in range(50))


@pytest.fixture
def memory(broker: BrokerProcess, canaries: list[Canary], quiet: int) -> Iterator[MemoryWatch]:
    """Also checks everything else when the test is over."""
    with MemoryWatch(broker) as memory:
        broker.forget_peers()
        yield memory
        rounds(canaries, 3)
        broker.check()
        assert memory.grown_bytes < MEMORY_BYTES, f"grown by {memory.grown_bytes >> 20} MiB"
        eventually(lambda: broker.sockets() <= quiet)


@pytest.fixture
def peer(broker: BrokerProcess, memory: MemoryWatch) -> Iterator[Remote]:
    with Remote(broker.rocketmq) as peer:
        yield peer


@pytest.fixture
def connect(memory: MemoryWatch) -> Iterator[Callable[..., Remote]]:
    """Makes connections that are closed before it is looked whether the broker has closed them, too."""
    with ExitStack() as stack:
        yield lambda *args, **more: stack.enter_context(Remote(*args, **more))


def rounds(canaries: list[Canary], count: int) -> None:
    for canary in canaries:
        canary.wait_for_rounds(count)


def topic(peer: Remote, name: str) -> str:
    peer.well(CREATE, said(topic=name, readQueueNums=1, writeQueueNums=1, perm=6))
    return name


@pytest.mark.parametrize("seed", SEEDS)
def test_random_cases(broker, canaries, memory, seed):
    with RemotingCampaign(broker, canaries, memory, seed) as campaign:
        for number in range(CASES):
            campaign.case(number)
    # Otherwise the cases would not test what they are for.
    assert campaign.outcomes["answered"] > CASES * 0.5
    assert campaign.outcomes["closed"] > CASES * 0.2
    assert campaign.outcomes["waiting"] > 0
    assert len(campaign.succeeded) > 30


@pytest.mark.parametrize("kind", KINDS)
def test_every_request_has_a_form_that_succeeds(broker, canaries, memory, kind):
    """Otherwise the random cases would spoil what nobody takes anyway."""
    chance = Random(kind)
    with RemotingCampaign(broker, canaries, memory, 0) as campaign:
        for code in sorted(registered()):
            if code == DELETE_TOPIC_IN_NAMESRV:  # it is for what is not there, and nobody is to make that before
                campaign.world.topics.append("%RETRY%fuzz-none")
            for _ in range(200):
                one = placed(
                    chance, campaign.world, chance.choice([each for each in campaign.corpus if each.code == code])
                )
                outcome, answers = exchange(broker.rocketmq, request(code, NUMBER, one.fields, one.body, kind))
                assert outcome == "answered"
                if [answer.code for answer in answers if answer.opaque == NUMBER] == [SUCCESS]:
                    break
                campaign.create()
            else:
                pytest.fail(f"request {code} never succeeds: {answers}")


def test_frames_that_rocketmqs_own_classes_have_made(broker, memory):
    for frame in golden_frames():
        outcome, answers = exchange(broker.rocketmq, frame)
        assert (outcome, len(answers)) == ("answered", 2)


def test_every_request_on_the_port_that_is_not_its_own(broker, memory):
    """And codes that are nobody's, on both."""
    codes = [*registered(), *range(-3, 9), 13, 99, 323, 1000, 200_050, 32_767, -32_768, 2**31 - 1]
    for address, port in ((broker.rocketmq, Port.BROKER), (broker.names, Port.NAMES)):
        with Remote(address) as peer:
            for code in codes:
                route = registered().get(code)
                if route is not None and port in route.port:
                    continue
                for peer.kind in KINDS if -(2**15) <= code < 2**15 else (JSON,):
                    assert peer.tell(code, {}).code == NOT_SUPPORTED
                    peer.say(code, {}, flag=ONEWAY)


def test_cut_requests(broker, memory):
    """The beginnings of every request, framed as if they were all: closed or answered, and no other connection."""
    chance = Random(1)
    outcomes = set()
    for one in {each.code: each for each in corpus()}.values():
        for kind in KINDS:
            whole = request(one.code, NUMBER, one.fields, one.body, kind)[4:]
            cuts = {4, 5, len(whole) - len(one.body) - 1, len(whole) - 1, *chance.sample(range(4, len(whole)), 3)}
            for cut in sorted(cuts):
                outcomes.add(exchange(broker.rocketmq, struct.pack(">i", cut) + whole[:cut])[0])
    assert outcomes == {"answered", "closed"}


NO_FRAMES = (
    *(struct.pack(">i", size) + bytes(100) for size in (-1, -(2**31), 0, 1, 3, MAX_FRAME_BYTES + 1, 2**31 - 1)),
    b"GET / HTTP/1.1\r\nHost: halfmoon\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(100),  # TLS
    kafka_framed(struct.pack(">hhih", 18, 0, 1, -1)),
    struct.pack(">iI", 8, 4) + b"null",
    struct.pack(">iI", 100, 97) + bytes(96),
    struct.pack(">iI", 100, 0xFFFFFF) + bytes(96),
    *(framed(json_header(RUNTIME_INFO, NUMBER, {}), kind=kind) for kind in (1, 2, 3, 0x7F, 0x80, 0xFF)),
    *(framed(b" " * (MAX_HEADER_BYTES + 1), kind=kind) for kind in KINDS),
)


def test_what_is_no_frame_closes_its_connection(broker, memory):
    """On both ports; what was asked before it is answered."""
    good = request(RUNTIME_INFO, NUMBER, {})
    for address in (broker.rocketmq, broker.names):
        for garbage in NO_FRAMES:
            with Remote(address) as peer:
                peer.send(good * 20 + garbage)
                for _ in range(20):
                    assert parsed(peer.frame()).opaque == NUMBER
                with pytest.raises(ClosedError):
                    peer.frame(2)
    assert memory.grown_bytes < 32 * MIB


def test_headers_as_large_as_they_may_be(broker, canaries, memory):
    """A field of nearly a megabyte is taken, and a thousand small ones; not as many as fit."""
    for kind, header in ((JSON, json_header), (ROCKETMQ, binary_header)):
        room = MAX_HEADER_BYTES - len(header(RUNTIME_INFO, NUMBER, {"x": ""}))
        outcome, _ = exchange(broker.rocketmq, framed(header(RUNTIME_INFO, NUMBER, {"x": "y" * room}), kind=kind))
        assert outcome == "answered"
        outcome, _ = exchange(broker.rocketmq, framed(header(RUNTIME_INFO, NUMBER, {"x": "y" * (room + 1)}), kind=kind))
        assert outcome == "closed"
    many = [(count, {f"{number:06}": "" for number in range(count)}) for count in (1_000, 70_000)]
    asked = [(count, request(RUNTIME_INFO, NUMBER, fields, kind=kind)) for kind in KINDS for count, fields in many]
    # The canaries have their answers meanwhile, which cost more than these do: nothing else is done in this time.
    before = broker.cpu_s()
    outcomes = [(count, exchange(broker.rocketmq, frame)[0]) for count, frame in asked * 5]
    took_s = broker.cpu_s() - before
    assert outcomes == [(1_000, "answered"), (70_000, "closed")] * 5 * len(KINDS)
    assert took_s < 1
    assert memory.grown_bytes < 64 * MIB


def nested(depth: int) -> bytes:
    return b'{"a":' * depth + b"1" + b"}" * depth


def test_json_as_deep_as_a_frame(broker, memory):
    for deep in (nested(100_000), b"[" * MAX_HEADER_BYTES, b"[" * 900 + b"]" * 900):
        header = b'{"code":28,"opaque":42,"extFields":%b}' % deep[: MAX_HEADER_BYTES - 50]
        assert exchange(broker.rocketmq, framed(header))[0] == "closed"
        for code in (HEARTBEAT, CHECK, LOCK, 400):
            outcome, answers = exchange(broker.rocketmq, request(code, NUMBER, {}, deep))
            assert (outcome, answers[0].code) == ("answered", 29)


def zeroes() -> Iterator[tuple[int, bytes]]:
    """System flags, and a body of some kilobytes that is 128 MiB, or says so, or is none."""
    plain = bytes(128 * MIB)
    packed = zlib.compress(plain)
    yield 1, packed
    yield 0x301, packed
    yield 0x701, packed
    yield 0x101, bytes(cramjam.lz4.compress(plain))
    yield 0x201, bytes(cramjam.zstd.compress(plain))
    yield 0x201, b"\x28\xb5\x2f\xfd\x00\xf8" + bytes(20)  # a window of terabytes
    yield 1, packed[: len(packed) // 2]
    yield 1, b"x" * 1000
    yield 1, b""


def test_decompression_bombs(broker, memory, peer):
    """Refused at the size that the topic takes, whichever request brings them."""
    name = topic(peer, "fuzz-bombs")
    for flags, body in zeroes():
        old = said(producerGroup="p", topic=name, queueId=0, sysFlag=flags, bornTimestamp=1, flag=0)
        for code, fields in (
            (SEND, sending(name, flags=flags)),
            (SEND_BATCH, sending(name, flags=flags)),
            (OLD_SEND, old),
        ):
            assert peer.tell(code, fields, body).code == ILLEGAL, (code, flags)
    assert peer.well(MAX_OFFSET, said(topic=name, queueId=0)).fields["offset"] == "0"
    assert memory.grown_bytes < 64 * MIB


def test_batches_that_lie_about_lengths(broker, memory, peer):
    name = topic(peer, "fuzz-batches")
    good = batch_body((b"body", b"a\1b\2"), (b"", b""))
    peer.well(SEND_BATCH, sending(name), good)
    bad = [b"", good[:-1], good + b"\0", good[:21], bytes(22), bytes(10_000)]
    for at in (0, 16):
        for length in (-1, -(2**31), 2**31 - 1, 0, 1, 21, 22, len(good), len(good) + 1):
            bad.append(good[:at] + struct.pack(">i", length) + good[at + 4 :])
    for length in (-1, 32_767, 5, 3):
        bad.append(good[:24] + struct.pack(">h", length) + good[26:])
    for body in bad:
        assert peer.tell(SEND_BATCH, sending(name), body).code == ILLEGAL, body[:60]
    assert peer.well(MAX_OFFSET, said(topic=name, queueId=0)).fields["offset"] == "2"


HEADERS = (
    ("TAGS", b"a"), ("UNIQ_KEY", b"U1"), ("KEYS", b"k l"), ("RECONSUME_TIME", b"3"), ("PGROUP", b"g"),
    ("__BORNHOST", b"::1:5"), ("halfmoon.delayed", b"DELAY=1"), ("RETRY_TOPIC", b"retry.x"), ("\udcff", b"x"),
    ("ORIGIN_MESSAGE_ID", b"fuzz-lies/0/0"), ("n", None), ("REAL_TOPIC", b"x"), ("__FLAG", b"7"), ("a\1b", b"\2"),
    ("halfmoon.original-timestamp", b"99"), ("TRAN_CHECK_TIMES", b"2"), ("__SYSFLAG", b"1"), ("TAGS", b"y" * 40_000),
)  # fmt: skip
"""What a record may have that means something to RocketMQ's clients, or cannot be said to them."""


def test_batches_from_kafka_that_lie(broker, memory, peer):
    """Their checksums are right, so they are stored. What is none is passed over, by every request that reads."""
    name = topic(peer, "fuzz-lies")
    number = int(peer.well(SEND, sending(name), b"x").fields["msgId"][-16:], 16) >> 40
    chance = Random(3)
    read, at = 0, 0
    for _ in range(250):
        rows = [
            (
                chance.choice((None, b"k", b"\xff", b"x" * 300)), chance.choice((None, b"", b"v" * 100)),
                chance.choice((0, 1_700_000_000_000, -1)), tuple(chance.sample(HEADERS, chance.randrange(6))),
            )
            for _ in range(chance.choice((1, 2, 20)))
        ]  # fmt: skip
        batch = build_batch(rows, codec=chance.choice((0, 0, 1, 2, 3, 4)))
        with Peer(broker.address) as kafka:
            kafka.send(kafka_framed(attacks.produce(lying_batch(chance, batch), name)))
            kafka.frame()
        for fields in (
            pulling(name, at), pulling(name, at, wanted="a"),
            pulling(name, at, wanted="n IS NULL OR TAGS = 'a'") | {"expressionType": "SQL92"},
        ):  # fmt: skip
            pulled = peer.tell(PULL, fields)
            assert pulled.code in (SUCCESS, NOT_FOUND, RETRY_AT_ONCE), pulled
            read += len(stored(pulled.body))
        end = int(peer.well(MAX_OFFSET, said(topic=name, queueId=0)).fields["offset"])
        at = max(0, end - chance.choice((0, 1, 2, 20)))
        physical = number << 40 | max(0, end - chance.choice((1, 1, 2, 20)))
        for code, fields in (
            (QUERY, said(topic=name, key="k", maxNum=64)), (29, said(topic=name, queueId=0, timestamp=1)),
            (32, said(topic=name, queueId=0)), (33, said(offset=physical)), (36, said(offset=physical, group="lies")),
            (202, said(topic=name)), (208, said(topic=name, consumerGroup="lies")),
        ):  # fmt: skip
            assert peer.tell(code, fields).code in (SUCCESS, 1, 13, 22), (code, fields)
    assert read > 300


def test_frames_that_are_announced_and_never_come(broker, canaries, memory, connect):
    """200 connections that say they send 16 MiB, which none of them is given before it comes."""
    for number in range(200):
        peer = connect(broker.names if number % 5 == 4 else broker.rocketmq)
        peer.send(struct.pack(">iI", MAX_FRAME_BYTES, 500) + b'{"code":310,"ext'[: number % 16])
    rounds(canaries, 20)
    assert memory.grown_bytes < 32 * MIB


def test_requests_that_stop_in_the_middle(broker, canaries, memory, connect):
    """400 connections that begin a request and never end it: closed after `send_timeout` (2 s, seen every 2 s)."""
    beginnings = (b"", b"\0", struct.pack(">I", 500), struct.pack(">I", 500) + b'{"code":310,"ext', bytes(2000))
    peers = []
    for number in range(400):
        peer = connect(broker.names if number % 5 == 4 else broker.rocketmq)
        peer.send(struct.pack(">i", (3000, 100_000)[number % 2])[: 2 if number % 20 == 0 else 4])
        if number % 20:
            peer.send(beginnings[number % 5])
        peers.append(peer)
    rounds(canaries, 20)
    assert memory.grown_bytes < 64 * MIB
    deadline = time.monotonic() + 12
    assert all(peer.is_closed_within(deadline - time.monotonic()) for peer in peers)


def test_many_connections_at_once(broker, canaries, memory, connect):
    """800 connections to both ports, some silent, some half-said, some that ask and go."""
    chance = Random(5)
    known = corpus()
    peers = [connect(chance.choice((broker.rocketmq, broker.names))) for _ in range(800)]
    for peer in peers:
        one = chance.choice(known)
        data = request(one.code, NUMBER, one.fields, one.body, chance.choice(KINDS))
        peer.send(data[: chance.choice((0, 1, 3, 4, 10, len(data)))])
    rounds(canaries, 10)


def test_floods_that_want_no_answer(broker, canaries, memory, peer):
    """Oneway requests, known and unknown, that succeed and that do not; and answers to nothing. None is answered."""
    name = topic(peer, "fuzz-flood")
    offset = said(consumerGroup="flood", topic=name, queueId=0, commitOffset=1)
    floods = (
        *(request(SEND, NUMBER, sending(name), b"x", kind, ONEWAY) for kind in KINDS),
        request(SEND, NUMBER, sending("no topic"), b"x", flag=ONEWAY),
        request(UPDATE_OFFSET, NUMBER, offset, flag=ONEWAY), request(999, NUMBER, {}, flag=ONEWAY),
        request(PULL, NUMBER, {}, flag=ONEWAY),
        request(PULL, NUMBER, pulling(name, 0, suspend_ms=100), flag=ONEWAY), request(0, NUMBER, {}, flag=RESPONSE),
        request(37, NUMBER, said(producerGroup="p", msgId="U", commitOrRollback=8), flag=ONEWAY),
        request(SEND, NUMBER, sending(name), b"x", flag=RESPONSE | ONEWAY),
    )  # fmt: skip
    for flood in floods:
        for _ in range(5):
            peer.send(flood * 400)
    assert peer.well(MAX_OFFSET, said(topic=name, queueId=0)).fields["offset"] == "4000"
    rounds(canaries, 3)
    assert memory.grown_bytes < 64 * MIB


def test_clients_that_never_read(broker, canaries, memory, peer, connect):
    """They ask without end: for large messages, for ones from a batch that is opened in a thread, for routes. What is
    kept for them is bounded, and after a while they are closed."""
    large, small = topic(peer, "fuzz-large"), topic(peer, "fuzz-small")
    for _ in range(4):
        peer.well(SEND, sending(large), Random(6).randbytes(500_000))
    batch = build_batch([(None, Random(7).randbytes(100), 0, ())] * 5000, codec=1)
    with Peer(broker.address) as kafka:
        kafka.send(kafka_framed(attacks.produce(batch, small)))
        kafka.frame()
    asks = (
        request(PULL, NUMBER, pulling(large, 0)) * 50,
        request(PULL, NUMBER, pulling(small, 0)) * 50,
        request(105, NUMBER, said(topic="TBW102")) * 50,
    )
    addresses = (broker.rocketmq, broker.rocketmq, broker.names)
    peers = [connect(addresses[number % 3], receive_bytes=4096) for number in range(12)]
    for number, deaf in enumerate(peers):
        deaf.socket.settimeout(0.1)
        try:
            for _ in range(2000):
                deaf.socket.sendall(asks[number % 3])
        except (TimeoutError, ConnectionError):
            pass
        else:
            pytest.fail("all that was asked was read: this tests nothing")
    rounds(canaries, 10)
    assert memory.grown_bytes < 64 * MIB
    eventually(lambda: all(closed(deaf) for deaf in peers), 15)
    broker.check()
    assert sum("does not read its answers" in line for line in broker.lines) >= 12


def closed(peer: Peer) -> bool:
    try:
        peer.socket.send(b"\0")
    except TimeoutError:
        return False
    except ConnectionError:
        return True
    return False


def test_nothing_of_it_is_left(broker, canaries, quiet):
    """After all that, and a pause for what is freed now and then, the broker is as small as any, and a name is free."""
    eventually(lambda: broker.sockets() <= quiet)
    eventually(lambda: broker.anonymous_bytes() < MEMORY_BYTES, 10)
    with Remote(broker.rocketmq) as peer:
        assert peer.well(SEND, sending(topic(peer, "fuzz-after")), b"x").fields["queueOffset"] == "0"
        assert "brokerActive" in json.loads(peer.well(RUNTIME_INFO, {}).body)["table"]
    broker.check()
