"""Recurring messages: each time is kept once, whatever happens in between."""

from __future__ import annotations

from typing import Any

import pytest

from halfmoon.core.records.batches import build_batch
from halfmoon.core.steps import finish
from halfmoon.errors import BrokerError, Fault, TakesLongError
from halfmoon.hooks.schedules import ChangeSchedule, CreateSchedule, ListSchedules, Schedule
from halfmoon.plugins.store.schedule.records import TOPIC, Progress, decoded
from halfmoon.testing.faulty_files import FaultyFileSystem
from halfmoon.testing.node import BareNode
from tests.core.bench import VirtualClock, partition_of, relay, turn
from tests.core.clean_bench import clean
from tests.core.relay_bench import deaths, found, pass_ms, values
from tests.plugins.store.schedule.rig import (
    MIDNIGHT_MS,
    MINUTE_MS,
    Client,
    TwoClocks,
    ask,
    clock_at,
    make,
    numbers_sent,
    put,
    reopen,
    tell,
    times_sent,
)

HOUR_MS = 60 * MINUTE_MS
HOURLY = "0 * * * *"


@pytest.fixture
def clock() -> TwoClocks:
    return clock_at()


@pytest.fixture
def broker(fs: FaultyFileSystem, clock: TwoClocks) -> BareNode:
    broker = reopen(fs, clock)
    broker.create_topic("orders", 2)
    return broker


def listed(broker: BareNode, **asked: Any) -> list[Schedule]:
    return list(ask(broker, ListSchedules(**asked)).schedules or ())


# -- what is sent ------------------------------------------------------------------------------------------------------


def test_a_message_is_sent_whenever_it_is_due(broker: BareNode, clock: TwoClocks) -> None:
    make(broker, "hourly", HOURLY, value=b"count", key=b"k", mine="x", UNIQ_KEY="u", halfmoon__ttl__ms="5")
    assert values(broker, "orders") == []
    pass_ms(broker, clock, HOUR_MS - 1)
    assert values(broker, "orders") == []
    pass_ms(broker, clock, 2 * HOUR_MS)
    first, second = found(broker, "orders")
    assert (first[0], first[1], first[2]) == (0, b"count", MIDNIGHT_MS + HOUR_MS)
    assert first[3] == {
        "mine": b"x",
        "halfmoon.ttl.ms": b"5",
        "halfmoon.schedule": b"hourly",
        "halfmoon.schedule-time": str(MIDNIGHT_MS + HOUR_MS).encode(),
    }
    assert second[3]["halfmoon.schedule-time"] == str(MIDNIGHT_MS + 2 * HOUR_MS).encode()


def test_it_goes_to_the_partition_that_it_was_sent_to(broker: BareNode, clock: TwoClocks) -> None:
    make(broker, "x", HOURLY, index=1)
    pass_ms(broker, clock, HOUR_MS)
    assert times_sent(broker, index=1) == ["x 3600"]
    assert values(broker, "orders", 0) == []


def test_those_that_are_due_together_are_all_sent(broker: BareNode, clock: TwoClocks) -> None:
    for name in "abc":
        make(broker, name, HOURLY)
    make(broker, "seconds", "58-59 59 0 * * *")
    pass_ms(broker, clock, HOUR_MS)
    assert sorted(times_sent(broker)) == ["a 3600", "b 3600", "c 3600", "seconds 3598", "seconds 3599"]


def test_the_rest_of_the_batch_is_stored_with_it(broker: BareNode, clock: TwoClocks) -> None:
    rows = [
        (None, b"before", 1, ()),
        (b"k", b"again", 2, (("SCHEDULE_NAME", b"n"), ("SCHEDULE_CRON", HOURLY.encode()))),
        (None, b"behind", 3, (("SCHEDULE", b"no"),)),
    ]
    broker.append(partition_of(broker, "orders"), memoryview(bytearray(build_batch(rows))), clock.wall_ms())
    relay(broker)
    assert values(broker, "orders") == [b"before", b"behind"]
    pass_ms(broker, clock, HOUR_MS)
    assert values(broker, "orders") == [b"before", b"behind", b"again"]


def test_a_topic_that_stamps_its_records(broker: BareNode, clock: TwoClocks) -> None:
    broker.create_topic("stamped", 1, {"message.timestamp.type": "LogAppendTime"})
    make(broker, "x", HOURLY, topic="stamped")
    pass_ms(broker, clock, HOUR_MS)
    assert [row[2] for row in found(broker, "stamped")] == [MIDNIGHT_MS + HOUR_MS]


