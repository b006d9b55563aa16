"""Spark's daemons as processes on loopback, from the files that pyspark's package brings: no Docker, no installation.

    with standalone_cluster(folder) as cluster:     cluster.url is spark://…
    with connect_server(folder) as url:             sc://…, with the Kafka connector

They stay in this program's process group, so that tools/tidy_run.py finds them if the program is killed; otherwise
each is ended by its own process id, whatever the tests did. A worker takes its executors with it. What a daemon printed
is in the folder, and quoted when something is waited for in vain.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

import pyspark

from halfmoon.pipeline import connector_coordinates
from tests import java_options

WORKERS = 2
START_S = 60.0
"""A JVM takes 3 s here; on a machine that is busy with other tests it has taken ten times as long."""
END_S = 10.0

EVERYWHERE = {
    # Web pages, block managers and drivers bind to it, not to the machine's outside address.
    "SPARK_LOCAL_IP": "127.0.0.1",
    "JAVA_TOOL_OPTIONS": java_options.options(),
}


def spark_home() -> Path:
    """The folder of pyspark's package, in which Spark's scripts and jars are."""
    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent


def bare_environment() -> dict[str, str]:
    """This process's environment without what tells a program where Halfmoon or another Spark is."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_", "PYTHON"))}
    return {**kept, **EVERYWHERE, "SPARK_HOME": str(spark_home())}


def program_environment(**more: str) -> dict[str, str]:
    """The same for a program that uses Halfmoon, from this source tree and on this Python."""
    root = str(Path(__file__).parents[2])
    return {**bare_environment(), "PYTHONPATH": root, "PYSPARK_DRIVER_PYTHON": sys.executable, **more}


@contextmanager
def daemon(log: Path, *command: str, **environment: str) -> Iterator[None]:
    """A process that runs while the block does and prints into `log`; `command` is of Spark's folder `bin`.

    What it runs of Python is this one: the PATH's may have no pyspark.
    """
    script, *arguments = command
    with log.open("wb") as printed:
        process = subprocess.Popen(
            [spark_home() / "bin" / script, *arguments],
            cwd=log.parent,
            env={**bare_environment(), "PYSPARK_PYTHON": sys.executable, **environment},
            stdin=subprocess.DEVNULL,
            stdout=printed,
            stderr=subprocess.STDOUT,
        )
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def wait_for(log: Path, pattern: str) -> str:
    """What the pattern's group matches, as soon as it stands in the log."""
    end = time.monotonic() + START_S
    while (found := re.search(pattern, log.read_text(errors="replace"))) is None:
        assert time.monotonic() < end, f"not in {log.name} after {START_S:.0f} s: {pattern}\n{log.read_text()[-3_000:]}"
        time.sleep(0.05)
    return found[1]


@dataclass(slots=True, frozen=True)
class Cluster:
    """A running standalone cluster. Its executors have a core and 600 MB each, and no Halfmoon in their Python."""

    url: str
    folder: Path
    settings: Mapping[str, str] = field(default_factory=lambda: {"spark.executor.memory": "600m"})
    """What a program on it has to set: an executor of Spark's default size would not fit, and be waited for."""

    def printed(self, worker: int, application: str) -> str:
        """What the executors of an application (app-…) printed on a worker."""
        logs = self.folder.glob(f"work-{worker}/{application}/*/stderr")
        return "".join(log.read_text(errors="replace") for log in logs)


@contextmanager
def standalone_cluster(folder: Path) -> Iterator[Cluster]:
    """A master and `WORKERS` workers of one core each; they are registered when the block begins."""

    def start(name: str, kind: str, *arguments: str) -> Path:
        log = folder / f"{name}.log"
        options = ("--host", "127.0.0.1", "--webui-port", "0", *arguments)
        command = ("spark-class", f"org.apache.spark.deploy.{kind}", *options)
        daemons.enter_context(daemon(log, *command, SPARK_DAEMON_MEMORY="256m"))
        return log

    with ExitStack() as daemons:
        url = wait_for(start("master", "master.Master", "--port", "0"), r"Starting Spark master at (spark://\S+)")
        size = ("--cores", "1", "--memory", "600m")
        logs = [
            start(f"worker-{n}", "worker.Worker", *size, "--work-dir", str(folder / f"work-{n}"), url)
            for n in range(WORKERS)
        ]
        for log in logs:
            wait_for(log, r"Successfully registered with master (\S+)")
        yield Cluster(url, folder)


@contextmanager
def connect_server(folder: Path) -> Iterator[str]:
    """A Spark Connect server over local[2]; gives its URL."""
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": "0",
        "spark.driver.memory": "1g",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "4",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
    }
    told = [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
    server = ("--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "--master", "local[2]", *told)
    packages = ("--packages", connector_coordinates(pyspark.__version__))
    log = folder / "connect.log"
    with daemon(log, "spark-submit", *server, *packages, "spark-internal"):
        port = wait_for(log, r"Spark Connect server started at: \S*:(\d+)")
        yield f"sc://127.0.0.1:{port}"
