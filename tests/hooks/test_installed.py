"""Every hook, of a plugin that pip has installed, in a broker that is a process of its own."""

from __future__ import annotations

import signal
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kafka
import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from halfmoon.hooks.checks import HOOKS
from tests.hooks.installed import Node, install, until, wheel

pytestmark = pytest.mark.timeout(240)

SOURCE = Path(__file__).parent / "every/halfmoon_every.py"


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("every")
    made = wheel(folder, "halfmoon_every", {SOURCE.name: SOURCE.read_bytes()}, "[halfmoon]\nevery = halfmoon_every\n")
    return install(folder, made)


def new_node(folder: Path, environment: dict[str, str]) -> Node:
    return Node(folder, environment, {"plugins": {"every": {"greeting": "hi"}}}, http=True)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory, environment: dict[str, str]) -> Iterator[Node]:
    made = new_node(tmp_path_factory.mktemp("node"), environment)
    made.start()
    yield made
    made.end()


def send(node: Node, topic: str, *values: bytes, headers: Any = None) -> list[KafkaError | None]:
    producer = Producer({"bootstrap.servers": node.address, "linger.ms": 0})
    errors: list[KafkaError | None] = []
    for value in values:
        producer.produce(topic, value, partition=0, headers=headers, on_delivery=lambda error, _: errors.append(error))
        producer.flush(20)
    return errors


def test_it_has_every_hook() -> None:
    source = SOURCE.read_text(encoding="utf-8")
    assert [hook for hook in HOOKS if f"def {hook}(" not in source] == []


def test_events_features_and_services(node: Node) -> None:
    node.create("seen")
    until(lambda: "seen created" in node.told()["heard"])
    told = node.told()
    assert told["heard"][:4] == ["restore", "start", "started", "anew"]
    assert told["counts"]["beats"] > 0
    assert (node.folder / "data/plugins/every/started").read_text() == "yes"


def test_a_feature_has_a_say_in_topics(node: Node) -> None:
    node.create("kept")
    admin = AdminClient({"bootstrap.servers": node.address})
    with pytest.raises(KafkaException, match="POLICY_VIOLATION"):
        admin.delete_topics(["kept"])["kept"].result(20)


def test_topic_configurations(node: Node) -> None:
    node.create("coloured", every_colour="blue")
    with pytest.raises(KafkaException, match="expected red or blue"):
        node.create("green", every_colour="green")
    admin = AdminClient({"bootstrap.servers": node.address})
    (future,) = admin.describe_configs([ConfigResource(ConfigResource.Type.TOPIC, "coloured")]).values()
    assert future.result(20)["every.colour"].value == "blue"


def test_group_configurations(node: Node) -> None:
    admin = AdminClient({"bootstrap.servers": node.address})

    def alter(value: str) -> None:
        entry = ConfigEntry("every.colour", value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ConfigResource.Type.GROUP, "painters", incremental_configs=[entry])
        (future,) = admin.incremental_alter_configs([resource]).values()
        future.result(20)

    def shown() -> str:
        (future,) = admin.describe_configs([ConfigResource(ConfigResource.Type.GROUP, "painters")]).values()
        return str(future.result(20)["every.colour"].value)

    assert shown() == "hi"
    with pytest.raises(KafkaException, match="expected red or blue"):
        alter("green")
    alter("blue")
    assert shown() == "blue"


def test_interceptors_and_relays(node: Node) -> None:
    node.create("intercepted")
    (error,) = send(node, "intercepted", b"a", headers=[("REFUSE", b"")])
    assert error is not None
    assert error.code() == KafkaError.POLICY_VIOLATION
    assert send(node, "intercepted", b"deliver", b"settle", headers=[("LATER", b"")]) == [None, None]
    assert node.read("intercepted", 1) == [b"deliver"]
    assert node.read("every.done", 1) == [b"settle"]
    until(lambda: node.told()["ends"].get("every.done-0") == 1)
    counts = node.told()["counts"]
    assert counts["relayed"] == 2
    assert counts["refused POLICY_VIOLATION"] == 1


