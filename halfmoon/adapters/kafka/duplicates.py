"""Finding what a request names twice; Kafka answers such entries once, with INVALID_REQUEST."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import TypeVar

T = TypeVar("T", bound=Hashable)


def duplicates(names: Iterable[T]) -> set[T]:
    """The names that come more than once."""
    seen: set[T] = set()
    twice: set[T] = set()
    for name in names:
        (twice if name in seen else seen).add(name)
    return twice
