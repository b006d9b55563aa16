"""Consumers that ask themselves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from halfmoon.client.engine.group_queries import ConsumeFrom
from halfmoon.client.engine.lite_pulling import LitePulling, LiteSettings
from halfmoon.client.engine.offsets import BrokerOffsets
from halfmoon.client.engine.pull_consuming import Pulling
from halfmoon.client.engine.pulling import PullResult, PullStatus
from halfmoon.client.engine.subscriptions import Subscription, by_language, by_sql, by_tags
from halfmoon.client.errors import BrokerRefusedError, ConfigError, RouteError
from halfmoon.client.messages import Message, ReceivedMessage
from halfmoon.plugin import Queue
from halfmoon.plugins.allocate import find_allocator
from tests.client.world import HALFMOON, Client, World, bodies

ALL = by_tags("t", "*", 0)


def pulling(client: Client, group: str = "g") -> Pulling:
    made = Pulling(client.instance, group, BrokerOffsets(client.instance, group))
    client.do(made.start())
    return made


def pull(client: Client, consumer: Pulling, queue: Queue, offset: int, **more: Any) -> PullResult:
    wanted: Subscription = more.pop("wanted", ALL)
    hold_ms = more.pop("hold_ms", 0)
    result = client.do(consumer.pull(queue, offset, wanted, more.pop("most", 32), hold_ms, hold_ms + 5_000))
    assert isinstance(result, PullResult)
    return result


def filled(queues: int = 1, count: int = 10) -> tuple[World, Client]:
    world = World()
    world.topic("t", queues)
    messages = [
        Message("t", b"%d" % number, tags="even" if number % 2 == 0 else "odd", properties={"n": str(number)})
        for number in range(count)
    ]
    world.send(world.client("sender"), *messages)
    return world, world.client()


def test_a_pull_brings_what_was_asked_for() -> None:
    _, client = filled()
    consumer = pulling(client)
    (queue,) = client.do(consumer.queues("t"))
    result = pull(client, consumer, queue, 3, most=4)
    assert (result.status, bodies(result.messages)) == (PullStatus.FOUND, [b"3", b"4", b"5", b"6"])
    assert (result.next_offset, result.min_offset, result.max_offset) == (7, 0, 10)
    assert pull(client, consumer, queue, 10).status is PullStatus.NO_NEW_MSG
    assert pull(client, consumer, queue, 99).status is PullStatus.OFFSET_ILLEGAL


def test_each_pull_has_an_expression_of_its_own() -> None:
    _, client = filled()
    consumer = pulling(client)
    queue = Queue("t", HALFMOON, 0)
    assert bodies(pull(client, consumer, queue, 0, wanted=by_tags("t", "odd", 0)).messages) == [
        b"1", b"3", b"5", b"7", b"9",
    ]  # fmt: skip
    assert bodies(pull(client, consumer, queue, 0, wanted=by_sql("t", "n > 7", 0)).messages) == [b"8", b"9"]
    wanted = by_language("t", "sql92", "n > 7", 0)
    assert bodies(pull(client, consumer, queue, 0, wanted=wanted).messages) == [b"8", b"9"]
    assert pull(client, consumer, queue, 0, wanted=by_tags("t", "none", 0)).status is PullStatus.NO_MATCHED_MSG
    with pytest.raises(BrokerRefusedError) as refused:
        pull(client, consumer, queue, 0, wanted=by_sql("t", "n >", 0))
    assert refused.value.code == 23


def test_a_pull_waits_for_a_message() -> None:
    world, client = filled()
    consumer = pulling(client)
    queue = Queue("t", HALFMOON, 0)
    pending = client.run(consumer.pull(queue, 10, ALL, 32, 10_000, 15_000))
    world.run_ms(4_000)
    assert not pending.is_done
    world.send(world.clients[0], Message("t", b"new"))
    assert bodies(world.wait(pending).messages) == [b"new"]
    began_ms = world.now_ms
    assert pull(client, consumer, queue, 11, hold_ms=4_000).status is PullStatus.NO_NEW_MSG
    assert world.now_ms - began_ms == pytest.approx(4_000, abs=100)


def test_progress_is_what_was_committed() -> None:
    _, client = filled()
    consumer = pulling(client)
    queue = Queue("t", HALFMOON, 0)
    client.do(consumer.commit(queue, 4))
    assert client.do(consumer.committed(queue)) == 4
    client.do(consumer.commit(queue, 2))
    assert client.do(consumer.committed(queue)) == 2, "back is allowed"


def test_offsets_of_a_queue() -> None:
    world, client = filled()
    consumer = pulling(client)
    queue = Queue("t", HALFMOON, 0)
    before = world.rig.clock.now_ms
    world.run_ms(1_000)
    world.send(world.clients[0], Message("t", b"later"))
    assert client.do(consumer.min_offset(queue)) == 0
    assert client.do(consumer.max_offset(queue)) == 11
    assert client.do(consumer.offset_for_time(queue, before + 500)) == 10
    assert client.do(consumer.offset_for_time(queue, before + 500_000)) == 11


def test_a_topic_that_nobody_knows(client: Client) -> None:
    consumer = pulling(client)
    with pytest.raises(RouteError):
        client.do(consumer.queues("nothing"))


# -- lite ------------------------------------------------------------------------------------------------------------


def lite(
    client: Client, topics: Mapping[str, str] | None = None, group: str = "g", *, start: bool = True, **settings: Any
) -> LitePulling:
    made = LiteSettings(**({"consume_from": ConsumeFrom.FIRST} | settings))
    consumer = LitePulling(
        client.instance, group, made, find_allocator(made.strategy), BrokerOffsets(client.instance, group)
    )
    for topic, expression in (topics or {}).items():
        consumer.subscribe(by_tags(topic, expression, 1))
    if start:
        client.do(consumer.start())
    return consumer


def poll(client: Client, consumer: LitePulling, most: int = 32, timeout_ms: float = 1_000) -> list[ReceivedMessage]:
    """As the shells do it."""
    until_ms = client.world.now_ms + timeout_ms
    while True:
        messages = client.engine(lambda: consumer.take(most))
        if messages or client.world.now_ms >= until_ms:
            assert isinstance(messages, list)
            return messages
        client.do(consumer.wait_for_some(until_ms - client.world.now_ms))


def poll_all(client: Client, consumer: LitePulling) -> list[bytes]:
    found: list[bytes] = []
    while messages := poll(client, consumer):
        found += bodies(messages)
    return found


def test_what_is_subscribed_to_is_polled() -> None:
    world, client = filled(4, 100)
    consumer = lite(client, {"t": "odd"})
    assert sorted(poll_all(client, consumer), key=int) == [b"%d" % number for number in range(1, 100, 2)]
    began_ms = world.now_ms
    assert poll(client, consumer, timeout_ms=3_000) == []
    assert world.now_ms - began_ms == pytest.approx(3_000, abs=10)


def test_polled_is_progress_after_five_seconds_and_at_the_end() -> None:
    world, client = filled(1, 50)
    consumer = lite(client, {"t": "*"})
    assert len(poll(client, consumer, 7)) == 7
    world.run_ms(5_500)
    queue = Queue("t", HALFMOON, 0)
    assert client.do(consumer.committed(queue)) == 7, "what was pulled and not polled does not count"
    assert len(poll(client, consumer, 3)) == 3
    client.do(consumer.close())
    other = world.client()
    again = lite(other, {"t": "*"})
    assert poll_all(other, again) == [b"%d" % number for number in range(10, 50)]


def test_without_auto_commit_progress_is_what_is_said() -> None:
    world, client = filled(1, 50)
    consumer = lite(client, {"t": "*"}, auto_commit=False)
    queue = Queue("t", HALFMOON, 0)
    poll(client, consumer, 20)
    world.run_ms(20_000)
    assert client.do(consumer.committed(queue)) == 0
    client.do(consumer.commit({queue: 5}))
    assert client.do(consumer.committed(queue)) == 5
    client.do(consumer.commit())
    assert client.do(consumer.committed(queue)) == 5, "nothing was polled since"
    poll(client, consumer, 1)
    client.do(consumer.commit())
    assert client.do(consumer.committed(queue)) > 5


def test_members_share_the_queues() -> None:
    world, client = filled(4, 40)
    other = world.client()
    first, second = lite(client, {"t": "*"}), lite(other, {"t": "*"})
    world.run_ms(100)
    assert len(first.owned("t")) == len(second.owned("t")) == 2
    assert sorted(poll_all(client, first) + poll_all(other, second), key=int) == [b"%d" % each for each in range(40)]


def test_assigned_queues_are_read_whoever_else_reads_them() -> None:
    world, client = filled(4, 40)
    consumer = lite(client, start=False)
    queues = [Queue("t", HALFMOON, number) for number in (1, 3)]
    consumer.assign(queues, {"t": ALL})
    client.do(consumer.start())
    assert {message.queue.queue_id for _ in range(9) for message in poll(client, consumer, timeout_ms=50)} == {1, 3}
    client.engine(lambda: consumer.assign([Queue("t", HALFMOON, 0)], {"t": by_tags("t", "none", 0)}))
    assert consumer.assignment == [Queue("t", HALFMOON, 0)]
    assert poll(client, consumer, timeout_ms=100) == []
    with pytest.raises(ConfigError, match="does not subscribe"):
        consumer.subscribe(ALL)
    subscribed = lite(world.client(), {"t": "*"}, "h", start=False)
    with pytest.raises(ConfigError, match="is not assigned"):
        subscribed.assign(queues, {"t": ALL})


def test_seeking_goes_on_elsewhere_at_once() -> None:
    world, client = filled(1, 50)
    consumer = lite(client, {"t": "*"})
    queue = Queue("t", HALFMOON, 0)
    assert len(poll_all(client, consumer)) == 50
    client.engine(lambda: consumer.seek(queue, 45))  # a pull is held at 50
    began_ms = world.now_ms
    assert bodies(poll(client, consumer)) == [b"45", b"46", b"47", b"48", b"49"]
    assert world.now_ms - began_ms < 10
    client.engine(lambda: consumer.seek(queue, 20))
    client.engine(lambda: consumer.seek(queue, 48))
    assert poll_all(client, consumer) == [b"48", b"49"], "of two, the last one counts"
    with pytest.raises(ConfigError, match="not assigned"):
        consumer.seek(Queue("t", HALFMOON, 7), 0)


def test_paused_queues_are_neither_pulled_nor_polled() -> None:
    world, client = filled(2, 20)
    consumer = lite(client, {"t": "*"})
    world.run_ms(100)
    client.engine(lambda: consumer.pause([Queue("t", HALFMOON, 0)], paused=True))
    assert {message.queue.queue_id for _ in range(3) for message in poll(client, consumer)} == {1}
    client.engine(lambda: consumer.pause([Queue("t", HALFMOON, 0)], paused=False))
    assert len(poll_all(client, consumer)) == 10


def test_no_more_is_pulled_than_may_be_kept() -> None:
    world, client = filled(1, 500)
    consumer = lite(client, {"t": "*"}, most_cached=50)
    world.run_ms(5_000)
    (assigned,) = consumer._assigned.values()
    assert 50 < len(assigned.cached) <= 60
    assert len(poll_all(client, consumer)) == 500


def test_where_a_group_begins() -> None:
    world, client = filled(1, 10)
    queue = Queue("t", HALFMOON, 0)
    # A broker that has all of a queue says 0 for a group without progress, so LAST is seen on an older queue only.
    topic = world.rig.broker.topic("t")
    assert topic is not None
    world.rig.broker.delete_records(topic.partitions[0], 5)
    world.settle()
    last = lite(client, {"t": "*"}, "last", consume_from=ConsumeFrom.LAST)
    assert poll(client, last, timeout_ms=100) == []
    other = world.client()
    first = lite(other, {"t": "*"}, "first")
    assert poll_all(other, first) == [b"5", b"6", b"7", b"8", b"9"]
    assert other.do(first.bounds(queue)) == (5, 10)


def test_a_poll_is_woken_by_a_message() -> None:
    world, client = filled(1, 0)
    consumer = lite(client, {"t": "*"})
    pending = client.run(consumer.wait_for_some(60_000))
    world.run_ms(30_000)
    assert not pending.is_done
    world.send(world.clients[0], Message("t", b"x"))
    world.wait(pending)
    assert bodies(client.engine(lambda: consumer.take(32))) == [b"x"]
    with pytest.raises(ConfigError, match="most is 0"):
        consumer.take(0)


def test_who_waits_in_vain_has_taken_nothing() -> None:
    world, client = filled(1, 0)
    consumer = lite(client, {"t": "*"})
    waiting = client.run(consumer.wait_for_some(60_000))
    waiting.cancel()
    world.send(world.clients[0], *[Message("t", b"%d" % number) for number in range(20)])
    world.run_ms(6_000)
    assert client.do(consumer.committed(Queue("t", HALFMOON, 0))) == 0
    assert len(poll_all(client, consumer)) == 20


def test_queues_that_fall_behind_stand_in_line_once() -> None:
    world, client = filled(1, 500)
    consumer = lite(client, {"t": "*"})
    for _ in range(100):
        world.run_ms(50)
        poll(client, consumer, 2)
        assert len(consumer._ready) <= 1


def test_a_subscription_in_a_plugins_language() -> None:
    made = by_language("t", "jsonpath", "$.price", 7)
    assert (made.kind, made.expression, made.version) == ("JSONPATH", "$.price", 7)
    assert by_language("t", "tag", "a || b", 7) == by_tags("t", "a || b", 7)
    for language, expression in ((" ", "x"), ("jsonpath", " ")):
        with pytest.raises(ConfigError):
            by_language("t", language, expression, 7)
