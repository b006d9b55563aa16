"""Extremes of Produce and Fetch: batches as full as `max.message.bytes` (4 MiB) allows, and many batches, many
partitions."""

from __future__ import annotations

import struct
import time
from collections.abc import Iterable
from itertools import count

from halfmoon.adapters.kafka.protocol import FetchRequest, ListOffsetsRequest
from halfmoon.core.records.batch_header import BatchHeader, assemble
from halfmoon.core.records.batches import build_batch
from halfmoon.core.records.compression import compress
from halfmoon.kafka_wire.primitives import encode_uvarint
from tests.extremes.registry import extreme, several
from tests.extremes.world import PATIENCE_S, Steps, World, produce_request, produced
from tests.fuzz.peer import Peer

NOW_MS = 1_700_000_000_000
FULL_BYTES = (4 << 20) - 1_000
OPENED_BYTES = 60 << 20
"""Of a compressed batch: the broker takes 64 MiB."""
GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4

Headers = tuple[tuple[str, bytes], ...]


def of_bodies(
    bodies: Iterable[bytes], codec: int = 0, most_bytes: int = FULL_BYTES, *, last_later: bool = False
) -> bytes:
    """A batch of records, each given as what follows its offset delta; as many as `most_bytes` hold. `last_later`: the
    last has a later time than all others."""
    said = bytearray()
    number = 0
    for body in bodies:
        offset = encode_uvarint(2 * number)
        length = 2 + len(offset) + len(body)
        if len(said) + length + 20 > most_bytes:
            break
        said += encode_uvarint(2 * length) + b"\0\0" + offset + body
        number += 1
    if last_later:
        offset = encode_uvarint(2 * number)
        said += encode_uvarint(2 * (5 + len(offset))) + b"\0\2" + offset + b"\1\1\0"
        number += 1
    header = BatchHeader(0, 0, -1, 2, 0, codec, number - 1, NOW_MS, NOW_MS + last_later, -1, -1, -1, number)
    return assemble(header, compress(codec, said) if codec else said)


def nothing(number: int | None = None) -> Iterable[bytes]:
    """Records without key, value and headers."""
    return (b"\1\1\0" for _ in (range(number) if number is not None else count()))


def mixed(number: int) -> Iterable[bytes]:
    """Tiny records, no two neighbours laid out alike."""
    layouts = (
        b"\1\1\0", b"\0\1\0", b"\1\0\0", b"\2k\1\0", b"\1\2v\0", b"\2k\2v\0", b"\1\1\2\2h\1", b"\0\0\2\2h\2x",
        b"\2k\1\4\2h\1\2i\0", b"\1\4vv\0",
    )  # fmt: skip
    return (layouts[index * 7 % 10] for index in range(number))


def records(number: int, headers: Headers = (), value: bytes = b"x") -> bytes:
    return bytes(build_batch([(None, value, NOW_MS, headers)] * number))


def small() -> bytes:
    return records(1)


def again_and_again(world: World, batch: bytes, topic: str = "t", errors: frozenset[int] = frozenset((0,))) -> Steps:
    world.topic(topic)
    yield
    while True:
        found = world.produce({topic: [(0, batch)]})
        assert found <= errors, found
        yield


# -- one batch ---------------------------------------------------------------------------------------------------------


@extreme("Produce", "4 MiB of empty records")
def tiny(world: World) -> Steps:
    return again_and_again(world, of_bodies(nothing()))


@extreme("Produce", "200,000 tiny records of mixed layout")
def tiny_mixed(world: World) -> Steps:
    return again_and_again(world, of_bodies(mixed(200_000)))


@several("Produce", {
    "gzip": ("2,000,000 tiny records, gzip", (GZIP, 2_000_000)),
    "snappy": ("700,000 tiny records, snappy", (SNAPPY, 700_000)),
    "lz4": ("700,000 tiny records, LZ4", (LZ4, 700_000)), "zstd": ("2,000,000 tiny records, zstd", (ZSTD, 2_000_000)),
})  # fmt: skip
def tiny_compressed(world: World, codec: int, number: int) -> Steps:
    batch = of_bodies(nothing(number), codec, OPENED_BYTES)
    assert len(batch) < FULL_BYTES, len(batch)
    return again_and_again(world, batch)


