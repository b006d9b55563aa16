"""RocketMQ's clients at nodes: a broker is a shard, which keeps its name wherever it is."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from halfmoon.cluster.engine.pieces import Durability
from halfmoon.testing.ports import free_ports, ports_in_a_row
from tests.fuzz.remoting import LOCK, MAX_OFFSET, ROUTE, SEND, SUCCESS, Command, Remote, said, sending
from tests.server.asking import NONE
from tests.server.nodes.cluster import World, stopped
from tests.server.server_rig import played

SYSTEM_BUSY = 2
SHARDS = [Durability.FAST] * 2 + [Durability.OBJECT] * 2


def listening() -> dict[str, Any]:
    """Of a node; a broker's port for each shard."""
    kafka, names = free_ports(2)
    brokers = ports_in_a_row("127.0.0.1", len(SHARDS))
    rocketmq = {"bind": f"127.0.0.1:{brokers}", "namesrv": f"127.0.0.1:{names}"}
    return {"kafka": {"bind": f"127.0.0.1:{kafka}"}, "rocketmq": rocketmq}


async def tell(address: tuple[str, int], code: int, fields: dict[str, str], body: bytes = b"") -> Command:
    def ask() -> Command:
        with Remote(address) as remote:
            return remote.tell(code, fields, body, 20.0)

    return await asyncio.to_thread(ask)


async def brokers(world: World, node: int) -> dict[str, str]:
    """Name → address, as the name service of this node says of the topic `t`."""
    names = world.nodes[node].place.namesrv_bind()
    route = await tell((names.host, names.port), ROUTE, said(topic="t"))
    return {each["brokerName"]: each["brokerAddrs"]["0"] for each in json.loads(route.body)["brokerDatas"]}


def address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    return host, int(port)


def test_clients_find_the_shards_wherever_they_are_and_a_cut_off_node_tells_nothing(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        for number in (1, 2):
            await world.start(number, listeners=listening())
        await world.until(lambda: sorted(map(len, world.holders().values())) == [2, 2])
        assert await world.create("t", 4) == NONE
        await world.led("t")
        worker = world.nodes[1].worker
        # No client's reads are waited for by others than clients.
        assert {each.executor for each in worker.rocketmqs} == {worker.kafka.executor} != {None}
        before = await brokers(world, 1)
        assert before == await brokers(world, 2)
        assert sorted(before) == ["shard-00", "shard-01"]
        for each in before.values():
            assert (await tell(address(each), SEND, sending("t"), b"v")).code == SUCCESS
        name = next(name for name, each in before.items() if each in theirs(world, 2))
        asked = said(topic="t", queueId=0)
        assert (await tell(address(before[name]), MAX_OFFSET, asked)).fields["offset"] == "1"

        world.cut_off(2)
        world.database.die(world.nodes[2].member.incarnation)
        await world.until(lambda: len(world.holders()[1]) == len(SHARDS))
        after = await brokers(world, 1)
        assert after[name] in theirs(world, 1)
        assert (await tell(address(after[name]), SEND, sending("t"), b"v")).code == SUCCESS
        lock = json.dumps({"consumerGroup": "g", "clientId": "c", "mqSet": [queue(name)]}).encode()
        late = [
            asyncio.ensure_future(tell(address(before[name]), MAX_OFFSET, asked)),
            asyncio.ensure_future(tell(address(before[name]), LOCK, {}, lock)),
        ]
        await asyncio.sleep(0.3)
        assert not any(each.done() for each in late)
        assert (await tell(address(after[name]), MAX_OFFSET, asked)).fields["offset"] == "2"
        held = await tell(address(after[name]), LOCK, {}, lock)
        assert json.loads(held.body)["lockOKMQSet"] == [queue(name)]
        engines = world.engines[2]
        engines.database.down = engines.store.down = False
        assert [(await each).code for each in late] == [SYSTEM_BUSY, SYSTEM_BUSY]

    async def run() -> None:
        async with stopped(World(tmp_path, SHARDS)) as world:
            await story(world)

    played(run())


def theirs(world: World, number: int) -> set[str]:
    """The addresses of all brokers that this node may have."""
    return {str(world.nodes[number].place.rocketmq_bind(shard)) for shard in range(len(SHARDS))}


def queue(broker: str) -> dict[str, Any]:
    return {"topic": "t", "brokerName": broker, "queueId": 0}
