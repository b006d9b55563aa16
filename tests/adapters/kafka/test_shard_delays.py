"""HalfmoonDelays in two processes: whichever is asked, all shards are gone through, and ids lead to theirs."""

from __future__ import annotations

import struct
from typing import Any

import msgspec
import pytest
from shard_rig import HERE, SHARDS
from test_shard_messages import Some
from two_processes import TwoProcesses

from halfmoon.adapters.tcp.access import Rights
from halfmoon.core.catalog.topics import Topic
from halfmoon.services.delays import changing, frames, listing, paging
from halfmoon.services.delays.questions import Answer, Cancel, Cursor, List, Reschedule, Selection, parse_id
from tests.core.relay_bench import send, values

KEY = 18506


@pytest.fixture
def two() -> TwoProcesses:
    return TwoProcesses()


@pytest.fixture
def topic(two: TwoProcesses) -> Topic:
    return two.topic("t", 4)


def put(two: TwoProcesses, topic: Topic, index: int, *times_ms: int) -> None:
    rows = [(b"%d" % ms, {"UNIQ_KEY": f"{ms}", "TIMER_DELAY_MS": f"{ms}"}) for ms in times_ms]
    send(two.nodes[two.shard_of(topic, index)], topic.name, *rows, index=index)
    two.turn()
    two.relay()


def ask(two: TwoProcesses, question: msgspec.Struct | bytes, process: int = 0, rights: Rights | None = None) -> Answer:
    client = two.client(process)
    client.connection._rights = rights
    body = question if isinstance(question, bytes) else msgspec.json.encode(question)
    request = struct.pack(">hhih", KEY, 0, 7, -1) + body
    client.feed(struct.pack(">i", len(request)) + request)
    frames: list[bytes] = []
    for _ in range(100):
        two.turn()
        frames = client.frames()
        if frames:
            break
    (frame,) = frames
    return msgspec.json.decode(frame[4:], type=Answer)


def run(two: TwoProcesses, asking: Any, process: int = 0, rights: Rights | None = None) -> Any:
    def answered(question: Any) -> Answer:
        answer = ask(two, question, process, rights)
        assert not answer.fault, answer
        return answer

    return paging.run(asking, answered)


def first(two: TwoProcesses, process: int = 0, most: int = 100, **selection: Any) -> list[Any]:
    messages: list[Any] = run(two, paging.page(Selection(**selection), most), process)[0]
    return messages


@pytest.fixture
def waiting(two: TwoProcesses, topic: Topic) -> list[int]:
    """Delays of what waits in all shards, ascending."""
    for index in range(4):
        put(two, topic, index, *range(1_000 + index * 10, 9_000, 1_000))
    return sorted(1_000 * nth + index * 10 for index in range(4) for nth in range(1, 9))


@pytest.mark.parametrize("process", [0, 1])
@pytest.mark.parametrize("most", [1, 5, 100])
def test_all_shards_are_listed_in_one_order(
    two: TwoProcesses, waiting: list[int], process: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frames, "ROWS", 2)
    monkeypatch.setattr(listing, "STRETCH", 3)
    messages = first(two, process, most)
    assert [int(each.uniq_key) for each in messages] == waiting[:most]
    told = list(messages)
    while len(told) < len(waiting):
        told += run(two, paging.page(Selection(), most, told[-1]), process)[0]
    assert [int(each.uniq_key) for each in told] == waiting
    assert {parse_id(each.id).shard for each in told} == {  # type: ignore[union-attr]
        two.shard_of(two.rigs[0].shared.catalog.topic("t"), index) for index in range(4)
    }


@pytest.mark.parametrize("process", [0, 1])
def test_all_shards_are_counted(two: TwoProcesses, waiting: list[int], process: int) -> None:
    (counted,) = run(two, paging.count(Selection(topic="t")), process)
    assert counted.count == len(waiting)
    assert counted.last_due_ms - counted.first_due_ms == waiting[-1] - waiting[0]


@pytest.mark.parametrize("process", [0, 1])
def test_cancelled_by_ids_of_several_shards(two: TwoProcesses, topic: Topic, waiting: list[int], process: int) -> None:
    ids = [each.id for each in first(two, process)[:10]]
    nowhere = ["halfmoon.timers/0/999@1", f"halfmoon.timers/0/0@{SHARDS + 5}"]
    changed = run(two, paging.change(Cancel(), [*ids, *nowhere]), process)
    assert (changed.count, set(changed.missing), changed.topics) == (10, set(nowhere), ("t",))
    assert [int(each.uniq_key) for each in first(two, 1 - process)] == waiting[10:]
    assert set(run(two, paging.change(Cancel(), ids), process).missing) == set(ids)


