"""Ports for servers of tests."""

from __future__ import annotations

import pytest

from halfmoon.testing import ports


def test_rows_of_ports_have_none_in_common_until_somebody_listens_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "PORTS", range(16_000, 16_400))  # so that chance alone would not do it
    monkeypatch.setattr(ports, "is_free", lambda host, port: True)
    monkeypatch.setattr(ports, "_lately", set())
    rows = [ports.ports_in_a_row("127.0.0.1", 10) for _ in range(15)]
    taken = [first + number for first in rows for number in range(10)]
    assert len(set(taken)) == len(taken)
