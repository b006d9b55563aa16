"""What waits, asked of one broker without a network: listed, counted, cancelled and rescheduled without a key."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from halfmoon.errors import BrokerError, Fault
from halfmoon.plugins.store.delay.delays import LEVEL_TOPIC, TIMER_TOPIC
from halfmoon.services.delays import changing, frames, listing
from halfmoon.services.delays.questions import After, Cancel, Count, Cursor, List, Reschedule, ScheduledCount, Selection
from halfmoon.testing.faulty_files import FaultyFileSystem
from halfmoon.testing.node import BareNode
from tests.core.bench import VirtualClock, relay
from tests.core.relay_bench import Row, deaths, found, pass_ms, send, values
from tests.services.delays.rig import DAY_MS, Asker, carry_out, keys, reopen

HOUR_MS = 3_600_000


@pytest.fixture
def broker(fs: FaultyFileSystem, clock: VirtualClock) -> BareNode:
    broker = reopen(fs, clock)
    broker.create_topic("t", 2)
    broker.create_topic("u", 1)
    broker.create_topic("retry.g", 1)
    return broker


@pytest.fixture
def asker(broker: BareNode) -> Asker:
    return Asker(broker)


def later(key: str, in_ms: int, **headers: str) -> Row:
    return key.encode(), {"UNIQ_KEY": key, "TIMER_DELAY_MS": str(in_ms)} | headers


def put(broker: BareNode, topic: str, *rows: Row, index: int = 0) -> None:
    send(broker, topic, *rows, index=index)
    relay(broker)


def nack(broker: BareNode, key: str, in_ms: int, times: int = 2) -> None:
    put(broker, "retry.g", later(key, in_ms, RETRY_OF="t/1/17", RECONSUME_TIME=str(times)))


# -- lists -------------------------------------------------------------------------------------------------------------


def test_nothing_waits(asker: Asker) -> None:
    assert asker.first() == []
    assert asker.counts() == []
    assert asker.cancel().count == 0
    assert asker.reschedule(in_ms=1).count == 0


def test_what_is_due_first_comes_first_of_all_queues(broker: BareNode, asker: Asker, clock: VirtualClock) -> None:
    put(broker, "t", later("c", 3_000), later("a", 1_000))
    put(broker, "u", (b"d", {"UNIQ_KEY": "d", "DELAY": "2"}))
    put(broker, "t", (b"b", {"UNIQ_KEY": "b", "TIMER_DELIVER_MS": str(clock.now_ms + 2_000)}), index=1)
    nack(broker, "e", HOUR_MS)
    assert keys(asker.first()) == [b"a", b"b", b"c", b"d", b"e"]
    assert [(each.topic, each.partition) for each in asker.first()] == [
        ("t", 0), ("t", 1), ("t", 0), ("u", 0), ("retry.g", 0)
    ]  # fmt: skip


def test_what_is_told_of_a_message(broker: BareNode, asker: Asker, clock: VirtualClock) -> None:
    put(broker, "t", later("a", 1_000), index=1)
    nack(broker, "b", HOUR_MS)
    delayed, redelivery = asker.first()
    assert delayed.id == f"{TIMER_TOPIC}/0/0"
    assert (delayed.topic, delayed.partition, delayed.kind, delayed.group) == ("t", 1, "delay", None)
    assert delayed.due_ms == clock.now_ms + 1_001
    assert (delayed.key, delayed.uniq_key, delayed.delay, delayed.timestamp) == (b"k", b"a", "TIMER_DELAY_MS=1000", 500)
    assert 10 < delayed.size_bytes < 200
    assert (redelivery.topic, redelivery.kind, redelivery.group) == ("retry.g", "redelivery", "g")
    assert (redelivery.origin, redelivery.attempts) == ("t/1/17", 3)
    assert not redelivery.hidden


def test_ids_stay_over_a_restart(fs: FaultyFileSystem, broker: BareNode, clock: VirtualClock) -> None:
    put(broker, "t", later("a", 1_000), later("b", 1_000))
    before = Asker(broker).first()
    broker.close()
    assert Asker(reopen(fs, clock)).first() == before


def test_selected_by_topic_group_kind_and_time(broker: BareNode, asker: Asker, clock: VirtualClock) -> None:
    put(broker, "t", later("t1", 1_000), later("t2", HOUR_MS))
    put(broker, "u", later("u1", 2_000))
    nack(broker, "r1", 5_000)
    now_ms = clock.now_ms
    assert keys(asker.first(topic="t")) == [b"t1", b"t2"]
    assert keys(asker.first(topic="[tu]")) == [b"t1", b"u1", b"t2"]
    assert keys(asker.first(group="g")) == keys(asker.first(kind="redelivery")) == [b"r1"]
    assert keys(asker.first(group="other*")) == []
    assert keys(asker.first(kind="delay")) == [b"t1", b"u1", b"t2"]
    assert keys(asker.first(due_before_ms=now_ms + 2_001)) == [b"t1"]  # exclusive: u1 is due then
    assert keys(asker.first(due_before_in_ms=2_002)) == [b"t1", b"u1"]
    assert keys(asker.first(due_after_ms=now_ms + 2_001)) == [b"u1", b"r1", b"t2"]
    assert keys(asker.first(due_after_in_ms=5_000, due_before_in_ms=6_000)) == [b"r1"]
    assert keys(asker.first(topic="t", group="g")) == []


def test_a_batch_of_many_records_is_listed_by_record(broker: BareNode, asker: Asker) -> None:
    put(broker, "t", *[(b"%d" % at, {"UNIQ_KEY": f"{at}", "DELAY": "1"}) for at in range(1_200)])
    assert keys(asker.first(most=2_000)) == [b"%d" % at for at in range(1_200)]
    assert len({each.id for each in asker.first(most=2_000)}) == 1_200
    assert keys(asker.first(most=7)) == [b"%d" % at for at in range(7)]


def test_a_batch_of_many_times(broker: BareNode, asker: Asker, clock: VirtualClock) -> None:
    """Its frames have the time of their first message alone: the others' stand in the records."""
    times = [(at * 37 % 1_000) * 1_000 + 5_000 for at in range(1_000)]
    put(broker, "t", *[later(str(ms), ms) for ms in times])
    put(broker, "u", later("between", 5_500))
    expected = sorted(times)
    assert keys(asker.first(most=3)) == [b"5000", b"between", b"6000"]
    assert [int(key or b"") for key in keys(asker.first(topic="t"))] == expected
    window = asker.first(topic="t", due_after_in_ms=100_000, due_before_in_ms=200_000)
    assert [int(key or b"") for key in keys(window)] == [ms for ms in expected if 99_999 <= ms < 199_999]
    assert asker.counts(topic="t", due_after_in_ms=100_000, due_before_in_ms=200_000)[0].count == len(window)
    pass_ms(broker, clock, 50_000)
    assert asker.counts(topic="t")[0].count == len([ms for ms in times if ms >= 50_000])
    assert asker.cancel(topic="t", due_after_in_ms=100_000).count == len([ms for ms in times if ms >= 149_999])


