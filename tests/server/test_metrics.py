"""What /metrics says: of a real node, of readings made up, and in its documentation."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import socket
import sys
import time
import urllib.request
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from pkgutil import iter_modules
from types import FrameType

import pytest
from confluent_kafka import Consumer, TopicPartition
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafka.admin import NewTopic
from kafka.errors import MessageSizeTooLargeError
from prometheus_client.parser import text_string_to_metric_families
from server_rig import batch, in_loop, node, until

import halfmoon.testing
from halfmoon import services
from halfmoon.core.metrics import Family
from halfmoon.core.records.batches import build_batch
from halfmoon.core.traffic import MOST_TOPICS
from halfmoon.plugins import store
from halfmoon.remoting import command as wire
from halfmoon.server import metrics, progress_readings, readings, series
from halfmoon.server.catalogue import NARROW, WIDE
from halfmoon.server.loop_lag import LoopLag
from halfmoon.server.nodes.metrics import FAMILIES as OF_NODES
from halfmoon.server.reading_types import GroupReading, Histogram, Readings, TopicReading
from tests.several_workers import logs_of, nodes_at, not_of_nodes

DOCS = (Path(__file__).parents[2] / "docs/metrics.md").read_text(encoding="utf-8")
Labels = frozenset[tuple[str, str]]


def parsed(text: str) -> dict[str, dict[Labels, float]]:
    """Sample's name → labels → value, as Prometheus would read it."""
    found: dict[str, dict[Labels, float]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            series_of = found.setdefault(sample.name, {})
            labels = frozenset(sample.labels.items())
            assert labels not in series_of, f"{sample.name} has a series twice"
            series_of[labels] = sample.value
    return found


def labels(**values: object) -> Labels:
    return frozenset((name, str(value)) for name, value in values.items())


OF_FEATURES = [
    family
    for room in (services, store)
    for feature in iter_modules(room.__path__)
    if feature.ispkg and find_spec(f"{room.__name__}.{feature.name}.metrics")
    for family in import_module(f"{room.__name__}.{feature.name}.metrics").FAMILIES
]
OF_FEATURES += OF_NODES


def made_up() -> Readings:
    return Readings([*NARROW.values(), *OF_FEATURES])


# -- the documentation -------------------------------------------------------------------------------------------------


def documented() -> dict[str, tuple[str, list[str]]]:
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \|([^|]*)\| .+ \|$", DOCS, re.MULTILINE)
    assert len({name for name, _, _ in rows}) == len(rows), "a metric is documented twice"
    return {name: (kind, re.findall(r"`(\w+)`", given)) for name, kind, given in rows}


def test_the_documentation_lists_exactly_what_is_exported() -> None:
    exported = dict(re.findall(r"^# TYPE (\w+) (\w+)$", metrics.render(made_up()).decode(), re.MULTILINE))
    assert {name: kind for name, (kind, _) in documented().items()} == exported


@pytest.mark.parametrize("family", [*NARROW.values(), *OF_FEATURES, *WIDE.values()], ids=lambda family: family.name)
def test_the_documentation_lists_the_labels(family: object) -> None:
    assert documented()[family.name][1] == list(family.labels)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "family", [family for family in [*NARROW.values(), *OF_FEATURES] if family.old_name], ids=lambda family: family.name
)
def test_a_renamed_metric_has_both_names_for_one_version(family: Family) -> None:
    taken = made_up()
    taken.put(family.name, 7, *("x" for _ in family.labels))
    found = parsed(metrics.render(taken).decode())
    assert family.old_name is not None
    assert found[family.old_name] == found[family.name] == {labels(**dict.fromkeys(family.labels, "x")): 7}
    assert f"| `{family.old_name}` | {family.kind} |" in DOCS.partition("## Deprecated names")[2]


# -- readings made up --------------------------------------------------------------------------------------------------