def test_records_are_left_out_of_what_readers_get(node: Node) -> None:
    node.create("hidden")
    send(node, "hidden", b"not shown", b"shown", b"raise", b"not shown", headers=[("HIDDEN", b"")])
    send(node, "hidden", b"plain")
    assert node.read("hidden", 3) == [b"shown", b"raise", b"plain"]
    assert "fetch_filter_failed filter=every topic=hidden" in node.log()
    assert node.metric("halfmoon_plugin_errors_total", plugin="every", hook="halfmoon_fetch") > 0


def test_following_and_offsets(node: Node) -> None:
    node.create("followed", 2)
    send(node, "followed", b"a", b"b", b"c")
    until(lambda: node.told()["ends"].get("followed-0") == 3)
    told = node.told()
    assert told["records"]["followed-0"] == 3
    assert told["offsets"]["followed-0"] == [0, 3]
    assert told["offsets"]["followed-1"] == [0, 0]


def test_observers(node: Node) -> None:
    node.create("observed")
    send(node, "observed", b"a", b"b")
    node.read("observed", 2)
    counts = node.told()["counts"]
    assert counts["produced observed"] == 2
    assert counts["fetched observed"] > 120


def test_a_hold_policy_leaves_a_request_waiting_and_an_observer_that_raises_is_called_no_more(node: Node) -> None:
    node.create("pairs")
    found: list[tuple[float, bytes]] = []

    def reading() -> None:
        begun = time.monotonic()
        for value in node.read("pairs", 2, wait_ms=15_000):
            found.append((time.monotonic() - begun, value))

    reader = threading.Thread(target=reading)
    before = node.told()["counts"].get("parked", 0)
    reader.start()
    until(lambda: node.told()["counts"].get("parked", 0) > before)
    send(node, "pairs", b"a")
    time.sleep(0.5)
    assert node.told()["counts"].get("fetched pairs") is None
    send(node, "pairs", b"b")
    reader.join(40)
    assert [value for _, value in found] == [b"a", b"b"]
    assert found[0][0] < 15
    send(node, "pairs", b"c", b"d")
    size = node.told()["counts"]["fetched pairs"]
    node.read("pairs", 4)
    assert node.told()["counts"]["fetched pairs"] == size
    assert "observer_failed observer=fetches" in node.log()
    assert node.metric("halfmoon_plugin_errors_total", plugin="every", hook="halfmoon_observers") == 1


def test_a_request_whose_time_is_over(node: Node) -> None:
    node.create("quiet")
    before = node.told()["counts"].get("expired", 0)
    consumer = Consumer({"bootstrap.servers": node.address, "group.id": "none", "fetch.wait.max.ms": 50})
    consumer.assign([TopicPartition("quiet", 0, 0)])
    consumer.poll(0.3)
    consumer.close()
    until(lambda: node.told()["counts"].get("expired", 0) > before)


def test_authorize(node: Node) -> None:
    node.create("secret")
    (error,) = send(node, "secret", b"a")
    assert error is not None
    assert error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED


def test_confluent_kafka_is_told_what_it_may_not_do(node: Node) -> None:
    node.create("secret-plans")
    node.create("open")
    admin = AdminClient({"bootstrap.servers": node.address})
    assert "secret-plans" not in admin.list_topics(timeout=20).topics
    assert "open" in admin.list_topics(timeout=20).topics
    (told,) = admin.list_topics("secret-plans", timeout=20).topics.values()
    assert told.error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    with pytest.raises(KafkaException, match="TOPIC_AUTHORIZATION_FAILED"):
        admin.delete_topics(["secret-plans"])["secret-plans"].result(20)
    consumer = Consumer({"bootstrap.servers": node.address, "group.id": "secret-group"})
    consumer.subscribe(["open"])
    (refused,) = consumer.consume(1, 20)
    assert refused.error().code() == KafkaError.GROUP_AUTHORIZATION_FAILED
    consumer.close()
    producer = Producer({"bootstrap.servers": node.address, "transactional.id": "secret-id"})
    with pytest.raises(KafkaException) as caught:
        producer.init_transactions(20)
    assert caught.value.args[0].code() == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def test_kafka_python_is_told_what_it_may_not_do(node: Node) -> None:
    node.create("secret-diary")
    consumer = kafka.KafkaConsumer(bootstrap_servers=node.address, group_id="secret-readers")
    consumer.assign([kafka.TopicPartition("secret-diary", 0)])
    with pytest.raises((kafka.errors.GroupAuthorizationFailedError, kafka.errors.TopicAuthorizationFailedError)):
        consumer.poll(10_000)
    consumer.close(autocommit=False)
    producer = kafka.KafkaProducer(bootstrap_servers=node.address)
    with pytest.raises(kafka.errors.TopicAuthorizationFailedError):
        producer.send("secret-diary", b"a").get(20)
    producer.close()