@pytest.mark.parametrize("most", [1, 3, 7, 100])
def test_pages(broker: BareNode, asker: Asker, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """By any size, over several stretches, everything is told once, in order: also what is due at the same time."""
    monkeypatch.setattr(frames, "ROWS", 3)
    monkeypatch.setattr(listing, "STRETCH", 10)
    dice = random.Random(most)
    for at in range(60):
        rows = [later(f"{at}-{nth}", dice.randrange(5) * 1_000 + 1_000) for nth in range(dice.randrange(1, 4))]
        put(broker, dice.choice("tu"), *rows)
    whole = asker.first()
    assert len(whole) == asker.counts()[0].count + asker.counts()[1].count
    assert [each.due_ms for each in whole] == sorted(each.due_ms for each in whole)
    told: list[Any] = []
    while True:
        from halfmoon.services.delays import paging

        page, more = asker.run(paging.page(Selection(), most, told[-1] if told else None))
        assert len(page) == most or not more
        told += page
        if not more:
            break
    assert told == whole


def test_enough_is_enough(broker: BareNode, asker: Asker, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is due later than what is told is not read."""
    for at in range(400):
        send(broker, "t", later(str(at), 1_000 + at))
    relay(broker)
    monkeypatch.setattr(frames, "ROWS", 10)
    read: list[int] = []
    heads = frames.Frames.heads
    monkeypatch.setattr(frames.Frames, "heads", lambda self, some: (read.append(len(some)), heads(self, some))[1])
    assert keys(asker.first(most=5)) == [b"0", b"1", b"2", b"3", b"4"]
    assert sum(read) <= 20


def test_half_messages_are_nobodys_to_list(fs: FaultyFileSystem, clock: VirtualClock) -> None:
    """They wait for a decision, and in a topic of a plugin that is off nobody knows for what."""
    broker = reopen(fs, clock)
    broker.create_topic("t", 1)
    put(broker, "t", later("a", 1_000))
    broker.close()
    from tests.core.bench import open_broker

    without = open_broker(fs, clock)
    assert Asker(without).first() == []
    assert Asker(without).cancel().count == 0
    assert Asker(without).cancel([f"{TIMER_TOPIC}/0/0"]).missing == (f"{TIMER_TOPIC}/0/0",)
    without.close()
    again = reopen(fs, clock)
    pass_ms(again, clock, 2_000)
    assert values(again, "t") == [b"a"]


def test_counts(broker: BareNode, asker: Asker, clock: VirtualClock) -> None:
    put(broker, "t", later("a", 1_000), later("b", 3_000))
    put(broker, "t", later("c", 2_000), index=1)
    nack(broker, "d", 5_000)
    now_ms = clock.now_ms
    assert asker.counts() == [
        ScheduledCount("t", "delay", 3, now_ms + 1_001, now_ms + 3_001),
        ScheduledCount("retry.g", "redelivery", 1, now_ms + 5_001, now_ms + 5_001, "g"),
    ]


# -- cancels -----------------------------------------------------------------------------------------------------------


def test_cancelled_by_id(broker: BareNode, asker: Asker, clock: VirtualClock) -> None:
    put(broker, "t", later("a", 1_000), later("b", 1_000), later("c", 1_000))
    ids = [each.id for each in asker.first()]
    changed = asker.cancel([ids[1], f"{TIMER_TOPIC}/0/77", "no.such.topic/3/4"])
    assert (changed.count, changed.missing) == (1, (f"{TIMER_TOPIC}/0/77", "no.such.topic/3/4"))
    assert asker.cancel([ids[1]]).missing == (ids[1],)
    assert broker.waiting.cancelled == 1
    pass_ms(broker, clock, 2_000)
    assert values(broker, "t") == [b"a", b"c"]
    assert asker.cancel([ids[0]]).missing == (ids[0],)  # it is delivered


def test_cancelled_by_selection(broker: BareNode, asker: Asker, clock: VirtualClock) -> None:
    put(broker, "t", *[(b"%d" % at, {"DELAY": "1"}) for at in range(700)])
    put(broker, "t", later("late", 5_000))
    put(broker, "u", later("other", 1_000))
    assert asker.cancel(topic="t", due_before_in_ms=2_000).count == 700
    pass_ms(broker, clock, 10_000)
    assert values(broker, "t") == [b"late"]
    assert values(broker, "u") == [b"other"]


def test_redeliveries_of_a_group_are_cancelled(broker: BareNode, asker: Asker, clock: VirtualClock) -> None:
    put(broker, "t", later("a", 1_000))
    nack(broker, "r", 1_000)
    assert asker.cancel(group="g").count == 1
    pass_ms(broker, clock, 2_000)
    assert values(broker, "retry.g") == []
    assert values(broker, "t") == [b"a"]


# -- other times -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("time", [{"at_ms": 1_700_000_000_000 + 5_000}, {"in_ms": 5_000}, {"by_ms": -HOUR_MS + 5_000}])
def test_rescheduled(broker: BareNode, asker: Asker, clock: VirtualClock, time: dict[str, int]) -> None:
    put(broker, "t", later("a", HOUR_MS), later("b", HOUR_MS))
    put(broker, "t", later("other", HOUR_MS), index=1)
    first = asker.first()[0]
    changed = asker.reschedule([first.id, "x/0/0"], **time)
    assert (changed.count, changed.missing) == (1, ("x/0/0",))
    assert broker.waiting.rescheduled == 1
    now = asker.first()[0]
    assert now.id != first.id
    assert abs(now.due_ms - clock.now_ms - 5_000) <= 1
    assert (now.key, now.uniq_key, now.delay, now.topic) == (first.key, first.uniq_key, first.delay, first.topic)
    pass_ms(broker, clock, 4_900)
    assert values(broker, "t") == []
    pass_ms(broker, clock, 200)
    assert values(broker, "t") == [b"a"]
    pass_ms(broker, clock, HOUR_MS)
    assert values(broker, "t") == [b"a", b"b"]
    assert values(broker, "t", 1) == [b"other"]
    assert broker.waiting.waiting() == 0


def test_a_selection_meets_none_of_its_own_again(
    broker: BareNode, asker: Asker, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frames, "ROWS", 5)
    monkeypatch.setattr(changing, "AT_ONCE", 10)
    for at in range(50):
        send(broker, "t", later(str(at), 1_000 + at))
    relay(broker)
    assert asker.reschedule(selection=Selection(topic="t"), by_ms=1_000).count == 50
    assert asker.questions > 3
    assert [each.due_ms - clock.now_ms for each in asker.first()] == [2_001 + at for at in range(50)]
    pass_ms(broker, clock, 5_000)
    assert values(broker, "t") == [b"%d" % at for at in range(50)]


def test_of_a_level_to_a_time_of_the_wall_clock(broker: BareNode, asker: Asker, clock: VirtualClock) -> None:
    put(broker, "t", *[(b"%d" % at, {"DELAY": "3"}) for at in range(300)])
    (before,) = asker.counts()
    assert before.count == 300
    assert asker.first(most=1)[0].id.startswith(f"{LEVEL_TOPIC}/2/")
    assert asker.reschedule(at_ms=clock.now_ms + 2_000).count == 300
    assert asker.first(most=1)[0].id.startswith(f"{TIMER_TOPIC}/1/")
    pass_ms(broker, clock, 2_500)
    assert values(broker, "t") == [b"%d" % at for at in range(300)]
    assert broker.waiting.waiting() == 0


def test_of_a_batch_of_many_times(broker: BareNode, asker: Asker, clock: VirtualClock) -> None:
    put(broker, "t", *[later(str(at), 1_000 + at * 10) for at in range(1_000)])
    assert asker.reschedule(selection=Selection(topic="t", due_after_in_ms=6_000), by_ms=HOUR_MS).count == 500
    pass_ms(broker, clock, 60_000)
    assert values(broker, "t") == [b"%d" % at for at in range(500)]
    pass_ms(broker, clock, HOUR_MS)
    assert values(broker, "t") == [b"%d" % at for at in range(1_000)]


def test_a_time_that_has_passed_is_now(broker: BareNode, asker: Asker, clock: VirtualClock) -> None:
    put(broker, "t", later("a", HOUR_MS))
    assert asker.reschedule(by_ms=-100 * DAY_MS).count == 1
    pass_ms(broker, clock, 1)
    assert values(broker, "t") == [b"a"]


def test_no_further_ahead_than_a_delay_may_be(broker: BareNode, asker: Asker) -> None:
    put(broker, "t", later("a", HOUR_MS), later("b", 39 * DAY_MS))
    changed = asker.reschedule(by_ms=2 * DAY_MS)
    assert (changed.count, changed.too_far) == (1, 1)
    (ids, changed) = [each.id for each in asker.first()], asker.reschedule(in_ms=41 * DAY_MS)
    assert (changed.count, changed.too_far) == (0, 2)
    changed = asker.reschedule(ids, in_ms=41 * DAY_MS)
    assert (changed.count, changed.too_far, changed.missing) == (0, 2, ())
    assert [each.id for each in asker.first()] == ids


def test_a_key_that_is_cancelled_and_not_found_yet_is_not_rescheduled(
    broker: BareNode, asker: Asker, clock: VirtualClock
) -> None:
    put(broker, "t", later("a", HOUR_MS), later("b", HOUR_MS))
    send(broker, "t", (b"", {"TIMER_DEL_UNIQKEY": "a"}))  # durable, and still to be found
    assert asker.reschedule(in_ms=1_000).count == 1
    pass_ms(broker, clock, 2 * HOUR_MS)
    assert values(broker, "t") == [b"b"]


def test_what_is_rescheduled_can_be_cancelled_by_its_key(broker: BareNode, asker: Asker, clock: VirtualClock) -> None:
    put(broker, "t", later("a", HOUR_MS), later("b", HOUR_MS))
    assert asker.reschedule(in_ms=1_000).count == 2
    put(broker, "t", (b"", {"TIMER_DEL_UNIQKEY": "a"}))
    pass_ms(broker, clock, 2 * HOUR_MS)
    assert values(broker, "t") == [b"b"]


def test_what_is_delivered_meanwhile_is_delivered_once(
    broker: BareNode, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each message is delivered, or cancelled, and nothing else, whatever happens between two slices."""
    monkeypatch.setattr(changing, "COMPLETED", 3)
    monkeypatch.setattr(frames, "ROWS", 7)
    for at in range(100):
        send(broker, "t", later(str(at), 1_000 + at * 10))
    relay(broker)
    asker = Asker(broker, meanwhile=lambda: pass_ms(broker, clock, 50))
    cancelled = asker.cancel(topic="t").count
    pass_ms(broker, clock, 60_000)
    assert 0 < cancelled < 100
    assert len(set(values(broker, "t"))) == len(values(broker, "t")) == 100 - cancelled


@pytest.mark.parametrize("records", [1, 30])
def test_what_is_rescheduled_meanwhile_is_delivered_once(
    broker: BareNode, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch, records: int
) -> None:
    monkeypatch.setattr(changing, "RECORDS", 3)
    monkeypatch.setattr(frames, "ROWS", 7)
    for at in range(0, 90, records):
        rows = [(b"%d" % (at + nth), {"TIMER_DELAY_MS": str(1_000 + at * 10)}) for nth in range(records)]
        send(broker, "t", *rows)
    relay(broker)
    asker = Asker(broker, meanwhile=lambda: pass_ms(broker, clock, 50))
    count = asker.reschedule(selection=Selection(), in_ms=30_000).count
    assert 0 < count <= 90
    pass_ms(broker, clock, 90_000)
    assert sorted(int(value or b"") for value in values(broker, "t")) == list(range(90))


def test_they_wait_for_who_gathers(broker: BareNode, asker: Asker, clock: VirtualClock) -> None:
    put(broker, "t", later("a", HOUR_MS))
    broker.waiting.deliveries.is_gathering = True
    slices = broker.delays.ask(Cancel(selection=Selection()), asker.rights)
    for _ in range(20):
        next(slices)
    assert broker.waiting.waiting() == 1
    broker.waiting.deliveries.is_gathering = False
    assert carry_out(slices).changed is not None
    assert broker.waiting.waiting() == 0


def test_few_questions_are_answered_at_a_time(broker: BareNode, asker: Asker) -> None:
    """Else many would make the turns of the loop long, in spite of their slices."""
    put(broker, "t", later("a", HOUR_MS))
    first, second, third = (broker.delays.ask(Cancel(selection=Selection()), asker.rights) for _ in range(3))
    next(first)
    next(second)
    for _ in range(50):
        assert next(third) is None
    assert broker.waiting.waiting() == 1
    first.close()  # as an error would
    assert carry_out(third).changed is not None
    assert broker.waiting.waiting() == 0
    assert carry_out(second).changed is not None
    for _ in range(5):
        with pytest.raises(BrokerError):
            asker.ask(List(most=0))
    assert asker.first() == []


# -- rights ------------------------------------------------------------------------------------------------------------


def test_what_somebody_may_not_see_or_change(broker: BareNode) -> None:
    put(broker, "t", later("a", 1_000))
    put(broker, "u", later("b", 1_000))
    nack(broker, "c", 1_000)
    one = Asker(broker, ("describe", "u"), ("read", "retry.g"), ("cancel", "t"), ("reschedule", "retry.g"))
    t, retry = one.first()
    assert (t.uniq_key, t.hidden) == (b"a", False)
    assert (retry.uniq_key, retry.key, retry.delay, retry.origin, retry.attempts) == (None, None, None, None, 0)
    assert retry.hidden
    assert [row.topic for row in one.counts()] == ["t", "retry.g"]
    assert one.rights.asked.count(("describe", "u")) == 2  # once a question
    changed = one.cancel([t.id, Asker(broker).first(topic="u")[0].id])
    assert (changed.count, changed.refused) == (0, ("t",))
    assert changed.missing == (Asker(broker).first(topic="u")[0].id,)  # as if it were not there
    changed = one.reschedule(in_ms=5_000)
    assert (changed.count, changed.refused) == (1, ("retry.g",))
    changed = one.cancel()
    assert (changed.count, changed.refused) == (1, ("t",))
    assert {each.topic for each in Asker(broker).first()} == {"t", "u"}


# -- what is no question -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "question",
    [
        List(most=0),
        List(most=100_000),
        List(after=After(1, "nonsense")),
        List(Selection(due_before_ms=1, due_before_in_ms=1)),
        Count(Selection(due_after_ms=1, due_after_in_ms=1)),
        Cancel(),
        Cancel(ids=("t/0/0",), selection=Selection()),
        Cancel(ids=("t/0",)),
        Cancel(ids=tuple(f"t/0/{at}" for at in range(2_001))),
        Reschedule(ids=("t/0/0",)),
        Reschedule(ids=("t/0/0",), at_ms=1, in_ms=1),
        Reschedule(selection=Selection(), at_ms=1 << 60),
    ],
)
def test_no_question(asker: Asker, question: Any) -> None:
    with pytest.raises(BrokerError) as refused:
        asker.ask(question)
    assert refused.value.fault is Fault.INVALID_REQUEST


@pytest.mark.parametrize("cursor", [Cursor(0, "zzz", 5, 99), Cursor(0, TIMER_TOPIC, 0, 1 << 60), Cursor(9, "", -1, -5)])
def test_any_cursor(broker: BareNode, asker: Asker, cursor: Cursor) -> None:
    put(broker, "t", later("a", 1_000))
    for question in (List(next=cursor), Count(next=cursor), Cancel(selection=Selection(), next=cursor)):
        asker.ask(question)


# -- crashes -----------------------------------------------------------------------------------------------------------

KEYS = [b"a", b"b", b"c", b"d", b"e", b"f"]


def play_cancel(fs: FaultyFileSystem, clock: VirtualClock, told: list[str]) -> None:
    broker = reopen(fs, clock)
    broker.create_topic("t", 1)
    for key in KEYS:
        send(broker, "t", later(key.decode(), HOUR_MS))
    relay(broker)
    told.append("sent")
    assert Asker(broker).cancel([each.id for each in Asker(broker).first()[:3]]).count == 3
    told.append("changed")
    clock.now_ms += 1


def play_reschedule(fs: FaultyFileSystem, clock: VirtualClock, told: list[str]) -> None:
    broker = reopen(fs, clock)
    broker.create_topic("t", 1)
    send(broker, "t", *[(key, {"DELAY": "3"}) for key in KEYS[:3]])
    for key in KEYS[3:]:
        send(broker, "t", later(key.decode(), HOUR_MS))
    relay(broker)
    told.append("sent")
    assert Asker(broker).reschedule(by_ms=HOUR_MS).count == 6
    told.append("changed")


@pytest.mark.parametrize("play", [play_cancel, play_reschedule])
def test_whenever_it_dies(play: Callable[[FaultyFileSystem, VirtualClock, list[str]], None]) -> None:
    """What was told to be changed is; what was not may be; each message is delivered once at most."""
    fresh: Callable[[], list[str]] = list
    for fs, clock, told in deaths(play, fresh, least=20):
        broker = reopen(fs, clock)
        if broker.catalog.topic("t") is None:
            continue
        relay(broker)
        if "changed" in told:
            expected = KEYS[3:] if play is play_cancel else []
            pass_ms(broker, clock, HOUR_MS + HOUR_MS // 2)
            assert sorted(value or b"" for value in values(broker, "t")) == expected
        pass_ms(broker, clock, 3 * HOUR_MS)
        delivered = [value or b"" for value in values(broker, "t")]
        assert len(set(delivered)) == len(delivered)
        if play is play_reschedule and "sent" in told:
            assert sorted(delivered) == KEYS
        elif "sent" in told:
            assert set(KEYS[3:]) <= set(delivered)
        assert broker.waiting.waiting() == 0
        assert found(broker, "t") is not None
