"""Slow work: `run` in a thread, then the result back in the loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, NamedTuple, Protocol, TypeVar

T = TypeVar("T")


class Job(NamedTuple, Generic[T]):
    """`run` in a thread; then `done(result)` or `failed(error)` in the loop."""

    name: str
    run: Callable[[], T]
    done: Callable[[T], None]
    failed: Callable[[Exception], None]


class Background(Protocol):
    """Work that takes so long that it has a thread of its own: nothing else must wait for it."""

    on_due: Callable[[], object]
    """Set by the caller of `look`: called when there may be something to do at once."""

    @property
    def interval_ms(self) -> int:
        """How often `turn` is to be called."""
        ...

    def turn(self) -> None:
        """The clock's turn."""
        ...

    def look(self) -> bool:
        """A slice of about a millisecond of finding out what there is to do. Whether there is more to look at."""
        ...

    def next_job(self) -> Job[object] | None:
        """The next step of what was found, if none is under way."""
        ...
