"""Messages that are read and written in slices are the same as those that are not, in all versions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from halfmoon.core.steps import finish
from halfmoon.kafka_wire import primitives as wire
from halfmoon.kafka_wire.decoding import Elements
from halfmoon.kafka_wire.errors import MalformedRequest
from halfmoon.kafka_wire.messages import REQUESTS, RESPONSES, Message
from halfmoon.kafka_wire.slices import EVERY, JOIN_PARTS, release
from tests.kafka_wire.filling import GOLDEN

MESSAGES = {each.name: each for table in (REQUESTS, RESPONSES) for each in table.values()}


def golden() -> Iterator[tuple[Message, int, bytes]]:
    for line in GOLDEN.read_text().splitlines():
        name, version, _, said = line.split("\t")
        if name in MESSAGES:
            yield MESSAGES[name], int(version), bytes.fromhex(said)


def test_all_messages_in_all_versions() -> None:
    seen = set()
    for message, version, said in golden():
        found = message.decode(memoryview(said), version)
        assert finish(message.decode_slices(memoryview(said), version, Elements())) == found, (message, version)
        assert b"".join(finish(found.encode_slices(version))) == found.encode(version), (message, version)
        seen.add(message.name)
    assert len(seen) > 100


def test_what_is_cut_short_is_refused_as_before() -> None:
    for message, version, said in golden():
        for cut in range(0, len(said), 7):
            outcomes = []
            for read in (
                lambda body: message.decode(body, version, Elements()),  # noqa: B023
                lambda body: finish(message.decode_slices(body, version, Elements())),  # noqa: B023
            ):
                try:
                    outcomes.append(read(memoryview(said)[:cut]))
                except MalformedRequest as error:
                    outcomes.append(str(error))
            assert outcomes[0] == outcomes[1], (message, version, cut)


def commit(topics: int, partitions: int) -> Any:
    topic = REQUESTS[8].OffsetCommitRequestTopic
    parts = [
        topic.OffsetCommitRequestPartition(
            partition_index=index, committed_offset=3, committed_leader_epoch=-1, committed_metadata="m"
        )
        for index in range(partitions)
    ]
    return REQUESTS[8](
        group_id="g",
        generation_id_or_member_epoch=-1,
        member_id="",
        topics=[topic(name=f"t{at}", partitions=list(parts)) for at in range(topics)],
    )


def pauses(slices: Any) -> tuple[int, Any]:
    count = 0
    while True:
        try:
            next(slices)
        except StopIteration as end:
            return count, end.value
        count += 1


@pytest.mark.parametrize(("topics", "partitions"), [(1, 10_000), (5_000, 2), (100, 100)])
def test_there_is_a_pause_every_few_elements(topics: int, partitions: int) -> None:
    request = commit(topics, partitions)
    written, pieces = pauses(request.encode_slices(8))
    read, found = pauses(REQUESTS[8].decode_slices(memoryview(b"".join(pieces)), 8, Elements()))
    assert found == request
    assert min(written, read) >= topics * partitions / EVERY
    assert max(map(len, pieces)) < 100 * JOIN_PARTS < sum(map(len, pieces)) * 100
    assert pauses(release(found))[0] >= topics * partitions / EVERY
    assert found.topics == []


def test_too_many_elements_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    said = memoryview(commit(2, 100).encode(8))
    monkeypatch.setattr(wire, "MAX_ELEMENTS", 201)
    with pytest.raises(MalformedRequest, match="more than 201 array elements"):
        finish(REQUESTS[8].decode_slices(said, 8, Elements()))


def test_what_shares_a_default_keeps_it() -> None:
    response = RESPONSES[8]()
    finish(release(response))
    assert RESPONSES[8]().topics == []
    assert not REQUESTS[8]().topics
