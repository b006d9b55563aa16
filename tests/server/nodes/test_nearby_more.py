"""What a consumer is served by a node that does not lead: transactions, deleted and compacted records, many partitions,
limits, epochs, and what is left of it where something fails."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer as TransactionalProducer

from halfmoon.adapters.kafka.protocol import AlterClientQuotasRequest, CreateAclsRequest
from halfmoon.cluster.engine.pieces import Durability
from halfmoon.cluster.reading_messages import AskPlaces, Placed
from halfmoon.cluster.store import CatalogUnavailableError
from tests.fuzz.peer import Peer
from tests.server.asking import FETCH, METADATA, NONE, NOT_LEADER
from tests.server.nodes import reading
from tests.server.nodes.cluster import World, stopped
from tests.server.nodes.reading import (
    FENCED,
    OUT_OF_RANGE,
    STORAGE_ERROR,
    UNKNOWN_EPOCH,
    delete_before,
    fetch,
    fetch_all,
    in_balance,
    placed,
    produce_keyed,
    requests,
)
from tests.server.server_rig import played

CREATE_ACLS, ALTER_QUOTAS = 30, 49
TOPIC_AUTHORIZATION_FAILED = 29
RACKS = ["east", "west"]
RACK_OF = dict(enumerate(RACKS, 1))
MIXED = [Durability.FAST] * 2 + [Durability.OBJECT] * 2


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., None]:
    def play(
        story: Callable[[World], Any],
        racks: Sequence[str] = RACKS,
        shards: Sequence[Durability] = MIXED,
        **settings: Any,
    ) -> None:
        async def run() -> None:
            async with stopped(World(tmp_path, shards)) as world:
                world.racks.update(enumerate(racks, 1))
                for number in world.racks:
                    await world.start(number, **settings)
                await in_balance(world)
                await story(world)

        played(run())

    return play


async def topic_of_two(world: World, durability: str = "fast") -> tuple[int, int]:
    """`t`, with one partition: its leader, and the other node."""
    assert await world.create("t", 1, replicas=2, configs={"halfmoon.durability": durability}) == NONE
    return (await placed(world, "t"))[0]


def test_readers_of_committed_records_see_what_the_leader_shows_them(run: Any) -> None:
    async def story(world: World) -> None:
        leader, other = await topic_of_two(world)

        async def both(*, committed: bool, offset: int = 0) -> reading.Answer:
            found = await fetch(world, other, "t", 0, offset, rack=RACK_OF[other], committed=committed)
            assert found == await fetch(world, leader, "t", 0, offset, rack=RACK_OF[leader], committed=committed)
            return found

        host, port = world.address_of(1)
        producer = TransactionalProducer({"bootstrap.servers": f"{host}:{port}", "transactional.id": "x"})
        in_thread = asyncio.to_thread
        await in_thread(producer.init_transactions, 20)

        def send(*values: bytes) -> None:
            producer.begin_transaction()
            for value in values:
                producer.produce("t", value, partition=0)
            assert producer.flush(20) == 0

        await in_thread(send, b"a", b"b")
        found = await both(committed=True)
        assert (found.values, found.high_watermark, found.stable_offset) == ([], 2, 0)
        assert (await both(committed=False)).values == [b"a", b"b"]
        waiting = asyncio.ensure_future(
            fetch(world, other, "t", 0, 0, rack=RACK_OF[other], committed=True, wait_ms=60_000)
        )
        await world.until(lambda: len(world.nodes[leader].worker.shards.hold))
        await in_thread(producer.commit_transaction, 20)
        found = await waiting
        assert found.values[:2] == [b"a", b"b"]
        assert found.aborted == []
        await in_thread(send, b"no", b"never")
        await in_thread(producer.abort_transaction, 20)
        await in_thread(send, b"c")
        await in_thread(producer.commit_transaction, 20)
        await world.until(lambda: not len(world.nodes[leader].worker.shards.hold))
        found = await both(committed=True)
        assert found.aborted is not None
        ((_, first),) = found.aborted
        assert first == 3
        assert found.stable_offset == found.high_watermark
        assert (await both(committed=True, offset=first + 3)).aborted == []
        assert (await both(committed=False)).aborted is None

    run(story)


def test_what_is_deleted_is_out_of_range(run: Any) -> None:
    async def story(world: World) -> None:
        leader, other = await topic_of_two(world)
        for value in (b"a", b"b", b"c"):
            assert await world.produce(leader, "t", 0, value) == NONE
        assert (await fetch(world, other, "t", 0, 0, rack=RACK_OF[other])).values == [b"a", b"b", b"c"]
        await delete_before(world, leader, "t", 0, 2)
        assert (await fetch(world, other, "t", 0, 1, rack=RACK_OF[other])).error == OUT_OF_RANGE
        found = await fetch(world, other, "t", 0, 2, rack=RACK_OF[other])
        assert (found.error, found.values, found.start_offset) == (NONE, [b"c"], 2)
        assert (await fetch(world, other, "t", 0, 4, rack=RACK_OF[other])).error == OUT_OF_RANGE

    run(story)


def test_an_end_that_another_node_may_have_moved_is_nobodys_reason_to_begin_anew(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node that has lost its shard, and does not know it, knows an old end of the log. What it has is true."""

    async def story(world: World) -> None:
        leader, other = await topic_of_two(world)
        assert await world.produce(leader, "t", 0, b"before") == NONE
        (number,) = [
            topic.number for topic in world.nodes[1].worker.shards.shared.catalog.topics() if topic.name == "t"
        ]

        async def ask(offset: int) -> Placed:
            answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            asked = AskPlaces(other, 0, [(number, 0, offset, -1, -1, 1000)], False, 1000, 1, 0)
            world.nodes[leader].worker.answer(asked, answer.set_result)
            (row,) = (await answer).rows
            assert isinstance(row, Placed)
            return row

        def away(_version: int) -> None:
            raise CatalogUnavailableError("cut off")

        assert (await ask(5)).fault == "OFFSET_OUT_OF_RANGE"
        engines = world.engines[leader]
        monkeypatch.setattr(engines.catalog, "read", away)
        world.cut_off(leader)
        world.database.die(world.nodes[leader].member.incarnation)
        await world.until(lambda: len(world.holders()[other]) == 4)
        assert await world.produce(other, "t", 0, b"after") == NONE
        row = await ask(0)
        assert (row.fault, row.high_watermark, len(row.places)) == ("", 1, 1)
        own = RACK_OF[leader]
        assert (await fetch(world, leader, "t", 0, 0, rack=own)).values == [b"before"]
        late = asyncio.ensure_future(ask(2))
        of_client = asyncio.ensure_future(fetch(world, leader, "t", 0, 2, rack=own))
        await asyncio.sleep(0)
        assert not late.done()
        engines.database.down = engines.store.down = False
        assert (await late).fault == "NOT_LEADER_OR_FOLLOWER"
        assert (await of_client).error == NOT_LEADER

    run(story)


