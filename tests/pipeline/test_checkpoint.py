"""halfmoon.pipeline.checkpoint over files as Spark 4.0.0 writes them."""

from __future__ import annotations

from pathlib import Path

import pytest

from halfmoon.pipeline import PipelineError
from halfmoon.pipeline.checkpoint import committed_offsets

META = '{"batchWatermarkMs":0,"batchTimestampMs":1,"conf":{}}'


def batch(checkpoint: Path, number: int, offsets: str, *, committed: bool = True) -> None:
    for name in ("offsets", "commits"):
        (checkpoint / name).mkdir(parents=True, exist_ok=True)
    (checkpoint / "offsets" / str(number)).write_text(f"v1\n{META}\n{offsets}")
    if committed:
        (checkpoint / "commits" / str(number)).write_text('v1\n{"nextBatchWatermarkMs":0}')


def test_no_checkpoint_is_no_progress(tmp_path: Path) -> None:
    assert committed_offsets(tmp_path / "none") == {}


def test_the_last_finished_batch_counts(tmp_path: Path) -> None:
    batch(tmp_path, 9, '{"flights":{"0":1,"1":2}}')
    batch(tmp_path, 10, '{"flights":{"0":10,"1":20}}')
    batch(tmp_path, 11, '{"flights":{"0":99,"1":99}}', committed=False)
    (tmp_path / "commits" / ".10.crc").write_text("")
    assert committed_offsets(tmp_path) == {"flights": {0: 10, 1: 20}}


@pytest.mark.parametrize("text", ["", "v2\n{}\n{}", "v1\n{}\n{broken", "v1\n{}\n[]"])
def test_an_unknown_form_is_refused_by_name(tmp_path: Path, text: str) -> None:
    batch(tmp_path, 0, "{}")
    (tmp_path / "offsets" / "0").write_text(text)
    with pytest.raises(PipelineError, match="offsets/0 cannot be understood"):
        committed_offsets(tmp_path)
