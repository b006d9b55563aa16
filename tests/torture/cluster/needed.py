"""What the tests of clusters need, or they are skipped."""

from __future__ import annotations

import pytest

from halfmoon.testing import proxies
from tests.server.nodes.load import need_services


def need_servers() -> None:
    need_services()
    if proxies.program() is None:
        pytest.skip("toxiproxy is not installed (tools/toxiproxy.sh)")
