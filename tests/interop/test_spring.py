"""spring-kafka's retry topics: it makes topics of its own, sends what failed there, and waits by pausing partitions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from tests.clients.polling import until
from tests.interop.java_programs import Program, jars, source

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]


def test_what_a_listener_refuses_is_tried_again_from_retry_topics(
    tmp_path: Path, bootstrap_servers: str, name: str, admin: AdminClient, make_topic: Callable[..., str]
) -> None:
    topic = make_topic(1)
    program = Program(
        tmp_path, "spring", jars("spring"), source("spring", "RetryTopics.java"), bootstrap_servers, topic, name
    )
    try:
        program.says("sent", timeout_s=90)
        until(lambda: "dead bad" in program.lines, deadline_s=60)
        until(lambda: f"{topic}-retry-600 slow" in program.lines, deadline_s=60)
    finally:
        program.stop()
        made = [each for each in admin.list_topics(timeout=10).topics if each.startswith(f"{topic}-")]
        for future in admin.delete_topics(made).values():
            future.exception(10)
    attempts = [line for line in program.lines if line != "sent"]
    assert sorted(attempts) == sorted([
        *(f"{topic} {value}" for value in ("good", "slow", "bad", "last")),
        *(f"{topic}-retry-300 {value}" for value in ("slow", "bad")),
        *(f"{topic}-retry-600 {value}" for value in ("slow", "bad")),
        f"{topic}-retry-1200 bad",
        "dead bad",
    ])  # fmt: skip
    assert set(made) == {f"{topic}-retry-300", f"{topic}-retry-600", f"{topic}-retry-1200", f"{topic}-dlt"}
