from __future__ import annotations

import time

import halfmoon_message_ttl as plugin
import kafka
import pytest

from halfmoon.plugin import build_batch, iter_records
from halfmoon.testing import Broker


@pytest.mark.parametrize(("ttl", "expired"), [(b"99", True), (b"100", False), (b"", False), (b"soon", False)])
def test_what_is_older_than_its_ttl_is_expired(ttl: bytes, expired: bool) -> None:
    (record,) = iter_records(build_batch([(None, b"v", 1_000, ((plugin.HEADER, ttl),))]))
    assert plugin.is_expired(record, 1_100) is expired


def test_it_is_not_delivered() -> None:
    with Broker(plugins=[plugin]) as broker:
        producer = kafka.KafkaProducer(bootstrap_servers=broker.bootstrap_servers)
        old_ms = int(time.time() * 1000) - 60_000
        for value, ttl in ((b"old", b"1000"), (b"new", b"3600000"), (b"plain", None)):
            headers = [] if ttl is None else [(plugin.HEADER, ttl)]
            producer.send("orders", value, headers=headers, timestamp_ms=old_ms).get(10)
        producer.close()
        consumer = kafka.KafkaConsumer(
            "orders",
            bootstrap_servers=broker.bootstrap_servers,
            auto_offset_reset="earliest",
            consumer_timeout_ms=2_000,
        )
        assert [next(consumer).value, next(consumer).value] == [b"new", b"plain"]
        consumer.close()
