"""Held requests: who is woken, when, and once."""

from __future__ import annotations

import gc
import weakref
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from halfmoon.core.hold import Arrival, Held, HoldService


@dataclass
class Settings:
    long_polling: bool = True
    max_suspend_ms: int = 60_000
    short_polling_ms: int = 1_000


@dataclass
class Bench:
    hold: HoldService = field(default_factory=lambda: HoldService(Settings()))
    woken: list[str] = field(default_factory=list)

    def park(
        self,
        name: str,
        *partitions: str,
        missing: int = 1,
        deadline: int = 500,
        owner: object = None,
        now: int = 0,
        **more: object,
    ) -> Held:
        held = Held(partitions, missing, deadline, owner, lambda: self.woken.append(name), **more)  # type: ignore[arg-type]
        self.hold.park(held, now)
        return held


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_every_waiter_of_a_partition_is_woken_in_the_order_they_came(bench: Bench) -> None:
    names = [f"w{n}" for n in range(300)]
    for name in names:
        bench.park(name, "p")
    bench.park("other", "q")
    bench.hold.on_arrival("p", 1)
    assert bench.woken == names
    assert len(bench.hold) == 1
    bench.hold.on_arrival("p", 1)
    assert bench.woken == names, "once"


def test_bytes_add_up_over_partitions_until_there_are_enough(bench: Bench) -> None:
    bench.park("w", "p", "q", missing=100)
    bench.hold.on_arrival("p", 60)
    bench.hold.on_arrival("other", 1000)
    assert bench.woken == []
    bench.hold.on_arrival("q", 40)
    assert bench.woken == ["w"]


def test_an_arrival_that_does_not_match_counts_for_nothing(bench: Bench) -> None:
    seen = []

    def match(partition: object, arrival: object) -> bool:
        seen.append((partition, arrival))
        return arrival == "wanted"

    bench.park("filtered", "p", missing=10, match=match)
    bench.park("plain", "p", missing=10)
    bench.hold.on_arrival("p", 50, "unwanted")
    assert bench.woken == ["plain"]
    bench.hold.on_arrival("p", 4, "wanted")
    assert bench.woken == ["plain"]
    bench.hold.on_arrival("p", 50, "unwanted")
    bench.hold.on_arrival("p", 6, "wanted")
    assert bench.woken == ["plain", "filtered"]
    assert seen == [("p", "unwanted"), ("p", "wanted"), ("p", "unwanted"), ("p", "wanted")]


def test_a_waiter_parked_while_others_are_woken_is_not_woken_by_the_same_arrival(bench: Bench) -> None:
    held = bench.park("first", "p")

    def again() -> None:
        bench.woken.append("again")
        bench.hold.park(Held(("p",), 1, 500, None, lambda: bench.woken.append("later")), 0)

    held.wake = again
    bench.park("second", "p")
    bench.hold.on_arrival("p", 1)
    assert bench.woken == ["again", "second"]
    bench.hold.on_arrival("p", 1)
    assert bench.woken == ["again", "second", "later"]


def test_deadlines_wake_in_order_and_only_when_they_have_come(bench: Bench) -> None:
    bench.park("late", "p", deadline=300)
    bench.park("early", "q", deadline=100)
    bench.park("same", "r", deadline=100)
    assert bench.hold.next_deadline() == 100
    bench.hold.expire(99)
    assert bench.woken == []
    bench.hold.expire(100)
    assert bench.woken == ["early", "same"]
    assert bench.hold.next_deadline() == 300
    bench.hold.on_arrival("p", 1)
    assert bench.hold.next_deadline() is None
    bench.hold.expire(1000)
    assert bench.woken == ["early", "same", "late"]


def test_the_owner_of_the_timer_is_told_of_an_earlier_deadline(bench: Bench) -> None:
    told: list[int] = []
    bench.hold.on_deadline = told.append
    for deadline in (300, 400, 200, 200):
        bench.park("w", "p", deadline=deadline)
    assert told == [300, 200]


def test_a_request_parked_again_keeps_to_its_new_deadline(bench: Bench) -> None:
    held = bench.park("w", "p", deadline=100)
    bench.hold.on_arrival("p", 1)
    held.missing_bytes, held.deadline_ms = 1, 5000
    bench.hold.park(held, 50)
    bench.hold.expire(100)
    assert bench.woken == ["w"], "the old deadline has nothing to say any more"
    assert bench.hold.next_deadline() == 5000
    bench.hold.expire(5000)
    assert bench.woken == ["w", "w"]


