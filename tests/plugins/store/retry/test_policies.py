"""Retry policies at work: what is handed back comes again when its policy says so, or is a dead letter."""

from __future__ import annotations

import json
from typing import Any

import pytest

from halfmoon.config.sections import decode_section
from halfmoon.errors import BrokerError, Fault
from halfmoon.plugins.store.delay.delays import LEVEL_TOPIC, NAMES, TIMER_TOPIC, Delays
from halfmoon.plugins.store.retry.plugin import Retries, _draw
from halfmoon.plugins.store.retry.policies import Policies, RetrySettings
from halfmoon.schema.group_topics import dead_letter_topic, retry_topic
from halfmoon.services.waiting.types import PutInterceptor
from halfmoon.testing.faulty_files import FaultyFileSystem
from halfmoon.testing.node import BareNode
from tests.core.bench import VirtualClock, open_broker, relay
from tests.core.relay_bench import deaths, found, lose_derived, pass_ms, send, values

GROUP = "billing"
RETRY, DEAD = retry_topic(GROUP), dead_letter_topic(GROUP)
WAITING = (LEVEL_TOPIC, TIMER_TOPIC)


class Rig:
    """A broker with these policies in its broker.yaml, which can be brought up again from what is on its disk."""

    def __init__(self, fs: FaultyFileSystem, clock: VirtualClock, **policies: Any) -> None:
        self.fs, self.clock = fs, clock
        self.settings = decode_section(RetrySettings, {"policies": policies}, "$.plugins.retry")
        self.open()
        self.broker.create_topic("orders", 1)
        self.broker.create_topic(RETRY, 1)

    def open(self) -> None:
        def was_nacked(group: str, topic: str, index: int, offset: int) -> bool:
            there = self.broker.topic(topic)
            return there is not None and self.broker.state.nacked.was_nacked(group, there.partitions[index], offset)

        policies = Policies(self.settings, lambda group: self.broker.group_configs.overrides(group))
        self.retries = Retries(policies, was_nacked)
        retry = PutInterceptor("retry", (), self.retries.before_put, ("retry.",), in_slices=self.retries.in_slices)
        delay = PutInterceptor("delay", NAMES, Delays([1_000] * 18, 10**9).before_put, scheduled_topics=WAITING)
        self.broker = open_broker(self.fs, self.clock, interceptors=[retry, delay])

    def lose_power(self) -> None:
        self.fs = self.fs.power_loss()
        lose_derived(self.fs)
        self.open()

    def hand_back(self, value: bytes = b"v", topic: str = RETRY, **headers: str) -> None:
        send(self.broker, topic, (value, headers))
        relay(self.broker)

    def delay_of(self, attempts: int, **headers: str) -> int:
        """How long it takes until what was handed back so often comes again; the clock's last ms is the delays'."""
        before = len(values(self.broker, RETRY))
        self.hand_back(RECONSUME_TIME=str(attempts), **headers)
        waited = 0
        while len(values(self.broker, RETRY)) == before:
            pass_ms(self.broker, self.clock, 1)
            waited += 1
            assert waited < 10_000
        return waited - 1


def headers_of(broker: BareNode, topic: str, index: int = 0) -> dict[str, bytes | None]:
    return dict(found(broker, topic)[index][3])


def test_steps_and_then_a_dead_letter(fs: FaultyFileSystem, clock: VirtualClock) -> None:
    rig = Rig(fs, clock, billing={"steps": ["10ms", "30ms"]})
    assert [rig.delay_of(attempts) for attempts in (0, 1)] == [10, 30]
    assert headers_of(rig.broker, RETRY, 1)["halfmoon.delayed"] == b"TIMER_DELAY_MS=30"
    rig.hand_back(RECONSUME_TIME="2")
    assert headers_of(rig.broker, DEAD)["halfmoon.reason"] == b"negatively acknowledged 2 times"


def test_an_exponential_delay(fs: FaultyFileSystem, clock: VirtualClock) -> None:
    rig = Rig(fs, clock, **{"bill*": {"delay": "10ms", "factor": 3, "max_delay": "50ms"}})
    assert [rig.delay_of(attempts) for attempts in range(4)] == [10, 30, 50, 50]


