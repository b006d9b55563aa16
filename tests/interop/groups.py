"""Members of a consumer group in one JVM, polled in turn by the test."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

from tests.clients.kafka_jvm.jvm import CLIENTS, KafkaJvm

DEADLINE_S = 30.0
POLL_MS = 50
CLASSIC, CONSUMER = "classic", "consumer"
QUICK = {"session_timeout_ms": 6_000, "heartbeat_interval_ms": 300}
"""For the classic protocol; with the new one the broker says."""


class Members:
    """Java consumers by name, and what they got."""

    def __init__(self, jvm: KafkaJvm, servers: str, group: str) -> None:
        self.jvm = jvm
        self.group = group
        self.clients: dict[str, Any] = {}
        self.got: Counter[str] = Counter()
        self._servers = servers

    def join(self, name: str, *topics: str, protocol: str = CONSUMER, pattern: str = "", **options: object) -> Any:
        """`pattern`: a regular expression, which the broker looks after."""
        more = {**QUICK, **options} if protocol == CLASSIC else options
        client = self.jvm.consumer(
            self._servers, group_id=self.group, group_protocol=protocol, client_id=name, metadata_max_age_ms=1_000,
            enable_auto_commit=False, allow_auto_create_topics=False, **more,
        )  # fmt: skip
        self.clients[name] = client
        if pattern:
            client.subscribe(self.jvm.named(f"{CLIENTS}.consumer.SubscriptionPattern")(pattern))
        else:
            client.subscribe(self.jvm.list(topics))
        return client

    def leave(self, name: str) -> None:
        """In good order: what it got is committed."""
        client = self.clients.pop(name)
        client.commitSync()
        client.close()

    def poll(self, *, commit: bool = False) -> None:
        """Each of them once."""
        for client in self.clients.values():
            for record in self.jvm.poll(client, POLL_MS):
                self.got[record.value()] += 1
            if commit:
                client.commitSync()

    def assigned(self, name: str) -> set[tuple[str, int]]:
        return {(each.topic(), each.partition()) for each in self.clients[name].assignment()}

    def shares(self) -> list[int]:
        """How many partitions each member has, the smallest first."""
        return sorted(len(self.assigned(name)) for name in self.clients)

    def until(self, condition: Callable[[], bool], deadline_s: float = DEADLINE_S, *, commit: bool = False) -> None:
        """Poll them all until it holds."""
        end = time.monotonic() + deadline_s
        while not condition():
            assert time.monotonic() < end, {name: self.assigned(name) for name in self.clients}
            self.poll(commit=commit)

    def have(self, partitions: Iterable[tuple[str, int]], deadline_s: float = DEADLINE_S) -> None:
        """Each of the partitions is one member's, and the shares are equal but for one."""
        wanted = sorted(partitions)

        def so() -> bool:
            held = sorted(each for name in self.clients for each in self.assigned(name))
            return held == wanted and self.shares()[-1] - self.shares()[0] <= 1

        self.until(so, deadline_s)

    def close(self) -> None:
        for client in self.clients.values():
            with suppress(Exception):
                client.close()
