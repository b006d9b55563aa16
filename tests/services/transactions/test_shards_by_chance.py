"""Transactions across shards, and everything that can go wrong: processes die, messages are lost, late or come twice.

Each transaction of a client writes a value of its own to some partitions, and its number as its group's progress. What
readers of committed records see is compared with what clients were told.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from itertools import product

import pytest

from halfmoon.cluster.messages import Question
from halfmoon.cluster.placement import coordinator_of
from halfmoon.errors import BrokerError, Fault
from halfmoon.services.transactions import prepared, remote
from halfmoon.testing.faulty_files import ProcessDied
from tests.core.deaths import told as in_case
from tests.services.transactions.shards_bench import SHARDS, WORKERS, Attempt, Cluster, SpreadClient, name_in

TIMEOUT_MS = 20_000
PARTITIONS = 2 * SHARDS
OPEN_AGAIN_MS = max(remote.UNANSWERED_MS, prepared.UNANSWERED_MS)


class Written:
    """A transaction, as its client knows it."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.places: set[int] = set()
        """Partitions in which all that it wrote was acknowledged."""
        self.has_offsets = False
        self.asked: bool | None = None
        """What it asked for, if it did: to commit?"""
        self.told = False
        """It was told that it ended so."""

    def value(self, name: str) -> bytes:
        return b"%s-%d" % (name.encode(), self.number)


class Client(SpreadClient):
    def __init__(self, cluster: Cluster, name: str, group: str, *, bumps: bool) -> None:
        super().__init__(cluster, name, bumps=bumps, timeout_ms=TIMEOUT_MS)
        self.group = group
        self.written: list[Written] = []
        self.steps: Iterator[None] | None = None

    def go_on(self, dice: random.Random) -> None:
        """One step of its life; it may be to wait."""
        if self.steps is None:
            self.steps = self._live(dice)
        next(self.steps)

    def _live(self, dice: random.Random) -> Iterator[None]:
        while True:
            while not self._take_id():
                yield
            while (yield from self._transact(dice)):
                pass

    def _take_id(self) -> bool:
        node = self.cluster.nodes.get(self.shard)
        if node is None:
            return False
        try:
            identity, _ = node.transactions.init_producer_id(self.name, self.timeout_ms, None)
        except BrokerError as error:
            if error.fault is not Fault.CONCURRENT_TRANSACTIONS:
                raise
            return False
        self.become(identity)
        return True

    @property
    def shard(self) -> int:
        return coordinator_of(self.name, SHARDS)

    def _transact(self, dice: random.Random) -> Iterator[None]:
        """Returns whether the producer can go on as it is."""
        now = Written(len(self.written))
        self.written.append(now)
        wanted = dice.sample(range(PARTITIONS), dice.randint(1, 4))
        for index in wanted:
            yield
            attempt = self._try(lambda index=index: self.begin_send("t", now.value(self.name), index=index))
            if not (yield from self._succeeds(attempt)):
                return False
            now.places.add(index)
        attempt = self._try(lambda: self.begin_commit_offsets(self.group, "t", now.number))
        if not (yield from self._succeeds(attempt)):
            return False
        now.has_offsets = True
        if dice.random() < 0.1:
            return False  # it dies
        now.asked = dice.random() < 0.7
        for _ in range(dice.choice([0, 0, 1, 5])):
            yield
        return (yield from self._end(now))

    def _end(self, now: Written) -> Iterator[None]:
        if self.shard not in self.cluster.nodes:
            return False
        node = self.coordinator
        try:
            assert now.asked is not None
            told = self.begin_end(commit=now.asked)
        except BrokerError:
            now.asked = None  # it has ended otherwise
            return False
        while not told:
            if self.cluster.nodes.get(self.shard) is not node:
                return False
            yield
        now.told = told == [None]
        return now.told

    def _try(self, begin: Callable[[], Attempt]) -> Attempt | None:
        try:
            return begin()
        except (BrokerError, KeyError):  # refused, or nobody is there
            return None

    def _succeeds(self, attempt: Attempt | None) -> Iterator[None]:
        while attempt is not None and not attempt.is_durable:
            if attempt.error is not None or attempt.node not in self.cluster.nodes.values():
                return False
            yield
        return attempt is not None


def check(cluster: Cluster, clients: list[Client], *, is_over: bool) -> None:
    seen = {value for index in range(PARTITIONS) for value in cluster.committed("t", index)}
    for index in range(PARTITIONS):
        values = cluster.committed("t", index)
        assert len(values) == len(set(values)), "twice"
        assert not is_over or cluster.is_decided("t", index), f"t-{index} is open for ever"
    for client in clients:
        last = None
        for now in client.written:
            value = now.value(client.name)
            counts = value in seen
            if counts:
                assert now.asked, f"{value!r} was not to be committed"
            if not is_over:
                continue
            if now.told:
                assert counts == now.asked, f"{value!r}, told that it ended so: {now.asked}"
            if counts:
                last = now.number
                for index in now.places:
                    assert value in cluster.committed("t", index), f"half of {value!r}"
        if is_over:
            assert cluster.offset(client.group, "t") == last, "progress goes with the records"
            assert cluster.unstable(client.group) == 0


