"""What members of a group go through, whichever client they are of: its Member, and how it fills a topic and asks for
what a group has committed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from halfmoon.testing import Broker
from tests.clients.polling import until, wait_for

Start = Callable[..., Any]
"""`start(servers, group, topic, **settings)` → a Member."""
Fill = Callable[..., None]
"""`fill(servers, topic, count, partition)`."""
Committed = Callable[..., dict[int, Any]]
"""`committed(servers, group, topic, partitions)` → the offset of each partition."""


def two_share_and_the_next_one_goes_on(
    start: Start, fill: Fill, committed: Committed, servers: str, group: str, topic: str
) -> None:
    """`topic` has four partitions."""
    first = start(servers, group, topic)
    wait_for(lambda: first.owned == {0, 1, 2, 3})
    second = start(servers, group, topic)
    wait_for(lambda: len(first.owned) == len(second.owned) == 2 and not first.owned & second.owned)
    for partition in range(4):
        fill(servers, topic, 10, partition)
    everything = {(partition, offset) for partition in range(4) for offset in range(10)}
    wait_for(lambda: set(first.seen) | set(second.seen) == everything)
    assert {partition for partition, _ in first.seen} == first.owned
    first.leave()
    wait_for(lambda: second.owned == {0, 1, 2, 3})
    second.leave()
    assert committed(servers, group, topic, 4) == dict.fromkeys(range(4), 10)
    fill(servers, topic, 1, partition=2)
    third = start(servers, group, topic)
    wait_for(lambda: third.seen)
    assert third.seen == [(2, 10)]


def a_static_member_comes_back(start: Start, servers: str, group: str, topic: str, setting: str) -> None:
    """`topic` has two partitions; `setting` is the client's name for group.instance.id."""
    first = start(servers, group, topic, **{setting: "one"})
    wait_for(lambda: first.owned)
    second = start(servers, group, topic, **{setting: "two"})
    wait_for(lambda: len(first.owned) == len(second.owned) == 1)
    owned, rebalances = second.owned, first.rebalances
    second.leave()  # a static member's close does not leave the group
    again = start(servers, group, topic, **{setting: "two"})
    wait_for(lambda: again.owned)
    assert again.owned == owned
    assert first.rebalances == rebalances


def both_go_on_after_a_restart(both: list[Any], fill: Fill, committed: Committed, broker: Broker, name: str) -> None:
    """`name` is that of their group, and of their topic, which has two partitions."""
    servers = broker.bootstrap_servers
    wait_for(lambda: all(len(member.owned) == 1 for member in both))
    for partition in range(2):
        fill(servers, name, 10, partition)
    wait_for(lambda: sum(len(member.seen) for member in both) >= 20)
    broker.restart()
    for partition in range(2):
        fill(servers, name, 10, partition)
    everything = {(partition, offset) for partition in range(2) for offset in range(20)}
    wait_for(lambda: set(both[0].seen) | set(both[1].seen) == everything)
    until(lambda: committed(servers, name, name, 2) == {0: 20, 1: 20})