def test_jitter_is_spread_and_the_same_for_the_same_record(fs: FaultyFileSystem, clock: VirtualClock) -> None:
    rig = Rig(fs, clock, billing={"steps": ["100ms"], "jitter": 0.5, "max_attempts": 50})
    found = {rig.delay_of(1, RETRY_OF=f"orders/0/{number}") for number in range(20)}
    assert 50 <= min(found) <= 70
    assert 130 <= max(found) <= 150
    draws = [_draw(("orders", 0, number), 0, 1, 7) for number in range(1_000)]
    assert all(0 <= draw < 1 for draw in draws)
    assert 0.45 < sum(draws) / 1_000 < 0.55
    assert draws[3] == _draw(("orders", 0, 3), 0, 1, 7)


def test_a_delay_of_the_negative_acknowledgement_counts_before_the_policy(
    fs: FaultyFileSystem, clock: VirtualClock
) -> None:
    rig = Rig(fs, clock, billing={"steps": ["10ms"], "max_attempts": 9})
    assert rig.delay_of(0, TIMER_DELAY_MS="77") == 77
    assert rig.delay_of(0, DELAY="2") == 1_000
    assert rig.delay_of(0, DELAY="0") == 10  # as RocketMQ's clients say that the broker is to decide
    assert rig.delay_of(0, DELAY="0", TIMER_DELAY_MS="77") == 10
    rig.hand_back(RECONSUME_TIME="1", MAX_RECONSUME_TIMES="1")
    assert len(found(rig.broker, DEAD)) == 1


def test_an_error_that_is_not_retryable(fs: FaultyFileSystem, clock: VirtualClock) -> None:
    rig = Rig(fs, clock, billing={"not_retryable": ["ValueError"]})
    said = {"RETRY_ERROR_CLASS": "acme.BadOrder, builtins.ValueError", "RETRY_ERROR_MESSAGE": "no total"}
    rig.hand_back(b"a", RETRY_OF="orders/0/5", TIMER_DELAY_MS="3", **said)
    assert headers_of(rig.broker, DEAD) == {
        "RETRY_TOPIC": b"orders", "ORIGIN_MESSAGE_ID": b"orders/0/5", "RECONSUME_TIME": b"0",
        "RETRY_ERROR_CLASS": b"acme.BadOrder, builtins.ValueError", "RETRY_ERROR_MESSAGE": b"no total",
        "halfmoon.reason": b"not retryable: acme.BadOrder (ValueError)",
    }  # fmt: skip
    assert (rig.retries.dead_lettered, rig.retries.not_retryable, rig.retries.retried) == (1, 1, 0)
    rig.hand_back(b"b", RETRY_ERROR_CLASS="acme.Busy", RETRY_ERROR_MESSAGE="later", TIMER_DELAY_MS="0")
    assert headers_of(rig.broker, RETRY) == {"RECONSUME_TIME": b"1"}
    assert (rig.retries.dead_lettered, rig.retries.not_retryable, rig.retries.retried) == (1, 1, 1)


def test_another_dead_letter_topic_says_whose_its_dead_letters_are(fs: FaultyFileSystem, clock: VirtualClock) -> None:
    rig = Rig(fs, clock, billing={"dead_letter_topic": "dlq.shared", "dead_letter_retention": "30d"})
    rig.hand_back(DELAY="-1")
    assert headers_of(rig.broker, "dlq.shared")["__dlq.errors.group"] == b"billing"
    topic = rig.broker.topic("dlq.shared")
    assert topic is not None
    assert topic.configs == {"retention.ms": str(30 * 86_400_000)}
    assert rig.broker.topic(DEAD) is None


def test_a_dead_letter_of_another_group_is_no_longer_its(fs: FaultyFileSystem, clock: VirtualClock) -> None:
    """A group that consumes another's dead letters, and hands one of them back."""
    rig = Rig(fs, clock)
    rig.hand_back(DELAY="-1", **{"__dlq.errors.group": "others"})
    assert "__dlq.errors.group" not in headers_of(rig.broker, DEAD)


def test_what_the_group_states_counts_before_broker_yaml_and_after_a_crash(
    fs: FaultyFileSystem, clock: VirtualClock
) -> None:
    rig = Rig(fs, clock, billing={"steps": ["10ms"]})
    rig.broker.group_configs.alter(GROUP, {"halfmoon.retry.steps": "20ms,40ms"})
    assert rig.delay_of(1) == 40
    rig.lose_power()
    assert rig.delay_of(1) == 40
    rig.broker.group_configs.alter(GROUP, {})
    assert rig.delay_of(0) == 10


