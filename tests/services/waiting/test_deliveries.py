"""Messages that wait for a time: delivered once, not early, to where they were sent, come what may (B29, B30, B41)."""

from __future__ import annotations

import random
from typing import Any

import pytest

from halfmoon.config.settings import load_settings
from halfmoon.core.records import record_codec
from halfmoon.core.records.batch_header import MAGIC, BatchHeader, assemble
from halfmoon.core.retention import due_start
from halfmoon.errors import BrokerError, Fault
from halfmoon.hooks.plugins import load_plugins
from halfmoon.plugins import BUILT_IN
from halfmoon.plugins.store.delay.delays import AT_TIMES, LEVEL_TOPIC, NAMES, ROUNDED_MS, TIMER_TOPIC, Delays
from halfmoon.plugins.store.transaction.half_messages import HALF_TOPIC
from halfmoon.server.plugin_host import Host
from halfmoon.services.waiting.delivering import UNDELIVERABLE
from halfmoon.services.waiting.types import PutInterceptor
from halfmoon.testing.faulty_files import FaultyFileSystem
from halfmoon.testing.node import BareNode
from tests.core.bench import VirtualClock, open_broker, partition_of, relay, turn
from tests.core.relay_bench import Row, deaths, found, lose_derived, pass_ms, send, values

DAY_MS = 86_400_000
DELAYS = PutInterceptor(
    "delay",
    NAMES,
    Delays([1_000, 5_000, 10_000], 40 * DAY_MS).before_put,
    scheduled_topics=(LEVEL_TOPIC, TIMER_TOPIC),
    clock_queues=((TIMER_TOPIC, AT_TIMES),),
)
"""Its delays take a ms more than is asked for here: what the clock rounds off."""


@pytest.fixture
def broker(fs: FaultyFileSystem, clock: VirtualClock) -> BareNode:
    return reopen(fs, clock)


def reopen(fs: FaultyFileSystem, clock: VirtualClock, **settings: Any) -> BareNode:
    return open_broker(fs, clock, interceptors=[DELAYS], **settings)


# -- what is delivered -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("headers", "delay_ms"),
    [
        ({"DELAY": "1"}, 1_000),
        ({"DELAY": "3"}, 10_000),
        ({"DELAY": "99"}, 10_000),
        ({"TIMER_DELAY_SEC": "7"}, 7_000),
        ({"TIMER_DELAY_MS": "1234"}, 1_234),
        ({"TIMER_DELAY_MS": str(40 * DAY_MS)}, 40 * DAY_MS),
        ({"DELAY": "0", "TIMER_DELAY_MS": "20"}, 20),
        ({"TIMER_DELIVER_MS": "99999", "TIMER_DELAY_SEC": "1"}, 1_000),
    ],
)
def test_a_record_comes_when_it_is_due_and_not_before(
    broker: BareNode, clock: VirtualClock, headers: dict[str, str], delay_ms: int
) -> None:
    broker.create_topic("t", 2)
    assert send(broker, "t", (b"v", {"mine": "x", **headers}), index=1) == -1
    relay(broker)
    pass_ms(broker, clock, delay_ms)
    assert values(broker, "t", 1) == []
    pass_ms(broker, clock, ROUNDED_MS)
    ((offset, value, timestamp, delivered),) = found(broker, "t", 1)
    assert (offset, value, timestamp) == (0, b"v", clock.now_ms)
    (name, text) = next((name, headers[name]) for name in NAMES if headers.get(name, "0") != "0")
    assert delivered == {
        "mine": b"x",
        "halfmoon.delayed": f"{name}={text}".encode(),
        "halfmoon.original-timestamp": b"500",
    }
    pass_ms(broker, clock, 100 * DAY_MS)
    assert len(found(broker, "t", 1)) == 1
    assert len(broker.waiting.deliveries) == 0


def test_a_time(broker: BareNode, clock: VirtualClock) -> None:
    broker.create_topic("t", 1)
    due_ms = clock.now_ms + 5_555
    send(broker, "t", (b"v", {"TIMER_DELIVER_MS": str(due_ms)}))
    relay(broker)
    pass_ms(broker, clock, 5_554)
    assert values(broker, "t") == []
    pass_ms(broker, clock, 1)
    assert values(broker, "t") == [b"v"]


@pytest.mark.parametrize(
    "headers", [{"DELAY": "0"}, {"DELAY": "-3"}, {"TIMER_DELAY_MS": "0"}, {"TIMER_DELIVER_MS": "5"}]
)
def test_what_is_due_at_once_stays_as_it_came(broker: BareNode, headers: dict[str, str]) -> None:
    broker.create_topic("t", 1)
    assert send(broker, "t", (b"v", headers)) == 0
    relay(broker)
    assert found(broker, "t") == [(0, b"v", 500, {name: text.encode() for name, text in headers.items()})]


