"""What the built-in plugins do where broker.yaml says nothing, which is RocketMQ's numbers and names, and where it says
something else; in virtual time (B19, B29, B30, B32, B35)."""

from __future__ import annotations

from typing import Any

import pytest

from halfmoon.client.engine.sending import DELAY_LEVELS_MS
from halfmoon.config.settings import load_settings
from halfmoon.errors import BrokerError, Fault
from halfmoon.hooks.plugins import load_plugins
from halfmoon.plugins import BUILT_IN
from halfmoon.server.plugin_host import Host
from halfmoon.testing.faulty_files import FaultyFileSystem
from halfmoon.testing.node import BareNode
from tests.core.bench import VirtualClock, open_broker, relay
from tests.core.log_bench import new_fs
from tests.core.relay_bench import found, pass_ms, send, values

SECOND, MINUTE, HOUR, DAY = 1_000, 60_000, 3_600_000, 86_400_000
LEVELS_MS = [
    *(1 * SECOND, 5 * SECOND, 10 * SECOND, 30 * SECOND),
    *(minutes * MINUTE for minutes in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20, 30)),
    *(1 * HOUR, 2 * HOUR),
]
"""RocketMQ's MessageStoreConfig.messageDelayLevel."""
ROUNDED_MS = 1
"""A delay is never shorter than asked for, so it takes a ms more than the clock, which rounds off, says."""
HALF = {"TRAN_MSG": "true", "PGROUP": "shop", "UNIQ_KEY": "k"}


def open_with(fs: FaultyFileSystem, clock: VirtualClock, **plugins: dict[str, Any]) -> BareNode:
    """A broker with all built-in plugins. `plugins`: what `$.plugins` says, by plugin."""
    loaded = load_plugins(load_settings({"plugins": plugins}, {}, {}), BUILT_IN, installed=[])
    broker = open_broker(fs, clock, interceptors=loaded.interceptors, relays=loaded.relays)
    for context in loaded.contexts:
        context.attach(Host(broker, "unused"))
    broker.create_topic("orders", 1)
    return broker


@pytest.fixture
def fs() -> FaultyFileSystem:
    return new_fs()


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def broker(fs: FaultyFileSystem, clock: VirtualClock) -> BareNode:
    return open_with(fs, clock)


def waits_in(broker: BareNode, topic: str) -> list[int]:
    """The partitions of an internal topic that hold a record."""
    there = broker.topic(topic)
    assert there is not None
    assert there.internal
    return [partition.index for partition in there.partitions if partition.high_watermark]


# -- delays ------------------------------------------------------------------------------------------------------------


def level_takes(broker: BareNode, clock: VirtualClock, level: int, delay_ms: int, index: int) -> None:
    """A record of this level waits in its queue for so long, and no longer."""
    assert send(broker, "orders", (b"v", {"DELAY": str(level)})) == -1
    relay(broker)
    assert waits_in(broker, "SCHEDULE_TOPIC_XXXX") == [index]
    pass_ms(broker, clock, delay_ms)
    assert values(broker, "orders") == []
    pass_ms(broker, clock, ROUNDED_MS)
    assert values(broker, "orders") == [b"v"]


@pytest.mark.parametrize(("level", "delay_ms"), list(enumerate(LEVELS_MS, 1)))
def test_each_level_takes_its_time(broker: BareNode, clock: VirtualClock, level: int, delay_ms: int) -> None:
    level_takes(broker, clock, level, delay_ms, level - 1)


@pytest.mark.parametrize("level", [*range(19, 38), 99, 1_000, 10**17])
def test_a_level_above_the_last_is_the_last(broker: BareNode, clock: VirtualClock, level: int) -> None:
    level_takes(broker, clock, level, 2 * HOUR, 17)


@pytest.mark.parametrize("levels", ["7s", "7s 8s", "7s 8s 9s"])
@pytest.mark.parametrize("beyond", [1, 2, 3, 4, 5])
def test_the_last_of_fewer_levels(fs: FaultyFileSystem, clock: VirtualClock, levels: str, beyond: int) -> None:
    broker = open_with(fs, clock, delay={"levels": levels})
    last = len(levels.split())
    level_takes(broker, clock, last + beyond, (6 + last) * SECOND, last - 1)


def test_the_client_which_says_when_a_message_is_to_come_knows_the_same_levels() -> None:
    assert list(DELAY_LEVELS_MS) == LEVELS_MS


