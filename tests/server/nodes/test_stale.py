"""Where rights are checked, a node that has not heard of the catalog for a while tells nobody anything."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from halfmoon.cluster.engine.pieces import Durability
from halfmoon.cluster.messages import AppendBatch, AskMessages
from halfmoon.errors import BrokerError, Fault
from halfmoon.server.nodes import catalog_watch
from halfmoon.server.workers import catalog_news
from halfmoon.testing.ports import free_ports
from tests.fuzz.peer import ClosedError, Peer
from tests.server.nodes.cluster import World, stopped
from tests.server.server_rig import played

API_VERSIONS = 18
STALE_S = 2.0
EVERYBODY = {"authorizer": "acl", "allow_everyone_if_no_acl_found": True}


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """One node; what rules do not forbid, everybody may do."""
    monkeypatch.setattr(catalog_watch, "STALE_S", STALE_S)
    monkeypatch.setattr(catalog_news, "POLL_S", 0.05)

    def play(story: Callable[[World], Awaitable[None]], **more: Any) -> None:
        async def run() -> None:
            async with stopped(World(tmp_path, [Durability.FAST])) as world:
                kafka, http, rocketmq, names = (f"127.0.0.1:{port}" for port in free_ports(4))
                listeners = {
                    "kafka": {"bind": kafka}, "http": {"bind": http}, "rocketmq": {"bind": rocketmq, "namesrv": names}
                }  # fmt: skip
                await world.start(1, listeners=listeners, security=EVERYBODY)
                await world.shared_out()
                await story(world)

        played(run())

    return play


def test_after_a_pause_nothing_is_answered_before_the_catalog_was_looked_at(run: Any) -> None:
    async def story(world: World) -> None:
        peer = await asyncio.to_thread(Peer, world.address_of(1))
        try:
            assert (await asyncio.to_thread(peer.ask, API_VERSIONS, 0)).error_code == 0
            asking = asyncio.ensure_future(asyncio.to_thread(peer.ask, API_VERSIONS, 0))
            await asyncio.sleep(0)
            time.sleep(STALE_S + 0.5)  # the process stands still, and the request comes meanwhile
            with pytest.raises((ClosedError, ConnectionError)):
                await asking
        finally:
            peer.close()
        assert not world.nodes[1].worker.kafka.counters.errors

        async def is_answered() -> bool:
            try:
                return (await world.ask(1, API_VERSIONS, 0)).error_code == 0
            except (ClosedError, OSError):
                return False

        async with asyncio.timeout(10):
            while not await is_answered():
                await asyncio.sleep(0.02)

    run(story)


async def get(world: World, path: str) -> tuple[int, bytes]:
    address = world.nodes[1].http_address
    assert address is not None
    reader, writer = await asyncio.open_connection(address.host, address.port)
    try:
        writer.write(b"GET %s HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n" % path.encode())
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
        return int(head.split(b" ")[1]), body
    finally:
        writer.close()


ASKED = {
    AskMessages(b'{"type":"none"}', "User:a", "127.0.0.1"): Fault.INVALID_REQUEST,
    AppendBatch(1_000, 0, b"", "User:a", "127.0.0.1"): Fault.COORDINATOR_LOAD_IN_PROGRESS,
}
"""What others ask on behalf of their clients, and what they are told otherwise."""


def test_what_is_monitored_and_what_other_nodes_ask_is_not_told_either(run: Any) -> None:
    def found(world: World) -> list[Fault]:
        answers: list[object] = []
        inbox = world.nodes[1].worker._inboxes[0]
        for question in ASKED:
            inbox.answer(question, answers.append)
        return [answer.fault for answer in answers if isinstance(answer, BrokerError)]

    async def story(world: World) -> None:
        assert (await get(world, "/metrics"))[0] == 200
        assert found(world) == list(ASKED.values())
        world.nodes[1].worker.news.stop()
        await world.until(lambda: world.nodes[1].worker.is_stale())
        assert (await get(world, "/metrics"))[0] == 403
        assert await get(world, "/healthz") == (503, b"unhealthy\n")
        assert found(world) == [Fault.NOT_LEADER_OR_FOLLOWER] * 2

    run(story)
