"""Options whose defaults are RocketMQ's numbers: another number is what the client then does (B15, B16, B19 to B21,
B24). What the defaults do stands with each behaviour."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest

import halfmoon.client.aio.consumers as aio_consumers
import halfmoon.client.threads.consumers as thread_consumers
from halfmoon.client.engine.consumer_settings import ConsumerSettings
from halfmoon.client.engine.listening import Context, Status
from halfmoon.client.engine.lite_pulling import LiteSettings
from halfmoon.client.engine.producing import ProducerSettings
from halfmoon.client.errors import ConfigError
from halfmoon.client.messages import ReceivedMessage
from tests.client.fake_broker import (
    HEARTBEAT,
    LOCK,
    MOVED,
    PULL,
    QUERY_OFFSET,
    SEND,
    SEND_BACK,
    UNLOCK,
    UPDATE_OFFSET,
    FakeBroker,
    many,
    pulled,
    stored,
)
from tests.client.test_pull_consumers import lite
from tests.client.test_pulling import Listener
from tests.client.world import Takes, World

ROUTE = 105
MINUTE = 60_000


def takes(ms: float) -> Any:
    """A listener that takes so long for each message."""
    return lambda messages, context: Takes(ms, Status.SUCCESS)


@pytest.mark.parametrize("most", [1, 5, 16, 40])
def test_how_many_expired_messages_go_back_in_one_pass(most: int) -> None:
    world = World()
    broker = FakeBroker(world)
    broker.pulls = [pulled(0, 40, many(range(40)))]
    world.client().consumer("g", takes(7_200_000), "t", threads=40, most_expired=most)
    world.run_ms(31 * MINUTE)
    assert len(broker.of(SEND_BACK)) == most
    world.run_ms(15 * MINUTE)
    assert len(broker.of(SEND_BACK)) == min(40, 2 * most)


def test_when_messages_are_consumed_here_again() -> None:
    world = World()
    broker = FakeBroker(world)
    broker.send_back_code = 1
    broker.answers[SEND] = (13, {}, b"")
    broker.pulls = [pulled(0, 1, stored(0))]
    seen: list[float] = []

    def listener(messages: Sequence[ReceivedMessage], context: Context) -> Status:
        seen.append(world.now_ms)
        return Status.RECONSUME_LATER

    world.client().consumer("g", listener, "t", consume_again_ms=700)
    world.run_ms(2_000)
    assert seen == [0, 700, 1_400]


def test_when_a_queue_with_enough_is_looked_at_again() -> None:
    world = World()
    broker = FakeBroker(world)
    broker.pulls = [pulled(0, 3, many(range(3)))]
    world.client().consumer("g", takes(1_000), "t", most_cached=1, flow_control_ms=4_000)
    world.run_ms(3_900)
    assert broker.times(PULL) == [0]
    world.run_ms(200)
    assert broker.times(PULL) == [0, 4_000]


def test_when_a_paused_consumer_looks_again() -> None:
    world = World()
    broker = FakeBroker(world)
    consuming = world.client().consumer("g", Listener(), "t", start=False, paused_ms=9_000)
    consuming.is_paused = True
    world.clients[0].do(consuming.start())
    world.run_ms(100)
    consuming.is_paused = False
    world.run_ms(10_000)
    assert broker.times(PULL) == [9_000]


def test_when_a_queue_is_pulled_again_after_a_failure() -> None:
    world = World()
    broker = FakeBroker(world)
    broker.pulls = [(1, {}, b"")] * 2
    world.client().consumer("g", Listener(), "t", pull_failed_ms=800)
    world.run_ms(5_000)
    assert broker.times(PULL) == [0, 800, 1_600]


def test_when_a_queue_without_a_subscription_is_looked_at_again() -> None:
    world = World()
    broker = FakeBroker(world)
    broker.pulls = [pulled(0, 1, stored(0))]
    consuming = world.client().consumer("g", Listener(), "t", pull_interval_ms=500, pull_failed_ms=800)
    world.run_ms(100)
    subscription = consuming.subscriptions.pop("t")
    world.run_ms(500)
    consuming.subscriptions["t"] = subscription
    world.run_ms(2_000)
    assert broker.times(PULL) == [0, 1_300]


def test_when_a_queue_begins_anew() -> None:
    world = World()
    broker = FakeBroker(world)
    broker.pulls = [pulled(MOVED, 500, low=500)]
    world.client().consumer("g", Listener(), "t", moved_ms=2_500)
    world.run_ms(2_400)
    assert not broker.of(UPDATE_OFFSET)
    world.run_ms(200)
    assert broker.times(UPDATE_OFFSET) == [2_500]


def test_how_often_locks_are_renewed() -> None:
    world = World()
    broker = FakeBroker(world)
    world.client().consumer("g", Listener(), "t", ordered=True, lock_renew_ms=7_000)
    world.run_ms(100)
    before = len(broker.of(LOCK, None))
    world.run_ms(21_000)
    assert broker.times(LOCK, None)[before:] == [7_000, 14_000, 21_000]


def test_how_long_a_lock_is_trusted() -> None:
    world = World()
    broker = FakeBroker(world)
    broker.pulls = [pulled(0, 1_000, many(range(1_000)))]
    consumed: list[float] = []

    def listener(messages: Sequence[ReceivedMessage], context: Context) -> Takes:
        consumed.append(world.now_ms)
        return Takes(100, Status.SUCCESS)

    world.client().consumer("g", listener, "t", ordered=True, lock_renew_ms=2_000, lock_trusted_ms=5_000)
    world.run_ms(500)
    broker.answers[LOCK] = None
    world.run_ms(50_000)
    assert 4_800 <= max(consumed) <= 5_000


@pytest.mark.parametrize("again_ms", [3_000, 1_000])
def test_when_a_broker_is_asked_again_for_a_lost_lock(again_ms: int) -> None:
    """And 100 ms later, as for every lock that is not ours."""
    world = World()
    broker = FakeBroker(world)
    broker.pulls = [pulled(0, 1_000, many(range(1_000)))]
    world.client().consumer("g", takes(100), "t", ordered=True, lock_again_ms=again_ms, lock_renew_ms=10_000)
    world.run_ms(9_000)
    broker.locked = False
    world.run_ms(1_500)
    before = len(broker.of(LOCK, None))
    world.run_ms(9_000)
    times = [at_ms for at_ms, command in broker.of(LOCK, None)[before:] if b'"t"' in bytes(command.body)]
    assert {after - before for before, after in pairwise(times)} == {again_ms + 100}


@pytest.mark.parametrize("again_ms", [3_000, 5_000])
def test_when_a_queue_whose_lock_was_lost_is_pulled_again(again_ms: int) -> None:
    world = World()
    broker = FakeBroker(world)
    broker.pulls = [pulled(0, number + 1, stored(number)) for number in range(100)]
    options = {"pull_interval_ms": 100, "lock_renew_ms": 2_000, "lock_again_ms": again_ms}
    world.client().consumer("g", Listener(), "t", ordered=True, **options)
    world.run_ms(1_000)
    broker.locked = False
    world.run_ms(1_500)
    broker.locked = True
    world.run_ms(6_000)
    before, after = next(pair for pair in pairwise(broker.times(PULL)) if pair[1] - pair[0] > 100)
    assert again_ms <= after - before <= again_ms + 100


def test_when_progress_that_could_not_be_learnt_is_asked_for_again() -> None:
    world = World()
    broker = FakeBroker(world)
    broker.pulls = [pulled(0, 1_000, many(range(1_000)))]
    options = {"lock_renew_ms": 2_000, "lock_again_ms": 700}
    world.client().consumer("g", takes(100), "t", ordered=True, **options)
    world.run_ms(1_000)
    broker.locked = False
    world.run_ms(1_500)
    broker.locked = True
    broker.answers[QUERY_OFFSET] = (1, {}, b"")
    world.run_ms(6_000)
    asked = [at_ms for at_ms in broker.times(QUERY_OFFSET) if at_ms > 2_500]
    assert {after - before for before, after in pairwise(asked)} == {700}


def test_how_long_a_queue_is_consumed_without_a_pause() -> None:
    world = World()
    broker = FakeBroker(world)
    broker.pulls = [pulled(0, 1_000, many(range(1_000)))]
    seen: list[float] = []

    def listener(messages: Sequence[ReceivedMessage], context: Context) -> Takes:
        seen.append(world.now_ms)
        return Takes(500, Status.SUCCESS)

    world.client().consumer("g", listener, "t", ordered=True, longest_run_ms=5_000)
    world.run_ms(17_500)
    pauses = [before for before, after in pairwise(seen) if after - before == 510]
    assert pauses == [5_000, 10_510, 16_020]


@pytest.mark.parametrize(("handover_ms", "at_once"), [(1_000, False), (6_000, True)])
def test_how_long_rebalancing_waits_for_a_listener(handover_ms: int, at_once: bool) -> None:
    """It comes again after a second: so here the broker is asked for members only once where it waits long enough."""
    world = World()
    broker = FakeBroker(world)
    broker.members = ["10.0.0.1@c1"]
    broker.pulls = [pulled(0, 3, many(range(3)))]
    consuming = world.client().consumer("g", takes(5_000), "t", ordered=True, handover_ms=handover_ms)
    world.run_ms(1_000)
    broker.members = ["10.0.0.1@c1", "0@a"]
    asked = len(broker.of(38, None))
    consuming.rebalancing.soon()
    world.run_ms(4_200)
    assert any(b'"t"' in bytes(command.body) for _, command in broker.of(UNLOCK, None))
    assert (len(broker.of(38, None)) - asked <= 2) == at_once


@pytest.mark.parametrize("kind", ["producer", "consumer", "lite"])
def test_how_often_brokers_hear_of_us_and_routes_are_asked_for(kind: str) -> None:
    world = World()
    broker = FakeBroker(world)
    client = world.client()
    options = {"heartbeat_ms": 7_000, "route_refresh_ms": 11_000}
    if kind == "producer":
        client.producing(topics=("t",), **options)
    elif kind == "consumer":
        client.consumer("g", Listener(), "t", **options)
    else:
        lite(client, {"t": "*"}, **options)
    names = world.nodes["127.0.0.1:9876"]
    world.run_ms(1_000)
    before = names.count(ROUTE)
    world.run_ms(23_000)
    assert {at_ms for at_ms in broker.times(HEARTBEAT, None) if at_ms > 1_000} == {7_000, 14_000, 21_000}
    refreshed = [command for command in names.asked[before:] if command.fields.get("topic") == "t"]
    assert len(refreshed) == 2


@pytest.mark.parametrize("kind", [ProducerSettings, ConsumerSettings, LiteSettings])
def test_defaults_that_all_clients_share(kind: Any) -> None:
    assert (kind().heartbeat_ms, kind().route_refresh_ms) == (30_000, 30_000)
    for option in ({"heartbeat_ms": 60_001}, {"heartbeat_ms": 99}, {"route_refresh_ms": 99}):
        with pytest.raises(ConfigError, match=next(iter(option))):
            kind(**option)


@pytest.mark.parametrize(
    "method",
    [
        thread_consumers.PullConsumer.pull,
        thread_consumers.LitePullConsumer.poll,
        aio_consumers.PullConsumer.pull,
        aio_consumers.LitePullConsumer.poll,
    ],
)
def test_a_pull_or_poll_asks_for_32_messages(method: Any) -> None:
    assert inspect.signature(method).parameters["most"].default == 32


def test_a_lock_is_renewed_before_it_counts_as_lost() -> None:
    with pytest.raises(ConfigError, match="lock_trusted_ms is 20000, expected more than lock_renew_ms"):
        ConsumerSettings(lock_trusted_ms=20_000)