# -- changes -----------------------------------------------------------------------------------------------------------


def test_the_same_again_changes_nothing(broker: BareNode, clock: TwoClocks) -> None:
    make(broker, "x", HOURLY)
    written = partition_of(broker, TOPIC).next_offset
    pass_ms(broker, clock, 30 * MINUTE_MS)
    make(broker, "x", HOURLY)
    assert partition_of(broker, TOPIC).next_offset == written
    pass_ms(broker, clock, HOUR_MS)
    assert numbers_sent(broker) == [3600]


def test_another_message_goes_on_at_the_same_times(broker: BareNode, clock: TwoClocks) -> None:
    make(broker, "x", HOURLY, value=b"1")
    pass_ms(broker, clock, HOUR_MS)
    make(broker, "x", HOURLY, value=b"2")
    pass_ms(broker, clock, HOUR_MS)
    assert values(broker, "orders") == [b"1", b"2"]
    assert listed(broker)[0].fired == 2


def test_other_times_count_from_now_on(broker: BareNode, clock: TwoClocks) -> None:
    make(broker, "x", HOURLY)
    pass_ms(broker, clock, 30 * MINUTE_MS)
    make(broker, "x", "15 * * * *")
    pass_ms(broker, clock, HOUR_MS)
    assert numbers_sent(broker) == [75 * 60]


def test_paused_and_resumed(broker: BareNode, clock: TwoClocks) -> None:
    make(broker, "x", HOURLY)
    tell(broker, "x", "paused")
    pass_ms(broker, clock, 2 * HOUR_MS)
    assert values(broker, "orders") == []
    tell(broker, "x", "active")
    tell(broker, "x", "active")
    pass_ms(broker, clock, HOUR_MS)
    assert numbers_sent(broker) == [3 * 3600], "what passed meanwhile is not made up for"
    assert listed(broker)[0].missed_times == 0


def test_who_is_made_again_while_it_is_paused_stays_so(broker: BareNode, clock: TwoClocks) -> None:
    make(broker, "x", HOURLY)
    tell(broker, "x", "paused")
    make(broker, "x", HOURLY)
    make(broker, "x", HOURLY, value=b"other")
    pass_ms(broker, clock, 2 * HOUR_MS)
    assert values(broker, "orders") == []


def test_cancelled(broker: BareNode, clock: TwoClocks) -> None:
    make(broker, "x", HOURLY)
    make(broker, "y", HOURLY)
    tell(broker, "x", "cancelled")
    tell(broker, "x", "cancelled")
    pass_ms(broker, clock, HOUR_MS)
    assert times_sent(broker) == ["y 3600"]
    with pytest.raises(BrokerError, match="there is no schedule orders/0/x"):
        tell(broker, "x", "paused")


def test_many_changes_in_one_batch_hold_together_in_their_order(broker: BareNode, clock: TwoClocks) -> None:
    def row(**headers: str) -> Any:
        return b"k", b"v", 0, tuple((f"SCHEDULE_{name}", text.encode()) for name, text in headers.items())

    rows = [
        row(NAME="a", CRON=HOURLY),
        row(NAME="b", CRON=HOURLY),
        row(NAME="a", STATE="cancelled"),
        row(NAME="b", STATE="paused"),
        row(NAME="b", STATE="active"),
        row(NAME="c", CRON=HOURLY),
        row(NAME="c", STATE="paused"),
    ]
    broker.append(partition_of(broker, "orders"), memoryview(bytearray(build_batch(rows))), clock.wall_ms())
    relay(broker)
    assert [(each.name, each.state) for each in listed(broker)] == [("b", "active"), ("c", "paused")]


def test_a_large_batch_is_taken_apart_in_slices_and_worked_out_again_where_it_has_to_be(
    broker: BareNode, clock: TwoClocks
) -> None:
    headers = (("SCHEDULE_NAME", b"x"), ("SCHEDULE_CRON", HOURLY.encode()))
    rows = [(None, b"plain", 0, ()) for _ in range(400)] + [(b"k", b"new", 0, headers)]
    batch = memoryview(bytearray(build_batch(rows)))
    with pytest.raises(TakesLongError) as long:
        broker.append(partition_of(broker, "orders"), batch, clock.wall_ms())
    prepared = finish(long.value.steps(batch))
    make(broker, "x", HOURLY, value=b"meanwhile", key=b"k")
    with pytest.raises(TakesLongError) as long:
        broker.append(partition_of(broker, "orders"), batch, clock.wall_ms(), prepared=prepared)
    prepared = finish(long.value.steps(batch))
    broker.append(partition_of(broker, "orders"), batch, clock.wall_ms(), prepared=prepared)
    relay(broker)
    pass_ms(broker, clock, HOUR_MS)
    assert values(broker, "orders")[-1] == b"new"
    assert len(values(broker, "orders")) == 401