def test_levels_wait_in_their_own_queues(broker: BareNode, clock: VirtualClock) -> None:
    broker.create_topic("t", 1)
    for level in ("2", "1", "3"):
        send(broker, "t", (level.encode(), {"DELAY": level}))
    relay(broker)
    assert [values(broker, LEVEL_TOPIC, index) for index in range(3)] == [[b"1"], [b"2"], [b"3"]]
    topic = broker.topic(LEVEL_TOPIC)
    assert topic is not None
    assert topic.internal
    queue = topic.partitions[1].queue
    (run,) = queue.runs()
    due_ms = clock.now_ms + 5_000 + ROUNDED_MS
    assert list(run.columns.max_ms) == [due_ms], "the delivery time stands in the consume queue"
    pass_ms(broker, clock, 10_001)
    assert values(broker, "t") == [b"1", b"2", b"3"]


def test_what_the_node_says_of_topics_takes_nothing_from_where_messages_wait(
    broker: BareNode, clock: VirtualClock
) -> None:
    defaults = {"log.cleanup.policy": "compact", "log.retention.ms": "1", "log.retention.bytes": "1"}
    broker.dynamic_configs.alter("0", defaults)
    broker.create_topic("t", 1)
    send(broker, "t", (b"v", {"DELAY": "1"}))
    topic = broker.topic(LEVEL_TOPIC)
    assert topic is not None
    rules = topic.rules
    assert (rules.deletes, rules.compacts, rules.retention_ms, rules.retention_bytes) == (True, False, -1, -1)


@pytest.mark.parametrize("codec", range(5))
def test_of_a_mixed_batch_the_others_stay(broker: BareNode, clock: VirtualClock, codec: int) -> None:
    broker.create_topic("t", 1)
    later: dict[str, str] = {"DELAY": "1"}
    base = send(
        broker, "t", (b"d0", later), (b"a1", {}), (b"d2", {"DELAY": "2"}), (b"a3", {}), (b"d4", later), codec=codec
    )
    assert base == 0
    assert send(broker, "t", (b"b", {})) == 4, "the batch ends with its last record that stays"
    relay(broker)
    assert [(offset, value) for offset, value, _, _ in found(broker, "t")] == [(1, b"a1"), (3, b"a3"), (4, b"b")]
    assert list(values(broker, LEVEL_TOPIC, 0)) == [b"d0", b"d4"]
    pass_ms(broker, clock, 5_001)
    assert values(broker, "t") == [b"a1", b"a3", b"b", b"d0", b"d4", b"d2"]


def test_an_idempotent_producer_may_send_a_mixed_batch_again(
    broker: BareNode, fs: FaultyFileSystem, clock: VirtualClock
) -> None:
    broker.create_topic("t", 1)
    mixed: list[Row] = [(b"a", {}), (b"d", {"DELAY": "1"})]
    whole: list[Row] = [(b"d2", {"DELAY": "1"}), (b"d3", {"DELAY": "1"})]
    for again in range(3):
        assert send(broker, "t", *mixed, producer_id=7, producer_epoch=0, base_sequence=0) == 0
        assert send(broker, "t", *whole, producer_id=7, producer_epoch=0, base_sequence=2) == -1
        relay(broker)
        if again == 1:
            fs = fs.kill()
            broker = reopen(fs, clock)
    assert send(broker, "t", (b"b", {}), producer_id=7, producer_epoch=0, base_sequence=4) == 1
    with pytest.raises(BrokerError) as caught:
        send(broker, "t", (b"c", {}), producer_id=7, producer_epoch=0, base_sequence=9)
    assert caught.value.fault is Fault.OUT_OF_ORDER_SEQUENCE_NUMBER
    relay(broker)
    pass_ms(broker, clock, 1_001)
    assert values(broker, "t") == [b"a", b"b", b"d", b"d2", b"d3"]


def test_headers_of_the_brokers_own_are_taken_off_on_the_way_in(broker: BareNode, clock: VirtualClock) -> None:
    """A program that copies what it has read, headers and all, does not delay it again."""
    broker.create_topic("t", 1)
    copied = {"halfmoon.delayed": "DELAY=3", "a": "b", "halfmoon.original-timestamp": "5"}
    send(broker, "t", (b"v", copied), (b"w", {"c": "d"}), (b"x", {**copied, "DELAY": "1"}))
    relay(broker)
    assert [row[3] for row in found(broker, "t")] == [{"a": b"b"}, {"c": b"d"}]
    pass_ms(broker, clock, 1_001)
    assert found(broker, "t")[2][3] == {
        "a": b"b", "halfmoon.delayed": b"DELAY=1", "halfmoon.original-timestamp": b"502",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("configs", "settings"),
    [({"halfmoon.headers.enable": "false"}, {}), ({}, {"topics": {"headers": False}})],
)
def test_headers_can_be_left_alone(
    fs: FaultyFileSystem, clock: VirtualClock, configs: dict[str, str], settings: dict[str, Any]
) -> None:
    broker = reopen(fs, clock, sections=settings)
    broker.create_topic("t", 1, configs)
    headers = {"DELAY": "1", "halfmoon.delayed": "x"}
    assert send(broker, "t", (b"v", headers)) == 0
    relay(broker)
    assert found(broker, "t") == [(0, b"v", 500, {name: text.encode() for name, text in headers.items()})]


