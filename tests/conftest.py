"""What all tests share: Halfmoon's own pytest fixtures, and the broker that tests of clients talk to."""

from __future__ import annotations

import importlib.metadata
import os

import pytest

if "halfmoon" not in {entry.name for entry in importlib.metadata.entry_points(group="pytest11")}:
    # A source tree that was not installed: nobody told pytest of the plugin.
    pytest_plugins = ["halfmoon.testing.pytest_plugin"]


@pytest.fixture(scope="session")
def bootstrap_servers(request: pytest.FixtureRequest) -> str:
    """The session's broker as `host:port`.

    HALFMOON_TEST_BOOTSTRAP=HOST:PORT names another one, a real Kafka above all.
    """
    given = os.environ.get("HALFMOON_TEST_BOOTSTRAP")
    return given or str(request.getfixturevalue("halfmoon_broker").bootstrap_servers)
