"""Cancelling delayed messages by their UNIQ_KEY (B30): what is cancelled does not come, and nothing else is missing."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from halfmoon.errors import BrokerError, Fault
from halfmoon.plugins.store.delay import cancelling
from halfmoon.plugins.store.delay import delays as delay
from halfmoon.plugins.store.delay.delays import CANCEL, LEVEL_TOPIC, NAMES, TIMER_TOPIC, Delays
from halfmoon.services.waiting import cancels
from halfmoon.services.waiting.types import Put, PutInterceptor, Redirect, Redirected
from halfmoon.testing.faulty_files import FaultyFileSystem
from halfmoon.testing.node import BareNode
from tests.core.bench import VirtualClock, jobs, open_broker, partition_of, relay, turn
from tests.core.relay_bench import Row, deaths, pass_ms, send, values

DELAYS = PutInterceptor(
    "delay", (*NAMES, CANCEL), Delays([1_000, 60_000], 1 << 40).before_put, scheduled_topics=(LEVEL_TOPIC, TIMER_TOPIC)
)


@pytest.fixture
def broker(fs: FaultyFileSystem, clock: VirtualClock) -> BareNode:
    return reopen(fs, clock)


def reopen(fs: FaultyFileSystem, clock: VirtualClock, **settings: Any) -> BareNode:
    return open_broker(fs, clock, interceptors=[DELAYS], **settings)


def later(value: bytes, key: str, **headers: str) -> Row:
    return value, {"UNIQ_KEY": key, "DELAY": "1"} | headers


def cancel(key: str) -> Row:
    return b"", {CANCEL: key}


def test_what_is_cancelled_does_not_come_and_the_rest_does(broker: BareNode, clock: VirtualClock) -> None:
    broker.create_topic("t", 2)
    send(broker, "t", later(b"a", "1"), later(b"b", "2"), later(b"c", "3"))
    send(broker, "t", later(b"d", "2"), index=1)
    relay(broker)
    assert send(broker, "t", cancel("2"), cancel("nobody")) == -1
    relay(broker)
    assert broker.waiting.waiting() == 2
    assert broker.state.cancels.cancels == {}
    pass_ms(broker, clock, 5_000)
    assert values(broker, "t") == [b"a", b"c"]
    assert values(broker, "t", 1) == []
    assert broker.waiting.cancelled == 2


def test_of_a_large_frame_one_is_cancelled(broker: BareNode, clock: VirtualClock) -> None:
    broker.create_topic("t", 1)
    send(broker, "t", *[later(b"%d" % at, str(at)) for at in range(100)], codec=4)
    relay(broker)
    send(broker, "t", cancel("50"))
    relay(broker)
    pass_ms(broker, clock, 2_000)
    assert values(broker, "t") == [b"%d" % at for at in range(100) if at != 50]


@pytest.mark.parametrize("few", [0, 20])
def test_of_a_large_frame_many_are_cancelled(
    broker: BareNode, clock: VirtualClock, few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cancels, "FEW_KEYS", few)
    broker.create_topic("t", 1)
    send(broker, "t", *[later(b"%d" % at, f"key-{at}") for at in range(100)])
    relay(broker)
    send(broker, "t", *[cancel(f"key-{at}") for at in range(0, 100, 7)])
    relay(broker)
    assert broker.waiting.waiting() == 100 - 15
    pass_ms(broker, clock, 2_000)
    assert values(broker, "t") == [b"%d" % at for at in range(100) if at % 7]


def test_it_counts_from_the_answer_on_before_it_is_looked_for(broker: BareNode, clock: VirtualClock) -> None:
    """The key index may be behind; what is due meanwhile is not delivered all the same."""
    broker.create_topic("t", 1)
    send(broker, "t", *[later(b"%d" % at, str(at)) for at in range(40)])
    relay(broker)
    broker.key_index._gaps.append((0, 10))  # so that it is behind
    broker.relays.remove(broker.key_index)
    send(broker, "t", cancel("20"))
    relay(broker)
    assert broker.state.cancels.cancels
    pass_ms(broker, clock, 2_000)
    assert values(broker, "t") == [b"%d" % at for at in range(40) if at != 20]
    broker.key_index._gaps.clear()
    pass_ms(broker, clock, cancelling.AGAIN_MS)
    assert broker.state.cancels.cancels == {}
    assert broker.waiting.cancelled == 1


def test_what_is_sent_afterwards_is_not_meant(broker: BareNode, clock: VirtualClock) -> None:
    broker.create_topic("t", 1)
    send(broker, "t", cancel("1"))
    send(broker, "t", later(b"after", "1"))
    relay(broker)
    pass_ms(broker, clock, 2_000)
    assert values(broker, "t") == [b"after"]


def test_what_is_sent_afterwards_is_not_meant_before_it_is_looked_for_either(
    broker: BareNode, clock: VirtualClock
) -> None:
    broker.create_topic("t", 1)
    broker.key_index._gaps.append((0, 10))  # so that it is behind
    broker.relays.remove(broker.key_index)
    send(broker, "t", *[later(b"before", "1") for _ in range(20)])
    send(broker, "t", cancel("1"))
    send(broker, "t", *[later(b"after", "1") for _ in range(20)])
    relay(broker)
    pass_ms(broker, clock, 2_000)
    assert broker.state.cancels.cancels
    assert values(broker, "t") == [b"after"] * 20


def test_in_one_batch_the_order_of_records_decides(broker: BareNode, clock: VirtualClock) -> None:
    """A client that sends a message and cancels it has both in one batch."""
    broker.create_topic("t", 1)
    rows = [later(b"before", "1"), (b"now", {"UNIQ_KEY": "1"}), cancel("1"), later(b"after", "1"), later(b"other", "2")]
    assert send(broker, "t", *rows) == 0
    relay(broker)
    pass_ms(broker, clock, 2_000)
    assert values(broker, "t") == [b"now", b"after", b"other"]


def test_only_of_the_same_topic_and_only_what_waits_for_a_time(broker: BareNode, clock: VirtualClock) -> None:
    broker.create_topic("t", 1)
    broker.create_topic("other", 1)
    send(broker, "t", (b"now", {"UNIQ_KEY": "1"}))
    send(broker, "other", later(b"x", "1"))
    relay(broker)
    send(broker, "t", cancel("1"))
    relay(broker)
    pass_ms(broker, clock, 2_000)
    assert values(broker, "t") == [b"now"]
    assert values(broker, "other") == [b"x"]


def test_the_others_of_a_batch_that_cancels_stay(broker: BareNode, clock: VirtualClock) -> None:
    broker.create_topic("t", 1)
    send(broker, "t", later(b"x", "1"))
    relay(broker)
    assert send(broker, "t", (b"a", {}), cancel("1"), (b"b", {}), later(b"c", "9")) == 0
    relay(broker)
    pass_ms(broker, clock, 2_000)
    assert values(broker, "t") == [b"a", b"b", b"c"]


def test_a_cancel_that_is_sent_again(broker: BareNode, clock: VirtualClock) -> None:
    broker.create_topic("t", 1)
    send(broker, "t", later(b"x", "1"))
    relay(broker)
    for _ in range(2):
        send(broker, "t", cancel("1"), producer_id=7, producer_epoch=0, base_sequence=0)
        relay(broker)
    pass_ms(broker, clock, 2_000)
    assert values(broker, "t") == []


def test_too_many(broker: BareNode, monkeypatch: pytest.MonkeyPatch) -> None:
    broker.create_topic("t", 1)
    monkeypatch.setattr(delay, "MOST_CANCELS", 3)
    with pytest.raises(BrokerError) as refused:
        send(broker, "t", *[cancel(str(at)) for at in range(4)])
    assert refused.value.fault is Fault.INVALID_RECORD
    monkeypatch.setattr(cancels, "MOST", 3)
    send(broker, "t", *[cancel(str(at)) for at in range(3)])
    with pytest.raises(BrokerError) as refused:
        send(broker, "t", cancel("4"))
    assert refused.value.fault is Fault.REQUEST_TIMED_OUT
    relay(broker)
    send(broker, "t", cancel("4"))


def test_the_topic_is_deleted(broker: BareNode, clock: VirtualClock) -> None:
    topic, _ = broker.create_topic("t", 1)
    send(broker, "t", later(b"x", "1"))
    send(broker, "t", cancel("1"))
    broker.delete_topic(topic)
    assert broker.state.cancels.cancels == {}
    relay(broker)


def test_a_batch_that_cancels_is_one_group_at_the_end_of_a_segment(fs: FaultyFileSystem, clock: VirtualClock) -> None:
    """The record of what is cancelled stands before its pieces, which come to stand in one segment."""
    for count in range(0, 200, 20):
        fs = FaultyFileSystem(random.Random(count))
        broker = reopen(fs, clock)
        broker.create_topic("t", 1)
        while broker.log.segments[-1].end - broker.log.end > 3_000:
            send(broker, "t", (b"." * 200, {}))
        rows = [(b"kept", {}), later(b"w" * 300, "a"), later(b"w" * 300, "b", DELAY="2")]
        send(broker, "t", *rows, *[cancel(f"key-{at}") for at in range(count)])
        turn(broker)
        again = reopen(fs.kill(), clock)
        assert again.health() == []
        assert again.waiting.waiting() == 2
        assert values(again, "t")[-1] == b"kept"


def test_it_counts_for_what_is_being_gathered(broker: BareNode, clock: VirtualClock) -> None:
    broker.create_topic("t", 1)
    for at in range(40):
        send(broker, "t", later(b"%d" % at, str(at)))
    relay(broker)
    clock.now_ms += 1_500
    broker.relays.expire(clock.now_ms)
    step_until(broker, lambda: broker.waiting.deliveries.is_gathering)
    for at in (0, 20, 39):
        send(broker, "t", cancel(str(at)))
        turn(broker)
        broker.relays.step()
    assert {b"0", b"20", b"39"}.isdisjoint(values(broker, "t"))
    relay(broker)
    pass_ms(broker, clock, 3_000)
    assert values(broker, "t") == [b"%d" % at for at in range(40) if at not in (0, 20, 39)]


def test_deliveries_go_on_while_messages_are_cancelled_all_the_time(broker: BareNode, clock: VirtualClock) -> None:
    broker.create_topic("t", 1)
    for at in range(100):
        send(broker, "t", later(b"%d" % at, str(at)))
    relay(broker)
    clock.now_ms += 1_500
    broker.relays.expire(clock.now_ms)
    for at in range(400):
        send(broker, "t", cancel(f"other-{at}"))
        turn(broker)
        loading = broker.relays.step() if broker.relays.has_work else None
        if loading is not None:
            loading.loaded(loading.load())
    assert len(values(broker, "t")) > 50


def step_until(broker: BareNode, done: Callable[[], bool]) -> None:
    while not done():
        loading = broker.relays.step()
        if loading is not None:
            loading.loaded(loading.load())


def test_it_counts_for_what_is_being_moved(fs: FaultyFileSystem, clock: VirtualClock) -> None:
    """What was moved already is found at its new place, the rest is settled before it moves."""
    broker = reopen(fs, clock)
    broker.create_topic("t", 1, {"retention.bytes": "1"})
    for at in range(5):
        send(broker, "t", later(b"x%d" % at, str(at), DELAY="2"))
    relay(broker)
    for _ in range(300):
        send(broker, "t", (b"." * 2_000, {}))
        turn(broker)
    relay(broker)
    while not broker.housekeeping.retain():
        pass
    jobs(broker)
    broker.housekeeping.drop_segments()
    step_until(broker, lambda: broker.waiting.moved == 2)
    send(broker, "t", cancel("0"), cancel("4"))
    relay(broker)
    pass_ms(broker, clock, 100_000)
    assert broker.waiting.moved == 4
    assert [value for value in values(broker, "t") if value and value.startswith(b"x")] == [b"x1", b"x2", b"x3"]


def test_keys_have_a_length(broker: BareNode) -> None:
    broker.create_topic("t", 1)
    send(broker, "t", cancel("k" * 1_000))
    with pytest.raises(BrokerError) as refused:
        send(broker, "t", cancel("k" * 1_001))
    assert refused.value.fault is Fault.INVALID_RECORD


def test_one_key_of_very_many_messages(broker: BareNode, clock: VirtualClock) -> None:
    broker.create_topic("t", 1)
    send(broker, "t", *[later(b"v", "1") for _ in range(3_500)], later(b"other", "2"))
    relay(broker)
    send(broker, "t", cancel("1"))
    relay(broker)
    assert (broker.waiting.waiting(), broker.waiting.cancelled) == (1, 3_500)


def test_rolling_goes_on_without_it(fs: FaultyFileSystem, clock: VirtualClock) -> None:
    """What is cancelled and not looked up yet is settled instead of being moved."""
    broker = reopen(fs, clock)
    broker.create_topic("t", 1, {"retention.bytes": "1"})
    send(broker, "t", later(b"x", "1", DELAY="2"))
    relay(broker)
    broker.key_index._gaps.append((0, 10))
    broker.relays.remove(broker.key_index)
    send(broker, "t", cancel("1"))
    for _ in range(300):
        send(broker, "t", (b"." * 2_000, {}))
        turn(broker)
    while not broker.housekeeping.retain():
        pass
    jobs(broker)
    relay(broker)
    assert broker.waiting.moved == 0
    broker.key_index._gaps.clear()
    pass_ms(broker, clock, 2_000)
    assert broker.state.cancels.cancels == {}
    pass_ms(broker, clock, 100_000)
    assert b"x" not in values(broker, "t")


@pytest.mark.timeout(300)
def test_a_crash_at_any_moment() -> None:
    """Whoever was told that it is cancelled never sees it; whatever was not cancelled comes once."""

    def play(fs: FaultyFileSystem, clock: VirtualClock, told: set[str]) -> None:
        broker = reopen(fs, clock)
        broker.create_topic("t", 1)
        send(broker, "t", *[later(b"%d" % at, str(at)) for at in range(4)])
        turn(broker)
        told.add("sent")
        for key in ("1", "2"):
            send(broker, "t", cancel(key))
            turn(broker)
            told.add(key)
            relay(broker)
        pass_ms(broker, clock, 2_000)
        broker.close()

    for fs, clock, told in deaths(play, set[str], least=30):
        again = reopen(fs, clock)
        if again.topic("t") is None:
            assert "sent" not in told
            continue
        relay(again)
        pass_ms(again, clock, 2_000)
        came = values(again, "t")
        assert len(came) == len(set(came))
        for key in ("1", "2"):
            assert key not in told or key.encode() not in came
        if "sent" in told:
            assert {b"0", b"3"} <= set(came)
        assert len(again.waiting.deliveries) == 0
        assert partition_of(again, LEVEL_TOPIC).pending is not None or "sent" not in told
        assert again.state.cancels.cancels == {}


def test_under_load_in_any_order(fs: FaultyFileSystem, clock: VirtualClock) -> None:
    """Cancels, deliveries and restarts that come in any order: a message comes once, or was cancelled in time."""
    dice = random.Random(5)
    broker = reopen(fs, clock)
    broker.create_topic("t", 2)
    sent: dict[str, int] = {}
    in_time: set[str] = set()
    asked: set[str] = set()
    for step in range(400):
        action = dice.random()
        if action < 0.5:
            rows = [later(str(step * 10 + at).encode(), str(step * 10 + at)) for at in range(dice.randint(1, 5))]
            send(broker, "t", *rows, index=dice.randint(0, 1))
            sent |= {row[1]["UNIQ_KEY"]: clock.now_ms + 1_001 for row in rows}
        elif action < 0.8 and sent:
            key = dice.choice(list(sent)[-20:])
            send(broker, "t", cancel(key), index=dice.randint(0, 1))
            asked.add(key)
            if clock.now_ms < sent[key]:
                in_time.add(key)
        elif action < 0.97:
            relay(broker)
            pass_ms(broker, clock, dice.randint(0, 400))
        else:
            turn(broker)
            fs = fs.kill()
            broker = reopen(fs, clock)
    relay(broker)
    pass_ms(broker, clock, 5_000)
    came = [str(int(value or b"")) for index in (0, 1) for value in values(broker, "t", index)]
    assert len(came) == len(set(came))
    assert not in_time & set(came)
    assert set(sent) - set(came) <= asked
    assert len(in_time) > 50


# -- with the plugin off ----------------------------------------------------------------------------------------------

OTHER = PutInterceptor("other", NAMES, Delays([1_000], 1 << 40).before_put, scheduled_topics=(LEVEL_TOPIC, TIMER_TOPIC))
"""Another plugin that delays messages. It knows no cancels."""


def reopen_off(fs: FaultyFileSystem, clock: VirtualClock, *interceptors: PutInterceptor) -> BareNode:
    return open_broker(fs, clock, off=("delay",), interceptors=interceptors)


def reclaim(broker: BareNode) -> None:
    """Have all that waits moved out of the log's segments, as far as it may be."""
    broker.waiting.reclaim._upto = broker.log.end
    broker.relays.wake(broker.waiting.reclaim)
    relay(broker)


