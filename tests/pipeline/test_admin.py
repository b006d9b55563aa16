"""halfmoon.pipeline.admin: what is asked of a broker, and what is said when it does not answer or does not know."""

from __future__ import annotations

import pytest
from confluent_kafka import Producer

from halfmoon.pipeline import PipelineError, admin
from halfmoon.pipeline.admin import Admin, RefusedConfigError, TopicExistsError
from tests.crash.serving import free_port


@pytest.fixture
def asking(bootstrap_servers: str) -> Admin:
    return Admin(bootstrap_servers)


def test_no_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admin, "REQUEST_TIMEOUT_S", 0.5)
    address = f"127.0.0.1:{free_port()}"
    with pytest.raises(PipelineError, match=f"no broker answers at {address}"):
        Admin(address).cluster_id()


def test_topics(asking: Admin) -> None:
    assert asking.ensure_topic("admin-a", 3, {"retention.ms": "-1"}) == 3
    assert asking.ensure_topic("admin-a", 5) == 3, "it is there"
    assert asking.partitions("admin-a") == 3
    assert asking.configs(["admin-a", "admin-missing"])["admin-a"]["retention.ms"] == "-1"
    assert asking.topics("admin-.*") == ["admin-a"]
    with pytest.raises(TopicExistsError, match="there is a topic 'admin-a'"):
        asking.create_topic("admin-a", 1)
    with pytest.raises(RefusedConfigError, match=r"cannot create topic admin-b: .*nonsense"):
        asking.create_topic("admin-b", 1, {"nonsense": "1"})
    with pytest.raises(PipelineError, match="there is no topic 'admin-missing'"):
        asking.partitions("admin-missing")
    with pytest.raises(PipelineError, match=r"'\(' is no regular expression"):
        asking.topics("(")


def test_offsets(asking: Admin) -> None:
    asking.ensure_topic("admin-c", 2)
    producer = Producer({"bootstrap.servers": asking.bootstrap})
    for _ in range(3):
        producer.produce("admin-c", b"x", partition=1)
    assert producer.flush(10) == 0
    assert (asking.begins("admin-c"), asking.ends("admin-c")) == ({0: 0, 1: 0}, {0: 0, 1: 3})
    assert asking.committed("admin-nobody") == {}
    asking.commit("admin-group", {"admin-c": {1: 2}})
    assert asking.committed("admin-group") == {"admin-c": {1: 2}}
    assert "admin-group" in asking.groups()
    with pytest.raises(PipelineError, match="cannot write the offsets of group admin-group: "):
        asking.commit("admin-group", {"admin-missing": {0: 1}})
