"""What is to be reached, and whether it is. Figures are named by the cells that yield them: `cell.figure`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from statistics import median
from typing import Literal

from benchmarks.brokers import BARE, INTERVAL, KAFKA

Values = Mapping[str, Mapping[str, Mapping[int, float]]]
"""Broker → figure → number of the round → value."""

CLIENT = 0.9
"""Who reaches so much of what the same client reaches at the bare loop is bound by the client."""


class Verdict(StrEnum):
    STRETCH = "stretch"
    YES = "yes"
    CLIENT = "client"
    """Bound by the client: the target is missed, and a broker that does nothing does not reach much more."""
    UNSURE = "unsure"
    """The median reaches it, or is bound by the client, but not each round."""
    NO = "**no**"

    @property
    def is_reached(self) -> bool:
        return self in (Verdict.STRETCH, Verdict.YES, Verdict.CLIENT)


@dataclass(frozen=True, slots=True)
class Reached:
    """What a goal has come to: for each round, in order."""

    own: tuple[float, ...]
    base: tuple[float, ...]
    """What is compared with; empty where nothing is."""
    ratios: tuple[float, ...]
    """Own by base, or own where nothing is compared with."""
    beside_bare: tuple[float, ...]
    """Own by the bare loop's; empty where that was not measured, or does not count."""


@dataclass(frozen=True, slots=True)
class Goal:
    """`figure` of broker `of`, divided by `against`'s where one is given, is to be at least or at most `target`.

    `against` is a broker (the same figure there) or another figure of the same broker. It is divided round by round,
    since what changes on the machine meets both in one round.
    """

    title: str
    figure: str
    target: float
    stretch: float | None = None
    better: Literal["more", "less"] = "more"
    of: str = INTERVAL
    against: str | None = KAFKA
    unit: str = ""
    bare: float | None = None
    """What is enough beside the bare loop; None: it does not count."""
    asked: bool = False
    """It is in the default run, and on the page: a user would ask for it."""
    bound: str = ""
    """What bounds it, and what was tried: for the page, where the target is missed."""

    def cells(self) -> set[tuple[str, str]]:
        """(cell, broker) of all that it needs."""
        cell = self.figure.partition(".")[0]
        needed = {(cell, self.of)}
        if self.against is not None:
            other, _, figure = self.against.partition(".")
            needed.add((other, self.of) if figure else (cell, other))
        if self.bare is not None:
            needed.add((cell, BARE))
        return needed

    def reached(self, values: Values) -> Reached | None:
        """What was reached; None where something of it was not measured."""
        own = values.get(self.of, {}).get(self.figure, {})
        base = self._base(values)
        rounds = sorted(own if base is None else own.keys() & base.keys())
        if not rounds or (base is not None and not all(base[number] for number in rounds)):
            return None
        ratios = tuple(own[number] if base is None else own[number] / base[number] for number in rounds)
        bare = values.get(BARE, {}).get(self.figure, {}) if self.bare is not None else {}
        return Reached(
            tuple(own[number] for number in rounds),
            () if base is None else tuple(base[number] for number in rounds),
            ratios,
            tuple(own[number] / bare[number] for number in rounds if bare.get(number)),
        )

    def _base(self, values: Values) -> Mapping[int, float] | None:
        """What is compared with."""
        if self.against is None:
            return None
        if "." in self.against:
            return values.get(self.of, {}).get(self.against, {})
        return values.get(self.against, {}).get(self.figure, {})

    def verdict(self, found: Reached) -> Verdict:
        """Each round counts: a target that some rounds miss is not reached."""
        if self.stretch is not None and all(self._is_good(ratio, self.stretch) for ratio in found.ratios):
            return Verdict.STRETCH
        if all(self._is_good(ratio, self.target) for ratio in found.ratios):
            return Verdict.YES
        beside_bare = found.beside_bare if self.bare is not None else ()
        if len(beside_bare) == len(found.ratios) and all(self._is_good(ratio, self.bare) for ratio in beside_bare):
            return Verdict.CLIENT
        if self._is_good(median(found.ratios), self.target):
            return Verdict.UNSURE
        return Verdict.UNSURE if beside_bare and self._is_good(median(beside_bare), self.bare) else Verdict.NO

    def _is_good(self, value: float, limit: float | None) -> bool:
        assert limit is not None
        return value >= limit if self.better == "more" else value <= limit


@dataclass(frozen=True, slots=True)
class Group:
    """Rows that belong together, and have one picture."""

    name: str
    """Of the picture's file."""
    title: str
    goals: tuple[Goal, ...]
