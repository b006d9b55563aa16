"""What outlasts a start of a broker, and how its processes come to know it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

VARIABLE: Final = "TESTED_WITH_HALFMOON"
"""A folder, in the environment of the processes. (A name that begins with HALFMOON_ would be a setting.)"""
STATE: Final = "instrument.json"
"""A file in it."""


@dataclass(slots=True)
class State:
    ahead_ms: int = 0
    """Of the broker's clock."""
    rules: Sequence[Mapping[str, Any]] = ()
    """For its requests (instrument.py)."""