def test_leader_epochs_are_compared_as_the_leader_does(run: Any) -> None:
    async def story(world: World) -> None:
        leader, other = await topic_of_two(world)
        assert await world.produce(leader, "t", 0, b"v") == NONE
        _, epoch = (await world.leaders(1, "t"))[0]
        for given, expected in ((epoch, NONE), (-1, NONE), (epoch - 1, FENCED), (epoch + 1, UNKNOWN_EPOCH)):
            found = await fetch(world, other, "t", 0, 0, rack=RACK_OF[other], epochs={0: given})
            assert found.error == expected

    run(story)


def test_limits_of_a_fetch_hold_over_all_that_is_read(run: Any) -> None:
    async def story(world: World) -> None:
        assert await world.create("t", 4, replicas=2) == NONE
        places = await placed(world, "t")
        sent = {index: [bytes([index + 65]) * 1_000 + b"%d" % nth for nth in range(8)] for index in places}
        for index, (leader, _) in places.items():
            for value in sent[index]:
                assert await world.produce(leader, "t", index, value) == NONE
        for number, rack in RACK_OF.items():
            offsets, found = dict.fromkeys(places, 0), {index: list[bytes]() for index in places}
            rounds = 0
            while any(len(found[index]) < 8 for index in places):
                got = await fetch_all(world, number, "t", offsets, rack=rack, max_bytes=3_500, most_bytes=2_500)
                sizes = {index: len(one.records) for index, one in got.items()}
                assert 0 < sum(sizes.values()) <= 3_500
                assert all(size <= 2_500 for size in sizes.values())
                for index, one in got.items():
                    found[index] += one.values
                    offsets[index] += len(one.values)
                rounds += 1
                order = sorted(offsets, key=lambda index: offsets[index])
                offsets = {index: offsets[index] for index in order}
            assert found == sent
            assert rounds >= 10
            tiny = await fetch_all(world, number, "t", dict.fromkeys(places, 0), rack=rack, max_bytes=10, most_bytes=10)
            assert [len(one.values) for one in tiny.values()] == [1, 0, 0, 0]

    run(story)


