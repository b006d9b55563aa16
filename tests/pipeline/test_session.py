"""halfmoon.pipeline.session and what it is made of, as far as no JVM is needed (tests/spark uses the rest)."""

from __future__ import annotations

import importlib
import socket
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from pyspark.errors import PySparkException

from halfmoon.pipeline import PipelineError, connector_coordinates, session
from halfmoon.pipeline.connect import connect
from halfmoon.pipeline.failures import spark_errors
from halfmoon.pipeline.java import check_java, parse_java_version
from halfmoon.pipeline.session import EVERYWHERE, NEWEST_CONNECTORS, without_connector

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("version", "coordinates"),
    [
        ("4.0.0", "org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0"),
        ("4.1.0.dev2", "org.apache.spark:spark-sql-kafka-0-10_2.13:4.1.0"),
        ("3.5.6", "org.apache.spark:spark-sql-kafka-0-10_2.12:3.5.6"),
    ],
)
def test_the_connector_is_of_sparks_version_and_scala(version: str, coordinates: str) -> None:
    assert connector_coordinates(version) == coordinates
    avro = coordinates.replace("spark-sql-kafka-0-10", "spark-avro")
    assert connector_coordinates(version, avro=True) == f"{coordinates},{avro}"


@pytest.mark.parametrize("version", ["3.5.0", "3.5.9", "4.0.0", "4.0.4", "4.1.0.dev2", "4.1.3", "4.2.0"])
def test_a_version_with_a_connector(version: str) -> None:
    assert without_connector(version) is None


@pytest.mark.parametrize("version", ["4.0.5", "4.1.4", "4.2.1", "4.3.0", "5.0.0"])
def test_a_pyspark_without_a_connector_is_named_where_spark_does_not_start(
    version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(*_: object) -> None:
        raise PipelineError("Spark did not start: unresolved dependency")

    # Tests before this one may have left a session, which is taken whatever its version is.
    monkeypatch.setattr(importlib.import_module("halfmoon.pipeline.session"), "_running", lambda: None)
    monkeypatch.setattr("pyspark.__version__", version)
    monkeypatch.setattr("halfmoon.pipeline.jvm.start", start)
    with pytest.raises(PipelineError) as refused:
        session(master="local[1]")
    assert str(refused.value) == (
        f"Spark did not start: unresolved dependency: no Kafka connector is known for pyspark {version}; install one "
        "that has a connector (3.5, 4.0.0 to 4.0.4, 4.1.0 to 4.1.3, 4.2.0), or give packages="
    )
    with pytest.raises(PipelineError, match=r"dependency$"):
        session(master="local[1]", packages="mine:mine:1")


def test_pip_chooses_a_pyspark_with_a_connector() -> None:
    extra = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]["spark"]
    (bound,) = [each for each in extra if each.startswith("pyspark")]
    assert bound == f"pyspark>=3.5,<={NEWEST_CONNECTORS[0]}"


def test_an_unknown_version_is_refused() -> None:
    with pytest.raises(PipelineError, match="packages="):
        connector_coordinates("main")


@pytest.mark.parametrize(
    ("text", "major"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_412"', 8),
        ('openjdk version "21" 2023-09-19', 21),
        ("command not found", None),
    ],
)
def test_java_versions_are_read(text: str, major: int | None) -> None:
    assert parse_java_version(text) == major


