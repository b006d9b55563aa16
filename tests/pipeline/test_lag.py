"""halfmoon.pipeline.jobs.lag: samples that are kept, and the report of lag now and over time."""

from __future__ import annotations

import subprocess
import sys
import uuid
from pathlib import Path

import pyarrow.parquet
import pytest
from confluent_kafka import Producer

from halfmoon.demo.load import ensure_topic
from halfmoon.pipeline import PipelineError
from halfmoon.pipeline.admin import Admin
from halfmoon.pipeline.jobs import lag
from halfmoon.pipeline.jobs.lag import Sample, Samples, lag_report, sample
from halfmoon.pipeline.reports.lag import MOST_MOMENTS, lag_reports
from halfmoon.pipeline.steps import Step
from halfmoon.pipeline.times import utc

AT_MS = 1_767_225_600_000
"""2026-01-01, UTC."""


def behind(at: int, committed: int, group: str = "billing", partition: int = 0, end: int = 100) -> Sample:
    return Sample(AT_MS + at, group, "orders", partition, committed, end, end - committed)


def moments(folder: Path) -> list[int]:
    return sorted(at - AT_MS for at in Samples(folder).rows["at_ms"].to_pylist())


def test_samples_of_several_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Full files are left alone, and what is not full is gone on with: not a file for each run."""
    monkeypatch.setattr(lag, "MOMENTS_PER_FILE", 3)
    at = iter(range(100))
    for counts in ((1, 1), (2, 2), (1, 1), (3, 3), (1, 2), (2, 3)):
        samples = Samples(tmp_path)
        for _ in range(counts[0]):
            now = next(at)
            samples.add([behind(now, 5), behind(now, 6, partition=1)])
        assert samples.rows.num_rows == 2 * now + 2
        assert len(list(tmp_path.iterdir())) <= now // 3 + 1
    assert moments(tmp_path) == sorted([*range(10), *range(10)])
    assert len(list(tmp_path.iterdir())) == 4
    samples.add([])
    assert samples.rows.num_rows == 20


def test_two_at_once_lose_nothing(tmp_path: Path) -> None:
    first = Samples(tmp_path)
    first.add([behind(0, 1)])
    second = Samples(tmp_path)
    first.add([behind(1, 1)])
    second.add([behind(2, 1)])
    first.add([behind(3, 1)])
    second.add([behind(4, 1)])
    assert moments(tmp_path) == [0, 1, 2, 3, 4]


def test_killed_before_what_was_taken_over_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Samples(tmp_path).add([behind(0, 1)])
    with monkeypatch.context() as patched:
        patched.setattr(Path, "unlink", lambda *_, **__: None)
        Samples(tmp_path).add([behind(1, 2)])
    assert len(list(tmp_path.iterdir())) == 2
    assert moments(tmp_path) == [0, 1], "there twice, and counted once"


def test_lag_now_and_the_peaks_of_very_many_moments(tmp_path: Path) -> None:
    count = 5 * MOST_MOMENTS
    found = [behind(1_000 * n, 0 if n == 2_345 else 90) for n in range(count)]
    found += [behind(1_000 * n, 40, "slow", partition) for n in (0, count - 1) for partition in (0, 1)]
    samples = Samples(tmp_path)
    samples.add(found)
    now, over_time = lag_reports(samples.rows, AT_MS + 1_000 * (count - 1))
    assert now.dicts() == [
        {"group": "slow", "topic": "orders", "partitions": 2, "committed": 80, "end": 200, "lag": 120},
        {"group": "billing", "topic": "orders", "partitions": 1, "committed": 90, "end": 100, "lag": 10},
    ]
    assert now.key_columns == 2
    billing = [row for row in over_time.rows if row[1] == "billing"]
    assert MOST_MOMENTS <= len(billing) <= MOST_MOMENTS + 1
    assert [row for row in billing if row[3] != 10] == [(utc(AT_MS + 2_345_000), "billing", "orders", 100)]
    assert [row[0] for row in over_time.rows if row[1] == "slow"] == [utc(AT_MS), utc(AT_MS + 1_000 * (count - 1))]
    assert [row[0] for row in over_time.rows] == sorted(row[0] for row in over_time.rows)
    nothing, kept = lag_reports(samples.rows, None)
    assert (nothing.rows, len(kept.rows)) == ((), len(over_time.rows)), "nobody is there now"


def test_a_report_that_goes_on(bootstrap_servers: str, tmp_path: Path) -> None:
    name = f"lag-{uuid.uuid4().hex[:12]}"
    slow, quick, topic, admin = f"{name}-slow", f"{name}-quick", name, Admin(bootstrap_servers)
    assert ensure_topic(bootstrap_servers, topic, 2) == 2
    producer = Producer({"bootstrap.servers": bootstrap_servers})
    for n in range(10):
        producer.produce(topic, b"x", partition=n % 2)
    assert producer.flush(10) == 0
    admin.commit(slow, {topic: {0: 1, 1: 3}})
    admin.commit(quick, {topic: {0: 5}})
    samples = sample(admin, f"{name}-.*")
    assert [(each.group, each.partition, each.committed, each.end, each.lag) for each in samples] == [
        (quick, 0, 5, 5, 0),
        (slow, 0, 1, 5, 4),
        (slow, 1, 3, 5, 2),
    ]
    steps: list[Step] = []
    first = lag_report(tmp_path, bootstrap=bootstrap_servers, groups=f"{name}-.*", on_step=steps.append)
    assert dict(first.facts) == {"groups": "2", "lag": "6"}
    assert [(step.what, step.note) for step in steps] == [
        ("Asking the groups", ""),
        ("Asking the groups", "0 of 2 groups"),
        ("Asking the groups", "1 of 2 groups"),
        ("Tables, charts and the page", ""),
    ]
    admin.commit(slow, {topic: {0: 5}})
    taken: list[list[Sample]] = []

    def enough() -> None:
        if len(taken) == 2:
            raise KeyboardInterrupt

    def run(**more: object) -> object:
        return lag_report(tmp_path, bootstrap=bootstrap_servers, groups=slow, **more)  # type: ignore[arg-type]

    with pytest.raises(KeyboardInterrupt):
        run(every_s=0.1, on_sample=taken.append, on_tick=enough)
    last = lag_report(tmp_path, bootstrap=bootstrap_servers, groups=slow)
    assert last.page.read_text().startswith("<!DOCTYPE html>")
    table = pyarrow.parquet.read_table(tmp_path / "tables" / "lag_now.parquet").to_pylist()
    assert table == [{"group": slow, "topic": topic, "partitions": 2, "committed": 8, "end": 10, "lag": 2}]
    over_time = [row[1:] for row in last.reports[1].rows]
    assert over_time == [(quick, topic, 0), (slow, topic, 6), *[(slow, topic, 2)] * 3]
    assert (tmp_path / "charts" / "lag_over_time.png").read_bytes()[1:4] == b"PNG"
    nobody = lag_report(tmp_path / "none", bootstrap=bootstrap_servers, groups="nobody-is-called-so")
    assert (dict(nobody.facts), [report.rows for report in nobody.reports]) == ({"groups": "0", "lag": "0"}, [(), ()])
    with pytest.raises(PipelineError, match="is no regular expression"):
        sample(admin, "(")


def test_it_needs_no_spark() -> None:
    probe = "import sys, halfmoon.pipeline.jobs.lag; sys.exit('pyspark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", probe], check=False).returncode == 0
