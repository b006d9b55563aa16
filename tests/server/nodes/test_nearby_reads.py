"""How a replica asks the leaders: which replica is named, who ends a wait, what becomes of those who do not answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from halfmoon.adapters.kafka.fetch_codec import FetchBody, Wanted
from halfmoon.adapters.kafka.nearby import NearResults
from halfmoon.cluster.engine.objects import StoreUnavailableError
from halfmoon.cluster.engine.placed import PieceGoneError
from halfmoon.cluster.reading_messages import AskPlaces, CannotRead, LookNow, Placed, PlacesFound
from halfmoon.config.settings import load_settings
from halfmoon.config.topic_configs import TopicConfigs
from halfmoon.core.catalog.topics import Partition, Topic
from halfmoon.core.storage.fetch_buffers import FetchBuffers
from halfmoon.errors import BrokerError, Fault
from halfmoon.schema import control
from halfmoon.server.nodes.nearby import ANSWER_S, ROWS, TRIES, NearbyReads
from tests.cluster.engine.virtual import play

ME = 9
BATCH = 100
"""Bytes of each."""


def partitions(count: int) -> list[Partition]:
    record = control.TopicCreated(7, "t", bytes(16), count, {})
    return Topic(record, TopicConfigs().resolve({}, load_settings({}, {}, {}))).partitions


class Leaders:
    """Nodes 1, 2, …: partition i is led by the node 1 + i modulo their number. Each has as many batches as is said."""

    def __init__(self, count: int, nodes: int, racks: Mapping[int, str] | None = None) -> None:
        self.partitions = partitions(count)
        self.nodes = nodes
        self.racks = racks or {}
        self.up = dict.fromkeys(range(1, nodes + 1), True)
        self.spared: set[int] = set()
        self.batches = [0] * count
        self.fault: dict[int, str] = {}
        self.silent: set[int] = set()
        """They do not answer."""
        self.refusing: set[int] = set()
        self.asked: list[tuple[int, AskPlaces]] = []
        self.others_told: list[tuple[int, Any]] = []
        self._waiting: dict[int, tuple[AskPlaces, Callable[[object], None]]] = {}
        self.fails: list[Exception] = []
        """What the next reads raise."""
        self.buffers = FetchBuffers(64 << 20)
        self.reads: Any = NearbyReads(
            ME, self, self, self.racks.get, self.spared.__contains__, self, self.buffers  # type: ignore[arg-type]
        )  # fmt: skip

    # As of Owners.

    def owner_of(self, partition: Partition) -> int:
        return 1 + partition.index % self.nodes

    def replicas_of(self, partition: Partition) -> Sequence[int]:
        owner = self.owner_of(partition)
        return [owner, *(node for node in range(1, self.nodes + 1) if node != owner)]

    # As of Others.

    def others(self) -> Mapping[int, bool]:
        return self.up

    def ask_process(self, process: int, question: Any, told: Callable[[object], None]) -> None:
        if isinstance(question, LookNow):
            self.others_told.append((process, question))
            waiting = self._waiting.pop(question.reader, None)
            if waiting is not None:
                waiting[1](self._answer(waiting[0]))
        elif isinstance(question, CannotRead):
            self.others_told.append((process, question))
        elif process in self.refusing:
            told(BrokerError(Fault.UNSUPPORTED_VERSION, "not known"))
        elif process not in self.silent:
            self.asked.append((process, question))
            answer = self._answer(question)
            size = sum(length for row in answer.rows for _, length in row.places)
            if question.wait_ms and size < question.min_bytes and not any(row.fault for row in answer.rows):
                self._waiting[question.reader] = question, told
                asyncio.get_running_loop().call_later(question.wait_ms / 1000, self._over, question.reader)
            else:
                told(answer)

    def _over(self, reader: int) -> None:
        waiting = self._waiting.pop(reader, None)
        if waiting is not None:
            waiting[1](self._answer(waiting[0]))

    def _answer(self, question: AskPlaces) -> PlacesFound:
        rows = []
        for _, index, *_ in question.rows:
            if index in self.fault:
                rows.append(Placed(self.fault[index]))
                continue
            count = self.batches[index]
            places = [(index * 10_000 + at * BATCH, BATCH) for at in range(count)]
            rows.append(Placed("", count, count, 0, None, index, places))
        return PlacesFound(rows, [(index, 0, 1 << 40, 0, 0, "key", 0) for index in range(len(self.batches))])

    def arrive(self, index: int, count: int) -> None:
        """Batches; who waits is told."""
        self.batches[index] = count
        for reader, (question, told) in list(self._waiting.items()):
            if any(row[1] == index for row in question.rows):
                del self._waiting[reader]
                told(self._answer(question))

    # As of PlacedReads.

    async def read(
        self, shard: int, pieces: Any, places: Sequence[tuple[int, int]], take: Callable[[int], memoryview]
    ) -> list[memoryview]:
        await asyncio.sleep(0.01)
        if self.fails:
            raise self.fails.pop(0)
        return [take(length) for _, length in places]

    # What is asked.

    def begin(self, min_bytes: int = 1, wait_ms: int = 0, max_bytes: int = 1 << 20) -> tuple[Any, asyncio.Future[Any]]:
        """All partitions; what ends the wait, and the results."""
        asked = [(each, Wanted(each.index, -1, 0, -1, 1 << 20)) for each in self.partitions]
        request = FetchBody(wait_ms, min_bytes, max_bytes, False, 0, -1, [], "here")
        results: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        return self.reads.read(asked, request, min_bytes, wait_ms, results.set_result), results

    async def look(self, **given: Any) -> NearResults:
        found: NearResults = await self.begin(**given)[1]
        return found

    def counts(self, results: NearResults) -> list[int | Fault]:
        """Batches of each partition, or why there are none."""
        found = [results[each] for each in self.partitions]
        return [len(each.batches) if each.fault is None else each.fault for each in found]


def test_a_replica_is_named_that_is_in_the_rack_and_connected_and_can_read() -> None:
    async def story() -> None:
        leaders = Leaders(6, 6, {1: "a", 2: "b", 3: "b", 4: "b", 5: "c"})
        preferred = [leaders.reads.preferred(each, "b") for each in leaders.partitions]
        assert set(preferred[:1] + preferred[4:]) <= {2, 3, 4}
        assert preferred[1:4] == [-1, -1, -1]
        assert len({preferred[0], preferred[4], preferred[5]}) > 1
        assert leaders.reads.preferred(leaders.partitions[0], "nowhere") == -1
        leaders.up[3] = False
        leaders.spared.add(4)
        assert [leaders.reads.preferred(each, "b") for each in leaders.partitions] == [2, -1, -1, -1, 2, 2]
        leaders.up[2] = False
        assert [leaders.reads.preferred(each, "b") for each in leaders.partitions] == [-1] * 6

    play(story())


def test_one_leader_is_asked_once() -> None:
    async def story() -> None:
        leaders = Leaders(3, 1)
        leaders.batches = [1, 0, 2]
        assert leaders.counts(await leaders.look(wait_ms=500)) == [1, 0, 2]
        assert [process for process, _ in leaders.asked] == [1]

    play(story())


def test_the_first_leader_that_has_enough_ends_the_wait_and_the_others_are_told() -> None:
    async def story() -> None:
        leaders = Leaders(3, 3)
        _, results = leaders.begin(wait_ms=30_000)
        await asyncio.sleep(1)
        assert not results.done()
        leaders.arrive(1, 4)
        assert leaders.counts(await results) == [0, 4, 0]
        await asyncio.sleep(0.1)
        assert sorted(process for process, told in leaders.others_told if isinstance(told, LookNow)) == [1, 3]
        assert not leaders._waiting

    play(story())


def test_what_leaders_have_together_counts() -> None:
    async def story() -> None:
        leaders = Leaders(2, 2)
        leaders.batches = [2, 2]
        assert leaders.counts(await leaders.look(min_bytes=4 * BATCH, wait_ms=30_000)) == [2, 2]
        leaders.asked.clear()
        _, results = leaders.begin(min_bytes=5 * BATCH, wait_ms=30_000)
        await asyncio.sleep(1)
        assert not results.done()
        leaders.arrive(0, 3)
        assert leaders.counts(await results) == [3, 2]

    play(story())


def test_a_wait_ends_with_what_there_is_after_its_time_or_when_that_is_wished() -> None:
    async def story() -> None:
        leaders = Leaders(2, 2)
        loop = asyncio.get_running_loop()
        begun_s = loop.time()
        assert leaders.counts(await leaders.look(wait_ms=5_000)) == [0, 0]
        assert 5 <= loop.time() - begun_s < 6
        hurry, results = leaders.begin(wait_ms=5_000)
        await asyncio.sleep(1)
        begun_s = loop.time()
        hurry()
        assert leaders.counts(await results) == [0, 0]
        assert loop.time() - begun_s < 1

    play(story())


@pytest.mark.parametrize("nodes", [1, 2])
def test_who_is_not_to_wait_from_the_start_is_told_what_there_is(nodes: int) -> None:
    async def story() -> None:
        leaders = Leaders(2, nodes)
        leaders.batches = [3, 2]
        begun_s = asyncio.get_running_loop().time()
        hurry, results = leaders.begin(min_bytes=1 << 20, wait_ms=5_000)
        hurry()
        assert leaders.counts(await results) == [3, 2]
        assert asyncio.get_running_loop().time() - begun_s < 1

    play(story())


@pytest.mark.parametrize("turns", range(6))
def test_a_wait_can_be_ended_at_any_moment(turns: int) -> None:
    async def story() -> None:
        leaders = Leaders(2, 2)
        hurry, results = leaders.begin(wait_ms=5_000)
        for _ in range(turns):
            await asyncio.sleep(0)
        begun_s = asyncio.get_running_loop().time()
        hurry()
        assert leaders.counts(await results) == [0, 0]
        assert asyncio.get_running_loop().time() - begun_s < 1

    play(story())


def test_a_leader_that_does_not_answer_is_taken_to_be_gone() -> None:
    async def story() -> None:
        leaders = Leaders(2, 2)
        leaders.batches = [1, 1]
        leaders.silent.add(2)
        loop = asyncio.get_running_loop()
        begun_s = loop.time()
        assert leaders.counts(await leaders.look()) == [1, Fault.NOT_LEADER_OR_FOLLOWER]
        assert loop.time() - begun_s < ANSWER_S + 0.5
        leaders.silent.clear()
        leaders.refusing.add(2)
        assert leaders.counts(await leaders.look()) == [1, Fault.NOT_LEADER_OR_FOLLOWER]

    play(story())


def test_very_many_partitions_are_asked_for_in_several_questions() -> None:
    async def story() -> None:
        leaders = Leaders(250, 1)
        leaders.batches = [1] * 250
        assert leaders.counts(await leaders.look()) == [1] * 250
        assert [len(asked.rows) for _, asked in leaders.asked] == [ROWS, ROWS, 250 - 2 * ROWS]
        leaders.silent.add(1)
        loop = asyncio.get_running_loop()
        begun_s = loop.time()
        assert leaders.counts(await leaders.look()) == [Fault.NOT_LEADER_OR_FOLLOWER] * 250
        assert loop.time() - begun_s < ANSWER_S + 0.5

    play(story())


def test_what_a_leader_refuses_ends_the_wait_at_once() -> None:
    async def story() -> None:
        leaders = Leaders(2, 2)
        leaders.fault[1] = Fault.OFFSET_OUT_OF_RANGE.name
        loop = asyncio.get_running_loop()
        begun_s = loop.time()
        assert leaders.counts(await leaders.look(wait_ms=30_000)) == [0, Fault.OFFSET_OUT_OF_RANGE]
        assert loop.time() - begun_s < 1
        leaders.fault[1] = "A_FAULT_THAT_THERE_WILL_BE"
        assert leaders.counts(await leaders.look(wait_ms=30_000)) == [0, Fault.NOT_LEADER_OR_FOLLOWER]

    play(story())


def test_leaders_are_asked_again_for_pieces_that_are_gone() -> None:
    async def story() -> None:
        leaders = Leaders(1, 1)
        leaders.batches = [3]
        leaders.fails = [PieceGoneError("gone")] * (TRIES - 1)
        assert leaders.counts(await leaders.look()) == [3]
        assert len(leaders.asked) == TRIES
        assert leaders.others_told == []
        leaders.fails = [PieceGoneError("gone")] * TRIES
        assert leaders.counts(await leaders.look()) == [Fault.KAFKA_STORAGE_ERROR]
        assert [told for _, told in leaders.others_told] == [CannotRead(ME)]

    play(story())


def test_what_cannot_be_read_is_told_as_that_and_the_rest_is_as_it_is() -> None:
    async def story() -> None:
        leaders = Leaders(2, 2)
        leaders.batches = [3, 0]
        for error in (StoreUnavailableError("away"), OSError("damaged")):
            leaders.fails = [error]
            assert leaders.counts(await leaders.look()) == [Fault.KAFKA_STORAGE_ERROR, 0]
        assert leaders.buffers.in_use_bytes == 0
        assert leaders.counts(await leaders.look()) == [3, 0]

    play(story())


def test_an_answer_takes_no_more_than_its_limit_and_its_part_of_the_memory() -> None:
    async def story() -> None:
        leaders = Leaders(3, 1)
        leaders.batches = [5, 5, 5]
        assert leaders.counts(await leaders.look(max_bytes=7 * BATCH)) == [5, 2, 0]
        assert leaders.counts(await leaders.look(max_bytes=BATCH // 2)) == [1, 0, 0]
        leaders.buffers.limit_bytes = 40 * BATCH
        taken = leaders.buffers.take(24 * BATCH)
        assert leaders.counts(await leaders.look()) == [4, 0, 0]
        leaders.buffers.limit_bytes = len(taken)
        _, results = leaders.begin()
        await asyncio.sleep(1)
        assert not results.done()
        del taken
        leaders.buffers.retry()
        assert leaders.counts(await results) == [1, 0, 0]

    play(story())
