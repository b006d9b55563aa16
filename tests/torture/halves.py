"""Half messages: delivered once if they were committed, and never otherwise."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tests.torture.cast import Actor
from tests.torture.checks import check_topic
from tests.torture.model import Sent, Violation, short

if TYPE_CHECKING:
    from tests.torture.producer import Producer
    from tests.torture.world import World

TOPIC, ENDS, PARTITIONS = "halves", "halfmoon.transactions", 2
GIVEN_UP_S = 30.0
"""Whoever decides later than this may find that the broker has given up; it asks 15 times in 74 s."""


class Halves(Actor):
    name = "halves"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._client = world.client("halves-admin")
        self._number = 0

    async def prepare(self) -> None:
        await self.world.create(self._client, TOPIC, PARTITIONS)
        await self.world.create(self._client, ENDS, 1)

    async def play(self) -> None:
        world, dice = self.world, self.dice
        producer = await world.producer("halves")
        decisions: list[asyncio.Task[None]] = []
        while not world.ending:
            for _ in range(dice.randint(1, 3)):
                decisions.append(world.loop.create_task(self._one(producer)))
            await world.rest(1.5)
        await asyncio.gather(*decisions)
        await producer.flush()

    async def _one(self, producer: Producer) -> None:
        world, dice = self.world, self.dice
        self._number += 1
        number = self._number
        name = b"h-%d" % number
        value = name + b" " + b"." * dice.choice([0, 1_500])
        sent = self.model.sent[value] = Sent(
            (TOPIC, dice.randrange(PARTITIONS)), "halves", number, ordered=False, has_offset=False
        )
        sent.wanted = None
        headers = [("TRAN_MSG", b"true"), ("PGROUP", b"shop"), ("UNIQ_KEY", name)]
        began_s, leaps = world.loop.now_s, world.leaps
        await producer.send(*sent.place, [(b"k", value, headers)])
        await world.rest(3)
        fate = dice.choice(["commit", "commit", "rollback", "nothing"])
        if fate == "nothing":
            sent.wanted = False
            return
        if fate == "rollback":
            sent.wanted = False
        for _ in range(dice.choice([1, 1, 2])):
            said = [("PGROUP", b"shop"), ("UNIQ_KEY", name), ("TRAN_STATE", fate.encode())]
            await producer.send(ENDS, 0, [(None, b"", said)])
        if fate == "commit" and world.loop.now_s - began_s < GIVEN_UP_S and world.leaps == leaps:
            sent.wanted = True

    async def check(self, last: bool) -> None:
        began_s = self.world.loop.now_s
        while True:
            found = await check_topic(self.world, self._client, TOPIC, PARTITIONS, complete=False)
            there = {got.value for records in found for got in records}
            missing = [
                value for value, sent in self.model.sent.items()
                if sent.place[0] == TOPIC and sent.wanted and value not in there
            ]  # fmt: skip
            if not missing:
                return
            if self.world.loop.now_s > began_s + 60:
                raise Violation(f"{TOPIC}: {short(missing[0])} was committed, and is not delivered")
            await asyncio.sleep(2)
