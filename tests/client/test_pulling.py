"""Pulling and caching: B14 to B17."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from halfmoon.client.engine.group_queries import ConsumeFrom
from halfmoon.client.engine.listening import Context, Status
from halfmoon.client.messages import Message, ReceivedMessage
from halfmoon.plugin import Queue
from tests.client.fake_broker import (
    MEMBERS,
    MOVED,
    NO_NEW,
    PULL,
    QUERY_OFFSET,
    RETRY,
    UPDATE_OFFSET,
    FakeBroker,
    many,
    pulled,
    stored,
)
from tests.client.world import HALFMOON, Client, Takes, World, bodies

COMMIT, SUSPEND, SUBSCRIPTION = 1, 2, 4


class Listener:
    """Consumes all, and remembers them."""

    def __init__(self, status: Status | None = Status.SUCCESS) -> None:
        self.seen: list[ReceivedMessage] = []
        self.sizes: list[int] = []
        self.status = status

    def __call__(self, messages: Sequence[ReceivedMessage], context: Context) -> Status | None:
        self.seen.extend(messages)
        self.sizes.append(len(messages))
        return self.status


# -- B14 -------------------------------------------------------------------------------------------------------------


def test_b14_a_pull_carries_progress_once_there_is_some(world: World, broker: FakeBroker) -> None:
    broker.pulls = [pulled(0, 3, many(range(3))), pulled(NO_NEW, 3)]
    world.client().consumer("g", Listener(), "t")
    world.run_ms(1_000)
    first, second, third = broker.fields(PULL)
    assert (first["sysFlag"], first["commitOffset"]) == (str(SUSPEND), "0")
    # The listener is called while the next pull is on its way already; the one after that knows.
    assert (third["sysFlag"], third["commitOffset"]) == (str(SUSPEND | COMMIT), "3")
    assert second["queueOffset"] == third["queueOffset"] == "3"
    assert first["suspendTimeoutMillis"] == "15000"
    assert first["maxMsgNums"] == "32"
    assert not int(first["sysFlag"]) & SUBSCRIPTION, "the expression is the heartbeat's"
    assert first["subscription"] == "*", "and yet it stands there"


def test_b14_a_slave_is_not_told_of_progress_with_a_pull(world: World) -> None:
    broker = FakeBroker(world, slave=True)
    broker.pulls = [pulled(0, 3, many(range(3)), node=1), pulled(NO_NEW, 3, node=1), pulled(NO_NEW, 3, node=0)]
    world.client().consumer("g", Listener(), "t")
    world.run_ms(1_000)
    at_slave = [command.fields for command in broker.slave.asked if command.code == PULL]
    at_master = [command.fields for command in broker.master.asked if command.code == PULL]
    assert [each["sysFlag"] for each in at_slave[-1:]] == [str(SUSPEND)]
    assert at_slave[-1]["commitOffset"] == "0"
    assert at_master[-1]["commitOffset"] == "3", "back at the master, it is"


def test_b14_a_broadcasting_consumer_keeps_progress_to_itself(world: World, broker: FakeBroker) -> None:
    broker.pulls = [pulled(0, 3, many(range(3))), pulled(NO_NEW, 3)]
    file = MemoryFile()
    world.client().consumer("g", Listener(), "t", file=file, model="broadcasting")
    world.run_ms(6_000)
    assert {each["commitOffset"] for each in broker.fields(PULL)} == {"0"}
    assert not broker.of(UPDATE_OFFSET)
    assert file.offsets == {Queue("t", "b", 0): 3}


class MemoryFile:
    def __init__(self) -> None:
        self.offsets: dict[Queue, int] = {}

    def load(self) -> dict[Queue, int]:
        return self.offsets

    def save(self, offsets: object) -> None:
        assert isinstance(offsets, dict)
        self.offsets = dict(offsets)


# -- B15 -------------------------------------------------------------------------------------------------------------


def test_b15_what_was_found_is_consumed_and_pulled_again_at_once(world: World, broker: FakeBroker) -> None:
    broker.pulls = [pulled(0, 32, many(range(32))), pulled(0, 40, many(range(32, 40)))]
    listener = Listener()
    consuming = world.client().consumer("g", listener, "t")
    world.run_ms(10)
    assert bodies(listener.seen) == [b"%d" % number for number in range(40)]
    assert broker.times(PULL) == [0, 0, 0]
    assert consuming.counters.pulled == consuming.counters.consumed == 40


def test_b15_offsets_without_matches_are_passed_over_and_progress_with_them(world: World, broker: FakeBroker) -> None:
    broker.pulls = [pulled(RETRY, 800), pulled(NO_NEW, 900)]
    consuming = world.client().consumer("g", Listener(), "t")
    world.run_ms(6_000)
    assert [each["queueOffset"] for each in broker.fields(PULL)] == ["0", "800", "900"]
    assert broker.fields(UPDATE_OFFSET)[-1]["commitOffset"] == "900"
    assert consuming.store.known(Queue("t", "b", 0)) == 900


def test_b15_offsets_without_matches_do_not_pass_what_is_not_dealt_with(world: World, broker: FakeBroker) -> None:
    broker.pulls = [pulled(0, 3, many(range(3))), pulled(RETRY, 800)]
    consuming = world.client().consumer("g", lambda messages, context: Takes(8_000, Status.SUCCESS), "t", threads=3)
    world.run_ms(6_000)
    assert consuming.store.known(Queue("t", "b", 0)) == -1
    world.run_ms(3_000)
    assert consuming.store.known(Queue("t", "b", 0)) == 3


def test_b15_an_illegal_offset_is_replaced_after_ten_seconds(world: World, broker: FakeBroker) -> None:
    broker.pulls = [pulled(MOVED, 500, low=500), pulled(0, 501, stored(500))]
    listener = Listener()
    world.client().consumer("g", listener, "t")
    world.run_ms(9_900)
    assert len(broker.of(PULL)) == 1
    broker.progress = 500
    world.run_ms(200)
    assert broker.fields(UPDATE_OFFSET)[-1]["commitOffset"] == "500"
    assert [message.queue_offset for message in listener.seen] == [500]


def test_b15_a_pull_without_an_answer_is_asked_again(world: World, broker: FakeBroker) -> None:
    """The request's own time-out is 30 s; then, after an exception, 3 s."""
    world.client().consumer("g", Listener(), "t")
    world.run_ms(40_000)
    assert broker.times(PULL) == [0, 33_000]


