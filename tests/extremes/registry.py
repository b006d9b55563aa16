"""The catalogue of extremes: each a generator under `@extreme`, which prepares until its first yield; up to each
further yield it is one run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.extremes.world import Extreme, Steps, World

EXTREMES: dict[str, Extreme] = {}


def extreme(area: str, what: str, **settings: Any) -> Callable[[Callable[[World], Steps]], Callable[[World], Steps]]:
    """`area`: the group in the table; `what`: the row; `settings`: sections of broker.yaml."""

    def register(steps: Callable[[World], Steps]) -> Callable[[World], Steps]:
        name = steps.__name__.replace("_", "-")
        assert name not in EXTREMES, f"{name} is there twice"
        EXTREMES[name] = Extreme(name, area, what, steps, settings)
        return steps

    return register


def several(
    area: str, whats: dict[str, tuple[str, tuple[Any, ...]]], **settings: Any
) -> Callable[[Callable[..., Steps]], Callable[..., Steps]]:
    """The same with arguments: `whats` is the end of its name → (the row, the arguments)."""

    def register(steps: Callable[..., Steps]) -> Callable[..., Steps]:
        for end, (what, given) in whats.items():

            def bound(world: World, given: tuple[Any, ...] = given) -> Steps:
                return steps(world, *given)

            bound.__name__ = f"{steps.__name__}_{end}"
            extreme(area, what, **settings)(bound)
        return steps

    return register
