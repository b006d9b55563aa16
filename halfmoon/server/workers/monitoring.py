"""/healthz and /metrics of all workers: whoever is asked by HTTP asks the others. A node of a cluster tells of itself.

Each worker's metrics have its number as a label. What a group lags behind is worked out where the group is coordinated,
with the ends of partitions that their workers tell.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Protocol

from halfmoon.cluster.asking import Answers, Told, refused
from halfmoon.cluster.messages import AskEnds, AskHealth, AskMetrics, EndsFound, Health, MetricsText, Question
from halfmoon.errors import BrokerError, Fault
from halfmoon.server import readings
from halfmoon.server.monitoring import Monitoring
from halfmoon.server.progress_readings import UNKNOWN
from halfmoon.server.workers.tasks import resolve, soon

if TYPE_CHECKING:
    from halfmoon.server.reading_types import Readings
    from halfmoon.server.workers.links import Links
    from halfmoon.server.workers.open_shards import OpenShards
    from halfmoon.server.workers.place import Place

logger = logging.getLogger("halfmoon.server")

WAIT_S = 5.0
"""For another worker's part, …"""
ENDS_S = 2.0
"""… for which that one waits so long for ends of partitions."""

_SAMPLE = re.compile(rb"^([a-zA-Z_:][a-zA-Z0-9_:]*)(\{)?", re.MULTILINE)


class Worker(readings.App, Protocol):
    """worker.Worker."""

    shards: OpenShards
    place: Place
    answer: Callable[[Question, Told], None]
    """What others ask the process."""


class WorkersMonitoring(Monitoring):
    """Of one worker, as all of them are seen from there."""

    def __init__(self, worker: Worker, links: Links) -> None:
        super().__init__(worker)
        self._worker = worker
        self._links = links
        self._me = worker.place.me
        self._is_alone = worker.place.is_cluster

    async def health(self) -> tuple[list[str], list[str]]:
        problems, warnings = self._worker.health(), self._worker.warnings()
        if self._is_alone:
            return problems, warnings
        for process, answer in (await self._ask_all(AskHealth())).items():
            if isinstance(answer, Health):
                problems += answer.problems
                warnings += [each for each in answer.warnings if each not in warnings]
            else:
                problems.append(f"worker {process} does not answer")
        return problems, warnings

    async def metrics(self) -> bytes:
        if self._is_alone:
            return await self.own_metrics()
        others = asyncio.ensure_future(self._ask_all(AskMetrics()))
        texts = {self._me: await self.own_metrics()}
        for process, answer in (await others).items():
            if isinstance(answer, MetricsText):
                texts[process] = answer.text
        return await asyncio.get_running_loop().run_in_executor(self._thread, _together, texts)

    async def own_metrics(self) -> bytes:
        taken = await readings.take(self._worker)
        await self._complete(taken)
        return await self.render(taken)

    async def _complete(self, taken: Readings) -> None:
        """Ask for the ends of partitions that lie elsewhere and in which groups of this worker have progress."""
        front, owners = self._worker.shards.front, self._worker.place.owners
        by_name = front.catalog.by_name
        wanted: dict[int, set[tuple[int, int]]] = {}
        for group in taken.groups:
            for name, index, _, end in group.progress:
                topic = by_name.get(name)
                shard = -1 if topic is None else front.shard_of(topic, index)
                if end == UNKNOWN and topic is not None and shard >= 0:
                    wanted.setdefault(owners[shard], set()).add((topic.number, index))
        asked = {process: self._ask(process, AskEnds(sorted(places))) for process, places in wanted.items()}
        ends: dict[tuple[int, int], int] = {}
        for answer in (await _answers(asked, ENDS_S)).values():
            if isinstance(answer, EndsFound):
                ends.update({(number, index): end for number, index, end in answer.rows})
        for group in taken.groups:
            progress = []
            for name, index, committed, end in group.progress:
                if end == UNKNOWN:
                    topic = by_name.get(name)
                    end = ends.get((-1 if topic is None else topic.number, index), committed)
                progress.append((name, index, committed, end))
            group.progress[:] = progress

    def answers(self) -> Answers:
        """What this worker answers the others."""
        return {AskHealth: self._asked_health, AskMetrics: self._asked_metrics, AskEnds: self._asked_ends}

    def _asked_health(self, _: Question, told: Told) -> None:
        told(Health(self._worker.health(), self._worker.warnings()))

    def _asked_metrics(self, _: Question, told: Told) -> None:
        async def answer() -> None:
            try:
                text = await self.own_metrics()
            except Exception as error:
                logger.exception("event=metrics_failed")
                told(BrokerError(Fault.UNKNOWN_SERVER_ERROR, str(error)))
            else:
                told(MetricsText(text))

        soon(answer())

    def _asked_ends(self, question: AskEnds, told: Told) -> None:
        front = self._worker.shards.front
        rows = []
        for number, index in question.places:
            partition = front.catalog.partition(number, index)
            if partition is not None and front.find_kernel(partition) is not None:
                rows.append((number, index, partition.high_watermark))
        told(EndsFound(rows))

    def _ask(self, process: int, question: Question) -> asyncio.Future[object]:
        future: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        told = partial(resolve, future)
        if process == self._me:
            self._worker.answer(question, told)
        else:
            self._links.ask_process(process, question, told)
        return future

    async def _ask_all(self, question: Question) -> dict[int, object]:
        """All the others; None of those who do not answer in time."""
        found = await _answers({process: self._ask(process, question) for process in self._links.others()}, WAIT_S)
        return {process: None if refused(answer) else answer for process, answer in found.items()}


async def _answers(asked: Mapping[int, asyncio.Future[object]], limit_s: float) -> dict[int, object]:
    """By process; None of those who do not answer in time."""
    if asked:
        await asyncio.wait(asked.values(), timeout=limit_s)
    return {process: future.result() if future.done() else None for process, future in asked.items()}


def _together(texts: Mapping[int, bytes]) -> bytes:
    """Families with the samples of all, each with its worker's number."""
    families: dict[bytes, list[bytes]] = {}
    for process in sorted(texts):
        for head, samples in _families(texts[process]):
            families.setdefault(head, []).append(_SAMPLE.sub(partial(_labelled, process), samples))
    return b"".join(part for head, found in families.items() for part in (head, *found))


def _labelled(process: int, found: re.Match[bytes]) -> bytes:
    more = b"," if found[2] else b"}"
    return b'%s{worker="%d"%s' % (found[1], process, more)


def _families(text: bytes) -> Iterable[tuple[bytes, bytes]]:
    """(its lines of help and type, its samples)"""
    for block in re.split(rb"(?m)^(?=# HELP )", text):
        if block:
            lines = block.split(b"\n", 2)
            yield b"\n".join(lines[:2]) + b"\n", lines[2] if len(lines) > 2 else b""
