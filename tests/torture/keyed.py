"""A compacted topic: the last record of each key stays, whatever the cleaner, crashes and the clock do."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tests.torture.cast import Actor
from tests.torture.checks import check_topic
from tests.torture.model import Sent, Violation, short

if TYPE_CHECKING:
    from tests.torture.world import World

TOPIC, PARTITIONS, KEYS = "keyed", 2, 7


class Keyed(Actor):
    name = "keyed"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._client = world.client("keyed-admin")
        self._last: dict[tuple[int, bytes], bytes | None] = {}
        """By partition and key: the last value, None for a tombstone."""

    async def prepare(self) -> None:
        self.model.compacted.add(TOPIC)
        configs = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.1", "delete.retention.ms": "60000"}
        await self.world.create(self._client, TOPIC, PARTITIONS, **configs)

    async def play(self) -> None:
        world, dice = self.world, self.dice
        producer = await world.producer("keyed")
        number = 0
        while not world.ending:
            for _ in range(dice.randint(1, 4)):
                place = TOPIC, dice.randrange(PARTITIONS)
                rows = []
                for _ in range(dice.randint(1, 6)):
                    number += 1
                    key = b"key-%d" % dice.randrange(KEYS)
                    value = None if dice.random() < 0.1 else b"k-%d " % number + b"." * dice.choice([10, 3_000])
                    if value is not None:
                        self.model.sent[value] = Sent(place, "keyed", number, key=key)
                    self._last[place[1], key] = value
                    rows.append((key, value, ()))
                producer.send(*place, rows)
            await world.rest(1)
        await producer.flush()
        await asyncio.sleep(40)  # the cleaner looks around

    async def check(self, last: bool) -> None:
        found = await check_topic(self.world, self._client, TOPIC, PARTITIONS)
        newest: dict[tuple[int, bytes], bytes | None] = {}
        for index, records in enumerate(found):
            for got in records:
                assert got.key is not None
                if got.value is not None and self.model.sent[got.value].key != got.key:
                    raise Violation(f"{TOPIC}-{index} @{got.offset}: another key's value")
                newest[index, got.key] = got.value
        for place, value in self._last.items():
            if newest.get(place) != value:
                raise Violation(
                    f"{TOPIC} {place}: the last value is {short(newest.get(place))}, {short(value)} was sent"
                )
        self.model.counts["compacted away"] = len(self.model.sent) - sum(map(len, found))
