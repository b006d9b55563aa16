"""A broker that dies at any operation of the file system while a share group acknowledges and gives up records."""

from __future__ import annotations

import pytest

from halfmoon.errors import BrokerError
from halfmoon.services.share.share_partition import ACCEPT, REJECT, RELEASE
from halfmoon.testing.faulty_files import FaultyFileSystem
from halfmoon.testing.node import BareNode
from tests.core.bench import VirtualClock, open_broker, relay, send, turn
from tests.core.relay_bench import deaths
from tests.services.share.share_bench import acknowledge, fetch, given, letters, part_of

SECTIONS = {"groups": {"share": {"auto_offset_reset": "earliest", "delivery_count_limit": 2}}}
ROUNDS = 6
RECORDS = 6

Told = dict[int, int]
"""Offset → what was said of it, and answered."""


def opened(fs: FaultyFileSystem, clock: VirtualClock) -> BareNode:
    return open_broker(fs, clock, sections=SECTIONS)


def play(fs: FaultyFileSystem, clock: VirtualClock, told: Told) -> None:
    """Rounds of large records, so that segments end; in each two are accepted, one is rejected, one is released until
    it is exhausted, and two are held on to."""
    broker = opened(fs, clock)
    broker.create_topic("t", 1)
    turn(broker)
    for number in range(ROUNDS):
        send(broker, "t", *(b"%d-%d-" % (number, at) + b"x" * 3_000 for at in range(RECORDS)))
        turn(broker)
        part = part_of(broker, "t")
        base = number * RECORDS
        fetch(broker, part, "a")
        for first, last, kind in ((0, 1, ACCEPT), (2, 2, REJECT), (3, 3, RELEASE)):
            said(broker, told, base + first, base + last, kind)
        turn(broker)
        fetch(broker, part, "b")
        said(broker, told, base + 3, base + 3, RELEASE, member="b")
        relay(broker)


def said(broker: BareNode, told: Told, first: int, last: int, kind: int, member: str = "a") -> None:
    def answered(error: BrokerError | None) -> None:
        if error is None:
            told.update(dict.fromkeys(range(first, last + 1), kind if member == "a" else REJECT))

    broker.when_durable(acknowledge(broker, part_of(broker, "t"), member, first, last, kind), answered)


@pytest.mark.timeout(300)
def test_dying_at_any_operation_loses_no_answer_and_doubles_no_letter() -> None:
    for fs, clock, told in deaths(play, Told, least=60):
        broker = opened(fs, clock)
        turn(broker)
        topic = broker.topic("t")
        if topic is None:
            assert not told
            continue
        part = part_of(broker, "t")
        end = topic.partitions[0].high_watermark
        seen: set[int] = set()
        while part.start < end:
            found = given(fetch(broker, part, "z"))
            assert found or part.dead_letters_pending
            for offset in found:
                assert told.get(offset, RELEASE) == RELEASE, f"offset {offset} was finished and came again"
                acknowledge(broker, part, "z", offset, offset, ACCEPT)
            seen |= found.keys()
            relay(broker)
        dead = [int(letter["__dlq.errors.offset"] or b"") for letter in letters(broker, "dlq.g")]
        assert len(set(dead)) == len(dead), "a letter was written twice"
        assert {offset for offset, kind in told.items() if kind == REJECT} <= set(dead)
        assert not seen & set(dead)
        assert all(offset % RECORDS in (2, 3) for offset in dead)
        accepted = {offset for offset in range(end) if offset not in seen and offset not in dead}
        assert all(offset % RECORDS in (0, 1) for offset in accepted), "something was passed over"
