"""What these tests share. Those with Kafka's clients run against a real Kafka too, as those in tests/clients do."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.clients.conftest import admin, make_topic, name, topic  # noqa: F401
from tests.clients.kafka_jvm.jvm import KafkaJvm


@pytest.fixture(scope="session")
def jvm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaJvm]:
    """A JVM with Kafka's Java client, for all that is driven from here."""
    started = KafkaJvm(tmp_path_factory.mktemp("kafka-jvm"))
    yield started
    started.stop()
