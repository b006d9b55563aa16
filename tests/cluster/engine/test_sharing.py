from __future__ import annotations

import random
from itertools import islice

import pytest

from halfmoon.cluster.engine.database import Node
from halfmoon.cluster.engine.pieces import Durability, Head
from halfmoon.cluster.engine.sharing import in_turn, to_give, to_take

FAST, OBJECT = Durability


def node(incarnation: int, *, alive: bool = True, draining: bool = False, stores: bool = True) -> Node:
    return Node(incarnation, incarnation, "host", 1, "", alive, draining, stores=stores)


def shards(*owners: int | None) -> list[Head]:
    return [Head(number, FAST, 1, owner, 0) for number, owner in enumerate(owners)]


def test_the_first_node_takes_all() -> None:
    heads = shards(None, None, None)
    assert to_take(heads, [node(1)], 1) == heads


def test_nodes_that_look_at_the_same_time_take_different_shards_and_all_of_them() -> None:
    heads = shards(*[None] * 16)
    nodes = [node(1), node(2), node(3)]
    taken = [to_take(heads, nodes, one.incarnation) for one in nodes]
    assert sorted(len(one) for one in taken) == [5, 5, 6]
    assert sorted(head.shard for one in taken for head in one) == list(range(16))


def test_what_a_dead_node_had_is_taken_by_the_least_loaded() -> None:
    heads = shards(1, 1, 2, 2, 3, 3, 3, 3)
    nodes = [node(1), node(2), node(3, alive=False), node(4)]
    assert [len(to_take(heads, nodes, one)) for one in (1, 2, 4)] == [1, 1, 2]


def test_a_node_that_is_dead_or_drained_takes_nothing() -> None:
    heads = shards(None)
    assert to_take(heads, [node(1, alive=False)], 1) == []
    assert to_take(heads, [node(1, draining=True)], 1) == []
    assert to_take(heads, [], 1) == []


def test_the_owner_that_drains_is_not_dead() -> None:
    assert to_take(shards(1), [node(1, draining=True), node(2)], 2) == []


def test_a_node_that_does_not_reach_the_store_gives_all_to_those_that_do_and_takes_nothing() -> None:
    cut = [node(1, stores=False), node(2), node(3, stores=False)]
    heads = shards(1, 2, 2, None)
    assert to_give(heads, cut, 1) == (heads[0], 2)
    assert to_give(heads, cut, 2) is None
    assert to_take(heads, cut, 1) == []
    assert to_take(heads, cut, 2) == [heads[3]]
    assert list(islice(in_turn(cut, 1), 2)) == [2, 2]


def test_where_nobody_reaches_the_store_shards_are_shared_as_ever() -> None:
    nodes = [node(1, stores=False), node(2, stores=False), node(3, draining=True), node(4, alive=False)]
    heads = shards(1, 1, None)
    assert to_take(heads, nodes, 2) == [heads[2]]
    assert to_give(shards(1, 2), nodes, 1) is None


def test_kinds_are_shared_by_themselves() -> None:
    heads = [Head(0, FAST, 1, 1, 0), Head(1, FAST, 1, 1, 0), Head(2, OBJECT, 1, None, 0), Head(3, OBJECT, 1, None, 0)]
    nodes = [node(1), node(2)]
    assert [len(to_take(heads, nodes, one)) for one in (1, 2)] == [1, 1]


def test_a_new_node_is_given_shards_until_all_have_as_many() -> None:
    heads = shards(*[1] * 8, *[2] * 8)
    nodes = [node(1), node(2), node(3)]
    for _ in range(100):
        moves = [move for one in (1, 2, 3) if (move := to_give(heads, nodes, one)) is not None]
        if not moves:
            break
        for move in moves[:1]:
            heads[move.head.shard] = heads[move.head.shard]._replace(owner=move.to)
    assert sorted(sum(head.owner == one for head in heads) for one in (1, 2, 3)) == [5, 5, 6]


def test_a_drained_node_gives_everything_to_those_that_stay() -> None:
    heads = shards(1, 1, 1, 2, 2, 3)
    nodes = [node(1, draining=True), node(2), node(3), node(4, draining=True)]
    while (move := to_give(heads, nodes, 1)) is not None:
        assert move.to in (2, 3)
        heads[move.head.shard] = move.head._replace(owner=move.to)
    assert 1 not in {head.owner for head in heads}


def test_nobody_gives_where_nobody_may_take() -> None:
    assert to_give(shards(1, 1), [node(1, draining=True), node(2, alive=False)], 1) is None


@pytest.mark.parametrize("seed", range(50))
def test_taking_and_giving_come_to_an_end_with_an_even_share(seed: int) -> None:
    dice = random.Random(seed)
    nodes = [node(number, alive=dice.random() < 0.8) for number in range(1, dice.randrange(3, 9))]
    if not any(one.alive for one in nodes):
        nodes[0] = nodes[0]._replace(alive=True)
    heads = [
        Head(number, dice.choice(list(Durability)), 1, dice.choice([None, *range(1, 10)]), 0) for number in range(32)
    ]
    alive = [one.incarnation for one in nodes if one.alive]
    for _ in range(200):
        before = list(heads)
        one = dice.choice(alive)
        for head in to_take(heads, nodes, one):
            heads[head.shard] = head._replace(owner=one)
        move = to_give(heads, nodes, one)
        if move is not None:
            heads[move.head.shard] = move.head._replace(owner=move.to)
        if heads == before and all(not to_take(heads, nodes, n) and to_give(heads, nodes, n) is None for n in alive):
            break
    for durability in Durability:
        loads = [sum(head.owner == one for head in heads if head.durability is durability) for one in alive]
        assert max(loads) - min(loads) <= 1
        assert sum(loads) == sum(head.durability is durability for head in heads)


def test_a_shard_goes_to_the_node_that_somebody_wants_it_to_be_at() -> None:
    heads = [*shards(1, 2, 1)[:2], Head(2, FAST, 1, 1, 0, wanted=2)]
    nodes = [node(1), node(2)]
    assert to_give(heads, nodes, 1) == (heads[2], 2)
    assert to_give(heads, [node(1), node(2, alive=False)], 1) is None
    assert to_give(heads, [node(1), node(2, draining=True)], 1) is None
    assert to_give([heads[2]._replace(wanted=1)], nodes, 1) is None


def test_a_shard_that_is_kept_goes_nowhere_and_counts() -> None:
    heads = shards(1, 1, 1)
    assert to_give(heads, [node(1), node(2)], 1, {2}) == (heads[1], 2)
    assert to_give(heads, [node(1), node(2)], 1, {0, 1, 2}) is None
    assert to_give(heads, [node(1, draining=True), node(2)], 1, {1, 2}) == (heads[0], 2)
    wanted = [heads[0]._replace(wanted=2), *heads[1:]]
    assert to_give(wanted[:1], [node(1), node(2)], 1, {0}) is None