def test_without_it_messages_wait_and_a_cancel_of_others_is_refused(fs: FaultyFileSystem, clock: VirtualClock) -> None:
    broker = reopen(fs, clock)
    broker.create_topic("t", 1)
    send(broker, "t", later(b"a", "1"), later(b"b", "2"))
    relay(broker)
    broker.close()
    broker = reopen_off(fs, clock, PutInterceptor("mine", (CANCEL,), Delays([1], 1).before_put))
    end = broker.log.end
    with pytest.raises(BrokerError, match="the feature that does it is off") as refused:
        send(broker, "t", (b"now", {}), cancel("1"))
    assert refused.value.fault is Fault.INVALID_RECORD
    assert broker.log.end == end
    reclaim(broker)
    assert broker.waiting.moved == 2
    pass_ms(broker, clock, 2_000)
    assert values(broker, "t") == []
    assert broker.warnings() == [f"2 scheduled messages in topic {LEVEL_TOPIC} wait for a plugin that is off"]
    broker.close()
    broker = reopen(fs, clock)
    pass_ms(broker, clock, 0)
    assert values(broker, "t") == [b"a", b"b"]
    assert broker.warnings() == []


def open_cancel(fs: FaultyFileSystem, clock: VirtualClock) -> BareNode:
    """One of two messages is cancelled, and was not found before the broker stopped."""
    broker = reopen(fs, clock)
    broker.create_topic("t", 1)
    send(broker, "t", later(b"x", "1"), later(b"y", "2"))
    broker.relays.remove(broker.cancelling)
    send(broker, "t", cancel("1"))
    relay(broker)
    return broker


