"""A process that dies at any operation of the file system, with transactions open, ending and ended: each is there as a
whole, or not at all."""

from __future__ import annotations

import contextlib
import random
from itertools import product

import pytest

from halfmoon.core.storage.log_files import segment_path
from halfmoon.errors import BrokerError
from halfmoon.services.transactions import prepared
from halfmoon.testing.faulty_files import FaultyFileSystem, ProcessDied
from halfmoon.testing.node import BareNode
from tests.core.bench import VirtualClock, open_broker, partition_of, relay, turn
from tests.core.deaths import AFTER, after_death, told
from tests.core.relay_bench import lose_derived
from tests.services.transactions.transaction_bench import TxnClient, committed_values

PARTITIONS = 2


class Sent:
    """One transaction as its producer knows it."""

    def __init__(self, number: int, commit: bool) -> None:
        self.number = number
        self.commit = commit
        self.answered = False
        self.asked = False

    def values(self, index: int) -> list[bytes]:
        return [b"%d-%d-" % (self.number, index) + b"x" * 4_000]


class World:
    def __init__(self, seed: int, rounds: int) -> None:
        self.rounds = rounds
        self.clock = VirtualClock()
        self.fs = FaultyFileSystem(random.Random(seed))
        self.sent: list[Sent] = []
        self.created = False

    def play(self) -> None:
        """Raises ProcessDied somewhere, if the file system says so."""
        broker = self.open()
        _, position = broker.create_topic("t", PARTITIONS)
        broker.when_durable(position, self._created)
        turn(broker)
        clients = [TxnClient(broker, name, bumps=bumps) for name, bumps in (("x", True), ("y", False))]
        for client in clients:
            client.init()
        turn(broker)
        for number in range(self.rounds):
            for client in clients:
                self.transact(broker, client, commit=(number + client.bumps) % 3 > 0, settle=number % 2 > 0)
            if number == 2 * self.rounds // 3 - 1:
                broker.close()
                broker = self.open()
                for client in clients:
                    client.broker = broker
        turn(broker)

    def _created(self, error: BrokerError | None) -> None:
        self.created = error is None

    def transact(self, broker: BareNode, client: TxnClient, *, commit: bool, settle: bool) -> None:
        sent = Sent(len(self.sent), commit)
        self.sent.append(sent)
        for index in range(PARTITIONS):
            client.send("t", *sent.values(index), index=index)
            if settle:
                turn(broker)
        client.commit_offsets(f"g{sent.number}", "t", sent.number)
        sent.asked = True
        broker.when_durable(client.end(commit=commit), lambda error: setattr(sent, "answered", error is None))
        turn(broker)
        assert sent.answered

    def open(self) -> BareNode:
        return open_broker(self.fs, self.clock)

    def check(self, broker: BareNode) -> None:
        assert not broker.report.damaged
        if broker.topic("t") is None:
            assert not self.created
            return
        there = {value for index in range(PARTITIONS) for value in committed_values(broker, "t", index)}
        place = partition_of(broker, "t")
        for sent in self.sent:
            values = {value for index in range(PARTITIONS) for value in sent.values(index)}
            counts = values <= there
            assert counts or not values & there, f"half of transaction {sent.number}"
            progress = broker.groups.offsets(f"g{sent.number}").get(place)
            assert (progress is not None) == counts, f"transaction {sent.number} and its progress"
            assert not counts or (sent.commit and sent.asked)
            if sent.answered:
                assert counts == sent.commit
        for index in range(PARTITIONS):
            partition = partition_of(broker, "t", index)
            ongoing = any(entry.is_ongoing for entry in broker.state.transactions.by_name.values())
            assert ongoing or partition.stable_offset == partition.high_watermark

    def reopen(self, fs: FaultyFileSystem) -> None:
        self.fs = fs
        broker = self.open()
        relay(broker)
        self.check(broker)
        self.clock.now_ms += 60_000
        broker.transactions.expire(self.clock.mono_ms())
        relay(broker)
        self.check(broker)
        for index in range(PARTITIONS if broker.topic("t") is not None else 0):
            partition = partition_of(broker, "t", index)
            assert partition.stable_offset == partition.high_watermark, "what nobody ended has timed out"


def operations(rounds: int) -> int:
    world = World(0, rounds)
    world.play()
    world.check(world.open())
    return world.fs.operations


@pytest.fixture(params=[False, True], ids=["as one", "in slices"])
def rounds(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Also with each transaction for a large one, whose end writes more often."""
    if not request.param:
        return 12
    monkeypatch.setattr(prepared, "MARKERS_AT_ONCE", 0)
    monkeypatch.setattr(prepared, "SLICE", 1)
    return 6


@pytest.mark.timeout(300)
def test_dying_at_any_operation(rounds: int) -> None:
    """Either death, with the files that can be derived from the log or without them."""
    count = operations(rounds)
    assert count > 12 * rounds
    for operation in range(1, count + 1):
        world = World(operation, rounds)
        world.fs.crash_at = operation
        with contextlib.suppress(ProcessDied):
            world.play()
        for after, loses in product(AFTER, (False, True)):
            with told(operation=operation, after=after, loses=loses):
                died = after_death(world, after)
                if loses:
                    lose_derived(died.fs)
                died.reopen(died.fs)


@pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
def test_an_end_of_which_the_last_bytes_are_missing_is_none(clock: VirtualClock, commit: bool) -> None:
    """Wherever it is cut: also where all markers are there, and the record behind them is not."""
    fs = FaultyFileSystem(random.Random(0))
    broker = open_broker(fs, clock)
    broker.create_topic("t", PARTITIONS)
    one = TxnClient(broker, "x")
    one.init()
    for index in range(PARTITIONS):
        one.send("t", b"one", index=index)
    one.commit_offsets("g", "t", 5)
    turn(broker)
    segment, begin = broker.log.segments[-1].start, broker.log.end
    epoch = one.epoch
    one.end(commit=commit)
    end = broker.log.end
    broker.write()
    assert begin < end, "in one segment"
    for cut in [*range(begin, end, 7), end]:
        left = fs.kill()
        inode = left.names[segment_path(segment)]
        inode.cache[cut - segment : end - segment] = bytes(end - cut)
        broker = open_broker(left, clock)
        with told(cut=cut - begin, of=end - begin):
            assert not broker.report.damaged
            entry = broker.state.transactions.by_name["x"]
            ended = [partition.stable_offset for partition in map(partition_of, [broker] * 2, "tt", (0, 1))]
            if cut < end:
                assert (entry.is_ongoing, entry.epoch, ended) == (True, epoch, [0, 0])
                assert not broker.groups.offsets("g")
            else:
                assert (entry.is_ongoing, entry.epoch, ended) == (False, epoch + 1, [2, 2])
                assert bool(broker.groups.offsets("g")) == commit
        broker.close()
