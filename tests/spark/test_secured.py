"""The pipeline at a broker with TLS, passwords and access rules, as a user with the rights that docs/pipeline.md names;
and what is shown of the password: nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from halfmoon.demo.children import running_descendants
from halfmoon.pipeline import (
    Brokers,
    GroupOffsets,
    PipelineError,
    archive,
    commit_progress,
    read_stream,
    read_topic,
    replay,
    write_topic,
)
from halfmoon.pipeline.admin import Admin
from halfmoon.pipeline.brokers import BOOTSTRAP_VARIABLE, CONFIG_VARIABLE
from halfmoon.pipeline.jobs.lag import lag_report
from halfmoon.pipeline.jobs.shop import fill
from halfmoon.securing import read
from halfmoon.testing import Broker

PASSWORD = 'pass"word\\ = ;é'
"""Nothing about it is simple."""


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(secure=True, config={"topics": {"partitions": 2}}) as running:
        yield running


@pytest.fixture(scope="module")
def orders(broker: Broker) -> str:
    producer = Producer(broker.client_config())
    for n in range(20):
        producer.produce("orders", b"%d" % n, b"k%d" % n, n % 2, headers={"TAGS": "TagA"})
    assert producer.flush(10) == 0
    return "orders"


def user(broker: Broker, name: str, *rights: tuple[str, ...]) -> Brokers:
    """One who may do so much: (resource, operation, …)."""
    broker.create_user(name, PASSWORD)
    for resource, *operations in rights:
        broker.allow(name, resource, *operations)
    return Brokers(broker.bootstrap_servers, command_config=broker.client_properties(name))


def values(frame: Any) -> list[int]:
    return sorted(int(bytes(row["value"])) for row in frame.select("value").collect())


def test_reading_takes_read_on_the_topic(spark, broker: Broker, orders: str, tmp_path: Path) -> None:
    there = user(broker, "reader", (f"topic:{orders}", "Read"))
    assert values(read_topic(spark, orders, bootstrap=there)) == list(range(20))
    stream = read_stream(spark, orders, bootstrap=there)
    query = (
        stream.writeStream.format("memory").queryName("secured").trigger(availableNow=True)
        .option("checkpointLocation", str(tmp_path)).start()
    )  # fmt: skip
    query.awaitTermination()
    assert spark.table("secured").count() == 20
    nobody = user(broker, "nobody")
    with pytest.raises(PipelineError, match=r"(?i)authoriz"):
        read_topic(spark, orders, bootstrap=nobody)


def test_writing_takes_write_on_the_topic(spark, broker: Broker) -> None:
    Admin(Brokers(broker.bootstrap_servers, command_config=broker.client_properties())).create_topic("written", 2)
    there = user(broker, "writer", ("topic:written", "Write"))
    write_topic(spark.range(3).selectExpr("CAST(id AS STRING) AS value"), "written", bootstrap=there)
    assert sum(Admin(there).ends("written").values()) == 3


def test_filters_take_what_views_take(spark, broker: Broker, orders: str) -> None:
    there = user(broker, "filterer", (f"topic:{orders}", "Read", "DescribeConfigs"))
    broker.allow("filterer", f"topic:{orders}.", "Create", "Read", "DescribeConfigs", prefixed=True)
    assert read_topic(spark, orders, tag="TagA", bootstrap=there).count() == 20


def test_groups(spark, broker: Broker, orders: str) -> None:
    there = user(broker, "grouped", (f"topic:{orders}", "Read"), ("group:billing", "Read"))
    Admin(there).commit("billing", {orders: {0: 5, 1: 10}})
    assert read_topic(spark, orders, start=GroupOffsets("billing"), bootstrap=there).count() == 5
    spark.streams.removeListener(commit_progress(spark, "billing", bootstrap=there))


def test_archive_and_replay(spark, broker: Broker, orders: str, tmp_path: Path) -> None:
    Admin(Brokers(broker.bootstrap_servers, command_config=broker.client_properties())).create_topic("again", 2)
    reads = user(broker, "archiver", (f"topic:{orders}", "Read"), ("group:archive", "Read"))
    done = archive(spark, [orders], str(tmp_path), bootstrap=reads, group="archive")
    assert done[orders].rows == 20
    assert sum(Admin(reads).committed("archive")[orders].values()) == 20
    both = user(
        broker, "replayer", (f"topic:{orders}", "Describe"), ("topic:again", "Read", "Write", "DescribeConfigs"),
        ("group:halfmoon-replay", "Describe"),
    )  # fmt: skip
    assert replay(spark, str(tmp_path), orders, "again", bootstrap=both, name="one").sent == 20
    with pytest.raises(PipelineError, match="finished"):
        replay(spark, str(tmp_path), orders, "again", bootstrap=both, name="one")
    assert values(read_topic(spark, "again", bootstrap=both)) == list(range(20))


def test_orders_and_lag_without_spark(broker: Broker, tmp_path: Path) -> None:
    there = user(broker, "shop", ("topic:shop", "Create", "Write"))
    assert fill("shop", 100, bootstrap=there)["orders"] == 100
    watcher = user(broker, "watcher", ("topic:orders", "Describe"), ("group:billing", "Describe"))
    assert lag_report(tmp_path, bootstrap=watcher).page.exists()


def test_the_data_source(spark, broker: Broker, orders: str) -> None:
    pytest.importorskip("pyspark.sql.datasource", reason="Spark before 4.0 has no Python data sources")
    from halfmoon.pipeline.datasource import register

    there = user(broker, "source", (f"topic:{orders}", "Read"), ("group:halfmoon-datasource", "Describe"))
    register(spark, there)
    assert values(spark.read.format("halfmoon").load(orders)) == list(range(20))
    register(spark)
    file = broker.client_properties("source")
    reader = spark.read.format("halfmoon").option("bootstrap", broker.bootstrap_servers)
    assert values(reader.option("command_config", str(file)).load(orders)) == list(range(20))


def test_nothing_that_is_kept_or_shown_has_the_password(
    spark, broker: Broker, orders: str, tmp_path: Path, capfd: Any
) -> None:
    """Plans of the UI and of event logs, checkpoints, the reason why a query failed."""
    there = user(broker, "shown", (f"topic:{orders}", "Read"), ("topic:shown", "Write", "Create"))
    frame = read_topic(spark, orders, bootstrap=there)
    for mode in ("simple", "extended", "formatted", "cost"):
        frame.explain(mode)
    frame.count()
    write_topic(frame.select("value").limit(1), "shown", bootstrap=there)
    stream = read_stream(spark, orders, bootstrap=there)
    stream.explain()
    running = write_topic(stream.select("value"), "shown", bootstrap=there, checkpoint=tmp_path / "kept")
    assert running is not None
    running.awaitTermination()
    running.explain(extended=True)
    failing = stream.selectExpr("CAST(raise_error('on purpose') AS STRING) AS value")
    with pytest.raises(Exception, match="on purpose") as failed:
        write_topic(failing, "shown", bootstrap=there, checkpoint=tmp_path / "failed").awaitTermination()
    kept = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    said = "".join(capfd.readouterr()) + str(failed.value) + kept.decode("latin-1") + repr(there)
    assert "Subscribe[orders]" in said
    for pid in running_descendants():
        command = Path(f"/proc/{pid}/cmdline").read_bytes()  # it has a rule that hides passwords
        assert b"LoginModule" not in command
        assert PASSWORD.encode() not in command
    executions = spark._jsparkSession.sharedState().statusStore().executionsList()
    plans = [executions.apply(at).physicalPlanDescription() for at in range(executions.size())]
    assert sum("orders" in plan for plan in plans) >= 2
    assert any("SaveIntoDataSource" in plan for plan in plans)
    for secret in (PASSWORD, there.spark()["kafka.sasl.jaas.config"], "ScramLoginModule", "word"):
        for text in (said, *plans):
            if secret in text:
                at = text.index(secret)
                raise AssertionError(text[max(0, at - 1500) : at + 100])


def test_the_environment_says_it_too(
    broker: Broker, orders: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(BOOTSTRAP_VARIABLE, broker.bootstrap_servers)
    monkeypatch.setenv(CONFIG_VARIABLE, str(broker.client_properties()))
    assert orders in Admin().topics()
    assert orders in Admin(broker.bootstrap_servers).topics()
    monkeypatch.setenv(CONFIG_VARIABLE, str(tmp_path / "none"))
    with pytest.raises(PipelineError, match="No such file"):
        Admin()
    wrong = tmp_path / "client.properties"
    wrong.write_text("sasl.mechanizm=PLAIN\n")
    with pytest.raises(PipelineError, match=r"client\.properties: line 1: sasl.mechanizm is no property"):
        Brokers(command_config=wrong)
    token = tmp_path / "token.properties"
    token.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-256\nsasl.jaas.config=x.ScramLoginModule required "
        'username="i" password="h" tokenauth="true";\n'
    )
    assert read(token, str).is_token
    with pytest.raises(PipelineError, match="delegation token"):
        Brokers(command_config=token)
