"""What a process tells monitoring does not wait for others that do not answer."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from halfmoon.cluster.messages import AskEnds, EndsFound
from halfmoon.server.progress_readings import UNKNOWN
from halfmoon.server.workers.monitoring import WAIT_S, WorkersMonitoring
from tests.cluster.engine.virtual import play

ME, OTHER, MUTE = 1, 2, 3


class Links:
    def ask_process(self, process: int, question: AskEnds, told: Any) -> None:
        if process == OTHER:
            told(EndsFound([(number, index, 20) for number, index in question.places]))


def monitoring() -> WorkersMonitoring:
    """Of a process whose groups read a topic of two partitions, which others have."""
    front = SimpleNamespace(
        catalog=SimpleNamespace(by_name={"t": SimpleNamespace(number=7)}), shard_of=lambda _topic, index: index
    )
    place = SimpleNamespace(me=ME, is_cluster=True, owners=[OTHER, MUTE])
    worker: Any = SimpleNamespace(shards=SimpleNamespace(front=front), place=place)
    links: Any = Links()
    return WorkersMonitoring(worker, links)


def test_ends_that_are_not_told_in_time_are_done_without() -> None:
    async def story() -> None:
        loop = asyncio.get_running_loop()
        taken: Any = SimpleNamespace(
            groups=[SimpleNamespace(progress=[("t", 0, 5, UNKNOWN), ("t", 1, 6, UNKNOWN), ("t", 1, 6, 9)])]
        )
        begun_s = loop.time()
        await monitoring()._complete(taken)
        # Another worker asks for these metrics, and waits so long.
        assert loop.time() - begun_s < WAIT_S - 1
        assert taken.groups[0].progress == [("t", 0, 5, 20), ("t", 1, 6, 6), ("t", 1, 6, 9)]

    play(story())
