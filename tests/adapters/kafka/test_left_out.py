"""What a plugin leaves out of what Kafka's readers get (hook `halfmoon_fetch`)."""

from __future__ import annotations

from typing import Any

import pytest
from kafka_rig import Rig
from share_rig import ACCEPT, Member, cold_rig, go_cold, read_disk

from halfmoon.adapters.kafka.protocol import REQUESTS
from halfmoon.core.records.batch_header import CONTROL
from halfmoon.core.records.batches import build_batch, iter_records, parse_header
from halfmoon.services.common.leaving_out import FetchFilter, LeavingOut

HIDDEN = (("HIDDEN", b""),)


def leave_out(rig: Rig, *filters: FetchFilter) -> list[str]:
    """By default what has the header HIDDEN and is not b"shown". Returns the names of those that fail."""
    failed: list[str] = []
    by_value = FetchFilter("hiding", ("HIDDEN",), lambda topic, record: record.value == b"shown")
    rig.broker.services.add(LeavingOut(filters or [by_value], failed.append))
    return failed


def put(rig: Rig, topic: str, *rows: tuple[bytes, bool], codec: int = 0) -> int:
    records = [(None, value, 1_000, HIDDEN if hidden else ()) for value, hidden in rows]
    batch = bytearray(build_batch(records, codec=codec))
    partition = rig.broker.topic(topic).partitions[0]
    produced = rig.broker.append(partition, memoryview(batch), rig.clock.now_ms)
    rig.turn()
    return int(produced.base_offset)


def fetch(rig: Rig, topic: str, offset: int = 0) -> bytes:
    kind = REQUESTS[1].FetchTopic
    part = kind.FetchPartition(
        partition=0, current_leader_epoch=-1, fetch_offset=offset, last_fetched_epoch=-1, log_start_offset=-1,
        partition_max_bytes=1 << 20,
    )  # fmt: skip
    client = rig.client()
    asked = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1 << 20}
    client.feed(client.encode(1, 12, topics=[kind(topic=topic, partitions=[part])], **asked))
    read_disk(rig)
    (answer,) = client.answers()
    found = answer.responses[0].partitions[0]
    assert found.error_code == 0
    return bytes(found.records or b"")


def batches(data: bytes) -> list[Any]:
    found = []
    while data:
        size = 12 + int.from_bytes(data[8:12], "big")
        header = parse_header(data[:size])
        control = header.attributes & CONTROL
        found.append((header, [] if control else [record.value for record in iter_records(data[:size])]))
        data = data[size:]
    return found


@pytest.mark.parametrize("codec", [0, 3])
@pytest.mark.parametrize("cold", [False, True])
def test_offsets_stay_and_readers_go_on(codec: int, cold: bool) -> None:
    rig = cold_rig()
    leave_out(rig)
    put(rig, "t", (b"a", False), (b"shown", True), (b"b", False), (b"no", True), codec=codec)
    put(rig, "t", (b"no", True), (b"no", True), codec=codec)
    put(rig, "t", (b"c", False), codec=codec)
    if cold:
        go_cold(rig)
    first, empty, last = batches(fetch(rig, "t"))
    assert (first[1], empty[1], last[1]) == ([b"a", b"shown", b"b"], [], [b"c"])
    assert [(each.base_offset, each.last_offset_delta) for each, _ in (first, empty, last)] == [(0, 3), (4, 1), (6, 0)]
    assert batches(fetch(rig, "t", 3))[1:] == [empty, last]
    assert (empty[0].producer_id, empty[0].record_count) == (-1, 1)


def test_what_nothing_is_left_out_of_is_the_same_bytes() -> None:
    rig = cold_rig()
    put(rig, "t", (b"a", False), (b"shown", True))
    before = fetch(rig, "t")
    leave_out(rig)
    assert fetch(rig, "t") == before


def test_all_must_agree_and_are_asked_about_their_own_headers() -> None:
    rig = cold_rig()
    asked: list[tuple[str, bytes]] = []

    def yes(topic: str, record: Any) -> bool:
        asked.append((topic, record.value))
        return True

    never = FetchFilter("never", ("HIDE",), lambda topic, record: False)
    leave_out(rig, FetchFilter("yes", ("HIDDEN",), yes), never)
    put(rig, "t", (b"HIDE is no header here", False), (b"v", True))
    assert [values for _, values in batches(fetch(rig, "t"))] == [[b"HIDE is no header here", b"v"]]
    assert asked == [("t", b"v")]


def test_one_that_raises_has_the_record_delivered() -> None:
    rig = cold_rig()

    def fails(topic: str, record: Any) -> bool:
        raise RuntimeError("no luck")

    failed = leave_out(rig, FetchFilter("bad", ("HIDDEN",), fails))
    put(rig, "t", (b"v", True))
    assert [values for _, values in batches(fetch(rig, "t"))] == [[b"v"]]
    assert failed == ["bad"]


def test_a_member_of_a_share_group_acknowledges_gaps() -> None:
    rig = cold_rig()
    leave_out(rig)
    put(rig, "t", (b"a", False), (b"no", True), (b"b", False))
    member = Member(rig, "m")
    member.send(max_wait_ms=0)
    answer = member.answer()
    part = answer.responses[0].partitions[0]
    assert [values for _, values in batches(bytes(part.records))] == [[b"a", b"b"]]
    assert [(each.first_offset, each.last_offset) for each in part.acquired_records] == [(0, 2)]
    member.acknowledge(0, 0, ACCEPT)
    member.acknowledge(1, 1, 0)
    member.acknowledge(2, 2, ACCEPT)
    assert rig.broker.shares.delivery.parts.known("g", rig.broker.topic("t").partitions[0]).start == 3
