"""What a message is known by: the same for each delivery of one, another for another one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from halfmoon.outbox import header
from halfmoon.outbox.inbox import Identity, MessageId


def record(topic: str, offset: int, headers: Any = (), timestamp: Any = 1_000) -> Any:
    return SimpleNamespace(
        topic=topic, partition=2, offset=offset, key=None, value=b"", headers=headers, timestamp=timestamp
    )


def confluent(topic: str, offset: int, headers: Any = (), timestamp: Any = (1, 1_000)) -> Any:
    plain = record(topic, offset, headers, timestamp)
    return SimpleNamespace(**{name: (lambda value=value: value) for name, value in vars(plain).items()})


ORIGIN = [("ORIGIN_MESSAGE_ID", b"orders/2/7"), ("RECONSUME_TIME", b"1")]


@pytest.mark.parametrize("make", [record, confluent])
def test_a_redelivered_record_is_the_one_it_was(make: Any) -> None:
    identity = Identity("billing team", None)
    assert identity(make("orders", 7)) == MessageId("orders/2/7", 1_000)
    assert identity(make("retry.billing_x20_team", 91, ORIGIN)) == MessageId("orders/2/7", None)
    assert identity(make("retry.billing_x20_team", 92)) == MessageId("retry.billing_x20_team/2/92", 1_000)


def test_a_copied_header_counts_for_nothing() -> None:
    identity = Identity("billing", None)
    assert identity(record("orders", 8, ORIGIN)).text == "orders/2/8"
    assert identity(record("retry.others", 8, ORIGIN)).text == "retry.others/2/8"


@pytest.mark.parametrize("made", [record("t", 1, (), -1), record("t", 1, (), None), confluent("t", 1, None, (0, 5))])
def test_a_record_without_a_timestamp(made: Any) -> None:
    assert Identity("billing", None)(made) == MessageId("t/2/1", None)


def test_a_message_of_rocketmq_is_known_by_its_unique_key() -> None:
    queue, retries = SimpleNamespace(topic="orders"), SimpleNamespace(topic="%RETRY%billing")
    message = SimpleNamespace(topic="orders", message_id="AC10", queue_offset=3, properties={"id": "9"}, queue=queue)
    assert Identity("billing", None)(message) == MessageId("orders:AC10", None)
    of_kafka = {"ORIGIN_MESSAGE_ID": "0A01"}
    for given, where, key in (
        ({**of_kafka, "UNIQ_KEY": "AC10"}, retries, "AC10"), (of_kafka, retries, "0A01"), (of_kafka, queue, "AC10"),
        (of_kafka, SimpleNamespace(topic="%RETRY%others"), "AC10"), ({}, retries, "AC10"),
    ):  # fmt: skip
        again = SimpleNamespace(topic="orders", message_id="AC10", queue_offset=3, properties=given, queue=where)
        assert Identity("billing", None)(again).text == f"orders:{key}"
    assert Identity("billing", header("id"))(message) == MessageId("9", None)
    with pytest.raises(ValueError, match="no header other"):
        Identity("billing", header("other"))(message)


def test_ids_of_ones_own() -> None:
    by_header = Identity("billing", header("id"))
    assert by_header(record("orders", 1, [("other", b"1"), ("id", b"9")])) == MessageId("9", None)
    with pytest.raises(ValueError, match="no header id"):
        by_header(record("orders", 1, [("id", None)]))
    with pytest.raises(ValueError, match="expected text"):
        Identity("billing", lambda _: 7)(record("orders", 1))  # type: ignore[arg-type,return-value]
    with pytest.raises(ValueError, match="expected text"):
        Identity("billing", lambda _: "")(record("orders", 1))
    long = Identity("billing", lambda each: "n" * 300 + each.topic)
    first, second = long(record("a", 1)).text, long(record("b", 1)).text
    assert first.startswith("sha256:")
    assert (first != second, len(first)) == (True, 71)
    assert Identity("billing", lambda _: "a\0b")(record("a", 1)).text.startswith("sha256:")
