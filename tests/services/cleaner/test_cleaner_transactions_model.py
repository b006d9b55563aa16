"""Compaction beside transactions, by chance: whoever reads what is committed gets the last record of each key, and
nothing that was aborted, whatever is published between two steps of his.

The readers are one that reads all at once, and a view, which is filled batch by batch and reads cold data in a thread.
"""

from __future__ import annotations

import random

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from halfmoon.core.jobs import Job
from halfmoon.core.records.batches import iter_records, parse_header
from halfmoon.core.relay import Loading
from halfmoon.core.transactions.aborted import AbortedBatches
from halfmoon.testing.faulty_files import FaultyFileSystem
from halfmoon.testing.node import BareNode
from tests.chance import trying
from tests.core.bench import VirtualClock, cleaning_job, open_broker, partition_of, relay, sync, values
from tests.core.clean_bench import clean, keyed
from tests.services.transactions.transaction_bench import TxnClient

pytestmark = pytest.mark.timeout(300)

KEYS = [b"k%d" % at for at in range(4)]
SOME_KEYS = st.lists(st.sampled_from(KEYS), min_size=1, max_size=4)
CLIENTS = st.integers(0, 1)
Row = tuple[bytes, bytes]
Placed = dict[int, Row]


class Beside(RuleBasedStateMachine):
    @initialize(seed=st.integers(0, 2**32), memory=st.sampled_from([1, 1 << 20]))
    def begin(self, seed: int, memory: int) -> None:
        self.clock = VirtualClock()
        self.log = {"cleaner": {"memory_bytes": memory, "min_dead_ratio": 0.2}, "hot_bytes": 0}
        self.broker = open_broker(FaultyFileSystem(random.Random(seed)), self.clock, **self.log)
        configs = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0", "delete.retention.ms": "0"}
        self.broker.create_topic("t", 1, configs)
        self.broker.create_topic("v", configs={"halfmoon.view.source": "t", "halfmoon.view.prefix": "a"})
        self.clients = [TxnClient(self.broker, name, timeout_ms=900_000) for name in ("x", "y")]
        for client in self.clients:
            client.init()
        self.open: list[Placed] = [{}, {}]
        self.committed: Placed = {}
        self.aborted: set[bytes] = set()
        self.job: Job[object] | None = None
        self.loading: Loading | None = None
        self.counter = 0
        self.turn()

    def turn(self) -> None:
        broker = self.broker
        broker.write()
        sync(broker)
        broker.settle()
        broker.housekeeping.freeze()
        while (job := broker.housekeeping.next_job()) is not None:
            job.done(job.run())

    def rows(self, keys: list[bytes]) -> list[Row]:
        self.counter += 1
        return [(key, b"a%d.%d" % (self.counter, at)) for at, key in enumerate(keys)]

    @rule(keys=SOME_KEYS)
    def produce(self, keys: list[bytes]) -> None:
        rows = self.rows(keys)
        produced = self.broker.append(partition_of(self.broker, "t"), keyed(*rows), self.clock.wall_ms())
        self.committed |= dict(enumerate(rows, produced.base_offset))
        self.turn()

    @rule(which=CLIENTS, keys=SOME_KEYS)
    def produce_in_a_transaction(self, which: int, keys: list[bytes]) -> None:
        rows = self.rows(keys)
        produced = self.clients[which].send_keyed("t", *rows)
        self.open[which] |= dict(enumerate(rows, produced.base_offset))
        self.turn()

    @rule(which=CLIENTS, commit=st.booleans())
    def end_a_transaction(self, which: int, commit: bool) -> None:
        placed, self.open[which] = self.open[which], {}
        if placed:
            self.clients[which].end(commit=commit)
            if commit:
                self.committed |= placed
            else:
                self.aborted |= {value for _, value in placed.values()}
            self.turn()

    @rule()
    def begin_cleaning(self) -> None:
        if self.job is None:
            self.clock.now_ms += 15_000
            self.broker.housekeeping.turn()
            self.job = cleaning_job(self.broker)

    @rule()
    def go_on_cleaning(self) -> None:
        if self.job is not None:
            job, self.job = self.job, None
            job.done(job.run())
            self.turn()

    @rule()
    def clean_all(self) -> None:
        while self.job is not None:
            self.go_on_cleaning()
        clean(self.broker, self.clock)

    @rule(cold=st.booleans())
    def fill_the_view(self, cold: bool) -> None:
        fs = self.broker.fs
        assert isinstance(fs, FaultyFileSystem)
        fs.cold = cold
        while self.loading is None and self.broker.relays.has_work:
            self.loading = self.broker.relays.step()
        fs.cold = False

    @precondition(lambda self: getattr(self, "loading", None) is not None)
    @rule(cleaned=st.booleans())
    def load_for_the_view(self, cleaned: bool) -> None:
        if cleaned:
            self.clean_all()
        loading, self.loading = self.loading, None
        assert loading is not None
        loading.loaded(loading.load())
        self.turn()

    @rule()
    def restart(self) -> None:
        self.turn()
        fs = self.broker.fs
        assert isinstance(fs, FaultyFileSystem)
        self.job = self.loading = None
        self.broker = open_broker(fs.kill(), self.clock, **self.log)
        for client in self.clients:
            client.broker = self.broker
        self.turn()

    @invariant()
    def a_reader_gets_the_last_of_each_key(self) -> None:
        if hasattr(self, "committed"):
            self.check(read(self.broker), partition_of(self.broker, "t").stable_offset)

    def check(self, found: list[bytes], upto: int) -> None:
        visible = {offset: row for offset, row in self.committed.items() if offset < upto}
        known = {value: offset for offset, (_, value) in visible.items()}
        assert not self.aborted & set(found)
        offsets = [known[value] for value in found]
        assert offsets == sorted(set(offsets))
        for offset, (_, value) in {row[0]: (at, row) for at, row in sorted(visible.items())}.items():
            assert value[1] in found, (offset, value)

    def teardown(self) -> None:
        if not hasattr(self, "committed"):
            return
        if self.loading is not None:
            self.load_for_the_view(cleaned=True)
        for which in (0, 1):
            self.end_a_transaction(which, commit=False)
        relay(self.broker)
        self.check(values(self.broker, "v"), partition_of(self.broker, "t").stable_offset)


def read(broker: BareNode) -> list[bytes]:
    """The values that a reader of committed records gets."""
    partition = partition_of(broker, "t")
    found: list[bytes] = []
    at = 0
    while at < partition.stable_offset:
        got = broker.read(partition, at, 500, min_one=True, committed=True)
        aborted = AbortedBatches(broker.aborted_in(partition, at, got.size))
        slices = got.cold() if got.cold is not None else got.slices
        if not slices:  # what comes next is not decided
            break
        for piece in slices:
            header = parse_header(piece)
            at = header.base_offset + header.last_offset_delta + 1
            if not aborted.hide(header):
                found += [record.value or b"" for record in iter_records(piece)]
    return found


TestBeside = Beside.TestCase
TestBeside.settings = trying(100, 40)
