"""halfmoon.pipeline.session with a JVM."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from halfmoon.pipeline import PipelineError, session
from halfmoon.pipeline.session import spark_errors


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


def test_what_spark_raises_becomes_one_line(spark) -> None:
    with pytest.raises(PipelineError, match=r"Spark failed: .*PATH_NOT_FOUND") as caught, spark_errors():
        spark.read.parquet("/nowhere/at/all")
    assert "\n" not in str(caught.value)
