"""Share groups by chance, with crashes at any moment, held against a simple model.

What is acknowledged, and answered, is never given out again; what is not is given out again once it is released, its
lock is over, or the broker was away; the count of deliveries is right; at the limit, or rejected, a record is given out
no more and has one dead letter. Nothing is passed over: in the end every record is finished in one of these ways.
"""

from __future__ import annotations

import contextlib
import random

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from halfmoon.errors import BrokerError, Fault
from halfmoon.services.share.delivery_state import ACQUIRED, FINISHED
from halfmoon.services.share.share_partition import ACCEPT, GAP, REJECT, RELEASE, RENEW
from halfmoon.testing.faulty_files import FaultyFileSystem
from halfmoon.testing.node import BareNode
from tests.chance import trying
from tests.core.bench import VirtualClock, open_broker, relay, send, turn
from tests.core.relay_bench import lose_derived
from tests.services.share.share_bench import GROUP, acknowledge, fetch, given, letters, part_of
from tests.services.transactions.transaction_bench import TxnClient

LOCK_MS, LIMIT, LOCKS = 5_000, 3, 100
SECTIONS = {
    "groups": {
        "share": {
            "auto_offset_reset": "earliest",
            "record_lock_duration": "5s",
            "delivery_count_limit": LIMIT,
            "partition_max_record_locks": LOCKS,
        }
    }
}
MEMBERS = ["a", "b", "c"]
INDEXES = [0, 1]

Place = tuple[int, int]
"""Partition, offset."""


