"""Nodes come and go, and the messages stay."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from halfmoon.adapters.kafka.protocol import AlterUserScramCredentialsRequest, OffsetForLeaderEpochRequest
from halfmoon.cluster.engine import store_watch
from halfmoon.cluster.engine.pieces import Durability
from halfmoon.cluster.engine.sharing import Move
from halfmoon.errors import StartError
from halfmoon.server.nodes import holding
from halfmoon.server.nodes.node import ClusterNode
from halfmoon.server.workers.worker import Worker
from tests.cluster.engine.doubles import LEASE_S
from tests.fuzz.peer import ClosedError
from tests.server.asking import DESCRIBE_CLUSTER, METADATA, NONE, NOT_LEADER
from tests.server.nodes.cluster import MemoryEngines, World, cluster, stopped
from tests.server.server_rig import played

FAST = [Durability.FAST] * 4
MIXED = [Durability.FAST] * 2 + [Durability.OBJECT] * 2
INVALID_CONFIG, INVALID_REPLICATION_FACTOR = 40, 38
INIT_PRODUCER, END_OF_EPOCH = 22, 23


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., None]:
    def play(story: Callable[[World], Any], nodes: int = 2, shards: Sequence[Durability] = FAST) -> None:
        async def run() -> None:
            async with cluster(tmp_path, nodes, shards) as world:
                await story(world)

        played(run())

    return play


def hold_hand_over(database: Any, monkeypatch: pytest.MonkeyPatch) -> tuple[asyncio.Event, asyncio.Event]:
    """Of a node: it closes a shard to hand it over (the first event), and does so after the second one."""
    closed, go_on = asyncio.Event(), asyncio.Event()
    hand_over = database.hand_over

    async def slowly(*given: Any) -> Any:
        closed.set()
        await go_on.wait()
        return await hand_over(*given)

    monkeypatch.setattr(database, "hand_over", slowly)
    return closed, go_on


def shard_of(world: World, name: str, index: int) -> int:
    """Where a partition is."""
    shared = world.nodes[1].worker.shards.shared
    return shared.placements[shared.catalog.by_name[name].number][index]


def test_one_node_has_all_shards_and_serves_them(run: Any) -> None:
    async def story(world: World) -> None:
        await world.shared_out()
        assert await world.create("t", 4) == NONE
        for index in range(4):
            assert await world.produce(1, "t", index, b"v%d" % index) == NONE
        assert [await world.values(1, "t", index) for index in range(4)] == [[b"v%d" % index] for index in range(4)]
        assert await world.commit(1, "g", "t", 0, 1) == NONE
        assert await world.committed(1, "g", "t", 0) == 1
        assert await world.coordinator(1, "g") == 1

    run(story, 1)


def test_two_nodes_share_the_shards_and_clients_find_them(run: Any) -> None:
    async def story(world: World) -> None:
        await world.until(lambda: sorted(map(len, world.holders().values())) == [2, 2])
        await world.shared_out()
        assert await world.create("t", 4) == NONE
        await world.led("t")
        leaders = await world.leaders(1, "t")
        assert {node for node, _ in leaders.values()} == {1, 2}
        for index, (node, _) in leaders.items():
            assert await world.produce(node, "t", index, b"v") == NONE
            assert await world.produce(3 - node, "t", index, b"v") == NOT_LEADER
            assert await world.values(node, "t", index) == [b"v"]
        for group in ("a", "b", "c", "d", "e"):
            at = await world.coordinator(1, group)
            assert at == await world.coordinator(2, group)
            assert await world.commit(at, group, "t", 1, 5) == NONE
            assert await world.committed(at, group, "t", 1) == 5

    run(story)


def test_what_a_node_had_is_served_by_the_others_when_it_stops(run: Any) -> None:
    async def story(world: World) -> None:
        await world.until(lambda: sorted(map(len, world.holders().values())) == [2, 2])
        assert await world.create("t", 4) == NONE
        for index in range(4):
            await world.send("t", index, b"before")
        before = await world.leaders(1, "t")
        await world.stop(2)
        await world.shared_out()
        for index in range(4):
            await world.send("t", index, b"after")
            assert await world.read("t", index) == [b"before", b"after"]
        after = await world.leaders(1, "t")
        assert all(node == 1 for node, _ in after.values())
        assert all(after[at][1] > before[at][1] for at, (node, _) in before.items() if node == 2)

    run(story)


def test_a_node_that_is_cut_off_acknowledges_nothing_and_the_others_go_on(run: Any) -> None:
    async def story(world: World) -> None:
        await world.until(lambda: sorted(map(len, world.holders().values())) == [2, 2])
        assert await world.create("t", 4) == NONE
        for index in range(4):
            await world.send("t", index, b"before")
        leaders = await world.leaders(1, "t")
        index = next(at for at, (node, _) in leaders.items() if node == 2)
        world.cut_off(2)
        world.database.die(world.nodes[2].member.incarnation)
        late = asyncio.ensure_future(world.produce(2, "t", index, b"never"))
        await world.until(lambda: len(world.holders()[1]) == 4)
        paused = world.nodes.pop(2)
        await world.send("t", index, b"after")
        assert await world.read("t", index) == [b"before", b"after"]
        engines = world.engines[2]
        engines.database.down = engines.store.down = False
        assert await late == NOT_LEADER
        world.nodes[2] = paused
        await world.until(lambda: sorted(map(len, world.holders().values())) == [2, 2])
        await world.led("t")
        assert await world.read("t", index) == [b"before", b"after"]

    run(story)


def test_a_topic_chooses_its_durability_when_it_is_made(run: Any) -> None:
    async def story(world: World) -> None:
        await world.shared_out()
        assert await world.create("quick", 4) == NONE
        assert await world.create("cheap", 4, configs={"halfmoon.durability": "object"}) == NONE
        assert await world.create("wrong", 4, configs={"halfmoon.durability": "cheap"}) == INVALID_CONFIG
        shared = world.nodes[1].worker.shards.shared
        placed = {name: shared.placements[shared.catalog.by_name[name].number] for name in ("quick", "cheap")}
        assert set(placed["quick"]) == {0, 1}
        assert set(placed["cheap"]) == {2, 3}
        objects = len(world.store.objects)
        for index in range(4):
            await world.send("cheap", index, b"v")
            assert await world.read("cheap", index) == [b"v"]
        assert len(world.store.objects) > objects
        for group in map(str, range(8)):
            assert await world.coordinator(1, group) in (1, 2)
        assert {world.nodes[1].place.layout.coordinator_of(str(number)) for number in range(8)} == {0, 1}

    run(story, 2, MIXED)


def test_any_replication_factor_is_taken_and_shown(run: Any) -> None:
    async def story(world: World) -> None:
        await world.shared_out()
        await world.until(lambda: len(world.nodes[1].place.members) == 3)
        for factor in (1, 2, 3):
            assert await world.create(f"t{factor}", 4, replicas=factor) == NONE
        assert await world.create("none", 1, replicas=0) == INVALID_REPLICATION_FACTOR
        await world.led("t3")
        found = await world.ask(1, METADATA, 7, topics=None, allow_auto_topic_creation=False)
        for topic in found.topics:
            if topic.name.startswith("t"):
                for part in topic.partitions:
                    assert len(part.replica_nodes) == len(set(part.replica_nodes)) == int(topic.name[1:])
                    assert part.replica_nodes == part.isr_nodes
                    assert part.replica_nodes[0] == part.leader_id

    run(story, 3)


def test_a_node_that_was_paused_tells_no_offsets_that_another_has_changed(run: Any) -> None:
    """Its answer would send a consumer back."""

    async def story(world: World) -> None:
        await world.until(lambda: sorted(map(len, world.holders().values())) == [2, 2])
        assert await world.create("t", 1) == NONE
        (group, *_) = [name for name in map(str, range(20)) if await world.coordinator(1, name) == 2]
        assert await world.commit(2, group, "t", 0, 1) == NONE
        world.cut_off(2)
        world.database.die(world.nodes[2].member.incarnation)
        await world.until(lambda: len(world.holders()[1]) == 4)
        assert await world.commit(1, group, "t", 0, 2) == NONE
        asked = asyncio.ensure_future(world.committed(2, group, "t", 0))
        await asyncio.sleep(0.3)
        assert not asked.done()
        engines = world.engines[2]
        engines.database.down = engines.store.down = False
        with pytest.raises(ClosedError):
            await asked
        assert await world.committed(1, group, "t", 0) == 2

    run(story)


def test_nothing_is_acknowledged_for_a_shard_before_it_is_there(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The node knows that it has the shard before clients can be answered from it."""

    async def story(world: World) -> None:
        await world.until(lambda: sorted(map(len, world.holders().values())) == [2, 2])
        assert await world.create("t", 4) == NONE
        await world.led("t")
        index = next(at for at, (node, _) in (await world.leaders(1, "t")).items() if node == 2)
        shard = shard_of(world, "t", index)
        running = world.nodes[1].worker.running
        announce, before, after, go_on = running.announce, asyncio.Event(), asyncio.Event(), asyncio.Event()

        async def slowly(number: int) -> None:
            if number != shard:
                await announce(number)
                return
            before.set()
            await go_on.wait()
            await announce(number)
            go_on.clear()
            after.set()
            await go_on.wait()

        monkeypatch.setattr(running, "announce", slowly)
        moved = asyncio.ensure_future(world.stop(2))
        await before.wait()
        assert await world.produce(1, "t", index, b"too early") == NOT_LEADER
        go_on.set()
        await after.wait()
        found = await world.produce(1, "t", index, b"v")
        go_on.set()
        monkeypatch.undo()
        await moved
        await world.shared_out()
        expected = [b"v"] if found == NONE else []
        assert await world.read("t", index) == expected

    run(story)