def test_the_longest_delay_is_40_days(broker: BareNode, clock: VirtualClock) -> None:
    for late in (
        {"TIMER_DELAY_MS": str(40 * DAY + 1)},
        {"TIMER_DELAY_SEC": str(40 * 86_400 + 1)},
        {"TIMER_DELIVER_MS": str(clock.now_ms + 40 * DAY + 1)},
    ):
        with pytest.raises(BrokerError, match="that is more than 40d from now") as caught:
            send(broker, "orders", (b"v", late))
        assert caught.value.fault is Fault.INVALID_RECORD
    send(broker, "orders", (b"v", {"TIMER_DELAY_MS": str(40 * DAY)}))
    relay(broker)
    assert waits_in(broker, "halfmoon.timers") == [0]
    pass_ms(broker, clock, 40 * DAY)
    assert values(broker, "orders") == []
    pass_ms(broker, clock, ROUNDED_MS)
    assert values(broker, "orders") == [b"v"]


def test_the_longest_delay_is_a_setting(fs: FaultyFileSystem, clock: VirtualClock) -> None:
    broker = open_with(fs, clock, delay={"max_delay": "50d"})
    with pytest.raises(BrokerError, match="that is more than 50d from now"):
        send(broker, "orders", (b"v", {"TIMER_DELAY_MS": str(50 * DAY + 1)}))
    assert send(broker, "orders", (b"v", {"TIMER_DELAY_MS": str(50 * DAY)})) == -1


# -- retries -----------------------------------------------------------------------------------------------------------


def test_a_record_comes_again_16_times_later_each_time(broker: BareNode, clock: VirtualClock) -> None:
    broker.create_topic("retry.billing", 1)
    headers: dict[str, str] = {}
    for times, delay_ms in enumerate(LEVELS_MS[2:], 1):
        send(broker, "retry.billing", (b"v", headers))
        relay(broker)
        pass_ms(broker, clock, delay_ms)
        assert len(values(broker, "retry.billing")) == times - 1
        pass_ms(broker, clock, ROUNDED_MS)
        rows = found(broker, "retry.billing")
        assert len(rows) == times
        headers = {name: (text or b"").decode() for name, text in rows[-1][3].items()}
        assert headers["RECONSUME_TIME"] == str(times)
    assert times == 16
    assert broker.topic("dlq.billing") is None
    send(broker, "retry.billing", (b"v", headers))
    relay(broker)
    ((_, value, _, given_up),) = found(broker, "dlq.billing")
    assert (value, given_up["halfmoon.reason"]) == (b"v", b"negatively acknowledged 16 times")
    pass_ms(broker, clock, 10 * DAY)
    assert len(values(broker, "retry.billing")) == 16


@pytest.mark.parametrize(("most", "given_up"), [(0, True), (1, True), (2, False)])
def test_how_often_a_record_comes_again_is_a_setting(
    fs: FaultyFileSystem, clock: VirtualClock, most: int, given_up: bool
) -> None:
    broker = open_with(fs, clock, retry={"max_reconsume_times": most})
    broker.create_topic("retry.billing", 1)
    send(broker, "retry.billing", (b"v", {"RECONSUME_TIME": "1"}))
    relay(broker)
    assert (broker.topic("dlq.billing") is not None) == given_up


# -- half messages -----------------------------------------------------------------------------------------------------


def test_who_does_not_say_is_asked_after_6_s_and_every_30_s_15_times(broker: BareNode, clock: VirtualClock) -> None:
    send(broker, "orders", (b"v", HALF))
    relay(broker)
    assert waits_in(broker, "RMQ_SYS_TRANS_HALF_TOPIC") == [0]
    for times in range(1, 16):
        pass_ms(broker, clock, 6 * SECOND - 1 if times == 1 else 30 * SECOND - 1)
        asked = [] if broker.topic("check.shop") is None else values(broker, "check.shop")
        assert len(asked) == times - 1
        pass_ms(broker, clock, 1)
        assert found(broker, "check.shop")[-1][3]["TRAN_CHECK_TIMES"] == str(times).encode()
        assert len(found(broker, "check.shop")) == times
    pass_ms(broker, clock, 30 * SECOND - 1)
    assert broker.topic("TRANS_CHECK_MAX_TIME_TOPIC") is None
    pass_ms(broker, clock, 1)
    assert values(broker, "TRANS_CHECK_MAX_TIME_TOPIC") == [b"v"]
    pass_ms(broker, clock, 10 * DAY)
    assert len(values(broker, "check.shop")) == 15
    assert values(broker, "orders") == []


@pytest.mark.parametrize(("age_ms", "asked"), [(72 * HOUR - 1, 2), (72 * HOUR, 1)])
def test_a_half_message_is_given_up_at_72_h(fs: FaultyFileSystem, clock: VirtualClock, age_ms: int, asked: int) -> None:
    """`age_ms`: when the second check would be, which takes checks that are days apart."""
    broker = open_with(fs, clock, transaction={"check_interval": f"{age_ms - 6 * SECOND}ms"})
    send(broker, "orders", (b"v", HALF))
    relay(broker)
    pass_ms(broker, clock, age_ms)
    assert len(values(broker, "check.shop")) == asked
    given_up = broker.topic("TRANS_CHECK_MAX_TIME_TOPIC")
    assert (given_up is None) == (asked == 2)
