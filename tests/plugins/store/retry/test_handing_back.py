"""Records that a group hands back: they come again, later each time, once, and end as dead letters (B19, B35, B41)."""

from __future__ import annotations

import pytest

from halfmoon.errors import BrokerError, Fault
from halfmoon.plugins.store.delay.delays import LEVEL_TOPIC, NAMES, TIMER_TOPIC, Delays
from halfmoon.plugins.store.retry.plugin import Retries
from halfmoon.plugins.store.retry.policies import Policies, RetrySettings
from halfmoon.schema import control
from halfmoon.schema.group_topics import dead_letter_topic, retry_topic, retrying_group
from halfmoon.services.waiting.types import PutInterceptor
from halfmoon.testing.faulty_files import FaultyFileSystem
from halfmoon.testing.node import BareNode
from tests.core.bench import VirtualClock, open_broker, partition_of, relay
from tests.core.relay_bench import deaths, found, lose_derived, pass_ms, send, values

LEVELS_MS = [1_000, 5_000, 10_000, 30_000, 60_000]
GROUP = "billing"
WAITING = (LEVEL_TOPIC, TIMER_TOPIC)
RETRY, DEAD = retry_topic(GROUP), dead_letter_topic(GROUP)


def reopen(fs: FaultyFileSystem, clock: VirtualClock) -> BareNode:
    brokers: list[BareNode] = []

    def was_nacked(group: str, topic: str, index: int, offset: int) -> bool:
        there = brokers[0].topic(topic)
        return there is not None and brokers[0].state.nacked.was_nacked(group, there.partitions[index], offset)

    retry = PutInterceptor(
        "retry", (), Retries(Policies(RetrySettings(max_reconsume_times=2)), was_nacked).before_put, ("retry.",)
    )
    delay = PutInterceptor("delay", NAMES, Delays(LEVELS_MS, 10**9).before_put, scheduled_topics=WAITING)
    brokers.append(open_broker(fs, clock, interceptors=[retry, delay]))
    return brokers[0]


@pytest.fixture
def broker(fs: FaultyFileSystem, clock: VirtualClock) -> BareNode:
    broker = reopen(fs, clock)
    broker.create_topic("orders", 2)
    broker.create_topic(RETRY, 1)
    return broker


def hand_back(broker: BareNode, value: bytes, of: str | None = None, **headers: str) -> int:
    given = headers if of is None else {"RETRY_OF": of, **headers}
    base = send(broker, RETRY, (value, given))
    relay(broker)
    return base


def commit(broker: BareNode, topic: str, index: int, offset: int) -> None:
    broker.groups.commit(GROUP, -1, "", None, [(partition_of(broker, topic, index), offset, -1, "")])


def commit_as_member(broker: BareNode, topic: str, index: int, offset: int) -> None:
    number = partition_of(broker, topic).topic.number
    broker.append_control(control.OffsetsCommitted(GROUP, [(number, index, control.Committed(offset, -1, "", 0))]))


def test_it_comes_again_later_each_time_and_ends_as_a_dead_letter(broker: BareNode, clock: VirtualClock) -> None:
    send(broker, "orders", (b"v", {"mine": "x"}), index=1)
    relay(broker)
    assert hand_back(broker, b"v", "orders/1/0", mine="x") == -1
    pass_ms(broker, clock, 10_000)
    assert values(broker, RETRY) == []
    pass_ms(broker, clock, 1)
    ((offset, value, _, headers),) = found(broker, RETRY)
    assert (offset, value) == (0, b"v")
    assert headers["RECONSUME_TIME"] == b"1"
    assert headers["RETRY_TOPIC"] == b"orders"
    assert headers["ORIGIN_MESSAGE_ID"] == b"orders/1/0"
    assert headers["mine"] == b"x"
    assert "RETRY_OF" not in headers
    copied = {name: (text or b"").decode() for name, text in headers.items()}
    hand_back(broker, b"v", f"{RETRY}/0/0", **copied)
    pass_ms(broker, clock, 30_001)
    headers = found(broker, RETRY)[1][3]
    assert headers["RECONSUME_TIME"] == b"2"
    assert headers["ORIGIN_MESSAGE_ID"] == b"orders/1/0"
    copied = {name: (text or b"").decode() for name, text in headers.items()}
    hand_back(broker, b"v", f"{RETRY}/0/1", **copied)
    ((_, value, timestamp, headers),) = found(broker, DEAD)
    assert (value, timestamp) == (b"v", 500)
    assert headers == {
        "mine": b"x",
        "RETRY_TOPIC": b"orders",
        "ORIGIN_MESSAGE_ID": b"orders/1/0",
        "RECONSUME_TIME": b"2",
        "halfmoon.reason": b"negatively acknowledged 2 times",
    }
    pass_ms(broker, clock, 10**8)
    assert len(found(broker, RETRY)) == 2


