"""How far long work is, told as it goes: a plan of named steps, of which one is being done.

    steps = Steps(["Reading the topics", "Orders paid late", "Drawing"], show)
    steps.next()                          # show(Step(plan, 1))
    steps.at(37, 200, "tasks")            # show(Step(plan, 1, 37, 200, "tasks"))
    steps.next()                          # show(Step(plan, 2))

What is shown, and where, is the listeners' business: a bar on the terminal, the report's page until it is there.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(slots=True, frozen=True)
class Step:
    """The step `number` (from 1 on) of a plan; `done` of `of` units of it, where that is known."""

    plan: tuple[str, ...]
    number: int
    done: int = 0
    of: int | None = None
    unit: str = ""

    @property
    def what(self) -> str:
        return self.plan[self.number - 1]

    @property
    def note(self) -> str:
        """`37 of 200 tasks`, `1,200 records`, or nothing."""
        if not self.unit:
            return ""
        return f"{self.done:,} {self.unit}" if self.of is None else f"{self.done:,} of {self.of:,} {self.unit}"


OnStep = Callable[[Step], None]
"""Called with each step as it begins, and again when more of it is done; never twice at once, but from any thread."""


def ignored(_: Step) -> None:
    """For whom nobody watches."""


class Steps:
    """The plan of one piece of work, and where it is. `next` begins a step, `at` says how much of it is done."""

    def __init__(self, plan: Sequence[str], *listeners: OnStep) -> None:
        self._plan = tuple(plan)
        self._listeners = listeners
        self._number = 0
        self._lock = threading.Lock()

    def next(self) -> None:
        """The next step begins. Raises IndexError behind the last one."""
        with self._lock:
            if self._number == len(self._plan):
                raise IndexError(f"the plan has {self._number} steps")
            self._number += 1
            self._tell(Step(self._plan, self._number))

    def at(self, done: int, of: int | None, unit: str) -> None:
        """So much of this step is done. What comes before the first step is nobody's."""
        with self._lock:
            if self._number:
                self._tell(Step(self._plan, self._number, done, of, unit))

    def _tell(self, step: Step) -> None:
        for listener in self._listeners:
            listener(step)
