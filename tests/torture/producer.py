"""An idempotent producer, as the clients' libraries have it: batches in order, several in the air, again until they are
acknowledged."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import Struct

from halfmoon.core.records.batches import build_batch
from tests.kafka_messages import struct_of
from tests.torture.loop import VirtualLoop
from tests.torture.model import Model, Place, Violation, short
from tests.torture.net import Client, LostError

PRODUCE, INIT = 0, 22
IN_FLIGHT = 5
NOT_NOW = {6, 7, 14, 15, 16, 19, 20, 56, 89}
"""Errors after which a client sends the same again."""
UNKNOWN_TOPIC, OUT_OF_ORDER, DUPLICATE = 3, 45, 46
CODECS = (0, 0, 0, 1, 2, 3, 4)

Row = tuple[bytes | None, bytes | None, Sequence[tuple[str, bytes]]]
"""Key, value, headers."""


class GoneError(Exception):
    """The topic does not exist."""


class _Batch(Struct):
    values: list[bytes | None]
    data: bytes
    done: asyncio.Future[int]


class _Lane:
    """One partition: its batches that are not acknowledged, in order."""

    def __init__(self) -> None:
        self.sequence = 0
        self.waiting: deque[_Batch] = deque()
        self.task: asyncio.Task[None] | None = None


class Producer:
    """`send` may be called again before the one before is answered."""

    def __init__(self, client: Client, model: Model, loop: VirtualLoop, now_ms: Any) -> None:
        self._client = client
        self._model = model
        self._loop = loop
        self._dice: random.Random = loop.dice
        self._now_ms = now_ms
        self._id: tuple[int, int] | None = None
        self._lanes: dict[Place, _Lane] = {}

    async def begin(self) -> None:
        """Take a producer id."""
        while self._id is None:
            try:
                answer = await self._client.ask(
                    INIT, 4, transactional_id=None, transaction_timeout_ms=60_000, producer_id=-1, producer_epoch=-1
                )
            except LostError:
                continue
            if answer.error_code == 0:
                self._id = answer.producer_id, answer.producer_epoch
            else:
                await asyncio.sleep(0.1)

    def send(self, topic: str, partition: int, rows: Iterable[Row], codec: int | None = None) -> asyncio.Future[int]:
        """The base offset, once it is stored; GoneError where the topic is gone. What is sent is known to the model."""
        assert self._id is not None
        place = topic, partition
        lane = self._lanes.setdefault(place, _Lane())
        rows = list(rows)
        now_ms = self._now_ms()
        data = build_batch(
            [(key, value, now_ms, headers) for key, value, headers in rows],
            producer_id=self._id[0], producer_epoch=self._id[1], base_sequence=lane.sequence,
            codec=self._dice.choice(CODECS) if codec is None else codec,
        )  # fmt: skip
        lane.sequence += len(rows)
        batch = _Batch([value for _, value, _ in rows], data, self._loop.create_future())
        lane.waiting.append(batch)
        if lane.task is None or lane.task.done():
            lane.task = self._loop.create_task(self._work(place, lane))
        return batch.done

    async def flush(self) -> None:
        """Until all is acknowledged."""
        for lane in list(self._lanes.values()):
            if lane.task is not None:
                await lane.task

    async def _work(self, place: Place, lane: _Lane) -> None:
        while lane.waiting:
            await self._client.connect()
            flying = list(lane.waiting)[: self._dice.randint(1, IN_FLIGHT)]
            answers = [self._client.begin(PRODUCE, 9, **_asking(place, batch.data)) for batch in flying]
            for number, (batch, answer) in enumerate(zip(flying, answers, strict=True)):
                try:
                    (found,) = (await self._client.wait(answer)).responses[0].partition_responses
                except LostError:
                    break
                if found.error_code in (0, DUPLICATE):
                    if lane.waiting[0] is batch:
                        self._stored(place, lane, found.base_offset if found.error_code == 0 else -1)
                    elif batch in lane.waiting:
                        raise Violation(f"{place}: a batch was stored, and not the one before it")
                elif found.error_code == UNKNOWN_TOPIC:
                    self._gone(lane)
                    return
                elif found.error_code == OUT_OF_ORDER and number > 0 and lane.waiting[0] is not batch:
                    self._model.counts["out of order behind another"] += 1
                elif found.error_code in NOT_NOW:
                    self._model.counts[f"produce answered {found.error_code}"] += 1
                else:
                    raise Violation(
                        f"{place}: Produce of {short(batch.values[0])} got {found.error_code} {found.error_message}"
                    )
            if lane.waiting and lane.waiting[0] in flying:
                await asyncio.sleep(self._dice.uniform(0.01, 1.5))

    def _stored(self, place: Place, lane: _Lane, base: int) -> None:
        batch = lane.waiting.popleft()
        self._model.stored(place, base, batch.values)
        batch.done.set_result(base)

    def _gone(self, lane: _Lane) -> None:
        while lane.waiting:
            done = lane.waiting.popleft().done
            done.set_exception(GoneError())
            done.exception()


def _asking(place: Place, data: bytes, transactional_id: str | None = None) -> dict[str, Any]:
    part = struct_of(PRODUCE, "TopicProduceData.PartitionProduceData")(index=place[1], records=data)
    topic = struct_of(PRODUCE, "TopicProduceData")(name=place[0], partition_data=[part])
    return {"transactional_id": transactional_id, "acks": -1, "timeout_ms": 30_000, "topic_data": [topic]}


asking = _asking
