from __future__ import annotations

from typing import Any

import pytest

from halfmoon.cli.errors import CliError
from halfmoon.cli.reset import Bounds, target

NOW_MS = 1_700_000_000_000
BOUNDS = Bounds(start=10, end=100, committed=40, at_time=70)


def choose(
    bounds: Bounds = BOUNDS,
    *,
    earliest: bool = False,
    latest: bool = False,
    offset: int | None = None,
    time: str | None = None,
    by: int | None = None,
) -> int:
    return target(earliest, latest, offset, time, by, NOW_MS).choose(bounds)


def test_each_target() -> None:
    assert choose(earliest=True) == 10
    assert choose(latest=True) == 100
    assert choose(offset=55) == 55
    assert choose(time="-1h") == 70
    assert choose(by=-15) == 25


def test_a_time_after_the_last_record_is_the_end() -> None:
    assert choose(BOUNDS._replace(at_time=None), time="-1h") == 100


def test_shifting_needs_something_committed() -> None:
    with pytest.raises(CliError, match="needs a committed offset, and the group has none"):
        choose(BOUNDS._replace(committed=None), by=1)


@pytest.mark.parametrize("given", [{}, {"earliest": True, "latest": True}, {"offset": 0, "by": 0}])
def test_exactly_one_target(given: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="specify one of"):
        choose(**given)
