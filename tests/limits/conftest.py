"""Brokers with small limits, each a process of its own."""

from __future__ import annotations

import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from halfmoon.adapters.kafka.protocol import CreateTopicsRequest
from tests.fuzz.peer import Peer
from tests.fuzz.process import BrokerProcess


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., BrokerProcess]]:
    """`start(max_connections=3)` → a running broker with these limits, and metrics; with RocketMQ's ports if asked."""
    with ExitStack() as stack:

        def start(
            *, log: dict[str, Any] | None = None, rocketmq: bool = False, workers: int | None = None, **limits: Any
        ) -> BrokerProcess:
            listeners: dict[str, Any] = {"http": {"bind": "127.0.0.1:0"}}
            if rocketmq:
                listeners["rocketmq"] = {"bind": "127.0.0.1:0", "namesrv": "127.0.0.1:0"}
            return stack.enter_context(
                BrokerProcess(
                    tmp_path,
                    log={"segment_bytes": "16MiB", "flush": "interval", **(log or {})},
                    listeners=listeners,
                    limits=limits,
                    workers={"count": workers},
                )
            )

        yield start


def metric(broker: BrokerProcess, name: str) -> float:
    """What /metrics says of the Kafka listener."""
    with urllib.request.urlopen(f"http://{broker.http}/metrics", timeout=5) as answer:
        for line in answer.read().decode().splitlines():
            if line.startswith(f'{name}{{listener="kafka"}} '):
                return float(line.split()[1])
    raise AssertionError(f"no metric {name}")


def create_topic(peer: Peer, name: str, partitions: int = 1, **configs: str) -> None:
    creatable = CreateTopicsRequest.CreatableTopic
    topic = creatable(
        name=name,
        num_partitions=partitions,
        replication_factor=1,
        assignments=[],
        configs=[
            creatable.CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()
        ],
    )
    (result,) = peer.ask(19, 5, topics=[topic], timeout_ms=5000, validate_only=False).topics
    assert result.error_code == 0, result
