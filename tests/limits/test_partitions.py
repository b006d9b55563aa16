"""How many partitions there may be: a short request can ask for any number."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from halfmoon.errors import BrokerError, Fault
from halfmoon.testing import Broker as Kit


@pytest.fixture
def kit() -> Iterator[Any]:
    with Kit(config={"limits": {"max_partitions": 10, "max_partitions_per_topic": 8}}) as kit:
        yield kit


def client(kit: Kit) -> Any:
    from kafka import KafkaAdminClient

    return KafkaAdminClient(bootstrap_servers=kit.bootstrap_servers)


def test_a_topic_and_a_node_have_a_most(kit: Kit):
    assert kit.app is not None
    broker = kit.app.node.kernel
    admin = client(kit)
    try:
        admin.create_topics({"a": {"num_partitions": 6}})
        for count in (9, 5):
            with pytest.raises(BrokerError) as refused:
                broker.administration.create_topic("b", count, validate_only=True)
            assert refused.value.fault is Fault.INVALID_PARTITIONS
        assert "of 10 on this node 6 are taken" in refused.value.message
        admin.create_topics({"b": {"num_partitions": 2}})
        admin.create_partitions({"b": 4})
        with pytest.raises(BrokerError, match="of 10 on this node 10 are taken"):
            broker.administration.add_partitions(broker.catalog.by_name["b"], 5, validate_only=True)
        admin.delete_topics(["a"])
        admin.create_partitions({"b": 8})
    finally:
        admin.close()
    kit.restart()
    assert kit.app is not None
    with pytest.raises(BrokerError, match="of 10 on this node 8 are taken"):
        kit.app.node.kernel.administration.create_topic("c", 3, validate_only=True)
