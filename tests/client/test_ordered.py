"""Ordered consumption: B21, with locks that live a minute, in virtual time."""

from __future__ import annotations

import json
import random
from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import pytest

from halfmoon.client.engine.consuming import PushConsuming
from halfmoon.client.engine.listening import Context, Status
from halfmoon.client.engine.ordered import OrderedService
from halfmoon.client.engine.process_queue import ProcessQueue
from halfmoon.client.messages import Message, ReceivedMessage
from halfmoon.client.selectors import by_hash
from halfmoon.plugin import Queue
from halfmoon.remoting.command import Command
from tests.client.fake_broker import (
    LOCK,
    MEMBERS,
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
from tests.client.test_pulling import Listener, MemoryFile
from tests.client.world import NAMES, Client, Takes, World, bodies, names

T = Queue("t", "b", 0)


def locked_queues(broker: FakeBroker, code: int = LOCK) -> list[list[tuple[str, int]]]:
    return [
        sorted((each["topic"], each["queueId"]) for each in json.loads(bytes(command.body))["mqSet"])
        for _, command in broker.of(code, None)
    ]


def test_b21_a_queue_is_locked_before_it_is_read_and_renewed_every_twenty_seconds(
    world: World, broker: FakeBroker
) -> None:
    world.client().consumer("g", Listener(), "t", ordered=True)
    world.run_ms(100)
    (asked,) = [command for _, command in broker.of(LOCK, None) if b'"t"' in bytes(command.body)]
    assert json.loads(bytes(asked.body)) == {
        "consumerGroup": "g", "clientId": "10.0.0.1@c1", "onlyThisBroker": False,
        "mqSet": [{"topic": "t", "brokerName": "b", "queueId": 0}],
    }  # fmt: skip
    assert len(broker.of(PULL)) == 1
    before = len(locked_queues(broker))
    world.run_ms(60_000)
    renewed = locked_queues(broker)[before:]
    assert renewed == [[("%RETRY%g", 0), ("t", 0)]] * 3


def test_b21_a_queue_that_somebody_else_has_is_asked_for_again(world: World, broker: FakeBroker) -> None:
    broker.locked = False
    consuming = world.client().consumer("g", Listener(), "t", ordered=True)
    world.run_ms(5_000)
    assert not consuming.owned("t")
    assert not broker.of(PULL)
    broker.locked = True
    world.run_ms(1_100)
    assert len(broker.of(PULL)) == 1


def test_b21_a_lock_is_trusted_for_thirty_seconds(world: World, broker: FakeBroker) -> None:
    """The broker does not answer any more: it may be that somebody else has the queue soon."""
    broker.pulls = [pulled(0, 1_000, many(range(1_000)))]
    consumed: list[float] = []

    def listener(messages: Sequence[ReceivedMessage], context: Context) -> Takes:
        consumed.append(world.now_ms)
        return Takes(1_000, Status.SUCCESS)

    world.client().consumer("g", listener, "t", ordered=True)
    world.run_ms(5_000)
    broker.answers[LOCK] = None
    world.run_ms(100_000)
    assert 29_000 <= max(consumed) <= 30_000
    # It answers again: we go on, with what the broker says of progress.
    del broker.answers[LOCK]
    broker.progress = 500
    seen = len(consumed)
    broker.pulls = [pulled(0, 1_001, many([1_000]))]
    world.run_ms(10_000)
    assert len(consumed) > seen


def test_b21_a_lock_that_has_expired_is_asked_for_after_ten_milliseconds(world: World, broker: FakeBroker) -> None:
    broker.pulls = [pulled(0, 1_000, many(range(1_000)))]
    world.client().consumer("g", lambda messages, context: Takes(50, Status.SUCCESS), "t", ordered=True)
    world.run_ms(1_000)
    broker.answers[LOCK] = None
    world.run_ms(31_000)
    assert next(at_ms for at_ms in broker.times(LOCK, None) if at_ms > 25_000) == 30_050 + 10


def test_b21_what_somebody_else_has_consumed_meanwhile_is_not_consumed_again(world: World, broker: FakeBroker) -> None:
    broker.pulls = [pulled(0, 100, many(range(100)))]
    listener: list[int] = []

    def slow(messages: Sequence[ReceivedMessage], context: Context) -> Takes:
        listener.extend(message.queue_offset for message in messages)
        return Takes(1_000, Status.SUCCESS)

    world.client().consumer("g", slow, "t", ordered=True)
    world.run_ms(10_500)
    broker.locked = False
    world.run_ms(15_000)
    stopped_at = len(listener)
    assert 19 <= stopped_at <= 22, "the renewal after 20 s says that it is lost"
    broker.locked, broker.progress = True, 60
    world.run_ms(20_000)
    assert listener[stopped_at] == 60


def committed(broker: FakeBroker) -> list[int]:
    return [int(fields["commitOffset"]) for fields in broker.fields(UPDATE_OFFSET)]


def reads_ten(world: World, broker: FakeBroker) -> PushConsuming:
    broker.pulls = [pulled(0, 10, many(range(10)))]
    consuming = world.client().consumer("g", Listener(), "t", ordered=True)
    world.until(lambda: committed(broker) == [10])
    return consuming


def test_b21_after_an_outage_progress_of_a_queue_that_another_member_has_is_not_told(
    world: World, broker: FakeBroker
) -> None:
    """The group's committed offset would go back."""
    reads_ten(world, broker)
    broker.locked, broker.progress = False, 50
    world.run_ms(31_000)  # the renewal says that the lock is lost
    before = len(committed(broker))
    for link in broker.master.links:
        link.cut()
    world.run_ms(60_000)
    assert committed(broker)[before:] == []


@pytest.mark.parametrize("how", ["close", "leave"])
@pytest.mark.parametrize(
    ("locked", "progress", "told"), [(False, 50, []), (True, 50, [50]), (True, 4, [10])],
    ids=["another has it", "another had it", "nobody had it"],
)  # fmt: skip
def test_b21_a_queue_whose_lock_was_lost_is_given_up_without_going_back(
    world: World, broker: FakeBroker, how: str, locked: bool, progress: int, told: list[int]
) -> None:
    consuming = reads_ten(world, broker)
    broker.answers[LOCK] = None  # the broker is silent until the lock is not trusted any more
    world.run_ms(35_000)
    del broker.answers[LOCK]
    broker.locked, broker.progress = locked, progress
    before = len(committed(broker))
    client = world.clients[0]
    for link in broker.master.links:
        link.cut()
    if how == "close":
        client.do(consuming.close())
    else:
        client.do(consuming.change("t", (), ()))
    assert sorted(set(committed(broker)[before:])) == told


def test_b21_messages_come_one_after_the_other(world: World) -> None:
    world.topic("t", 2)
    sender = world.client()
    running: dict[int, int] = defaultdict(int)
    most: dict[int, int] = defaultdict(int)
    seen: dict[int, list[int]] = defaultdict(list)

    def listener(messages: Sequence[ReceivedMessage], context: Context) -> Takes:
        queue = context.queue.queue_id
        seen[queue].append(messages[0].queue_offset)
        running[queue] += 1
        most[queue] = max(most[queue], running[queue])
        world.clients[1].kernel.call_after(9, lambda: running.__setitem__(queue, running[queue] - 1))
        return Takes(10, Status.SUCCESS)

    world.client().consumer("g", listener, "t", ordered=True)
    world.send(sender, *[Message("t", b"x") for _ in range(40)])
    world.until(lambda: sum(map(len, seen.values())) == 40)
    assert set(most.values()) == {1}
    assert dict(seen) == {0: list(range(20)), 1: list(range(20))}


@pytest.mark.parametrize("says", [Status.SUSPEND, Status.ROLLBACK, None, "raise"])
def test_b21_what_is_not_consumed_comes_again_in_its_place(world: World, broker: FakeBroker, says: Any) -> None:
    broker.pulls = [pulled(0, 3, many(range(3)))]
    seen: list[tuple[float, int, int]] = []

    def listener(messages: Sequence[ReceivedMessage], context: Context) -> Status | None:
        (message,) = messages
        seen.append((world.now_ms, message.queue_offset, message.reconsume_times))
        if message.queue_offset == 1 and message.reconsume_times < 3:
            if says == "raise":
                raise OSError("no")
            assert says is None or isinstance(says, Status)
            return says
        return Status.SUCCESS

    consuming = world.client().consumer("g", listener, "t", ordered=True)
    world.run_ms(10_000)
    assert [(offset, times) for _, offset, times in seen] == [(0, 0), (1, 0), (1, 1), (1, 2), (1, 3), (2, 0)]
    times = [at_ms for at_ms, offset, _ in seen if offset == 1]
    assert [after - before for before, after in pairwise(times)] == [1_000] * 3
    assert consuming.store.known(T) == 3
    assert not broker.of(SEND_BACK)


@pytest.mark.parametrize(("asked_ms", "waited_ms"), [(5, 10), (250, 250), (90_000, 30_000)])
def test_b21_the_moment_is_from_ten_milliseconds_to_thirty_seconds(
    world: World, broker: FakeBroker, asked_ms: int, waited_ms: int
) -> None:
    broker.pulls = [pulled(0, 1, stored(0))]
    seen: list[float] = []

    def listener(messages: Sequence[ReceivedMessage], context: Context) -> Status:
        seen.append(world.now_ms)
        context.suspend_ms = asked_ms
        return Status.SUSPEND if len(seen) == 1 else Status.SUCCESS

    world.client().consumer("g", listener, "t", ordered=True)
    world.run_ms(40_000)
    assert seen == [0, waited_ms]


def test_b21_a_limit_makes_dead_letters_of_what_does_not_work(world: World) -> None:
    world.topic("t", 1)
    sender = world.client()
    seen: list[tuple[bytes, int]] = []

    def listener(messages: Sequence[ReceivedMessage], context: Context) -> Status:
        seen.append((messages[0].body, messages[0].reconsume_times))
        return Status.SUSPEND if messages[0].body == b"bad" else Status.SUCCESS

    world.client().consumer("g", listener, "t", ordered=True, max_reconsume_times=2)
    world.send(sender, Message("t", b"bad"), Message("t", b"good"))
    world.run_ms(5_000)
    assert seen == [(b"bad", 0), (b"bad", 1), (b"bad", 2), (b"good", 0)]
    dead = Listener()
    world.client().consumer("undertakers", dead, "%DLQ%g")
    world.until(lambda: dead.seen)
    assert bodies(dead.seen) == [b"bad"]


def test_b21_a_dead_letter_that_cannot_be_sent_stays_in_its_place(world: World, broker: FakeBroker) -> None:
    broker.pulls = [pulled(0, 1, stored(0))]
    broker.answers[SEND] = (13, {}, b"")
    listener = Listener(Status.SUSPEND)
    consuming = world.client().consumer("g", listener, "t", ordered=True, max_reconsume_times=1)
    world.run_ms(5_500)
    assert len(listener.seen) == 6
    assert consuming.store.known(T) == -1


def test_b21_broadcasting_needs_no_lock(world: World, broker: FakeBroker) -> None:
    broker.pulls = [pulled(0, 3, many(range(3)))]
    listener = Listener()
    world.client().consumer("g", listener, "t", ordered=True, file=MemoryFile(), model="broadcasting")
    world.run_ms(60_000)
    assert len(listener.seen) == 3
    assert not broker.of(LOCK, None)


def test_b21_rebalancing_does_not_take_a_queue_that_is_being_consumed(world: World, broker: FakeBroker) -> None:
    broker.members = ["10.0.0.1@c1"]
    broker.pulls = [pulled(0, 3, many(range(3)))]
    consuming = world.client().consumer("g", lambda messages, context: Takes(5_000, Status.SUCCESS), "t", ordered=True)
    world.run_ms(1_000)
    broker.members = ["10.0.0.1@c1", "0@a"]
    consuming.rebalancing.soon()
    world.run_ms(3_500)
    assert ("t", 0) not in [each for asked in locked_queues(broker, UNLOCK) for each in asked]
    world.run_ms(3_000)
    assert ("t", 0) in [each for asked in locked_queues(broker, UNLOCK) for each in asked]
    stored_ms = broker.times(UPDATE_OFFSET)[0]
    (unlocked_ms,) = [at_ms for at_ms, command in broker.of(UNLOCK, None) if b'"t"' in bytes(command.body)]
    codes = [command.code for _, command in broker.asked]
    last_unlock = len(codes) - 1 - codes[::-1].index(UNLOCK)
    assert stored_ms == unlocked_ms
    assert codes.index(UPDATE_OFFSET) < last_unlock, "the next one begins where this one ended"
    assert broker.fields(UPDATE_OFFSET)[0]["commitOffset"] == "1", "what was being consumed counts"


def test_b21_after_a_minute_without_a_pause_there_is_one(world: World, broker: FakeBroker) -> None:
    broker.pulls = [pulled(0, 1_000, many(range(1_000)))]
    seen: list[float] = []

    def listener(messages: Sequence[ReceivedMessage], context: Context) -> Takes:
        seen.append(world.now_ms)
        return Takes(500, Status.SUCCESS)

    world.client().consumer("g", listener, "t", ordered=True)
    world.run_ms(70_000)
    pauses = [after - before for before, after in pairwise(seen) if after - before != 500]
    assert pauses == [510]


def test_b21_locks_are_given_back_at_the_end_and_taken_over_at_once(world: World) -> None:
    world.topic("t", 2)
    sender, first, second = world.client(), world.client("z"), Listener()
    consuming = first.consumer("g", Listener(), "t", ordered=True)
    world.send(sender, *[Message("t", b"%d" % number) for number in range(10)])
    world.run_ms(1_000)
    first.do(consuming.close())
    began_ms = world.now_ms
    world.client().consumer("g", second, "t", ordered=True)
    world.send(sender, Message("t", b"new"))
    world.until(lambda: second.seen)
    assert world.now_ms - began_ms < 100
    assert bodies(second.seen) == [b"new"]


def test_b21_a_consumer_that_is_closed_while_it_takes_queues_leaves_no_locks(world: World, client: Client) -> None:
    world.topic("t", 8)
    consuming = client.consumer("g", Listener(), "t", ordered=True, start=False)
    starting = client.run(consuming.start())
    for _ in range(40):
        client.kernel.advance(world.now_ms)
        for link in list(client.links):
            link.carry()
        if any(each.queue.topic == "t" for each in consuming.queues.values()):
            break
        world.rig.turns()
    closing = client.run(consuming.close())
    world.wait(closing)
    assert starting.is_done
    client.kill()
    began_ms = world.now_ms
    after = world.client().consumer("g", Listener(), "t", ordered=True)
    world.until(lambda: len(after.owned("t")) == 8, 70_000)
    assert world.now_ms - began_ms < 2_000


def test_b21_a_killed_clients_queues_are_taken_over_when_its_locks_end(world: World) -> None:
    world.topic("t", 2)
    sender, first, second = world.client(), world.client(), Listener()
    first.consumer("g", Listener(), "t", ordered=True)
    world.run_ms(1_000)
    first.kill()
    began_ms = world.now_ms
    world.client().consumer("g", second, "t", ordered=True)
    world.send(sender, Message("t", b"new"))
    world.until(lambda: second.seen, 100_000)
    assert 55_000 < world.now_ms - began_ms < 66_000, "a lock lives 60 s on the broker"


def test_b21_a_frozen_client_does_not_consume_what_others_have(world: World) -> None:
    """It wakes when its queues are somebody else's, and believes in its locks no more."""
    world.topic("t", 1)
    sender, first, second = world.client(), world.client("a"), Listener()
    seen_by_first = Listener()
    first.consumer("g", seen_by_first, "t", ordered=True)
    world.run_ms(1_000)
    first.freeze()
    world.run_ms(65_000)
    world.client("b").consumer("g", second, "t", ordered=True)
    world.run_ms(70_000)  # silent clients are dropped after 120 s
    world.send(sender, *[Message("t", b"%d" % number) for number in range(5)])
    world.until(lambda: len(second.seen) == 5, 100_000)
    first.is_alive = True
    world.run_ms(30_000)
    everybody = bodies(second.seen) + bodies(seen_by_first.seen)
    assert sorted(everybody) == [b"%d" % number for number in range(5)]


@pytest.mark.parametrize("cached", [5, 1_500], ids=["few", "more than are pulled"])
def test_b21_progress_is_asked_again_when_a_lock_was_regained(world: World, broker: FakeBroker, cached: int) -> None:
    """However much is cached, and although a pull is held."""
    broker.pulls = [pulled(0, cached, many(range(cached)))]
    consumed: list[int] = []

    def listener(messages: Sequence[ReceivedMessage], context: Context) -> Takes:
        consumed.extend(message.queue_offset for message in messages)
        return Takes(30_000 if len(consumed) == 1 else 1, Status.SUCCESS)

    consuming = world.client().consumer("g", listener, "t", ordered=True)
    world.run_ms(1_000)
    before = len(broker.of(QUERY_OFFSET))
    broker.locked = False
    world.run_ms(31_000)
    broker.locked, broker.progress = True, 3
    world.run_ms(10_000)
    assert len(broker.of(QUERY_OFFSET)) == before + 1
    assert consumed == [0, *range(3, cached)]
    assert consuming.store.known(T) == cached


def test_b21_after_more_than_a_locks_life_progress_is_asked_again(world: World, broker: FakeBroker) -> None:
    """A process that was stopped for two minutes: another one may have had the queue, and left it."""
    broker.members = ["10.0.0.1@c1"]
    broker.pulls = [pulled(0, 100, many(range(100)))]
    consumed: list[int] = []

    def listener(messages: Sequence[ReceivedMessage], context: Context) -> Takes:
        consumed.extend(message.queue_offset for message in messages)
        return Takes(1_000, Status.SUCCESS)

    client = world.client()
    consuming = client.consumer("g", listener, "t", ordered=True)
    world.run_ms(10_500)
    client.freeze()
    world.run_ms(100_000)
    client.is_alive = True
    broker.progress = 60
    world.run_ms(20_000)
    after = consumed[consumed.index(60) :]
    assert after == list(range(60, 60 + len(after)))
    assert max(consumed[: consumed.index(60)]) <= 12
    told = [int(each["commitOffset"]) for each in broker.fields(UPDATE_OFFSET) + broker.fields(PULL)]
    assert consuming.store.known(T) > 60
    assert not [offset for offset in told if 12 < offset < 60], "progress does not go back"


def test_b21_a_queue_that_was_dropped_and_is_ours_again_goes_on(world: World, broker: FakeBroker) -> None:
    broker.members = ["10.0.0.1@c1"]
    broker.pulls = [pulled(0, 3, many(range(3)))]
    consumed: list[float] = []

    def listener(messages: Sequence[ReceivedMessage], context: Context) -> Takes:
        consumed.append(world.now_ms)
        return Takes(5_000, Status.SUCCESS)

    consuming = world.client().consumer("g", listener, "t", ordered=True)
    world.run_ms(500)
    broker.members = ["10.0.0.1@c1", "0@a"]
    consuming.rebalancing.soon()
    world.run_ms(1_500)  # the listener is at it: the queue is dropped, and still here
    broker.members = ["10.0.0.1@c1"]
    broker.pulls = [pulled(0, 3, many(range(1, 3)))]
    broker.progress = 1
    consuming.rebalancing.soon()
    world.run_ms(15_000)
    assert len(consumed) >= 3
    assert not consuming.queues[T].is_dropped


def test_b21_of_a_batch_a_dead_letter_is_sent_once(world: World, broker: FakeBroker) -> None:
    broker.pulls = [pulled(0, 3, many(range(3)))]
    seen: list[list[int]] = []

    def listener(messages: Sequence[ReceivedMessage], context: Context) -> Status:
        seen.append([message.queue_offset for message in messages])
        if len(seen) == 1:
            messages[1].reconsume_times = 3  # was tried often enough; the others were not
        return Status.SUSPEND if len(seen) < 3 else Status.SUCCESS

    consuming = world.client().consumer("g", listener, "t", ordered=True, batch_size=3, max_reconsume_times=3)
    world.run_ms(10_000)
    assert seen == [[0, 1, 2], [0, 2], [0, 2]]
    assert len(broker.of(SEND, None)) == 1
    assert consuming.store.known(T) == 3


def test_b21_a_slow_broker_delays_its_own_queues_alone(world: World) -> None:
    world.script(NAMES, names(("a", {0: "127.0.0.1:1"}, 4), ("b", {0: "127.0.0.1:2"}, 1)))

    def answer(command: Command) -> Any:
        if command.code == MEMBERS:
            return 0, {}, json.dumps({"consumerIdList": ["10.0.0.1@c1"]}).encode()
        if command.code == LOCK:
            return 0, {}, json.dumps({"lockOKMQSet": json.loads(bytes(command.body))["mqSet"]}).encode()
        if command.code == QUERY_OFFSET and command.fields["bname"] == "a":
            return None
        return None if command.code == PULL else (0, {"offset": "0"}, b"")

    world.script("127.0.0.1:1", answer)
    world.script("127.0.0.1:2", answer)
    consuming = world.client().consumer("g", Listener(), "t", ordered=True)
    world.run_ms(100)
    assert [queue.broker for queue in consuming.owned("t")] == ["b"]


# -- the storm -------------------------------------------------------------------------------------------------------

KEYS, PER_KEY, EVENTS = 12, 60, 50


class Storm:
    """Members of one group that come and go while messages are sent, and what they are seen to do."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.world = World()
        self.world.topic("t", 8)
        self.sender = self.world.client("sender")
        self.consumed: dict[str, list[int]] = defaultdict(list)
        self.sent: dict[str, int] = defaultdict(int)
        self.living: list[tuple[Client, PushConsuming]] = []
        self.busy: dict[Queue, Client] = {}
        """Whose listener is at a queue."""
        self.consumed_by_two: list[Queue] = []

    def join(self) -> None:
        client = self.world.client(f"m{len(self.world.clients)}")
        dice = self.dice

        def listener(messages: Sequence[ReceivedMessage], context: Context) -> Takes:
            other = self.busy.get(context.queue)
            if other is not None and other.is_alive:
                self.consumed_by_two.append(context.queue)
            self.busy[context.queue] = client
            for message in messages:
                key, number = message.body.decode().split()
                self.consumed[key].append(int(number))
            takes_ms = dice.choice([1, 20, 300, 2_000])
            client.kernel.call_after(takes_ms - 0.5, lambda: self.busy.pop(context.queue, None))
            return Takes(takes_ms, Status.SUCCESS)

        self.living.append((client, client.consumer("g", listener, "t", ordered=True, batch_size=dice.choice([1, 4]))))

    def leave(self, *, is_killed: bool) -> None:
        client, consuming = self.living.pop(self.dice.randrange(len(self.living)))
        if not is_killed:
            client.do(consuming.close())
        client.kill()

    def send(self, count: int) -> None:
        producing = self.sender.producing()
        for _ in range(count):
            key = f"k{self.dice.randrange(KEYS)}"
            if self.sent[key] < PER_KEY:
                message = Message("t", f"{key} {self.sent[key]}".encode())
                self.sent[key] += 1
                send = partial(producing.send, message, select=by_hash, key=key)
                self.world.wait(self.sender.engine(send))

    def run(self) -> None:
        """Fifty events; then everything is consumed, each key in order."""
        dice, world = self.dice, self.world
        self.join()
        for _ in range(EVENTS):
            self.send(PER_KEY * KEYS // EVENTS)
            if not self.living or (len(self.living) < 6 and dice.random() < 0.5):
                self.join()
            else:
                self.leave(is_killed=dice.random() < 0.7)
            world.run_ms(dice.choice([10, 500, 5_000, 30_000]))
        while any(self.sent[f"k{number}"] < PER_KEY for number in range(KEYS)):
            self.send(100)
        if not self.living:
            self.join()
        wanted = set(range(PER_KEY))
        world.until(lambda: all(set(self.consumed[f"k{number}"]) == wanted for number in range(KEYS)), 3_600_000)
        assert not self.consumed_by_two
        for key, numbers in self.consumed.items():
            # After a kill it goes on from an earlier one, and then each in turn.
            for before, after in pairwise(numbers):
                assert after <= before + 1, f"{key}: {after} came after {before}"


def _storms(count: int) -> None:
    for seed in range(count):
        Storm(seed).run()


@pytest.mark.parametrize("seed", range(6))
def test_b21_order_survives_fifty_kills_and_joins(seed: int) -> None:
    """Random kills, orderly ends and joins, fifty of them, seeded: a queue is never consumed by two, what has one key
    is consumed in order, and none is lost."""
    Storm(seed).run()


def test_the_storm_notices_locks_that_do_not_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    async def anyway(self: OrderedService, queues: Sequence[Queue]) -> dict[Queue, bool]:
        return dict.fromkeys(queues, True)

    monkeypatch.setattr(OrderedService, "_ask", anyway)
    with pytest.raises(AssertionError):
        _storms(6)


def test_the_storm_notices_queues_given_away_while_they_are_consumed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def at_once(self: OrderedService, process_queue: ProcessQueue) -> bool:
        return True

    monkeypatch.setattr(OrderedService, "quiet", at_once)
    with pytest.raises(AssertionError):
        _storms(6)
