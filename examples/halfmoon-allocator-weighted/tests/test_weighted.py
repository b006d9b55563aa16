"""The strategy by itself, and in a whole broker. The package has to be installed: `pip install -e '.[test]'`."""

from __future__ import annotations

import pytest
from halfmoon_allocator_weighted import Settings, halfmoon_allocators

from halfmoon.plugin import AnyAllocator, GroupMember, PluginContext, Queue, SettingError, allocate
from halfmoon.testing import Broker

QUEUES = [Queue("orders", "halfmoon", number) for number in range(8)]


def strategy(**weights: float) -> AnyAllocator:
    """What the plugin gives the broker, for these settings."""
    settings = Settings(weights={f"{name}-*": weight for name, weight in weights.items()})
    return halfmoon_allocators(PluginContext("weighted", settings))["weighted"]


def test_a_larger_member_reads_more() -> None:
    shares = allocate(strategy(big=3), ["big-1", "small-1"], QUEUES)
    assert {member: len(share) for member, share in shares.items()} == {"big-1": 6, "small-1": 2}


def test_without_weights_shares_are_equal() -> None:
    shares = allocate(strategy(), ["a", "b", "c"], QUEUES)
    assert sorted(len(share) for share in shares.values()) == [2, 3, 3]


def test_who_stays_keeps_what_it_has() -> None:
    before = allocate(strategy(), ["a", "b"], QUEUES)
    after = allocate(strategy(), ["a", "b", "c"], QUEUES, before)
    for member in ("a", "b"):
        assert set(after[member]) < set(before[member])


def test_a_topic_goes_to_those_who_read_it() -> None:
    members = [GroupMember("big-1", topics=frozenset({"orders"})), GroupMember("a", topics=frozenset({"payments"}))]
    payments = [Queue("payments", "halfmoon", 0)]
    shares = allocate(strategy(big=3), members, QUEUES + payments)
    assert shares == {"big-1": QUEUES, "a": payments}


def test_the_broker_takes_it() -> None:
    config = {"plugins": {"weighted": {"weights": {"big-*": 3}}}, "groups": {"default_assignor": "weighted"}}
    with Broker(config=config):
        pass


def test_a_weight_is_above_0() -> None:
    with pytest.raises(SettingError, match=r"\$\.plugins\.weighted\.weights: got -1.0 for 'a'"):
        Broker(config={"plugins": {"weighted": {"weights": {"a": -1}}}}).start()