def test_while_the_database_is_away_nothing_is_acknowledged_and_records_are_read(run: Any) -> None:
    async def story(world: World) -> None:
        await world.until(lambda: sorted(map(len, world.holders().values())) == [2, 2])
        assert await world.create("t", 4) == NONE
        for index in range(4):
            await world.send("t", index, b"before")
        holders, leaders = world.holders(), await world.leaders(1, "t")
        for engines in world.engines.values():
            engines.database.down = True
        late = [asyncio.ensure_future(world.produce(node, "t", at, b"late")) for at, (node, _) in leaders.items()]
        await asyncio.sleep(LEASE_S + 0.5)
        assert not any(each.done() for each in late)
        for index, (node, _) in leaders.items():
            assert await world.values(node, "t", index) == [b"before"]
        for engines in world.engines.values():
            engines.database.down = False
        assert [await each for each in late] == [NONE] * 4
        assert world.holders() == holders
        for index in range(4):
            assert await world.read("t", index) == [b"before", b"late"]

    run(story)


def test_while_the_store_is_away_fast_topics_go_on_and_the_others_wait(run: Any) -> None:
    async def story(world: World) -> None:
        await world.shared_out()
        assert await world.create("quick", 2) == NONE
        assert await world.create("cheap", 2, configs={"halfmoon.durability": "object"}) == NONE
        await world.led("cheap")
        for engines in world.engines.values():
            engines.store.down = True
        (node, _) = (await world.leaders(1, "cheap"))[0]
        late = asyncio.ensure_future(world.produce(node, "cheap", 0, b"late"))
        for index in range(2):
            await world.send("quick", index, b"v")
        assert not late.done()
        for engines in world.engines.values():
            engines.store.down = False
        assert await late == NONE
        assert await world.read("cheap", 0) == [b"late"]

    run(story, 2, MIXED)


