"""Batches that all shards hear of, whichever partition they are sent to."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from kafka_rig import RigClient, batch
from shard_rig import SHARDS
from test_api_00_produce import fields as producing
from test_api_00_produce import results
from two_processes import TwoProcesses

from halfmoon.cluster.messages import HearBatch
from halfmoon.core.records.batch_header import parse_header
from halfmoon.core.records.batches import build_batch, iter_records

NOT_ENOUGH_REPLICAS, CORRUPT, INVALID_RECORD = 19, 2, 87


@pytest.fixture
def two() -> TwoProcesses:
    two = TwoProcesses()
    two.topic("heard", SHARDS)
    two.topic("other", SHARDS)
    return two


def ends(two: TwoProcesses, name: str = "heard") -> list[int]:
    """By shard, how much was appended to its partition."""
    topic = two.rigs[0].front.catalog.by_name[name]
    return [two.partition(topic, two.index_in(topic, shard)).next_offset for shard in range(SHARDS)]


def produce(two: TwoProcesses, name: str, index: int, records: Any, acks: int = -1) -> RigClient:
    process = two.at(two.shard_of(two.rigs[0].front.catalog.by_name[name], index))
    client = two.client(process)
    client.feed(client.encode(0, 9, **producing((index, records), topic=name, acks=acks)))
    return client


def code(client: RigClient) -> int:
    """Of the batch."""
    ((_, found, *_),) = results(client.answers()[0])
    return int(found)


@pytest.fixture
def answered(two: TwoProcesses) -> Iterator[None]:
    yield
    assert not two.questions.deliver()


def test_each_shard_has_it_once_and_then_it_is_answered(two: TwoProcesses, answered: None) -> None:
    client = produce(two, "heard", 1, batch(b"end"))
    for rig in two.rigs:
        rig.turn()
    assert client.frames() == [], "the others have not heard"
    two.turn()
    assert code(client) == 0
    assert ends(two) == [1] * SHARDS
    own = two.shard_of(two.rigs[0].front.catalog.by_name["heard"], 1)
    asked = [(shard, question) for shard, question in two.questions.asked if isinstance(question, HearBatch)]
    assert sorted(shard for shard, _ in asked) == [shard for shard in range(SHARDS) if shard != own]
    assert [record.value for record in iter_records(asked[0][1].batch)] == [b"end"]


def test_other_topics_are_nobody_elses_business(two: TwoProcesses) -> None:
    client = produce(two, "other", 1, batch(b"v"))
    two.turn()
    assert code(client) == 0
    assert sum(ends(two, "other")) == 1
    assert two.questions.asked == []


def test_a_shard_that_cannot_be_reached_has_the_client_send_it_again(two: TwoProcesses, answered: None) -> None:
    topic = two.rigs[0].front.catalog.by_name["heard"]
    index = next(index for index in range(SHARDS) if two.at(two.shard_of(topic, index)) == 0)
    two.questions.unreachable = {1}
    client = produce(two, "heard", index, batch(b"end"))
    two.turn()
    assert code(client) == NOT_ENOUGH_REPLICAS
    two.questions.unreachable = set()
    client = produce(two, "heard", index, batch(b"end"))
    two.turn()
    assert code(client) == 0


def test_a_producers_sequence_is_its_own_partitions(two: TwoProcesses, answered: None) -> None:
    made = build_batch([(None, b"end", 0, ())], producer_id=5, producer_epoch=1, base_sequence=0)
    for _ in range(2):  # the second is the same again
        client = produce(two, "heard", 1, bytes(made))
        two.turn()
        assert code(client) == 0
    (heard, *_) = [question for _, question in two.questions.asked if isinstance(question, HearBatch)]
    header = parse_header(heard.batch)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (-1, -1, -1)
    assert sorted(ends(two)) == [1, 2, 2, 2], "what comes twice must count once by what it says"


def test_what_is_refused_is_told_to_nobody(two: TwoProcesses) -> None:
    broken = bytearray(batch(b"end"))
    broken[-1] ^= 1
    client = produce(two, "heard", 1, bytes(broken))
    two.turn()
    assert code(client) == CORRUPT
    assert two.questions.asked == []
    assert ends(two) == [0] * SHARDS


def test_without_acknowledgement_they_hear_of_it_too(two: TwoProcesses, answered: None) -> None:
    client = produce(two, "heard", 1, batch(b"end"), acks=0)
    two.turn()
    assert client.frames() == []
    assert ends(two) == [1] * SHARDS


@pytest.mark.parametrize("acks", [-1, 0])
def test_what_the_own_shard_refuses_is_told_to_nobody(two: TwoProcesses, answered: None, acks: int) -> None:
    """It knows what the client may do, and whether it may do so in a transaction."""
    topic = two.rigs[0].front.catalog.by_name["heard"]
    two.change(lambda: two.rigs[0].front.administration.alter_configs(topic, {"cleanup.policy": "compact"}))
    client = produce(two, "heard", 1, batch(b"without a key"), acks)
    two.turn()
    if acks:
        assert code(client) == INVALID_RECORD
    else:
        assert client.transport.closed
    assert ends(two) == [0] * SHARDS
    assert two.questions.asked == []