def test_kafka_apis(node: Node) -> None:
    answer = node.ask(18)
    (count,) = struct.unpack_from(">i", answer, 2)
    rows = [struct.unpack_from(">hhh", answer, 6 + 6 * at) for at in range(count)]
    assert (31_001, 0, 0) in rows
    assert 31_002 not in [key for key, _, _ in rows]
    assert node.told(31_002)["heard"] == node.told()["heard"]
    assert node.ask(31_001, b"fail") == b""
    assert "event=request_failed" in node.log()
    assert node.metric("halfmoon_plugin_errors_total", plugin="every", hook="halfmoon_kafka_apis") == 1


def test_a_filter_language_makes_a_view(node: Node) -> None:
    node.create("words")
    node.create("words.a", -1, **{"halfmoon_view_source": "words", "halfmoon_view_begins": "a"})
    send(node, "words", b"apple", b"pear", b"almond")
    assert node.read("words.a", 2) == [b"apple", b"almond"]


def test_a_group_is_assigned_by_its_strategy(node: Node) -> None:
    node.create("shared", 3)
    consumer = Consumer(
        {
            "bootstrap.servers": node.address, "group.id": "assigned", "group.protocol": "consumer",
            "group.remote.assignor": "every",
        }
    )  # fmt: skip
    consumer.subscribe(["shared"])
    until(lambda: consumer.poll(0.1) or len(consumer.assignment()) == 3)
    consumer.close()
    assert node.told()["counts"]["allocated"] >= 1


def test_commands(node: Node) -> None:
    done = node.halfmoon("greet", "Ann")
    assert (done.stdout, done.stderr) == ("hi, Ann\n", "")
    assert "Say hello." in node.halfmoon("--help").stdout
    assert node.halfmoon("plugins", "-o", "json").returncode == 0
    assert node.halfmoon("gret").returncode == 2


def test_a_counter_equals_the_end_offsets_after_kill_9(tmp_path: Path, environment: dict[str, str]) -> None:
    node = new_node(tmp_path, environment)
    stopping = threading.Event()
    node.start()
    try:
        node.create("load", 2)
        config = {
            "bootstrap.servers": node.address,
            "linger.ms": 1,
            "reconnect.backoff.ms": 10,
            "reconnect.backoff.max.ms": 50,
        }
        producer = Producer(config | {"enable.idempotence": True, "retry.backoff.ms": 10})

        def produce() -> None:
            number = 0
            while not stopping.is_set():
                if len(producer) < 1_000:
                    producer.produce("load", b"%d" % number, partition=number % 2)
                    number += 1
                producer.poll(0.0005)

        load = threading.Thread(target=produce)
        load.start()

        def followed() -> int:
            return sum(count for place, count in node.told()["records"].items() if place.startswith("load"))

        for _ in range(4):
            enough = followed() + 300
            until(lambda enough=enough: followed() >= enough)
            node.end(signal.SIGKILL)
            node.start()

        def saved_at() -> int:
            return max((path.stat().st_mtime_ns for path in (tmp_path / "data").rglob("*.position")), default=0)

        before = saved_at()
        until(lambda: saved_at() > before)
        node.end(signal.SIGKILL)
        node.start()
        stopping.set()
        load.join()
        assert producer.flush(60) == 0

        def is_equal() -> bool:
            told = node.told()
            ends = {place: end for place, (_, end) in told["offsets"].items() if place.startswith("load")}
            records = {place: count for place, count in told["records"].items() if place.startswith("load")}
            assert all(records.get(place, 0) <= end for place, end in ends.items())
            return ends == records == {p: e for p, e in told["ends"].items() if p.startswith("load")}

        until(is_equal)
        told = node.told()
        assert told["heard"].index("load exists") > told["heard"].index("started")
        assert "restored" in told["heard"]
        assert min(told["ends"].values()) > 100
    finally:
        stopping.set()
        node.end()
    assert (tmp_path / "data/plugins/every/stopped").read_text() == "yes"
