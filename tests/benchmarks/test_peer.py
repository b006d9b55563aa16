"""Reading what the peer's script prints."""

from __future__ import annotations

import pytest

from benchmarks.peer import PeerError, find, parse_rows


def test_rows_are_cells_with_figures() -> None:
    text = "rdkafka\tproduce 100B x 10 acks=1 none\trec_s=1,234,567 [1..2]\tMB_s=1.5e+03\tother=-0.02\n"
    assert parse_rows(text) == {"produce 100B x 10 acks=1 none": {"rec_s": 1234567.0, "MB_s": 1500.0, "other": -0.02}}


def test_a_failed_cell_is_an_error() -> None:
    with pytest.raises(PeerError, match="TimeoutError"):
        parse_rows("many\t0 idle\tFAILED TimeoutError: x\n")


def test_a_script_that_was_named_must_be_there(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("KAFKA_PEER", str(tmp_path / "kafka"))
    with pytest.raises(PeerError, match="no peer script"):
        find(None)
    (tmp_path / "kafka").touch()
    assert find(None) == tmp_path / "kafka"