def test_a_node_that_is_cut_off_from_the_store_gives_its_shards_to_one_that_reaches_it(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_watch, "FAILING_S", 0.5)
    monkeypatch.setattr(store_watch, "PROBE_S", 0.1)

    async def story(world: World) -> None:
        await world.until(lambda: sorted(map(len, world.holders().values())) == [2, 2])
        assert await world.create("cheap", 2, configs={"halfmoon.durability": "object"}) == NONE
        await world.led("cheap")
        index = next(at for at, (node, _) in (await world.leaders(1, "cheap")).items() if node == 2)
        await world.send("cheap", index, b"before")
        world.engines[2].store.down = True
        late = asyncio.ensure_future(world.produce(2, "cheap", index, b"late"))
        await world.until(lambda: world.nodes[2].worker.more_problems())
        await world.until(lambda: world.holders() == {1: [0, 1, 2, 3], 2: []})
        assert await late == NOT_LEADER
        await world.send("cheap", index, b"after")
        assert await world.read("cheap", index) == [b"before", b"after"]
        world.engines[2].store.down = False
        await world.until(lambda: sorted(map(len, world.holders().values())) == [2, 2])
        assert await world.read("cheap", index) == [b"before", b"after"]

    run(story, 2, MIXED)


def test_a_node_that_the_store_refuses_from_the_start_is_given_no_shards(run: Any) -> None:
    """As S3 refuses one whose clock is more than a quarter of an hour off. It need not fail for 15 s first."""

    async def story(world: World) -> None:
        await world.shared_out()
        await world.start(2, without_store=True)
        async with asyncio.timeout(10):
            while all(node.stores for node in await world.database.nodes()):
                await asyncio.sleep(0.05)
        await world.until(lambda: world.holders() == {1: [0, 1, 2, 3], 2: []})
        assert "nothing could be stored" in world.nodes[2].worker.more_problems()[0]
        world.engines[2].store.down = False
        await world.until(lambda: sorted(map(len, world.holders().values())) == [2, 2])

    run(story, 1, MIXED)