@extreme("Produce", "one record of 4 MiB")
def one_large(world: World) -> Steps:
    return again_and_again(world, records(1, value=b"x" * FULL_BYTES))


@extreme("Produce", "one record with 1,000,000 headers")
def many_headers(world: World) -> Steps:
    return again_and_again(world, of_bodies([b"\1\1" + encode_uvarint(2 * 1_000_000) + b"\2h\1" * 1_000_000]))


@extreme("Produce", "one record with a header of 4 MiB")
def large_header(world: World) -> Steps:
    return again_and_again(world, records(1, (("h", b"x" * (FULL_BYTES - 100)),)))


@extreme("Produce", "200,000 tiny records without a key to a compacted topic, which refuses them")
def tiny_compacted(world: World) -> Steps:
    world.topic("c", cleanup_policy="compact")
    batch = of_bodies(mixed(200_000))
    yield
    while True:
        assert world.produce({"c": [(0, batch)]}) == {87}
        yield


@extreme("Produce", "LogAppendTime: 4 MiB of empty records")
def tiny_stamped(world: World) -> Steps:
    world.topic("s", message_timestamp_type="LogAppendTime")
    batch = of_bodies(nothing())
    yield
    while True:
        world.stored("s", batch)
        yield


@extreme("Produce", "15,000 records with KEYS of 30 words each")
def keyed(world: World) -> Steps:
    def row(index: int) -> tuple[bytes | None, bytes | None, int, Headers]:
        return None, b"x", NOW_MS, (("KEYS", b" ".join(b"%x" % (index * 30 + word) for word in range(30))),)

    return again_and_again(world, bytes(build_batch([row(index) for index in range(15_000)])))


@extreme("Produce", "150,000 records with keys, indexed by them", topics={"key_index": True})
def keyed_by_key(world: World) -> Steps:
    return again_and_again(world, bytes(build_batch([(b"k%d" % index, b"x", NOW_MS, ()) for index in range(150_000)])))


# -- headers that act --------------------------------------------------------------------------------------------------


@several("Acting headers", {
    "1": ("200 delays of one time", (200, 1)), "2": ("2,000 delays", (2_000, 1)),
    "3": ("20,000 delays of one time", (20_000, 1)), "4": ("20,000 delays, each of its own time", (20_000, 20_000)),
    "5": ("20,001 delays, which are refused", (20_001, 1)),
    "6": ("100,000 delays, gzip, which are refused", (100_000, 1)),
})  # fmt: skip
def delays(world: World, number: int, times: int) -> Steps:
    due_ms = int(time.time() * 1000) + 86_400_000

    def row(index: int) -> tuple[bytes | None, bytes | None, int, Headers]:
        return None, b"x", NOW_MS, (("TIMER_DELIVER_MS", b"%d" % (due_ms + index % times)),)

    codec = GZIP if number > 50_000 else 0
    return again_and_again(
        world, build_batch([row(index) for index in range(number)], codec=codec), errors=frozenset((0, 87))
    )


def header(name: str, value: bytes) -> bytes:
    return encode_uvarint(2 * len(name)) + name.encode() + encode_uvarint(2 * len(value)) + value


def among(number: int, every: int, *headers: tuple[str, bytes]) -> bytes:
    """A batch of tiny records of mixed layout, of which one in `every` has these headers."""
    acting = b"\1\1" + encode_uvarint(2 * len(headers)) + b"".join(header(*each) for each in headers)
    return of_bodies(acting if index % every == 0 else body for index, body in enumerate(mixed(number)))


SOME = {
    "delay": (("TIMER_DELAY_SEC", b"86400"),),
    "cancel": (("TIMER_DEL_UNIQKEY", b"k"), ("TIMER_DELAY_SEC", b"1")),
    "half": (("TRAN_MSG", b"true"), ("PGROUP", b"g"), ("UNIQ_KEY", b"k")),
    "own": (("halfmoon.delayed", b"mine"),),
}