@pytest.mark.parametrize(
    ("headers", "said"),
    [
        ({"DELAY": "soon"}, "record 1: header DELAY is b'soon': expected a whole number"),
        ({"DELAY": ""}, "expected a whole number"),
        ({"TIMER_DELAY_SEC": "1.5"}, "record 1: header TIMER_DELAY_SEC"),
        ({"TIMER_DELAY_SEC": "9" * 30}, "expected a whole number"),
        ({"TIMER_DELAY_MS": str(40 * DAY_MS + 1)}, "more than 40d from now"),
    ],
)
def test_what_makes_no_sense_is_refused_and_nothing_of_it_stored(
    broker: BareNode, headers: dict[str, str], said: str
) -> None:
    broker.create_topic("t", 1)
    end = broker.log.end
    with pytest.raises(BrokerError) as caught:
        send(broker, "t", (b"a", {"DELAY": "1"}), (b"b", headers))
    assert caught.value.fault is Fault.INVALID_RECORD
    assert said in caught.value.message
    assert broker.log.end == end


def test_a_body_that_holds_the_name_is_no_delay(broker: BareNode) -> None:
    broker.create_topic("t", 1)
    assert send(broker, "t", (b"DELAY TIMER_DELAY_MS halfmoon.delayed", {"a": "DELAY"})) == 0
    relay(broker)
    assert [row[1:] for row in found(broker, "t")] == [(b"DELAY TIMER_DELAY_MS halfmoon.delayed", 500, {"a": b"DELAY"})]


def test_a_topic_that_is_gone_when_its_message_is_due(broker: BareNode, clock: VirtualClock) -> None:
    topic, _ = broker.create_topic("t", 1)
    send(broker, "t", (b"v", {"DELAY": "1"}))
    relay(broker)
    broker.delete_topic(topic)
    broker.create_topic("t", 1)
    pass_ms(broker, clock, 1_001)
    assert values(broker, "t") == [], "a namesake is another topic"
    ((_, value, timestamp, headers),) = found(broker, UNDELIVERABLE)
    assert (value, timestamp) == (b"v", clock.now_ms)
    assert headers["halfmoon.reason"] == b"topic 't' was deleted before the message was due"
    assert headers["halfmoon.original-topic"] == b"t"
    assert headers["halfmoon.delayed"] == b"DELAY=1"
    assert len(broker.waiting.deliveries) == 0


def test_more_messages_of_a_topic_that_is_gone_than_one_batch_can_name(broker: BareNode, clock: VirtualClock) -> None:
    topic, _ = broker.create_topic("t", 1)
    for first in range(0, 70_000, 17_500):
        send(broker, "t", *[(b"%d" % n, {"DELAY": "1"}) for n in range(first, first + 17_500)], codec=4)
    relay(broker)
    broker.delete_topic(topic)
    pass_ms(broker, clock, 2_000)
    assert values(broker, UNDELIVERABLE) == [b"%d" % n for n in range(70_000)]
    assert broker.waiting.undeliverable == 70_000
    assert not partition_of(broker, LEVEL_TOPIC).pending


def test_many_that_are_due_together_share_batches(broker: BareNode, clock: VirtualClock) -> None:
    broker.create_topic("t", 1)
    for number in range(200):
        send(broker, "t", (b"%d" % number, {"DELAY": "1"}))
    relay(broker)
    pass_ms(broker, clock, 1_001)
    assert values(broker, "t") == [b"%d" % number for number in range(200)]
    assert len(next(iter(partition_of(broker, "t").queue.runs())).columns.base) == 1


def test_a_disk_that_is_full_for_a_while_delays_and_loses_nothing(broker: BareNode, clock: VirtualClock) -> None:
    broker.create_topic("t", 1)
    send(broker, "t", (b"v", {"DELAY": "1"}), (b"w", {"DELAY": "1"}))
    relay(broker)
    broker.log.low_disk = True
    pass_ms(broker, clock, 1_500)
    assert values(broker, "t") == []
    assert len(broker.waiting.deliveries) == 1
    assert any("deliveries" in problem for problem in broker.health())
    broker.log.low_disk = False
    pass_ms(broker, clock, 60_000)
    assert values(broker, "t") == [b"v", b"w"]
    assert broker.health() == []


def test_what_is_dealt_with_is_given_up_and_what_waits_is_kept(broker: BareNode, clock: VirtualClock) -> None:
    broker.create_topic("t", 1)
    for number in range(6):
        send(broker, "t", (b"%d" % number, {"TIMER_DELAY_MS": "1000" if number in (0, 1, 3) else "9000"}))
        relay(broker)
    pass_ms(broker, clock, 1_001)
    while not broker.housekeeping.retain():
        pass
    relay(broker)
    assert partition_of(broker, TIMER_TOPIC).start_offset == 2
    pass_ms(broker, clock, 8_001)
    while not broker.housekeeping.retain():
        pass
    relay(broker)
    assert partition_of(broker, TIMER_TOPIC).start_offset == 6


