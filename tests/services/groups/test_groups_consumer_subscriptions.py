"""Which topics are read: names and patterns, and a pattern that becomes too costly."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from halfmoon.services.common.patterns import InvalidPattern
from halfmoon.services.groups.consumer import subscriptions
from halfmoon.services.groups.consumer.settings import ConsumerSettings, GroupOverrides
from halfmoon.services.groups.consumer.subscriptions import Subscriptions
from tests.services.groups.consumer_script import FakeTopics, Script


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
    assert found.look(["orders.*"])
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


def test_a_pattern_is_checked_without_matching_it(topics: FakeTopics, monkeypatch: pytest.MonkeyPatch) -> None:
    def names() -> Iterable[str]:
        raise AssertionError("it is matched")

    monkeypatch.setattr(topics, "names", names)
    Subscriptions(topics).check("orders.*")


def test_many_topics_are_looked_at_bit_by_bit(topics: FakeTopics, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscriptions, "MATCHED_AT_ONCE", 500)
    found = Subscriptions(topics)
    for number in range(50):
        topics.make(f"more{number}", 1)
    sizes = []
    while not found.look(["more.*", "orders|payments"]):
        sizes.append(len(found.names((), "more.*")))
    assert len(sizes) > 5
    assert sizes == sorted(sizes)
    assert found.names((), "more.*") == {f"more{number}" for number in range(50)}
    assert found.names((), "orders|payments") == {"orders", "payments"}
    topics.make("more", 1)
    topics.make("less", 1)
    topics.drop("more3")
    topics.drop("less")
    assert found.look(["more.*"])
    assert found.names((), "more.*") == {"more"} | {f"more{number}" for number in range(50) if number != 3}
    topics.make("x", 1)
    found.look([])
    topics.drop("x")
    assert found.look(["more.*"]), "what is gone need not be looked at"


def test_members_get_the_topics_as_they_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscriptions, "MATCHED_AT_ONCE", 100)
    script = Script()
    for number in range(9):
        script.run(f"topic t{number} 1")
    everything = "t:0,1,2,3+" + "+".join(f"t{number}:0" for number in range(9))
    assert everything not in script.run("beat a regex=t.*")[1]
    for _ in range(9):
        described = script.coordinator.describe_consumer("g")
        assert described is not None
        script.run("tick 200")
        script.run(f"beat a epoch={described.members[0].member.epoch}")
    assert f" has {everything} target" in script.run("describe")[1]


def test_intervals_grow_with_members_and_stay_within_bounds() -> None:
    settings = ConsumerSettings()
    assert [settings.heartbeat_interval("g", members) for members in (1, 100, 500, 2_500, 10_000)] == [
        200, 200, 1_000, 5_000, 5_000
    ]  # fmt: skip
    settings.overrides = lambda group: GroupOverrides(session_timeout_ms=6_000)
    assert settings.heartbeat_interval("g", 10_000) == 2_000
