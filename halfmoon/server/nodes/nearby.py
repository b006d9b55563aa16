"""Partitions that other nodes lead, read for consumers of this node's rack (adapters/kafka/nearby.py).

The leader is asked where the batches stand (places.py); what stands there comes from the object store, from the
database, or from what was read before (cluster/engine/placed.py). So each answer rests on what the leader knew when it
was asked, and nothing is kept here that could become wrong. A fetch that waits, waits at the leaders: the first that
has enough ends the wait.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from halfmoon.adapters.kafka.fetch_reading import MAX_RESPONSE_BYTES
from halfmoon.adapters.kafka.nearby import NearFound, NearResults
from halfmoon.cluster.asking import nobody
from halfmoon.cluster.engine.database import DatabaseUnavailableError
from halfmoon.cluster.engine.objects import StoreUnavailableError
from halfmoon.cluster.engine.pieces import Piece
from halfmoon.cluster.engine.placed import PieceGoneError, Place
from halfmoon.cluster.reading_messages import NOT_HERE, AskPlaces, CannotRead, LookNow, Placed, PlacesFound
from halfmoon.core.transactions.aborted import Aborted
from halfmoon.errors import Fault, fault_named
from halfmoon.server.workers.tasks import resolve, soon

if TYPE_CHECKING:
    from halfmoon.adapters.kafka.fetch_codec import FetchBody, Wanted
    from halfmoon.cluster.asking import Told
    from halfmoon.cluster.engine.placed import PlacedReads
    from halfmoon.cluster.messages import Question
    from halfmoon.core.catalog.topics import Partition
    from halfmoon.core.storage.fetch_buffers import FetchBuffers

logger = logging.getLogger("halfmoon.cluster")

ANSWER_S: Final = 2.0
"""A leader that has not answered so long after it should have is taken to be gone."""
ROWS: Final = 100
"""Partitions in one question: two milliseconds for who answers, who gives others their turn then."""
TRIES: Final = 3
"""So often the leaders are asked where the batches stand, which may be brought elsewhere meanwhile."""
TOLD_S: Final = 5.0
"""The others are told so often that this node cannot read."""


class Owners(Protocol):
    """cluster/owners.ShardOwners."""

    def owner_of(self, partition: Partition) -> int: ...
    def replicas_of(self, partition: Partition) -> Sequence[int]: ...


class Others(Protocol):
    """server/workers/links.Links."""

    def ask_process(self, process: int, question: Question, told: Told) -> None: ...
    def others(self) -> Mapping[int, bool]: ...


class _Group(NamedTuple):
    """What one question asks."""

    process: int
    asked: Sequence[tuple[Partition, Wanted]]


class _Found(NamedTuple):
    """What a leader has told of a partition."""

    placed: Placed
    pieces: Sequence[Piece]
    """Of its shard."""

    @property
    def size(self) -> int:
        return sum(length for _, length in self.placed.places)

    def to_read(self, places: Sequence[Place]) -> Sequence[Place]:
        """Those of the first places that were not sent with the answer."""
        return places[: len(self.placed.places) - len(self.placed.batches)]

    def sent(self, places: Sequence[Place]) -> Sequence[memoryview]:
        """What of the first places was."""
        return self.placed.batches[: max(0, len(places) - len(self.to_read(places)))]

    @property
    def ends_the_wait(self) -> bool:
        return bool(self.placed.fault) or self.placed.diverging is not None


class NearbyReads:
    """See adapters/kafka/nearby.Elsewhere. In the loop."""

    def __init__(
        self,
        me: int,
        owners: Owners,
        others: Others,
        rack_of: Callable[[int], str | None],
        is_spared: Callable[[int], bool],
        placed: PlacedReads,
        buffers: FetchBuffers,
    ) -> None:
        """`rack_of`: a node; None: it has not said, or nobody knows it. `is_spared`: a node that cannot read now."""
        self.me = me
        self.owners = owners
        self.others = others
        self._rack_of = rack_of
        self._is_spared = is_spared
        self.placed = placed
        self.buffers = buffers
        self.readers = count()
        self._told_s = float("-inf")

    def preferred(self, partition: Partition, rack: str) -> int:
        replicas = self.owners.replicas_of(partition)
        if not replicas or self._rack_of(replicas[0]) == rack:
            return -1
        up = self.others.others()
        near = [
            node
            for node in replicas[1:]
            if self._rack_of(node) == rack and up.get(node, False) and not self._is_spared(node)
        ]
        # Spread, and the same one for all consumers of a partition: it has read what they want.
        return near[partition.index % len(near)] if near else -1

    def serves(self, partition: Partition) -> bool:
        return self.me in self.owners.replicas_of(partition)

    def read(
        self,
        asked: Sequence[tuple[Partition, Wanted]],
        request: FetchBody,
        min_bytes: int,
        wait_ms: int,
        told: Callable[[NearResults], None],
    ) -> Callable[[], None]:
        look = _Look(self, asked, request, min_bytes)
        soon(look.run(wait_ms, told))
        return look.hurry

    def cannot_read(self, error: Exception) -> None:
        """The leaders had better send nobody here."""
        now_s = asyncio.get_running_loop().time()
        if now_s - self._told_s >= TOLD_S:
            self._told_s = now_s
            logger.warning("event=nearby_read_failed error=%s", error)
            for process, is_up in self.others.others().items():
                if is_up:
                    self.others.ask_process(process, CannotRead(self.me), nobody)


class _Look:
    """One fetch's."""

    def __init__(
        self, nearby: NearbyReads, asked: Sequence[tuple[Partition, Wanted]], request: FetchBody, min_bytes: int
    ) -> None:
        self._nearby = nearby
        self._asked = asked
        self._request = request
        self._min_bytes = min_bytes
        self._most_bytes = min(request.max_bytes, MAX_RESPONSE_BYTES)
        self._waiting: dict[int, int] = {}
        """Reader → the process at which it waits."""
        self._in_a_hurry = False

    async def run(self, wait_ms: int, told: Callable[[NearResults], None]) -> None:
        try:
            results = await self._results(wait_ms)
        except Exception:
            logger.exception("event=nearby_read_failed")
            results = {}
        told(results)

    def hurry(self) -> None:
        """Wait no longer."""
        self._in_a_hurry = True
        for reader, process in self._waiting.items():
            self._nearby.others.ask_process(process, LookNow(self._nearby.me, reader), nobody)

    async def _results(self, wait_ms: int) -> NearResults:
        groups = self._groups()
        found: dict[Partition, _Found] = {}
        if wait_ms <= 0 or self._in_a_hurry or len(groups) > 1:
            await self._ask_all(groups, found)
        if wait_ms > 0 and not self._in_a_hurry and not self._is_enough(found):
            await self._wait(groups, found, wait_ms)
        for _ in range(TRIES):
            try:
                return await self._read(found)
            except PieceGoneError as error:
                gone = error
                await self._ask_all(groups, found)
            except (StoreUnavailableError, DatabaseUnavailableError, OSError) as error:
                return self._failed(found, error)
        return self._failed(found, gone)

    def _groups(self) -> list[_Group]:
        of_process: dict[int, list[tuple[Partition, Wanted]]] = {}
        for one in self._asked:
            of_process.setdefault(self._nearby.owners.owner_of(one[0]), []).append(one)
        return [
            _Group(process, some[at : at + ROWS])
            for process, some in of_process.items()
            for at in range(0, len(some), ROWS)
        ]

    def _is_enough(self, found: Mapping[Partition, _Found]) -> bool:
        size = sum(one.size for one in found.values())
        return size >= self._min_bytes or any(one.ends_the_wait for one in found.values())

    async def _ask_all(self, groups: Sequence[_Group], found: dict[Partition, _Found]) -> None:
        """What there is at once: of each leader one question after the other."""
        of_process: dict[int, list[_Group]] = {}
        for group in groups:
            of_process.setdefault(group.process, []).append(group)

        async def ask(some: Sequence[_Group]) -> None:
            answer: dict[Partition, _Found] = {}
            for group in some:
                # One that did not answer is not asked again.
                is_gone = any(one.placed is NOT_HERE for one in answer.values())
                answer = _nothing(group) if is_gone else await self._ask(group, 1, 0)
                found.update(answer)

        await asyncio.gather(*map(ask, of_process.values()))

    async def _wait(self, groups: Sequence[_Group], found: dict[Partition, _Found], wait_ms: int) -> None:
        """Until one of them has enough, or all have answered since the time is over."""
        missing = max(1, self._min_bytes - sum(one.size for one in found.values()))
        loop = asyncio.get_running_loop()
        waiting = set()
        for group in groups:
            known = sum(found[each].size for each, _ in group.asked if each in found)
            waiting.add(loop.create_task(self._ask(group, known + missing, wait_ms)))
        try:
            while waiting:
                done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                for one in done:
                    found.update(one.result())
                if self._is_enough(found):
                    return
        finally:
            self.hurry()  # those that wait for nothing any more
            for one in waiting:
                one.cancel()

    async def _ask(self, group: _Group, min_bytes: int, wait_ms: int) -> dict[Partition, _Found]:
        nearby, request, reader = self._nearby, self._request, next(self._nearby.readers)
        if self._in_a_hurry:
            wait_ms = 0
        rows = [
            (each.topic.number, each.index, one.offset, one.leader_epoch, one.last_epoch, one.max_bytes)
            for each, one in group.asked
        ]
        question = AskPlaces(
            nearby.me, reader, rows, request.read_committed, self._most_bytes, min_bytes, wait_ms
        )  # fmt: skip
        answer: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        if wait_ms:
            self._waiting[reader] = group.process
        try:
            async with asyncio.timeout(wait_ms / 1000 + ANSWER_S):
                nearby.others.ask_process(group.process, question, partial(resolve, answer))
                told = await answer
        except TimeoutError:
            told = None
        finally:
            self._waiting.pop(reader, None)
        if not isinstance(told, PlacesFound) or len(told.rows) != len(group.asked):
            # It is gone, or cannot be reached, or is of a version that does not know the question.
            return _nothing(group)
        pieces: dict[int, list[Piece]] = {}
        for shard, start, end, crc, segment, key, at in told.pieces:
            pieces.setdefault(shard, []).append(Piece(start, end, crc, segment, key, at))
        return {
            each: _Found(placed, pieces.get(placed.shard, ()))
            for (each, _), placed in zip(group.asked, told.rows, strict=True)
        }

    async def _read(self, found: Mapping[Partition, _Found]) -> NearResults:
        """As much as there is memory for, of the first ones. Raises PieceGoneError, StoreUnavailableError,
        DatabaseUnavailableError, OSError."""
        nearby = self._nearby
        left = min(self._most_bytes, nearby.buffers.allowance())
        taken: dict[Partition, list[Place]] = {}
        size = 0
        for partition, _ in self._asked:
            for place in found[partition].placed.places:
                if size and size + place[1] > left:
                    break
                taken.setdefault(partition, []).append(place)
                size += place[1]
        batches: Mapping[Partition, Sequence[memoryview]] = {}
        if size:
            await self._admitted(size)
            try:
                batches = await self._batches(found, taken)
            finally:
                nearby.buffers.loaded(size)
        return {partition: _found(one.placed, batches.get(partition, ())) for partition, one in found.items()}

    async def _batches(
        self, found: Mapping[Partition, _Found], taken: Mapping[Partition, Sequence[Place]]
    ) -> Mapping[Partition, Sequence[memoryview]]:
        """Those of one shard together, as one leader has told of them. Raises as `_read` does, once nothing is under
        way any more."""
        together: dict[tuple[int, int], list[Partition]] = {}
        for partition in taken:
            told = found[partition]
            together.setdefault((told.placed.shard, id(told.pieces)), []).append(partition)
        read, take = self._nearby.placed.read, self._nearby.buffers.take
        behind = {each: found[each].to_read(taken[each]) for each in taken}
        reads = [
            read(shard, found[some[0]].pieces, [place for each in some for place in behind[each]], take)
            for (shard, _), some in together.items()
        ]
        batches: dict[Partition, Sequence[memoryview]] = {}
        answers = await asyncio.gather(*reads, return_exceptions=True)
        for some, answer in zip(together.values(), answers, strict=True):
            if isinstance(answer, BaseException):
                raise answer
            at = 0
            for each in some:
                sent = found[each].sent(taken[each])
                batches[each] = [*answer[at : at + len(behind[each])], *(_copied(one, take) for one in sent)]
                at += len(behind[each])
        return batches

    async def _admitted(self, size: int) -> None:
        """There is memory for so much."""
        admitted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._nearby.buffers.admit(size, lambda: admitted.set_result(None))
        await admitted

    def _failed(self, found: Mapping[Partition, _Found], error: Exception) -> NearResults:
        self._nearby.cannot_read(error)
        failed = NearFound(Fault.KAFKA_STORAGE_ERROR)
        return {each: failed if one.placed.places else _found(one.placed, ()) for each, one in found.items()}


def _nothing(group: _Group) -> dict[Partition, _Found]:
    """Of a leader that is not there."""
    return {each: _Found(NOT_HERE, ()) for each, _ in group.asked}


def _copied(batch: memoryview, take: Callable[[int], memoryview]) -> memoryview:
    """Into memory that counts."""
    memory = take(len(batch))
    memory[:] = batch
    return memory


def _found(placed: Placed, batches: Sequence[memoryview]) -> NearFound:
    fault = fault_named(placed.fault, Fault.NOT_LEADER_OR_FOLLOWER) if placed.fault else None
    ends = placed.high_watermark, placed.stable_offset, placed.start_offset
    return NearFound(fault, *ends, placed.diverging, batches, [Aborted(*each) for each in placed.aborted])