# -- the clock ---------------------------------------------------------------------------------------------------------


class TwoClocks(VirtualClock):
    """Whose wall can be moved."""

    leap_ms = 0

    def wall_ms(self) -> int:
        return self.now_ms + self.leap_ms

    def leap(self, broker: BareNode, leap_ms: int) -> None:
        """It is set, and the broker notices (server/tick.py)."""
        self.leap_ms += leap_ms
        broker.relays.wake_alarms()
        relay(broker)


class HeldUp(VirtualClock):
    """The process is held up for a second after one of its looks at the clock."""

    looks_until: int | None = None

    def wall_ms(self) -> int:
        return self._look()

    def mono_ms(self) -> int:
        return self._look()

    def _look(self) -> int:
        now_ms = self.now_ms
        if self.looks_until is not None:
            self.looks_until -= 1
            if self.looks_until == 0:
                self.now_ms += 1_000
        return now_ms


@pytest.mark.parametrize("looks", range(1, 11))
def test_no_message_says_that_it_came_early_however_long_the_process_was_held_up(
    fs: FaultyFileSystem, looks: int
) -> None:
    clock = HeldUp()
    broker = reopen(fs, clock)
    broker.create_topic("t", 1)
    sent_ms = clock.now_ms
    send(broker, "t", (b"v", {"DELAY": "1"}))
    relay(broker)
    clock.now_ms += 500  # half a second before it is due
    clock.looks_until = looks
    broker.relays.wake_alarms()
    relay(broker)
    assert clock.looks_until <= 0, "it did not look so often"
    pass_ms(broker, clock, 1_000)
    ((_, value, timestamp, _),) = found(broker, "t")
    assert value == b"v"
    assert timestamp >= sent_ms + 1_000


@pytest.mark.parametrize("leap_ms", [-DAY_MS, -3_600_000, -999, 0])
def test_a_delay_takes_its_time_wherever_the_wall_clock_is_set_back_to(fs: FaultyFileSystem, leap_ms: int) -> None:
    clock = TwoClocks()
    broker = reopen(fs, clock)
    broker.create_topic("t", 1)
    send(broker, "t", (b"v", {"DELAY": "3"}))
    relay(broker)
    clock.leap(broker, leap_ms)
    send(broker, "t", (b"w", {"TIMER_DELAY_SEC": "11"}))
    relay(broker)
    for after_ms, there in ((9_999, []), (1_000, [b"v"]), (10, [b"v", b"w"])):
        pass_ms(broker, clock, after_ms)
        assert values(broker, "t") == there
    clock.leap(broker, -leap_ms)  # right again
    send(broker, "t", (b"x", {"DELAY": "3"}))
    relay(broker)
    pass_ms(broker, clock, 10_000)
    assert values(broker, "t") == [b"v", b"w"]
    pass_ms(broker, clock, ROUNDED_MS)
    assert values(broker, "t") == [b"v", b"w", b"x"]


@pytest.mark.parametrize("back_ms", [-DAY_MS, -3_600_000])
def test_a_delay_that_came_while_the_clock_stood_back_takes_its_time_when_it_is_right_again(
    fs: FaultyFileSystem, back_ms: int
) -> None:
    clock = TwoClocks()
    broker = reopen(fs, clock)
    broker.create_topic("t", 1)
    clock.leap(broker, back_ms)
    pass_ms(broker, clock, 60_000)
    send(broker, "t", (b"v", {"TIMER_DELAY_MS": "3000"}))
    relay(broker)
    clock.leap(broker, -back_ms)
    pass_ms(broker, clock, 3_000)
    assert values(broker, "t") == []
    pass_ms(broker, clock, ROUNDED_MS)
    assert values(broker, "t") == [b"v"]


def test_a_forward_leap_delivers_what_became_due_meanwhile_and_nothing_else(fs: FaultyFileSystem) -> None:
    """The machine has slept, or its clock was set: that cannot be told."""
    clock = TwoClocks()
    broker = reopen(fs, clock)
    broker.create_topic("t", 1)
    at_ms = clock.wall_ms() + 10_800_000
    send(broker, "t", (b"in", {"TIMER_DELAY_SEC": "10800"}), (b"at", {"TIMER_DELIVER_MS": str(at_ms)}))
    send(broker, "t", (b"late", {"TIMER_DELAY_SEC": "172800"}), (b"much", {"TIMER_DELIVER_MS": str(at_ms + DAY_MS)}))
    relay(broker)
    clock.leap(broker, 10_700_000)
    assert values(broker, "t") == []
    clock.leap(broker, 13_300_000 + 60_000_000)
    assert sorted(values(broker, "t")) == [b"at", b"in"]


