"""Secured brokers that are attacked."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.hostile.secured import Hostile, Start


@pytest.fixture
def hostile(tmp_path: Path) -> Iterator[Start]:
    """`hostile(limits={…})` → a broker that runs, with its witness. It must end well."""
    with ExitStack() as stack:
        started: list[Hostile] = []

        def start(**sections: Any) -> Hostile:
            started.append(stack.enter_context(Hostile(tmp_path / str(len(started)), **sections)))
            return started[-1]

        yield start
        for each in started:
            each.end()
