"""Records as they are: idempotent producers, readers who look again at what they have seen, and views."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tests.torture.cast import Actor
from tests.torture.checks import check_topic
from tests.torture.model import Place, Sent, Violation
from tests.torture.net import LostError
from tests.torture.reader import NOT_NOW, Got, fetch, read_all

if TYPE_CHECKING:
    from tests.torture.world import World

PARTITIONS = 3
VIEWS = {
    "plain.even": {"halfmoon.view.source": "plain", "halfmoon.view.tag": "even"},
    "plain.third": {"halfmoon.view.source": "plain.even", "halfmoon.view.sql": "n = '0'"},
}
"""A view, and a view of that view."""
FILLS_S = 60.0
PRODUCERS = 2


class Plain(Actor):
    name = "plain"
    topic = "plain"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._client = world.client("plain-admin")
        self._views: list[str] = []

    async def prepare(self) -> None:
        await self.world.create(self._client, self.topic, PARTITIONS)
        self._views = list(VIEWS)[: self.dice.randint(0, len(VIEWS))]
        for name in self._views:
            await self.world.create(self._client, name, -1, **VIEWS[name])

    async def play(self) -> None:
        jobs = [self._produce(f"{self.topic}{number}") for number in range(PRODUCERS)] + [self._look()]
        await asyncio.gather(*jobs)

    async def _produce(self, name: str) -> None:
        world, dice = self.world, self.dice
        producer = await world.producer(name)
        number = 0
        while not world.ending:
            for _ in range(dice.randint(1, 4)):
                place = self.topic, dice.randrange(PARTITIONS)
                rows = []
                for _ in range(dice.randint(1, 4)):
                    number += 1
                    tag = dice.choice(["even", "odd"])
                    value = b"%s-%d " % (name.encode(), number) + b"." * dice.choice([0, 20, 3_000])
                    self.model.sent[value] = Sent(place, name, number, tag=tag)
                    headers = (("TAGS", tag.encode()), ("n", b"%d" % (number % 3)))
                    rows.append((b"%d" % (number % 5), value, headers))
                producer.send(*place, rows)
            await world.rest(1)
        await producer.flush()

    async def _look(self) -> None:
        """Here and there, from anywhere."""
        world, dice = self.world, self.dice
        client = world.client("looks")
        while not world.ending:
            place = self.topic, dice.randrange(PARTITIONS)
            known = self.model.ends[place]
            offset = dice.randrange(known + 1)
            try:
                page = await fetch(
                    client, place, offset, committed=dice.random() < 0.5, wait_ms=dice.choice([0, 0, 500]),
                    max_bytes=dice.choice([1, 1_000, 20_000]),
                )  # fmt: skip
            except LostError:
                continue
            if page.error and page.error not in NOT_NOW:
                raise Violation(f"{place} @{offset} is not above {self.model.ends[place]}, and got {page.error}")
            if not page.error:
                self.model.end(place, page.high_watermark, known)
                for got in page.records:
                    self.model.read(place, got.offset, got.value or b"", world.loop.now_s)
            await world.rest(0.3)

    async def check(self, last: bool) -> None:
        found = await check_topic(self.world, self._client, self.topic, PARTITIONS)
        for index, records in enumerate(found):
            even = [got for got in records if got.headers["TAGS"] == b"even"]
            wanted = {"plain.even": even, "plain.third": [got for got in even if got.headers["n"] == b"0"]}
            for name in self._views:
                await self._check_view((name, index), wanted[name])

    async def _check_view(self, place: Place, wanted: list[Got]) -> None:
        """It holds what matches, unchanged, in the order of its source, at the latest soon after the last record."""
        until_s = self.world.loop.now_s + FILLS_S
        expected = [(got.key, got.value, got.headers, got.timestamp) for got in wanted]

        def deadline() -> None:
            if self.world.loop.now_s > until_s + FILLS_S:
                raise Violation(f"{place}: not read in time")

        while True:
            _, records = await read_all(self._client, place, committed=False, deadline=deadline)
            found = [(got.key, got.value, got.headers, got.timestamp) for got in records]
            if found == expected:
                return
            if found != expected[: len(found)] or self.world.loop.now_s > until_s:
                same = sum(1 for a, b in zip(found, expected, strict=False) if a == b)
                raise Violation(f"{place} has {len(found)} records of {len(expected)}, {same} of them in place")
            await asyncio.sleep(1)