@pytest.mark.parametrize(
    ("headers", "delay_ms"),
    [
        ({"DELAY": "1"}, 1_001),
        ({"TIMER_DELAY_MS": "77"}, 78),
        ({"DELAY": "0"}, 10_001),
        ({"RECONSUME_TIME": "1"}, 30_001),
        ({"RECONSUME_TIME": "7", "MAX_RECONSUME_TIMES": "9"}, 60_001),
    ],
)
def test_the_delay(broker: BareNode, clock: VirtualClock, headers: dict[str, str], delay_ms: int) -> None:
    hand_back(broker, b"v", **headers)
    pass_ms(broker, clock, delay_ms - 1)
    assert values(broker, RETRY) == []
    pass_ms(broker, clock, 1)
    assert values(broker, RETRY) == [b"v"]


def test_without_a_delay_it_comes_at_once_and_only_this_time(broker: BareNode, clock: VirtualClock) -> None:
    hand_back(broker, b"v", TIMER_DELAY_MS="0")
    ((_, _, _, headers),) = found(broker, RETRY)
    assert headers == {"RECONSUME_TIME": b"1"}


@pytest.mark.parametrize(
    ("headers", "reason"),
    [
        ({"DELAY": "-1"}, b"negatively acknowledged with DELAY=-1"),
        ({"MAX_RECONSUME_TIMES": "0"}, b"negatively acknowledged 0 times"),
        ({"RECONSUME_TIME": "2", "TIMER_DELAY_MS": "5"}, b"negatively acknowledged 2 times"),
    ],
)
def test_what_is_given_up_at_once(broker: BareNode, headers: dict[str, str], reason: bytes) -> None:
    assert hand_back(broker, b"v", "orders/0/0", **headers) == -1
    ((_, _, _, dead),) = found(broker, DEAD)
    assert dead["halfmoon.reason"] == reason
    assert "DELAY" not in dead
    assert "TIMER_DELAY_MS" not in dead


def test_to_hand_back_again_what_was_handed_back_does_nothing(
    broker: BareNode, fs: FaultyFileSystem, clock: VirtualClock
) -> None:
    send(broker, "orders", (b"a", {}), (b"b", {}))
    relay(broker)
    hand_back(broker, b"a", "orders/0/0")
    for _ in range(2):
        assert hand_back(broker, b"a", "orders/0/0") == -1
        fs = fs.power_loss()
        lose_derived(fs)
        broker = reopen(fs, clock)
    send(
        broker,
        RETRY,
        (b"a", {"RETRY_OF": "orders/0/0"}),
        (b"b", {"RETRY_OF": "orders/0/1"}),
        (b"b", {"RETRY_OF": "orders/0/1"}),
    )
    relay(broker)
    pass_ms(broker, clock, 10_001)
    assert values(broker, RETRY) == [b"a", b"b"]