@several("Acting headers", {
    "delay_one": ("200,000 tiny records of mixed layout, one delay among them", ("delay", 200_000)),
    "delay_some": ("200,000 tiny records of mixed layout, 2,000 delays among them", ("delay", 100)),
    "cancel": ("200,000 tiny records of mixed layout, one cancel among them", ("cancel", 200_000)),
    "half": ("200,000 tiny records of mixed layout, one half message among them", ("half", 200_000)),
    "own": ("200,000 tiny records of mixed layout, one header of the broker's own", ("own", 200_000)),
    "owns": ("200,000 tiny records of mixed layout, 20,000 headers of the broker's own", ("own", 10)),
})  # fmt: skip
def mixed_with(world: World, what: str, every: int) -> Steps:
    return again_and_again(world, among(200_000, every, *SOME[what]))


@extreme("Acting headers", "200,000 tiny records of mixed layout to retry.g")
def mixed_nacks(world: World) -> Steps:
    return again_and_again(world, of_bodies(mixed(200_000)), "retry.g", frozenset((0, 87)))


@extreme("Acting headers", "20,000 records with DELAY, all levels")
def levels(world: World) -> Steps:
    rows = [(None, b"x", NOW_MS, (("DELAY", b"%d" % (5 + index % 14)),)) for index in range(20_000)]
    return again_and_again(world, bytes(build_batch(rows)))


@extreme("Acting headers", "1,000 delays of 4 KB each")
def large_delays(world: World) -> Steps:
    return again_and_again(world, records(1_000, (("TIMER_DELAY_SEC", b"86400"),), b"x" * 4_000))


def halves(group: bytes, run: int, number: int) -> bytes:
    return bytes(build_batch([
        (None, b"x", NOW_MS, (("TRAN_MSG", b"true"), ("PGROUP", group), ("UNIQ_KEY", b"%d-%d" % (run, index))))
        for index in range(number)
    ]))  # fmt: skip


def ends(group: bytes, run: int, number: int, state: bytes) -> bytes:
    return bytes(build_batch([
        (None, None, NOW_MS, (("PGROUP", group), ("UNIQ_KEY", b"%d-%d" % (run, index)), ("TRAN_STATE", state)))
        for index in range(number)
    ]))  # fmt: skip


@extreme("Acting headers", "10,000 half messages")
def half_messages(world: World) -> Steps:
    world.topic("t")
    yield
    for run in count():
        world.stored("t", halves(b"g", run, 10_000))
        yield


@several("Acting headers", {
    "commit": ("10,000 half messages are committed", (b"commit",)),
    "rollback": ("10,000 half messages are rolled back", (b"rollback",)),
})  # fmt: skip
def half_messages_end(world: World, state: bytes) -> Steps:
    world.topic("t")
    world.stored("t", halves(b"g", 0, 10_000))
    yield
    for run in count():
        world.stored("halfmoon.transactions", ends(b"g", run, 10_000, state))
        world.until(lambda: world.metric("halfmoon_scheduled_messages") == 0)
        yield
        world.stored("t", halves(b"g", run + 1, 10_000))
        world.forget()


@extreme("Acting headers", "10,000 cancels of scheduled messages")
def cancels(world: World) -> Steps:
    world.topic("t")
    yield
    for run in count():
        keys = [b"%d-%d" % (run, index) for index in range(10_000)]
        rows = [(None, b"x", NOW_MS, (("UNIQ_KEY", key), ("TIMER_DELAY_SEC", b"86400"))) for key in keys]
        world.stored("t", bytes(build_batch(rows)))
        world.forget()
        rows = [(None, None, NOW_MS, (("TIMER_DEL_UNIQKEY", key), ("TIMER_DELAY_SEC", b"1"))) for key in keys]
        world.stored("t", bytes(build_batch(rows)))
        yield


@extreme("Acting headers", "10,000 negative acknowledgements")
def nacks(world: World) -> Steps:
    world.topics({"t": 1, "retry.g": 1})
    world.stored("t", records(10_000 * 20))
    yield
    for run in count():
        rows = [(None, b"x", NOW_MS, (("RETRY_OF", b"t/0/%d" % (run * 10_000 + index)),)) for index in range(10_000)]
        world.stored("retry.g", bytes(build_batch(rows)))
        yield


@extreme("Acting headers", "10,000 negative acknowledgements that end as dead letters")
def dead_letters(world: World) -> Steps:
    world.topics({"t": 1, "retry.g": 1})
    world.stored("t", records(10_000 * 20))
    yield
    for run in count():
        rows = [
            (None, b"x", NOW_MS, (("RETRY_OF", b"t/0/%d" % (run * 10_000 + index)), ("RECONSUME_TIME", b"16")))
            for index in range(10_000)
        ]
        world.stored("retry.g", bytes(build_batch(rows)))
        yield