def test_an_idempotent_producer_may_send_it_again(broker: BareNode, clock: TwoClocks) -> None:
    fields = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0}
    make(broker, "x", HOURLY, fields=fields)
    tell(broker, "x", "cancelled")
    make(broker, "x", HOURLY, fields=fields)
    assert listed(broker) == [], "it was known"


# -- refused -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("headers", "said"),
    [
        ({"SCHEDULE_CRON": HOURLY}, "a schedule needs header SCHEDULE_NAME"),
        ({"SCHEDULE_STATE": "paused"}, "a schedule needs header SCHEDULE_NAME"),
        ({"SCHEDULE_CRON": HOURLY, "SCHEDULE_NAME": "a/b"}, "a schedule's name has"),
        ({"SCHEDULE_CRON": HOURLY, "SCHEDULE_NAME": "n" * 101}, "a schedule's name has"),
        ({"SCHEDULE_CRON": "0 * * *", "SCHEDULE_NAME": "n"}, "wrong number of fields"),
        ({"SCHEDULE_CRON": HOURLY, "SCHEDULE_NAME": "n", "SCHEDULE_ZONE": "Mars"}, "no time zone 'Mars'"),
        ({"SCHEDULE_CRON": HOURLY, "SCHEDULE_NAME": "n", "SCHEDULE_MISSED": "all"}, "not once or skip"),
        ({"SCHEDULE_CRON": HOURLY, "SCHEDULE_NAME": "n", "SCHEDULE_STATE": "paused"}, "exclude each other"),
        ({"SCHEDULE_CRON": HOURLY, "SCHEDULE_NAME": "n", "DELAY": "3"}, "cannot have header DELAY"),
        ({"SCHEDULE_CRON": HOURLY, "SCHEDULE_NAME": "n", "TRAN_MSG": "true"}, "cannot have header TRAN_MSG"),
        ({"SCHEDULE_CRON": HOURLY, "SCHEDULE_NAME": "n", "SCHEDULE_PARTITION": "1"}, "it was sent to 0"),
        ({"SCHEDULE_NAME": "n", "SCHEDULE_STATE": "paused", "SCHEDULE_PARTITION": "x"}, "it was sent to 0"),
        ({"SCHEDULE_CRON": HOURLY, "SCHEDULE_NAME": "n", "__BORNHOST": "1.1.1.1:1"}, "needs a key or header"),
        ({"SCHEDULE_NAME": "n", "SCHEDULE_STATE": "off"}, "not active, paused or cancelled"),
    ],
)
def test_what_makes_no_sense_is_refused(broker: BareNode, headers: dict[str, str], said: str) -> None:
    with pytest.raises(BrokerError, match=f"record 0: .*{said}") as caught:
        put(broker, "orders", key=b"k", **headers)
    assert caught.value.fault is Fault.INVALID_RECORD
    assert broker.topic(TOPIC) is None


def test_nothing_of_a_batch_is_there_that_is_refused(broker: BareNode, clock: TwoClocks) -> None:
    rows = [
        (b"k", b"a", 0, (("SCHEDULE_NAME", b"a"), ("SCHEDULE_CRON", HOURLY.encode()))),
        (b"k", b"b", 0, (("SCHEDULE_NAME", b"b"), ("SCHEDULE_CRON", b"nonsense"))),
    ]
    with pytest.raises(BrokerError, match="record 1: cron expression 'nonsense'"):
        broker.append(partition_of(broker, "orders"), memoryview(bytearray(build_batch(rows))), clock.wall_ms())
    assert listed(broker) == []


def test_no_more_than_may_be(fs: FaultyFileSystem, clock: TwoClocks) -> None:
    broker = reopen(fs, clock, max_schedules=2, max_message_bytes=100)
    broker.create_topic("orders", 1)
    make(broker, "a", HOURLY)
    make(broker, "b", HOURLY)
    with pytest.raises(BrokerError, match="there are 2 schedules, as many as may be"):
        make(broker, "c", HOURLY)
    make(broker, "b", "5 * * * *")
    tell(broker, "a", "cancelled")
    with pytest.raises(BrokerError, match="at most 100 bytes, not 120") as large:
        make(broker, "c", HOURLY, value=bytes(120))
    assert large.value.fault is Fault.MESSAGE_TOO_LARGE
    make(broker, "c", HOURLY)


