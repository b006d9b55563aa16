"""What a killed worker costs, small."""

from __future__ import annotations

from pathlib import Path

from benchmarks.brokers import INTERVAL, Brokers
from benchmarks.deaths import WORKERS, deaths, table
from benchmarks.workers import workers_of


def test_a_worker_dies(tmp_path: Path) -> None:
    brokers = Brokers(tmp_path, None)
    try:
        broker = brokers.start_halfmoon(INTERVAL, {"HALFMOON_WORKERS_COUNT": str(WORKERS)})
        before = workers_of(broker.pid)
        ((dead_ms, other_ms),) = deaths(broker, 1, 1_000)
        assert len(set(workers_of(broker.pid)) - set(before)) == 1
    finally:
        brokers.stop_all()
    assert 0 < other_ms < dead_ms


def test_the_table() -> None:
    assert table([(700.0, 12.0), (900.0, 8.0), (800.0, 10.0)]).splitlines() == [
        "| | ms |",
        "|---|--:|",
        "| its partitions are back after | 800 (700–900) |",
        "| longest wait at the other worker | 10 (8–12) |",
    ]
