"""session() on a cluster whose machines know nothing of Halfmoon: in a program of Python's, and under spark-submit."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pyspark
import pytest

from halfmoon.pipeline import connector_coordinates
from tests.spark.cluster import WORKERS, Cluster, program_environment, spark_home, standalone_cluster
from tests.spark.program import ORDERS, SHOPS, produce_orders, run

# What needs Python in an executor would fail: it would be looked for under this name.
NO_PYTHON = {"PYSPARK_PYTHON": "no-python-on-the-workers"}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with standalone_cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


def workers_of(cluster: Cluster, application: str) -> list[int]:
    """The workers on which an executor of the application ran tasks, by what it printed itself."""
    return [n for n in range(WORKERS) if "Finished task" in cluster.printed(n, application)]


def test_a_program_on_a_cluster(cluster, bootstrap, make_topic, tmp_path) -> None:
    topic = make_topic(2)
    produce_orders(bootstrap, topic)
    where = {"master": cluster.url, "config": dict(cluster.settings)}
    environment = program_environment(**NO_PYTHON)
    found = run([sys.executable], where, (bootstrap, topic, tmp_path), environment)
    assert (found["shops"], found["streamed"], found["in_table"]) == (SHOPS, ORDERS, ORDERS)
    assert found["archived"] == [[ORDERS, ORDERS], [0, ORDERS]]
    assert (found["spark.master"], found["spark.app.name"], found["zone"]) == (cluster.url, "orders", "UTC")
    assert found["spark.sql.shuffle.partitions"] is None, "a laptop's number, on a cluster"
    assert found["same"]
    assert found["refused"].startswith("PipelineError: Spark failed: [UNRESOLVED_COLUMN")
    assert workers_of(cluster, found["spark.app.id"])


def test_a_program_under_spark_submit(cluster, bootstrap, make_topic, tmp_path) -> None:
    topic = make_topic(2)
    produce_orders(bootstrap, topic)
    told = {**cluster.settings, "spark.cores.max": "1", "spark.sql.shuffle.partitions": "3"}
    settings = [word for name, value in told.items() for word in ("--conf", f"{name}={value}")]
    packages = connector_coordinates(pyspark.__version__)
    submit = [str(spark_home() / "bin" / "spark-submit"), "--master", cluster.url, "--packages", packages, *settings]
    command = [*submit, "--name", "nightly"]
    where = {"config": {"spark.sql.session.timeZone": "Europe/Zurich"}}
    found = run(command, where, (bootstrap, topic, tmp_path), program_environment(**NO_PYTHON))
    assert (found["shops"], found["streamed"], found["in_table"]) == (SHOPS, ORDERS, ORDERS)
    assert found["archived"] == [[ORDERS, ORDERS], [0, ORDERS]]
    # What spark-submit was told stands, what it was not told is filled in, and `config` wins over both.
    assert (found["spark.master"], found["spark.app.name"]) == (cluster.url, "nightly")
    assert (found["spark.sql.shuffle.partitions"], found["spark.ui.enabled"]) == ("3", "false")
    assert found["zone"] == "Europe/Zurich"
    assert workers_of(cluster, found["spark.app.id"])
