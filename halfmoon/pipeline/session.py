"""A SparkSession that can talk to a broker, for whichever pyspark is installed.

What goes wrong without this module, in the order people meet it: the connector's coordinates name another Spark or
Scala version than pyspark's; Spark binds to the machine's outside address; the terminal fills with log lines; 200
shuffle partitions make a small aggregation slow; `spark-warehouse` and `artifacts` lie about in the working directory;
the JVM outlives an interrupted program.
"""

from __future__ import annotations

import atexit
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from halfmoon.pipeline.errors import PipelineError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAVA_NEEDED = {3: 8, 4: 17}
"""Oldest Java by Spark's major version (Spark's own documentation, "Downloading")."""

_STOP_GRACE_S = 10
"""How long the JVM may take to delete its temporary files before it is killed."""

_LOG4J = """\
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{yyyy-MM-dd HH:mm:ss} %p %c{1}: %m%n%ex
"""


def connector_coordinates(pyspark_version: str) -> str:
    """Maven coordinates of Spark's Kafka connector for a pyspark version, say "4.0.0".

    The connector must be of Spark's very version, and of the Scala version pyspark's jars were built with: 2.12 up to
    Spark 3.5, 2.13 from 4.0 on. Raises PipelineError for a version that has no number of three parts.
    """
    match = re.match(r"(\d+)\.(\d+)\.(\d+)", pyspark_version)
    if match is None:
        raise PipelineError(f"cannot tell which Kafka connector fits pyspark {pyspark_version!r}; give packages=")
    scala = "2.13" if int(match[1]) >= 4 else "2.12"
    return f"org.apache.spark:spark-sql-kafka-0-10_{scala}:{match[0]}"


def parse_java_version(text: str) -> int | None:
    """The major version in what `java -version` prints: 17 for "17.0.15", 8 for "1.8.0_412"; None if there is none."""
    match = re.search(r'version "(\d+)(?:\.(\d+))?', text)
    if match is None:
        return None
    return int(match[2]) if match[1] == "1" and match[2] else int(match[1])


def check_java(pyspark_version: str) -> None:
    """Raise PipelineError with what to install, unless a Java that Spark can run on is found where Spark looks."""
    needed = JAVA_NEEDED.get(int(pyspark_version.split(".")[0]), max(JAVA_NEEDED.values()))
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else shutil.which("java")
    try:
        found = subprocess.run([java or "java", "-version"], capture_output=True, text=True, timeout=30, check=False)
    except OSError:
        where = f"JAVA_HOME={home}" if home else "the PATH"
        raise PipelineError(f"no Java in {where}: pyspark {pyspark_version} needs Java {needed} or newer") from None
    version = parse_java_version(found.stderr)
    if version is not None and version < needed:
        raise PipelineError(f"Java {version} is too old: pyspark {pyspark_version} needs Java {needed} or newer")


def session(
    app_name: str = "halfmoon",
    *,
    master: str | None = None,
    cores: int = 2,
    driver_memory: str = "1g",
    packages: str | None = None,
    log_file: Path | None = None,
    config: Mapping[str, str] | None = None,
) -> SparkSession:
    """The running SparkSession, or a new one with the Kafka connector that fits.

    `master` is `local[cores]` unless the program was started by spark-submit, which has decided already. `packages`
    overrides the connector's coordinates, `config` any setting made here. What the JVM prints goes to `log_file`, or
    to a temporary file whose end is quoted if it cannot start. Sessions use UTC: times of a log are instants.

    Raises PipelineError where pyspark or Java is missing or the JVM does not come up, most often because the connector
    could not be downloaded.
    """
    try:
        import pyspark
        from pyspark import SparkConf, SparkContext
        from pyspark.java_gateway import launch_gateway
        from pyspark.sql import SparkSession
    except ImportError as missing:
        raise PipelineError(f"{missing.name} is not installed: pip install 'halfmoon[spark]'") from None

    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    if not submitted:
        check_java(pyspark.__version__)
    scratch = Path(tempfile.mkdtemp(prefix="halfmoon-spark-"))
    coordinates = packages or connector_coordinates(pyspark.__version__)
    settings = _settings(app_name, scratch, cores, driver_memory, coordinates)
    if master is not None or not submitted:
        settings["spark.master"] = master or f"local[{cores}]"
    if master is not None and not master.startswith("local"):
        # Executors on other machines must reach the driver: leave its address to Spark.
        settings.pop("spark.driver.host")
        settings.pop("spark.driver.bindAddress")
    settings.update(config or {})
    conf = SparkConf().setAll(list(settings.items()))
    log_path = log_file or scratch / "spark.log"
    litter = None if Path("artifacts").exists() else Path("artifacts").absolute()
    sweep = partial(_sweep, scratch, litter)
    gateway = None
    with log_path.open("ab") as log:
        try:
            gateway = launch_gateway(conf=conf, popen_kwargs=_quiet(log))
            gateway.sweep = sweep  # stop() finds it where pyspark itself keeps `proc`.
            context = SparkContext(conf=conf, gateway=gateway)
        except BaseException as failed:
            _end_jvm(getattr(gateway, "proc", None))
            reason = _last_error(log_path) or str(failed)
            sweep()
            if not isinstance(failed, Exception):
                raise
            raise PipelineError(f"Spark did not start: {reason}") from failed
    # For programs that end without stop(): the JVM goes by itself when its standard input closes.
    atexit.register(sweep)
    spark: SparkSession = SparkSession.builder.getOrCreate()
    context.setLogLevel("ERROR")
    return spark


