"""A SparkSession that can talk to a broker, for whichever pyspark is installed, wherever Spark runs.

What goes wrong without this module, in the order people meet it: the connector's coordinates name another Spark or
Scala version than pyspark's; Spark binds to the machine's outside address; the terminal fills with log lines; 200
shuffle partitions make a small aggregation slow; `spark-warehouse` and `artifacts` lie about in the working directory;
the JVM outlives an interrupted program; a cluster that is not there is waited for, for minutes.

There are four places: this machine, a cluster (`master`), whatever spark-submit has chosen, and a Spark Connect server
(`remote`). The first three have a JVM on this machine (jvm.py, java.py), the last one has none (connect.py).
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from halfmoon.pipeline import jvm
from halfmoon.pipeline.connect import connect, disconnect, is_connected
from halfmoon.pipeline.errors import PipelineError
from halfmoon.pipeline.failures import keep_off_the_terminal, spark_errors
from halfmoon.pipeline.java import check_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["check_java", "connector_coordinates", "session", "spark_errors", "stop"]

EVERYWHERE = {
    "spark.sql.session.timeZone": "UTC",
    # How a source logs in is among its options, which plans show: in the UI, and in event logs.
    "spark.sql.redaction.options.regex": "(?i)url|jaas|keystore|ssl[.]key|secret|password|token",
}
"""What holds for every session. Times of a log are instants."""

HIDDEN = "(?i)secret|password|passphrase|token|access[.]?key|jaas|keystore"
"""Spark's own value of spark.redaction.regex, and what Kafka's clients log in with."""

NEWEST_CONNECTORS = ("4.0.4", "4.1.3", "4.2.0")
"""The newest connector of each version of Spark from 4.0 on, in Maven Central on 2026-11-24: some releases of Spark
have none. pyproject.toml bounds pyspark by the first."""

REACH_S = 5.0
"""How long a standalone cluster's master may take to accept a connection."""


def connector_coordinates(pyspark_version: str, *, avro: bool = False) -> str:
    """Maven coordinates of Spark's Kafka connector for a pyspark version, say "4.0.0"; and, with `avro`, of what reads
    Avro.

    The connector must be of Spark's very version, and of the Scala version pyspark's jars were built with: 2.12 up to
    Spark 3.5, 2.13 from 4.0 on. Raises PipelineError for a version that has no number of three parts.
    """
    match = re.match(r"(\d+)\.(\d+)\.(\d+)", pyspark_version)
    if match is None:
        raise PipelineError(f"cannot tell which Kafka connector fits pyspark {pyspark_version!r}; give packages=")
    scala = "2.13" if int(match[1]) >= 4 else "2.12"
    names = ["spark-sql-kafka-0-10", *(["spark-avro"] if avro else [])]
    return ",".join(f"org.apache.spark:{name}_{scala}:{match[0]}" for name in names)


def without_connector(pyspark_version: str) -> str | None:
    """Which pysparks have a connector, if none is known for this one."""
    found = [int(number) for number in re.findall(r"\d+", pyspark_version)[:3]]
    newest = {tuple(known[:2]): known for known in ([int(n) for n in each.split(".")] for each in NEWEST_CONNECTORS)}
    if found < [4, 0] or found <= newest.get(tuple(found[:2]), []):
        return None
    ranges = [f"{each[:-1]}0 to {each}" if not each.endswith(".0") else each for each in NEWEST_CONNECTORS]
    return (
        f"no Kafka connector is known for pyspark {pyspark_version}; install one that has a connector "
        f"({', '.join(('3.5', *ranges))}), or give packages="
    )