class ShareCrashes(RuleBasedStateMachine):
    flush = "sync"

    @initialize(seed=st.integers(0, 2**32))
    def begin(self, seed: int) -> None:
        self.clock = VirtualClock()
        self.fs = FaultyFileSystem(random.Random(seed))
        self.values: dict[Place, bytes] = {}
        self.markers: set[Place] = set()
        self.counts: dict[Place, int] = {}
        self.unsure: set[Place] = set()
        """How often they were given out may be forgotten, after a crash."""
        self.held: dict[Place, tuple[str, int]] = {}
        self.done: dict[Place, tuple[int, bool]] = {}
        """Finished: where that stands in the log, and whether there is a dead letter."""
        self.perhaps: dict[Place, bool] = {}
        """The same, if the log has kept it."""
        self.open()
        self.broker.create_topic("t", len(INDEXES))
        turn(self.broker)

    def open(self) -> None:
        self.broker: BareNode = open_broker(self.fs, self.clock, flush=self.flush, sections=SECTIONS)
        turn(self.broker)

    # -- what members do -----------------------------------------------------------------------------------------------

    @rule(
        index=st.sampled_from(INDEXES), sizes=st.lists(st.integers(1, 12), min_size=1, max_size=4), large=st.booleans()
    )
    def produce(self, index: int, sizes: list[int], large: bool) -> None:
        for size in sizes:
            # Segments are small here: large ones come to their end.
            values = [b"%d-%d-" % (self.broker.clock.wall_ms(), at) + b"x" * (large * 3_000) for at in range(size)]
            base = send(self.broker, "t", *values, index=index).base_offset
            self.values.update({(index, base + at): value for at, value in enumerate(values)})
        turn(self.broker)

    @rule(
        index=st.sampled_from(INDEXES), sizes=st.lists(st.integers(1, 3), min_size=1, max_size=6), commit=st.booleans()
    )
    def produce_in_transactions(self, index: int, sizes: list[int], commit: bool) -> None:
        """The group reads what is not committed, too; but nobody gets the markers."""
        client = TxnClient(self.broker, "tx")
        client.init()
        for size in sizes:
            values = [b"%d-%d-t" % (self.broker.clock.wall_ms(), at) for at in range(size)]
            base = client.send("t", *values, index=index).base_offset
            client.end(commit=commit)
            self.values.update({(index, base + at): value for at, value in enumerate(values)})
            self.markers.add((index, base + size))
        turn(self.broker)

    @rule(
        index=st.sampled_from(INDEXES), member=st.sampled_from(MEMBERS), most=st.integers(1, 40), exactly=st.booleans()
    )
    def fetch(self, index: int, member: str, most: int, exactly: bool) -> None:
        found = given(fetch(self.broker, part_of(self.broker, "t", index), member, most, 7, exactly=exactly))
        if exactly:
            assert len(found) <= most
        for offset, count in found.items():
            self.delivered((index, offset), member, count)
        assert sum(1 for place in self.held if place[0] == index) <= LOCKS + 12  # batches are given out whole

    def delivered(self, place: Place, member: str, count: int) -> None:
        assert place in self.values
        assert place not in self.held, "given out twice at a time"
        assert place not in self.done, "given out again after it was finished"
        self.perhaps.pop(place, None)
        before = self.counts.get(place, 0)
        assert count == before + 1 or (place in self.unsure and 1 <= count <= before + 1)
        assert count <= LIMIT
        self.counts[place] = count
        self.unsure.discard(place)
        self.held[place] = member, self.clock.now_ms + LOCK_MS

    @rule(
        dice=st.randoms(use_true_random=False),
        kinds=st.lists(st.sampled_from([ACCEPT, RELEASE, REJECT, GAP, RENEW]), min_size=1, max_size=3),
    )
    def acknowledge(self, dice: random.Random, kinds: list[int]) -> None:
        if not self.held:
            return
        index, offset = dice.choice(sorted(self.held))
        member = self.held[index, offset][0]
        mine = sorted(offset for (at, offset), (who, _) in self.held.items() if at == index and who == member)
        first = dice.choice(mine)
        last = first
        while last + 1 in mine and dice.random() < 0.8:
            last += 1
        types = [dice.choice(kinds)] if dice.random() < 0.5 else [dice.choice(kinds) for _ in range(first, last + 1)]
        acknowledge(self.broker, part_of(self.broker, "t", index), member, first, last, *types)
        for offset in range(first, last + 1):
            self.settled((index, offset), types[offset - first] if len(types) > 1 else types[0])

    def settled(self, place: Place, kind: int) -> None:
        if kind == RENEW:
            self.held[place] = self.held[place][0], self.clock.now_ms + LOCK_MS
            return
        del self.held[place]
        exhausted = kind == RELEASE and self.counts[place] == LIMIT
        if kind in (ACCEPT, GAP) or kind == REJECT or exhausted:
            self.done[place] = self.broker.log.end, kind == REJECT or exhausted

    @rule(index=st.sampled_from(INDEXES), member=st.sampled_from(MEMBERS), offset=st.integers(0, 60))
    def acknowledge_wrongly(self, index: int, member: str, offset: int) -> None:
        """What a member does not hold it cannot acknowledge, and nothing changes."""
        if self.held.get((index, offset), ("",))[0] == member:
            return
        part = part_of(self.broker, "t", index)
        before = part.mark()
        # Before all that matters, or finished, as what was written before a crash may be, too, and markers.
        if offset < part.start or any((index, offset) in each for each in (self.done, self.perhaps, self.markers)):
            with contextlib.suppress(BrokerError):
                acknowledge(self.broker, part, member, offset, offset, ACCEPT)
        else:
            with pytest.raises(BrokerError) as refused:
                acknowledge(self.broker, part, member, offset, offset, ACCEPT)
            assert refused.value.fault in (Fault.INVALID_RECORD_STATE, Fault.INVALID_REQUEST)
        assert part.mark() == before

    @rule(member=st.sampled_from(MEMBERS))
    def goes(self, member: str) -> None:
        self.broker.shares.member_gone(GROUP, member)
        for place, (who, _) in list(self.held.items()):
            if who == member:
                self.settled(place, RELEASE)

    @rule(ms=st.sampled_from([100, 2_000, 5_000]))
    def time_passes(self, ms: int) -> None:
        self.clock.now_ms += ms
        self.broker.shares.expire(self.clock.now_ms)
        for place, (_, until_ms) in list(self.held.items()):
            if until_ms <= self.clock.now_ms:
                self.settled(place, RELEASE)

    # -- what the broker does ------------------------------------------------------------------------------------------

    @rule()
    def a_turn(self) -> None:
        turn(self.broker)

    @rule()
    def letters_are_written(self) -> None:
        relay(self.broker)

    @rule(power=st.booleans(), written=st.booleans(), derived=st.booleans())
    def crash(self, power: bool, written: bool, derived: bool) -> None:
        """`derived`: index files and the checkpoint are lost, too."""
        if written:
            self.broker.write()
        durable = self.broker.durable_position
        self.fs = self.fs.power_loss() if power else self.fs.kill()
        if derived:
            lose_derived(self.fs)
        self.gone(durable)

    @rule()
    def restart(self) -> None:
        self.broker.close()
        self.gone(self.broker.log.end)

    def gone(self, durable: int) -> None:
        self.held.clear()
        self.unsure = {place for place in self.counts if place not in self.done}
        for place, (position, letter) in list(self.done.items()):
            if position > durable:
                del self.done[place]
                self.perhaps[place] = letter
                self.unsure.add(place)
        self.open()

    @invariant()
    def holds(self) -> None:
        if not hasattr(self, "broker"):
            return
        for index in INDEXES:
            part = self.broker.shares.delivery.parts._by_group.get(GROUP, {}).get(
                self.broker.topic("t").partitions[index]
            )  # type: ignore[union-attr]
            if part is None:
                continue
            at = part.start
            for run in part.runs:
                assert run.first == at < run.end
                assert (run.state == ACQUIRED) == bool(run.member)
                at = run.end
            assert not part.runs or part.runs[0].state != FINISHED
            assert len(part.runs) <= 2 * part.unfinished
            held = {offset for run in part.runs if run.state == ACQUIRED for offset in range(run.first, run.end)}
            assert held == {offset for at, offset in self.held if at == index}

    def teardown(self) -> None:
        """Let one member consume all that is left."""
        if not hasattr(self, "values"):
            return
        self.restart()
        self.clock.now_ms += LOCK_MS
        for index in INDEXES:
            part = part_of(self.broker, "t", index)
            high_watermark = part.place.partition.high_watermark
            for _ in range(1_000):
                for offset, count in given(fetch(self.broker, part, "z")).items():
                    self.delivered((index, offset), "z", count)
                    acknowledge(self.broker, part, "z", offset, offset, ACCEPT)
                    self.settled((index, offset), ACCEPT)
                relay(self.broker)
                if part.start == high_watermark:
                    break
            assert part.start == high_watermark, "something was passed over"
        assert {*self.done, *self.perhaps} == {*self.values}
        found = [
            (int(letter["__dlq.errors.partition"] or b""), int(letter["__dlq.errors.offset"] or b""), letter[""])
            for letter in letters(self.broker, "dlq.g")
        ]
        expected = [place for place, (_, letter) in self.done.items() if letter]
        expected += [place for place, letter in self.perhaps.items() if letter]
        assert sorted(found) == sorted((*place, self.values[place]) for place in expected)


TestShareCrashes = pytest.mark.timeout(160)(ShareCrashes.TestCase)
TestShareCrashes.settings = trying(100)