def test_a_histogram_adds_up() -> None:
    taken = made_up()
    taken.histograms["halfmoon_tick_seconds"] = [((), Histogram((0.001, 0.25), (3, 2, 1), 1.5))]
    found = parsed(metrics.render(taken).decode())
    assert found["halfmoon_tick_seconds_bucket"] == {labels(le=0.001): 3, labels(le=0.25): 5, labels(le="+Inf"): 6}
    assert found["halfmoon_tick_seconds_sum"] == {labels(): 1.5}
    assert found["halfmoon_tick_seconds_count"] == {labels(): 6}


def test_a_histogram_with_labels_has_a_series_for_each() -> None:
    taken = made_up()
    taken.histograms["halfmoon_request_seconds"] = [
        (("kafka", api), Histogram((0.1,), (1, count), 2.0)) for api, count in (("Fetch", 2), ("Produce", 5))
    ]
    found = parsed(metrics.render(taken).decode())["halfmoon_request_seconds_count"]
    assert found == {labels(listener="kafka", api="Fetch"): 3, labels(listener="kafka", api="Produce"): 6}


def test_wide_series_say_what_was_read() -> None:
    taken = made_up()
    taken.topics = [TopicReading("orders", [(3, 10), (0, 5)], 4096)]
    taken.groups = [GroupReading("billing", 2, [("orders", 0, 4, 10), ("orders", 1, 9, 5)]), GroupReading("new", 1, [])]
    found = parsed(metrics.render(taken).decode())
    first, second = labels(topic="orders", partition=0), labels(topic="orders", partition=1)
    assert found["halfmoon_topic_bytes"] == {labels(topic="orders"): 4096}
    assert found["kafka_topic_partitions"] == {labels(topic="orders"): 2}
    assert found["kafka_topic_partition_current_offset"] == {first: 10, second: 5}
    assert found["kafka_topic_partition_oldest_offset"] == {first: 3, second: 0}
    group = labels(consumergroup="billing")
    assert found["kafka_consumergroup_members"] == {group: 2, labels(consumergroup="new"): 1}
    assert found["kafka_consumergroup_current_offset"] == {group | first: 4, group | second: 9}
    assert found["kafka_consumergroup_lag"] == {group | first: 6, group | second: 0}, "never below 0"
    ours = labels(group="billing")
    assert found["halfmoon_group_lag"] == {ours | first: 6, ours | second: 0}
    assert found["kafka_consumergroup_current_offset_sum"] == {group | labels(topic="orders"): 13}
    assert found["kafka_consumergroup_lag_sum"] == {group | labels(topic="orders"): 6}


@pytest.mark.parametrize("name", ['say "hi"', "back\\slash", "two\nlines", "\\n", "größer", '",topic="x'])
def test_whatever_a_group_is_called_it_is_read_back(name: str) -> None:
    taken = made_up()
    taken.groups = [GroupReading(name, 0, [("t", 0, 1, 2)])]
    taken.put("halfmoon_plugin_total", 1, name, "seen")
    found = parsed(metrics.render(taken).decode())
    assert found["halfmoon_group_lag"] == {labels(group=name, topic="t", partition=0): 1}
    assert found["halfmoon_plugin_total"] == {labels(plugin=name, name="seen"): 1}


def test_many_lines_are_written_in_pieces_and_all_of_them() -> None:
    taken = made_up()
    count = 2 * series.CHUNK_LINES + 1
    taken.topics = [TopicReading("big", [(0, partition) for partition in range(count)], 0)]
    text = b"".join(series.write(taken)).decode()
    assert len(re.findall(r"^kafka_topic_partition_current_offset", text, re.MULTILINE)) == count


