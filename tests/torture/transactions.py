"""Transactions of Kafka's producers: readers of committed records get whole ones only, once; and read-process-write."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from tests.kafka_messages import struct_of
from tests.services.transactions.transaction_bench import transactional_batch
from tests.torture.cast import Actor
from tests.torture.model import Place, Sent, Violation, short
from tests.torture.net import Client, LostError
from tests.torture.producer import INIT, PRODUCE, asking
from tests.torture.reader import fetch, read_all

if TYPE_CHECKING:
    from tests.torture.world import World

ADD, ADD_GROUP, END, COMMIT_OFFSETS, OFFSET_FETCH = 24, 25, 26, 28, 9
NOT_NOW = {7, 14, 15, 16, 51, 56}
"""51: CONCURRENT_TRANSACTIONS, the one before is being ended."""
OVER = {45, 47, 48, 49, 53, 90, 120}
"""Somebody else has the id, or the transaction has timed out."""


def _code_of_partition(answer: Any) -> int:
    return int(answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code)


class FencedError(Exception):
    """This session is over."""


class Session:
    """One holder of a transactional id, from taking it."""

    def __init__(self, world: World, client: Client, name: str) -> None:
        self._world = world
        self._client = client
        self.name = name
        self._who: dict[str, Any] = {}
        self._id = (-1, -1)
        self._sequences: dict[Place, int] = {}
        self._added: set[Place | str] = set()

    async def _ask(self, key: int, version: int, code_of: Any, **fields: Any) -> Any:
        """Until it is answered. Raises FencedError."""
        while True:
            try:
                answer = await self._client.ask(key, version, **fields)
            except LostError:
                continue
            code = code_of(answer)
            if code == 0 or (key == PRODUCE and code == 46):
                return answer
            if code in OVER:
                raise FencedError(code)
            if code not in NOT_NOW:
                raise Violation(f"transactions: API {key} got {code}")
            await self._world.rest(0.5)

    async def take(self) -> None:
        answer = await self._ask(
            INIT, 4, lambda answer: answer.error_code, transactional_id=self.name, transaction_timeout_ms=60_000,
            producer_id=-1, producer_epoch=-1,
        )  # fmt: skip
        self._id = answer.producer_id, answer.producer_epoch
        self._who = {
            "transactional_id": self.name, "producer_id": answer.producer_id, "producer_epoch": answer.producer_epoch
        }  # fmt: skip
        self._sequences.clear()

    def begin(self) -> None:
        self._added.clear()

    async def send(self, place: Place, *values: bytes) -> None:
        if place not in self._added:
            topic = struct_of(ADD, "AddPartitionsToTxnTopic")(name=place[0], partitions=[place[1]])
            await self._ask(
                ADD, 3, _code_of_partition,
                v3_and_below_transactional_id=self.name, v3_and_below_producer_id=self._id[0],
                v3_and_below_producer_epoch=self._id[1], v3_and_below_topics=[topic],
            )  # fmt: skip
            self._added.add(place)
        sequence = self._sequences.get(place, 0)
        data = transactional_batch(*values, producer_id=self._id[0], epoch=self._id[1], sequence=sequence)
        await self._ask(
            PRODUCE, 9, lambda answer: answer.responses[0].partition_responses[0].error_code,
            **asking(place, bytes(data), self.name),
        )  # fmt: skip
        self._sequences[place] = sequence + len(values)

    async def progress(self, group: str, place: Place, offset: int) -> None:
        if group not in self._added:
            await self._ask(ADD_GROUP, 3, lambda answer: answer.error_code, group_id=group, **self._who)
            self._added.add(group)
        part = struct_of(COMMIT_OFFSETS, "TxnOffsetCommitRequestTopic.TxnOffsetCommitRequestPartition")(
            partition_index=place[1], committed_offset=offset, committed_leader_epoch=-1, committed_metadata=None
        )
        topic = struct_of(COMMIT_OFFSETS, "TxnOffsetCommitRequestTopic")(name=place[0], partitions=[part])
        await self._ask(
            COMMIT_OFFSETS, 3, lambda answer: answer.topics[0].partitions[0].error_code, group_id=group,
            generation_id=-1, member_id="", group_instance_id=None, topics=[topic], **self._who,
        )  # fmt: skip

    async def end(self, *, commit: bool) -> None:
        if self._added:
            await self._ask(END, 3, lambda answer: answer.error_code, committed=commit, **self._who)


class Transactions(Actor):
    """Producers that commit, abort, and lose their id to others in the middle of it."""

    name = "transactions"
    topic, partitions = "accounts", 3

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._client = world.client("transactions-admin")
        self._all: list[tuple[list[bytes], list[bool | None]]] = []
        """Each one's values, and whether it was committed; None where that is not known."""
        self._number = 0

    async def prepare(self) -> None:
        await self.world.create(self._client, self.topic, self.partitions)

    async def play(self) -> None:
        await asyncio.gather(*(self._produce(f"tx-{number % 2}", number) for number in range(3)))

    async def _produce(self, name: str, number: int) -> None:
        """Two of the three have the same id, and fence each other off."""
        world, dice = self.world, self.dice
        client = world.client(f"transactions-{number}")
        session = Session(world, client, name)
        fresh = False
        while not world.ending:
            if not fresh or dice.random() < 0.1:
                try:
                    await session.take()
                except FencedError:
                    continue
                fresh = True
            outcome: list[bool | None] = [False]
            values: list[bytes] = []
            self._all.append((values, outcome))
            session.begin()
            commit = dice.random() < 0.7
            try:
                for _ in range(dice.randint(1, 4)):
                    place = self.topic, dice.randrange(self.partitions)
                    some = []
                    for _ in range(dice.randint(1, 3)):
                        self._number += 1
                        value = b"a-%d " % self._number + b"." * dice.choice([0, 1_000])
                        self.model.sent[value] = Sent(place, name, self._number, ordered=False, wanted=None)
                        some.append(value)
                    values += some
                    await session.send(place, *some)
                    await world.rest(0.2)
                if dice.random() < 0.1:
                    fresh = False
                    continue  # left open; it times out, or whoever takes the id next aborts it
                if commit:
                    outcome[0] = None
                await session.end(commit=commit)
                if commit:
                    outcome[0] = True
            except FencedError:
                fresh = False
            await world.rest(1)

    async def check(self, last: bool) -> None:
        world = self.world
        if not last:
            await asyncio.sleep(75)  # what was left open times out
        there: set[bytes] = set()

        def deadline() -> None:
            if world.loop.now_s > until_s:
                raise Violation(f"{self.topic}: something holds its readers back")

        for index in range(self.partitions):
            until_s = world.loop.now_s + 120
            place = self.topic, index
            page, records = await read_all(self._client, place, committed=True, deadline=deadline)
            if page.stable != page.high_watermark:
                raise Violation(f"{place}: its last stable offset is {page.stable} of {page.high_watermark}")
            for got in records:
                assert got.value is not None
                self.model.read(place, got.offset, got.value, world.loop.now_s)
                if got.value in there:
                    raise Violation(f"{place} @{got.offset}: {short(got.value)} is there twice")
                there.add(got.value)
        for values, (outcome,) in self._all:
            found = sum(value in there for value in values)
            if found and outcome is False:
                raise Violation(f"{self.topic}: {found} of an aborted transaction are there, {short(values[0])}")
            if found != len(values) and (found or outcome is True):
                raise Violation(
                    f"{self.topic}: {found} of {len(values)} of a transaction are there: {short(values[0])}"
                )
        self.model.counts["transactions"] = len(self._all)


