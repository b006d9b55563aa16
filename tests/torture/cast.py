"""Who takes part in a scenario: each an actor, with what it does and what must hold of it in the end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.torture.checks import check_topic

if TYPE_CHECKING:
    from tests.torture.world import World


class Actor:
    """`name` says what it is about."""

    name = ""

    def __init__(self, world: World) -> None:
        self.world = world
        self.dice = world.dice
        self.model = world.model

    async def prepare(self) -> None:
        """Its topics."""

    async def play(self) -> None:
        """Until `world.ending`, and then to the end of what it has begun. Raises Violation."""

    async def check(self, last: bool) -> None:
        """Hold what there is against what was promised; `last` after another start. Raises Violation."""
        raise NotImplementedError


async def cast(world: World) -> list[Actor]:
    from tests.torture.groups import Groups
    from tests.torture.halves import Halves
    from tests.torture.kept import Kept
    from tests.torture.keyed import Keyed
    from tests.torture.later import Later
    from tests.torture.plain import Plain
    from tests.torture.recurring import Recurring
    from tests.torture.share import Share
    from tests.torture.topics import Topics
    from tests.torture.transactions import Pipeline, Transactions

    everybody: list[type[Actor]] = [
        Plain, Keyed, Later, Halves, Transactions, Pipeline, Groups, Share, Topics, Kept, Recurring,
    ]  # fmt: skip
    chosen = [each for each in everybody if not world.only or each.name in world.only.split(",")]
    if not world.only:
        # Mostly a few: a short scenario leaves time for others.
        chosen = world.dice.sample(chosen, world.dice.choices((1, 2, 3, 4, len(chosen)), (4, 4, 3, 2, 1))[0])
    actors = [each(world) for each in chosen]
    for actor in actors:
        await actor.prepare()
    return actors


__all__ = ["Actor", "cast", "check_topic"]