def test_one_batch_changes_a_hundred_at_most(broker: BareNode) -> None:
    headers = (("SCHEDULE_NAME", b"x"), ("SCHEDULE_STATE", b"cancelled"))
    batch = memoryview(bytearray(build_batch([(b"k", b"", 0, headers)] * 101)))
    with pytest.raises(BrokerError, match="100 schedules at most"):
        broker.append(partition_of(broker, "orders"), batch, broker.clock.wall_ms())


def test_nobody_else_has_its_topic(broker: BareNode) -> None:
    with pytest.raises(BrokerError, match="reserved"):
        broker.create_topic(TOPIC, 1)


# -- rights ------------------------------------------------------------------------------------------------------------


def test_it_is_sent_with_the_rights_that_its_creator_has_then(fs: FaultyFileSystem, clock: TwoClocks) -> None:
    asked: list[tuple[str, str]] = []
    alice = Client()

    def rights(principal: str, host: str) -> Client:
        asked.append((principal, host))
        return alice

    broker = reopen(fs, clock, rights)
    broker.create_topic("orders", 1)
    make(broker, "x", HOURLY, sender=alice)
    pass_ms(broker, clock, HOUR_MS)
    alice.refused.add(("write", "orders"))
    pass_ms(broker, clock, HOUR_MS)
    assert numbers_sent(broker) == [3600]
    (shown,) = listed(broker)
    assert (shown.refused, shown.problem) == (1, "User:alice is not allowed to write to the topic")
    assert broker.warnings() == [
        "schedule orders/0/x: its last message was not sent: User:alice is not allowed to write to the topic"
    ]
    broker.close()
    broker = reopen(fs, clock, rights)
    assert listed(broker)[0].refused == 1
    alice.refused.clear()
    pass_ms(broker, clock, HOUR_MS)
    assert numbers_sent(broker) == [3600, 3 * 3600], "the time that was refused is over"
    assert listed(broker)[0].problem == ""
    assert set(asked) == {("User:alice", "10.0.0.1")}


def test_nothing_is_sent_before_it_is_known_who_may_do_what(fs: FaultyFileSystem, clock: TwoClocks) -> None:
    def unknown(_principal: str, _host: str) -> None:
        raise BrokerError(Fault.NOT_LEADER_OR_FOLLOWER)

    broker = reopen(fs, clock)
    broker.create_topic("orders", 1)
    make(broker, "x", HOURLY)
    broker.close()
    clock.now_ms += HOUR_MS
    broker = reopen(fs, clock, unknown)
    assert values(broker, "orders") == []
    broker.close()
    broker = reopen(fs, clock)
    assert numbers_sent(broker) == [3600]


def test_somebody_elses_needs_alter(broker: BareNode, clock: TwoClocks) -> None:
    alice, bob = Client(), Client("User:bob", ("alter", "orders"))
    make(broker, "x", HOURLY, sender=alice)
    for headers in ({"SCHEDULE_CRON": "5 * * * *"}, {"SCHEDULE_STATE": "paused"}, {"SCHEDULE_STATE": "cancelled"}):
        with pytest.raises(BrokerError) as refused:
            put(broker, "orders", sender=bob, key=b"k", SCHEDULE_NAME="x", **headers)
        assert refused.value.fault is Fault.TOPIC_AUTHORIZATION_FAILED
    with pytest.raises(BrokerError, match="alter orders"):
        ask(broker, ChangeSchedule("orders", "x", "cancelled"), bob)
    with pytest.raises(BrokerError, match="alter orders"):
        ask(broker, CreateSchedule("orders", "x", "5 * * * *", partition=0, replace=True), bob)
    bob.refused.clear()
    make(broker, "x", HOURLY, sender=bob)
    assert listed(broker)[0].creator == "User:bob"


def test_who_may_see_what(broker: BareNode) -> None:
    make(broker, "x", HOURLY, value=b"secret", key=b"k", h="1")
    (seen,) = ask(broker, ListSchedules()).schedules or ()
    assert (seen.shows, seen.key, seen.value, seen.headers) == (True, b"k", b"secret", (("h", b"1"),))
    (seen,) = ask(broker, ListSchedules(), Client("User:bob", ("read", "orders"))).schedules or ()
    assert (seen.shows, seen.key, seen.value, seen.headers) == (False, None, None, ())
    assert ask(broker, ListSchedules(), Client("User:bob", ("describe", "orders"))).schedules == ()
    with pytest.raises(BrokerError) as missing:
        ask(broker, ChangeSchedule("orders", "x", "paused"), Client("User:bob", ("describe", "orders")))
    assert missing.value.fault is Fault.RESOURCE_NOT_FOUND