@pytest.mark.parametrize("moves", [False, True])
def test_off_and_on_again_loses_no_cancel(fs: FaultyFileSystem, clock: VirtualClock, moves: bool) -> None:
    """Neither a message that is due meanwhile, nor one that would be moved behind its cancel, gets away."""
    open_cancel(fs, clock)
    for _ in range(2):  # one start from the log's records, one from a snapshot
        broker = reopen_off(fs, clock)
        if moves:
            reclaim(broker)
            assert broker.waiting.moved == 0
        pass_ms(broker, clock, 3_000)
        assert broker.waiting.waiting() == 2
        assert values(broker, "t") == []
        broker.close()
    broker = reopen(fs, clock)
    pass_ms(broker, clock, 100)
    assert values(broker, "t") == [b"y"]
    assert broker.state.cancels.cancels == {}


def test_what_another_plugin_delivers_meanwhile_is_not_what_is_cancelled(
    fs: FaultyFileSystem, clock: VirtualClock
) -> None:
    open_cancel(fs, clock).close()
    broker = reopen_off(fs, clock, OTHER)
    pass_ms(broker, clock, 3_000)
    assert values(broker, "t") == [b"y"]
    assert broker.state.cancels.cancels == {0: {b"1": broker.state.cancels.cancels[0][b"1"]}}
    broker.close()
    broker = reopen(fs, clock)
    pass_ms(broker, clock, 3_000)
    assert values(broker, "t") == [b"y"]
    assert broker.state.cancels.cancels == {}