class Pipeline(Actor):
    """Reads jobs, writes results, and commits its progress with them: each job has one result, in order."""

    name = "pipeline"
    source, target, group, partitions = "jobs", "results", "pipeline", 2

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._client = world.client("pipeline-admin")
        self._fed = asyncio.Event()

    async def prepare(self) -> None:
        for topic in (self.source, self.target):
            await self.world.create(self._client, topic, self.partitions)

    async def play(self) -> None:
        workers = [
            self._work(index, copy) for index in range(self.partitions) for copy in range(self.dice.choice([1, 2]))
        ]
        await asyncio.gather(self._feed(), *workers)

    async def _feed(self) -> None:
        world, dice = self.world, self.dice
        producer = await world.producer("jobs")
        number = 0
        while not world.ending:
            place = self.source, dice.randrange(self.partitions)
            rows = []
            for _ in range(dice.randint(1, 5)):
                number += 1
                value = b"j-%d" % number
                self.model.sent[value] = Sent(place, "jobs", number)
                self.model.sent[b"r:" + value] = Sent((self.target, place[1]), "results", number)
                rows.append((None, value, ()))
            producer.send(*place, rows)
            await world.rest(1.5)
        await producer.flush()
        self._fed.set()

    async def _work(self, index: int, copy: int) -> None:
        """A worker; a second one of the same id takes it away, and loses it again."""
        world, dice = self.world, self.dice
        client = world.client(f"pipeline-{index}-{copy}")
        session = Session(world, client, f"pipeline-{index}")
        while True:
            if copy:
                await world.rest(6)
                if world.ending:
                    return
            try:
                await session.take()
                at = await self._progress(client, index)
                while await self._step(client, session, index, at):
                    at = await self._progress(client, index)
                    if copy and dice.random() < 0.3:
                        break
                else:
                    return
            except FencedError:
                await world.rest(2)

    async def _progress(self, client: Client, index: int) -> int:
        topic = struct_of(OFFSET_FETCH, "OffsetFetchRequestTopic")(name=self.source, partition_indexes=[index])
        while True:
            try:
                answer = await client.ask(OFFSET_FETCH, 7, group_id=self.group, topics=[topic], require_stable=True)
            except LostError:
                continue
            part = answer.topics[0].partitions[0]
            code = answer.error_code or part.error_code
            if not code:
                return max(0, int(part.committed_offset))
            if code not in (14, 15, 16, 88):  # 88: UNSTABLE_OFFSET_COMMIT
                raise Violation(f"pipeline: OffsetFetch got {code}")
            await self.world.rest(0.5)

    async def _step(self, client: Client, session: Session, index: int, at: int) -> bool:
        """One transaction; False when all is done."""
        world, dice = self.world, self.dice
        place = self.source, index
        while True:
            try:
                page = await fetch(client, place, at, committed=True, wait_ms=200, max_bytes=2_000)
            except LostError:
                continue
            if page.records:
                break
            if self._fed.is_set() and at >= self.model.ends[place] and page.error == 0:
                return False
            await world.rest(0.3)
        session.begin()
        some = page.records[: dice.randint(1, 8)]
        for got in some:
            self.model.read(place, got.offset, got.value or b"", world.loop.now_s)
        await session.send((self.target, index), *(b"r:" + (got.value or b"") for got in some))
        await session.progress(self.group, place, some[-1].offset + 1)
        await session.end(commit=dice.random() < 0.8)
        return True

    async def check(self, last: bool) -> None:
        world = self.world
        until_s = world.loop.now_s + 120

        def deadline() -> None:
            if world.loop.now_s > until_s:
                raise Violation(f"{self.target}: something holds its readers back")

        for index in range(self.partitions):
            _, jobs = await read_all(self._client, (self.source, index), committed=True, deadline=deadline)
            _, results = await read_all(self._client, (self.target, index), committed=True, deadline=deadline)
            wanted = [b"r:" + (got.value or b"") for got in jobs]
            found = [got.value or b"" for got in results]
            if found != wanted:
                raise Violation(f"{self.target}-{index}: {_difference(found, wanted)}")


def _difference(found: list[bytes], wanted: list[bytes]) -> str:
    same = next((at for at, pair in enumerate(zip(found, wanted, strict=False)) if pair[0] != pair[1]), len(found))
    some = slice(same, same + 3)
    return f"{len(found)} results of {len(wanted)} jobs; from {same} on {found[some]} instead of {wanted[some]}"


__all__ = ["Pipeline", "Transactions"]
