"""HalfmoonMessages: an API of our own that no client hears of; malformed questions are answered, not hung up on."""

from __future__ import annotations

import json
import socket
import struct
from typing import Any

import pytest
from confluent_kafka import Producer

from halfmoon.adapters.kafka.api import api_18502_messages as messages
from halfmoon.adapters.kafka.api import registered
from halfmoon.adapters.kafka.api.api_18_api_versions import answer
from halfmoon.adapters.kafka.registry import ApiTable
from halfmoon.cli.brokers import Brokers
from halfmoon.cli.connect import admin
from halfmoon.testing import Broker


def ask(broker: Broker, body: bytes) -> dict[str, Any]:
    host, port = broker.bootstrap_servers.rsplit(":", 1)
    request = struct.pack(">hhih", messages.KEY, 0, 7, -1) + body
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(struct.pack(">i", len(request)) + request)
        stream = connection.makefile("rb")
        (size, correlation_id) = struct.unpack(">ii", stream.read(8))
        assert correlation_id == 7
        found: dict[str, Any] = json.loads(stream.read(size - 4))
        return found


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"\xff\xfe",
        b'{"type": "drop", "topic": "t"}',
        b'{"type": "find", "topic": "t"}',
        b'{"type": "find", "topic": "t", "key": "not base64!"}',
        b'{"type": "find", "topic": "t", "key": "aw==", "most": "many"}',
        b'{"type": "find", "topic": "t", "key": "aw==", "other": 1}',
        b'{"type": "show", "topic": "t", "partition": 0, "offset": 1e99}',
        b'{"type": "nacked", "topics": "t"}',
        b'{"type": "nacked", "topics": [1]}',
        b'{"type": "nacked"}',
    ],
)
def test_no_question(halfmoon_broker: Broker, body: bytes) -> None:
    assert ask(halfmoon_broker, body)["fault"] == "INVALID_REQUEST"


@pytest.mark.parametrize("partition", [-1, 5, 1 << 40])
@pytest.mark.parametrize("offset", [-1, 1 << 62, -(1 << 63)])
def test_places_that_are_nowhere(halfmoon_broker: Broker, partition: int, offset: int) -> None:
    body = {"type": "show", "topic": "__nowhere", "partition": partition, "offset": offset}
    assert ask(halfmoon_broker, json.dumps(body).encode())["fault"] == "UNKNOWN_TOPIC_OR_PARTITION"


@pytest.mark.parametrize("wrong", [{"key": ""}, {"key": "aw==", "most": 0}, {"key": "aw==", "most": -1}])
def test_find_nothing_or_none(halfmoon_broker: Broker, halfmoon_topic: str, wrong: dict[str, Any]) -> None:
    with admin(Brokers(halfmoon_broker.bootstrap_servers)) as client:
        client.create_topics({halfmoon_topic: {"num_partitions": 1}})
    body = {"type": "find", "topic": halfmoon_topic, **wrong}
    assert ask(halfmoon_broker, json.dumps(body).encode())["fault"] == "INVALID_REQUEST"


def test_it_is_not_advertised() -> None:
    for version in range(5):
        assert struct.pack(">h", messages.KEY) not in answer(ApiTable(registered()), version, 0)


def test_what_fails_is_told_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    assert json.loads(messages._failed(RuntimeError("x")))["fault"] == "UNKNOWN_SERVER_ERROR"
    assert "message_search_failed" in caplog.text


def test_a_log_that_cannot_be_read_is_told_as_such() -> None:
    told = json.loads(messages._failed(OSError(5, "Input/output error")))
    assert told["fault"] == "KAFKA_STORAGE_ERROR"
    assert "Input/output error" in told["message"]


def test_what_groups_have_nacked() -> None:
    """By topic, group and partition, as runs; also of topics that are not there."""
    with Broker(config={"topics": {"partitions": 2}}) as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
        for topic in "tu":
            for number in range(20):
                producer.produce(topic, b"it is there", partition=number % 2)
        assert producer.flush(10) == 0
        for nacked in ("a t/1/7", "a t/1/9", "a t/1/8", "a t/0/3", "b t/1/1", "b u/0/0"):
            group, place = nacked.split()
            producer.produce(f"retry.{group}", b"v", headers={"RETRY_OF": place})
        assert producer.flush(10) == 0
        body = {"type": "nacked", "topics": ["t", "gone"]}
        assert ask(broker, json.dumps(body).encode()) == {
            "nacked": [
                {"group": "a", "topic": "t", "partition": 0, "runs": [[3, 1]]},
                {"group": "a", "topic": "t", "partition": 1, "runs": [[7, 3]]},
                {"group": "b", "topic": "t", "partition": 1, "runs": [[1, 1]]},
            ]
        }
        assert ask(broker, b'{"type": "nacked", "topics": []}') == {"nacked": []}


@pytest.mark.parametrize(
    ("config", "question", "said"),
    [
        ({"plugins": {"retry": False}}, {"type": "nacked", "topics": []}, "plugins.retry is off"),
        (
            {"plugins": {"delay": False}, "services": {"keyindex": False}},
            {"type": "show", "topic": "t", "partition": 0, "offset": 0},
            "services.keyindex is off",
        ),
    ],
)
def test_what_is_off(config: dict[str, Any], question: dict[str, Any], said: str) -> None:
    with Broker(config=config) as broker:
        assert ask(broker, json.dumps(question).encode()) == {"fault": "UNSUPPORTED_VERSION", "message": said}
