"""Reading as a client reads: Fetch, batches, aborted transactions, and what the answer says of the partition."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, NamedTuple

from halfmoon.core.records.batches import CONTROL, TRANSACTIONAL, iter_records, parse_header
from tests.kafka_messages import struct_of
from tests.torture.model import Place, Violation
from tests.torture.net import Client, LostError

FETCH = 1
OFFSET_OUT_OF_RANGE = 1
NOT_NOW = {3, 6, 7, 14, 15, 16, 56}


class Got(NamedTuple):
    offset: int
    key: bytes | None
    value: bytes | None
    headers: dict[str, bytes | None]
    timestamp: int


class Page(NamedTuple):
    error: int
    records: list[Got]
    next_offset: int
    high_watermark: int
    stable: int
    start: int


async def fetch(
    client: Client, place: Place, offset: int, *, committed: bool = False, wait_ms: int = 0, max_bytes: int = 1 << 20
) -> Page:
    """Raises LostError."""
    part = struct_of(FETCH, "FetchTopic.FetchPartition")(
        partition=place[1], current_leader_epoch=-1, fetch_offset=offset, last_fetched_epoch=-1, log_start_offset=-1,
        partition_max_bytes=max_bytes,
    )  # fmt: skip
    topic = struct_of(FETCH, "FetchTopic")(topic=place[0], partitions=[part])
    answer = await client.ask(
        FETCH, 12, replica_id=-1, max_wait_ms=wait_ms, min_bytes=1, max_bytes=max_bytes,
        isolation_level=int(committed), session_id=0, session_epoch=-1, topics=[topic], forgotten_topics_data=[],
        rack_id="",
    )  # fmt: skip
    if answer.error_code or not answer.responses:
        raise Violation(f"Fetch of {place} got {answer.error_code}")
    (found,) = answer.responses[0].partitions
    records, at = list[Got](), offset
    if not found.error_code:
        aborted = [(each.first_offset, each.producer_id) for each in found.aborted_transactions or ()]
        for got, behind in _records(bytes(found.records or b""), sorted(aborted), committed):
            at = behind
            if got is not None and got.offset >= offset:
                records.append(got)
    return Page(
        found.error_code, records, at, found.high_watermark, found.last_stable_offset, found.log_start_offset
    )  # fmt: skip


def _records(data: bytes, aborted: list[tuple[int, int]], committed: bool) -> Iterator[tuple[Got | None, int]]:
    """Each record that a reader is given, and the offset behind; None for a batch that it is not given."""
    view = memoryview(data)
    hidden: set[int] = set()
    while len(view) > 12:
        size = 12 + int.from_bytes(view[8:12], "big")
        if size > len(view):
            return
        header = parse_header(view[:size])
        behind = header.base_offset + header.last_offset_delta + 1
        while aborted and aborted[0][0] < behind:
            hidden.add(aborted.pop(0)[1])
        if header.attributes & CONTROL:
            key = next(iter_records(view[:size])).key or b""
            if int.from_bytes(key[2:4], "big") == 0:  # ABORT
                hidden.discard(header.producer_id)
            yield None, behind
        elif committed and header.attributes & TRANSACTIONAL and header.producer_id in hidden:
            yield None, behind
        else:
            for record in iter_records(view[:size]):
                headers = dict(record.headers)
                offset = header.base_offset + record.offset_delta
                yield Got(offset, record.key, record.value, headers, record.timestamp), behind
        view = view[size:]


async def read_all(client: Client, place: Place, *, committed: bool, deadline: Any) -> tuple[Page, list[Got]]:
    """Everything from the first record to the end, which is the last stable offset where `committed`. `deadline()` is
    called before each try, and may raise."""
    records: list[Got] = []
    at = 0
    while True:
        deadline()
        try:
            page = await fetch(client, place, at, committed=committed, max_bytes=1 << 16)
        except LostError:
            continue
        if page.error == OFFSET_OUT_OF_RANGE:
            at = max(at + 1, page.start) if page.start >= 0 else await first_offset(client, place)
            continue
        if page.error:
            await asyncio.sleep(0.1)
            continue
        records += page.records
        end = page.stable if committed else page.high_watermark
        if page.next_offset == at and at < end:
            raise Violation(f"{place} @{at}: nothing is given of what ends at {end}")
        at = page.next_offset
        if at >= end:
            return page, records


async def first_offset(client: Client, place: Place) -> int:
    """Raises LostError."""
    part = struct_of(2, "ListOffsetsTopic.ListOffsetsPartition")(
        partition_index=place[1], current_leader_epoch=-1, timestamp=-2
    )
    topic = struct_of(2, "ListOffsetsTopic")(name=place[0], partitions=[part])
    answer = await client.ask(2, 6, replica_id=-1, isolation_level=0, topics=[topic])
    return int(answer.topics[0].partitions[0].offset)