def test_a_time_of_the_wall_clock_is_reached_when_that_says_so(fs: FaultyFileSystem) -> None:
    clock = TwoClocks()
    broker = reopen(fs, clock)
    broker.create_topic("t", 1)
    send(broker, "t", (b"v", {"TIMER_DELIVER_MS": str(clock.wall_ms() + 10_000)}))
    relay(broker)
    clock.leap(broker, -3_600_000)
    pass_ms(broker, clock, 600_000)
    assert values(broker, "t") == [], "not before its time"
    clock.leap(broker, 3_600_000)
    assert values(broker, "t") == [b"v"]
    send(broker, "t", (b"w", {"TIMER_DELIVER_MS": str(clock.wall_ms() + 10_000)}))
    relay(broker)
    clock.leap(broker, -3_600_000)
    pass_ms(broker, clock, 3_609_000)
    assert values(broker, "t") == [b"v"]
    pass_ms(broker, clock, 1_001)
    assert values(broker, "t") == [b"v", b"w"]


@pytest.mark.parametrize("leap_ms", [-3_600_000, 0])
@pytest.mark.parametrize("how", ["stop", "kill"])
def test_over_a_restart_under_a_clock_set_back_a_delay_is_late_by_the_absence_at_most(
    fs: FaultyFileSystem, leap_ms: int, how: str
) -> None:
    clock = TwoClocks()
    broker = reopen(fs, clock)
    broker.create_topic("t", 1)
    send(broker, "t", (b"v", {"TIMER_DELAY_SEC": "20"}))
    relay(broker)
    pass_ms(broker, clock, 4_000)
    send(broker, "t", (b"now", {}))
    turn(broker)
    if how == "stop":
        broker.close()
    else:
        fs = fs.kill()
    clock.now_ms += 6_000  # away
    clock.leap_ms = leap_ms
    broker = reopen(fs, clock)
    relay(broker)
    pass_ms(broker, clock, 20_000 - 10_000 - 1)
    assert values(broker, "t") == [b"now"], "not early"
    pass_ms(broker, clock, 6_002)
    assert values(broker, "t") == [b"now", b"v"]


def test_over_a_restart_a_time_of_the_wall_clock_stays_what_it_is(fs: FaultyFileSystem) -> None:
    clock = TwoClocks()
    broker = reopen(fs, clock)
    broker.create_topic("t", 1)
    send(broker, "t", (b"v", {"TIMER_DELIVER_MS": str(clock.wall_ms() + 20_000)}))
    turn(broker)
    broker.close()
    clock.leap_ms = -3_600_000
    broker = reopen(fs, clock)
    relay(broker)
    pass_ms(broker, clock, 60_000)
    assert values(broker, "t") == []
    clock.leap(broker, 3_600_000)
    assert values(broker, "t") == [b"v"]


def test_a_broker_that_starts_after_its_time_delivers_at_once(fs: FaultyFileSystem) -> None:
    clock = TwoClocks()
    broker = reopen(fs, clock)
    broker.create_topic("t", 1)
    at_ms = str(clock.wall_ms() + 20_000)
    send(broker, "t", (b"in", {"TIMER_DELAY_SEC": "20"}), (b"at", {"TIMER_DELIVER_MS": at_ms}))
    turn(broker)
    broker.close()
    clock.leap_ms = DAY_MS
    broker = reopen(fs, clock)
    relay(broker)
    assert sorted(values(broker, "t")) == [b"at", b"in"]


@pytest.mark.parametrize("leap_ms", [-3_600_000, 3_600_000])
def test_records_of_many_times_in_one_frame_keep_their_times_over_leaps(fs: FaultyFileSystem, leap_ms: int) -> None:
    clock = TwoClocks()
    broker = reopen(fs, clock, segment_bytes=4 << 20)
    broker.create_topic("t", 1)
    clock.leap(broker, leap_ms)
    clock.leap(broker, -leap_ms)
    send(broker, "t", *[(b"%04d" % at, {"TIMER_DELAY_MS": str(10_000 + 10 * at)}) for at in range(1_000)])
    relay(broker)
    for upto in (0, 333, 666):
        clock.leap(broker, -7_200_000)
        pass_ms(broker, clock, 10_000 + 10 * upto + 5 - (clock.now_ms - 1_700_000_000_000))
        assert len(values(broker, "t")) == upto + 1


def test_what_was_due_while_the_machine_slept_is_delivered_a_little_at_a_time(fs: FaultyFileSystem) -> None:
    clock = TwoClocks()
    broker = reopen(fs, clock)
    broker.create_topic("t", 1)
    for number in range(3_000):
        send(broker, "t", (b"%d" % number, {"TIMER_DELAY_MS": str(10_000 + number)}))
    relay(broker)
    clock.leap_ms = DAY_MS
    broker.relays.wake_alarms()
    steps = 0
    while broker.relays.has_work:
        broker.relays.step()
        steps += 1
    turn(broker)
    assert len(values(broker, "t")) == 3_000
    assert steps > 3_000