def test_what_was_committed_is_forgotten_with_the_next_commit(broker: BareNode, clock: VirtualClock) -> None:
    send(broker, "orders", *[(b"%d" % at, {}) for at in range(5)])
    relay(broker)
    for offset in range(5):
        hand_back(broker, b"%d" % offset, f"orders/0/{offset}")
    for offset, left in (
        (2, {0, 1, 2, 3, 4}),
        (2, {0, 1, 2, 3, 4}),
        (3, {2, 3, 4}),
        (5, {3, 4}),
        (5, {3, 4}),
        (6, None),
    ):
        commit(broker, "orders", 0, offset)
        there = {
            group: {place: set(runs.offsets()) for place, runs in places.items()}
            for group, places in broker.state.nacked.nacked.items()
        }
        assert there == ({} if left is None else {GROUP: {(0, 0): left}})


def test_a_commit_that_comes_late_doubles_nothing(broker: BareNode, clock: VirtualClock) -> None:
    """While the broker was away a commit waited in the client; it comes after its consumer has begun again."""
    send(broker, "orders", *[(b"%d" % at, {}) for at in range(6)])
    relay(broker)
    commit_as_member(broker, "orders", 0, 1)
    for offset in range(1, 5):
        hand_back(broker, b"%d" % offset, f"orders/0/{offset}")
    # The consumer begins again from 1, …
    hand_back(broker, b"1", "orders/0/1")
    commit_as_member(broker, "orders", 0, 5)  # … and here it comes.
    hand_back(broker, b"2", "orders/0/2")
    commit_as_member(broker, "orders", 0, 3)
    for offset in range(3, 6):
        hand_back(broker, b"%d" % offset, f"orders/0/{offset}")
    commit_as_member(broker, "orders", 0, 6)
    pass_ms(broker, clock, 10_001)
    assert values(broker, RETRY) == [b"1", b"2", b"3", b"4", b"5"]


def test_a_group_that_is_set_back_may_hand_back_again(broker: BareNode, clock: VirtualClock) -> None:
    send(broker, "orders", (b"a", {}), (b"b", {}), (b"c", {}))
    relay(broker)
    for offset in range(3):
        hand_back(broker, b"%d" % offset, f"orders/0/{offset}")
    commit(broker, "orders", 0, 2)
    commit(broker, "orders", 0, 0)
    assert broker.state.nacked.nacked == {}
    hand_back(broker, b"2", "orders/0/2")
    pass_ms(broker, clock, 10_001)
    assert values(broker, RETRY) == [b"0", b"1", b"2", b"2"]


def test_a_group_whose_offsets_are_deleted_begins_anew(broker: BareNode, clock: VirtualClock) -> None:
    send(broker, "orders", (b"a", {}))
    relay(broker)
    hand_back(broker, b"a", "orders/0/0")
    commit(broker, "orders", 0, 1)
    broker.groups.delete_offsets(GROUP, [partition_of(broker, "orders")])
    assert broker.state.nacked.nacked == {}
    hand_back(broker, b"a", "orders/0/0")
    pass_ms(broker, clock, 10_001)
    assert values(broker, RETRY) == [b"a", b"a"]


def test_a_header_that_would_cancel_is_only_data_here(broker: BareNode, clock: VirtualClock) -> None:
    hand_back(broker, b"a", TIMER_DEL_UNIQKEY="x")
    pass_ms(broker, clock, 10_001)
    assert values(broker, RETRY) == [b"a"]


def test_groups_do_not_know_of_each_other(broker: BareNode, clock: VirtualClock) -> None:
    send(broker, "orders", (b"a", {}))
    broker.create_topic(retry_topic("other"), 1)
    relay(broker)
    hand_back(broker, b"a", "orders/0/0")
    send(broker, retry_topic("other"), (b"a", {"RETRY_OF": "orders/0/0"}))
    relay(broker)
    pass_ms(broker, clock, 10_001)
    assert values(broker, RETRY) == values(broker, retry_topic("other")) == [b"a"]


