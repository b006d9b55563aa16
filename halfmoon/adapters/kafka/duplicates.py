"""Names of a request: which come twice (Kafka answers such entries once, with INVALID_REQUEST), and in order."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import TypeVar

from halfmoon.core.steps import finish
from halfmoon.kafka_wire.slices import EVERY, Slices

SORTED_AT_ONCE = 2_000

T = TypeVar("T", bound=Hashable)


def duplicates(names: Iterable[T]) -> set[T]:
    """The names that come more than once."""
    return finish(duplicates_in_slices(names))


def duplicates_in_slices(names: Iterable[T]) -> Slices[set[T]]:
    """The same, of many names."""
    seen: set[T] = set()
    twice: set[T] = set()
    for at, name in enumerate(names):
        if not at % EVERY:
            yield
        (twice if name in seen else seen).add(name)
    return twice


def sorted_in_slices(names: Iterable[str], start: str) -> Slices[list[str]]:
    """The names from `start` on, sorted. Sorting 50,000 at once takes 30 ms; parts that are sorted are merged in 5."""
    found: list[str] = []
    part: list[str] = []
    for name in names:
        if name >= start:
            part.append(name)
            if len(part) == SORTED_AT_ONCE:
                found += sorted(part)
                part = []
                yield
    found += sorted(part)
    found.sort()
    return found