def test_the_thread_that_renders_lets_go_of_what_was_read() -> None:
    taken = made_up()
    count = 2 * series.CHUNK_LINES + 1
    topic = TopicReading("big", [(0, partition) for partition in range(count)], 0)
    group = GroupReading("g", 1, [("big", partition, 1, 2) for partition in range(count)])
    taken.topics, taken.groups = [topic], [group]
    assert metrics.render(taken).count(b"halfmoon_group_lag{") == count
    assert (taken.topics, taken.groups, topic.offsets, group.progress) == ([], [], [], [])


def test_the_lock_is_not_offered_for_each_group(monkeypatch: pytest.MonkeyPatch) -> None:
    offers: list[float] = []
    monkeypatch.setattr(series.time, "sleep", offers.append)
    taken = made_up()
    taken.groups = [GroupReading(f"g{number}", 1, [("t", 0, 1, 2)]) for number in range(5 * series.CHUNK_LINES)]
    series.release(taken)
    assert taken.groups == []
    assert 5 <= len(offers) <= 10


def test_large_numbers_are_exact() -> None:
    taken = made_up()
    taken.topics = [TopicReading("t", [(0, 2**53 - 1)], 0)]
    line = 'kafka_topic_partition_current_offset{topic="t",partition="0"} 9007199254740991\n'
    assert line in metrics.render(taken).decode()


# -- a real node -------------------------------------------------------------------------------------------------------


def scrape(broker: halfmoon.testing.Broker) -> dict[str, dict[Labels, float]]:
    with urllib.request.urlopen(f"http://{broker.http}/metrics", timeout=10) as answer:
        assert answer.headers["Content-Type"] == metrics.CONTENT_TYPE
        return of_all_workers(parsed(answer.read().decode()))


def of_all_workers(found: dict[str, dict[Labels, float]]) -> dict[str, dict[Labels, float]]:
    """As one process says it: without the label `worker`, and the sum over them."""
    summed: dict[str, dict[Labels, float]] = {}
    for name, of_worker in found.items():
        of_name = summed.setdefault(name, {})
        for each, value in of_worker.items():
            without = frozenset((label, text) for label, text in each if label != "worker")
            of_name[without] = of_name.get(without, 0) + value
    return summed


@not_of_nodes
def test_a_nodes_metrics_after_producing_and_consuming() -> None:
    config = {"listeners": {"http": {"bind": "127.0.0.1:0"}}}
    with halfmoon.testing.Broker(config=config) as broker:
        servers = broker.bootstrap_servers
        admin = KafkaAdminClient(bootstrap_servers=servers)
        admin.create_topics([NewTopic("small", 1, 1, topic_configs={"max.message.bytes": "100"})])
        producer = KafkaProducer(bootstrap_servers=servers)
        for value in (b"a", b"b", b"c"):
            producer.send("t", value).get(10)
        with pytest.raises(MessageSizeTooLargeError):
            producer.send("small", bytes(200)).get(10)
        consumer = KafkaConsumer("t", bootstrap_servers=servers, group_id="g", auto_offset_reset="earliest")
        next(consumer)
        consumer.commit()
        found = scrape(broker)
        addresses, logs = nodes_at(broker.bootstrap_servers), len(logs_of(broker.data_dir))
        for client in (consumer, producer, admin):
            client.close()
    where = labels(consumergroup="g", topic="t", partition=0)
    assert found["kafka_topic_partition_current_offset"][labels(topic="t", partition=0)] == 3
    assert found["kafka_consumergroup_current_offset"] == {where: 1}
    assert found["kafka_consumergroup_lag"] == {where: 2}
    assert found["kafka_consumergroup_members"] == {labels(consumergroup="g"): 1}
    assert found["halfmoon_groups"] == {labels(state="Stable"): 1}
    assert found["kafka_broker_info"] == {
        labels(id=1 + node, address=address): 1 for node, address in enumerate(addresses)
    }
    assert found["halfmoon_refused_batches_total"] == {labels(reason="MESSAGE_TOO_LARGE"): 1}
    assert found["halfmoon_requests_total"][labels(listener="kafka", api="Produce")] == 4
    for api, requests in found["halfmoon_requests_total"].items():
        assert found["halfmoon_request_seconds_count"].get(api, 0) >= requests - 1, "but for those that wait"
    assert found["halfmoon_request_seconds_sum"][labels(listener="kafka", api="Produce")] > 0
    (size,) = {value for where, value in found["halfmoon_topic_bytes"].items() if where == labels(topic="t")}
    assert found["halfmoon_topic_in_bytes_total"][labels(topic="t")] == size
    assert found["halfmoon_topic_in_records_total"][labels(topic="t")] == 3
    assert found["halfmoon_topic_out_bytes_total"][labels(topic="t")] >= size
    assert labels(topic="small") not in found["halfmoon_topic_in_records_total"], "nothing was appended"
    assert found["halfmoon_topic_in_records_total"][labels(topic="(other)")] == 0
    assert found["halfmoon_connections"][labels(listener="kafka")] >= 3
    assert found["halfmoon_received_bytes_total"][labels(listener="kafka")] > 600
    assert found["halfmoon_tick_seconds_count"][labels()] > 0
    positions = [found[f"halfmoon_log_{name}_position"][labels()] for name in ("start", "flushed", "written", "end")]
    assert positions == sorted(positions)
    assert positions[-1] > 0
    assert found["halfmoon_disk_segments"][labels()] == logs
    assert found["halfmoon_disk_log_bytes"][labels()] == logs * (16 << 20)
    assert found["process_resident_memory_bytes"][labels()] > 1 << 20


