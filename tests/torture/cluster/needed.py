"""What the tests of clusters need, or they are skipped."""

from __future__ import annotations

import pytest

from halfmoon.testing import object_store, postgres, proxies


def need_servers() -> None:
    pytest.importorskip("asyncpg", reason="asyncpg is not installed: pip install 'halfmoon[cluster]'")
    if postgres.programs() is None:
        pytest.skip("PostgreSQL is not installed (Debian: apt-get install postgresql)")
    if object_store.program() is None:
        pytest.skip(f"versitygw is not installed (go install …/versitygw@{object_store.VERSION})")
    if proxies.program() is None:
        pytest.skip("toxiproxy is not installed (tools/toxiproxy.sh)")
