from __future__ import annotations

import pytest

from halfmoon.core.storage.storage import MakeStorage
from tests.core.storage.contract.engines import ENGINES


@pytest.fixture(params=sorted(ENGINES))
def make(request: pytest.FixtureRequest) -> MakeStorage:
    """What makes a storage of one of the engines."""
    return ENGINES[request.param]()
