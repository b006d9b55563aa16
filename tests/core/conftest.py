"""What most tests of the core begin with."""

from __future__ import annotations

import pytest

from halfmoon.testing.faulty_files import FaultyFileSystem
from tests.core.bench import VirtualClock
from tests.core.log_bench import new_fs


@pytest.fixture
def fs() -> FaultyFileSystem:
    return new_fs()


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()
