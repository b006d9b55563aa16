"""Tries what a cluster relies on against somebody's own object store and database.

Services that speak S3 or PostgreSQL's protocol differ in what they promise. What is not true there would lose messages
later, and rarely: so it is tried before.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class Verdict(StrEnum):
    OK = "ok"
    WARNING = "warning"
    """It works, and somebody should know this."""
    FAILED = "failed"
    """A cluster would lose messages there, or not run at all."""


class Tried(NamedTuple):
    what: str
    verdict: Verdict
    said: str
    """What was found; with what it would mean, where it is not as it should be."""


def is_well(tried: list[Tried]) -> bool:
    return all(one.verdict is not Verdict.FAILED for one in tried)
