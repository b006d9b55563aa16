"""Timers by the thousand: the right ones fire, in order, and moving them costs next to nothing."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from halfmoon.services.common.deadlines import Deadlines, Timer


def test_fires_in_order_of_deadline_then_of_arming() -> None:
    deadlines: Deadlines[str] = Deadlines()
    for name, deadline in (("b", 20), ("a", 10), ("c", 20)):
        deadlines.set(Timer(name), deadline)
    assert deadlines.next_deadline() == 10
    assert [timer.action for timer in deadlines.due(9)] == []
    assert [timer.action for timer in deadlines.due(20)] == ["a", "b", "c"]
    assert deadlines.next_deadline() is None
    assert len(deadlines) == 0


def test_a_timer_set_while_others_fire_can_still_fire_in_the_same_round() -> None:
    deadlines: Deadlines[str] = Deadlines()
    first, second, third = Timer("first"), Timer("second"), Timer("third")
    deadlines.set(first, 1)
    deadlines.set(third, 3)
    fired = []
    for timer in deadlines.due(5):
        fired.append(timer.action)
        if timer is first:
            deadlines.set(second, 5)
            deadlines.cancel(third)
    assert fired == ["first", "second"]


def test_all_can_be_put_off() -> None:
    deadlines: Deadlines[str] = Deadlines()
    timers = {name: Timer(name) for name in ("moved", "cancelled", "later", "fired")}
    deadlines.set(timers["fired"], 5)
    assert [timer.action for timer in deadlines.due(5)] == ["fired"]
    for name, deadline in (("moved", 20), ("cancelled", 15), ("later", 30)):
        deadlines.set(timers[name], deadline)
    deadlines.set(timers["moved"], 25)
    deadlines.cancel(timers["cancelled"])
    deadlines.put_off(100)
    assert [timer.action for timer in deadlines.due(124)] == []
    assert [timer.action for timer in deadlines.due(125)] == ["moved"]
    deadlines.set(timers["later"], 126)
    assert [timer.action for timer in deadlines.due(126)] == ["later"]
    deadlines.put_off(100)
    assert deadlines.next_deadline() is None


def test_heartbeats_do_not_grow_the_heap() -> None:
    deadlines: Deadlines[int] = Deadlines()
    timers = [Timer(number) for number in range(10_000)]
    for now in range(0, 30_000, 3_000):
        for timer in timers:
            deadlines.set(timer, now + 45_000)
        assert not list(deadlines.due(now))
    assert len(deadlines._heap) == len(timers) == len(deadlines)
    assert len(list(deadlines.due(27_000 + 45_000))) == len(timers)


def test_cancelled_timers_are_swept_long_before_their_time() -> None:
    deadlines: Deadlines[int] = Deadlines()
    kept: Timer[int] = Timer(-1)
    deadlines.set(kept, 1_000_000)
    for number in range(10_000):
        timer: Timer[int] = Timer(number)
        deadlines.set(timer, 1_800_000)
        deadlines.cancel(timer)
    assert len(deadlines) == 1
    assert len(deadlines._heap) < 200
    assert deadlines.next_deadline() == 1_000_000


@given(st.lists(st.tuples(st.integers(0, 4), st.one_of(st.none(), st.integers(0, 50)), st.integers(0, 8))))
def test_agrees_with_a_dictionary(steps: list[tuple[int, int | None, int]]) -> None:
    """Set, move and cancel at random while time passes: what fires is what a plain table says."""
    deadlines: Deadlines[int] = Deadlines()
    timers = [Timer(number) for number in range(5)]
    table: dict[int, int] = {}
    now = 0
    for number, wait, passes in steps:
        if wait is None:
            deadlines.cancel(timers[number])
            table.pop(number, None)
        else:
            deadlines.set(timers[number], now + wait)
            table[number] = now + wait
        now += passes
        fired = [timer.action for timer in deadlines.due(now)]
        due = {number for number, deadline in table.items() if deadline <= now}
        assert set(fired) == due
        assert len(fired) == len(due)
        for gone in due:
            del table[gone]
        ahead = deadlines.next_deadline()
        assert (ahead is None) == (not table)
        assert ahead is None or now < ahead <= min(table.values())
