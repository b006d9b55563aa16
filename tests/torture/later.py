"""Messages that are delivered later: once, to their partition, not before their time; and those that were cancelled."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tests.torture.cast import Actor
from tests.torture.checks import check_topic
from tests.torture.model import Sent, Violation, short
from tests.torture.net import LostError
from tests.torture.reader import Got, fetch

if TYPE_CHECKING:
    from tests.torture.producer import Producer
    from tests.torture.world import World

TOPIC, PARTITIONS = "later", 2
LEVELS_S = (1, 5, 10, 30)
LONGEST_S = 60
SLACK_S = 120.0


class Later(Actor):
    name = "later"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._client = world.client("later-admin")
        self._number = 0
        self._never_from: dict[bytes, dict[int, int]] = {}
        """What was cancelled, and from which offsets on, by partition, it is not to come."""
        self._last_due_s = 0.0
        self._last_due_ms = 0

    async def prepare(self) -> None:
        await self.world.create(self._client, TOPIC, PARTITIONS)

    async def play(self) -> None:
        watchers = [self.world.loop.create_task(self._watch(index)) for index in range(PARTITIONS)]
        await self._send()
        for watcher in watchers:
            watcher.cancel()

    async def _watch(self, index: int) -> None:
        """Sees what is delivered when it is delivered."""
        client = self.world.client(f"later-watch-{index}")
        place, at = (TOPIC, index), 0
        while True:
            try:
                page = await fetch(client, place, at, wait_ms=500)
            except LostError:
                continue
            except Violation as broken:
                self.world.violate(str(broken))
                return
            for got in page.records:
                try:
                    self.model.read(place, got.offset, got.value or b"", self.world.loop.now_s)
                except Violation as broken:
                    self.world.violate(str(broken))
            at = page.next_offset
            await asyncio.sleep(0.05)

    async def _send(self) -> None:
        world, dice = self.world, self.dice
        producer = await world.producer("later")
        cancels: list[asyncio.Task[None]] = []
        while not world.ending:
            place = TOPIC, dice.randrange(PARTITIONS)
            rows = []
            for _ in range(dice.randint(1, 4)):
                row = self._row(place)
                rows.append(row)
                if dice.random() < 0.1 and row[2]:
                    value = row[1]
                    self.model.sent[value].wanted = None
                    cancels.append(world.loop.create_task(self._cancel(producer, value)))
            producer.send(*place, rows)
            await world.rest(1.5)
        await producer.flush()
        if cancels:
            await asyncio.gather(*cancels)

    def _row(self, place: tuple[str, int]) -> tuple[bytes, bytes, list[tuple[str, bytes]]]:
        world, dice = self.world, self.dice
        self._number += 1
        value = b"l-%d " % self._number + b"." * dice.choice([0, 100, 2_000])
        sent = self.model.sent[value] = Sent(place, "later", self._number, ordered=False)
        now_s, wall_ms = world.loop.now_s, world.clock.wall_ms()
        headers: list[tuple[str, bytes]] = []
        kind = dice.random()
        delay_s = 0.0
        if kind < 0.4:
            delay_s = dice.choice([0.001, 0.5, 3, LONGEST_S]) * dice.uniform(0.1, 1)
            headers = [("TIMER_DELAY_MS", b"%d" % max(1, int(delay_s * 1000)))]
        elif kind < 0.6:
            level = dice.randint(1, len(LEVELS_S))
            delay_s = LEVELS_S[level - 1]
            headers = [("DELAY", b"%d" % level)]
        elif kind < 0.8:
            delay_s = dice.uniform(0, LONGEST_S)
            headers = [("TIMER_DELIVER_MS", b"%d" % (wall_ms + int(delay_s * 1000)))]
        if headers:
            sent.has_offset = False
            headers.append(("UNIQ_KEY", b"u-%d" % self._number))
            if not world.clock_is_set:
                sent.not_before_s = now_s + int(delay_s * 1000) / 1000 - 0.002
        else:
            sent.ordered = True
        self._last_due_s = max(self._last_due_s, now_s + delay_s)
        self._last_due_ms = max(self._last_due_ms, wall_ms + int(delay_s * 1000))
        return b"k", value, headers

    async def _cancel(self, producer: Producer, value: bytes) -> None:
        """Some time later. What comes behind the end that is seen then must not be it."""
        await self.world.rest(5)
        number = value.split()[0].removeprefix(b"l-")
        await producer.send(
            TOPIC, self.model.sent[value].place[1], [(None, None, [("TIMER_DEL_UNIQKEY", b"u-" + number)])]
        )
        ends: dict[int, int] = {}
        for index in range(PARTITIONS):
            while index not in ends:
                try:
                    page = await fetch(self._client, (TOPIC, index), self.model.ends[TOPIC, index])
                except LostError:
                    continue
                if page.error == 0:
                    ends[index] = page.high_watermark
                else:
                    await self.world.rest(0.5)
        self._never_from[value] = ends

    async def check(self, last: bool) -> None:
        world = self.world
        began_s = world.loop.now_s
        while True:
            found = await check_topic(world, self._client, TOPIC, PARTITIONS, complete=False)
            there = {got.value for records in found for got in records}
            missing = [
                value for value, sent in self.model.sent.items()
                if sent.place[0] == TOPIC and sent.wanted and value not in there
            ]  # fmt: skip
            if not missing:
                break
            due_s = self._last_due_s
            behind_s = (self._last_due_ms - world.clock.wall_ms()) / 1000
            if world.loop.now_s > max(due_s, began_s) + SLACK_S + world.largest_leap_s and behind_s < -SLACK_S:
                raise Violation(f"{TOPIC}: {len(missing)} are not delivered, {short(missing[0])} above all")
            await asyncio.sleep(min(600.0, max(5.0, due_s - world.loop.now_s, behind_s)))
        for index, records in enumerate(found):
            self._check_cancels(index, records)

    def _check_cancels(self, index: int, records: list[Got]) -> None:
        for got in records:
            ends = self._never_from.get(got.value or b"")
            if ends is not None and got.offset >= ends[index]:
                raise Violation(
                    f"{TOPIC}-{index} @{got.offset}: {short(got.value)} came after its cancel was acknowledged"
                )
