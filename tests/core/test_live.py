"""Settings that are replaced at run time are told to those who want to know."""

from __future__ import annotations

from halfmoon.core.live import Live


def test_who_has_subscribed_is_told_until_that_is_undone() -> None:
    live = Live(1)
    told: list[tuple[str, int]] = []
    undo = live.subscribe(lambda value: told.append(("a", value)))
    live.subscribe(lambda value: told.append(("b", value)))
    live.replace(2)
    undo()
    undo()
    live.replace(3)
    assert told == [("a", 2), ("b", 2), ("b", 3)]
    assert live.current == 3


def test_one_that_unsubscribes_when_it_is_told_keeps_no_other_from_it() -> None:
    live = Live(1)
    told: list[int] = []
    undo = live.subscribe(lambda _value: undo())
    live.subscribe(told.append)
    live.replace(2)
    assert told == [2]