@extreme("Acting headers", "5,000 delays of a second, due together")
def due_together(world: World) -> Steps:
    world.topic("t")
    batch = records(5_000, (("TIMER_DELAY_MS", b"1000"),))
    yield
    for run in count(1):
        world.stored("t", batch)
        world.until(lambda: world.metric("halfmoon_delivered_messages_total") == 5_000 * run)  # noqa: B023
        yield


# -- views -------------------------------------------------------------------------------------------------------------

NESTED = " AND ".join(
    f"({'NOT ' * (index % 3 * 2)}(a{index} IS NULL OR a{index} BETWEEN 1 AND {index}))" for index in range(1, 41)
)


@extreme("Views", "50,000 records through a view by tag",
         views={"v": {"source": "t", "tag": "paid || refunded"}})  # fmt: skip
def view_by_tag(world: World) -> Steps:
    return again_and_again(world, of_bodies(b"\1\1\2\x08TAGS\x08paid" for _ in range(50_000)))


@extreme("Views", "50,000 records through a view by SQL92 of 40 conditions",
         views={"v": {"source": "t", "sql92": NESTED}})  # fmt: skip
def view_by_sql92(world: World) -> Steps:
    return again_and_again(world, of_bodies(b"\1\1\2\2a\x021" for _ in range(50_000)))


# -- many of them ------------------------------------------------------------------------------------------------------


@extreme("Produce", "10,000 partitions in one request")
def many_partitions(world: World) -> Steps:
    world.topic("wide", 10_000)
    parts = {"wide": [(index, small()) for index in range(10_000)]}
    yield
    while True:
        assert world.produce(parts) == {0}
        yield


@extreme("Produce", "5,000 topics in one request")
def many_topics(world: World) -> Steps:
    for first in range(0, 5_000, 500):
        world.topics({f"t{number}": 1 for number in range(first, first + 500)})
    parts = {f"t{number}": [(0, small())] for number in range(5_000)}
    yield
    while True:
        assert world.produce(parts) == {0}
        yield


@extreme("Produce", "49,000 batches for one partition in one request")
def many_batches_of_one(world: World) -> Steps:
    world.topic("t")
    parts = {"t": [(0, small())] * 49_000}
    yield
    while True:
        assert world.produce(parts) == {0}
        yield


def pipelined(peer: Peer, request: bytes, number: int) -> None:
    peer.send(request * number)
    for _ in range(number):
        assert produced(peer.frame(PATIENCE_S)) == {0}


@extreme("Produce", "3,000 requests sent ahead on one connection")
def sent_ahead(world: World) -> Steps:
    world.topic("t")
    request = produce_request({"t": [(0, small())]})
    yield
    while True:
        pipelined(world.admin, request, 3_000)
        yield


@extreme("Produce", "30 requests of 10,000 records with delays, sent ahead")
def delays_sent_ahead(world: World) -> Steps:
    world.topic("t")
    request = produce_request({"t": [(0, records(10_000, (("TIMER_DELAY_SEC", b"86400"),)))]})
    yield
    while True:
        pipelined(world.admin, request, 30)
        yield


@extreme("Produce", "a request of 100 MiB: 25 batches of 4 MiB")
def largest_request(world: World) -> Steps:
    world.topic("t", retention_bytes="1000000")
    batch = of_bodies(nothing())
    parts = {"t": [(0, batch)] * 24}
    yield
    while True:
        assert world.produce(parts) == {0}
        yield


# -- reading -----------------------------------------------------------------------------------------------------------


def fetch(
    peer: Peer, topics: Iterable[tuple[str, Iterable[int]]], *, wait_ms: int = 0, offset: int = 0, session: int = 0,
    epoch: int = -1, max_bytes: int = 50 << 20, min_bytes: int = 1, committed: bool = False,
) -> bytes:  # fmt: skip
    topic = FetchRequest.FetchTopic
    wanted = [
        topic(topic=name, partitions=[
            topic.FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=1 << 20) for index in indexes
        ])
        for name, indexes in topics
    ]  # fmt: skip
    return peer.request(
        1, 11, replica_id=-1, max_wait_ms=wait_ms, min_bytes=min_bytes, max_bytes=max_bytes,
        isolation_level=int(committed), session_id=session, session_epoch=epoch, topics=wanted,
        forgotten_topics_data=[], rack_id="",
    )  # fmt: skip


