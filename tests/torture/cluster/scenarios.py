"""What happens to a cluster in an order that is sure to meet one thing: each scenario plays it, and says what is wrong.

They are what finds the mutations (mutated.py). With nodes as they are, nothing is wrong.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient, NewTopic

from halfmoon.adapters.kafka.protocol import OffsetFetchRequest, ProduceRequest
from halfmoon.cluster.postgres import statements
from halfmoon.core.records.batches import build_batch
from halfmoon.errors import StartError
from halfmoon.schema.durability import DURABILITY
from halfmoon.testing.object_store import BUCKET
from halfmoon.testing.proxies import DOWN, UP
from tests.crash.load import QUICK
from tests.crash.serving import wait_until
from tests.fuzz.peer import ClosedError, Peer
from tests.server.asking import COMMITTED, NONE, PRODUCE, Asking
from tests.torture import histories
from tests.torture.cluster import mutated
from tests.torture.cluster.roles import FAST_SHARDS, OBJECT_SHARDS
from tests.torture.cluster.run import MODULE, never, told_by
from tests.torture.cluster.serving import PROGRAM, ServingCluster
from tests.torture.cluster.stored import check_frames, check_logs
from tests.torture.crew import Crew
from tests.torture.reading_back import read_back
from tests.torture.worker import JOBS

FAST, OBJECT = "fast", "object"
"""Topics with one partition on each shard of a durability."""
TOPICS = {FAST: FAST_SHARDS, OBJECT: OBJECT_SHARDS, JOBS: 8}
PAUSED, OTHERS = 1, (2, 3)
SOON_S = 20.0
WHOLE_S = 40.0
READS_S = 30.0


class Stage(Asking):
    """A cluster, what was acknowledged by it, and what is wrong."""

    def __init__(self, serving: ServingCluster, name: str) -> None:
        self.serving = serving
        self.name = name
        """Of the mutation; `none`."""
        self.acknowledged: list[tuple[str, int, str]] = []
        self.wrong: list[str] = []
        admin = AdminClient({"bootstrap.servers": serving.bootstrap, **QUICK})
        topics = [
            NewTopic(topic, count, 1, config={DURABILITY: OBJECT if topic == OBJECT else FAST})
            for topic, count in TOPICS.items()
        ]
        for future in admin.create_topics(topics, request_timeout=30).values():
            future.result(30)

    def address_of(self, number: int) -> tuple[str, int]:
        host, _, port = self.serving.nodes[number].bootstrap.rpartition(":")
        return host, int(port)

    def led_by(self, number: int, topic: str) -> list[int]:
        """Partitions."""
        found = asyncio.run(self.leaders(number, topic))
        return sorted(index for index, (leader, _) in found.items() if leader == number)

    def send(self, number: int, topic: str, index: int, value: str) -> bool:
        """By this node; whether it was acknowledged."""
        with contextlib.suppress(ClosedError, TimeoutError, OSError):
            if asyncio.run(self.produce(number, topic, index, value.encode())) == NONE:
                self.acknowledged.append((topic, index, value))
                return True
        return False

    def everywhere(self, topic: str, word: str, numbers: Sequence[int] = (PAUSED, *OTHERS)) -> None:
        """A record in each partition; these nodes are asked."""
        for index in range(TOPICS[topic]):
            value = f"{word}/{index}"
            wait_until(lambda i=index, v=value: self._sent(topic, i, v, numbers), SOON_S, f"{value} is acknowledged")

    def _sent(self, topic: str, index: int, value: str, numbers: Sequence[int]) -> bool:
        for number in numbers:
            leader, _ = asyncio.run(self.leaders(number, topic)).get(index, (-1, -1))
            if leader in numbers and self.send(leader, topic, index, value):
                return True
        return False

    def in_objects(self) -> bool:
        return not self.serving.tables.ask("select from wal limit 1")

    def all_taken(self, mine: dict[int, int]) -> bool:
        now = dict(self.serving.tables.ask("select shard, epoch from shard"))
        return all(now[shard] > epoch for shard, epoch in mine.items())

    def verdict(self) -> list[str]:
        """After the faults: what is acknowledged is there once, and the logs are whole."""
        serving = self.serving
        try:
            wait_until(serving.is_whole, WHOLE_S, "all nodes run, and have all shards")
            stored = read_back(serving.bootstrap, TOPICS, "read_uncommitted", limit_s=READS_S)
        except AssertionError as error:
            self.wrong.append(str(error))
        else:
            there = Counter(
                (topic, at, record.value)
                for topic, parts in stored.items() for at, part in enumerate(parts) for record in part
            )  # fmt: skip
            lost = [place for place in self.acknowledged if not there[place]]
            doubled = [place for place in self.acknowledged if there[place] > 1]
            self.wrong += [f"acknowledged and lost: {lost}"] * bool(lost)
            self.wrong += [f"there more than once: {doubled}"] * bool(doubled)
            feed = histories.lines_of(serving.folder / "feed.history")
            self.wrong += histories.check_sent(feed, stored[JOBS])
        self.wrong += serving.stop_all()
        self.wrong += never(told_by(map(serving.log_of, serving.nodes)))
        wrong, logs = check_logs(serving.tables, serving.folder / "store" / BUCKET)
        self.wrong += wrong
        self.wrong += check_frames(logs)[0]
        return self.wrong


@contextmanager
def feeding(stage: Stage) -> Iterator[Crew]:
    """Meanwhile somebody writes, and notes what was acknowledged."""
    crew = Crew(stage.serving.bootstrap, stage.serving.folder, {"feed": 1}, module=MODULE)
    crew.revive()
    try:
        wait_until(lambda: len(crew.history("feed")) > 100, SOON_S, "the producer writes")
        yield crew
    finally:
        crew.end()


def wakes_too_late(stage: Stage) -> None:
    """A node is paused; others take its shards, and are held up before they write. It wakes, and finds requests."""
    proxies = stage.serving.proxies

    def held_up() -> None:
        time.sleep(0.3)  # they know what there is, and read it from the store

    for number in OTHERS:
        proxies.spoil(f"store-{number}", "latency", DOWN, latency=2_500)
    _wakes(stage, held_up)
    for number in OTHERS:
        proxies.heal(f"store-{number}")


def wakes_long_after(stage: Stage) -> None:
    """The same, when the others have written, and brought what they wrote into objects."""

    def written() -> None:
        stage.everywhere(FAST, "meanwhile", OTHERS)
        wait_until(stage.in_objects, SOON_S, "rows are in objects")

    _wakes(stage, written)


def _wakes(stage: Stage, meanwhile: Callable[[], None]) -> None:
    serving = stage.serving
    stage.everywhere(FAST, "before")
    wait_until(stage.in_objects, SOON_S, "rows are in objects")
    indexes = stage.led_by(PAUSED, FAST)
    mine = serving.tables.epochs_of(PAUSED)
    serving.nodes[PAUSED].signal(signal.SIGSTOP)
    with ExitStack() as stack:
        stack.callback(serving.nodes[PAUSED].signal, signal.SIGCONT)
        peers = {index: stack.enter_context(Peer(stage.address_of(PAUSED))) for index in indexes}
        for index, peer in peers.items():
            peer.send(peer.request(PRODUCE, 7, **_producing(index, f"late/{index}")))
        wait_until(lambda: stage.all_taken(mine), SOON_S, "its shards are others'")
        meanwhile()
        serving.nodes[PAUSED].signal(signal.SIGCONT)
        for index, peer in peers.items():
            with contextlib.suppress(ClosedError, TimeoutError):
                answer = peer.answer(PRODUCE, 7, SOON_S)
                if answer.responses[0].partition_responses[0].error_code == NONE:
                    stage.acknowledged.append((FAST, index, f"late/{index}"))


def _producing(index: int, value: str) -> dict[str, Any]:
    topic = ProduceRequest.TopicProduceData
    records = build_batch([(None, value.encode(), 1_700_000_000_000, ())])
    data = [topic(name=FAST, partition_data=[topic.PartitionProduceData(index=index, records=records)])]
    return {"transactional_id": None, "acks": -1, "timeout_ms": 1_000, "topic_data": data}


def a_statement_comes_late(stage: Stage) -> None:
    """A commit was on its way for so long that its node has made it again, and others after it."""
    ask = stage.serving.tables.ask
    stage.everywhere(FAST, "first")
    rows = ask(
        "select shard.shard, epoch, start_position, wal.end_position, crc, segment, frames "
        "from wal join shard using (shard) where wal.end_position = shard.end_position and durability = 'fast'"
    )
    assert rows, "nothing is in rows"
    wait_until(stage.in_objects, SOON_S, "rows are in objects")
    stage.everywhere(FAST, "second")
    wait_until(stage.in_objects, SOON_S, "rows are in objects")
    statement = mutated.commit_statement(stage.name, statements.COMMIT_ROWS)
    for shard, epoch, start, end, crc, segment, frames in rows:
        ask(statement, [shard], [epoch], [start], [end], [shard], [start], [end], [crc], [segment], [frames])
    stage.everywhere(FAST, "third")


def dies_before_it_commits(stage: Stage) -> None:
    """A node is cut off from the database, is asked to write, and is killed."""
    serving = stage.serving
    stage.everywhere(FAST, "before")
    indexes = stage.led_by(PAUSED, FAST)
    for stream in (DOWN, UP):
        serving.proxies.spoil(f"database-{PAUSED}", "timeout", stream, timeout=0)
    stage.send(PAUSED, FAST, indexes[0], "never")
    serving.kill([PAUSED])
    serving.proxies.heal(f"database-{PAUSED}")


def tells_of_before(stage: Stage) -> None:
    """A coordinator is paused; the next one commits an offset. The first one wakes, and is asked for it."""
    serving = stage.serving
    stage.everywhere(FAST, "before")
    group = next(name for at in range(100) if asyncio.run(stage.coordinator(PAUSED, name := f"g{at}")) == PAUSED)
    assert asyncio.run(stage.commit(PAUSED, group, FAST, 0, 5)) == NONE
    mine = serving.tables.epochs_of(PAUSED)
    serving.nodes[PAUSED].signal(signal.SIGSTOP)
    wait_until(lambda: stage.all_taken(mine), SOON_S, "its shards are others'")

    def committed() -> bool:
        at = asyncio.run(stage.coordinator(OTHERS[0], group))
        return at in OTHERS and asyncio.run(stage.commit(at, group, FAST, 0, 9)) == NONE

    wait_until(committed, SOON_S, "the next coordinator takes offsets")
    asked = [OffsetFetchRequest.OffsetFetchRequestTopic(name=FAST, partition_indexes=[0])]
    with Peer(stage.address_of(PAUSED)) as peer, contextlib.suppress(ClosedError, TimeoutError):
        peer.send(peer.request(COMMITTED, 1, group_id=group, topics=asked))
        serving.nodes[PAUSED].signal(signal.SIGCONT)
        found = peer.answer(COMMITTED, 1, SOON_S).topics[0].partitions[0]
        if found.error_code == NONE and found.committed_offset != 9:
            stage.wrong.append(f"offset 9 was committed, and {found.committed_offset} is told")
    serving.nodes[PAUSED].signal(signal.SIGCONT)


def answers_are_lost(stage: Stage) -> None:
    """Commits are made, and nobody is told so."""
    with feeding(stage):
        for _ in range(4):
            for number in stage.serving.nodes:
                stage.serving.proxies.spoil(f"database-{number}", "limit_data", DOWN, bytes=0)
            time.sleep(0.3)
            for number in stage.serving.nodes:
                stage.serving.proxies.heal(f"database-{number}")
            time.sleep(1.5)


def moves_too_late(stage: Stage) -> None:
    """A node is paused until others have brought its rows into objects. It wakes, and does so, too."""
    with feeding(stage):
        for _ in range(3):
            stage.serving.nodes[PAUSED].signal(signal.SIGSTOP)
            time.sleep(11.0)
            stage.serving.nodes[PAUSED].signal(signal.SIGCONT)
            wait_until(lambda: bool(stage.led_by(PAUSED, JOBS)), SOON_S, "it has shards again")
            time.sleep(3.0)


def the_store_refuses(stage: Stage) -> None:
    stage.everywhere(OBJECT, "before")
    for number in stage.serving.nodes:
        stage.serving.proxies.refuse(f"store-{number}")
    for index in range(OBJECT_SHARDS):
        for number in stage.serving.nodes:
            if index in stage.led_by(number, OBJECT):
                stage.send(number, OBJECT, index, f"meanwhile/{index}")
    for number in stage.serving.nodes:
        stage.serving.proxies.heal(f"store-{number}")


SCENARIOS: Sequence[Callable[[Stage], None]] = (
    wakes_too_late, wakes_long_after, a_statement_comes_late, dies_before_it_commits, tells_of_before,
    answers_are_lost, moves_too_late, the_store_refuses,
)  # fmt: skip


def play(scenario: Callable[[Stage], None], folder: Path, name: str) -> list[str]:
    """With this mutation, or `none`; what is wrong."""
    program = PROGRAM if name == "none" else ("-m", "tests.torture.cluster.mutated", name)
    serving = ServingCluster(folder, program=program)
    try:
        with serving:
            serving.start_all()
            serving.wait_until_shared()
            stage = Stage(serving, name)
            try:
                scenario(stage)
            except AssertionError as error:
                stage.wrong.append(f"{scenario.__name__}: {error}")
            return stage.verdict()
    except StartError as error:
        return [f"{scenario.__name__}: {error}"]