def test_an_idempotent_producer_may_send_it_again(broker: BareNode, fs: FaultyFileSystem, clock: VirtualClock) -> None:
    send(broker, "orders", (b"a", {}))
    relay(broker)
    sequence = 0
    for again in range(2):
        for value, headers in (
            (b"a", {"RETRY_OF": "orders/0/0"}),
            (b"x", {"DELAY": "-1"}),
            (b"a", {"RETRY_OF": "orders/0/0"}),
        ):
            send(broker, RETRY, (value, headers), producer_id=5, producer_epoch=0, base_sequence=sequence % 3)
            relay(broker)
            sequence += 1
        fs = fs.kill()
        broker = reopen(fs, clock)
        assert len(values(broker, DEAD)) == 1, again
    send(broker, RETRY, (b"b", {}), producer_id=5, producer_epoch=0, base_sequence=3)
    relay(broker)
    pass_ms(broker, clock, 10_001)
    assert sorted(v or b"" for v in values(broker, RETRY)) == [b"a", b"b"]


@pytest.mark.parametrize(
    ("headers", "said"),
    [
        ({"RETRY_OF": "orders"}, "header RETRY_OF is b'orders', expected TOPIC/PARTITION/OFFSET"),
        ({"RECONSUME_TIME": "some"}, "header RECONSUME_TIME is b'some', not a number"),
        ({"DELAY": "soon"}, "header DELAY is b'soon'"),
    ],
)
def test_what_makes_no_sense_is_refused(broker: BareNode, headers: dict[str, str], said: str) -> None:
    with pytest.raises(BrokerError) as caught:
        send(broker, RETRY, (b"v", headers))
    assert caught.value.fault is Fault.INVALID_RECORD
    assert said in caught.value.message


def test_a_place_that_is_nowhere_is_no_reason_to_lose_a_record(broker: BareNode, clock: VirtualClock) -> None:
    for _ in range(2):
        hand_back(broker, b"v", "nowhere/5/7")
        hand_back(broker, b"w", "orders/0/999")
    pass_ms(broker, clock, 10_001)
    assert values(broker, RETRY) == [b"v", b"w", b"v", b"w"]


@pytest.mark.parametrize(
    "group",
    ["billing", "my_group", "a b/c", "Grüße", "_x41_", "_x41_x42_", "_", "%RETRY%", "x" * 200, "_x5F_", "a.b-c"],
)
def test_every_group_has_its_own_topics(group: str) -> None:
    assert retrying_group(retry_topic(group)) == group
    assert set(retry_topic(group)) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")


@pytest.mark.parametrize("topic", ["orders", "retry.", "dlq.billing", "retry._xFF_"])
def test_what_is_no_retry_topic(topic: str) -> None:
    assert retrying_group(topic) is None


@pytest.mark.timeout(300)
def test_dying_at_any_operation_retries_once() -> None:
    def play(fs: FaultyFileSystem, clock: VirtualClock, _: None) -> None:
        broker = reopen(fs, clock)
        if broker.topic("orders") is None:
            broker.create_topic("orders", 1)
        if broker.topic(RETRY) is None:
            broker.create_topic(RETRY, 1)
        for number in range(12):
            send(broker, "orders", (b"%02d" % number, {}), (bytes(9_000), {}))
            relay(broker)
            for _ in range(2):
                hand_back(broker, b"%02d" % number, f"orders/0/{2 * number}", DELAY="-1" if number % 3 == 0 else "1")
            pass_ms(broker, clock, 700)
            if number == 8:
                broker.close()
                broker = reopen(fs, clock)

    for fs, clock, _ in deaths(play, lambda: None):
        broker = reopen(fs, clock)
        if broker.topic(RETRY) is None:
            continue
        there = [value for value in values(broker, "orders") if value is not None and len(value) == 2]
        for value in there:  # the consumer comes back, and hands back again whatever it has not committed
            number = int(value)
            hand_back(broker, value, f"orders/0/{2 * number}", DELAY="-1" if number % 3 == 0 else "1")
        pass_ms(broker, clock, 10_000)
        dead = values(broker, DEAD) if broker.topic(DEAD) is not None else []
        assert sorted(v or b"" for v in values(broker, RETRY)) == [value for value in there if int(value) % 3]
        assert sorted(v or b"" for v in dead) == [value for value in there if int(value) % 3 == 0]