# -- B16 -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "size"),
    [({"most_cached": 40}, 1), ({"most_cached_bytes": 4_000}, 100), ({"most_span": 40}, 1)],
    ids=["count", "bytes", "span"],
)
def test_b16_a_queue_with_enough_is_looked_at_again_after_50_ms(
    world: World, broker: FakeBroker, client: Client, settings: dict[str, int], size: int
) -> None:
    broker.pulls = [
        pulled(0, 20 * step + 20, b"".join([stored(20 * step + at, b"x" * size) for at in range(20)]))
        for step in range(10)
    ]
    world.is_listening = False
    client.consumer("g", Listener(), "t", **settings)
    world.run_ms(1_000)
    held_up = len(broker.of(PULL))
    assert held_up == 3, "60 are more than 40, and 40 are not"
    for work in client.submitted[:30]:
        client.engine(lambda work=work: work.finished(work, Status.SUCCESS, None))
    began_ms = world.now_ms
    world.run_ms(100)
    assert len(broker.of(PULL)) > held_up
    assert broker.times(PULL)[held_up] - began_ms <= 50


def test_b16_span_does_not_count_in_order(world: World, broker: FakeBroker) -> None:
    broker.pulls = [pulled(0, 1_000 * step + 1, stored(1_000 * step)) for step in range(5)]
    world.is_listening = False
    world.client().consumer("g", Listener(), "t", ordered=True)
    world.run_ms(1_000)
    assert len(broker.of(PULL)) == 6


def test_b16_a_paused_consumer_looks_again_after_a_second(world: World, broker: FakeBroker) -> None:
    consuming = world.client().consumer("g", Listener(), "t", start=False)
    consuming.is_paused = True
    world.clients[0].do(consuming.start())
    world.run_ms(5_500)
    assert not broker.of(PULL)
    consuming.is_paused = False
    world.run_ms(600)
    assert len(broker.of(PULL)) == 1


def test_b16_after_an_exception_the_queue_is_pulled_again_in_three_seconds(world: World, broker: FakeBroker) -> None:
    broker.pulls = [(1, {}, b""), pulled(0, 1, b"garbage"), (0, {"nextBeginOffset": "x"}, b""), pulled(0, 1, stored(0))]
    listener = Listener()
    world.client().consumer("g", listener, "t")
    world.run_ms(10_000)
    assert broker.times(PULL) == [0, 3_000, 6_000, 9_000, 9_000]
    assert len(listener.seen) == 1


def test_b16_a_dropped_queue_is_never_pulled_again(world: World, broker: FakeBroker) -> None:
    broker.pulls = [pulled(NO_NEW, 0)] * 2
    broker.members = ["10.0.0.1@c1"]
    consuming = world.client().consumer("g", Listener(), "t")
    world.run_ms(100)
    pulls = len(broker.of(PULL))
    broker.members = ["10.0.0.1@c1", "0@a"]  # sorts first, and there is one queue
    consuming.rebalancing.soon()
    world.run_ms(100_000)
    assert len(broker.of(PULL)) == pulls
    assert not consuming.owned("t")


