"""What keeps the loop is seen, whoever does it: timers, tasks, threads' ends, garbage, requests, plugins."""

from __future__ import annotations

import asyncio
import functools
import gc
import socket
import struct
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from server_rig import in_loop, node, until

from halfmoon.adapters.tcp.turns import Longest, Turns
from halfmoon.config.settings import HoldSettings
from halfmoon.core.hold import Held, HoldService
from halfmoon.hooks.types import KafkaApi, KafkaRequest
from halfmoon.plugin import API_VERSION, hookimpl
from halfmoon.server import services
from halfmoon.server.measured_loop import MeasuredLoop, cause_of
from halfmoon.server.waking import wake_in_turns
from tests.fuzz.peer import framed

BURNT_S = 0.03


def burn() -> None:
    """Of this thread's CPU."""
    until_s = time.thread_time() + BURNT_S
    while time.thread_time() < until_s:
        pass


def turns() -> Turns:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, MeasuredLoop)
    return loop.turns


WAYS: dict[str, Callable[[asyncio.AbstractEventLoop], object]] = {
    "soon": lambda loop: loop.call_soon(burn),
    "later": lambda loop: loop.call_later(0, burn),
    "at": lambda loop: loop.call_at(loop.time(), burn),
    "thread": lambda loop: loop.run_in_executor(None, loop.call_soon_threadsafe, burn),
    "future": lambda loop: loop.run_in_executor(None, int).add_done_callback(lambda _: burn()),
    "partial": lambda loop: loop.call_soon(functools.partial(burn)),
}


@pytest.mark.parametrize("way", WAYS)
def test_each_way_to_have_the_loop_call_something(way: str) -> None:
    @in_loop
    async def run() -> None:
        turns().forget()
        WAYS[way](asyncio.get_running_loop())
        await until(lambda: turns().longest().get("other", Longest(0, 0)).cpu_s >= BURNT_S)

    run()


@in_loop
async def test_time_asleep_is_no_turn() -> None:
    asleep_s = 0.5  # longer than a busy machine holds up a turn
    await asyncio.sleep(asleep_s)
    assert all(longest.wall_s < asleep_s for longest in turns().longest().values())


@in_loop
async def test_an_exception_is_the_loops_own_affair() -> None:
    seen: list[object] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: seen.append(context["exception"]))
    loop.call_soon(functools.partial(struct.unpack, ">i", b""))
    await until(lambda: seen)
    assert isinstance(seen[0], struct.error)


@in_loop
async def test_the_garbage_collector() -> None:
    kept = [[index] for index in range(2_000_000)]
    gc.collect()
    assert turns().longest()["gc"].cpu_s > 0.002
    del kept


def test_a_loop_that_is_closed_hears_no_more_of_garbage() -> None:
    before = len(gc.callbacks)
    loop = MeasuredLoop()
    assert len(gc.callbacks) == before + 1
    loop.close()
    loop.close()
    assert len(gc.callbacks) == before


@in_loop
async def test_causes_by_where_a_function_stands(tmp_path: Path) -> None:
    async with node(tmp_path) as app:
        ticker = app.ticker
        assert cause_of(ticker._synced) == "tick"
        assert cause_of(ticker._deadlines._expire) == "timer"
        assert cause_of(ticker._again) == "timer"
        assert cause_of(ticker._retain) == "background"
    assert cause_of(len) == "other"
    supervised = asyncio.create_task(services.Services([])._supervise(None))  # type: ignore[arg-type]
    try:
        assert cause_of(supervised.__str__) == "plugin"
    finally:
        supervised.cancel()


def burns(request: KafkaRequest) -> bytes:
    burn()
    return b""


class Burning:
    api_version = API_VERSION

    @hookimpl
    def halfmoon_kafka_apis(self) -> list[KafkaApi]:
        return [KafkaApi(key=12_345, name="Burn", min_version=0, max_version=0, handler=burns)]


@in_loop
async def test_a_request_and_a_plugin_by_their_names_in_a_scrape(tmp_path: Path) -> None:
    async with node(tmp_path, Burning()) as app:
        assert app.kafka_address is not None
        assert app.http_address is not None

        def ask() -> None:
            with socket.create_connection(app.kafka_address, 5) as peer:  # type: ignore[arg-type]
                peer.sendall(framed(struct.pack(">hhih", 12_345, 0, 1, -1)))
                assert peer.recv(100)

        await asyncio.to_thread(ask)
        reader, writer = await asyncio.open_connection(*app.http_address)
        writer.write(b"GET /metrics HTTP/1.0\r\n\r\n")
        text = (await reader.read()).decode()
        writer.close()
        await writer.wait_closed()
    found = {
        line.rpartition(" ")[0]: float(line.rpartition(" ")[2])
        for line in text.splitlines()
        if line.startswith("halfmoon_loop_longest_turn")
    }
    assert found['halfmoon_loop_longest_turn_cpu_seconds{cause="plugin"}'] >= BURNT_S
    assert found['halfmoon_loop_longest_turn_seconds{cause="plugin"}'] >= BURNT_S


class Late:
    api_version = API_VERSION

    @hookimpl
    def halfmoon_started(self, ctx: object) -> None:
        burn()

    @hookimpl
    def halfmoon_stopping(self, ctx: object) -> None:
        burn()


@in_loop
async def test_a_start_and_a_stop_are_no_turns(tmp_path: Path) -> None:
    """Nobody waits then; and a warning at each start would be none."""
    async with node(tmp_path, Late()) as app:
        for _ in range(3):
            await asyncio.sleep(0)
        assert all(longest.cpu_s < BURNT_S for longest in app.turns.longest().values())
        assert not app.turns.paused
        asyncio.get_running_loop().call_soon(burn)
        await until(lambda: "other" in app.turns.longest())
        app.turns.forget()
    await asyncio.sleep(0)
    assert all(longest.cpu_s < BURNT_S for longest in turns().longest().values())


@in_loop
async def test_held_requests_are_woken_in_turns() -> None:
    """While a turn is short; each of these takes 3 ms."""
    hold = HoldService(HoldSettings())
    loop_turns = turns()
    wake_in_turns(hold, loop_turns)
    woken: list[int] = []

    def wake(number: int) -> None:
        until_s = time.perf_counter() + 0.003
        while time.perf_counter() < until_s:
            pass
        woken.append(number)

    for number in range(10):
        hold.park(Held(["p"], 1, 1_000, None, functools.partial(wake, number)), 0)
    at_once: list[int] = []
    asyncio.get_running_loop().call_soon(lambda: (hold.on_arrival("p", 1), at_once.append(len(woken))))
    await until(lambda: at_once)
    assert at_once[0] <= 2
    await until(lambda: len(woken) == 10)
    assert woken == list(range(10))
    assert loop_turns.longest()["tick"].wall_s >= 0.003