@in_loop
async def test_reading_many_partitions_lets_the_loop_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress_readings, "SLICE_S", 0.0)
    async with node(tmp_path) as app:
        topic, _ = app.node.kernel.administration.create_topic("t", 10 * progress_readings.CHUNK)
        app.node.kernel.append(topic.partitions[7], memoryview(bytearray(batch(b"x", b"y"))), 0)
        await until(lambda: topic.partitions[7].high_watermark == 2)
        taking = asyncio.create_task(readings.take(app))
        turns = 0
        while not taking.done():
            turns += 1
            await asyncio.sleep(0)
        assert turns >= 10
        (reading,) = taking.result().topics
        assert reading.offsets[7] == (0, 2)
        assert len(reading.offsets) == 10 * progress_readings.CHUNK
        assert reading.size_bytes == len(batch(b"x", b"y"))


@in_loop
async def test_a_group_that_goes_while_it_is_read_is_left_out(tmp_path: Path) -> None:
    async with node(tmp_path) as app:
        topic, _ = app.node.kernel.administration.create_topic("t", 1)
        for group in ("a", "b"):
            app.node.groups.commit(group, -1, "", None, [(topic.partitions[0], 0, 0, "")])
        listed = app.node.group_names.list
        app.node.group_names.list = lambda: [*listed(), *listed()[:1]]  # type: ignore[method-assign]
        original = app.node.groups.describe
        app.node.groups.describe = lambda group: None if group == "a" else original(group)  # type: ignore[method-assign]
        assert [group.name for group in (await readings.take(app)).groups] == ["b"]


@in_loop
async def test_an_offset_that_goes_while_a_group_is_read_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress_readings, "SLICE_S", 0.0)
    monkeypatch.setattr(progress_readings, "CHUNK", 1)
    async with node(tmp_path) as app:
        groups = app.node.groups
        topic, _ = app.node.kernel.administration.create_topic("t", 3)
        groups.commit("g", -1, "", None, [(partition, 5, 0, "") for partition in topic.partitions])
        gone = False

        async def goes() -> None:
            nonlocal gone
            if not gone:
                gone = True
                groups.delete_offsets("g", topic.partitions[1:2])
                groups.commit("g", -1, "", None, [(topic.partitions[2], 6, 0, "")])

        slices = progress_readings.Slices()
        monkeypatch.setattr(slices, "breathe", goes)
        assert await progress_readings._progress(app.node, "g", slices) == [("t", 0, 5, 0), ("t", 2, 6, 0)]


