"""ShareFetch by chance: what a member is told and what is locked for it are the same at any moment, whatever has to be
read from the disk, ends, begins anew or comes meanwhile. And in the end every record was accepted, but those that were
given out as often as the group allows."""

from __future__ import annotations

from collections import Counter

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from share_rig import (
    ACCEPT,
    RELEASE,
    Member,
    acquired,
    cold_rig,
    go_cold,
    locked,
    offsets,
    produce,
    read_disk,
    transaction,
)

from tests.chance import trying

NAMES = ["a", "b"]
COUNT_LIMIT = 10
members = st.sampled_from(NAMES)


class ShareFetches(RuleBasedStateMachine):
    @initialize(committed=st.booleans(), cold=st.booleans())
    def begin(self, committed: bool, cold: bool) -> None:
        isolation = "read_committed" if committed else "read_uncommitted"
        self.rig = cold_rig(groups__share__isolation_level=isolation, groups__share__delivery_count_limit=COUNT_LIMIT)
        self.committed = committed
        self.cold = cold
        self.end = 0
        self.records: set[int] = set()
        self.done: set[int] = set()
        self.deliveries: Counter[int] = Counter()
        self.members = {name: Member(self.rig, name) for name in NAMES}
        self.asking: dict[str, bool] = dict.fromkeys(NAMES, False)
        self.held: dict[str, set[int]] = {name: set() for name in NAMES}

    @rule(count=st.integers(1, 6))
    def produce(self, count: int) -> None:
        produce(self.rig, count)
        self.came(count)

    @rule(count=st.integers(1, 3), times=st.integers(1, 8), commit=st.booleans())
    def transactions(self, count: int, times: int, commit: bool) -> None:
        for _ in range(times):
            transaction(self.rig, *[b"t"] * count, commit=commit)
            self.came(count, counts=commit or not self.committed)
            self.came(1, counts=False)  # the marker

    def came(self, count: int, *, counts: bool = True) -> None:
        if counts:
            self.records.update(range(self.end, self.end + count))
        self.end += count
        if self.cold:
            go_cold(self.rig)

    @rule()
    def is_read(self) -> None:
        read_disk(self.rig)

    @rule(
        name=members, max_records=st.integers(1, 20), max_bytes=st.sampled_from([1, 200, 1 << 20]),
        max_wait_ms=st.sampled_from([0, 500]), anew=st.booleans(), reads=st.booleans(),
    )  # fmt: skip
    def fetches(self, name: str, anew: bool, reads: bool, **limits: int) -> None:
        if not self.asking[name]:
            member = self.members[name]
            member.epoch = 0 if anew else member.epoch
            member.send(**limits)
            self.asking[name] = True
        if reads:
            self.is_read()

    @rule(name=members, kind=st.sampled_from([ACCEPT, RELEASE]), most=st.integers(1, 9))
    def acknowledges(self, name: str, kind: int, most: int) -> None:
        if self.asking[name]:
            return
        for offset in sorted(self.held[name])[:most]:
            answer = self.members[name].acknowledge(offset, offset, kind)
            assert answer.error_code == 0
            self.held[name].remove(offset)
            if kind == ACCEPT:
                self.done.add(offset)
            else:
                self.comes_back(offset)

    @rule(name=members)
    def is_gone(self, name: str) -> None:
        self.members[name].client.connection.connection_lost(None)
        self.rig.turn()
        self.members[name] = Member(self.rig, name)
        self.asking[name] = False
        while self.held[name]:
            self.comes_back(self.held[name].pop())

    def comes_back(self, offset: int) -> None:
        if self.deliveries[offset] == COUNT_LIMIT:
            self.records.remove(offset)

    @invariant()
    def is_told_what_is_locked(self) -> None:
        if not hasattr(self, "rig"):
            return
        for name, member in self.members.items():
            answer = member.answer()
            if answer is not None:
                told = offsets(acquired(answer))
                assert self.asking[name]
                assert not self.held[name].intersection(told)
                assert not self.done.intersection(told)
                assert self.records.issuperset(told)
                self.asking[name] = False
                self.held[name].update(told)
                self.deliveries.update(told)
        assert {name: locked(self.rig, name) for name in NAMES} == {name: sorted(self.held[name]) for name in NAMES}

    def teardown(self) -> None:
        """Let the last of them consume all that is left."""
        if not hasattr(self, "rig"):
            return
        for name in NAMES:
            self.is_gone(name)
        for _ in range(self.end + 1):
            if self.done == self.records:
                break
            self.fetches("a", max_records=20, max_bytes=1 << 20, max_wait_ms=0, anew=False, reads=True)
            self.is_told_what_is_locked()
            self.acknowledges("a", ACCEPT, self.end)
        assert self.done == self.records


TestShareFetches = ShareFetches.TestCase
TestShareFetches.settings = trying(100)
