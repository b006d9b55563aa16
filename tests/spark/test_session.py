"""halfmoon.pipeline.session with a JVM."""

from __future__ import annotations

import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from halfmoon.pipeline import PipelineError, session
from halfmoon.pipeline.session import spark_errors
from tests.spark.cluster import program_environment

AFTER_SOMEBODY_ELSE = """
from pyspark.sql import SparkSession
from halfmoon.pipeline import session, stop

SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate().stop()
spark = session(cores=1)
print(spark.sparkContext.getConf().get("spark.jars.packages"), spark.range(3).count())
stop(spark)
"""


def test_a_running_session_is_used_again(spark) -> None:
    assert session("another name") is spark


def test_it_is_found_from_every_thread(spark) -> None:
    with ThreadPoolExecutor(1) as thread:
        assert thread.submit(session).result() is spark


def test_another_kind_beside_it_is_refused(spark) -> None:
    with pytest.raises(PipelineError, match="a session in a JVM of this program is running"):
        session(remote="sc://127.0.0.1")


def test_the_session_is_set_up_for_a_laptop(spark) -> None:
    conf = spark.sparkContext.getConf()
    assert conf.get("spark.driver.host") == "127.0.0.1"
    assert spark.conf.get("spark.sql.shuffle.partitions") == "4"
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.sparkContext.uiWebUrl is None
    assert spark.sparkContext.master == "local[2]"


def test_spark_runs_this_python_whatever_the_path_says(spark) -> None:
    assert spark.sparkContext.parallelize([0], 1).map(lambda _: sys.executable).collect() == [sys.executable]


def test_what_spark_raises_becomes_one_line(spark) -> None:
    with pytest.raises(PipelineError, match=r"Spark failed: .*PATH_NOT_FOUND") as caught, spark_errors():
        spark.read.parquet("/nowhere/at/all")
    assert "\n" not in str(caught.value)


WITH_PACKAGES = """
import sys
from halfmoon.pipeline import PipelineError, session

try:
    session(packages=sys.argv[1])
except PipelineError as error:
    print(error)
"""
POM = """
<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>com.example</groupId>
  <artifactId>left</artifactId>
  <version>1</version>
</project>
"""


def test_what_maven_has_left_without_its_jar_is_pointed_at(tmp_path) -> None:
    left = tmp_path / ".m2" / "repository" / "com" / "example" / "left" / "1"
    left.mkdir(parents=True)
    (left / "left-1.pom").write_text(POM)
    done = subprocess.run(
        [sys.executable, "-c", WITH_PACKAGES, "com.example:left:1"],
        cwd=tmp_path,
        env=program_environment(SPARK_SUBMIT_OPTS=f"-Duser.home={tmp_path}"),
        capture_output=True,
        text=True,
        timeout=200,
        check=True,
    )
    assert re.fullmatch(
        r"Spark did not start: .*\[download failed: com\.example#left;1!left\.jar\]"
        r": where ~/\.m2 has only the \.pom, Spark looks nowhere else\. Remove it there and from ~/\.ivy2\*\n",
        done.stdout,
    )


def test_a_session_of_somebody_elses_before_it_does_no_harm(tmp_path) -> None:
    """pyspark's own stop() leaves a JVM behind, which has no connector and takes no more settings."""
    command = [sys.executable, "-c", AFTER_SOMEBODY_ELSE]
    environment = program_environment()
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    assert "spark-sql-kafka" in done.stdout
    assert done.stdout.endswith(" 3\n")
