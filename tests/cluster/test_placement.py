"""Which shard things lie in."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from halfmoon.cluster import placement
from halfmoon.cluster.placement import Layout
from halfmoon.schema.group_topics import dead_letter_topic, retry_topic
from halfmoon.services.internal_topics.records import partition_for

SIXTEEN = Layout.of_workers(16)


@pytest.mark.parametrize(
    ("name", "slot"),
    [
        ("", 0),
        ("a", 97),
        ("orders", 27),
        ("group-17", 52),
        ("größe", 17),
        ("🌙", 93),
        # Its hash code is Integer.MIN_VALUE, of which Math.abs is negative: Kafka's Utils.abs takes it as 0.
        ("polygenelubricants", 0),
    ],
)
def test_slots_are_those_of_javas_hash_code(name: str, slot: int) -> None:
    """What `Utils.abs(name.hashCode()) % 256` is in Java 17."""
    assert placement.slot_of(name) == slot


def test_names_are_spread_over_shards() -> None:
    found = Counter(placement.coordinator_of(f"group-{number}", 16) for number in range(3_200))
    assert set(found) == set(range(16))
    assert max(found.values()) < 2 * min(found.values())


@pytest.mark.parametrize("count", [1, 2, 7, 16, 100])
@pytest.mark.parametrize("workers", [2, 3, 16])
def test_each_topic_is_spread_as_evenly_as_can_be(count: int, workers: int) -> None:
    dice = random.Random(count)
    for _ in range(20):
        shards = placement.place(dice.randbytes(16), 0, count, range(16))
        assert len(shards) == count
        of_shards = Counter(shards)
        assert max(of_shards.values()) - min(of_shards.get(shard, 0) for shard in range(16)) <= 1
        of_workers = Counter(placement.owner_of(shard, workers) for shard in shards)
        fair = -(-count // 16) * -(-16 // workers)
        assert max(of_workers.values()) <= max(fair, -(-count // workers))


def test_topics_of_one_partition_are_spread_too() -> None:
    dice = random.Random(1)
    found = Counter(placement.place(dice.randbytes(16), 0, 1, range(16))[0] for _ in range(3_200))
    assert max(found.values()) < 2 * min(found.values())


@pytest.mark.parametrize("shards", [1, 3, 16, 256])
@pytest.mark.parametrize("drawn", [bytes(16), b"\xff" * 16, bytes(range(16))])
def test_a_topic_can_begin_where_it_should(drawn: bytes, shards: int) -> None:
    for shard in range(shards):
        topic_id = placement.id_beginning_in(shard, drawn, Layout.of_workers(shards))
        assert len(topic_id) == 16
        assert topic_id[8:] == drawn[8:]
        assert placement.place(topic_id, 0, 2, range(shards)) == bytes([shard, (shard + 1) % shards])


def test_partitions_that_are_added_go_on_where_the_others_end() -> None:
    topic_id = random.Random(2).randbytes(16)
    assert placement.place(topic_id, 0, 5, range(16)) + placement.place(topic_id, 5, 30, range(16)) == placement.place(
        topic_id, 0, 35, range(16)
    )


@pytest.mark.parametrize("shards", [1, 2, 16, 256])
def test_a_shard_coordinates_what_stands_in_its_partition_of_kafkas_internal_topics(shards: int) -> None:
    """Programs look there for the coordinator."""
    for number in range(200):
        name = f"group-{number}"
        index = partition_for(name, shards)
        assert placement.coordinator_of(name, shards) == index
        assert (
            placement.place_named("__consumer_offsets", bytes(16), 0, shards, Layout.of_workers(shards))[index] == index
        )


def test_what_a_group_retries_lies_in_its_own_shard() -> None:
    for number in range(50):
        group = f"group {number}"
        shard = placement.coordinator_of(group, 16)
        assert placement.place_named(retry_topic(group), b"id" * 8, 3, 4, SIXTEEN) == bytes([shard]) * 4


@pytest.mark.parametrize("name", ["check.p", "halfmoon.undeliverable", "halfmoon.audit", "__transaction_state"])
def test_aligned_topics_have_a_partition_in_each_shard(name: str) -> None:
    assert placement.is_aligned(name)
    assert placement.place_named(name, b"id" * 8, 0, 18, SIXTEEN) == bytes([*range(16), 0, 1])
    assert placement.place_named(name, b"id" * 8, 5, 2, SIXTEEN) == bytes([5, 6])
    assert not placement.is_aligned(f"x{name}")


def test_dead_letters_of_a_group_begin_in_its_own_shard() -> None:
    """There it gives up what it has retried, so one partition is enough for that."""
    for number in range(50):
        group = f"group {number}"
        shard = placement.coordinator_of(group, 16)
        name = dead_letter_topic(group)
        assert placement.is_aligned(name)
        placed = placement.place_named(name, b"id" * 8, 0, 1, SIXTEEN) + placement.place_named(
            name, b"id" * 8, 1, 16, SIXTEEN
        )
        assert placed == bytes([(shard + index) % 16 for index in range(17)])


MIXED = Layout(shards=12, fast=4)


def test_topics_are_in_shards_of_their_durability_and_coordinators_in_fast_ones() -> None:
    dice = random.Random(7)
    for number in range(200):
        assert MIXED.coordinator_of(f"g{number}") < 4
        topic_id = dice.randbytes(16)
        assert set(placement.place_named("t", topic_id, 0, 24, MIXED)) == set(range(4))
        assert set(placement.place_named("t", topic_id, 0, 24, MIXED, fast=False)) == set(range(4, 12))
    assert placement.place_named("halfmoon.undeliverable", bytes(16), 0, 12, MIXED) == bytes(range(12))
    assert placement.place_named(retry_topic("g"), bytes(16), 0, 2, MIXED, fast=False) == bytes(
        [MIXED.coordinator_of("g")] * 2
    )


@pytest.mark.parametrize("drawn", [bytes(16), b"\xff" * 16])
def test_a_topic_can_begin_in_a_shard_of_either_durability(drawn: bytes) -> None:
    for shard in range(MIXED.shards):
        topic_id = placement.id_beginning_in(shard, drawn, MIXED)
        assert placement.place_named("t", topic_id, 0, 1, MIXED, fast=MIXED.is_fast(shard)) == bytes([shard])