def test_what_a_group_cannot_state(fs: FaultyFileSystem, clock: VirtualClock) -> None:
    rig = Rig(fs, clock)
    with pytest.raises(BrokerError, match=r"invalid value '10' for group config halfmoon\.retry\.steps: '10' is no "):
        rig.broker.group_configs.alter(GROUP, {"halfmoon.retry.steps": "10"})
    with pytest.raises(BrokerError, match=r"unknown group config name: halfmoon\.retry\.step"):
        rig.broker.group_configs.alter(GROUP, {"halfmoon.retry.step": "10s"})


def test_a_message_has_a_policy_of_its_own(fs: FaultyFileSystem, clock: VirtualClock) -> None:
    rig = Rig(fs, clock, billing={"steps": ["10ms"], "not_retryable": ["A"]})
    own = json.dumps({"steps": ["5ms", "7ms"], "dead_letter_topic": "dlq.own"})
    assert [rig.delay_of(attempts, RETRY_POLICY=own) for attempts in (0, 1)] == [5, 7]
    assert headers_of(rig.broker, RETRY)["RETRY_POLICY"] == own.encode()
    rig.hand_back(RETRY_POLICY=own, RETRY_ERROR_CLASS="A")
    assert headers_of(rig.broker, "dlq.own")["halfmoon.reason"] == b"not retryable: A"
    assert rig.delay_of(0) == 10


def test_records_of_one_batch_with_several_dead_letter_topics(fs: FaultyFileSystem, clock: VirtualClock) -> None:
    rig = Rig(fs, clock)
    records = [
        (b"%d" % number, {"DELAY": "-1", "RETRY_POLICY": json.dumps({"dead_letter_topic": f"dlq.{number % 2}"})})
        for number in range(4)
    ]
    send(rig.broker, RETRY, *records)
    relay(rig.broker)
    assert (values(rig.broker, "dlq.0"), values(rig.broker, "dlq.1")) == ([b"0", b"2"], [b"1", b"3"])
    rig.lose_power()
    assert (values(rig.broker, "dlq.0"), values(rig.broker, "dlq.1")) == ([b"0", b"2"], [b"1", b"3"])


def test_a_policy_that_cannot_be_read_is_refused_and_can_be_dead_lettered(
    fs: FaultyFileSystem, clock: VirtualClock
) -> None:
    rig = Rig(fs, clock)
    with pytest.raises(BrokerError) as caught:
        rig.hand_back(RETRY_POLICY='{"steps": ["soon"]}')
    assert caught.value.fault is Fault.INVALID_RECORD
    assert caught.value.message.startswith("record 0: header RETRY_POLICY.steps[0]: got 'soon', expected a duration")
    assert values(rig.broker, RETRY) == []
    rig.hand_back(RETRY_POLICY='{"steps": ["soon"]}', DELAY="-1")
    assert values(rig.broker, DEAD) == [b"v"]


@pytest.mark.timeout(300)
def test_dying_at_any_operation_redelivers_or_dead_letters_once() -> None:
    """Some errors are retried by the policy's steps, the others are in the topic that it names, at once."""
    policy = {"steps": ["10ms"], "not_retryable": ["Bad"], "dead_letter_topic": "dlq.shared"}

    def hand_back(rig: Rig, number: int) -> None:
        rig.hand_back(
            b"%02d" % number, RETRY_OF=f"orders/0/{number}", RETRY_ERROR_CLASS="Bad" if number % 3 == 0 else "Busy"
        )

    def play(fs: FaultyFileSystem, clock: VirtualClock, _: None) -> None:
        rig = Rig(fs, clock, billing=policy)
        for number in range(9):
            send(rig.broker, "orders", (b"%02d" % number, {}))
            relay(rig.broker)
            for _ in range(2):
                hand_back(rig, number)
            pass_ms(rig.broker, clock, 7)

    for fs, clock, _ in deaths(play, lambda: None):
        rig = Rig.__new__(Rig)
        rig.fs, rig.clock = fs, clock
        rig.settings = decode_section(RetrySettings, {"policies": {"billing": policy}}, "$.plugins.retry")
        rig.open()
        if rig.broker.topic(RETRY) is None or rig.broker.topic("orders") is None:
            continue
        there = [value for value in values(rig.broker, "orders") if value is not None]
        for value in there:
            hand_back(rig, int(value))
        pass_ms(rig.broker, clock, 1_000)
        dead = values(rig.broker, "dlq.shared") if rig.broker.topic("dlq.shared") is not None else []
        assert sorted(v or b"" for v in values(rig.broker, RETRY)) == [value for value in there if int(value) % 3]
        assert sorted(v or b"" for v in dead) == [value for value in there if int(value) % 3 == 0]
