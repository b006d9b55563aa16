"""halfmoon.pipeline.offsets: where a read begins by a group's offsets, and what is said of a group that has none."""

from __future__ import annotations

import json
import logging
import uuid

import pytest
from confluent_kafka import Producer

from halfmoon.pipeline.admin import Admin
from halfmoon.pipeline.errors import PipelineError
from halfmoon.pipeline.offsets import GroupOffsets, end_options, start_options


@pytest.fixture
def admin(bootstrap_servers: str) -> Admin:
    return Admin(bootstrap_servers)


@pytest.fixture
def topic(admin: Admin) -> str:
    """A topic of two partitions, with two records in the first."""
    name = f"offsets-{uuid.uuid4().hex[:12]}"
    admin.ensure_topic(name, 2)
    producer = Producer({"bootstrap.servers": admin.bootstrap})
    for _ in range(2):
        producer.produce(name, b"x", partition=0)
    assert producer.flush(10) == 0
    return name


def starts(topic: str, admin: Admin, position: GroupOffsets) -> dict[str, int]:
    options = start_options(position, [topic], admin)
    found: dict[str, int] = json.loads(options["startingOffsets"])[topic]
    return found


def test_a_group_that_is_not_there_is_warned_of(admin: Admin, topic: str, caplog: pytest.LogCaptureFixture) -> None:
    assert starts(topic, admin, GroupOffsets(f"{topic}-nobody")) == {"0": 0, "1": 0}
    assert starts(topic, admin, GroupOffsets(f"{topic}-nobody", otherwise="latest")) == {"0": 2, "1": 0}
    said = [record.getMessage() for record in caplog.records]
    there = f"GroupOffsets: there is no group '{topic}-nobody' at {admin.bootstrap}: "
    assert said == [
        f"{there}the earliest offset of every partition is taken",
        f"{there}the latest offset of every partition is taken",
    ]
    assert {(record.name, record.levelno) for record in caplog.records} == {
        ("halfmoon.pipeline.offsets", logging.WARNING)
    }


def test_an_end_is_warned_of_too(admin: Admin, topic: str, caplog: pytest.LogCaptureFixture) -> None:
    options = end_options(GroupOffsets(f"{topic}-nobody"), [topic], admin)
    assert json.loads(options["endingOffsets"]) == {topic: {"0": 0, "1": 0}}
    assert "there is no group" in caplog.text


def test_a_misspelt_name_is_told_from_the_one_that_is_there(
    admin: Admin, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    admin.commit(f"{topic}-billing", {topic: {0: 1}})
    starts(topic, admin, GroupOffsets(f"{topic}-biling"))
    assert f"(did you mean '{topic}-billing'?)" in caplog.text


def test_a_group_that_has_committed_elsewhere_is_there_and_has_nothing_here(
    admin: Admin, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    other = f"{topic}-other"
    admin.ensure_topic(other, 1)
    admin.commit(f"{topic}-billing", {other: {0: 0}})
    assert starts(topic, admin, GroupOffsets(f"{topic}-billing")) == {"0": 0, "1": 0}
    assert f"group '{topic}-billing' has committed no offset in {topic}: the earliest" in caplog.text
    caplog.clear()
    start_options(GroupOffsets(f"{topic}-billing"), [topic, other], admin)
    assert caplog.records == [], "it has read one of the topics"


def test_a_group_with_an_offset_is_not_warned_of(admin: Admin, topic: str, caplog: pytest.LogCaptureFixture) -> None:
    admin.commit(f"{topic}-billing", {topic: {0: 1}})
    assert starts(topic, admin, GroupOffsets(f"{topic}-billing")) == {"0": 1, "1": 0}
    assert caplog.records == []


def test_groups_that_cannot_be_listed_are_no_reason_to_fail(
    admin: Admin, topic: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> list[str]:
        raise PipelineError("cannot list the groups")

    monkeypatch.setattr(admin, "groups", refuse)
    assert starts(topic, admin, GroupOffsets(f"{topic}-nobody")) == {"0": 0, "1": 0}
    assert "has committed no offset in" in caplog.text
