"""The loads, small, against a broker of the testing kit; and what runs them in a process of their own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from benchmarks.bench import Bench, CellError
from benchmarks.brokers import Broker as Measured
from benchmarks.brokers import Brokers
from benchmarks.cells.kafka_in_full import allocated_mb
from benchmarks.clients import bulk, committing, compaction, joining, latency, plain, remoting, small, topics, wire
from benchmarks.clients.numbers import percentile, summary
from halfmoon.testing import Broker


@pytest.fixture(scope="module")
def bootstrap():
    with Broker() as broker:
        yield broker.bootstrap_servers


def test_percentiles_are_of_the_nearest_rank() -> None:
    assert percentile([1.0, 2.0, 3.0, 4.0], 0.5) == 3.0
    assert percentile([], 0.5) == 0.0
    assert summary([3.0, 1.0, 2.0], "x_") == {"x_p50_ms": 2.0, "x_p99_ms": 3.0, "x_p999_ms": 3.0}


def test_what_was_produced_is_fetched(bootstrap) -> None:
    topics.create(bootstrap, "fetched")
    with wire.Connection(bootstrap) as connection:
        assert wire.brokers_in(connection.ask(wire.metadata([]))) == 1
        for number in range(2):
            assert wire.produced(connection.ask(wire.produce("fetched", [(0, wire.batch(b"v"))]))) == (0, number)
        got = wire.fetched(connection.ask(wire.fetch("fetched", 0, 0)))
    assert (got.error, got.high_watermark) == (0, 2)
    assert [offset for offset, _ in wire.batches_in(got.records)] == [0, 1]


def test_bulk_loads_count_what_they_moved(bootstrap) -> None:
    assert bulk.produce(bootstrap, "spread", 100, 2_000, 3)["rec_s"] > 0
    assert bulk.produce(bootstrap, "bulk", 100, 2_000)["rec_s"] > 0
    assert set(bulk.consume(bootstrap, "bulk", 100, 2_000)) == {"rec_s", "mb_s"}
    assert bulk.sync_one_by_one(bootstrap, "flushed", 5)["req_s"] > 0


def test_single_messages_keep_their_pace(bootstrap) -> None:
    assert plain.one_by_one(bootstrap, "pingpong", 50)["p50_ms"] > 0
    assert plain.paced(bootstrap, "paced", 20, 200.0)["req_s"] == pytest.approx(200, rel=0.2)


@pytest.mark.parametrize("rate", [None, 500.0])
def test_every_message_is_delivered_and_timed(bootstrap, rate) -> None:
    found = latency.latency(bootstrap, f"e2e-{rate}", 40, rate)
    assert found["ack_p50_ms"] > 0
    assert 0 < found["p50_ms"] <= found["p99_ms"] <= found["p999_ms"]


def test_small_batches_go_to_every_partition(bootstrap) -> None:
    assert small.small_batches(bootstrap, "small", 2 * small.PARTITIONS)["batches"] == 2 * small.PARTITIONS


def test_partitions_are_timed_until_they_can_be_read(bootstrap) -> None:
    found = topics.create_topics(bootstrap, "many", 30)
    assert 0 < found["create_ms"] < found["usable_ms"]


def test_what_is_timed_is_the_step_or_what_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 0.0

    def step(own_s: float | None) -> float | None:
        nonlocal now_s
        now_s += 1 / 128  # exact, so that sums are
        return own_s

    monkeypatch.setattr(committing, "time", SimpleNamespace(perf_counter=lambda: now_s))
    found = committing._measure("a", "s", lambda: step(0.25), 1)
    assert (found["a_p50_ms"], found["a_p99_ms"], found["a_s"]) == (250, 250, 128)
    found = committing._measure("a", "tx_s", lambda: step(None), 1)
    assert (found["a_p50_ms"], found["a_tx_s"]) == (1_000 / 128, 128)


def test_offsets_are_committed_one_after_the_other(bootstrap) -> None:
    topics.create(bootstrap, "commits")
    found = committing._offsets(bootstrap, "commits", 0.2)
    assert found["offsets_s"] > 0
    assert 0 < found["offsets_p50_ms"] <= found["offsets_p99_ms"]


def test_the_second_member_of_a_group_comes_after_the_first(bootstrap, monkeypatch) -> None:
    monkeypatch.setattr(joining, "INTERVAL_S", 0.2)
    found = joining.joining(bootstrap, "joins", "classic", 1)
    assert found["first_ms"] > 0
    assert 0 < found["second_ms"] == found["second_max_ms"]


def test_keys_are_counted_where_they_are_written_and_where_they_are_read(bootstrap) -> None:
    compaction.make_topic(bootstrap, "keyed", {})
    filled = compaction.produce_keyed(bootstrap, "keyed", 3_000, 100, 20)
    assert filled["keys"] == 100
    assert compaction.count_keys(bootstrap, "keyed") == {"records": 3_000, "keys": 100}


def test_space_is_what_files_take_and_not_what_they_seem(tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    with (tmp_path / "below" / "holes").open("wb") as file:
        file.truncate(1 << 30)
    before = allocated_mb(tmp_path)
    assert before < 1
    (tmp_path / "below" / "full").write_bytes(bytes(5 << 20))
    assert allocated_mb(tmp_path) - before == pytest.approx(5, abs=0.5)


@pytest.fixture
def bench(bootstrap, tmp_path):
    return Bench(Brokers(tmp_path, None), None, None, tmp_path), Measured("interval", bootstrap, 0, 0.0)


def test_a_load_runs_in_a_process_of_its_own(bench) -> None:
    there, broker = bench
    assert there.load(broker, "one_by_one", topic=there.topic("own"), count=5)["req_s"] > 0
    with pytest.raises(CellError, match="TypeError"):
        there.load(broker, "one_by_one", nonsense=1)


def test_a_background_load_has_begun_in_the_block_and_ended_after_it(bench) -> None:
    there, broker = bench
    with there.background(broker, "idle", topic=there.topic("idle"), count=5) as found:
        assert not found
    assert found["fetches"] >= 0


def test_brokers_leave_nothing_behind(tmp_path: Path) -> None:
    brokers = Brokers(tmp_path, None)
    broker = brokers.start_halfmoon("interval", {"HALFMOON_LOG_SEGMENT_BYTES": "16MiB"})
    assert broker.ready_ms > 0
    assert broker.anonymous_mb() > 1
    assert broker.cpu_s() > 0
    assert broker.process is not None
    brokers.stop_all()
    assert broker.process.poll() == 0
    assert broker.data is not None
    assert not broker.data.exists()


@pytest.fixture
def bare(tmp_path: Path) -> Iterator[Measured]:
    brokers = Brokers(tmp_path, None)
    try:
        yield brokers.start_bare()
    finally:
        brokers.stop_all()


def test_the_bare_loop_takes_what_is_measured(bare, tmp_path: Path) -> None:
    there = bare.bootstrap
    assert bulk.produce(there, "spread", 100, 2_000, 3)["rec_s"] > 0
    assert bulk.produce(there, "bulk", 100, 30_000)["rec_s"] > 0
    assert bulk.consume(there, "bulk", 100, 30_000)["mb_s"] > 0
    assert bulk.sync_one_by_one(there, "flushed", 5)["req_s"] > 0
    assert latency.latency(there, "e2e", 40, 500.0)["p50_ms"] > 0
    bench = Bench(Brokers(tmp_path, None), None, None, tmp_path)
    requests = [wire.produce("c", [(0, wire.batch(b"x" * size))]) for size in (1, 10_000)]
    assert bench.c(bare, b"".join(requests), 5, 100)["requests_s"] > 0
    assert bench.c(bare, b"".join(requests), 5, 100, connections=7)["requests_s"] > 0
    with wire.Connection(there) as connection:
        last = wire.fetched(connection.ask(wire.fetch("c", 0, 199)))
    assert (last.error, last.high_watermark, [offset for offset, _ in wire.batches_in(last.records)]) == (0, 200, [199])


@pytest.fixture
def bare_rocketmq(tmp_path: Path) -> Iterator[Measured]:
    brokers = Brokers(tmp_path, None)
    try:
        yield brokers.start_bare_rocketmq()
    finally:
        brokers.stop_all()


def test_the_bare_loop_for_rocketmq_takes_what_is_measured(bare_rocketmq) -> None:
    found = remoting.python_client(bare_rocketmq.namesrv, "t", 0.3, 3_000)
    assert set(found) == {"sync_1_rec_s", "sync_8_rec_s", "async_rec_s", "consume_1_rec_s", "consume_32_rec_s"}
    assert min(found.values()) > 0


def test_a_c_client_tells_of_an_error(bench) -> None:
    there, broker = bench
    with pytest.raises(CellError, match="error 3"):
        there.c(broker, wire.produce("no-such-topic", [(0, wire.batch(b"v"))]), 1, 10)
