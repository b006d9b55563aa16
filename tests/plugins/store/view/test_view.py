"""`views` in broker.yaml: made at the start, or when their source comes; what contradicts stops the start."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from kafka import KafkaAdminClient
from kafka.admin import NewTopic
from kafka.errors import InvalidConfigurationError

import halfmoon.testing
from halfmoon.errors import StartError
from halfmoon.offline.dumping import dump
from tests.several_workers import of_one_data_directory

PAID = {"source": "orders", "tag": "paid || refunded"}


def broker(views: dict[str, Any], data_dir: Path, **config: Any) -> halfmoon.testing.Broker:
    return halfmoon.testing.Broker(config={"views": views, **config}, data_dir=str(data_dir))


def create(running: halfmoon.testing.Broker, *names: str) -> None:
    client = KafkaAdminClient(bootstrap_servers=running.bootstrap_servers)
    client.create_topics([NewTopic(name, 2, 1) for name in names])
    client.close()


def configs(running: halfmoon.testing.Broker, name: str) -> dict[str, str]:
    assert running.app is not None
    topic = running.app.node.kernel.catalog.topic(name)
    assert topic is not None
    return topic.configs


def read(running: halfmoon.testing.Broker, topic: str, count: int) -> list[bytes]:
    consumer = Consumer(
        {"bootstrap.servers": running.bootstrap_servers, "group.id": "g", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    found = []
    while len(found) < count:
        message = consumer.poll(10)
        assert message is not None, found
        assert message.error() is None
        found.append(message.value())
    consumer.close()
    return sorted(found)


def send(running: halfmoon.testing.Broker, topic: str, *tags: str) -> None:
    producer = Producer({"bootstrap.servers": running.bootstrap_servers})
    for tag in tags:
        producer.produce(topic, tag.encode(), headers={"TAGS": tag})
    producer.flush()


def test_views_are_there_as_soon_as_their_sources_are(tmp_path: Path) -> None:
    views = {
        "late": {"source": "orders.paid", "sql": "TAGS = 'refunded'", "configs": {"retention.ms": 5_000_000}},
        "orders.paid": PAID,
        "new": {**PAID, "from": "latest"},
    }
    with broker(views, tmp_path) as running:
        assert running.app is not None
        assert running.app.node.kernel.catalog.topic("orders.paid") is None
        create(running, "orders")
        send(running, "orders", "paid", "open", "refunded", "paid")
        assert read(running, "orders.paid", 3) == [b"paid", b"paid", b"refunded"]
        assert read(running, "late", 1) == [b"refunded"]
        assert configs(running, "late") == {
            "halfmoon.view.source": "orders.paid",
            "halfmoon.view.sql": "TAGS = 'refunded'",
            "retention.ms": "5000000",
        }
        assert configs(running, "new")["halfmoon.view.from"] == "latest"
        running.restart()
        send(running, "orders", "refunded")
        assert read(running, "late", 1) == [b"refunded"]


def test_a_view_that_is_not_named_any_more_stays(tmp_path: Path) -> None:
    with broker({"orders.paid": PAID}, tmp_path) as running:
        create(running, "orders")
    with broker({}, tmp_path) as running:
        assert configs(running, "orders.paid")["halfmoon.view.source"] == "orders"


@pytest.mark.parametrize(
    ("views", "said"),
    [
        ({"v": {"tag": "a"}}, r"\$\.views\.v\.source: got None, expected the name of a topic"),
        ({"v": {"source": "orders"}}, r"\$\.views\.v: a view needs one filter"),
        ({"v": {"source": "orders", "tag": 5}}, r"\$\.views\.v\.tag: got 5, expected text"),
        ({"v": {"source": "orders", "sql": "a >"}}, r"\$\.views\.v: .*line 1, column 4"),
        ({"v": {"source": "no", "sql": "a >"}}, r"\$\.views\.v: .*line 1, column 4"),
        ({"v": {"source": "orders", "xpath": "a"}}, r"\$\.views\.v: .*'xpath' \(there are: sql92, tag\)"),
        ({"v": {"source": "orders", "tag": "a", "from": "now"}}, "expected earliest or latest"),
        ({"v": {"source": "orders", "tag": "a", "configs": 5}}, r"\$\.views\.v\.configs: got 5"),
        ({"v": {"source": "orders", "tag": "a", "configs": {"x": 5}}}, "unknown topic config name: x"),
        ({"a": {"source": "b", "tag": "x"}, "b": {"source": "a", "tag": "x"}}, "a circle: a from b from a"),
        ({"a": {"source": "a", "tag": "x"}}, "a circle: a from a"),
        ({"orders": {"source": "paid", "tag": "x"}}, "there is a topic of that name, which is no view"),
        ({"paid": {"source": "orders", "tag": "x"}}, r"with source: 'orders', tag: 'paid'.*views never change"),
        ({"v": 5}, r"\$\.views\.v"),
    ],
)
def test_what_cannot_be_made_stops_the_start(tmp_path: Path, views: dict[str, Any], said: str) -> None:
    with broker({"paid": {"source": "orders", "tag": "paid"}}, tmp_path) as running:
        create(running, "orders")
    with pytest.raises(StartError, match=said):
        broker(views, tmp_path).start()


def test_the_section_needs_the_plugin(tmp_path: Path) -> None:
    with pytest.raises(StartError, match=r"\$\.views: no enabled plugin has such a section"):
        broker({"v": PAID}, tmp_path, plugins={"view": False}).start()


@of_one_data_directory
def test_the_log_says_what_a_view_is(tmp_path: Path) -> None:
    with broker({"orders.paid": PAID}, tmp_path) as running:
        create(running, "orders")
    said = [info.control for info in dump(tmp_path) if info.control is not None]
    assert any("orders.paid" in text and "view=Binding(source_number=0, starts=[0, 0])" in text for text in said)


def test_with_the_plugin_off_there_are_no_views_and_back_on_they_catch_up(tmp_path: Path) -> None:
    with broker({"orders.paid": PAID}, tmp_path) as running:
        create(running, "orders")
        send(running, "orders", "paid")
        assert read(running, "orders.paid", 1) == [b"paid"]
    with halfmoon.testing.Broker(config={"plugins": {"view": False}}, data_dir=str(tmp_path)) as running:
        send(running, "orders", "refunded")
        client = KafkaAdminClient(bootstrap_servers=running.bootstrap_servers)
        with pytest.raises(InvalidConfigurationError, match=r"halfmoon\.view\.source is not supported: view is off"):
            client.create_topics([NewTopic("v", 2, 1, topic_configs={"halfmoon.view.source": "orders"})])
        client.close()
        assert configs(running, "orders.paid")["halfmoon.view.source"] == "orders"
        assert running.app is not None
        view = running.app.node.kernel.catalog.topic("orders.paid")
        assert view is not None
        assert sum(partition.next_offset for partition in view.partitions) == 1
    with broker({"orders.paid": PAID}, tmp_path) as running:
        assert read(running, "orders.paid", 1) == [b"refunded"]
