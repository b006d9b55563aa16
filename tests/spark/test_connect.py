"""session() with a Spark Connect server, in a program that starts no Java."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pyspark
import pytest

from tests.spark.cluster import connect_server, program_environment
from tests.spark.program import ORDERS, SHOPS, produce_orders, run

pytestmark = pytest.mark.skipif(
    pyspark.__version__ < "4", reason="before Spark 4.0 the server is not in pyspark's package"
)

WORKER = "pyspark.sql.connect.streaming.worker.foreach_batch_worker"

LATE, ATTEMPTS = "Python worker failed to connect back", 3
"""The server waits 10 s for its Python worker, and cannot be told to wait longer. On a slow machine, beside other
tests, its imports have taken more."""

# Whoever looks for Java there finds none, and says so.
NO_JAVA = {"JAVA_HOME": "/no-java-here"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    # What its Python worker imports comes from the disk now, not in the 10 s that it has.
    subprocess.run([sys.executable, "-c", f"import {WORKER}"], check=True)
    with connect_server(tmp_path_factory.mktemp("connect")) as url:
        yield url


@pytest.mark.parametrize("by", ["argument", "environment"])
def test_a_program_with_spark_connect(by, server, bootstrap, make_topic, tmp_path) -> None:
    where, variables = ({"remote": server}, {}) if by == "argument" else ({}, {"SPARK_REMOTE": server})
    environment = program_environment(**NO_JAVA, **variables)
    for attempt in range(ATTEMPTS):
        topic, folder = make_topic(2), tmp_path / str(attempt)
        folder.mkdir()
        produce_orders(bootstrap, topic)
        try:
            found = run([sys.executable], where, (bootstrap, topic, folder), environment)
        except AssertionError as error:
            if LATE not in str(error) or attempt == ATTEMPTS - 1:
                raise
        else:
            break
    assert (found["shops"], found["streamed"], found["in_table"]) == (SHOPS, ORDERS, ORDERS)
    assert found["archived"] == [[ORDERS, ORDERS], [0, ORDERS]]
    assert (found["zone"], found["same"], found["java"]) == ("UTC", True, None)
    assert found["refused"].startswith("PipelineError: Spark failed: [UNRESOLVED_COLUMN")
