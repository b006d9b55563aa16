from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from halfmoon.core.storage.storage import MakeStorage
from tests.core.storage.contract.engines import ENGINES


@pytest.fixture(params=sorted(ENGINES))
def make(request: pytest.FixtureRequest) -> Iterator[MakeStorage]:
    """What makes a storage of one of the engines."""
    with ExitStack() as stack:
        yield ENGINES[request.param](stack)