# -- what cannot be sent -----------------------------------------------------------------------------------------------


def test_what_has_become_too_large_is_refused_and_said(broker: BareNode, clock: TwoClocks) -> None:
    make(broker, "x", HOURLY, value=bytes(2_000))
    topic = broker.topic("orders")
    assert topic is not None
    broker.alter_configs(topic, {"max.message.bytes": "1000"})
    pass_ms(broker, clock, HOUR_MS)
    assert values(broker, "orders") == []
    assert listed(broker)[0].problem == "its message is larger than the topic's max.message.bytes"


def test_a_compacted_topic_needs_keys(broker: BareNode, clock: TwoClocks) -> None:
    make(broker, "x", HOURLY)
    topic = broker.topic("orders")
    assert topic is not None
    broker.alter_configs(topic, {"cleanup.policy": "compact"})
    pass_ms(broker, clock, HOUR_MS)
    assert listed(broker)[0].problem == "its message has no key, and the topic is compacted"
    with pytest.raises(BrokerError, match="need a key"):
        ask(broker, CreateSchedule("orders", "y", HOURLY, partition=0))


@pytest.mark.parametrize("again", [False, True])
def test_it_ends_with_its_topic(fs: FaultyFileSystem, clock: TwoClocks, broker: BareNode, again: bool) -> None:
    make(broker, "x", HOURLY)
    topic = broker.topic("orders")
    assert topic is not None
    broker.delete_topic(topic)
    if not again:
        relay(broker)
    turn(broker)
    broker.close()
    broker = reopen(fs, clock)
    broker.create_topic("orders", 1)
    assert listed(broker) == []
    pass_ms(broker, clock, HOUR_MS)
    assert values(broker, "orders") == []


def test_a_full_disk_puts_it_off(broker: BareNode, clock: TwoClocks) -> None:
    make(broker, "x", HOURLY)
    broker.log.low_disk = True
    clock.now_ms += HOUR_MS
    pass_ms(broker, clock, 10)
    assert values(broker, "orders") == []
    assert any("schedules" in problem for problem in broker.relays.problems())
    broker.log.low_disk = False
    pass_ms(broker, clock, 5_000)
    assert numbers_sent(broker) == [3600]


# -- time --------------------------------------------------------------------------------------------------------------


def away(broker: BareNode, fs: FaultyFileSystem, clock: TwoClocks, passed_ms: int, **settings: Any) -> BareNode:
    broker.close()
    clock.now_ms += passed_ms
    return reopen(fs, clock, **settings)


def test_what_was_missed_is_sent_once_or_skipped(fs: FaultyFileSystem, clock: TwoClocks, broker: BareNode) -> None:
    make(broker, "once", HOURLY)
    make(broker, "skip", HOURLY, SCHEDULE_MISSED="skip")
    broker = away(broker, fs, clock, 3 * HOUR_MS + 5 * MINUTE_MS)
    assert times_sent(broker) == [f"once {3 * 3600}"]
    assert {each.name: each.missed_times for each in listed(broker)} == {"once": 2, "skip": 3}
    pass_ms(broker, clock, HOUR_MS)
    assert sorted(times_sent(broker)[1:]) == [f"once {4 * 3600}", f"skip {4 * 3600}"]
    broker = away(broker, fs, clock, 0)
    assert {each.name: each.missed_times for each in listed(broker)} == {"once": 2, "skip": 3}


def test_what_is_a_little_late_is_not_missed(fs: FaultyFileSystem, clock: TwoClocks, broker: BareNode) -> None:
    make(broker, "skip", HOURLY, SCHEDULE_MISSED="skip")
    broker = away(broker, fs, clock, HOUR_MS + 59_000)
    assert numbers_sent(broker) == [3600]
    ((_, _, timestamp, _),) = found(broker, "orders")
    assert timestamp == MIDNIGHT_MS + HOUR_MS + 59_000, "when it was sent"
    broker = away(broker, fs, clock, HOUR_MS, missed_after_ms=10_000)
    assert numbers_sent(broker) == [3600]