# -- restarts and crashes ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lose", [False, True])
@pytest.mark.parametrize("after", ["close", "kill", "power_loss"])
def test_what_waits_is_delivered_once_after_a_restart(
    broker: BareNode, fs: FaultyFileSystem, clock: VirtualClock, after: str, lose: bool
) -> None:
    broker.create_topic("t", 1)
    for number in range(40):
        send(broker, "t", (b"%02d" % number, {"TIMER_DELAY_MS": str(1_000 * (1 + number % 4))}), (bytes(2_000), {}))
        relay(broker)
    pass_ms(broker, clock, 2_001)
    if after == "close":
        broker.close()
    else:
        fs = getattr(fs, after)()
    if lose:
        lose_derived(fs)
    broker = reopen(fs, clock)
    relay(broker)
    assert len(broker.waiting.deliveries) == 20
    pass_ms(broker, clock, 5_000)
    delivered = [value for value in values(broker, "t") if value is not None and len(value) == 2]
    expected = [b"%02d" % number for late in range(4) for number in range(40) if number % 4 == late]
    assert delivered == expected
    assert len(broker.waiting.deliveries) == 0


def test_what_comes_while_the_wheel_is_made_is_delivered_once(
    broker: BareNode, fs: FaultyFileSystem, clock: VirtualClock
) -> None:
    broker.create_topic("t", 1)
    send(broker, "t", (b"before", {"DELAY": "1"}))
    relay(broker)
    fs = fs.kill()
    broker = reopen(fs, clock)
    send(broker, "t", (b"after", {"DELAY": "1"}))
    turn(broker)  # it is there before the relays have had a turn
    relay(broker)
    pass_ms(broker, clock, 5_000)
    assert values(broker, "t") == [b"before", b"after"]


def test_the_proof_of_a_delivery_may_expire_before_the_message(fs: FaultyFileSystem, clock: VirtualClock) -> None:
    """The waiting topic keeps its segment; the topic that was delivered to has forgotten the delivery long ago."""
    broker = reopen(fs, clock)
    broker.create_topic("t", 1, {"retention.ms": "1000"})
    broker.create_topic("other", 1, {"retention.ms": "1000"})
    send(broker, "t", (b"far", {"TIMER_DELAY_MS": str(30 * DAY_MS)}), (b"near", {"TIMER_DELAY_MS": "10"}))
    relay(broker)
    pass_ms(broker, clock, 11)
    assert values(broker, "t") == [b"near"]
    for _ in range(60):
        send(broker, "other", (bytes(5_000), {}))
        turn(broker)
    clock.now_ms += DAY_MS
    for _ in range(2):
        while not broker.housekeeping.retain():
            pass
        turn(broker)
    assert values(broker, "t") == []
    fs = fs.power_loss()
    lose_derived(fs)
    broker = reopen(fs, clock)
    relay(broker)
    assert values(broker, "t") == []
    pass_ms(broker, clock, 30 * DAY_MS)
    assert values(broker, "t") == [b"far"]


def retain(broker: BareNode) -> None:
    for _ in range(3):
        while not broker.housekeeping.retain():
            pass
        relay(broker)


@pytest.mark.parametrize("after", ["nothing", "kill", "power_loss"])
def test_a_few_that_wait_long_do_not_keep_the_log(fs: FaultyFileSystem, clock: VirtualClock, after: str) -> None:
    """Disk is at most what waits takes, and two segments (and the active one)."""
    broker = reopen(fs, clock)
    broker.create_topic("t", 1, {"retention.ms": "1000"})
    expected = []
    for number in range(120):
        far = number % 12 == 0
        delay_ms = 30 * DAY_MS + number if far else 50
        send(broker, "t", (b"%03d" % number, {"TIMER_DELAY_MS": str(delay_ms)}), (bytes(9_000), {}))
        relay(broker)
        if far:
            expected.append(b"%03d" % number)
        pass_ms(broker, clock, 100)
    before = len(broker.log.segments)
    clock.now_ms += DAY_MS
    retain(broker)
    assert broker.waiting.moved > 0
    assert len(broker.log.segments) <= 4 < before
    if after != "nothing":
        fs = getattr(fs, after)()
        lose_derived(fs)
        broker = reopen(fs, clock)
        relay(broker)
    assert len(partition_of(broker, TIMER_TOPIC).pending or ()) == 10
    pass_ms(broker, clock, 28 * DAY_MS)
    assert not set(values(broker, "t")) & set(expected)
    pass_ms(broker, clock, 2 * DAY_MS)
    assert values(broker, "t")[-10:] == expected
    assert len(set(values(broker, "t")) & set(expected)) == 10
    assert found(broker, "t")[-1][3]["halfmoon.original-timestamp"] == b"500"


