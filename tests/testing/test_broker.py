"""The testing kit's broker: a real one, at once, and gone without a trace."""

from __future__ import annotations

import sys
import threading
import urllib.request
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

import halfmoon.testing
from halfmoon.errors import StartError
from halfmoon.plugin import hookimpl
from halfmoon.server.app import App
from halfmoon.testing import Broker
from tests.yardstick import yardsticks

QUIET = {"log_level": 0}


def produce(broker: Broker, *values: bytes, topic: str = "t") -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, **QUIET})
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(10) == 0


def consume(broker: Broker, count: int, topic: str = "t") -> list[bytes | None]:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "unused", **QUIET})
    try:
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        return [message.value() for message in consumer.consume(count, timeout=10)]
    finally:
        consumer.close()


def topics(broker: Broker) -> set[str]:
    client = AdminClient({"bootstrap.servers": broker.bootstrap_servers, **QUIET})
    return set(client.list_topics(timeout=10).topics)


def test_it_serves_and_leaves_nothing() -> None:
    before = threading.active_count()
    with Broker() as broker:
        produce(broker, b"one", b"two")
        assert consume(broker, 2) == [b"one", b"two"]
        folder = Path(broker.data_dir)
        assert folder.is_dir()
    assert not folder.exists()
    assert threading.active_count() <= before
    with pytest.raises(AssertionError, match="not running"):
        _ = broker.bootstrap_servers


def test_what_goes_wrong_at_the_end_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fails(app: App) -> None:
        await stop(app)
        raise RuntimeError("the end has failed")

    stop = App.stop
    monkeypatch.setattr(App, "stop", fails)
    broker = Broker().start()
    folder = Path(broker.data_dir)
    with pytest.raises(RuntimeError, match="the end has failed"):
        broker.stop()
    assert not folder.exists()
    broker.stop()


def test_two_brokers_know_nothing_of_each_other() -> None:
    with Broker() as first, Broker() as second:
        produce(first, b"one", topic="mine")
        assert first.bootstrap_servers != second.bootstrap_servers
        assert topics(first) == {"mine"}
        assert topics(second) == set()


def test_a_restart_keeps_the_data_and_the_address() -> None:
    with Broker() as broker:
        produce(broker, b"one")
        address, folder = broker.bootstrap_servers, broker.data_dir
        assert broker.restart() is broker
        assert (broker.bootstrap_servers, broker.data_dir) == (address, folder)
        produce(broker, b"two")
        assert consume(broker, 2) == [b"one", b"two"]
    assert not Path(folder).exists()


def test_a_given_directory_stays(tmp_path: Path) -> None:
    with Broker(data_dir=str(tmp_path / "data")) as broker:
        produce(broker, b"one")
    with Broker(data_dir=str(tmp_path / "data")) as broker:
        assert consume(broker, 1) == [b"one"]
    assert (tmp_path / "data" / "log").is_dir()


def test_start_and_stop_without_a_with_block() -> None:
    broker = Broker()
    broker.stop()  # nothing to stop
    broker.start()
    try:
        assert topics(broker) == set()
    finally:
        broker.stop()
    broker.start()
    broker.stop()


def test_configuration_is_laid_over_the_kits_own() -> None:
    config = {"topics": {"partitions": 7}, "listeners": {"http": {"bind": "127.0.0.1:0"}}}
    with Broker(config=config) as broker:
        produce(broker, b"one")
        client = AdminClient({"bootstrap.servers": broker.bootstrap_servers, **QUIET})
        assert len(client.list_topics(timeout=10).topics["t"].partitions) == 7
        with urllib.request.urlopen(f"http://{broker.http}/healthz", timeout=10) as answer:
            assert answer.status == 200
        assert broker.app is not None
        assert broker.app.settings.groups.initial_rebalance_delay_ms == 0


def test_a_wrong_setting_is_raised_where_it_is_started() -> None:
    broker = Broker(config={"log": {"flush": "sometimes"}})
    with pytest.raises(StartError, match=r"\$\.log\.flush: got 'sometimes'"):
        broker.start()
    assert not Path(broker.data_dir).exists()


def test_a_directory_in_use_is_raised_too(tmp_path: Path) -> None:
    with Broker(data_dir=str(tmp_path)) as first:
        with pytest.raises(StartError, match=str(tmp_path)):
            Broker(data_dir=str(tmp_path)).start()
        produce(first, b"the first one goes on")


def test_plugins_are_switched_on() -> None:
    class Plugin:
        api_version = 1
        calls: tuple[str, ...] = ()

        @hookimpl
        def halfmoon_started(self) -> None:
            self.calls += ("started",)

        @hookimpl
        def halfmoon_stopping(self) -> None:
            self.calls += ("stopping",)

    plugin = Plugin()
    with Broker(plugins=[plugin]):
        assert plugin.calls == ("started",)
    assert plugin.calls == ("started", "stopping")


START = """
import socket, struct
import halfmoon.testing

with halfmoon.testing.Broker() as broker:
    host, port = broker.bootstrap_servers.split(":")
    with socket.create_connection((host, int(port))) as client:
        request = struct.pack(">hhih", 18, 0, 1, -1)
        client.sendall(struct.pack(">i", len(request)) + request)
        assert client.recv(4096)
"""


def test_the_first_answer_is_there_soon() -> None:
    """In a fresh interpreter, imports included."""
    # Usual: 3.4.
    assert yardsticks([sys.executable, "-c", START]) < 6


def test_the_package_offers_it() -> None:
    assert halfmoon.testing.Broker is Broker
    assert "Broker" in halfmoon.testing.__all__