@in_loop
async def test_health_and_a_scrape_call_nothing_for_each_partition(tmp_path: Path) -> None:
    async with node(tmp_path) as app:
        app.node.kernel.administration.create_topic("t", 1_000)
        app.node.kernel.catalog.by_name["t"].partitions[7].queue.lose(3, 5)
        calls = 0

        def count(frame: FrameType, event: str, arg: object) -> None:
            nonlocal calls
            calls += event == "call"

        sys.setprofile(count)
        try:
            problems = app.health() + app.warnings()
        finally:
            sys.setprofile(None)
        assert problems == ["t-7 has lost offsets 3 to 4"]
        assert calls < 1_000


@not_of_nodes
def test_a_nodes_metrics_after_rocketmq_clients_have_come() -> None:
    listeners = {
        "rocketmq": {"bind": "127.0.0.1:0", "namesrv": "127.0.0.1:0"},
        "http": {"bind": "127.0.0.1:0"},
    }

    def beat(client_id: str, expression: str) -> bytes:
        wanted = {"topic": "orders", "subString": expression, "subVersion": 1}
        consumers = [{"groupName": "billing", "subscriptionDataSet": [wanted]}]
        body = {"clientID": client_id, "producerDataSet": [{"groupName": "shop"}], "consumerDataSet": consumers}
        return wire.encode(wire.Command(34, 1, 0, 479, "JAVA", None, {}, json.dumps(body).encode(), wire.JSON))

    with halfmoon.testing.Broker(config={"listeners": listeners}) as broker, contextlib.ExitStack() as clients:
        host, _, port = broker.rocketmq.rpartition(":")
        for client_id, expression in ("c1", "paid"), ("c2", "late"):
            client = clients.enter_context(socket.create_connection((host, int(port)), 10))
            client.sendall(beat(client_id, expression))
            assert client.recv(4)
        found = scrape(broker)
        assert found["halfmoon_requests_total"][labels(listener="rocketmq", api="HEART_BEAT")] == 2
        assert found["halfmoon_request_seconds_count"][labels(listener="rocketmq", api="HEART_BEAT")] == 2
        assert found["halfmoon_connections"][labels(listener="rocketmq")] == 2
        assert found["halfmoon_rocketmq_members"] == {
            labels(group="shop", role="producer"): 2, labels(group="billing", role="consumer"): 2,
        }  # fmt: skip
        conflict = labels(group="billing", topic="orders", client="c1", other="c2")
        assert found["halfmoon_rocketmq_subscription_conflicts_total"] == {conflict: 1}
        assert found["halfmoon_rocketmq_check_backs_total"] == found["halfmoon_rocketmq_locked_queues"] == {labels(): 0}


@in_loop
async def test_five_thousand_topics_have_a_thousand_lines(tmp_path: Path) -> None:
    async with node(tmp_path) as app:
        kernel = app.node.kernel
        for number in range(MOST_TOPICS + 200):
            topic, _ = kernel.administration.create_topic(f"t{number}", 1)
            kernel.append(topic.partitions[0], memoryview(bytearray(batch(b"x", b"y"))), 0)
        found = parsed(metrics.render(await readings.take(app)).decode())["halfmoon_topic_in_records_total"]
        assert len(found) == MOST_TOPICS + 1
        assert found[labels(topic="(other)")] == 400
        assert sum(found.values()) == 2 * (MOST_TOPICS + 200)


