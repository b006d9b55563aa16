"""Reports that are made together, one part after the other, so that it can be told how far they are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from halfmoon.pipeline.reports.report import Report


@dataclass(slots=True, frozen=True)
class Part:
    """`what` names the work to whoever waits for it; `make` does it, and is called once, in the order of the parts."""

    what: str
    make: Callable[[], list[Report]]


def made(parts: Sequence[Part]) -> list[Report]:
    """All reports of all parts."""
    return [report for part in parts for report in part.make()]