def test_a_request_that_parks_again_in_the_past_does_not_keep_the_loop(bench: Bench) -> None:
    held = bench.park("w", "p", deadline=100)

    def again() -> None:
        bench.woken.append("w")
        held.missing_bytes, held.deadline_ms = 1, 100
        bench.hold.park(held, 100)

    held.wake = again
    bench.hold.expire(200)
    assert bench.woken == ["w"]


def test_nobody_is_held_longer_than_allowed(bench: Bench) -> None:
    bench.park("w", "p", deadline=10**9, now=1000)
    assert bench.hold.next_deadline() == 61_000


def test_without_long_polling_a_request_is_held_for_a_short_while() -> None:
    bench = Bench(HoldService(Settings(long_polling=False)))
    bench.park("w", "p", deadline=10**9, now=1000)
    bench.hold.expire(1999)
    assert bench.woken == []
    bench.hold.expire(2000)
    assert bench.woken == ["w"]


def test_an_owner_that_is_gone_is_never_woken(bench: Bench) -> None:
    gone, there = object(), object()
    for number in range(3):
        bench.park(f"gone-{number}", "p", owner=gone)
        bench.park(f"there-{number}", "p", owner=there)
    bench.hold.drop(gone)
    bench.hold.drop(gone)
    bench.hold.on_arrival("p", 1)
    bench.hold.expire(10**9)
    assert bench.woken == ["there-0", "there-1", "there-2"]
    assert bench.hold.counters.dropped == 3
    assert len(bench.hold) == 0


@pytest.mark.parametrize("late", [False, True])
def test_a_request_whose_owner_is_gone_lets_go_of_who_asked(bench: Bench, late: bool) -> None:
    """A broker process has the garbage collector look seldom (`server.garbage`)."""

    class Asking:
        def __init__(self) -> None:
            self.held = Held(["p"], 1, 500, owner, self.wake, self.match, self.ready)

        def wake(self) -> None: ...

        def match(self, partition: object, arrival: object) -> bool:
            return True

        def ready(self) -> bool:
            return False

    owner = object()
    asking = Asking()
    gone = weakref.ref(asking)
    bench.hold.park(asking.held, 0)
    if late:
        bench.hold.is_long = lambda: True
        bench.hold.on_arrival("p", 1)
    bench.hold.drop(owner)
    gc.disable()
    try:
        del asking
        assert gone() is None
    finally:
        gc.enable()


def test_an_owner_may_go_while_others_are_being_woken(bench: Bench) -> None:
    owner = object()
    first = bench.park("first", "p")
    bench.park("second", "p", owner=owner)
    first.wake = lambda: bench.hold.drop(owner)
    bench.hold.on_arrival("p", 1)
    assert bench.woken == []
    assert len(bench.hold) == 0


def test_the_periodic_check_wakes_who_could_be_answered(bench: Bench) -> None:
    bench.park("ready", "p", ready=lambda: True)
    bench.park("not-ready", "p", ready=lambda: False)
    bench.park("cannot-tell", "p")
    bench.hold.check()
    assert bench.woken == ["ready"]
    assert bench.hold.counters.woken_by_check == 1


def test_all_who_wait_on_a_partition_can_be_woken_whatever_they_miss(bench: Bench) -> None:
    bench.park("a", "p", missing=10**6)
    bench.park("b", "p", "q", match=lambda partition, arrival: False)
    bench.park("c", "q")
    bench.hold.wake_partition("p")
    assert bench.woken == ["a", "b"]


def test_waiters_that_come_and_go_leave_nothing_behind(bench: Bench) -> None:
    for _ in range(5000):
        bench.park("w", "p", "q", deadline=50_000, owner="o")
        bench.hold.on_arrival("q", 1)
    assert len(bench.hold) == 0
    assert len(bench.hold._deadlines) < 200
    assert not bench.hold._by_partition
    assert not bench.hold._by_owner


