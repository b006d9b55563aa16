"""halfmoon.pipeline.checkpoint over files as Spark 4.0.0 writes them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from halfmoon.pipeline import PipelineError
from halfmoon.pipeline.checkpoint import committed_offsets, watermark_of

META = '{"batchWatermarkMs":0,"batchTimestampMs":1,"conf":{}}'


def batch(checkpoint: Path, number: int, offsets: str, *, committed: bool = True) -> None:
    for name in ("offsets", "commits"):
        (checkpoint / name).mkdir(parents=True, exist_ok=True)
    (checkpoint / "offsets" / str(number)).write_text(f"v1\n{META}\n{offsets}")
    if committed:
        (checkpoint / "commits" / str(number)).write_text('v1\n{"nextBatchWatermarkMs":0}')


def test_no_checkpoint_is_no_progress(tmp_path: Path) -> None:
    assert committed_offsets(tmp_path / "none") == {}


def test_of_a_topic_that_is_read_twice_the_lower_offset_counts(tmp_path: Path) -> None:
    batch(tmp_path, 0, '{"t":{"0":5,"1":2}}\n{"t":{"0":4,"1":3}}')
    assert committed_offsets(tmp_path) == {"t": {0: 4, 1: 2}}


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


def test_the_watermark_of_a_checkpoint_is_that_of_the_last_finished_batch(tmp_path: Path) -> None:
    for name in ("offsets", "commits"):
        (tmp_path / name).mkdir()
    for number, watermark_ms in ((9, 900), (10, 1_000), (11, 1_100)):
        metadata = json.dumps({"batchWatermarkMs": watermark_ms, "batchTimestampMs": 1, "conf": {}})
        (tmp_path / "offsets" / str(number)).write_text(f'v1\n{metadata}\n{{"t":{{"0":1}}}}')
    for number in (9, 10):
        (tmp_path / "commits" / str(number)).write_text('v1\n{"nextBatchWatermarkMs":1100}')
    assert watermark_of(tmp_path) == 1_000
    (tmp_path / "offsets" / "10").write_text("v1\n{}\n{}")
    with pytest.raises(PipelineError, match="offsets/10 cannot be understood"):
        watermark_of(tmp_path)
