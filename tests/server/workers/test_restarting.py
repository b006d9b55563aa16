"""How long the supervisor waits before it starts a worker that died again."""

from __future__ import annotations

from halfmoon.server.workers.supervisor import FIRST_PAUSE_S, LONGEST_PAUSE_S, QUICK_S, pause_after


def pauses(ran_s: float, deaths: int) -> list[float]:
    """Of a worker that runs for so long each time."""
    found = [0.0]
    for _ in range(deaths):
        found.append(pause_after(ran_s, found[-1]))
    return found[1:]


def test_who_is_never_ready_is_started_less_and_less_often() -> None:
    found = pauses(0.0, 10)
    assert found[0] == FIRST_PAUSE_S
    assert found == sorted(found)
    assert found[-1] == LONGEST_PAUSE_S


def test_who_ran_is_started_at_once() -> None:
    assert pauses(QUICK_S, 20) == [0.0] * 20


def test_after_a_long_pause_it_must_run_longer() -> None:
    assert pause_after(2 * LONGEST_PAUSE_S - 0.1, LONGEST_PAUSE_S) == LONGEST_PAUSE_S
    assert pause_after(2 * LONGEST_PAUSE_S, LONGEST_PAUSE_S) == 0.0