# -- B17 -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("consume_from", "expected"),
    [(ConsumeFrom.FIRST, "0"), (ConsumeFrom.LAST, "77"), (ConsumeFrom.TIMESTAMP, "55")],
)
def test_b17_a_group_without_progress_begins_where_it_is_told(
    world: World, broker: FakeBroker, consume_from: ConsumeFrom, expected: str
) -> None:
    broker.progress = None
    broker.answers = {30: (0, {"offset": "77"}, b""), 29: (0, {"offset": "55"}, b"")}
    world.client().consumer("g", Listener(), "t", consume_from=consume_from, consume_from_ms=1_234)
    world.run_ms(100)
    assert broker.fields(PULL)[0]["queueOffset"] == expected
    searched = broker.fields(29)
    assert [each["timestamp"] for each in searched] == (["1234"] if consume_from is ConsumeFrom.TIMESTAMP else [])
    assert broker.fields(PULL, "%RETRY%g")[0]["queueOffset"] == "0", "what was handed back counts from the first"


def test_b17_progress_counts_whatever_the_group_was_told(world: World, broker: FakeBroker) -> None:
    broker.progress = 12
    world.client().consumer("g", Listener(), "t", consume_from=ConsumeFrom.LAST)
    world.run_ms(100)
    assert broker.fields(PULL)[0]["queueOffset"] == "12"


def test_b17_a_queue_whose_progress_cannot_be_learnt_is_taken_later(world: World, broker: FakeBroker) -> None:
    broker.answers[QUERY_OFFSET] = (1, {}, b"")
    consuming = world.client().consumer("g", Listener(), "t")
    world.run_ms(10_000)
    assert not consuming.owned("t")
    assert not broker.of(PULL)
    del broker.answers[QUERY_OFFSET]
    world.run_ms(1_500)
    assert consuming.owned("t"), "looked at again before the 20 s are over"


def test_b17_a_queue_that_comes_back_is_begun_where_the_broker_says(world: World, broker: FakeBroker) -> None:
    broker.members = ["10.0.0.1@c1"]
    broker.pulls = [pulled(0, 3, many(range(3))), pulled(NO_NEW, 3)]
    consuming = world.client().consumer("g", Listener(), "t")
    world.run_ms(1_000)
    broker.members = ["10.0.0.1@c1", "0@a"]
    world.run_ms(20_000)
    assert not consuming.owned("t")
    broker.members, broker.progress = ["10.0.0.1@c1"], 40
    world.run_ms(20_000)
    assert broker.fields(PULL)[-1]["queueOffset"] == "40"
    assert len(broker.of(MEMBERS, None)) >= 3


# -- end to end ------------------------------------------------------------------------------------------------------


def test_messages_reach_a_listener_as_they_were_sent(world: World) -> None:
    world.topic("t", 4)
    sender, listener = world.client(), Listener()
    world.client().consumer("g", listener, "t")
    big = bytes(range(256)) * 40
    results = world.send(
        sender,
        Message("t", b"plain", tags="A", keys=["k1", "k2"], properties={"größe": "ü"}, flag=7, sharding_key="s"),
        Message("t", big),
    )
    world.until(lambda: len(listener.seen) == 2)
    first, second = sorted(listener.seen, key=lambda message: len(message.body))
    assert (first.tags, first.keys, first.flag, first.body) == ("A", ["k1", "k2"], 7, b"plain")
    assert first.properties["größe"] == "ü"
    assert first.message_id == results[0].message_id
    assert first.offset_message_id == results[0].offset_message_id
    assert (first.queue, first.queue_offset) == (results[0].queue, results[0].queue_offset)
    assert second.body == big, "compressed on the way"
    assert first.topic == "t"
    assert first.reconsume_times == 0


def test_a_held_pull_is_answered_when_a_message_comes(world: World) -> None:
    world.topic("t", 1)
    sender, listener = world.client(), Listener()
    world.client().consumer("g", listener, "t")
    world.run_ms(7_000)
    world.send(sender, Message("t", b"x"))
    assert world.until(lambda: listener.seen) == 0


def test_tags_are_compared_a_second_time(world: World) -> None:
    """`Aa` and `BB` have the same hash, so a broker lets both pass (B33)."""
    world.topic("t", 1)
    sender, listener = world.client(), Listener()
    consuming = world.client().consumer("g", listener, {"t": "Aa || C"})
    world.send(sender, *[Message("t", tag.encode(), tags=tag) for tag in ("Aa", "BB", "C", "D")], Message("t", b"none"))
    world.until(lambda: len(listener.seen) == 2)
    world.run_ms(20_000)  # a pull is held over what does not match
    assert bodies(listener.seen) == [b"Aa", b"C"]
    assert consuming.store.known(Queue("t", HALFMOON, 0)) == 5


def test_batches_are_handed_over_as_batches(world: World) -> None:
    world.topic("t", 1)
    sender, listener = world.client(), Listener()
    world.send(sender, *[Message("t", b"%d" % number) for number in range(100)])
    world.client().consumer("g", listener, "t", batch_size=10)
    world.until(lambda: len(listener.seen) == 100)
    assert set(listener.sizes) <= {10, 2, 4}
    assert max(listener.sizes) == 10
