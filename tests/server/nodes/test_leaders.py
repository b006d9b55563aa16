"""Whom clients are told as the leader of a shard (decision 0176)."""

from __future__ import annotations

import msgspec
import pytest

from halfmoon.cluster.engine.database import Node
from halfmoon.config.settings import load_settings
from halfmoon.core.catalog.owners import Leader
from halfmoon.server.nodes.known_nodes import ClientAddresses, KnownNodes
from halfmoon.server.nodes.leaders import Leaders

ME = 1
DOORS = msgspec.json.encode(ClientAddresses({"kafka": ("127.0.0.1", 9092)})).decode()


def node(number: int, *, alive: bool = True, draining: bool = False) -> Node:
    return Node(number, number, "127.0.0.1", 9100 + number, "", alive=alive, draining=draining, doors=DOORS)


@pytest.fixture
def nodes() -> KnownNodes:
    return KnownNodes(load_settings({"node": {"id": ME}}, {}, {}), ME)


@pytest.fixture
def leaders(nodes: KnownNodes) -> Leaders:
    found = Leaders(2, nodes)

    def look(number: int) -> None:
        for shard, owner in enumerate(found.owners):
            if owner == number:
                found.look_at(shard)

    nodes.on_change = look
    nodes.found([node(2), node(3)])
    return found


def test_an_owner_who_lives_is_the_leader(leaders: Leaders) -> None:
    leaders.owned(0, 2)
    assert leaders.told(0, 7) is None


def test_who_has_taken_a_shard_is_told_before_it_is_open(leaders: Leaders) -> None:
    leaders.owned(0, 2)
    leaders.taken(0, 8, 3)
    assert leaders.told(0, 7) == Leader(3, 8)
    leaders.owned(0, 3)
    assert leaders.told(0, 8) is None
    leaders.taken(0, 6, 2)
    assert leaders.told(0, 7) == Leader(3, 8), "an earlier epoch is no news"


@pytest.mark.parametrize("draining", [False, True])
def test_who_was_given_a_shard_and_is_gone_before_it_was_open_leads_its_epoch_for_a_while(
    leaders: Leaders, nodes: KnownNodes, monkeypatch: pytest.MonkeyPatch, draining: bool
) -> None:
    """An epoch that clients were told of never goes back."""
    leaders.owned(0, 2)
    leaders.taken(0, 8, 3)
    nodes.found([node(2), node(3, alive=False, draining=draining)])
    assert leaders.told(0, 7) == Leader(3, 8)
    assert [gone.node_id for gone in leaders.just_gone()] == [3]
    leaders.taken(0, 9, 2)
    assert leaders.told(0, 7) == Leader(2, 9)
    leaders.taken(0, 10, 4)
    assert leaders.told(0, 7) == Leader(-1, 10), "of one that was never seen alive"
    assert [gone.node_id for gone in leaders.just_gone()] == [] if draining else [3]


def test_who_was_given_a_shard_and_is_gone_is_nobody_after_a_while(
    leaders: Leaders, nodes: KnownNodes, monkeypatch: pytest.MonkeyPatch
) -> None:
    leaders.owned(0, 2)
    leaders.taken(0, 8, 3)
    nodes.found([node(2)])
    monkeypatch.setattr("halfmoon.server.nodes.leaders.TAKEOVER_S", 0.0)
    assert leaders.told(0, 7) == Leader(-1, 8)
    assert [*leaders.just_gone()] == []
    nodes.found([node(2), node(3)])
    assert leaders.told(0, 7) == Leader(3, 8)
    assert leaders.told(0, 8) is None, "it has opened it"


def test_the_owner_of_an_epoch_leads_it_while_nobody_has_taken_the_next(leaders: Leaders, nodes: KnownNodes) -> None:
    leaders.owned(0, 2)
    nodes.found([node(3)])
    assert leaders.told(0, 7) == Leader(2, 7)
    assert leaders.told(1, 0) == Leader(-1, 0), "nobody ever had it"


def test_where_the_last_owner_is_unknown_the_one_before_it_leads_its_own_epoch(
    leaders: Leaders, nodes: KnownNodes
) -> None:
    leaders.owned(0, 2)
    leaders.owned(0, 4)
    assert leaders.told(0, 7) == Leader(2, 6)
    nodes.found([node(2), node(3), node(4)])
    assert leaders.told(0, 7) is None


def test_after_a_while_it_is_nobody(leaders: Leaders, nodes: KnownNodes, monkeypatch: pytest.MonkeyPatch) -> None:
    leaders.owned(0, 2)
    nodes.found([node(3)])
    monkeypatch.setattr("halfmoon.server.nodes.leaders.TAKEOVER_S", 0.0)
    assert leaders.told(0, 7) == Leader(-1, 7)
    assert [*leaders.just_gone()] == []


def test_nodes_that_died_are_told_and_those_that_left_only_as_leaders(leaders: Leaders, nodes: KnownNodes) -> None:
    leaders.owned(0, 2)
    nodes.found([node(2, alive=False), node(3, alive=False, draining=True)])
    assert [gone.node_id for gone in leaders.just_gone()] == [2]
    nodes.found([node(3)])
    leaders.owned(1, 3)
    nodes.found([node(3, alive=False, draining=True)])
    assert sorted(gone.node_id for gone in leaders.just_gone()) == [2, 3]
    nodes.found([node(2), node(3)])
    assert [*leaders.just_gone()] == []