def asked(peer: Peer, request: bytes) -> bytes:
    peer.send(request)
    return peer.frame(PATIENCE_S)


@extreme("Fetch", "10,000 partitions in one request")
def fetch_wide(world: World) -> Steps:
    world.topic("wide", 10_000)
    world.produce({"wide": [(index, small()) for index in range(10_000)]})
    yield
    while True:
        assert len(asked(world.admin, fetch(world.admin, [("wide", range(10_000))]))) > 10_000 * 70
        yield


@extreme("Fetch", "a session of 10,000 partitions is opened, then asked again")
def fetch_session(world: World) -> Steps:
    world.topic("wide", 10_000)
    yield
    while True:
        answer = asked(world.admin, fetch(world.admin, [("wide", range(10_000))], epoch=0))
        _, _, error, session = struct.unpack_from(">iihi", answer)
        assert error == 0
        asked(world.admin, fetch(world.admin, [], session=session, epoch=1))
        yield


@extreme("Fetch", "a request that waits at 10,000 partitions, and one record")
def fetch_parked(world: World) -> Steps:
    world.topic("wide", 10_000)
    writer = world.peer()
    yield
    for run in count():
        world.admin.send(fetch(world.admin, [("wide", range(10_000))], wait_ms=60_000, offset=run))
        world.until(lambda: world.metric("halfmoon_held_requests") >= 1)
        assert world.produce({"wide": [(index, small()) for index in range(10_000)]}, writer) == {0}
        world.admin.frame(PATIENCE_S)
        yield


@extreme("Fetch", "500 requests that wait, and one record for them all")
def fetch_woken(world: World) -> Steps:
    world.topic("t")
    peers = [world.peer() for _ in range(500)]
    yield
    for run in count():
        for peer in peers:
            peer.send(fetch(peer, [("t", [0])], wait_ms=60_000, offset=run))
        world.until(lambda: world.metric("halfmoon_held_requests") >= 500)
        world.stored("t", small())
        for peer in peers:
            peer.frame(PATIENCE_S)
        yield


@extreme("Fetch", "50 MiB of batches of one record")
def fetch_small_batches(world: World) -> Steps:
    world.topic("t")
    for _ in range(10):
        world.produce({"t": [(0, small())] * 20_000})
    yield
    while True:
        topic = FetchRequest.FetchTopic
        part = topic.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=50 << 20)
        answer = world.ask(
            1, 11, replica_id=-1, max_wait_ms=0, min_bytes=1, max_bytes=50 << 20, isolation_level=0, session_id=0,
            session_epoch=-1, topics=[topic(topic="t", partitions=[part])], forgotten_topics_data=[], rack_id="",
        )  # fmt: skip
        assert len(answer.responses[0].partitions[0].records) > 100_000
        yield


@extreme("ListOffsets", "10,000 partitions by time")
def list_offsets_wide(world: World) -> Steps:
    world.topic("wide", 10_000)
    world.produce({"wide": [(index, small()) for index in range(10_000)]})
    wanted = ListOffsetsRequest.ListOffsetsTopic
    parts = [
        wanted.ListOffsetsPartition(partition_index=index, current_leader_epoch=-1, timestamp=NOW_MS)
        for index in range(10_000)
    ]
    yield
    while True:
        world.ask(2, 5, replica_id=-1, isolation_level=0, topics=[wanted(name="wide", partitions=parts)])
        yield


@extreme("ListOffsets", "one record by time in a batch of 2,000,000, zstd")
def list_offsets_deep(world: World) -> Steps:
    world.topic("t")
    world.stored("t", of_bodies(nothing(2_000_000), ZSTD, OPENED_BYTES, last_later=True))
    wanted = ListOffsetsRequest.ListOffsetsTopic
    part = wanted.ListOffsetsPartition(partition_index=0, current_leader_epoch=-1, timestamp=NOW_MS + 1)
    yield
    while True:
        world.ask(2, 5, replica_id=-1, isolation_level=0, topics=[wanted(name="t", partitions=[part])])
        yield
