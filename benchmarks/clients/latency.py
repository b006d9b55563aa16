"""End to end: from before a message is sent until a waiting consumer has it. Plain sockets, one process, one clock."""

from __future__ import annotations

import asyncio
import struct
import time

import uvloop

from benchmarks.clients import topics, wire
from benchmarks.clients.numbers import summary

_CLOCK = struct.Struct(">d")
_MARK = b"at:"
ANSWER_LIMIT_S = 10.0


def latency(bootstrap: str, topic: str, count: int, rate: float | None = None) -> dict[str, float]:
    """`rate` messages of 100 bytes a second; None: the next leaves as soon as the one before has been delivered."""
    topics.create(bootstrap, topic)
    return uvloop.run(_Run(bootstrap, topic, count, rate).measure())


class _Run:
    def __init__(self, bootstrap: str, topic: str, count: int, rate: float | None) -> None:
        self.bootstrap = bootstrap
        self.topic = topic
        self.count = count
        self.rate = rate
        self.delivered_ms: list[float] = []
        self.acknowledged_ms: list[float] = []
        self.arrived = asyncio.Event()

    async def measure(self) -> dict[str, float]:
        sender = await wire.Asking.open(self.bootstrap)
        reader = await wire.Asking.open(self.bootstrap)
        following = asyncio.create_task(self._follow(reader))
        await asyncio.sleep(0.2)
        begun = time.perf_counter()
        for number in range(self.count):
            if self.rate is not None:
                await asyncio.sleep(max(0.0, begun + number / self.rate - time.perf_counter()))
            await self._send(sender)
        took_s = time.perf_counter() - begun
        await asyncio.wait_for(following, ANSWER_LIMIT_S)
        sender.close()
        reader.close()
        return {"msg_s": self.count / took_s, **summary(self.delivered_ms), **summary(self.acknowledged_ms, "ack_")}

    async def _send(self, sender: wire.Asking) -> None:
        at = time.perf_counter()
        value = _MARK + _CLOCK.pack(at)
        request = wire.produce(self.topic, [(0, wire.batch(value.ljust(100, b"x")))])
        self.arrived.clear()
        error, _offset = wire.produced(await sender.ask(request))
        self.acknowledged_ms.append((time.perf_counter() - at) * 1e3)
        if error:
            raise RuntimeError(f"Produce answers error {error}")
        if self.rate is None:
            await asyncio.wait_for(self.arrived.wait(), ANSWER_LIMIT_S)

    async def _follow(self, reader: wire.Asking) -> None:
        offset = 0
        while offset < self.count:
            got = wire.fetched(await reader.ask(wire.fetch(self.topic, 0, offset)))
            now = time.perf_counter()
            if got.error:
                raise RuntimeError(f"Fetch answers error {got.error}")
            for base_offset, batch in wire.batches_in(got.records):
                data = bytes(batch)
                (sent_at,) = _CLOCK.unpack_from(data, data.index(_MARK) + len(_MARK))
                self.delivered_ms.append((now - sent_at) * 1e3)
                offset = base_offset + 1
            if len(got.records) and offset >= len(self.acknowledged_ms):
                self.arrived.set()