def test_every_second_that_is_late_is_sent(broker: BareNode, clock: TwoClocks) -> None:
    make(broker, "x", "* * * * * *")
    clock.now_ms += 5_500
    broker.relays.wake_alarms()
    relay(broker)
    assert numbers_sent(broker) == [1, 2, 3, 4, 5]


def test_a_clock_that_is_set_back_repeats_nothing(fs: FaultyFileSystem, clock: TwoClocks, broker: BareNode) -> None:
    make(broker, "x", HOURLY)
    pass_ms(broker, clock, 2 * HOUR_MS)
    clock.leap_ms = -HOUR_MS - MINUTE_MS
    broker.relays.wake_alarms()
    pass_ms(broker, clock, HOUR_MS)
    assert numbers_sent(broker) == [3600, 2 * 3600]
    broker = away(broker, fs, clock, 0)
    pass_ms(broker, clock, HOUR_MS + MINUTE_MS)
    assert numbers_sent(broker) == [3600, 2 * 3600, 3 * 3600]


def test_a_clock_that_leaps_ahead_has_missed_what_it_leapt_over(broker: BareNode, clock: TwoClocks) -> None:
    make(broker, "x", HOURLY)
    clock.leap_ms = 5 * HOUR_MS + 30 * MINUTE_MS
    broker.relays.wake_alarms()
    relay(broker)
    assert numbers_sent(broker) == [5 * 3600]
    clock.leap_ms = 0
    broker.relays.wake_alarms()
    pass_ms(broker, clock, 5 * HOUR_MS)
    assert numbers_sent(broker) == [5 * 3600], "until it is later than it was"
    tell(broker, "x", "paused")
    tell(broker, "x", "active")
    clock.leap_ms = -2 * HOUR_MS
    tell(broker, "x", "paused")
    tell(broker, "x", "active")
    pass_ms(broker, clock, HOUR_MS)
    assert numbers_sent(broker) == [5 * 3600, 4 * 3600], "one that is resumed begins anew, now"


# -- what is kept ------------------------------------------------------------------------------------------------------


def test_a_start_finds_what_there_was(fs: FaultyFileSystem, clock: TwoClocks, broker: BareNode) -> None:
    make(broker, "a", HOURLY, value=b"\xff", key=None, SCHEDULE_ZONE="Asia/Tokyo", h="x")
    make(broker, "b", "5 * * * *", index=1)
    tell(broker, "b", "paused", index=1)
    make(broker, "c", HOURLY)
    pass_ms(broker, clock, HOUR_MS)
    tell(broker, "c", "cancelled")
    before = listed(broker, times=3)
    broker = away(broker, fs, clock, 0)
    assert listed(broker, times=3) == before
    pass_ms(broker, clock, HOUR_MS)
    assert times_sent(broker)[2:] == ["a 7200"]


def test_off_and_on_again(fs: FaultyFileSystem, clock: TwoClocks, broker: BareNode) -> None:
    make(broker, "x", HOURLY)
    broker = away(broker, fs, clock, 0, on=False)
    pass_ms(broker, clock, 90 * MINUTE_MS)
    assert put(broker, "orders", b"plain", SCHEDULE_NAME="y", SCHEDULE_CRON=HOURLY) == 0, "nobody acts on it"
    relay(broker)
    broker = away(broker, fs, clock, 0)
    assert numbers_sent(broker) == [3600]


def test_compaction_leaves_what_counts(fs: FaultyFileSystem, clock: TwoClocks, broker: BareNode) -> None:
    for name in ("kept", "gone"):
        make(broker, name, "*/10 * * * * *")
    for _ in range(30):
        pass_ms(broker, clock, 60_000)
        put(broker, "orders", bytes(2_000), index=1)
        turn(broker)
    tell(broker, "gone", "cancelled")
    clean(broker, clock)
    kept = partition_of(broker, TOPIC)
    assert kept.compacted_upto > 300, "something was compacted"
    pass_ms(broker, clock, 0)
    (before,) = listed(broker)
    broker = away(broker, fs, clock, 0)
    assert listed(broker) == [before]
    assert len(found(broker, TOPIC)) < 200


@pytest.mark.parametrize("service", ["cleaner", "keyindex", "configs"])
def test_services_that_it_can_do_without(fs: FaultyFileSystem, clock: TwoClocks, service: str) -> None:
    broker = reopen(fs, clock, off=(service,))
    broker.create_topic("orders", 1)
    make(broker, "x", HOURLY)
    broker = away(broker, fs, clock, HOUR_MS, off=(service,))
    assert numbers_sent(broker) == [3600]