def test_rolling_keeps_where_each_goes_and_when_and_how(broker: BareNode, clock: VirtualClock) -> None:
    broker.create_topic("t", 3)
    send(broker, "t", (b"a", {"DELAY": "3"}), (b"b", {"DELAY": "3", "x": "y"}), index=1, codec=4)
    send(broker, "t", (b"c", {"TIMER_DELAY_SEC": "5"}), (b"d", {"TIMER_DELAY_SEC": "5"}), index=2)
    relay(broker)
    broker.waiting.reclaim._upto = broker.log.end
    broker.relays.wake(broker.waiting.reclaim)
    relay(broker)
    assert broker.waiting.moved == 4
    assert partition_of(broker, LEVEL_TOPIC, 2).next_offset == 4
    pass_ms(broker, clock, 5_001)
    assert [values(broker, "t", index) for index in range(3)] == [[], [], [b"c", b"d"]]
    pass_ms(broker, clock, 5_000)
    assert [values(broker, "t", index) for index in range(3)] == [[], [b"a", b"b"], [b"c", b"d"]]
    assert found(broker, "t", 1)[1][3]["x"] == b"y"


def test_what_is_due_is_not_moved_and_delivered(broker: BareNode, clock: VirtualClock) -> None:
    """Rolling and delivering take turns between the frames of a slice."""
    broker.create_topic("t", 1)
    for number in range(20):
        send(broker, "t", (b"%d" % number, {"TIMER_DELAY_MS": str(1_000 + number)}))
    relay(broker)
    clock.now_ms += 2_000
    broker.waiting.reclaim._upto = broker.log.end
    broker.relays.wake(broker.waiting.deliveries)
    broker.relays.wake(broker.waiting.reclaim)
    relay(broker)
    pass_ms(broker, clock, 10_000)
    assert values(broker, "t") == [b"%d" % number for number in range(20)]


def test_a_lost_index_file_loses_no_message(fs: FaultyFileSystem, clock: VirtualClock) -> None:
    """Index files that recovery writes do not end within a frame group."""
    broker = reopen(fs, clock)
    broker.create_topic("t", 1)
    rows: list[Row] = [(b"%02d" % n + bytes(900), {"TIMER_DELAY_MS": str(100_000 + n)}) for n in range(40)]
    send(broker, "t", *rows)
    relay(broker)
    fs = fs.kill()
    broker = reopen(fs, clock)
    relay(broker)
    broker.close()
    files = [path for path in fs.names if path.startswith("index/")]
    for path in files:
        there = fs.kill()
        there.remove(path)
        there.sync_directory("")
        broker = reopen(there, VirtualClock())
        broker_clock = broker.clock
        assert isinstance(broker_clock, VirtualClock)
        pass_ms(broker, broker_clock, 300_000)
        assert values(broker, "t") == [value for value, _ in rows]
        assert not broker.report.damaged


def test_timestamps_as_far_apart_as_they_can_be(broker: BareNode, clock: VirtualClock) -> None:
    broker.create_topic("t", 1)
    body = bytearray()
    for index, timestamp in enumerate((-(1 << 63), (1 << 63) - 1)):
        record_codec.write(body, index, timestamp, None, b"%d" % index, [("TIMER_DELAY_MS", b"1000")])
    header = BatchHeader(0, 0, -1, MAGIC, 0, 0, 1, 0, (1 << 63) - 1, -1, -1, -1, 2)
    broker.append(partition_of(broker, "t"), memoryview(bytearray(assemble(header, body))), clock.now_ms)
    send(broker, "t", (b"2", {"TIMER_DELAY_MS": "1500"}))
    pass_ms(broker, clock, 2_000)
    assert values(broker, "t") == [b"0", b"1", b"2"]
    assert found(broker, "t")[0][3]["halfmoon.original-timestamp"] == str(-(1 << 63)).encode()


def test_what_is_lost_to_rot_keeps_nothing(broker: BareNode, clock: VirtualClock) -> None:
    broker.create_topic("t", 1)
    for number in range(3):
        send(broker, "t", (b"%d" % number, {"TIMER_DELAY_MS": "5000"}))
    relay(broker)
    partition = partition_of(broker, TIMER_TOPIC)
    partition.queue.lose(0, 1)
    assert due_start(partition, clock.now_ms)[0] == 1
    pass_ms(broker, clock, 10_000)
    assert values(broker, "t") == [b"1", b"2"]
    assert due_start(partition, clock.now_ms)[0] == 3


def test_where_messages_wait_is_nobody_elses(fs: FaultyFileSystem, clock: VirtualClock) -> None:
    loaded = load_plugins(load_settings({}, {}, {}), BUILT_IN, installed=[])
    broker = open_broker(fs, clock, interceptors=loaded.interceptors)
    for name in (TIMER_TOPIC, LEVEL_TOPIC, HALF_TOPIC):
        with pytest.raises(BrokerError) as caught:
            broker.create_topic(name, 1)
        assert caught.value.fault is Fault.INVALID_TOPIC_EXCEPTION
    broker.create_topic("t", 1)
    send(broker, "t", (b"v", {"DELAY": "1"}))
    topic = broker.topic(LEVEL_TOPIC)
    assert topic is not None
    with pytest.raises(BrokerError) as caught:
        broker.delete_topic(topic)
    assert caught.value.fault is Fault.POLICY_VIOLATION


