"""halfmoon.pipeline.reports.delays without Spark; what it makes of messages is in tests/spark/test_reports.py."""

from __future__ import annotations

import pytest

from halfmoon.pipeline.errors import PipelineError
from halfmoon.pipeline.reports.delays import LEVELS, levels_ms
from halfmoon.plugins.store.delay.plugin import DelaySettings


def test_levels_are_the_brokers() -> None:
    assert levels_ms(LEVELS) == DelaySettings().level_ms()
    assert levels_ms("100ms 1d") == [100, 86_400_000]


@pytest.mark.parametrize("levels", ["", "1s 5", "1s,5s", "-1s"])
def test_levels_that_are_no_times(levels: str) -> None:
    with pytest.raises(PipelineError, match="levels are durations"):
        levels_ms(levels)