@pytest.mark.parametrize("number", RACK_OF)
def test_fetches_of_very_many_partitions(run: Any, number: int) -> None:
    async def story(world: World) -> None:
        count, rack = 700, RACK_OF[number]
        assert await world.create("t", count, replicas=2) == NONE
        places = await placed(world, "t")
        sent = {index: [b"v%d" % index] for index in random.Random(1).sample(range(count), 12)}
        for index, (value,) in sent.items():
            assert await world.produce(places[index][0], "t", index, value) == NONE
        found = await fetch_all(world, number, "t", dict.fromkeys(range(count), 0), rack=rack)
        assert {index: one.values for index, one in found.items() if one.values} == sent
        assert len(found) == count
        assert all(one.error == NONE and one.preferred == -1 for one in found.values())
        offsets = {index: int(index in sent) for index in range(count)}
        waiting = asyncio.ensure_future(fetch_all(world, number, "t", offsets, rack=rack, wait_ms=60_000))
        await world.until(lambda: any(len(node.worker.shards.hold) for node in world.nodes.values()))
        new = next(index for index, (leader, _) in places.items() if leader != number and index not in sent)
        assert await world.produce(places[new][0], "t", new, b"new") == NONE
        found = await waiting
        assert {index: one.values for index, one in found.items() if one.values} == {new: [b"new"]}

    run(story)


def test_a_replica_asks_the_same_access_rules(run: Any) -> None:
    async def story(world: World) -> None:
        leader, other = await topic_of_two(world)
        assert await world.produce(leader, "t", 0, b"v") == NONE
        assert (await fetch(world, other, "t", 0, 0, rack=RACK_OF[other])).values == [b"v"]
        rule = CreateAclsRequest.AclCreation(
            resource_type=2, resource_name="t", resource_pattern_type=3, principal="User:bob", host="*", operation=3,
            permission_type=3,
        )  # fmt: skip
        (made,) = (await world.ask(leader, CREATE_ACLS, 2, creations=[rule])).results
        assert made.error_code == NONE
        for node in (leader, other):
            found = await fetch(world, node, "t", 0, 0, rack=RACK_OF[node])
            assert (found.error, found.values, found.high_watermark) == (TOPIC_AUTHORIZATION_FAILED, [], -1)

    run(story, security={"authorizer": "acl", "allow_everyone_if_no_acl_found": True})


def test_a_replica_obeys_the_same_quotas(run: Any) -> None:
    async def story(world: World) -> None:
        leader, other = await topic_of_two(world)
        for _ in range(8):
            assert await world.produce(leader, "t", 0, bytes(10_000)) == NONE
        entry = AlterClientQuotasRequest.EntryData
        quota = entry(
            entity=[entry.EntityData(entity_type="client-id", entity_name=None)],
            ops=[entry.OpData(key="consumer_byte_rate", value=3_000.0, remove=False)],
        )
        (made,) = (await world.ask(leader, ALTER_QUOTAS, 1, entries=[quota], validate_only=False)).entries
        assert made.error_code == NONE
        sizes = [len((await fetch(world, node, "t", 0, 0, rack=RACK_OF[node])).records) for node in (leader, other)]
        assert 10_000 < sizes[1] < 80_000
        assert sizes[0] == sizes[1]

    run(story)