def test_a_cancel_waits_for_the_plugin_whose_message_it_may_mean(fs: FaultyFileSystem, clock: VirtualClock) -> None:
    """It completes no message of a plugin that is off, which may wait for something else than a time."""
    mine = PutInterceptor("mine", ("MINE",), take_all, scheduled_topics=("mine.waiting",))
    broker = open_broker(fs, clock, interceptors=[mine])
    broker.create_topic("t", 1)
    send(broker, "t", (b"m", {"UNIQ_KEY": "1", "MINE": "yes"}))
    relay(broker)
    broker.close()
    broker = reopen(fs, clock)
    send(broker, "t", later(b"x", "1"), later(b"y", "2"))
    send(broker, "t", cancel("1"), cancel("2"))
    relay(broker)
    assert list(broker.state.cancels.cancels[0]) == [b"1"]
    pass_ms(broker, clock, 3_000)
    assert values(broker, "t") == []
    broker.close()
    broker = open_broker(fs, clock, interceptors=[DELAYS, mine])
    relay(broker)
    assert broker.state.cancels.cancels == {}
    pass_ms(broker, clock, 3_000)
    assert values(broker, "t") == []


def take_all(put: Put) -> Redirect:
    return Redirect(None, (Redirected("mine.waiting", 0, bytes(put.batch), put.now_ms + 1_000),))
