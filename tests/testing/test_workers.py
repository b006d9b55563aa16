"""The testing kit's broker with processes of its own: as one of this process, but for what would look into it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaProducer

from halfmoon.errors import StartError
from halfmoon.testing import Broker, ports
from halfmoon.testing.ports import is_free
from halfmoon.testing.workers import with_ports
from tests.testing.test_broker import QUIET, consume, produce

LISTENERS = {"listeners": {"http": {"bind": "127.0.0.1:0"}}}


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(workers=2, secure=True, config=LISTENERS) as made:
        yield made


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "Z"


def children(pid: int) -> list[int]:
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_all_workers_have_leaders_and_serve(broker: Broker) -> None:
    admin = AdminClient(broker.client_config())
    admin.create_topics([NewTopic("wide", 16, 1)])["wide"].result(10)
    found = admin.list_topics("wide", timeout=10)
    assert sorted(found.brokers) == [1, 2]
    assert {each.leader for each in found.topics["wide"].partitions.values()} == {1, 2}
    producer = KafkaProducer(**broker.kafka_python_config())
    assert [producer.send("wide", b"v", partition=number).get(10).offset for number in range(16)] == [0] * 16
    producer.close()
    with urllib.request.urlopen(f"http://{broker.http}/healthz", timeout=10) as answer:
        assert answer.status == 200


def test_users_and_rules_reach_all_of_them(broker: Broker) -> None:
    broker.create_user("alice")
    broker.allow("alice", "topic:orders", "Write", "Create")
    broker.allow("alice", "cluster", "idempotent_write")
    broker.deny("alice", "topic:secret", "ALL")
    producer = KafkaProducer(**broker.kafka_python_config("alice"))
    assert producer.send("orders", b"v").get(10).offset == 0
    producer.close()
    said: list[str | None] = []
    other = Producer(broker.client_config("alice") | QUIET)
    other.produce("secret", b"v", on_delivery=lambda error, _: said.append(error and error.name()))
    assert other.flush(10) == 0
    assert said == ["TOPIC_AUTHORIZATION_FAILED"]
    with pytest.raises(ValueError, match="no operation"):
        broker.allow("alice", "topic:orders", "Eat")


def test_a_restart_keeps_the_data_and_the_addresses() -> None:
    with Broker(workers=2, config=LISTENERS) as broker:
        produce(broker, b"one")
        before = broker.bootstrap_servers, broker.http, broker.data_dir
        folder = Path(broker.data_dir)
        assert broker.restart() is broker
        assert (broker.bootstrap_servers, broker.http, broker.data_dir) == before
        produce(broker, b"two")
        assert consume(broker, 2) == [b"one", b"two"]
        with pytest.raises(ValueError, match="processes of its own"):
            _ = broker.app
    assert not folder.exists()
    with pytest.raises(AssertionError, match="not running"):
        _ = broker.bootstrap_servers


def test_plugins_cannot_be_objects() -> None:
    with pytest.raises(ValueError, match="objects of this process"):
        Broker(workers=2, plugins=[object()])


def test_why_it_cannot_start_is_raised() -> None:
    broker = Broker(workers=2, config={"log": {"flush": "sometimes"}})
    with pytest.raises(StartError, match=r"log\.flush: got 'sometimes'"):
        broker.start()
    assert not Path(broker.data_dir).exists()
    broker.stop()


KILLED = """
import os, sys
from halfmoon.testing import Broker

broker = Broker(workers=2).start()
print(broker.data_dir, flush=True)
sys.stdin.read()
"""


def test_it_ends_when_the_test_process_is_killed() -> None:
    with subprocess.Popen([sys.executable, "-c", KILLED], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as test:
        assert test.stdout is not None
        data_dir = test.stdout.readline().decode().strip()
        (supervisor,) = children(test.pid)
        workers = children(supervisor)
        assert len(workers) == 2
        test.send_signal(signal.SIGKILL)
        end_s = time.monotonic() + 20
        while any(alive(each) for each in (supervisor, *workers)):
            assert time.monotonic() < end_s
            time.sleep(0.05)
        while Path(data_dir).exists():  # nobody is left who has made it
            assert time.monotonic() < end_s
            time.sleep(0.05)


def test_what_ends_it_before_its_time_is_raised() -> None:
    before = our_children()
    broker = Broker(workers=2).start()
    (supervisor,) = our_children() - before
    os.kill(supervisor, signal.SIGKILL)
    with pytest.raises(RuntimeError, match=r"had ended already|was killed"):
        broker.stop()
    broker.stop()


def our_children() -> set[int]:
    return {int(each) for path in Path("/proc/self/task").glob("*/children") for each in path.read_text().split()}


def test_ports_that_are_given_stay_and_others_are_chosen() -> None:
    given = {
        "listeners": {
            "kafka": [{"bind": "127.0.0.1:0"}, {"name": "inner", "bind": "127.0.0.1:9092"}],
            "rocketmq": {"bind": "[::1]:0", "namesrv": "127.0.0.1:0"},
        }
    }
    made = with_ports(given, 3)["listeners"]
    assert made["kafka"][1]["bind"] == "127.0.0.1:9092"
    ports = [made["kafka"][0]["bind"], made["rocketmq"]["bind"], made["rocketmq"]["namesrv"]]
    assert all(int(each.rpartition(":")[2]) for each in ports)
    assert made["rocketmq"]["bind"].startswith("[::1]:")
    assert given["listeners"]["rocketmq"] == {"bind": "[::1]:0", "namesrv": "127.0.0.1:0"}
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert not is_free("127.0.0.1", taken.getsockname()[1])


def test_a_port_that_somebody_has_taken_is_not_insisted_on(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        chosen = [taken.getsockname()[1]]
        choose = ports.ports_in_a_row
        monkeypatch.setattr(
            ports, "ports_in_a_row", lambda host, count: chosen.pop() if chosen else choose(host, count)
        )
        with Broker(workers=2) as broker:
            produce(broker, b"one")
            assert not chosen
            assert broker.bootstrap_servers != f"127.0.0.1:{taken.getsockname()[1]}"
        given = {"listeners": {"kafka": {"bind": f"127.0.0.1:{taken.getsockname()[1]}"}}}
        with pytest.raises(StartError, match="Address already in use"):
            Broker(workers=2, config=given).start()
