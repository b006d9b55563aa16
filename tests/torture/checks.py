"""What a topic must hold when everything is over."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.torture.model import Place, Violation, short
from tests.torture.reader import Got, read_all

if TYPE_CHECKING:
    from tests.torture.net import Client
    from tests.torture.world import World

ENDS_S = 300.0


async def check_topic(
    world: World, client: Client, topic: str, partitions: int, *, complete: bool = True
) -> list[list[Got]]:
    """What is there is there once, where it was acknowledged, in the order of its sender; and everything that was
    acknowledged is, where `complete`. Returns what is there, by partition."""
    found: list[list[Got]] = []
    began_s = world.loop.now_s

    def deadline() -> None:
        if world.loop.now_s - began_s > ENDS_S:
            raise Violation(f"{topic}: not read within {ENDS_S} s")

    for index in range(partitions):
        place = topic, index
        known = world.model.ends[place]
        page, records = await read_all(client, place, committed=False, deadline=deadline)
        world.model.end(place, page.high_watermark, known)
        check_place(world, place, records, complete=complete)
        found.append(records)
    return found


def check_place(world: World, place: Place, records: list[Got], *, complete: bool = True) -> None:
    model = world.model
    there: dict[bytes, int] = {}
    last: dict[str, int] = {}
    before = -1
    for got in records:
        if got.offset <= before:
            raise Violation(f"{place} @{got.offset}: comes after {before}")
        before = got.offset
        if got.value is None:
            continue
        model.read(place, got.offset, got.value, world.loop.now_s)
        sent = model.sent[got.value]
        if sent.place != place:
            raise Violation(f"{short(got.value)} was sent to {sent.place} and is in {place}")
        if got.value in there:
            raise Violation(f"{place}: {short(got.value)} is there twice, @{there[got.value]} and @{got.offset}")
        if sent.wanted is False:
            raise Violation(f"{place} @{got.offset}: {short(got.value)} is not to be there")
        there[got.value] = got.offset
        if sent.ordered:
            if last.get(sent.sender, -1) > sent.number:
                raise Violation(f"{place} @{got.offset}: {short(got.value)} is out of order")
            last[sent.sender] = sent.number
    if not complete or place[0] in model.compacted:
        return
    start = model.starts[place]
    for value, sent in model.sent.items():
        if sent.place == place and sent.wanted and sent.acked and value not in there:
            offset = next((at for at, known in model.acked[place].items() if known == value), None)
            if offset is None or offset >= start:
                raise Violation(f"{place}: {short(value)}, acknowledged @{offset}, is not there")
