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

# Whoever looks for Java there finds none, and says so.
NO_JAVA = {"JAVA_HOME": "/no-java-here"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    # The server waits 10 s for its Python worker, and cannot be told to wait longer. From a cold disk and beside other
    # tests the worker's imports have taken more.
    subprocess.run([sys.executable, "-c", f"import {WORKER}"], check=True)
    with connect_server(tmp_path_factory.mktemp("connect")) as url:
        yield url


@pytest.mark.parametrize("by", ["argument", "environment"])
def test_a_program_with_spark_connect(by, server, bootstrap, make_topic, tmp_path) -> None:
    topic = make_topic(2)
    produce_orders(bootstrap, topic)
    where, variables = ({"remote": server}, {}) if by == "argument" else ({}, {"SPARK_REMOTE": server})
    environment = program_environment(**NO_JAVA, **variables)
    found = run([sys.executable], where, (bootstrap, topic, tmp_path), environment)
    assert (found["shops"], found["streamed"], found["in_table"]) == (SHOPS, ORDERS, ORDERS)
    assert found["archived"] == [[ORDERS, ORDERS], [0, ORDERS]]
    assert (found["zone"], found["same"], found["java"]) == ("UTC", True, None)
    assert found["refused"].startswith("PipelineError: Spark failed: [UNRESOLVED_COLUMN")