def finish(cluster: Cluster, clients: list[Client]) -> None:
    """All that is wrong ends, and time passes."""
    cluster.network.lost = lambda question: ""
    cluster.network.held = set()
    for worker in range(WORKERS):
        if not cluster.is_up(worker):
            cluster.start(worker)
    cluster.run()
    for _ in range(4):
        cluster.pass_time(max(TIMEOUT_MS, OPEN_AGAIN_MS))
    check(cluster, clients, is_over=True)
    for node in cluster.nodes.values():
        state = node.state.transactions
        assert not state.prepared
        assert not state.ongoing
        assert not state.pending
        assert not state.remote


def settings_of(cluster: Cluster) -> list[Client]:
    cluster.topic("t", [*range(SHARDS)] * 2)
    cluster.run()
    clients = []
    for at, (shard, bumps) in enumerate(product(range(SHARDS), (True, False))):
        name, group = name_in(shard, "xy"[bumps]), name_in((shard + at) % SHARDS, f"g{at}-")
        clients.append(Client(cluster, name, group, bumps=bumps))
    return clients


@pytest.mark.parametrize("seed", range(40))
def test_whatever_goes_wrong(seed: int) -> None:
    cluster = Cluster(seed)
    clients = settings_of(cluster)
    dice = random.Random(seed)
    bad = dice.choice([0.0, 0.02, 0.1])

    def lost(question: Question) -> str:
        return dice.choice(["question", "answer", "silence", "twice"]) if dice.random() < bad else ""

    cluster.network.lost = lost
    for _ in range(400):
        for client in dice.sample(clients, 3):
            client.go_on(dice)
        if dice.random() < 0.7:
            cluster.work()
        for _ in range(dice.randint(0, 3)):
            cluster.network.step()
        happens = dice.random()
        if happens < bad / 3:
            worker = dice.randrange(WORKERS)
            if cluster.is_up(worker):
                cluster.kill(worker, power_loss=dice.random() < 0.5)
        elif happens < 0.1:
            for worker in range(WORKERS):
                if not cluster.is_up(worker):
                    cluster.start(worker)
        elif happens < 0.14:
            cluster.network.held = {lane for lane in ((0, 1), (1, 0)) if dice.random() < 0.2}
        elif happens < 0.3:
            cluster.clock.now_ms += dice.choice([10, 600, 600, 3_000])
            for node in list(cluster.nodes.values()):
                node.transactions.expire(cluster.clock.now_ms)
                node.relays.expire(cluster.clock.now_ms)
    ended = sum(now.told for client in clients for now in client.written)
    finish(cluster, clients)
    assert ended, "something went on meanwhile"


# -- a process that dies at any operation of one of its disks ----------------------------------------------------------


class World:
    def __init__(self, seed: int) -> None:
        self.cluster = Cluster(seed)
        self.clients = settings_of(self.cluster)[:2]
        for client in self.clients:
            client._take_id()
        self.cluster.run()

    def play(self) -> None:
        dice = random.Random(5)
        for client in self.clients:
            client.steps = client._transact(dice)
        for _ in range(60):
            for client in self.clients:
                if client.steps is not None and next(client.steps, "over") == "over":
                    client.steps = client._transact(dice) if client.written[-1].told else None
            self.cluster.work()
            self.cluster.network.step()
        self.cluster.run()


@pytest.mark.timeout(300)
@pytest.mark.parametrize("shard", [0, 1, 2], ids=["coordinator", "other process", "same process"])
@pytest.mark.parametrize("power_loss", [False, True], ids=["kill", "power loss"])
def test_dying_at_any_operation(shard: int, power_loss: bool) -> None:
    world = World(0)
    before = world.cluster.fs[shard].operations
    world.play()
    operations = world.cluster.fs[shard].operations - before
    assert operations > 20
    finish(world.cluster, world.clients)
    assert sum(now.told for client in world.clients for now in client.written) > 4
    for operation in range(1, operations + 1, 2):
        with in_case(operation=operation):
            world = World(operation)
            fs = world.cluster.fs[shard]
            fs.crash_at = fs.operations + operation
            try:
                world.play()
            except ProcessDied:
                worker = world.cluster.worker_of(shard)
                world.cluster.restart(worker, power_loss=power_loss)
            fs.crash_at = None
            finish(world.cluster, world.clients)
