"""Waiting without sleeping: ask again until it is so, or until a deadline has passed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

DEADLINE_S = 20.0
"""Far more than anything here takes; a machine under load must not fail a test."""


def until(step: Callable[[], T], *, deadline_s: float = DEADLINE_S) -> T:
    """Call `step`, which itself waits a little (a client's `poll`), until it returns something true."""
    end = time.monotonic() + deadline_s
    while True:
        result = step()
        if result:
            return result
        assert time.monotonic() < end, f"not within {deadline_s} s; last: {result!r}"


def wait_for(condition: Callable[[], object]) -> None:
    """Until something is true that others make so, in threads of their own."""
    until(lambda: condition() or threading.Event().wait(0.01))
