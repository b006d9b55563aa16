"""Consumers that wait for messages which do not come."""

from __future__ import annotations

import asyncio
import sys

import uvloop

from benchmarks.clients import topics, wire


def idle(bootstrap: str, topic: str, count: int) -> dict[str, float]:
    """`count` connections that fetch from the end of a quiet topic again and again, as consumers do.

    Prints a line when all of them wait, and stops when its standard input ends.
    """
    topics.create(bootstrap, topic)
    return {"fetches": float(uvloop.run(_wait(bootstrap, topic, count)))}


async def _wait(bootstrap: str, topic: str, count: int) -> int:
    request = wire.fetch(topic, 0, 0)
    fetches = 0

    async def one(connection: wire.Asking) -> None:
        nonlocal fetches
        while True:
            await connection.ask(request)
            fetches += 1

    connections = [await wire.Asking.open(bootstrap) for _ in range(count)]
    tasks = []
    for number, connection in enumerate(connections):
        tasks.append(asyncio.create_task(one(connection)))
        # Real consumers did not all start in the same instant either.
        if number % 20 == 0:
            await asyncio.sleep(wire.CONSUMER_WAIT_MS / 1000 * 20 / count)
    print("waiting", flush=True)
    await asyncio.to_thread(sys.stdin.read)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return fetches
