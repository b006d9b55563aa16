"""What a coordinator answers whose log is another node's now: where to ask, in words that clients know."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from test_told_when_durable import World, topics

from halfmoon.errors import LeaseLostError
from tests.kafka_messages import as_dict, made
from tests.services.transactions.transaction_bench import transactional_batch

NOT_LEADER, NOT_COORDINATOR = 6, 16
Known = dict[str, Any]
Asked = Callable[[Any, Known], dict[str, Any]]


def init(request: Any, known: Known) -> dict[str, Any]:
    return {"transactional_id": "x", "transaction_timeout_ms": 1000}


def commit(request: Any, known: Known) -> dict[str, Any]:
    made = topics("OffsetCommitRequestTopic", "OffsetCommitRequestPartition", committed_offset=1)
    return {"group_id": "g", "generation_id_or_member_epoch": -1, "member_id": "", **made(request)}


def add_partitions(request: Any, known: Known) -> dict[str, Any]:
    topic = request.AddPartitionsToTxnTopic(name="t", partitions=[0])
    producer = {f"v3_and_below_{name}": value for name, value in known.items()}
    return {**producer, "v3_and_below_topics": [topic]}


def add_group(request: Any, known: Known) -> dict[str, Any]:
    return known | {"group_id": "other"}


def end(request: Any, known: Known) -> dict[str, Any]:
    return known | {"committed": True}


def commit_in_transaction(request: Any, known: Known) -> dict[str, Any]:
    made = topics("TxnOffsetCommitRequestTopic", "TxnOffsetCommitRequestPartition", committed_offset=2)
    return known | {"group_id": "g", "generation_id": -1, "member_id": "", **made(request)}


def delete_groups(request: Any, known: Known) -> dict[str, Any]:
    return {"groups_names": ["g"]}


def delete_offsets(request: Any, known: Known) -> dict[str, Any]:
    return {"group_id": "g", **topics("OffsetDeleteRequestTopic", "OffsetDeleteRequestPartition")(request)}


def join_share_group(request: Any, known: Known) -> dict[str, Any]:
    return {
        "group_id": "s", "member_id": "m" * 22, "member_epoch": 0, "rack_id": None, "subscribed_topic_names": ["t"]
    }  # fmt: skip


ASKED: list[tuple[int, Sequence[int], Asked]] = [
    (8, (2, 7, 8, 9), commit), (22, (0, 3, 5), init), (24, (0, 3), add_partitions), (25, (0, 4), add_group),
    (26, (0, 3, 5), end), (28, (0, 2, 3, 5), commit_in_transaction), (42, (0, 2), delete_groups),
    (47, (0,), delete_offsets), (76, (1,), join_share_group),
]  # fmt: skip


def codes(value: Any) -> Iterator[int]:
    """All error codes of an answer."""
    if isinstance(value, dict):
        for name, each in value.items():
            yield from [each] if name.endswith("error_code") else codes(each)
    elif isinstance(value, list):
        for each in value:
            yield from codes(each)


def world() -> tuple[World, Known]:
    """One with a transaction that has a group."""
    world = World()
    made = world.ask(22, 4, lambda request: init(request, {}))
    known = {"transactional_id": "x", "producer_id": made.producer_id, "producer_epoch": made.producer_epoch}
    world.ask(25, 3, lambda request: known | {"group_id": "g"})
    return world, known


def lose_lease(world: World) -> None:
    job = world.rig.broker.log.sync_job()
    assert job is not None
    world.rig.broker.turn.finish_sync(job, LeaseLostError("epoch 8 has it"))
    world.rig.loop.run()


@pytest.mark.parametrize(
    ("key", "version", "asked"),
    [
        pytest.param(key, version, asked, id=f"{asked.__name__}-v{version}")
        for key, versions, asked in ASKED
        for version in versions
    ],
)
def test_a_coordinator_that_lost_its_lease_sends_clients_to_the_next_one(key: int, version: int, asked: Asked) -> None:
    here, known = world()
    here.rig.broker.log.written_stays = False  # of a node's log nothing survives that is not in the object store
    here.send(key, version, lambda request: asked(request, known))
    assert here.client.answers() == []
    lose_lease(here)
    (answer,) = here.client.answers()
    assert set(codes(as_dict(answer))) - {0} == {NOT_COORDINATOR}


def test_who_writes_markers_is_told_that_the_partition_has_moved() -> None:
    here, known = world()
    records = transactional_batch(b"a", producer_id=known["producer_id"], epoch=known["producer_epoch"], sequence=0)
    data = made(0, "TopicProduceData.PartitionProduceData", index=0, records=bytes(records))
    topic = made(0, "TopicProduceData", name="t", partition_data=[data])
    produced = here.ask(0, 12, lambda request: {
        "transactional_id": "x", "acks": -1, "timeout_ms": 1_000, "topic_data": [topic]
    })  # fmt: skip
    assert set(codes(as_dict(produced))) == {0}

    def abort(request: Any) -> dict[str, Any]:
        kind = request.WritableTxnMarker
        topics = [kind.WritableTxnMarkerTopic(name="t", partition_indexes=[0])]
        return {"markers": [kind(
            producer_id=known["producer_id"], producer_epoch=known["producer_epoch"], transaction_result=False,
            topics=topics, coordinator_epoch=0, transaction_version=0,
        )]}  # fmt: skip

    here.send(27, 1, abort)
    assert here.client.answers() == []
    lose_lease(here)
    (answer,) = here.client.answers()
    assert list(codes(as_dict(answer))) == [NOT_LEADER]
