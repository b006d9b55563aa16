"""A JVM of the test run's, reached from Python through py4j.

Where its jars come from is Spark's affair: the JVM is started as PySpark starts its own, with a client among
`spark.jars.packages`. So a mirror that is set up for Spark serves it too, and neither a compiler nor Maven is needed.
What runs is a plain JVM with the client's classes: no SparkContext is made.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any


class Jvm:
    def __init__(self, folder: Path, package: str, excluded: Sequence[str], java_options: Sequence[str]) -> None:
        """`excluded`: what the package needs, and Spark has, or nobody uses. Its log is in the folder."""
        from pyspark import SparkConf
        from pyspark.java_gateway import launch_gateway

        (folder / "log4j2.properties").write_text("rootLogger.level = error\n")
        options = [*java_options, f"-Dlog4j2.configurationFile={(folder / 'log4j2.properties').as_uri()}"]
        conf = SparkConf(loadDefaults=False)
        conf.set("spark.jars.packages", package)
        conf.set("spark.jars.excludes", ",".join(excluded))
        conf.set("spark.driver.memory", "512m")
        conf.set("spark.driver.extraJavaOptions", " ".join(options))
        log_path = folder / "java.log"
        with log_path.open("wb") as log:
            try:
                self.gateway: Any = launch_gateway(conf=conf, popen_kwargs={"stdout": log, "stderr": log})
            except Exception as error:
                raise AssertionError(f"no JVM with {package}: {log_path.read_text()[-3_000:]}") from error
        self.process: subprocess.Popen[bytes] = self.gateway.proc
        self.jvm: Any = self.gateway.jvm

    def stop(self) -> None:
        assert self.process.stdin is not None
        self.gateway._gateway_client.is_connected = False
        self.process.stdin.close()  # Which ends it.
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.gateway.close()
        self.gateway.shutdown()

    def named(self, name: str) -> Any:
        """A class by its full name; an inner one with a dollar sign."""
        found = self.jvm
        for part in name.split("."):
            found = getattr(found, part)
        return found

    def list(self, values: Iterable[Any]) -> Any:
        made = self.jvm.java.util.ArrayList()
        for value in values:
            made.add(value)
        return made