def test_a_missing_java_is_said_in_one_line(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(PipelineError, match="needs Java 17 or newer"):
        check_java("4.0.0")


def test_an_old_java_is_said_in_one_line(tmp_path, monkeypatch) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\"' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(PipelineError, match=r"Java 11 is too old: pyspark 4\.0\.0 needs Java 17"):
        check_java("4.0.0")
    check_java("3.5.1")


# ----------------------------------------------------------------------------------------------------- where Spark runs


@pytest.fixture
def chosen(monkeypatch):
    """What session() would start, instead of starting it: ("connect", URL), or ("jvm", spark.master, settings)."""
    module = importlib.import_module("halfmoon.pipeline.session")
    for name in ("SPARK_REMOTE", "MASTER", "PYSPARK_GATEWAY_PORT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(module, "_running", lambda: None)
    monkeypatch.setattr(module, "check_java", lambda version: None)
    monkeypatch.setattr(module, "connect", lambda url, config: ("connect", url, config))

    def start(defaults, fixed, cores, log_file):
        return "jvm", fixed.get("spark.master"), {**defaults, **fixed}

    monkeypatch.setattr(module.jvm, "start", start)
    return session


def test_spark_runs_on_this_machine_unless_somebody_says_otherwise(chosen, monkeypatch) -> None:
    assert chosen()[:2] == ("jvm", "local[2]")
    assert chosen(cores=8)[1] == "local[8]"
    assert chosen(master="yarn")[1] == "yarn"
    assert chosen(config={"spark.master": "yarn"})[1] == "yarn"
    monkeypatch.setenv("MASTER", "local[3]")
    assert chosen()[1] == "local[3]"
    assert chosen(master="yarn")[1] == "yarn"


def test_spark_submit_has_decided(chosen, monkeypatch) -> None:
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    monkeypatch.setenv("MASTER", "local[3]")
    assert chosen()[1] is None
    assert chosen(master="yarn")[1] == "yarn"


def test_spark_connect_by_argument_and_by_the_environment(chosen, monkeypatch) -> None:
    config = {"spark.sql.shuffle.partitions": "7"}
    expected = {**EVERYWHERE, **config}
    assert chosen(remote="sc://a", config=config) == ("connect", "sc://a", expected)
    monkeypatch.setenv("SPARK_REMOTE", "sc://b")
    assert chosen()[:2] == ("connect", "sc://b")
    assert chosen(remote="sc://a")[:2] == ("connect", "sc://a")
    with pytest.raises(PipelineError, match="SPARK_REMOTE in the environment"):
        chosen(master="local[2]")


def test_two_places_are_refused() -> None:
    with pytest.raises(PipelineError, match="master and remote are two places"):
        session(master="local[2]", remote="sc://127.0.0.1")


def test_a_master_that_is_not_there_is_said_at_once(chosen) -> None:
    with socket.create_server(("127.0.0.1", 0)) as master:
        port = master.getsockname()[1]
        here = f"spark://127.0.0.1:{port}"
        assert chosen(master=here)[1] == here
        standby = f"spark://127.0.0.1:1,127.0.0.1:{port}"
        assert chosen(master=standby)[1] == standby
    with pytest.raises(PipelineError, match=rf"^no Spark master answers at {here}: Connection refused$"):
        chosen(master=here)
    with pytest.raises(PipelineError, match="'spark://somewhere' is no standalone cluster's master"):
        chosen(master="spark://somewhere")


# ------------------------------------------------------------------------------------------------------- Spark Connect


@pytest.mark.parametrize("url", ["local[2]", "http://a", "sc://", "sc://a:b", "sc:a"])
def test_what_is_no_server_is_refused(url: str) -> None:
    with pytest.raises(PipelineError, match="sc://HOST:PORT"):
        connect(url, {})


def test_missing_packages_are_named(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "grpc", None)
    for name in [name for name in sys.modules if name.startswith("pyspark.sql.connect.session")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(PipelineError, match=r"grpcio.*: pip install 'halfmoon\[connect\]'$"):
        connect("sc://127.0.0.1:1", {})


TO_NOBODY = """
import os, socket, sys, time
from concurrent.futures import ThreadPoolExecutor
import grpc
from halfmoon.pipeline import PipelineError, connect, session

connect.REACH_S = 1.0
silent = socket.create_server(("127.0.0.1", 0))
other = grpc.server(ThreadPoolExecutor(1))
ports = [1, silent.getsockname()[1], other.add_insecure_port("127.0.0.1:0")]
other.start()
for port in ports:
    started = time.monotonic()
    place = f"127.0.0.1:{port}"
    try:
        session(remote=f"sc://{place}/;user_id=me")
    except PipelineError as error:
        print(str(error).replace(place, "PLACE"))
    assert time.monotonic() - started < 10
assert "SPARK_CONNECT_MODE_ENABLED" not in os.environ
"""


def test_servers_that_are_none_are_said_in_one_line_and_soon() -> None:
    """In a process of its own: gRPC's threads do not go well with the forks of other tests."""
    done = subprocess.run([sys.executable, "-c", TO_NOBODY], cwd=ROOT, capture_output=True, text=True, timeout=50)
    assert done.stdout.splitlines() == [
        "no Spark Connect server answers at PLACE within 1 s",
        "no Spark Connect server answers at PLACE within 1 s",
        "the Spark Connect server at PLACE refused: Method not found!",
    ], done.stderr


# ------------------------------------------------------------------------------------------------------ Spark's errors

GRPC = """\
<_MultiThreadedRendezvous of RPC that terminated with:
\tstatus = StatusCode.INTERNAL
\tdetails = "[DIVIDE_BY_ZERO] Division by zero.
== SQL ==
select 1/0"
\tdebug_error_string = "INTERNAL:[DIVIDE_BY_ZERO]"
>"""


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (
            "[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column.\n'Project ['x]\n+- Range",
            "[UNRESOLVED_COLUMN.WITH_SUGGESTION] A",
        ),
        ("An error occurred while calling o1.load.\n: java.io.IOException: no\n\tat x.y.Z", "java.io.IOException: no"),
        ("\n[PARSE_SYNTAX_ERROR] Syntax error", "[PARSE_SYNTAX_ERROR] Syntax error"),
        (GRPC, "[DIVIDE_BY_ZERO] Division by zero."),
        ("", "PySparkException"),
    ],
)
def test_what_spark_raises_becomes_its_first_line(text: str, line: str) -> None:
    with pytest.raises(PipelineError) as caught, spark_errors():
        raise PySparkException(text)
    assert str(caught.value).startswith(f"Spark failed: {line}")
    assert "\n" not in str(caught.value)


def test_other_errors_are_left_alone() -> None:
    with pytest.raises(KeyError), spark_errors():
        raise KeyError("mine")


def test_tries_that_are_exceeded_tell_of_what() -> None:
    class RetriesExceeded(PySparkException):
        pass

    with pytest.raises(PipelineError, match=r"^Spark failed: failed to connect$"), spark_errors():
        raise RetriesExceeded("[RETRIES_EXCEEDED]") from ConnectionError("failed to connect")