def test_a_record_that_nobody_can_read_holds_up_no_other(
    fs: FaultyFileSystem, clock: TwoClocks, broker: BareNode
) -> None:
    make(broker, "a", HOURLY)
    rows = [
        (b"orders/0/strange", b"{", 0, ()),
        (b"orders", b"{}", 0, ()),
        (None, b"{}", 0, ()),
        (b"\xff/0/x", b"{}", 0, ()),
    ]
    batch = bytearray(build_batch(rows))  # type: ignore[arg-type]
    broker.append_relayed(partition_of(broker, TOPIC), batch)
    relay(broker)
    make(broker, "b", HOURLY)
    broker = away(broker, fs, clock, HOUR_MS)
    assert sorted(times_sent(broker)) == ["a 3600", "b 3600"]


def test_a_newer_version_may_say_more() -> None:
    said = decoded(b"t/0/n/progress", b'{"upto_ms": 5, "fired": 2, "later": [1]}')
    assert said == ("t/0/n", Progress(5, 2))


# -- answers -----------------------------------------------------------------------------------------------------------


def test_create_by_asking(broker: BareNode, clock: TwoClocks) -> None:
    asked = CreateSchedule("orders", "x", HOURLY, "UTC", "skip", 1, b"k", b"v", (("h", b"1"),))
    (made,) = ask(broker, asked).schedules or ()
    assert (made.id, made.state, made.missed, made.next_ms) == (
        "orders/1/x",
        "active",
        "skip",
        (MIDNIGHT_MS + HOUR_MS,),
    )
    pass_ms(broker, clock, HOUR_MS)
    assert times_sent(broker, index=1) == ["x 3600"]
    (again,) = ask(broker, asked).schedules or ()
    assert again.fired == 1
    with pytest.raises(BrokerError, match="says something else") as differs:
        ask(broker, CreateSchedule("orders", "x", HOURLY, partition=1))
    assert differs.value.fault is Fault.DUPLICATE_RESOURCE
    with pytest.raises(BrokerError, match="there is orders/1/x, in another partition"):
        ask(broker, CreateSchedule("orders", "x", HOURLY, partition=0, replace=True))
    (replaced,) = ask(broker, CreateSchedule("orders", "x", "5 * * * *", partition=1, replace=True)).schedules or ()
    assert (replaced.cron, replaced.fired) == ("5 * * * *", 1)


def test_made_paused(broker: BareNode, clock: TwoClocks) -> None:
    ask(broker, CreateSchedule("orders", "x", HOURLY, partition=0, paused=True))
    pass_ms(broker, clock, HOUR_MS)
    assert values(broker, "orders") == []
    ask(broker, ChangeSchedule("orders", "x", "active"))
    pass_ms(broker, clock, HOUR_MS)
    assert numbers_sent(broker) == [7200]


def test_a_name_is_one_schedules_in_a_topic(broker: BareNode) -> None:
    """A client that sends a schedule again, to any partition, would make more and more of them."""
    make(broker, "x", HOURLY, index=0)
    with pytest.raises(BrokerError, match="there is orders/0/x, in another partition: cancel that first"):
        make(broker, "x", HOURLY, index=1)
    for changes in ({"SCHEDULE_CRON": HOURLY}, {"SCHEDULE_STATE": "paused"}):
        with pytest.raises(BrokerError, match="needs a key or header SCHEDULE_PARTITION"):
            put(broker, "orders", SCHEDULE_NAME="x", **changes)
    assert put(broker, "orders", SCHEDULE_NAME="y", SCHEDULE_CRON=HOURLY, SCHEDULE_PARTITION="fixed") == -1
    broker.create_topic("one", 1)
    assert put(broker, "one", SCHEDULE_NAME="x", SCHEDULE_CRON=HOURLY) == -1


def test_a_change_may_name_the_partition(broker: BareNode) -> None:
    make(broker, "x", HOURLY, index=1)
    with pytest.raises(BrokerError, match="topic 'orders' has no schedule 'x' in its partition 0"):
        ask(broker, ChangeSchedule("orders", "x", "paused", 0))
    (one,) = ask(broker, ChangeSchedule("orders", "x", "paused", 1)).schedules or ()
    assert (one.id, one.state) == ("orders/1/x", "paused")
    (gone,) = ask(broker, ChangeSchedule("orders", "x", "cancelled")).schedules or ()
    assert (gone.id, listed(broker)) == ("orders/1/x", [])
    with pytest.raises(BrokerError, match="topic 'orders' has no schedule 'x'"):
        ask(broker, ChangeSchedule("orders", "x", "cancelled"))


