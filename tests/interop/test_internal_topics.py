"""Kafka's own tools read its internal topics here: its console consumer with its formatters."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from halfmoon.services.internal_topics.records import partition_for
from halfmoon.testing import Broker
from tests.interop.java_programs import jars

pytestmark = [pytest.mark.interop, pytest.mark.timeout(900)]

CONSOLE = "org.apache.kafka.tools.consumer.ConsoleConsumer"
NAMES = ("group", "topic", "partition")
FORMATTERS = "org.apache.kafka.tools.consumer"


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with Broker() as broker:
        yield broker.bootstrap_servers


def shown(servers: str, topic: str, formatter: str, *more: str) -> list[dict[str, Any]]:
    """What Kafka's console consumer prints. It ends when nothing has come for a while; where that was too short for
    its start on a busy machine, it is given longer."""
    for wait_ms in (6_000, 20_000, 60_000):
        ended = subprocess.run(
            [
                "java", "-Xmx256m", "-cp", f"{jars('kafka')}/*", CONSOLE, "--bootstrap-server", servers,
                "--topic", topic, "--formatter", f"{FORMATTERS}.{formatter}", "--from-beginning",
                "--timeout-ms", str(wait_ms), *more,
            ],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        found, text, decoder = [], ended.stdout.strip(), json.JSONDecoder()
        while text.startswith("{"):  # no end of a line between them, and behind them that the time is over
            row, end = decoder.raw_decode(text)
            found.append(row)
            text = text[end:].lstrip()
        if found:
            break
    return found


def test_offsets_groups_and_transactions_as_kafkas_tools_show_them(servers: str) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic("t", 2)])["t"].result()
    producer = Producer({"bootstrap.servers": servers, "transactional.id": "mover"})
    producer.init_transactions()
    producer.begin_transaction()
    for index in range(2):
        producer.produce("t", b"x", partition=index)
    producer.commit_transaction()
    before = Consumer({"bootstrap.servers": servers, "group.id": "before", "auto.offset.reset": "earliest"})
    before.commit(offsets=[TopicPartition("t", 0, 1, metadata="note")], asynchronous=False)
    assert shown(servers, "__consumer_offsets", "OffsetsMessageFormatter")[0]["key"]["data"]["group"] == "before"

    reader = Consumer({"bootstrap.servers": servers, "group.id": "größe", "auto.offset.reset": "earliest"})
    reader.subscribe(["t"])
    read = [reader.poll(10) for _ in range(2)]
    assert all(message is not None and message.error() is None for message in read)
    reader.commit(asynchronous=False)
    committed = reader.committed([TopicPartition("t", 0), TopicPartition("t", 1)])

    offsets = shown(servers, "__consumer_offsets", "OffsetsMessageFormatter")
    known = {tuple(row["key"]["data"][name] for name in NAMES): row["value"]["data"] for row in offsets}
    # confluent-kafka commits metadata with C's end of a string
    assert {key: (value["offset"], value["metadata"].strip("\0")) for key, value in known.items()} == {
        ("before", "t", 0): (1, "note"),
        **{("größe", "t", place.partition): (place.offset, "") for place in committed},
    }
    assert all(value["commitTimestamp"] > 1_600_000_000_000 for value in known.values())
    where = shown(servers, "__consumer_offsets", "OffsetsMessageFormatter", "--partition", str(partition_for("größe")))
    assert {row["key"]["data"]["group"] for row in where} == {"größe"}

    groups = shown(servers, "__consumer_offsets", "GroupMetadataMessageFormatter")
    found = [row for row in groups if row["key"]["data"].get("group") == "größe"][-1]["value"]["data"]
    (member,) = found["members"]
    assert (found["protocolType"], found["protocol"], found["leader"]) == ("consumer", "range", member["memberId"])
    assert (member["clientId"], member["sessionTimeout"]) == ("rdkafka", 45_000)
    assert len(member["subscription"]) > 0
    reader.close()

    shown(servers, "__transaction_state", "TransactionLogMessageFormatter")
    (state,) = shown(servers, "__transaction_state", "TransactionLogMessageFormatter")
    assert state["key"]["data"]["transactionalId"] == "mover"
    assert state["value"]["data"]["transactionStatus"] == 4
    assert state["value"]["data"]["transactionPartitions"] == []
    before.close()
    producer.flush()
