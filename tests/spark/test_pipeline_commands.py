"""`halfmoon pipeline …` as its user runs it: what it prints, how it ends, what it leaves."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet
import pytest

from tests.crash.serving import wait_until

ROOT = Path(__file__).parents[2]


def halfmoon(bootstrap: str, *arguments: str, cwd: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "halfmoon", "pipeline", *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT), "HALFMOON_BOOTSTRAP_SERVER": bootstrap},
        cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip


def ran(bootstrap: str, *arguments: str, cwd: Path) -> tuple[int, str, str]:
    process = halfmoon(bootstrap, *arguments, cwd=cwd)
    out, err = process.communicate(timeout=200)
    return process.returncode, out, err


def alive(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.fixture
def orders(bootstrap: str, make_topic, tmp_path: Path) -> tuple[str, dict[str, int]]:
    """A topic with the orders of a shop, and what is true of them."""
    topic = make_topic(2)
    code, out, err = ran(bootstrap, "orders", topic, "-n", "300", "-o", "json", cwd=tmp_path)
    assert (code, err) == (0, "")
    (said,) = json.loads(out)
    return topic, said


def test_a_report_by_batch_and_by_stream_says_what_is_true(bootstrap: str, orders, tmp_path: Path) -> None:
    topic, truth = orders
    for how, noted in (([], 0), (["--stream", "--group", f"{topic}-report"], 1)):
        out_dir = tmp_path / f"out-{noted}"
        arguments = ["report", "success-rate", topic, "--out", str(out_dir), "--by", "tier", "--by", "region", *how]
        code, out, err = ran(bootstrap, *arguments, "-o", "json", cwd=tmp_path)
        assert code == 0, err
        assert len(err.splitlines()) >= noted, "a line for each batch"
        assert all(line.startswith("success-rate  batch ") for line in err.splitlines())
        said = json.loads(out)
        facts = {name: f"{truth[name]:,}" for name in ("orders", "paid", "late", "missing")}
        assert {name: said["facts"][name] for name in facts} == facts
        assert set(said["reports"]["success_rate"][0]) >= {"tier", "region", "success_share"}
        assert Path(said["page"]).read_text().count("<svg") == 2
        table = pyarrow.parquet.read_table(out_dir / "tables" / "success_rate.parquet")
        assert sum(table["orders"].to_pylist()) == truth["orders"]
    assert not list(tmp_path.glob("artifacts")), "Spark's litter"


def test_ctrl_c_ends_a_stream_that_goes_on_and_leaves_nothing_running(bootstrap: str, orders, tmp_path: Path) -> None:
    topic, _ = orders
    process = halfmoon(bootstrap, "archive", topic, "--archive", "kept", "--every", "200 milliseconds", cwd=tmp_path)
    assert process.stderr is not None
    first = process.stderr.readline()
    assert first.startswith(f"{topic}  batch 0  "), first
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (130, "", "")
    wait_until(lambda: not alive(process.pid), 10, "everything in its process group has ended")
    assert list((tmp_path / "kept" / f"topic={topic}").glob("date=*/batch=*/*.parquet"))


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["archive", "spark-nowhere", "--archive", "a"], 1, "there is no topic 'spark-nowhere' at "),
        (["replay", "absent", "--archive", "nothing", "--to", "absent"], 1, "there is no topic 'absent' at "),
        (["report", "success-rate", "o", "--rule", "pay=1"], 2, "there is no rule 'pay'"),
        (["report", "success-rate", "o", "--rule", "pay_within=3 days"], 1, "late_within (2 hours) is shorter than"),
        (["report", "success-rate", "o", "--stream", "--until", "-1h"], 2, "a stream has no end"),
        (["report", "delay", "o", "--levels", "soon"], 1, "levels are durations such as"),
        (["report", "dlq", "--group", "g"], 2, "only a stream has offsets to commit"),
        (["archive", "o", "--archive", "a", "--from", "yesterday"], 2, "'yesterday' is not a time"),
        (["archive", "o", "--archive", "a", "--master", "local", "--remote", "sc://h"], 1, "two places"),
        (["archive", "o", "--archive", "a", "--conf", "x"], 2, "'x' is not NAME=VALUE"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(
    bootstrap: str, tmp_path: Path, arguments: list[str], code: int, said: str
) -> None:
    found, out, err = ran(bootstrap, *arguments, cwd=tmp_path)
    assert (found, out) == (code, ""), err
    assert err.startswith("halfmoon: ")
    assert said in err
    assert err.count("\n") == 1, err


def test_without_spark_it_says_what_to_install(tmp_path: Path) -> None:
    hidden = tmp_path / "pyspark.py"
    hidden.write_text("raise ModuleNotFoundError(\"No module named 'pyspark'\", name='pyspark')")
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}
    command = [sys.executable, "-m", "halfmoon", "pipeline", "report", "dlq"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 1
    assert done.stderr == "halfmoon: pyspark is not installed: pip install 'halfmoon[spark]'\n"