def test_lists_come_in_parts(broker: BareNode) -> None:
    for number in range(5):
        make(broker, f"s{number}", HOURLY)
    first = ask(broker, ListSchedules(most=2))
    assert ([each.name for each in first.schedules or ()], first.more) == (["s0", "s1"], True)
    second = ask(broker, ListSchedules(most=3, after="orders/0/s1", times=0))
    assert ([each.name for each in second.schedules or ()], second.more) == (["s2", "s3", "s4"], False)
    assert second.schedules[0].next_ms == ()  # type: ignore[index]
    assert [each.name for each in listed(broker, name="s3")] == ["s3"]
    assert listed(broker, topic="other") == []


@pytest.mark.parametrize(
    ("topic", "fault"),
    [
        ("missing", Fault.UNKNOWN_TOPIC_OR_PARTITION),
        ("retry.g", Fault.INVALID_RECORD),
        ("view", Fault.INVALID_TOPIC_EXCEPTION),
        (TOPIC, Fault.INVALID_TOPIC_EXCEPTION),
    ],
)
def test_topics_to_which_nothing_is_sent(broker: BareNode, topic: str, fault: Fault) -> None:
    make(broker, "x", HOURLY)
    broker.create_topic("retry.g", 1)
    broker.create_topic("view", configs={"halfmoon.view.source": "orders", "halfmoon.view.prefix": "a"})
    with pytest.raises(BrokerError) as refused:
        ask(broker, CreateSchedule(topic, "y", HOURLY, partition=0))
    assert refused.value.fault is fault


def test_metrics(broker: BareNode, clock: TwoClocks) -> None:
    make(broker, "x", HOURLY)
    make(broker, "y", HOURLY)
    tell(broker, "y", "paused")
    clock.now_ms += 2 * HOUR_MS + 5 * MINUTE_MS
    broker.relays.wake_alarms()
    relay(broker)
    numbers: dict[str, float] = {}
    for read in broker.kernel.features.read_metrics:
        read(lambda name, value, *labels: numbers.update({" ".join((name, *labels)): value}))
    assert {
        name: value for name, value in numbers.items() if name.startswith(("halfmoon_schedule_", "halfmoon_schedules"))
    } == {
        "halfmoon_schedules active": 1,
        "halfmoon_schedules paused": 1,
        "halfmoon_schedule_messages_total": 1,
        "halfmoon_schedule_missed_total": 1,
        "halfmoon_schedule_refused_total": 0,
    }


# -- crashes -----------------------------------------------------------------------------------------------------------


@pytest.mark.timeout(300)
def test_dying_at_any_operation_keeps_each_time_once() -> None:
    def play(fs: FaultyFileSystem, clock: VirtualClock, told: dict[str, int]) -> None:
        """`told`: the state that was acknowledged last, by the schedule; and until when time has passed."""
        clock.now_ms = MIDNIGHT_MS
        broker = reopen(fs, clock)
        if broker.topic("orders") is None:
            broker.create_topic("orders", 1)

        def acknowledge(name: str, state: int) -> None:
            broker.when_durable(broker.log.end, lambda error: None if error else told.update({name: state}))
            relay(broker)

        for name in ("a", "b"):
            make(broker, name, "*/5 * * * * *", SCHEDULE_MISSED="once")
            acknowledge(name, 1)
        for number in range(4):
            put(broker, "orders", bytes(9_000))
            pass_ms(broker, clock, 7_000)
            if number == 1:
                tell(broker, "b", "cancelled")
                acknowledge("b", 0)
            if number == 2:
                broker.close()
                broker = reopen(fs, clock)

    for fs, clock, told in deaths(play, dict[str, int], least=40):
        broker = reopen(fs, clock)
        if broker.topic("orders") is None:
            continue
        pass_ms(broker, clock, 5_000)
        sent = times_sent(broker)
        assert len(sent) == len(set(sent)), "each time once"
        of_a = [int(each.split()[1]) for each in sent if each.startswith("a ")]
        if told.get("a"):
            upto = (clock.now_ms - MIDNIGHT_MS) // 5_000 * 5
            assert of_a == list(range(5, upto + 1, 5)), "none is left out: less than a minute has passed"
        names = {each.name for each in listed(broker)}
        if "a" in told:
            assert "a" in names
        if told.get("b") == 0:
            assert "b" not in names
            assert all(int(each.split()[1]) <= 14 for each in sent if each.startswith("b "))
