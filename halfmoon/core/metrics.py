"""A feature's metrics: families of metrics beside the function that reads them.

Names follow Prometheus' rules: base units (seconds, bytes), `_total` for what only grows. Reading is done in the event
loop and takes microseconds; who serves the numbers makes text of them elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple, Protocol

Kind = Literal["counter", "gauge", "histogram"]


class Family(NamedTuple):
    """One metric. `name` is as /metrics shows it; a histogram's is without `_bucket`, `_sum` and `_count`."""

    name: str
    kind: Kind
    meaning: str
    labels: tuple[str, ...] = ()
    old_name: str | None = None
    """Its name in the version before: exported beside `name` for one version, then this goes."""


class Put(Protocol):
    def __call__(self, name: str, value: float, *labels: str) -> None:
        """A number of a family, with the values of its labels in their order."""
        ...


class Metrics(NamedTuple):
    """What is read of something that is no feature."""

    families: Sequence[Family]
    read: Callable[[Put], None]
