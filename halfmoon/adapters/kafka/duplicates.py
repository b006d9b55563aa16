"""Finding what a request names twice; Kafka answers such entries once, with INVALID_REQUEST."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import TypeVar

from halfmoon.core.steps import finish
from halfmoon.kafka_wire.slices import EVERY, Slices

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
