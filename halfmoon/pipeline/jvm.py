"""The JVM of a session whose driver is this program: started quietly, ended for certain, swept up after.

Settings come from four sides. `config` and an explicit master win over everything; then what spark-submit or
spark-defaults.conf say; then the defaults handed in; and a session that runs on this machine alone is set up for a
laptop where nobody said otherwise.
"""

from __future__ import annotations

import atexit
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from halfmoon.pipeline.errors import PipelineError
from halfmoon.pipeline.failures import reason

if TYPE_CHECKING:
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

STOP_GRACE_S = 10
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


def submitted() -> bool:
    """Whether spark-submit started this program, and so has a JVM for it and knows where it runs."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def start(defaults: Mapping[str, str], fixed: Mapping[str, str], cores: int, log_file: Path | None) -> SparkSession:
    """Start Spark, or join the one that spark-submit has started; what the JVM prints goes to `log_file`.

    Raises PipelineError with the JVM's own reason. Whatever was started has ended then, and its files are gone.
    """
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    if not submitted():
        stop(None)  # A JVM that somebody's stopped session has left was started without the connector.
    scratch = Path(tempfile.mkdtemp(prefix="halfmoon-spark-"))
    log_path = log_file or scratch / "spark.log"
    litter = None if Path("artifacts").exists() else Path("artifacts").absolute()
    sweep = partial(_sweep, scratch, litter)
    gateway = None
    with log_path.open("ab") as log:
        try:
            # Where spark-submit has a JVM, both arguments are left alone.
            asked = SparkConf(loadDefaults=False).setAll([*{**_logging(scratch), **defaults, **fixed}.items()])
            gateway = SparkContext._gateway or launch_gateway(conf=asked, popen_kwargs=_quiet(log))
            gateway.sweep = sweep  # stop() finds it where pyspark itself keeps `proc`.
            conf = _completed(SparkConf(_jvm=gateway.jvm), defaults, fixed, _laptop(scratch, cores))
            context = SparkContext(conf=conf, gateway=gateway)
        except BaseException as failed:
            said = reason(failed)  # While the JVM can be asked.
            _end_jvm(getattr(gateway, "proc", None))
            _forget()
            said = _last_error(log_path) or said
            sweep()
            if not isinstance(failed, Exception):
                raise
            raise PipelineError(f"Spark did not start: {said}") from failed
    if conf.get("spark.master", "").startswith("local") and "PYSPARK_PYTHON" not in os.environ:
        # Spark would take the `python3` of the PATH: one without pyspark, where no virtual environment is active.
        context.pythonExec = sys.executable
    # For programs that end without stop(): the JVM goes by itself when its standard input closes.
    atexit.register(sweep)
    context.setLogLevel("ERROR")
    # Not through the builder: that one looks at the environment again for where Spark is.
    return SparkSession(context)


def stop(session: SparkSession | None) -> None:
    """Stop Spark and its JVM, and wait until the process is gone; one that spark-submit started goes on."""
    try:
        from pyspark import SparkContext
    except ImportError:
        return  # Of pyspark, only what Spark Connect needs is installed: there is no JVM.
    gateway = SparkContext._gateway
    process = getattr(gateway, "proc", None)
    if process is None:
        if session is not None and gateway is not None:
            session.stop()
        return
    context = SparkContext._active_spark_context
    if context is not None:
        # It would print a traceback when the JVM hangs up.
        context._accumulatorServer.shutdown()
    # Else the thread that tells the JVM which objects nobody needs any more would log that it does not answer.
    gateway._gateway_client.is_connected = False
    _end_jvm(process)
    gateway.close()
    gateway.shutdown()
    _forget()
    # Not getattr: of a gateway, whatever it does not have is a method of Java's.
    sweep = vars(gateway).get("sweep")
    if sweep is not None:
        sweep()


def _completed(
    conf: SparkConf, defaults: Mapping[str, str], fixed: Mapping[str, str], laptop: Mapping[str, str]
) -> SparkConf:
    """`conf` as the JVM was started with, and the rest; this module's first lines say who wins."""
    for name, value in fixed.items():
        conf.set(name, value)
    # On a cluster, executors elsewhere must reach the driver, and what is right for a laptop is small.
    alone = conf.get("spark.master", "local").startswith("local")
    for name, value in {**defaults, **(laptop if alone else {})}.items():
        conf.setIfMissing(name, value)
    return conf


def _logging(scratch: Path) -> dict[str, str]:
    log4j = scratch / "log4j2.properties"
    log4j.write_text(_LOG4J)
    return {"spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={log4j.as_uri()}"}


def _laptop(scratch: Path, cores: int) -> dict[str, str]:
    return {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        # Two waves of tasks a stage: enough to even out skew, few enough that a small shuffle is quick.
        "spark.sql.shuffle.partitions": str(2 * cores),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
    }


def _forget() -> None:
    """What pyspark remembers of a JVM must go with it, or a later session would talk to a dead process."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None
    SparkSession._instantiatedSession = None


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
        process.wait(STOP_GRACE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _last_error(log_path: Path) -> str | None:
    """The line of the JVM's output that says most about why it ended."""
    lines = log_path.read_text(errors="replace").splitlines()
    telling = [line.strip() for line in lines if re.search(r"Exception|Error|unresolved dependency", line)]
    last = telling[-1] if telling else None
    if last and "[download failed: " in last:
        # Ivy keeps to the first repository that has the .pom; Maven leaves those of jars that it did not need.
        return f"{last}: where ~/.m2 has only the .pom, Spark looks nowhere else. Remove it there and from ~/.ivy2*"
    return last


def _sweep(scratch: Path, litter: Path | None) -> None:
    """Remove the session's scratch directory, and the empty folder that Spark 4.0 leaves in the working directory."""
    shutil.rmtree(scratch, ignore_errors=True)
    if litter is not None:
        try:
            litter.rmdir()
        except OSError:
            pass  # Not there, or somebody keeps things in it.
