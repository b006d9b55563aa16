"""session() with a Spark Connect server, in a program that starts no Java."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pyspark
import pytest

from tests.spark.cluster import connect_server, program_environment
from tests.spark.program import ORDERS, SHOPS, produce_orders, run

pytestmark = pytest.mark.skipif(
    pyspark.__version__ < "4", reason="before Spark 4.0 the server is not in pyspark's package"
)

# Whoever looks for Java there finds none, and says so.
NO_JAVA = {"JAVA_HOME": "/no-java-here"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
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
