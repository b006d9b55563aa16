"""halfmoon.pipeline.steps and tasks: what is told of long work, in order, and never of what has not begun."""

from __future__ import annotations

import threading

import pytest

from halfmoon.pipeline.steps import Step, Steps
from halfmoon.pipeline.tasks import _Counted

PLAN = ("Reading orders", "Orders paid late")


def test_each_step_is_told_to_all_and_so_is_how_far_it_is() -> None:
    one: list[Step] = []
    other: list[Step] = []
    steps = Steps(PLAN, one.append, other.append)
    steps.at(1, 2, "tasks")
    assert one == [], "nothing has begun"
    steps.next()
    steps.at(37, 200, "tasks")
    steps.next()
    assert one == other == [Step(PLAN, 1), Step(PLAN, 1, 37, 200, "tasks"), Step(PLAN, 2)]
    assert [step.what for step in one] == ["Reading orders", "Reading orders", "Orders paid late"]
    with pytest.raises(IndexError, match="the plan has 2 steps"):
        steps.next()


@pytest.mark.parametrize(
    ("step", "note"),
    [
        (Step(PLAN, 1), ""),
        (Step(PLAN, 1, 1_200, None, "records"), "1,200 records"),
        (Step(PLAN, 1, 3, 1_000, "tasks"), "3 of 1,000 tasks"),
    ],
)
def test_a_note_says_what_is_known(step: Step, note: str) -> None:
    assert step.note == note


def test_listeners_are_called_by_one_thread_at_a_time() -> None:
    inside, most = 0, 0

    def listen(step: Step) -> None:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        if step.done == 1:
            others.start()  # which waits until this call is over
            others.join(0.05)
        inside -= 1

    steps = Steps(PLAN, listen)
    others = threading.Thread(target=lambda: steps.at(2, 2, "tasks"))
    steps.next()
    steps.at(1, 2, "tasks")
    others.join(10)
    assert (most, inside) == (1, 0)


def test_tasks_of_stages_that_have_ended_are_done() -> None:
    told: list[tuple[int, int]] = []
    counted = _Counted(lambda done, of: told.append((done, of)))
    counted.active([])
    counted.active([(1, 0, 8)])
    counted.active([(1, 5, 8)])
    counted.active([(1, 5, 8)])
    counted.active([(2, 1, 2), (3, 0, 4)])
    counted.active([])
    assert told == [(0, 8), (5, 8), (5, 8), (9, 14), (14, 14)], "nothing before the first one is known"