@in_loop
async def test_waiting_is_part_of_a_requests_time(tmp_path: Path) -> None:
    async with node(tmp_path) as app:
        assert app.kafka_address is not None
        app.node.kernel.administration.create_topic("t", 1)
        consumer = Consumer({"bootstrap.servers": str(app.kafka_address), "group.id": "g", "fetch.wait.max.ms": 200})
        consumer.assign([TopicPartition("t", 0, 0)])
        durations = app.kafka.counters.requests[1].durations
        await asyncio.to_thread(consumer.consume, 1, 0.1)
        waited = durations.bounds_s.index(0.1) + 1
        await until(lambda: sum(durations.counts[waited:]))
        await asyncio.to_thread(consumer.close)
    assert durations.total_s > 0.1


@in_loop
async def test_a_loop_that_is_kept_is_seen(tmp_path: Path) -> None:
    lag = LoopLag(asyncio.get_running_loop(), 0.01)
    lag.start()
    await asyncio.sleep(0.005)
    time.sleep(0.3)
    # Where the machine is busy, the first look comes before the loop is kept.
    await until(lambda: sum(lag.durations.counts[lag.durations.bounds_s.index(0.25) + 1 :]))
    lag.stop()
    assert lag.durations.total_s > 0.25
    seen = sum(lag.durations.counts)
    await asyncio.sleep(0.03)
    assert sum(lag.durations.counts) == seen, "stopped"


@in_loop
async def test_retries_dead_letters_and_half_messages_are_counted(tmp_path: Path) -> None:
    plugins = {"transaction": {"timeout": "50ms", "check_interval": "50ms", "check_max": 1}}
    async with node(tmp_path, plugins=plugins) as app:
        kernel = app.node.kernel

        def send(topic: str, **headers: str) -> None:
            found = kernel.catalog.by_name.get(topic) or kernel.administration.create_topic(topic, 1)[0]
            given = tuple((name, value.encode()) for name, value in headers.items())
            made = bytearray(build_batch([(None, b"x", 1_000, given)]))
            kernel.append(found.partitions[0], memoryview(made), kernel.clock.wall_ms())

        def named(key: str) -> dict[str, str]:
            return {"PGROUP": "shop", "UNIQ_KEY": key}

        async def of(name: str) -> dict[Labels, float]:
            return parsed(metrics.render(await readings.take(app)).decode())[name]

        send("orders", DELAY="18")
        send("retry.g", RETRY_OF="orders/0/0", DELAY="18")
        send("retry.g", RECONSUME_TIME="16")
        for key in ("a", "b", "c"):
            send("orders", TRAN_MSG="true", **named(key))
        assert await of("halfmoon_scheduled_topic_messages") == {
            labels(topic="SCHEDULE_TOPIC_XXXX"): 2, labels(topic="RMQ_SYS_TRANS_HALF_TOPIC"): 3,
        }  # fmt: skip
        kernel.write()
        await until(lambda: kernel.catalog.by_name["RMQ_SYS_TRANS_HALF_TOPIC"].partitions[0].high_watermark == 3)
        send("halfmoon.transactions", TRAN_STATE="commit", **named("a"))
        send("halfmoon.transactions", TRAN_STATE="rollback", **named("b"))
        assert await of("halfmoon_retries_total") == {labels(): 1}
        assert await of("halfmoon_dead_letters_total") == {labels(): 1}
        while (found := await of("halfmoon_half_messages_total"))[labels(event="given_up")] == 0:
            await asyncio.sleep(0.02)
        assert found == {
            labels(event="prepared"): 3, labels(event="committed"): 1, labels(event="rolled_back"): 1,
            labels(event="checked"): 1, labels(event="given_up"): 1,
        }  # fmt: skip


@in_loop
async def test_an_unhealthy_node_says_so(tmp_path: Path) -> None:
    async with node(tmp_path) as app:
        app.node.kernel.log.low_disk = True
        found = parsed(metrics.render(await readings.take(app)).decode())
        app.node.kernel.log.low_disk = False
    assert found["halfmoon_healthy"] == {labels(): 0}
    assert found["halfmoon_health_problems"] == {labels(): 1}
    assert found["halfmoon_disk_low"] == {labels(): 1}
