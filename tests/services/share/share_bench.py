"""A share group under glass: members that fetch and acknowledge, and what they were given."""

from __future__ import annotations

from collections.abc import Sequence

from halfmoon.core.catalog.topics import Partition
from halfmoon.core.records.batches import iter_records, parse_header
from halfmoon.core.steps import finish
from halfmoon.services.share.delivery_state import STATE_NAMES
from halfmoon.services.share.parts import Part
from halfmoon.services.share.reading import Found, Loading
from halfmoon.services.share.share_partition import Acknowledgement, Demand, stretches_of
from halfmoon.testing.node import BareNode
from tests.core.bench import partition_of

GROUP = "g"
ENOUGH = 1 << 20


def part_of(broker: BareNode, topic: str, index: int = 0, group: str = GROUP) -> Part:
    part = broker.shares.delivery.begin(group, partition_of(broker, topic, index), broker.shares.options(group))
    assert isinstance(part, Part)
    return part


def fetch(
    broker: BareNode, part: Part, member: str, most: int = 500, batch_records: int = 500, *, exactly: bool = False
) -> Found | None:
    demand = Demand(most, batch_records, exactly)
    options = broker.shares.options(part.place.group)
    found = broker.shares.delivery.fetch(part, member, demand, ENOUGH, options)
    if isinstance(found, Loading):
        return broker.shares.delivery.loaded(part, member, found, found.load(), demand, options)
    return found if found is not None and found.acquired else None


def given(found: Found | None) -> dict[int, int]:
    """Offset → how often it was given out by now."""
    acquired = [] if found is None else found.acquired
    return {offset: piece.deliveries for piece in acquired for offset in range(piece.first, piece.end)}


def acknowledge(broker: BareNode, part: Part, member: str, first: int, last: int, *types: int) -> int:
    """Returns the log position to wait for."""
    options = broker.shares.options(part.place.group)
    said = finish(stretches_of([Acknowledgement(first, last, types)], options.terms))
    return broker.shares.delivery.acknowledge(part, member, said, options)


def letters(broker: BareNode, topic: str) -> list[dict[str, bytes | None]]:
    """The headers of dead letters, the value among them as ''."""
    if broker.topic(topic) is None:
        return []
    found = []
    partition: Partition
    for partition in broker.topic(topic).partitions:  # type: ignore[union-attr]
        at = partition.start_offset
        while at < partition.high_watermark:
            for piece in broker.read(partition, at, ENOUGH, min_one=True).slices:
                header = parse_header(piece)
                found += [dict(record.headers) | {"": record.value} for record in iter_records(piece)]
                at = header.base_offset + header.last_offset_delta + 1
    return found


def shown(part: Part) -> str:
    """`start=3 3-4 acquired#1(m) 5 available#2`."""
    runs: Sequence[str] = [
        f"{run.first}{'' if run.end == run.first + 1 else f'-{run.end - 1}'} {STATE_NAMES[run.state]}"
        f"{f'#{run.deliveries}' if run.deliveries else ''}{f'({run.member})' if run.member else ''}"
        for run in part.runs
    ]
    return " ".join([f"start={part.start}", *runs])