@given(
    st.lists(
        st.tuples(st.sampled_from(["park", "arrive", "expire", "drop"]), st.integers(0, 4), st.integers(1, 50)),
        max_size=80,
    )
)
def test_every_request_ends_once(steps: list[tuple[str, int, int]]) -> None:
    bench = Bench()
    now = 0
    waiting: dict[str, tuple[int, int, int, int]] = {}
    """name → owner, partition, missing, deadline"""
    ended: list[str] = []
    for number, (step, which, amount) in enumerate(steps):
        expected: list[str] = []
        if step == "park":
            bench.park(f"{number}", f"p{which}", missing=amount, deadline=now + amount, owner=amount % 3, now=now)
            waiting[f"{number}"] = amount % 3, which, amount, now + amount
        elif step == "arrive":
            for name, (owner, partition, missing, deadline) in list(waiting.items()):
                if partition == which:
                    waiting[name] = owner, partition, missing - amount, deadline
                    if missing <= amount:
                        expected.append(name)
            bench.hold.on_arrival(f"p{which}", amount)
        elif step == "expire":
            now += amount
            expected = [name for name, (*_, deadline) in waiting.items() if deadline <= now]
            bench.hold.expire(now)
        else:
            for name, (owner, *_) in list(waiting.items()):
                if owner == which:
                    del waiting[name]
            bench.hold.drop(which)
        assert sorted(bench.woken) == sorted(expected)
        for name in expected:
            del waiting[name]
        ended += bench.woken
        bench.woken.clear()
        assert len(bench.hold) == len(waiting)
        assert bench.hold.next_deadline() == min((deadline for *_, deadline in waiting.values()), default=None)
    assert len(ended) == len(set(ended))


# ----------------------------------------------------------------------------------------------------------- policies


class Policy:
    """Lets arrivals count that are even in bytes."""

    name = "even"

    def __init__(self) -> None:
        self.heard: list[tuple[str, object]] = []
        self.fails = False

    def on_park(self, held: Held) -> None:
        self.heard.append(("parked", held.owner))
        held.memory = 0

    def matches(self, held: Held, partition: object, arrival: Arrival) -> bool:
        if self.fails:
            raise RuntimeError("no luck")
        held.memory += 1
        return arrival.nbytes % 2 == 0

    def on_expire(self, held: Held) -> None:
        self.heard.append(("expired", held.owner))


def arrive(bench: Bench, nbytes: int) -> None:
    bench.hold.on_arrival("p", nbytes, Arrival("p", 0, 0, 1, nbytes))


def test_a_policy_leaves_a_request_waiting_also_in_the_periodic_check(bench: Bench) -> None:
    policy = Policy()
    bench.hold.policies = (policy,)
    held = bench.park("a", "p", owner="me", ready=lambda: True)
    arrive(bench, 3)
    bench.hold.check()
    bench.hold.look_at(["p"])
    assert (bench.woken, held.memory) == ([], 1)
    arrive(bench, 4)
    assert (bench.woken, held.memory) == (["a"], 2)
    assert policy.heard == [("parked", "me")]
    held.missing_bytes = 1
    bench.hold.park(held, 0)
    bench.hold.check()
    assert bench.woken == ["a", "a"]


def test_all_policies_must_agree(bench: Bench) -> None:
    never = Policy()
    never.matches = lambda held, partition, arrival: False  # type: ignore[method-assign]
    bench.hold.policies = (Policy(), never)
    bench.park("a", "p", owner="me")
    arrive(bench, 4)
    assert bench.woken == []
    bench.hold.expire(500)
    assert bench.woken == ["a"]
    assert never.heard == [("parked", "me"), ("expired", "me")]


def test_a_policy_that_raises_has_the_request_answered_and_is_counted(bench: Bench) -> None:
    policy = Policy()
    policy.fails = True
    failed: list[str] = []
    bench.hold.policies = (policy,)
    bench.hold.on_policy_error = lambda policy, error: failed.append(f"{policy.name}: {error}")
    bench.park("a", "p", missing=1_000)
    arrive(bench, 3)
    assert bench.woken == ["a"]
    assert failed == ["even: no luck"]
    assert bench.hold.counters.policy_errors == 1


class Failing:
    """Callbacks of a waiter that is broken, and what the service was told of it."""

    def __init__(self, bench: Bench) -> None:
        self.errors: list[str] = []
        bench.hold.on_error = lambda error: self.errors.append(str(error))

    def match(self, partition: object, arrival: object) -> bool:
        raise ValueError("match")

    def ready(self) -> bool:
        raise ValueError("ready")

    def wake(self) -> None:
        raise ValueError("wake")


def test_a_match_that_raises_has_its_own_request_answered_and_keeps_no_other_from_its_arrival(bench: Bench) -> None:
    failing = Failing(bench)
    bench.park("broken", "p", match=failing.match)
    bench.park("whole", "p")
    bench.hold.on_arrival("p", 1)
    assert (bench.woken, failing.errors, len(bench.hold)) == (["broken", "whole"], ["match"], 0)