def test_a_half_message_with_a_delay_waits_for_its_commit(fs: FaultyFileSystem, clock: VirtualClock) -> None:
    """So others come before the delays, which would take it and have it delivered."""
    loaded = load_plugins(load_settings({}, {}, {}), BUILT_IN, installed=[])
    broker = open_broker(fs, clock, interceptors=loaded.interceptors, relays=loaded.relays)
    for context in loaded.contexts:
        context.attach(Host(broker, "unused"))
    broker.create_topic("t", 1)
    named = {"PGROUP": "shop", "UNIQ_KEY": "k"}
    send(broker, "t", (b"v", {"TRAN_MSG": "true", "DELAY": "1", **named}))
    pass_ms(broker, clock, 5_000)
    assert values(broker, "t") == []
    send(broker, "halfmoon.transactions", (b"", {"TRAN_STATE": "commit", **named}))
    relay(broker)
    assert values(broker, "t") == [b"v"]


def play(fs: FaultyFileSystem, clock: VirtualClock, acknowledged: set[bytes]) -> None:
    """Raises ProcessDied somewhere, if the file system says so."""
    broker = reopen(fs, clock)
    broker.create_topic("t", 1)
    dice = random.Random(1)
    for step in range(25):
        rows: list[Row] = [
            (b"%03d" % (10 * step + at), {"TIMER_DELAY_MS": str(dice.choice([5, 50, 500]))} if at % 3 else {})
            for at in range(6)
        ]
        send(broker, "t", *rows, (bytes(3_000), {}), producer_id=3, producer_epoch=0, base_sequence=7 * step)
        broker.when_durable(
            broker.log.end, lambda error, rows=rows: None if error else acknowledged.update(v for v, _ in rows)
        )  # type: ignore[misc]
        relay(broker)
        pass_ms(broker, clock, dice.choice([1, 20, 200]))
        if step == 15:
            broker.close()
            broker = reopen(fs, clock)
        broker.housekeeping.turn()


@pytest.mark.timeout(300)
def test_dying_at_any_operation_delivers_everything_once() -> None:
    for fs, clock, acknowledged in deaths(play, set[bytes], least=200):
        broker = reopen(fs, clock)
        relay(broker)
        pass_ms(broker, clock, 1_001)
        if broker.topic("t") is None:
            assert not acknowledged
            continue
        there = [value for value in values(broker, "t") if value is not None and len(value) == 3]
        assert len(there) == len(set(there))
        assert acknowledged <= set(there)
        assert len(broker.waiting.deliveries) == 0
        # A batch is there as a whole or not at all.
        assert all(len([v for v in there if int(v or 0) // 10 == step]) in (0, 6) for step in range(25))


# -- topics that nobody claims -----------------------------------------------------------------------------------------


def test_a_message_that_is_to_wait_where_nobody_claims_to_is_refused(fs: FaultyFileSystem, clock: VirtualClock) -> None:
    taker = PutInterceptor("taker", NAMES, Delays([1_000], 40 * DAY_MS).before_put, scheduled_topics=(TIMER_TOPIC,))
    broker = open_broker(fs, clock, interceptors=[taker])
    broker.create_topic("t", 1)
    end = broker.log.end
    with pytest.raises(BrokerError, match=f"no interceptor lists '{LEVEL_TOPIC}' in its scheduled_topics"):
        send(broker, "t", (b"a", {"DELAY": "1"}), (b"b", {}))
    assert broker.log.end == end
    assert broker.topic(LEVEL_TOPIC) is None
    send(broker, "t", (b"a", {"TIMER_DELAY_MS": "5"}))
    pass_ms(broker, clock, 10)
    assert values(broker, "t") == [b"a"]


@pytest.mark.parametrize("moves", [False, True])
def test_messages_of_others_wait_on_beside_those_that_come(
    fs: FaultyFileSystem, clock: VirtualClock, moves: bool
) -> None:
    """Also when they are moved out of old segments, and when the broker dies."""
    broker = reopen(fs, clock)
    broker.create_topic("t", 1)
    send(broker, "t", (b"level", {"DELAY": "1"}), (b"time", {"TIMER_DELAY_MS": "5"}))
    relay(broker)
    timers = PutInterceptor("timers", NAMES, Delays([], 40 * DAY_MS).before_put, scheduled_topics=(TIMER_TOPIC,))
    for _ in range(2):
        fs = fs.kill()
        broker = open_broker(fs, clock, interceptors=[timers])
        if moves:
            broker.waiting.reclaim._upto = broker.log.end
            broker.relays.wake(broker.waiting.reclaim)
        pass_ms(broker, clock, 5_000)
        assert values(broker, "t") == [b"time"]
        assert broker.waiting.waiting() == 1
    broker = reopen(fs.kill(), clock)
    pass_ms(broker, clock, 5_000)
    assert values(broker, "t") == [b"time", b"level"]
