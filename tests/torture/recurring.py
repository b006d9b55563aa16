"""Recurring messages: each time once, none before it or after a cancel, and none left out but what was missed."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from tests.torture.cast import Actor
from tests.torture.model import Sent, Violation
from tests.torture.net import LostError
from tests.torture.reader import Got, fetch, read_all

if TYPE_CHECKING:
    from tests.torture.producer import Producer
    from tests.torture.world import World

TOPIC, PARTITIONS = "recurring", 2
EVERY_S = (1, 2, 5, 15)
MISSED_MS = 60_000
"""plugins.schedule.missed_after."""
MOST = 6
READS_S = 300.0
SLACK_S = 120.0


class Asked(Struct):
    """A schedule, and what is known of it."""

    partition: int
    every_ms: int
    skips: bool
    began_ms: int
    """By the wall clock, when it was first asked for: nothing is sent for a time before."""
    exists: bool = False
    """That was acknowledged."""
    paused: bool = False
    """It was, at some time: what passed then is left out."""
    ends: bool = False
    """It was asked to be cancelled."""
    never_from: int | None = None
    """Its cancel was acknowledged: from this offset on it is not to come."""


class Recurring(Actor):
    name = "recurring"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._client = world.client("recurring-admin")
        self._asked: dict[str, Asked] = {}

    async def prepare(self) -> None:
        await self.world.create(self._client, TOPIC, PARTITIONS)

    async def play(self) -> None:
        world, dice = self.world, self.dice
        producer = await world.producer("recurring")
        while not world.ending:
            active = [name for name, asked in self._asked.items() if asked.exists and not asked.ends]
            stroke = dice.random()
            if len(self._asked) < MOST and (not active or stroke < 0.4):
                await self._create(producer, f"s{len(self._asked)}")
            elif active and stroke < 0.5:
                await self._cancel(producer, dice.choice(active))
            elif active and stroke < 0.6 and not world.clock_is_set:
                await self._pause(producer, dice.choice(active))
            elif active:  # as a program that is started again
                await self._create(producer, dice.choice(active))
            await world.rest(3)
        await producer.flush()

    async def _send(self, producer: Producer, name: str, value: bytes | None, **more: str) -> None:
        headers = [("SCHEDULE_NAME", name.encode())]
        headers += [(f"SCHEDULE_{key.upper()}", text.encode()) for key, text in more.items()]
        await producer.send(TOPIC, self._asked[name].partition, [(b"k", value, headers)])

    async def _create(self, producer: Producer, name: str) -> None:
        world, dice = self.world, self.dice
        asked = self._asked.get(name)
        if asked is None:
            every_ms = dice.choice(EVERY_S) * 1_000
            # The clock may be set back between the question and what the broker makes of it.
            began_ms = 0 if world.clock_is_set else world.clock.wall_ms()
            asked = Asked(dice.randrange(PARTITIONS), every_ms, dice.random() < 0.5, began_ms)
            self._asked[name] = asked
        value = b"r-%s " % name.encode()
        place = TOPIC, asked.partition
        self.model.sent[value] = Sent(place, "recurring", ordered=False, wanted=None, has_offset=False)
        cron = f"*/{asked.every_ms // 1_000} * * * * *"
        await self._send(producer, name, value, cron=cron, missed="skip" if asked.skips else "once")
        asked.exists = True

    async def _pause(self, producer: Producer, name: str) -> None:
        self._asked[name].paused = True
        await self._send(producer, name, None, state="paused")
        await self.world.rest(5)
        await self._send(producer, name, None, state="active")

    async def _cancel(self, producer: Producer, name: str) -> None:
        """What comes behind the end that is seen then must not be of it."""
        asked = self._asked[name]
        asked.ends = True
        await self._send(producer, name, None, state="cancelled")
        while asked.never_from is None:
            try:
                page = await fetch(self._client, (TOPIC, asked.partition), 0)
            except LostError:
                continue
            if page.error == 0:
                asked.never_from = page.high_watermark
            else:
                await self.world.rest(0.5)

    # -- what must hold ------------------------------------------------------------------------------------------------

    async def check(self, last: bool) -> None:
        world = self.world
        began_s = world.loop.now_s
        while True:
            found = [await self._read(index) for index in range(PARTITIONS)]
            silent = self._check(found)
            if not silent:
                return
            # One that was ahead of the clock is silent until that is as late again.
            if world.loop.now_s - began_s > SLACK_S + 2 * world.largest_leap_s:
                raise Violation(f"{TOPIC}: {silent} send nothing any more")
            await asyncio.sleep(20)

    async def _read(self, index: int) -> list[Got]:
        began_s = self.world.loop.now_s

        def deadline() -> None:
            if self.world.loop.now_s - began_s > READS_S:
                raise Violation(f"{TOPIC}: not read within {READS_S} s")

        _, records = await read_all(self._client, (TOPIC, index), committed=False, deadline=deadline)
        return records

    def _check(self, found: list[list[Got]]) -> list[str]:
        """Those that have not sent anything lately."""
        times: dict[str, list[tuple[int, Got]]] = {name: [] for name in self._asked}
        for index, records in enumerate(found):
            for got in records:
                name, at_ms = _said(got)
                asked = self._asked.get(name)
                if asked is None or asked.partition != index or got.value != b"r-%s " % name.encode():
                    raise Violation(f"{TOPIC}-{index} @{got.offset}: nobody has asked for {got}")
                times[name].append((at_ms, got))
        now_ms = self.world.clock.wall_ms()
        silent = []
        for name, asked in self._asked.items():
            _check_times(name, asked, times[name])
            newest_ms = times[name][-1][0] if times[name] else 0
            if asked.exists and not asked.ends and newest_ms < now_ms - asked.every_ms - 2_000:
                silent.append(name)
        return silent


def _said(got: Got) -> tuple[str, int]:
    headers: dict[str, Any] = got.headers
    try:
        return headers["halfmoon.schedule"].decode(), int(headers["halfmoon.schedule-time"])
    except (KeyError, AttributeError, ValueError):
        raise Violation(f"{TOPIC} @{got.offset}: {got} is of no schedule") from None


def _check_times(name: str, asked: Asked, times: list[tuple[int, Got]]) -> None:
    before_ms: int | None = None
    for at_ms, got in times:
        where = f"{TOPIC}-{asked.partition} @{got.offset}: {name} for {at_ms}"
        if at_ms % asked.every_ms:
            raise Violation(f"{where}: no such time")
        if at_ms <= asked.began_ms:
            raise Violation(f"{where}: it was asked for at {asked.began_ms}")
        if got.timestamp < at_ms:
            raise Violation(f"{where}: sent {at_ms - got.timestamp} ms too soon")
        if asked.skips and got.timestamp - at_ms > MISSED_MS:
            raise Violation(f"{where}: sent {got.timestamp - at_ms} ms late, and not skipped")
        if asked.never_from is not None and got.offset >= asked.never_from:
            raise Violation(f"{where}: sent after its cancel was acknowledged")
        if before_ms is not None:
            if at_ms <= before_ms:
                raise Violation(f"{where}: sent behind that of {before_ms}")
            newest_left_out_ms = at_ms - asked.every_ms
            if newest_left_out_ms > before_ms and not asked.paused and got.timestamp - newest_left_out_ms <= MISSED_MS:
                raise Violation(f"{where}: that of {newest_left_out_ms} was left out")
        before_ms = at_ms
