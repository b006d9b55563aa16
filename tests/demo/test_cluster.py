"""A node that cannot be started again ends the demo with an error."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from halfmoon.demo import cluster
from halfmoon.errors import StartError


@pytest.mark.parametrize("error", [StartError("no port"), TimeoutError("it did not start within 30 s")])
def test_it_is_said(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    monkeypatch.setattr(cluster, "AWAY_S", 0.0)

    def start() -> None:
        raise error

    node = SimpleNamespace(kill=lambda: None, start=start)
    found: Any = SimpleNamespace(nodes={1: node})
    killing = cluster.Killing(found, 0.001)
    with killing:
        killing._thread.join(10)
    assert (killing.kills, killing.problem) == (1, str(error))
