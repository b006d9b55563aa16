"""What RocketMQ's clients can make the broker keep, do and say: each test has a broker of its own, and canaries where
others must not notice. Run with -s to see the figures.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from random import Random
from typing import Any

import pytest

from halfmoon.core.records.batches import build_batch
from tests.fuzz.attacks import lengths_in_records, produce
from tests.fuzz.canary import Canary
from tests.fuzz.peer import ClosedError, Peer
from tests.fuzz.peer import framed as kafka_framed
from tests.fuzz.process import BrokerProcess, MemoryWatch, eventually
from tests.fuzz.remoting import (
    CHECK,
    CREATE,
    HEARTBEAT,
    ILLEGAL,
    LOCK,
    MEMBERS,
    ONEWAY,
    PULL,
    QUERY,
    RESPONSE,
    ROCKETMQ,
    RUNNING_INFO,
    RUNTIME_INFO,
    SEND,
    SEND_BATCH,
    SUCCESS,
    Remote,
    RemoteCanary,
    batch_body,
    framed,
    parsed,
    pulling,
    request,
    said,
    sending,
    stored,
)

MIB = 1 << 20
CONSUMERS = 1000
CONSUMERS_MIB = 40

Start = Callable[..., BrokerProcess]


@contextmanager
def watched(broker: BrokerProcess) -> Iterator[MemoryWatch]:
    """Its memory, and canaries that must not notice anything; nothing is logged as an error."""
    canaries = [
        Canary(broker.address, broker.cpu_s),
        RemoteCanary(broker.rocketmq, broker.names, broker.cpu_s),
    ]
    for canary in canaries:
        canary.start()
    for canary in canaries:
        canary.wait_for_rounds(5)
    with MemoryWatch(broker) as memory:
        try:
            yield memory
            for canary in canaries:
                canary.wait_for_rounds(3)
        finally:
            waited_s = max(canary.worst_s for canary in canaries)
            grown, waited_ms = memory.grown_bytes / MIB, waited_s * 1000
            print(f"\n{grown:.0f} MiB more; a canary waited for {waited_ms:.0f} ms of the broker's work at most")
            for canary in canaries:
                canary.stop()
    broker.check()


def topic(peer: Remote, name: str) -> str:
    peer.well(CREATE, said(topic=name, readQueueNums=1, writeQueueNums=1, perm=6))
    return name


def heartbeat(client_id: str, *groups: str, **more: Any) -> bytes:
    """Of a consumer of these groups. They broadcast, so they get no topics of their own."""
    consumers = [{"groupName": group, "messageModel": "BROADCASTING"} | more for group in groups]
    return json.dumps({"clientID": client_id, "consumerDataSet": consumers}, separators=(",", ":")).encode()


def heard(peer: Remote, count: int, timeout_s: float = 20.0) -> list[Any]:
    """So many answers, in any order."""
    found: list[Any] = []
    while len(found) < count:
        command = parsed(peer.frame(timeout_s))
        if command.flag & RESPONSE:
            found.append(command)
    return found


# -- connections, messages -------------------------------------------------------------------------------------------


def test_connections_over_the_limit_are_refused(start: Start):
    """Those to the broker and to the name service are counted together."""
    broker = start(rocketmq=True, max_connections=3)
    with ExitStack() as stack:
        addresses = (broker.rocketmq, broker.names, broker.rocketmq)
        peers = [stack.enter_context(Remote(address)) for address in addresses]
        for peer in peers:
            peer.tell(RUNTIME_INFO, {})
        for address in addresses:
            with Remote(address) as refused:
                assert refused.is_closed_within(5)
        peers.pop().close()
        eventually(lambda: served(broker.names))
        assert peers[0].well(RUNTIME_INFO, {})
    broker.check()
    assert len([line for line in broker.lines if "refused" in line]) == 1, "one line, however many are refused"


def served(address: tuple[str, int]) -> bool:
    with Remote(address) as peer:
        try:
            return bool(peer.tell(RUNTIME_INFO, {}))
        except ClosedError:
            return False


def test_a_message_near_the_limit(start: Start):
    """One of 4 MiB, with its properties and all, is stored and read back whole; one that is larger is refused."""
    broker = start(rocketmq=True)
    with Remote(broker.rocketmq) as peer, MemoryWatch(broker) as memory:
        name = topic(peer, "large")
        for size, code in ((4_194_000, SUCCESS), (4_194_304, ILLEGAL), (16_000_000, ILLEGAL), (100, SUCCESS)):
            body = Random(size).randbytes(size)
            assert peer.tell(SEND, sending(name), body).code == code
            if code == SUCCESS:
                large = peer.well(PULL, pulling(name, 0) | said(maxMsgBytes=1000))
                (message,) = stored(large.body)
                assert len(message.body) == 4_194_000, "the first message comes whole, whatever the limits of the pull"
        assert message.body == Random(4_194_000).randbytes(4_194_000)
    print(f"\na message of 4 MiB in and out: {memory.grown_bytes / MIB:.0f} MiB")
    assert memory.grown_bytes < 96 * MIB


# -- held pulls ------------------------------------------------------------------------------------------------------


def test_a_thousand_consumers_that_wait(start: Start):
    broker = start(rocketmq=True)
    with Remote(broker.rocketmq) as admin, ExitStack() as stack:
        name = topic(admin, "t")
        with MemoryWatch(broker) as memory:
            peers = [stack.enter_context(Remote(broker.rocketmq)) for _ in range(CONSUMERS)]
            numbers = [peer.say(PULL, pulling(name, 0, suspend_ms=30_000)) for peer in peers]
            for peer in peers:
                peer.well(RUNTIME_INFO, {})  # so that its pull has been taken, too
            grown = memory.grown_bytes / MIB
        print(f"\n{CONSUMERS} consumers that wait: {grown:.1f} MiB, {grown * 1024 / CONSUMERS:.1f} KiB each")
        assert grown < CONSUMERS_MIB
        admin.well(SEND, sending(name), b"x")
        for peer, number in zip(peers, numbers, strict=True):
            assert peer.hear(number).fields["maxOffset"] == "1"


def test_pulls_that_one_connection_has_held(start: Start):
    """Each takes some kilobytes, and one message wakes them all at once."""
    broker = start(rocketmq=True)
    with watched(broker) as memory, Remote(broker.rocketmq) as peer:
        name = topic(peer, "t")
        one = request(PULL, 1, pulling(name, 0, suspend_ms=30_000))
        peer.socket.settimeout(10)
        for _ in range(30):
            peer.send(one * 1000)
        peer.say(RUNTIME_INFO, {})
        peer.frame(10)
        with Remote(broker.rocketmq) as writer:
            writer.well(SEND, sending(name), b"x")
        heard(peer, 30_000)
        assert memory.grown_bytes < 48 * MIB


@pytest.mark.parametrize(
    ("fields", "body", "count"),
    [({"x": "y" * 1_000_000}, b"", 100), ({}, bytes(15_000_000), 10)],
    ids=["fields", "body"],
)
def test_held_pulls_keep_what_they_need(start: Start, fields: dict[str, str], body: bytes, count: int):
    broker = start(rocketmq=True)
    with watched(broker) as memory, ExitStack() as stack:
        peers = [stack.enter_context(Remote(broker.rocketmq)) for _ in range(count)]
        name = topic(peers[0], "t")
        one = request(PULL, 1, pulling(name, 0, suspend_ms=30_000) | fields, body)
        for peer in peers:
            peer.send(one[:-1])
        for peer in peers:
            peer.send(one[-1:])
        for peer in peers[1:]:
            peer.well(RUNTIME_INFO, {})  # so that its pull has been taken, too
        eventually(lambda: broker.anonymous_bytes() < memory.before_bytes + 48 * MIB, 3)


# -- what is worked out in threads -----------------------------------------------------------------------------------


def messages_with_a_key(peer: Remote) -> dict[str, str]:
    """Ten of a megabyte; the query that finds as many of them as are found at once."""
    name = topic(peer, "t")
    for _ in range(10):
        peer.well(SEND, sending(name, properties="KEYS\1k\2"), bytes(1_000_000))
    query = said(topic=name, key="k", maxNum=64)
    eventually(lambda: len(peer.tell(QUERY, query).body) > 6_000_000)
    return query


def test_answers_that_a_client_has_not_read_yet(start: Start):
    """Queries by key, of up to 8 MiB each, are worked out long before the first is sent."""
    broker = start(rocketmq=True)
    with watched(broker) as memory, Remote(broker.rocketmq) as writer, Remote(broker.rocketmq) as peer:
        query = messages_with_a_key(writer)
        peer.send(request(QUERY, 1, query) * 40)
        assert {answer.code for answer in heard(peer, 40)} == {SUCCESS}
        assert memory.grown_bytes < 220 * MIB


def test_answers_that_many_clients_do_not_read(start: Start):
    broker = start(rocketmq=True)
    with watched(broker) as memory, ExitStack() as stack:
        writer = stack.enter_context(Remote(broker.rocketmq))
        query = messages_with_a_key(writer)
        for _ in range(8):
            deaf = stack.enter_context(Remote(broker.rocketmq, receive_bytes=4096))
            deaf.send(request(QUERY, 1, query) * 10)
        for _ in range(20):  # as many answers of its own: those before it have been worked out
            writer.well(QUERY, query)
        assert memory.grown_bytes < 256 * MIB


@pytest.mark.timeout(240)  # 50,000 answers: where others use the processors, too, a minute is not enough
def test_questions_for_threads_leave_room_for_others(start: Start):
    broker = start(rocketmq=True)
    with watched(broker) as memory, ExitStack() as stack:
        peers = [stack.enter_context(Remote(broker.rocketmq)) for _ in range(10)]
        name = topic(peers[0], "t")
        ask = request(QUERY, 1, said(topic=name, key="none"))
        for peer in peers:
            peer.send(ask * 5000)
        for peer in peers:
            heard(peer, 5000)
        assert memory.grown_bytes < 64 * MIB


# -- filters ---------------------------------------------------------------------------------------------------------


def sql(number: int) -> str:
    """An expression that nobody else has, nearly as long as one may be."""
    return f"q{number} = 1 OR " + " OR ".join(f"a{index} = {index}" for index in range(1000))


def test_expressions_that_are_compiled(start: Start):
    broker = start(rocketmq=True)
    with watched(broker) as memory, Remote(broker.rocketmq) as peer:
        for number in range(60):
            data = {"topic": "t", "expressionType": "SQL92", "subString": sql(number)}
            peer.say(CHECK, {}, json.dumps({"subscriptionData": data}).encode())
        assert {answer.code for answer in heard(peer, 60)} == {SUCCESS}
        assert memory.grown_bytes < 32 * MIB


def test_filters_that_a_large_batch_was_read_with(start: Start):
    broker = start(rocketmq=True)
    with watched(broker) as memory, Remote(broker.rocketmq) as peer:
        name = topic(peer, "t")
        batch = build_batch([(None, b"", 0, (("TAGS", b"a"),))] * 30_000)
        with Peer(broker.address) as kafka:
            kafka.send(kafka_framed(produce(batch, name)))
            kafka.frame()
        for number in range(30):
            assert peer.well(PULL, pulling(name, 0, wanted=f"a || b{number}")).body
        assert memory.grown_bytes < 20 * MIB


def test_filters_that_held_pulls_wait_with(start: Start):
    broker = start(rocketmq=True)
    with watched(broker) as memory, Remote(broker.rocketmq) as peer:
        name = topic(peer, "t")
        for number in range(60):
            peer.say(PULL, pulling(name, 0, 30_000, wanted=sql(number)) | {"expressionType": "SQL92"})
        last = peer.say(RUNTIME_INFO, {})
        # Most of the pulls are answered at once: such expressions are too long to wait with.
        while parsed(peer.frame(20.0)).opaque != last:
            pass
        assert memory.grown_bytes < 40 * MIB


def test_filters_that_let_nothing_through(start: Start):
    """The batch is opened in a thread, and too small to be kept open."""
    broker = start(rocketmq=True)
    with watched(broker) as memory, Remote(broker.rocketmq) as peer:
        name = topic(peer, "t")
        chance = Random(8)
        batch = build_batch([(None, chance.randbytes(60), 0, ()) for _ in range(1200)], codec=1)
        with Peer(broker.address) as kafka:
            kafka.send(kafka_framed(produce(batch, name)))
            kafka.frame()
        for number in range(60):
            pulled = peer.tell(PULL, pulling(name, 0, wanted=sql(number)) | {"expressionType": "SQL92"}, timeout_s=20.0)
            assert not pulled.body
        assert memory.grown_bytes < 40 * MIB


# -- batches ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [150_000, 250_000])
def test_batches_of_very_many_messages(start: Start, count: int):
    """The larger one has more bytes than a topic takes. 700,000 fit into a frame, and stopped everybody for minutes."""
    broker = start(rocketmq=True)
    with watched(broker) as memory, Remote(broker.rocketmq) as peer:
        name = topic(peer, "t")
        body = batch_body((b"", b"")) * count
        assert peer.tell(SEND_BATCH, sending(name), body, 20.0).code in (SUCCESS, ILLEGAL)
        assert memory.grown_bytes < 128 * MIB


# -- members ---------------------------------------------------------------------------------------------------------


def test_groups_that_one_client_is_a_member_of(start: Start):
    broker = start(rocketmq=True)
    with watched(broker) as memory, Remote(broker.rocketmq) as peer:
        for number in range(50):
            peer.tell(HEARTBEAT, {}, heartbeat("c", *(f"g{number}-{index}" for index in range(1000))))
        assert memory.grown_bytes < 12 * MIB


def test_subscriptions_of_one_heartbeat(start: Start):
    broker = start(rocketmq=True)
    with watched(broker) as memory, Remote(broker.rocketmq) as peer:
        subscriptions = [{"topic": str(index)} for index in range(970)]
        groups = [f"g{index}" for index in range(900)]
        peer.socket.settimeout(10)
        peer.tell(HEARTBEAT, {}, heartbeat("c", *groups, subscriptionDataSet=subscriptions), 20.0)
        assert memory.grown_bytes < 128 * MIB


def test_names_that_clients_have(start: Start):
    broker = start(rocketmq=True)
    with watched(broker) as memory, ExitStack() as stack:
        for number in range(40):
            peer = stack.enter_context(Remote(broker.rocketmq))
            peer.tell(HEARTBEAT, {}, heartbeat(f"{number}" + "c" * 1_500_000, "g"))
        with Remote(broker.rocketmq) as admin:
            assert len(admin.tell(MEMBERS, said(consumerGroup="g")).body) < 4 * MIB
        assert memory.grown_bytes < 48 * MIB


def test_locks_that_one_client_has(start: Start):
    broker = start(rocketmq=True)
    with watched(broker) as memory, Remote(broker.rocketmq) as peer:
        for number in range(40):
            queue = {"topic": "t" * 2_000_000, "brokerName": "halfmoon", "queueId": number}
            wanted = {"consumerGroup": f"g{number}", "clientId": "c", "mqSet": [queue]}
            peer.tell(LOCK, {}, json.dumps(wanted).encode())
        for number in range(20):
            queues = [{"topic": "t", "brokerName": "halfmoon", "queueId": index} for index in range(10_000)]
            wanted = {"consumerGroup": f"h{number}", "clientId": "c", "mqSet": queues}
            peer.tell(LOCK, {}, json.dumps(wanted).encode())
        assert memory.grown_bytes < 48 * MIB


def test_members_that_do_not_read_what_they_are_told(start: Start):
    broker = start(rocketmq=True)
    with watched(broker) as memory, ExitStack() as stack:
        peers = [stack.enter_context(Remote(broker.rocketmq, receive_bytes=4096)) for _ in range(40)]
        for number, peer in enumerate(peers):
            peer.say(HEARTBEAT, {}, heartbeat(f"c{number}", "g" * 1_000_000))
        with Remote(broker.rocketmq) as last:
            last.well(RUNTIME_INFO, {})
        assert memory.grown_bytes < 48 * MIB


def test_clients_that_do_not_answer_what_they_are_asked(start: Start):
    broker = start(rocketmq=True)
    with (
        watched(broker) as memory,
        Remote(broker.rocketmq, receive_bytes=4096) as deaf,
        Remote(broker.rocketmq) as peer,
    ):
        deaf.well(HEARTBEAT, {}, heartbeat("deaf", "g"))
        for _ in range(100):
            peer.say(RUNNING_INFO, said(consumerGroup="g", clientId="deaf", x="y" * 1_000_000))
        peer.say(RUNTIME_INFO, {})
        heard(peer, 1)
        assert memory.grown_bytes < 48 * MIB


@pytest.mark.parametrize(
    "said_back", [{"code": 10**12}, {"code": 0, "extFields": {"x" * 40_000: "y"}}], ids=["code", "field"]
)
def test_what_a_client_answers_is_not_believed(start: Start, said_back: dict[str, Any]):
    """GET_CONSUMER_RUNNING_INFO hands on what a consumer says, in the header that was asked in."""
    broker = start(rocketmq=True)
    with Remote(broker.rocketmq) as consumer, Remote(broker.rocketmq, kind=ROCKETMQ) as admin:
        consumer.well(HEARTBEAT, {}, heartbeat("c", "g"))
        number = admin.say(RUNNING_INFO, said(consumerGroup="g", clientId="c"))
        while (asked := parsed(consumer.frame())).flag & ONEWAY:
            pass
        header = {"opaque": asked.opaque, "flag": RESPONSE} | said_back
        consumer.send(framed(json.dumps(header).encode()))
        admin.hear(number, 2)
        consumer.well(RUNTIME_INFO, {})
    broker.check()


# -- what is counted and logged --------------------------------------------------------------------------------------


def test_codes_that_nobody_knows_are_not_kept(start: Start):
    broker = start(rocketmq=True)
    with Remote(broker.rocketmq) as peer, MemoryWatch(broker) as memory:
        for some in range(10**12, 10**12 + 100_000, 1000):
            peer.send(b"".join(framed(b'{"code":%d}' % code) for code in range(some, some + 1000)))
            heard(peer, 1000)
    print(f"\n100,000 codes: {memory.grown_bytes / MIB:.1f} MiB")
    assert memory.grown_bytes < 4 * MIB


def test_groups_whose_topics_cannot_be_made_are_not_logged_each(start: Start):
    """A group may have a name of 255 characters. With what is put before it, its topic has too many."""
    broker = start(rocketmq=True)
    with Remote(broker.rocketmq) as peer:
        names = [f"{index:03}" + "g" * 247 for index in range(200)]
        peer.tell(HEARTBEAT, {}, heartbeat("c", *names, messageModel="CLUSTERING"))
    broker.read_log()
    assert len(broker.lines) < 20


def test_a_batch_that_cannot_be_read_is_not_logged_each_time(start: Start):
    broker = start(rocketmq=True)
    with Remote(broker.rocketmq) as peer:
        name = topic(peer, "fuzz-lengths")
        with Peer(broker.address) as kafka:
            kafka.send(kafka_framed(produce(next(lengths_in_records()), name)))
            kafka.frame()
        for _ in range(200):
            peer.tell(PULL, pulling(name, 0))
    broker.read_log()
    assert len(broker.lines) < 20


def test_a_clients_name_does_not_fill_the_log(start: Start):
    broker = start(rocketmq=True)
    with Remote(broker.rocketmq) as peer:
        peer.tell(HEARTBEAT, {}, heartbeat("\x00" * 300_000))
        peer.send(struct.pack(">i", -1))
        assert peer.is_closed_within(2)
    broker.check()
    (line,) = [line for line in broker.lines if "event=connection_closed" in line]
    assert len(line) < 5000