def session(
    app_name: str = "halfmoon",
    *,
    master: str | None = None,
    remote: str | None = None,
    cores: int = 2,
    driver_memory: str = "1g",
    packages: str | None = None,
    avro: bool = False,
    log_file: Path | None = None,
    config: Mapping[str, str] | None = None,
) -> SparkSession:
    """The running SparkSession, or a new one with the Kafka connector that fits.

    `master` is where Spark runs: `local[cores]`, spark://HOST:PORT or any other that Spark knows. `remote` is a Spark
    Connect server, sc://HOST:PORT, which must have the connector; of the other arguments, only those settings of
    `config` count there that a running server takes. Without both it is SPARK_REMOTE or MASTER of the environment, as
    for pyspark itself, and then this machine. A program that spark-submit started runs where that says, and what it was
    given on the command line wins over what is set here, except `master` and `config`; it needs `--packages` there.

    With `avro` it can read Avro (`read_topic(schema=Avro(…))`). `packages` overrides these coordinates ("" where Spark
    has the connector already), `config` any setting made here. What the JVM prints goes to `log_file`, or to a
    temporary file whose end is quoted if it cannot start.

    Raises PipelineError where pyspark or Java is missing; where the JVM does not come up, most often because the
    connector could not be downloaded; where a master or a server cannot be reached; and where a running session is
    not of the kind asked for.
    """
    try:
        import pyspark
    except ImportError as missing:
        extra = "spark" if remote is None else "connect"
        raise PipelineError(f"{missing.name} is not installed: pip install 'halfmoon[{extra}]'") from None
    place, connected = _place(master, remote)
    running = _running()
    if running is not None:
        if (master is not None or remote is not None) and is_connected(running) != connected:
            kind = "with Spark Connect" if is_connected(running) else "in a JVM of this program"
            raise PipelineError(f"a session {kind} is running, and there cannot be another kind beside it: stop() it")
        return running
    keep_off_the_terminal()
    if place is not None and connected:
        return connect(place, {**EVERYWHERE, **(config or {})})
    fixed = dict(config or {})
    if not jvm.submitted():
        check_java(pyspark.__version__)
        fixed.setdefault("spark.master", place or f"local[{cores}]")
    elif master is not None:
        fixed.setdefault("spark.master", master)
    _reach(fixed.get("spark.master", ""))
    chosen = connector_coordinates(pyspark.__version__, avro=avro) if packages is None else packages
    try:
        return jvm.start(_defaults(app_name, driver_memory, chosen), fixed, cores, log_file)
    except PipelineError as error:
        unknown = without_connector(pyspark.__version__) if packages is None else None
        if unknown is None:
            raise
        raise PipelineError(f"{error}: {unknown}") from error


def stop(spark: SparkSession | None) -> None:
    """Stop Spark and its JVM, and wait until the process is gone; safe in the middle of a query and if called twice.

    Spark's own `stop()` leaves the JVM running until Python ends, and waits for running queries. Here the JVM is told
    to end by closing its standard input; its shutdown hooks remove its temporary files. A program started by
    spark-submit does not own its JVM; there only the context is stopped. With Spark Connect the session ends on the
    server, and the server goes on.
    """
    if spark is not None and is_connected(spark):
        disconnect(spark)
    else:
        jvm.stop(spark)


def _place(master: str | None, remote: str | None) -> tuple[str | None, bool]:
    """Where Spark runs, if anybody has said, and whether that is a Spark Connect server. Arguments beat environment."""
    if master is not None and remote is not None:
        raise PipelineError("master and remote are two places: Spark runs in one of them")
    if remote is not None:
        return remote, True
    expected = os.environ.get("SPARK_REMOTE")
    if master is not None:
        if expected:
            raise PipelineError("SPARK_REMOTE in the environment asks for Spark Connect, and master= for another place")
        return master, False
    return (expected, True) if expected else (os.environ.get("MASTER") or None, False)


def _running() -> SparkSession | None:
    """This process's session, whichever thread has made it; there cannot be a second."""
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    try:
        found = SparkSession.active()
    except (PySparkException, ImportError):
        return _of_running_context()
    if is_connected(found) or found.sparkContext._jsc is not None:
        return found
    return None  # Its context was stopped, and the session itself not told.


def _of_running_context() -> SparkSession | None:
    """A session of the SparkContext that somebody started without one, or None."""
    from pyspark.sql import SparkSession

    try:
        from pyspark import SparkContext
    except ImportError:
        return None
    return None if SparkContext._active_spark_context is None else SparkSession.builder.getOrCreate()


def _reach(master: str) -> None:
    """Raise PipelineError unless one of a standalone cluster's masters (spark://HOST:PORT,HOST:PORT) answers.

    Spark itself tries for a minute, and says so only in its log.
    """
    if not master.startswith("spark://"):
        return
    for place in master.removeprefix("spark://").split(","):
        host, _, port = place.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=REACH_S).close()
        except ValueError:
            raise PipelineError(f"{master!r} is no standalone cluster's master: spark://HOST:PORT") from None
        except OSError as error:
            failed = error.strerror or str(error)
        else:
            return
    raise PipelineError(f"no Spark master answers at {master}: {failed}")


def _defaults(app_name: str, driver_memory: str, packages: str) -> dict[str, str]:
    return {
        **EVERYWHERE,
        "spark.redaction.regex": HIDDEN,
        "spark.app.name": app_name,
        "spark.jars.packages": packages,
        "spark.driver.memory": driver_memory,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