def stop(spark: SparkSession | None) -> None:
    """Stop Spark and its JVM, and wait until the process is gone; safe in the middle of a query and if called twice.

    Spark's own `stop()` leaves the JVM running until Python ends, and waits for running queries. Here the JVM is told
    to end by closing its standard input; its shutdown hooks remove its temporary files. A program started by
    spark-submit does not own its JVM; there only the context is stopped.
    """
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    gateway = SparkContext._gateway
    process = getattr(gateway, "proc", None)
    if process is None:
        if spark is not None:
            spark.stop()
        return
    context = SparkContext._active_spark_context
    if context is not None:
        # It would print a traceback when the JVM hangs up.
        context._accumulatorServer.shutdown()
    _end_jvm(process)
    try:
        gateway.shutdown()
    except Exception:
        pass  # It tells the JVM to end, which it has done.
    # What pyspark remembers of the JVM must go with it, or a later session() would talk to a dead process.
    SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None
    SparkSession._instantiatedSession = None
    sweep = getattr(gateway, "sweep", None)
    if sweep is not None:
        sweep()


@contextmanager
def spark_errors() -> Iterator[None]:
    """Turn what Spark raises in the block into a PipelineError of one line, while the JVM can still be asked for it."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped,unused-ignore]
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JError, ConnectionError) as failed:
        # py4j's first line names the method that was called; the Java exception stands in the second.
        said = [line.strip(": ") for line in str(failed).splitlines() if not line.startswith("An error occurred while")]
        raise PipelineError(f"Spark failed: {next(filter(None, said), type(failed).__name__)[:300]}") from failed


def _settings(app_name: str, scratch: Path, cores: int, driver_memory: str, packages: str) -> dict[str, str]:
    log4j = scratch / "log4j2.properties"
    log4j.write_text(_LOG4J)
    return {
        "spark.app.name": app_name,
        "spark.jars.packages": packages,
        "spark.driver.memory": driver_memory,
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={log4j.as_uri()}",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        # Two waves of tasks a stage: enough to even out skew, few enough that a small shuffle is quick.
        "spark.sql.shuffle.partitions": str(2 * cores),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
    }


def _quiet(log: IO[bytes]) -> dict[str, Any]:
    """Send both of the JVM's outputs to the log file (launch_gateway's hook "for capturing stdout/stderr")."""
    return {"stdout": log, "stderr": log}


def _end_jvm(process: subprocess.Popen[bytes] | None) -> None:
    if process is None:
        return
    if process.stdin is not None:
        try:
            process.stdin.close()
        except OSError:
            pass  # It has ended already, which is what is wanted.
    try:
        process.wait(_STOP_GRACE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _last_error(log_path: Path) -> str | None:
    """The line of the JVM's output that says most about why it ended."""
    lines = log_path.read_text(errors="replace").splitlines()
    telling = [line.strip() for line in lines if re.search(r"Exception|Error|unresolved dependency", line)]
    return telling[-1] if telling else None


def _sweep(scratch: Path, litter: Path | None) -> None:
    """Remove the session's scratch directory, and the empty folder that Spark 4.0 leaves in the working directory."""
    shutil.rmtree(scratch, ignore_errors=True)
    if litter is not None:
        try:
            litter.rmdir()
        except OSError:
            pass  # Not there, or somebody keeps things in it.