@pytest.mark.parametrize("process", [0, 1])
def test_rescheduled_by_selection_in_all_shards(
    two: TwoProcesses, topic: Topic, waiting: list[int], process: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frames, "ROWS", 2)
    monkeypatch.setattr(changing, "STRETCH", 3)
    before = {each.uniq_key: each.due_ms for each in first(two)}
    changed = run(two, paging.change(Reschedule(selection=Selection(topic="t"), by_ms=500)), process)
    assert changed.count == len(waiting)
    for _ in range(3):
        two.relay()
        two.turn()
    assert {each.uniq_key: each.due_ms - 500 for each in first(two)} == before


def test_a_question_that_comes_twice_shifts_nothing_twice(two: TwoProcesses, waiting: list[int]) -> None:
    """A link may break after the answer was made: then the shard is asked again."""
    before = {each.uniq_key: each.due_ms for each in first(two)}
    question = Reschedule(selection=Selection(), by_ms=500)
    while True:
        changed = ask(two, question).changed
        assert changed is not None
        again = ask(two, question).changed
        assert again is not None
        assert again.count == 0
        if changed.next is None:
            break
        question = msgspec.structs.replace(question, next=changed.next)
    for _ in range(3):
        two.relay()
        two.turn()
    assert {each.uniq_key: each.due_ms - 500 for each in first(two)} == before


def test_what_is_delivered_after_a_cancel_in_all_shards(two: TwoProcesses, topic: Topic, waiting: list[int]) -> None:
    run(two, paging.change(Cancel(selection=Selection(due_before_in_ms=4_500))))
    two.clock.now_ms += 20_000
    for node in two.nodes.values():
        node.kernel.relays.expire(two.clock.now_ms)
    two.relay()
    delivered = [
        int(value or b"")
        for index in range(4)
        for value in values(two.nodes[two.shard_of(topic, index)], "t", index)  # type: ignore[arg-type]
    ]
    assert sorted(delivered) == [ms for ms in waiting if ms >= 4_500]


def test_the_other_process_leaves_out_what_may_not_be_seen(two: TwoProcesses, topic: Topic, waiting: list[int]) -> None:
    rights = Some(("delete", "t"), ("read", "t"))
    two.rights = lambda principal, host: rights
    messages = run(two, paging.page(Selection(), 100), 0, rights)[0]
    assert len(messages) == len(waiting)
    assert all(each.hidden and each.key is None for each in messages)
    changed = run(two, paging.change(Cancel(selection=Selection())), 0, rights)
    assert (changed.count, changed.refused) == (0, ("t",))
    blind = Some(("describe", "t"))
    two.rights = lambda principal, host: blind
    assert run(two, paging.page(Selection(), 100), 0, blind) == ([], False)
    assert ask(two, List(Selection(topic="t")), 0, blind).fault == "TOPIC_AUTHORIZATION_FAILED"


def test_audit_hears_of_what_the_other_process_has_changed(two: TwoProcesses, topic: Topic, waiting: list[int]) -> None:
    rights, there = Some(), Some()
    two.rights = lambda principal, host: there
    shard = next(shard for shard in range(SHARDS) if shard not in HERE)
    assert any(two.shard_of(topic, index) not in HERE for index in range(4))
    for each in range(SHARDS):
        ask(two, Cancel(selection=Selection(), next=Cursor(each)), 0, rights)
    assert ("delete", "topic", "t") in rights.demanded
    assert shard not in HERE
    assert ("delete", "topic", "t") in there.demanded


def test_a_shard_that_cannot_be_reached(two: TwoProcesses, topic: Topic, waiting: list[int]) -> None:
    there = [shard for shard in range(SHARDS) if shard not in HERE]
    ids = [each.id for each in first(two)]
    for shard in there:
        two.questions.unreachable.add(shard)
    answer = ask(two, List(next=Cursor(there[0])))
    assert answer.fault
    assert f"shard {there[0]} cannot be reached" in answer.message
    mine = [each for each in ids if parse_id(each).shard < there[0]]  # type: ignore[union-attr]
    answer = ask(two, Cancel(ids=tuple(ids)))
    assert answer.fault
    assert f"{len(mine)} messages are changed already" in answer.message


@pytest.mark.parametrize(
    "question",
    [
        b"{",
        b'{"type": "cancel"}',
        b'{"type": "cancel", "ids": ["nonsense"]}',
        b'{"type": "list", "next": {"shard": 99}}',
        b'{"type": "list", "next": {"shard": -1}}',
        b'{"type": "reschedule", "ids": ["halfmoon.timers/0/0@1"]}',
    ],
)
def test_no_question(two: TwoProcesses, topic: Topic, question: bytes) -> None:
    assert ask(two, question).fault == "INVALID_REQUEST"
