"""Topics, made through librdkafka's admin client."""

from __future__ import annotations

import time

from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from benchmarks.clients import wire


def create(bootstrap: str, topic: str, partitions: int = 1) -> AdminClient:
    """Make a topic and wait until it can be produced to. A topic that exists already is an error of the caller's."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})
    create_with(admin, topic, partitions)
    _wait_until_led(bootstrap, topic, partitions)
    return admin


def create_with(admin: AdminClient, topic: str, partitions: int) -> None:
    for answer in admin.create_topics([NewTopic(topic, partitions, 1)], request_timeout=30).values():
        answer.result(30)


def _wait_until_led(bootstrap: str, topic: str, partitions: int, limit_s: float = 30.0) -> None:
    """Kafka refuses requests for a while after it has answered CreateTopics, Metadata or no Metadata."""
    deadline = time.monotonic() + limit_s
    with wire.Connection(bootstrap) as connection:
        for partition in range(partitions):
            while True:
                error = wire.fetched(connection.ask(wire.fetch(topic, partition, 0, max_wait_ms=0))).error
                if error == 0:
                    break
                if time.monotonic() > deadline:
                    raise TimeoutError(f"{topic} [{partition}] answers error {error}")
                time.sleep(0.005)


def create_topics(bootstrap: str, topic: str, partitions: int) -> dict[str, float]:
    """How long one CreateTopics takes, until its answer and until the last partition can be read."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})
    admin.list_topics(timeout=30)
    begun = time.perf_counter()
    create_with(admin, topic, partitions)
    answered = time.perf_counter()
    _wait_until_led(bootstrap, topic, partitions)
    return {"create_ms": (answered - begun) * 1e3, "usable_ms": (time.perf_counter() - begun) * 1e3}
