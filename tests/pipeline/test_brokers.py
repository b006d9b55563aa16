"""halfmoon.pipeline.brokers: who says where the broker is, and how each client is told. What the environment says of a
secured broker: tests/spark/test_secured.py."""

from __future__ import annotations

import pickle

import pytest

from halfmoon.pipeline.brokers import BOOTSTRAP_VARIABLE, CONFIG_VARIABLE, Brokers, brokers
from halfmoon.securing import PLAINTEXT, Security


def test_where_the_broker_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(BOOTSTRAP_VARIABLE, raising=False)
    monkeypatch.delenv(CONFIG_VARIABLE, raising=False)
    assert brokers().servers == "127.0.0.1:9092"
    monkeypatch.setenv(BOOTSTRAP_VARIABLE, "there:1")
    assert (brokers().servers, brokers("here:2").servers) == ("there:1", "here:2")
    assert brokers(there := Brokers("a:1")) is there
    assert brokers().security == PLAINTEXT


def test_each_client_is_told() -> None:
    there = Brokers("a:1,b:2", security=Security("SASL_SSL", "SCRAM-SHA-512", "alice", "s"))
    assert there.confluent(group_id="g") == {
        "bootstrap.servers": "a:1,b:2", "log_level": 0, "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512", "sasl.username": "alice", "sasl.password": "s", "group.id": "g",
    }  # fmt: skip
    assert there.spark() == {
        "kafka.bootstrap.servers": "a:1,b:2", "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required "
        'username="alice" password="s";',
    }  # fmt: skip
    assert Brokers("a:1", security=PLAINTEXT).spark() == {"kafka.bootstrap.servers": "a:1"}


def test_it_goes_to_executors_and_is_printed_without_the_password() -> None:
    there = Brokers("a:1", security=Security("SASL_SSL", "PLAIN", "alice", "hidden"))
    assert pickle.loads(pickle.dumps(there)).confluent() == there.confluent()
    assert "hidden" not in f"{there} {there!r}"
    assert f"{there}" == "a:1"
