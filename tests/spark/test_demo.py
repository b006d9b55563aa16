"""halfmoon.demo from end to end, with fewer flights: twice over one data directory, killed loads, Ctrl-C."""

from __future__ import annotations

import io
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Producer
from rich.console import Console

from halfmoon.demo import load, secure, source
from halfmoon.demo.run import Options, run
from halfmoon.pipeline import PipelineError
from halfmoon.pipeline.checksum import Checksum, record_number
from halfmoon.securing import read


def text(options: Options, spark) -> str:
    console = Console(file=io.StringIO(), width=160)
    run(options, console, spark=spark)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def small_dataset(topic: str, size: int = 50) -> source.Dataset:
    keys = [None if n % 5 == 0 else b"k%d" % (n % 7) for n in range(size)]
    return source.Dataset(topic, 3, keys, lambda n: source.Record(n, keys[n], b"%d" % n, (("n", b"%d" % n),)))


def test_a_load_goes_on_where_another_stopped(bootstrap, make_topic) -> None:
    data = small_dataset(make_topic(3))
    places = [data.partition(n, 3) for n in range(len(data))]
    producer = Producer({"bootstrap.servers": bootstrap})
    for n in range(20):  # What a killed load may leave: partition 2 has got further than the others.
        if places[n] == 2 or n < 9:
            record = data.record(n)
            producer.produce(data.topic, record.value, record.key, places[n], timestamp=n, headers=list(record.headers))
    assert producer.flush(20) == 0
    loaded = load.load(bootstrap, data)
    assert loaded.ends == load.counts(places, 3)
    assert 0 < loaded.sent < 50 - 9
    at = {0: -1, 1: -1, 2: -1}
    numbers = []
    for n, place in enumerate(places):
        at[place] += 1
        numbers.append(record_number(place, at[place], *data.record(n)))
    assert loaded.checksum == Checksum.of(numbers)
    assert load.load(bootstrap, data).sent == 0
    with load.TopicView(bootstrap) as view:
        assert view.record(data.topic, 2, 3) == data.record([n for n, p in enumerate(places) if p == 2][3])


def test_a_load_with_fewer_rows_keeps_what_is_there(bootstrap, make_topic) -> None:
    data = small_dataset(make_topic(3))
    assert load.load(bootstrap, data, rows=30).checksum.count == 30
    again = load.load(bootstrap, data, rows=10)
    assert (again.sent, again.checksum.count) == (0, 30)


def test_a_topic_with_something_else_is_not_touched(bootstrap, make_topic) -> None:
    data = small_dataset(make_topic(3))
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce(data.topic, b"mine", partition=0)
    assert producer.flush(20) == 0
    with pytest.raises(PipelineError, match="holds something else"):
        load.load(bootstrap, data)


def test_the_run_and_a_second_one_that_reads_only_what_is_new(spark, bootstrap, tmp_path) -> None:
    options = Options(tmp_path / "data", tmp_path / "out", 3_000, bootstrap)
    first = text(options, spark)
    assert "3,000 flights sent" in first
    assert "3,000 records into Parquet" in first
    assert "all 33,911 records went through exactly once" in first
    assert "flights.delayed_jfk: Spark reads" in first
    assert "2 half messages: one committed and delivered, one rolled back and never seen" in first
    assert "5 messages sent in reverse, and delivered when each was due" in first
    assert f"allononepage:{tmp_path / 'out' / 'flights.html'}" in "".join(first.split()), "wherever lines are broken"
    assert len(list((tmp_path / "out" / "charts").glob("*.png"))) == 5
    assert len(list((tmp_path / "out" / "tables").iterdir())) == 18

    second = text(options, spark)
    assert "nothing to send" in second
    assert "nothing new to read" in second
    assert "summary  stands" in second

    third = text(Options(tmp_path / "data", tmp_path / "out", 5_000, bootstrap), spark)
    assert "went on: 3,000 records were there, 2,000 sent" in third
    assert "read only the 2,000 new ones" in third
    assert "all 35,911 records went through exactly once" in third


def test_a_secured_run_says_who_may_what_and_comes_to_the_same(
    spark, tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HALFMOON_COMMAND_CONFIG", str(tmp_path / "of-somebody-else"))
    data, out = tmp_path / "data", tmp_path / "out"
    said = text(Options(data, out, 1_000, secure=True), spark)
    assert "flights-producer and spark-reader, 8 rules; TLS and SCRAM-SHA-512 from here on" in said
    for rule in secure.RULES:
        row = rf"^{rule.user} +{', '.join(rule.operations)} .* {re.escape(rule.name)} *$"
        assert re.search(row, said, re.MULTILINE), row
    assert "denied   spark-reader tried to write to flights: TOPIC_AUTHORIZATION_FAILED" in said
    for line in (
        "1,000 flights sent", "1,000 records into Parquet", "all 31,911 records went through exactly once",
        "flights.delayed_jfk: Spark reads", "2 half messages", "5 messages sent in reverse",
    ):  # fmt: skip
        assert line in said
    assert len(list((out / "charts").glob("*.png"))) == 5
    assert len(list((out / "tables").iterdir())) == 18
    kept = data / "security"
    assert [path.name for path in kept.iterdir() if path.stat().st_mode & 0o077] == []
    passwords = {path.stem: read(path).password for path in kept.glob("*.properties")}
    assert len(set(passwords.values())) == 3
    log = (data / "broker.log").read_text()
    assert not any(password in said + log for password in passwords.values())
    assert "bootstrap_user_created user=admin" in log


def demo(bootstrap: str, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "halfmoon.demo", "--bootstrap-server", bootstrap, "--rows", "1000", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "PYTHONUNBUFFERED": "1"}
    return subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        start_new_session=True,
    )


def running_in_group(group: int) -> list[str]:
    """Processes of a process group, except those that have ended and wait for init to collect them."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            name, _, rest = stat.read_text().rpartition(")")
        except OSError:
            continue  # It ended while we looked.
        state, _parent, of_group = rest.split()[:3]
        if int(of_group) == group and state not in "ZX":
            found.append(name)
    return found


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.parametrize("stage", ["load", "spark"])
def test_ctrl_c_leaves_no_process_behind(stage: str, bootstrap, tmp_path) -> None:
    process = demo(bootstrap, "--data-dir", str(tmp_path / "data"), "--out", str(tmp_path / "out"))
    assert process.stdout is not None
    for line in process.stdout:
        if stage in line:  # "load" is done: Spark is starting; "spark" is done: the stream is.
            break
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, (out, err)
    assert err == "halfmoon demo: interrupted by SIGINT; with --data-dir, a later run goes on from here\n"
    assert running_in_group(process.pid) == []
    assert not (tmp_path / "out").exists()
