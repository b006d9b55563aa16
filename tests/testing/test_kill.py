"""`kill` and `restart`: what was acknowledged is there, what waits for an answer gets none."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest
from confluent_kafka import Producer
from kafka import KafkaConsumer

from halfmoon.testing import Broker
from tests.testing.test_broker import QUIET, consume, produce


def test_the_next_start_recovers() -> None:
    with Broker(config={"log": {"flush": "sync"}}) as broker:
        produce(broker, b"one", b"two")
        address, folder = broker.bootstrap_servers, broker.data_dir
        threads = threading.active_count()
        broker.kill()
        assert threading.active_count() < threads
        assert not broker.is_running
        assert not (Path(folder) / "clean").exists()
        with pytest.raises(AssertionError, match="not running"):
            _ = broker.bootstrap_servers
        broker.restart()
        assert (broker.bootstrap_servers, broker.data_dir) == (address, folder)
        assert broker.app is not None
        assert broker.app.node.kernel.report.clean is False
        assert consume(broker, 2) == [b"one", b"two"]
        broker.restart()
        assert broker.app.node.kernel.report.clean is True
    assert not Path(folder).exists()


def test_start_goes_on_with_what_was_killed() -> None:
    with Broker() as broker:
        produce(broker, b"one")
        broker.kill()
        broker.start()
        assert consume(broker, 1) == [b"one"]


def test_who_waits_for_an_answer_gets_none() -> None:
    with Broker() as broker:
        broker.latency("60s", "Produce")
        told: list[object] = []
        config = {"bootstrap.servers": broker.bootstrap_servers, "message.timeout.ms": 20_000, **QUIET}
        producer = Producer({**config, "enable.idempotence": True, "reconnect.backoff.ms": 10})
        producer.produce("t", b"one", on_delivery=lambda error, message: told.append((error, message.offset())))
        producer.poll(0.5)
        broker.kill()
        producer.poll(0.2)
        assert not told
        broker.heal()
        broker.restart()
        assert producer.flush(20) == 0
        assert told == [(None, 0)]  # once, although it was sent twice
        assert consume(broker, 1) == [b"one"]


def test_a_delay_is_kept_over_it() -> None:
    with Broker() as broker:
        broker.produce("t", "later", headers={"TIMER_DELAY_SEC": "60"})
        broker.kill()
        broker.restart()
        broker.advance("1m")
        assert [each.value for each in broker.records("t")] == [b"later"]
        broker.kill()
        broker.restart()
        broker.advance("1m")
        assert [each.value for each in broker.records("t")] == [b"later"]


def test_a_consumer_goes_on_behind_what_it_has_committed() -> None:
    with Broker() as broker:
        produce(broker, b"one", b"two")
        config = {"group_id": "g", "auto_offset_reset": "earliest", "enable_auto_commit": False, "max_poll_records": 1}
        with_address = {"bootstrap_servers": broker.bootstrap_servers, "reconnect_backoff_ms": 10, **config}
        consumer = KafkaConsumer("t", **with_address)
        assert next(consumer).value == b"one"
        consumer.commit()
        broker.kill()
        broker.restart()
        consumer.close(autocommit=False)
        again = KafkaConsumer("t", **with_address)
        assert next(again).value == b"two"
        again.close(autocommit=False)


def test_stop_removes_what_a_killed_one_has_left() -> None:
    broker = Broker().start()
    folder = Path(broker.data_dir)
    broker.kill()
    assert folder.exists()
    broker.stop()
    assert not folder.exists()
    broker.start()
    assert Path(broker.data_dir) != folder
    broker.stop()


def test_nobody_kills_what_does_not_run() -> None:
    with pytest.raises(AssertionError, match="not running"):
        Broker().kill()
    with Broker() as broker, pytest.raises(ValueError, match="no processes of its own"):
        broker.kill(1)


def test_plugins_are_not_told() -> None:
    from tests.testing.plugin_that_is_told import Told

    plugin = Told()
    with Broker(plugins=[plugin]) as broker:
        broker.kill()
        assert plugin.calls == ["started"]
        broker.restart()
    assert plugin.calls == ["started", "started", "stopping"]


def test_what_was_not_written_is_lost() -> None:
    """Nothing that was acknowledged: it dies while records come in, again and again."""
    with Broker() as broker:
        acknowledged: list[bytes] = []
        ends = threading.Event()

        def send() -> None:
            producer = Producer({
                "bootstrap.servers": address, "enable.idempotence": True, "reconnect.backoff.ms": 10,
                "reconnect.backoff.max.ms": 50, "retry.backoff.ms": 10, "linger.ms": 0, **QUIET,
            })  # fmt: skip
            number = 0
            while not ends.is_set():
                value = str(number).encode()
                producer.produce(
                    "t",
                    value,
                    on_delivery=lambda error, message: None if error else acknowledged.append(message.value()),
                )
                producer.poll(0.001)
                number += 1
            assert producer.flush(30) == 0

        broker.produce("t", "first")
        address = broker.bootstrap_servers
        sender = threading.Thread(target=send)
        sender.start()
        for _ in range(5):
            time.sleep(0.1)
            broker.kill()
            broker.restart()
        ends.set()
        sender.join(60)
        found = [each.value for each in broker.records("t")][1:]
        assert found == [str(number).encode() for number in range(len(found))]
        assert set(acknowledged) <= set(found)
        assert len(acknowledged) > 20