def test_a_ready_that_raises_has_its_own_request_answered_and_keeps_no_other_from_the_check(bench: Bench) -> None:
    for look in (bench.hold.check, lambda: bench.hold.look_at(["p"])):
        failing = Failing(bench)
        bench.woken.clear()
        bench.park("broken", "p", ready=failing.ready)
        bench.park("whole", "p", ready=lambda: True)
        look()
        assert (bench.woken, failing.errors, len(bench.hold)) == (["broken", "whole"], ["ready"], 0)


def test_a_wake_that_raises_keeps_no_other_from_being_woken(bench: Bench) -> None:
    failing = Failing(bench)

    def park() -> Held:
        held = bench.park("broken", "p", ready=lambda: True)
        held.wake = failing.wake
        bench.park("whole", "p", ready=lambda: True)
        return held

    for wake in (
        lambda _: bench.hold.on_arrival("p", 1),
        lambda _: bench.hold.expire(500),
        lambda _: bench.hold.check(),
        lambda _: bench.hold.look_at(["p"]),
        lambda _: bench.hold.wake_partition("p"),
    ):
        failing.errors.clear()
        bench.woken.clear()
        wake(park())
        assert (bench.woken, failing.errors, len(bench.hold)) == (["whole"], ["wake"], 0)


def test_who_is_too_many_for_one_turn_is_woken_later_in_the_same_order(bench: Bench) -> None:
    asked: list[str] = []
    bench.hold.is_long = lambda: len(bench.woken) % 3 == 0 and len(bench.woken) > 0
    bench.hold.on_late = lambda: asked.append("late")
    names = [f"w{n}" for n in range(10)]
    for name in names:
        bench.park(name, "p")
    bench.hold.on_arrival("p", 1)
    assert bench.woken == names[:3]
    bench.park("next", "p")
    bench.hold.on_arrival("p", 1)
    assert bench.woken == names[:3], "nobody overtakes"
    assert len(bench.hold) == 0
    turns = 0
    while asked:
        asked.pop()
        bench.hold.wake_late()
        turns += 1
        assert len(asked) <= 1
    assert bench.woken == [*names, "next"]
    assert turns == 3
    bench.hold.wake_late()


def test_owners_take_turns_where_one_turn_is_not_enough(bench: Bench) -> None:
    """Else whoever has thousands of requests held holds up all who came later."""
    bench.hold.is_long = lambda: True
    for n in range(3):
        bench.park(f"many{n}", "p", owner="many")
    bench.park("few", "p", owner="few")
    bench.hold.on_arrival("p", 1)
    bench.park("one", "q", owner="one")
    bench.hold.on_arrival("q", 1)
    bench.hold.is_long = lambda: False
    bench.hold.wake_late()
    assert bench.woken == ["many0", "few", "one", "many1", "many2"]


def test_other_work_is_put_off_behind_who_was_put_off_before(bench: Bench) -> None:
    asked: list[str] = []
    bench.hold.on_late = lambda: asked.append("late")
    assert not bench.hold.put_off(lambda: bench.woken.append("never"))
    bench.hold.is_long = lambda: True
    assert bench.hold.put_off(lambda: bench.woken.append("work"))
    bench.park("held", "p")
    bench.hold.on_arrival("p", 1)
    bench.hold.is_long = lambda: False
    assert bench.hold.put_off(lambda: bench.woken.append("more")), "nobody overtakes"
    assert (bench.woken, asked) == ([], ["late"])
    bench.hold.wake_late()
    assert bench.woken == ["work", "held", "more"]
    assert not bench.hold.put_off(lambda: None)


def test_who_is_gone_before_it_is_woken_late_is_not_woken(bench: Bench) -> None:
    bench.hold.is_long = lambda: True
    for name in ("a", "b", "c"):
        bench.park(name, "p", owner=name)
    bench.hold.on_arrival("p", 1)
    bench.hold.drop("b")
    bench.hold.is_long = lambda: False
    bench.hold.wake_late()
    assert bench.woken == ["a", "c"]


def test_who_comes_after_all_have_gone_is_in_the_turn_that_is_to_come_already(bench: Bench) -> None:
    """Else the loop would wake twice in each round from then on."""
    asked: list[str] = []
    bench.hold.on_late = lambda: asked.append("late")
    bench.hold.is_long = lambda: True
    bench.park("gone", "p", owner="gone")
    bench.hold.on_arrival("p", 1)
    bench.hold.drop("gone")
    bench.park("next", "p", owner="next")
    bench.hold.on_arrival("p", 1)
    assert asked == ["late"]
    bench.hold.wake_late()
    assert bench.woken == ["next"]
    assert bench.hold.put_off(lambda: None)
    assert asked == ["late", "late"]
