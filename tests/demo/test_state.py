"""halfmoon.demo.state: a data directory belongs to one cluster and to one run at a time."""

from __future__ import annotations

from pathlib import Path

import pytest

from halfmoon.demo.state import DataDir, State
from halfmoon.pipeline import PipelineError


def test_state_is_kept(tmp_path: Path) -> None:
    data = DataDir(tmp_path)
    assert data.read_state("c1") == State("c1")
    data.write_state(State("c1", "abc"))
    assert data.read_state("c1") == State("c1", "abc")


def test_another_clusters_directory_is_refused(tmp_path: Path) -> None:
    DataDir(tmp_path).write_state(State("c1"))
    with pytest.raises(PipelineError, match="from cluster c1, not c2"):
        DataDir(tmp_path).read_state("c2")


@pytest.mark.parametrize("text", ["", "[]", '{"other": 1}'])
def test_a_broken_state_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "state.json").write_text(text)
    with pytest.raises(PipelineError, match=r"state\.json cannot be understood"):
        DataDir(tmp_path).read_state("c")


def test_two_runs_do_not_share_a_directory(tmp_path: Path) -> None:
    data = DataDir(tmp_path / "new")
    with data.locked(), pytest.raises(PipelineError, match="another demo is running"), data.locked():
        pass
    with data.locked():
        pass