def test_another_request_on_the_connection_ends_the_wait(run: Any) -> None:
    async def story(world: World) -> None:
        leader, other = await topic_of_two(world)
        address = world.address_of(other)

        def play() -> None:
            topic = reading.FetchRequest.FetchTopic
            part = topic.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
            with Peer(address) as peer:
                peer.send(
                    peer.request(
                        FETCH, 11, replica_id=-1, max_wait_ms=60_000, min_bytes=1, max_bytes=1 << 20,
                        isolation_level=0, session_id=0, session_epoch=-1, rack_id=RACK_OF[other],
                        topics=[topic(topic="t", partitions=[part])],
                    )
                )  # fmt: skip
                waits.set()
                asked.wait(20)
                peer.send(peer.request(METADATA, 7, topics=[], allow_auto_topic_creation=False))
                peer.frame()
                peer.answer(METADATA, 7)

        waits, asked = threading.Event(), threading.Event()
        playing = asyncio.ensure_future(asyncio.to_thread(play))
        await world.until(lambda: len(world.nodes[leader].worker.shards.hold))
        asked.set()
        await playing
        await world.until(lambda: not len(world.nodes[leader].worker.shards.hold))

    run(story)


def test_a_node_that_cannot_read_says_so_and_nobody_is_sent_there(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("halfmoon.server.nodes.nearby.TOLD_S", 0.0)

    async def story(world: World) -> None:
        leader, other = await topic_of_two(world, "object")
        assert await world.produce(leader, "t", 0, b"v") == NONE

        async def preferred() -> int:
            return (await fetch(world, leader, "t", 0, 0, rack=RACK_OF[other])).preferred

        assert await preferred() == other
        world.engines[other].store.down = True
        assert (await fetch(world, other, "t", 0, 0, rack=RACK_OF[other])).error == STORAGE_ERROR
        async with asyncio.timeout(20):
            while await preferred() != -1:
                await asyncio.sleep(0.01)
        assert (await fetch(world, leader, "t", 0, 0, rack=RACK_OF[other])).values == [b"v"]
        world.engines[other].store.down = False
        monkeypatch.setattr("halfmoon.server.nodes.places.SPARED_S", 0.0)
        assert (await fetch(world, other, "t", 0, 0, rack=RACK_OF[other])).values == [b"v"]

    run(story)


def test_records_are_read_while_they_are_brought_from_rows_into_objects_and_compacted(run: Any) -> None:
    settings = {
        "log": {
            "segment_bytes": "1MiB", "low_disk_bytes": 0,
            "cleaner": {"interval": "200ms", "min_dirty_ratio": 0.1, "min_dead_ratio": 0.2},
        }
    }  # fmt: skip

    async def story(world: World) -> None:
        configs = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.05"}
        assert await world.create("t", 1, replicas=2, configs=configs) == NONE
        leader, other = (await placed(world, "t"))[0]
        dice = random.Random(4)
        newest: dict[bytes, bytes] = {}
        partition = next(
            topic for topic in world.nodes[leader].worker.shards.front.catalog.topics() if topic.name == "t"
        ).partitions[0]
        async with asyncio.timeout(50):
            while not partition.cleaned:
                rows = [(b"%d" % dice.randrange(20), dice.randbytes(2_000).hex().encode()) for _ in range(20)]
                newest.update(rows)
                await produce_keyed(world, leader, "t", 0, rows)
        for node, rack in ((leader, RACK_OF[leader]), (other, RACK_OF[other])):
            found: list[bytes] = []
            offset, end = 0, partition.high_watermark
            while offset < end:
                got = await fetch(world, node, "t", 0, offset, rack=rack)
                assert got.error == NONE
                assert got.records
                last = got.records
                while last:
                    size = 12 + int.from_bytes(last[8:12])
                    offset = int.from_bytes(last[:8]) + int.from_bytes(last[23:27]) + 1
                    last = last[size:]
                found += got.values
            assert set(newest.values()) <= set(found)
        assert requests(world, "store") > 0

    run(story, **settings)
