"""What Kafka's clients get where reads come late, and where half of them fail (halfmoon/testing/storages.py)."""

from __future__ import annotations

import errno
import os
import random
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from kafka_rig import Rig, RigClient, batch
from share_rig import Member, acquired
from test_api_00_produce import fields as producing
from test_api_00_produce import results
from test_api_01_fetch import fields, parts, wanted
from test_api_02_list_offsets import asking, only

from halfmoon.core.records.batches import build_batch, iter_records
from halfmoon.testing.node import BareNode
from halfmoon.testing.storages import FailingReader, failing, late

STORAGE_ERROR = 56
END = "halfmoon.transactions"
HALF = {"TRAN_MSG": "true", "PGROUP": "pg"}


@pytest.fixture(params=["late", "failing"])
def rig(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Rig]:
    make = late() if request.param == "late" else failing(random.Random(3))
    monkeypatch.setattr(BareNode, "storage", staticmethod(make))
    return Rig(groups__share__auto_offset_reset="earliest")


@pytest.fixture
def late_rig(monkeypatch: pytest.MonkeyPatch) -> Rig:
    monkeypatch.setattr(BareNode, "storage", staticmethod(late()))
    return Rig()


def ask(client: RigClient, key: int, version: int, **request: Any) -> Any:
    client.feed(client.encode(key, version, **request))
    client.rig.turns()
    (answer,) = client.answers()
    return answer


def insist(client: RigClient, key: int, version: int, code_of: Any, **request: Any) -> Any:
    """As a client does: again, as long as the storage fails; no other error is an excuse."""
    for _ in range(100):
        answer = ask(client, key, version, **request)
        if code_of(answer) != STORAGE_ERROR:
            assert code_of(answer) == 0
            return answer
    raise AssertionError("it always fails")


def values(part: Any) -> list[bytes]:
    return [record.value or b"" for record in iter_records(memoryview(part.records))] if part.records else []


def headed(*rows: tuple[bytes, dict[str, str]]) -> bytes:
    made = [(None, value, 1, tuple((n, v.encode()) for n, v in headers.items())) for value, headers in rows]
    return bytes(build_batch(made))


def test_a_fetch(rig: Rig) -> None:
    (partition,) = rig.topic("t")
    for number in range(20):
        rig.append(partition, b"%d" % number)
    client = rig.client()
    for offset in range(20):
        answer = insist(
            client, 1, 11, lambda a: parts(a)[0].error_code, **fields(partition, wanted(0, offset, max_bytes=1))
        )
        assert values(parts(answer)[0]) == [b"%d" % offset]


def test_a_read_that_fails_is_an_error_of_its_partition_alone(rig: Rig) -> None:
    partitions = rig.topic("t", 8)
    for partition in partitions:
        rig.append(partition, b"%d" % partition.index)
    client = rig.client()
    codes = set()
    for _ in range(20):
        answer = ask(client, 1, 11, **fields(partitions[0], *[wanted(index) for index in range(8)]))
        for part in parts(answer):
            codes.add(part.error_code)
            assert values(part) == ([] if part.error_code else [b"%d" % part.partition_index])
    assert codes == ({0, STORAGE_ERROR} if isinstance(rig.broker.reader, FailingReader) else {0})


def test_a_held_fetch_is_answered_with_what_arrives(rig: Rig) -> None:
    (partition,) = rig.topic("t")
    client = rig.client()
    got: list[bytes] = []
    for number in range(10):
        while len(got) == number:
            client.feed(client.encode(1, 11, **fields(partition, wanted(0, number), max_wait_ms=500)))
            rig.turns()
            if partition.high_watermark == number:
                assert client.answers() == []
                rig.append(partition, b"%d" % number)
                rig.turns()
            (answer,) = client.answers()
            assert parts(answer)[0].error_code in (0, STORAGE_ERROR)
            got += values(parts(answer)[0])
    assert got == [b"%d" % number for number in range(10)]


def test_list_offsets_by_time(rig: Rig) -> None:
    (partition,) = rig.topic("t")
    for number in range(10):
        rows = [(None, b"v", 1_000 * number, ())]
        rig.broker.append(partition, memoryview(bytearray(build_batch(rows))), rig.clock.now_ms)
    rig.turn()
    client = rig.client()
    for number in range(10):
        asked = {"replica_id": -1, "isolation_level": 0, "topics": asking(1_000 * number)}
        answer = insist(client, 2, 7, lambda a: only(a).error_code, **asked)
        assert (only(answer).offset, only(answer).timestamp) == (number, 1_000 * number)
    answer = insist(client, 2, 7, lambda a: only(a).error_code, **(asked | {"topics": asking(-3)}))
    assert only(answer).offset == 9