def test_a_shard_that_cannot_be_opened_is_given_away_at_once(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """And not once it would be tried again."""

    async def story(world: World) -> None:
        await world.shared_out()
        await world.stop(1)
        with monkeypatch.context() as patched:
            patched.setattr(holding, "FIRST_PAUSE_S", 1_000.0)
            patched.setattr(holding, "LONGEST_PAUSE_S", 1_000.0)
            await world.start(1, without_store=True)
            await world.until(lambda: len(world.nodes[1].held.problems) == 4)
        await world.start(2)
        await world.until(lambda: world.holders() == {1: [], 2: [0, 1, 2, 3]})
        assert not world.nodes[1].held.problems

    run(story, 1, MIXED)


def test_a_shard_is_moved_and_a_node_drained_at_an_administrators_wish(run: Any) -> None:
    async def story(world: World) -> None:
        await world.until(lambda: sorted(map(len, world.holders().values())) == [2, 2])
        moved = world.holders()[1][0]
        assert await world.database.want(moved, 2)
        await world.until(lambda: moved in world.holders()[2])
        await world.until(lambda: sorted(map(len, world.holders().values())) == [2, 2])
        assert await world.database.drain(2, True)
        await world.until(lambda: world.holders() == {1: [0, 1, 2, 3], 2: []})
        assert await world.create("t", 4) == NONE
        for index in range(4):
            await world.send("t", index, b"v")
        asked = {"transactional_id": None, "transaction_timeout_ms": 1}
        found = [await world.ask(node, INIT_PRODUCER, 1, **asked) for node in (1, 2, 2)]
        assert [each.error_code for each in found] == [NONE] * 3
        assert len({each.producer_id for each in found}) == 3
        assert await world.database.drain(2, False)
        await world.until(lambda: sorted(map(len, world.holders().values())) == [2, 2])

    run(story)


def test_a_shard_that_moves_has_a_leader_all_the_time(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that was told of a partition without a leader may not ask again for minutes."""

    async def story(world: World) -> None:
        await world.until(lambda: sorted(map(len, world.holders().values())) == [2, 2])
        assert await world.create("t", 4) == NONE
        await world.led("t")
        index = next(at for at, (node, _) in (await world.leaders(1, "t")).items() if node == 1)
        shard = shard_of(world, "t", index)
        closed, go_on = hold_hand_over(world.engines[1].database, monkeypatch)
        assert await world.database.want(shard, 2)
        await closed.wait()
        assert (await world.leaders(1, "t"))[index][0] == 1
        assert (await world.leaders(2, "t"))[index][0] == 1
        assert await world.produce(1, "t", index, b"v") == NOT_LEADER
        assert await world.produce(2, "t", index, b"v") == NOT_LEADER
        go_on.set()
        await world.until(lambda: shard in world.holders()[2])
        await world.send("t", index, b"v")
        assert await world.read("t", index) == [b"v"]

    run(story)


def test_a_dead_nodes_partitions_have_a_leader_until_it_takes_too_long(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one that they had: in an epoch there is one leader, whichever node tells of it."""

    async def story(world: World) -> None:
        await world.until(lambda: sorted(map(len, world.holders().values())) == [2, 2])
        assert await world.create("t", 4) == NONE
        await world.led("t")
        before = await world.leaders(1, "t")
        index = next(at for at, (node, _) in before.items() if node == 2)
        database, go_on = world.engines[1].database, asyncio.Event()
        take = database.take

        async def slowly(*given: Any) -> Any:
            await go_on.wait()
            return await take(*given)

        monkeypatch.setattr(database, "take", slowly)
        world.cut_off(2)
        world.database.die(world.nodes[2].member.incarnation)
        await world.until(lambda: 2 not in world.nodes[1].place.members)
        dead = world.nodes.pop(2)
        try:
            assert await world.leaders(1, "t") == before
            assert await world.produce(1, "t", index, b"v") == NOT_LEADER
            monkeypatch.setattr("halfmoon.server.nodes.leaders.TAKEOVER_S", 0.0)
            assert (await world.leaders(1, "t"))[index][0] == -1
            go_on.set()
            await world.send("t", index, b"v")
            assert await world.read("t", index) == [b"v"]
            assert (await world.leaders(1, "t"))[index][0] == 1
        finally:
            engines = world.engines[2]
            engines.database.down = engines.store.down = False
            world.nodes[2] = dead

    run(story)


def test_clients_are_told_of_a_dead_node_for_a_while_and_not_of_one_that_left(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by Kafka, until the broker's session is over."""

    async def told(world: World) -> list[list[int]]:
        found = await world.ask(1, METADATA, 12, topics=[], allow_auto_topic_creation=False)
        described = await world.ask(1, DESCRIBE_CLUSTER, 1, endpoint_type=1)
        ports = {each.node_id: each.port for each in found.brokers}
        assert {each.broker_id: each.port for each in described.brokers} == ports
        return sorted([number, port] for number, port in ports.items())

    async def story(world: World) -> None:
        await world.until(lambda: sorted(map(len, world.holders().values())) == [2, 2])
        await world.until(lambda: len(world.nodes[1].place.members) == 2)
        both = await told(world)
        assert [number for number, _ in both] == [1, 2]
        world.cut_off(2)
        world.database.die(world.nodes[2].member.incarnation)
        await world.until(lambda: len(world.holders()[1]) == 4)
        assert list(world.nodes[1].place.members) == [1]
        assert await told(world) == both
        with monkeypatch.context() as patch:
            patch.setattr("halfmoon.server.nodes.leaders.TAKEOVER_S", 0.0)
            assert await told(world) == both[:1]
        dead = world.nodes.pop(2)
        engines = world.engines[2]
        engines.database.down = engines.store.down = False
        world.nodes[2] = dead
        await world.until(lambda: sorted(map(len, world.holders().values())) == [2, 2])
        await world.until(lambda: len(world.nodes[1].place.members) == 2)
        assert await told(world) == both
        await world.stop(2)
        await world.until(lambda: len(world.nodes[1].place.members) == 1)
        await world.shared_out()
        assert await told(world) == both[:1]

    run(story)


def test_an_epoch_has_one_leader_whichever_node_tells_of_it(run: Any) -> None:
    """librdkafka 2.16 that hears of two, one right after the other, may stay with the wrong one for ever."""

    async def story(world: World) -> None:
        await world.until(lambda: sorted(map(len, world.holders().values())) == [2, 2, 2])
        assert await world.create("t", 6) == NONE
        await world.led("t")
        told: dict[tuple[int, int], set[int]] = {}

        async def look() -> None:
            while True:
                for number in list(world.nodes):
                    with contextlib.suppress(OSError, ClosedError, KeyError):
                        for index, (node, epoch) in (await world.leaders(number, "t")).items():
                            told.setdefault((index, epoch), set()).add(node)
                await asyncio.sleep(0)

        looking = asyncio.ensure_future(look())
        world.cut_off(2)
        world.database.die(world.nodes[2].member.incarnation)
        await world.until(lambda: sorted(map(len, (world.holders()[number] for number in (1, 3)))) == [3, 3])
        engines = world.engines[2]
        engines.database.down = engines.store.down = False
        await world.until(lambda: sorted(map(len, world.holders().values())) == [2, 2, 2])
        await world.stop(3)
        await world.until(lambda: sorted(map(len, world.holders().values())) == [3, 3])
        await world.start(3)
        await world.until(lambda: sorted(map(len, world.holders().values())) == [2, 2, 2])
        await world.led("t")
        looking.cancel()
        assert {key: nodes for key, nodes in told.items() if len(nodes) > 1} == {}

    run(story, nodes=3, shards=[Durability.FAST] * 6)


def test_two_processes_are_not_the_same_node(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("halfmoon.server.nodes.node.ANOTHER_S", 0.3)

    async def story(world: World) -> None:
        first = world.nodes[1]
        other = ClusterNode(
            world.settings(1, node={"id": 1, "data_dir": str(world.folder / "again")}),
            MemoryEngines(world, 1), on_lost=world.lost.append,
        )  # fmt: skip
        with pytest.raises(StartError, match="node 1 is running already, at 127"):
            await other.start()
        assert world.nodes[1] is first
        assert await world.create("t", 1) == NONE

    run(story, 1)


def test_users_and_rules_are_the_same_at_all_nodes(tmp_path: Path) -> None:
    """What is changed at one node holds at the others before it is answered."""

    async def run() -> None:
        async with stopped(World(tmp_path, FAST)) as world:
            for number in (1, 2):
                await world.start(number)
            await world.until(lambda: sorted(map(len, world.holders().values())) == [2, 2])
            await world.until(lambda: all(world.nodes[n].worker.links.others() for n in (1, 2)))
            await world.until(lambda: all(all(world.nodes[n].worker.links.others().values()) for n in (1, 2)))
            sha = AlterUserScramCredentialsRequest.ScramCredentialUpsertion(
                name="alice", mechanism=2, iterations=8_192, salt=b"salt" * 4, salted_password=b"x" * 64
            )
            answer = await world.ask(1, 51, 0, deletions=[], upsertions=[sha])
            assert [each.error_code for each in answer.results] == [NONE]
            found = [{user.name for user in node.worker.shards.common.users.all()} for node in world.nodes.values()]
            assert found == [{"alice"}, {"alice"}]

    played(run())


def test_a_node_that_was_paused_while_it_gave_a_shard_away_does_not_want_it_back(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(world: World) -> None:
        await world.until(lambda: sorted(map(len, world.holders().values())) == [2, 2])
        assert await world.create("t", 4) == NONE
        await world.led("t")
        moving = world.holders()[2][0]
        held, database = world.nodes[2].held, world.engines[2].database
        (head,) = (head for head in await world.database.heads() if head.shard == moving)
        closed, go_on = hold_hand_over(database, monkeypatch)  # it is on the way while the others take what it has
        giving = asyncio.ensure_future(held.give(Move(head, world.nodes[1].member.incarnation)))
        await closed.wait()
        await world.database.leave(world.nodes[2].member.incarnation)
        taken = await world.database.take(moving, head.epoch, world.nodes[1].member.incarnation)
        assert taken is not None
        go_on.set()
        await giving
        await world.until(lambda: moving in world.holders()[1])
        assert moving not in world.holders()[2]
        await world.shared_out()
        await world.led("t")
        assert held.problems == {}

    run(story)


def test_a_node_that_was_started_anew_tells_nothing_of_what_it_has_not_opened_yet(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(world: World) -> None:
        await world.shared_out()
        assert await world.create("t", 1) == NONE
        await world.send("t", 0, b"v")
        await world.stop(1)
        gate, open_shard = asyncio.Event(), Worker.open_shard

        async def late(self: Worker, number: int) -> None:
            await gate.wait()
            await open_shard(self, number)

        monkeypatch.setattr(Worker, "open_shard", late)
        starting = asyncio.ensure_future(world.start(1))
        of_topic = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
        part = of_topic.OffsetForLeaderPartition(partition=0, current_leader_epoch=-1, leader_epoch=1)
        told: list[Any] = []
        async with asyncio.timeout(10):
            while not told:
                await asyncio.sleep(0.01)
                with contextlib.suppress(OSError, AttributeError, KeyError):  # it does not listen yet
                    asked = [of_topic(topic="t", partitions=[part])]
                    told = (await world.ask(1, END_OF_EPOCH, 3, replica_id=-1, topics=asked)).topics
        assert told[0].partitions[0].error_code == NOT_LEADER, "it stands in the catalog as the owner, and knows no end"
        assert await world.values(1, "t", 0) == NOT_LEADER
        gate.set()
        await starting
        assert await world.read("t", 0) == [b"v"]

    run(story, 1)
