"""Topics that come and go, and records that are deleted: what is gone stays gone, and a new topic of an old name is
empty."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from tests.kafka_messages import struct_of
from tests.torture.cast import Actor
from tests.torture.checks import check_topic
from tests.torture.model import Sent, Violation
from tests.torture.net import LostError
from tests.torture.producer import GoneError

if TYPE_CHECKING:
    from tests.torture.world import World

METADATA, DELETE, DELETE_RECORDS = 3, 20, 21
NAMES, SWEPT, PARTITIONS = ("come", "go"), "swept", 2


class Topics(Actor):
    name = "topics"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._client = world.client("topics-admin")
        self._number = 0
        self._there: dict[str, bool | None] = dict.fromkeys(NAMES, False)
        """None: that is not known."""
        self._swept: dict[tuple[str, int], int] = {}
        """Answered: nothing below is there any more."""
        self._values: dict[str, list[bytes]] = {}

    async def prepare(self) -> None:
        await self.world.create(self._client, SWEPT, PARTITIONS)

    async def play(self) -> None:
        await asyncio.gather(self._sweep(), *(self._come_and_go(name) for name in NAMES))

    def _row(self, place: tuple[str, int], sender: str) -> tuple[None, bytes, tuple[()]]:
        self._number += 1
        value = b"s-%d " % self._number + b"." * self.dice.choice([0, 4_000])
        self.model.sent[value] = Sent(place, sender, self._number)
        return None, value, ()

    async def _sweep(self) -> None:
        world, dice = self.world, self.dice
        producer = await world.producer("swept")
        client = world.client("sweeper")
        while not world.ending:
            place = SWEPT, dice.randrange(PARTITIONS)
            producer.send(*place, [self._row(place, "swept") for _ in range(dice.randint(1, 4))])
            if dice.random() < 0.2:
                before = dice.randint(0, self.model.ends[place])
                # Asked for is as good as done: the answer may be lost.
                self.model.starts[place] = max(self.model.starts[place], before)
                await self._delete_records(client, place, before)
            await world.rest(1.5)
        await producer.flush()

    async def _delete_records(self, client: Any, place: tuple[str, int], before: int) -> None:
        part = struct_of(DELETE_RECORDS, "DeleteRecordsTopic.DeleteRecordsPartition")(
            partition_index=place[1], offset=before
        )
        topic = struct_of(DELETE_RECORDS, "DeleteRecordsTopic")(name=place[0], partitions=[part])
        while True:
            try:
                answer = await client.ask(DELETE_RECORDS, 2, topics=[topic], timeout_ms=10_000)
            except LostError:
                continue
            found = answer.topics[0].partitions[0]
            if found.error_code == 0:
                if found.low_watermark < before:
                    raise Violation(f"{place}: deleted below {before}, and begins at {found.low_watermark}")
                self._swept[place] = max(self._swept.get(place, 0), before)
                return
            if found.error_code not in (7, 56):
                raise Violation(f"{place}: DeleteRecords below {before} got {found.error_code}")
            await self.world.rest(0.5)

    async def _come_and_go(self, name: str) -> None:
        world, dice = self.world, self.dice
        client = world.client(name)
        while not world.ending:
            self._there[name] = None
            await world.create(client, name, PARTITIONS)
            self._there[name] = True
            self._values[name] = values = []
            for index in range(PARTITIONS):
                for table in (self.model.seen, self.model.acked, self.model.ends, self.model.starts):
                    table.pop((name, index), None)  # type: ignore[attr-defined]
            producer = await world.producer(f"{name}-{self._number}")
            for _ in range(dice.randint(1, 6)):
                place = name, dice.randrange(PARTITIONS)
                rows = [self._row(place, f"{name}-{self._number}") for _ in range(dice.randint(1, 4))]
                values += [value for _, value, _ in rows]
                producer.send(*place, rows)
                await world.rest(0.5)
            await producer.flush()
            if world.ending:
                return
            await self._delete(client, name)
            for value in values:
                del self.model.sent[value]
            await world.rest(1)

    async def _delete(self, client: Any, name: str) -> None:
        self._there[name] = None
        while True:
            try:
                answer = await client.ask(DELETE, 4, topic_names=[name], timeout_ms=10_000)
            except LostError:
                continue
            code = answer.responses[0].error_code
            if code in (0, 3):
                self._there[name] = False
                return
            if code not in (7, 56):
                raise Violation(f"{name}: DeleteTopics got {code}")
            await self.world.rest(0.5)

    async def check(self, last: bool) -> None:
        while True:
            try:
                answer = await self._client.ask(METADATA, 9, topics=None, allow_auto_topic_creation=False)
                break
            except LostError:
                continue
        names = {topic.name for topic in answer.topics}
        for name, there in self._there.items():
            if there is False and name in names:
                raise Violation(f"{name} was deleted, and is there")
            if there:
                if name not in names:
                    raise Violation(f"{name} was created, and is not there")
                await check_topic(self.world, self._client, name, PARTITIONS)
        for index, records in enumerate(await check_topic(self.world, self._client, SWEPT, PARTITIONS)):
            if records and records[0].offset < self._swept.get((SWEPT, index), 0):
                raise Violation(f"{SWEPT}-{index} @{records[0].offset} was deleted, and is there")


__all__ = ["GoneError", "Topics"]
