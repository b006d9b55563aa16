"""Which topics are read: names and patterns, and a pattern that becomes too costly."""

from __future__ import annotations

import pytest

from halfmoon.core.groups.consumer import subscriptions
from halfmoon.core.groups.consumer.settings import ConsumerSettings, GroupOverrides
from halfmoon.core.groups.consumer.subscriptions import Subscriptions
from halfmoon.core.patterns import InvalidPattern
from tests.core.consumer_script import FakeTopics


@pytest.fixture
def topics() -> FakeTopics:
    made = FakeTopics()
    for name in ("orders", "orders.eu", "payments", "!orders"):
        made.make(name, 1)
    return made


def test_names_and_what_a_pattern_finds(topics: FakeTopics) -> None:
    found = Subscriptions(topics)
    assert found.names(("later", "payments"), "") == {"later", "payments"}
    assert found.names((), "orders.*") == {"orders", "orders.eu"}
    assert found.names(("payments",), "orders") == {"orders", "payments"}
    topics.make("orders.us", 1)
    topics.drop("orders.eu")
    assert found.names((), "orders.*") == {"orders", "orders.us"}


def test_a_pattern_that_is_none(topics: FakeTopics) -> None:
    with pytest.raises(InvalidPattern):
        Subscriptions(topics).check("(")
    Subscriptions(topics).check("")


def test_patterns_that_nobody_uses_are_forgotten(topics: FakeTopics, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscriptions, "_MAX_PATTERNS", 3)
    found = Subscriptions(topics)
    for number in range(10):
        found.names((), f"orders{number}?")
    assert len(found._patterns) == 3


def test_intervals_grow_with_members_and_stay_within_bounds() -> None:
    settings = ConsumerSettings()
    assert [settings.heartbeat_interval("g", members) for members in (1, 100, 500, 2_500, 10_000)] == [
        200, 200, 1_000, 5_000, 5_000
    ]  # fmt: skip
    settings.overrides = lambda group: GroupOverrides(session_timeout_ms=6_000)
    assert settings.heartbeat_interval("g", 10_000) == 2_000
