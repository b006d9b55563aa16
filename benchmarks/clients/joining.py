"""How long members wait for their partitions: the first one of a group, and the second one. By librdkafka."""

from __future__ import annotations

import time
from statistics import median
from typing import Any

from confluent_kafka import Consumer

from benchmarks.clients import topics

PARTITIONS = 4
HALF = PARTITIONS // 2
LIMIT_S = 60.0
POLL_S = 0.001
INTERVAL_S = 5.0
"""What Kafka tells its members to wait between heartbeats; the classic ones of librdkafka wait 3 s."""


def joining(bootstrap: str, topic: str, protocol: str, times: int) -> dict[str, float]:
    """Medians of `times` groups. The second members come at moments that are spread over a heartbeat interval: when
    the first one next asks is chance otherwise."""
    topics.create(bootstrap, topic, PARTITIONS)
    first_ms, second_ms = [], []
    for number in range(times):
        first, second = (_Member(bootstrap, f"{topic}-{number}", protocol) for _ in range(2))
        try:
            begun = time.perf_counter()
            first.consumer.subscribe([topic], on_assign=first.assigned, on_revoke=first.revoked)
            _wait_for(lambda first=first: first.partitions == PARTITIONS, first)
            first_ms.append((time.perf_counter() - begun) * 1e3)

            end = time.perf_counter() + 1.0 + INTERVAL_S * number / times
            _wait_for(lambda end=end: time.perf_counter() >= end, first)
            begun = time.perf_counter()
            second.consumer.subscribe([topic], on_assign=second.assigned, on_revoke=second.revoked)
            _wait_for(lambda first=first, second=second: first.partitions == second.partitions == HALF, first, second)
            second_ms.append((time.perf_counter() - begun) * 1e3)
        finally:
            first.consumer.close()
            second.consumer.close()
    return {
        "first_ms": median(first_ms), "second_ms": median(second_ms), "second_max_ms": max(second_ms),
    }  # fmt: skip


class _Member:
    def __init__(self, bootstrap: str, group: str, protocol: str) -> None:
        # All but the protocol as it is by default: classic members give everything back and get it anew.
        self._incremental = protocol == "consumer"
        self.consumer = Consumer({
            "bootstrap.servers": bootstrap, "group.id": group, "group.protocol": protocol,
            "enable.auto.commit": False, "log_level": 2,
        })  # fmt: skip
        # Connected, so that what is timed is the group's doing.
        self.consumer.list_topics(timeout=LIMIT_S)
        self.partitions = 0

    def assigned(self, consumer: Any, partitions: list[Any]) -> None:
        (consumer.incremental_assign if self._incremental else consumer.assign)(partitions)
        self.partitions += len(partitions)

    def revoked(self, consumer: Any, partitions: list[Any]) -> None:
        if self._incremental:
            consumer.incremental_unassign(partitions)
        else:
            consumer.unassign()
        self.partitions -= len(partitions)


def _wait_for(condition: Any, *members: _Member) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"the members have {[member.partitions for member in members]} partitions")
        for member in members:
            member.consumer.poll(POLL_S)
