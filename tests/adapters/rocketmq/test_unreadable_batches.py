"""RocketMQ's consumers get past batches whose records are not what their header says (tests/core: other readers)."""

from __future__ import annotations

import pytest
from rocketmq_rig import Rig

from halfmoon.core.records.batch_header import parse_header
from halfmoon.remoting.message import decode_stored
from tests.core.test_unreadable_batches import LIES, store


@pytest.mark.parametrize("case", LIES)
def test_pulling(case: str) -> None:
    rig = Rig()
    rig.topic("t")
    client = rig.client()
    client.produce("t", b"first")
    store(rig.broker, "t", case)
    client.produce("t", b"last")
    partition = rig.broker.catalog.by_name["t"].partitions[0]
    found: list[bytes] = []
    offset, pulls = 0, 0
    while offset < partition.next_offset:
        answer = client.pull("t", offset=offset)
        after = int(answer.fields["nextBeginOffset"])
        assert after > offset, "it stands still"
        found += [message.body for message in decode_stored(answer.body)] if answer.body else []
        offset, pulls = after, pulls + 1
        assert pulls < 20
    assert [body for body in found if body != b"a-lie" and not body.startswith(b"a0")] == [b"first", b"last"]


def test_every_lie_is_one() -> None:
    assert all(parse_header(batch).last_offset_delta == span - 1 for batch, span in LIES.values())