def test_a_search_that_fails_disturbs_no_other(rig: Rig) -> None:
    first, second = rig.topic("t", 2)
    for partition in (first, second):
        rig.append(partition, b"v")
    search = rig.broker.batch_for_time

    def refuse() -> Any:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    rig.broker.batch_for_time = lambda partition, ms: refuse if partition is first else search(partition, ms)
    if isinstance(rig.broker.reader, FailingReader):
        rig.broker.reader.share = 0
    topics = asking(0)
    topics[0].partitions += asking(0, index=1)[0].partitions  # type: ignore[attr-defined]
    answer = ask(rig.client(), 2, 7, replica_id=-1, isolation_level=0, topics=topics)
    assert [(part.error_code, part.offset) for part in answer.topics[0].partitions] == [(STORAGE_ERROR, -1), (0, 0)]


def test_a_share_group_gets_every_record(rig: Rig) -> None:
    (partition,) = rig.topic("t")
    for number in range(12):
        rig.append(partition, b"%d" % number)
    member = Member(rig, "a")
    given: list[int] = []
    for _ in range(100):
        member.send(max_wait_ms=0, max_records=3)
        rig.turns()
        answer = member.answer()
        assert answer.error_code == 0
        assert all(part.error_code in (0, STORAGE_ERROR) for topic in answer.responses for part in topic.partitions)
        given += [offset for first, last, count in acquired(answer) for offset in range(first, last + 1) if count == 1]
        if len(given) >= 12:
            break
    assert given == list(range(12))


@pytest.mark.parametrize("acks", [-1, 0])
def test_a_batch_that_ends_half_messages_is_appended_once_they_are_here(rig: Rig, acks: int) -> None:
    rig.start_plugins()
    (target,) = rig.topic("t")
    (ends,) = rig.topic(END)
    client = rig.client()
    halves = headed(*[(b"%d" % number, {**HALF, "UNIQ_KEY": f"u{number}"}) for number in range(5)])
    assert results(ask(client, 0, 9, **producing((0, halves))))[0][1] == 0
    rig.turns()
    said = [(b"", {"PGROUP": "pg", "UNIQ_KEY": f"u{number}", "TRAN_STATE": "commit"}) for number in range(5)]
    for _ in range(100):
        client.feed(client.encode(0, 9, **producing((0, headed(*said)), topic=END, acks=acks)))
        rig.turns()
        codes = [results(answer)[0][1] for answer in client.answers()]
        assert codes in ([[0], [STORAGE_ERROR]] if acks else [[]])
        if acks == 0 and client.transport.closed:  # how a producer without answers is told
            client = rig.client()
        if target.high_watermark == 5:
            break
    rig.turns()
    assert target.high_watermark == 5
    assert ends.high_watermark == 0  # nothing of it stays


def test_batches_beside_one_that_has_to_wait_are_appended(late_rig: Rig) -> None:
    late_rig.start_plugins()
    (target,) = late_rig.topic("t")
    late_rig.topic(END, 2)
    client = late_rig.client()
    half = headed((b"m", {**HALF, "UNIQ_KEY": "u"}))
    assert results(ask(client, 0, 9, **producing((0, half))))[0][1] == 0
    end = headed((b"", {"PGROUP": "pg", "UNIQ_KEY": "u", "TRAN_STATE": "commit"}))
    client.feed(client.encode(0, 9, **producing((0, end), (9, batch(b"nowhere")), topic=END)))
    late_rig.turn()
    assert client.answers() == []
    late_rig.turns()
    (answer,) = client.answers()
    assert [row[:2] for row in results(answer)] == [(0, 0), (9, 3)]
    assert target.high_watermark == 1


def test_a_topic_that_is_deleted_while_its_batch_waits(late_rig: Rig) -> None:
    late_rig.start_plugins()
    late_rig.topic("t")
    late_rig.topic(END)
    client = late_rig.client()
    half = headed((b"m", {**HALF, "UNIQ_KEY": "u"}))
    assert results(ask(client, 0, 9, **producing((0, half))))[0][1] == 0
    end = headed((b"", {"PGROUP": "pg", "UNIQ_KEY": "u", "TRAN_STATE": "commit"}))
    client.feed(client.encode(0, 9, **producing((0, end), topic=END)))
    late_rig.broker.administration.delete_topic(late_rig.broker.topic(END))
    late_rig.turns()
    (answer,) = client.answers()
    assert results(answer)[0][1] == 3


def test_ids_are_kept(rig: Rig) -> None:
    """A fetch by topic id reads late, too."""
    (partition,) = rig.topic("t")
    rig.append(partition, b"v")
    topic_id = uuid.UUID(bytes=partition.topic.id)
    answer = insist(rig.client(), 1, 13, lambda a: parts(a)[0].error_code, **fields(partition, wanted(0)))
    assert answer.responses[0].topic_id == topic_id
    assert values(parts(answer)[0]) == [b"v"]
