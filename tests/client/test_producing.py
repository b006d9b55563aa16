"""Sending: B26 to B28, and B10."""

from __future__ import annotations

import random
import time
import zlib
from collections import Counter
from functools import partial
from itertools import pairwise
from typing import Any

import pytest

from halfmoon.client import Producer
from halfmoon.client.engine.faults import Faults, away_ms
from halfmoon.client.engine.producer_settings import ProducerSettings
from halfmoon.client.engine.routes import Route
from halfmoon.client.errors import (
    BrokerRefusedError,
    ConfigError,
    ConnectionFailedError,
    MessageError,
    NotRunningError,
    RequestTimeoutError,
    RouteError,
)
from halfmoon.client.messages import Message, SendResult, SendStatus
from halfmoon.client.selectors import at_random, by_hash, by_machine_room
from halfmoon.plugin import Queue, string_hash
from halfmoon.remoting.command import Command
from halfmoon.testing import Broker
from tests.client.fake_broker import SEND, SEND_BATCH, FakeBroker
from tests.client.test_pulling import Listener
from tests.client.world import HALFMOON, NAMES, Client, World, bodies, names

B1, B2 = "127.0.0.1:1", "127.0.0.1:2"
M = Message("t", b"x")


class Brokers:
    """Two brokers with two queues each, that answer sends as a test says."""

    def __init__(self, world: World) -> None:
        world.script(NAMES, names(("b1", {0: B1}, 2), ("b2", {0: B2}, 2)))
        self.says: dict[str, Any] = {"b1": None, "b2": None}
        """Broker → how it answers sends; None: well."""
        self.sends: list[tuple[float, str, Command]] = []
        self.nodes = {
            name: world.script(address, self.answerer(world, name)) for name, address in (("b1", B1), ("b2", B2))
        }

    def answerer(self, world: World, name: str) -> Any:
        def answer(command: Command) -> Any:
            if command.code not in (SEND, SEND_BATCH):
                return 0, {}, b""
            self.sends.append((world.now_ms, name, command))
            said = self.says[name]
            return said if said is not None else stored_at(command)

        return answer

    @property
    def queues(self) -> list[tuple[str, str]]:
        return [(name, command.fields["e"]) for _, name, command in self.sends]


@pytest.fixture
def brokers(world: World) -> Brokers:
    return Brokers(world)


def stored_at(command: Command, code: int = 0) -> Any:
    return code, {"msgId": "7F00000100002A9F0000000000000001", "queueId": command.fields["e"], "queueOffset": "5"}, b""


def cut(client: Client) -> None:
    """Connections to brokers end."""
    for link in client.links:
        if link.connection.address != NAMES:
            link.cut()


def send(world: World, client: Client, *args: Any, **options: Any) -> SendResult:
    producing = client.producing()
    result = world.wait(client.engine(lambda: producing.send(*args, **options)))
    assert isinstance(result, SendResult)
    return result


# -- B26 -------------------------------------------------------------------------------------------------------------


def test_b26_queues_take_turns_over_all_brokers(world: World, brokers: Brokers) -> None:
    world.send(world.client(), *[Message("t", b"x") for _ in range(8)])
    assert Counter(brokers.queues) == {(broker, queue): 2 for broker in ("b1", "b2") for queue in "01"}
    assert brokers.queues[:4] == brokers.queues[4:]


@pytest.mark.parametrize("code", [1, 2, 14, 16, 17, 204, 205])
def test_b26_a_broker_that_cannot_is_replaced_by_another(
    world: World, brokers: Brokers, client: Client, code: int
) -> None:
    brokers.says["b1"] = code, {}, b""
    results = world.send(client, *[Message("t", b"x") for _ in range(4)])
    assert {result.queue.broker for result in results} == {"b2"}
    producing = client.producing()
    assert producing.in_flight == 0
    asked = [name for _, name, _ in brokers.sends]
    assert all(name == "b2" for before, name in pairwise(asked) if before == "b1")


def test_b26_two_retries_and_no_more(world: World, brokers: Brokers, client: Client) -> None:
    brokers.says = {"b1": (14, {}, b""), "b2": (14, {}, b"")}
    producing = client.producing()
    pending = client.engine(lambda: producing.send(Message("t", b"x")))
    with pytest.raises(BrokerRefusedError) as refused:
        world.wait(pending)
    assert refused.value.code == 14
    assert len(brokers.sends) == 3
    assert [name for _, name, _ in brokers.sends] in (["b1", "b2", "b1"], ["b2", "b1", "b2"])
    assert (producing.counters.sent, producing.counters.failed, producing.counters.retried) == (0, 1, 2)
    assert producing.in_flight == 0


def test_b26_what_no_broker_takes_is_not_tried_again(world: World, brokers: Brokers) -> None:
    brokers.says = {"b1": (13, {}, b""), "b2": (13, {}, b"")}
    with pytest.raises(BrokerRefusedError):
        send(world, world.client(), Message("t", b"x"))
    assert len(brokers.sends) == 1


def test_b26_a_message_for_one_queue_goes_there_or_nowhere(world: World, brokers: Brokers) -> None:
    brokers.says["b1"] = 14, {}, b""
    with pytest.raises(BrokerRefusedError):
        send(world, world.client(), Message("t", b"x"), Queue("t", "b1", 1))
    assert brokers.queues == [("b1", "1")]


def test_b26_a_broker_that_is_gone_is_passed_over(world: World, brokers: Brokers, client: Client) -> None:
    world.send(client, *[Message("t", b"x") for _ in range(4)])
    del world.nodes[B1]
    for link in brokers.nodes["b1"].links:
        link.cut()
    began_ms = world.now_ms
    results = world.send(client, *[Message("t", b"x") for _ in range(20)])
    assert {result.queue.broker for result in results} == {"b2"}
    assert world.now_ms - began_ms < 100


def test_b26_without_any_broker_a_send_waits_a_moment(world: World) -> None:
    Brokers(world)
    client = world.client()
    producing = client.producing()
    world.wait(client.run(producing.route("t")))
    saved = {address: world.nodes.pop(address) for address in (B1, B2)}
    cut(client)
    pending = client.engine(lambda: producing.send(Message("t", b"x")))
    world.run_ms(50)
    assert not pending.is_done, "both have refused, and are left alone for a moment"
    world.nodes.update(saved)
    world.wait(pending)
    assert world.now_ms < 3_000
    for address in (B1, B2):
        del world.nodes[address]
    cut(client)
    began_ms = world.now_ms
    with pytest.raises(ConnectionFailedError):
        send(world, client, Message("t", b"x"))
    assert world.now_ms - began_ms <= 3_000


def test_b26_a_send_ends_with_its_time(world: World, brokers: Brokers) -> None:
    brokers.nodes["b1"].answer = brokers.nodes["b2"].answer = lambda command: (
        None if command.code == SEND else (0, {}, b"")
    )
    client = world.client()
    for timeout_ms in (3_000, 500):
        began_ms = world.now_ms
        with pytest.raises(RequestTimeoutError):
            send(world, client, Message("t", b"x"), timeout_ms=timeout_ms)
        assert world.now_ms - began_ms == timeout_ms


def test_b26_the_route_is_part_of_a_sends_time(world: World, client: Client) -> None:
    world.script(NAMES, lambda command: None)
    producing = client.producing()
    began_ms = world.now_ms
    with pytest.raises(RequestTimeoutError, match="no route in time"):
        send(world, client, Message("t", b"x"), timeout_ms=100)
    assert world.now_ms - began_ms == 100
    assert producing.in_flight == 0


@pytest.mark.parametrize("option", [{"retries": -1}, {"timeout_ms": 0}, {"compress_level": 10}, {"default_queues": 0}])
def test_options_that_make_no_sense(option: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match=next(iter(option))):
        ProducerSettings(**option)


def test_b26_one_way_is_sent_once_and_not_answered(world: World, brokers: Brokers, client: Client) -> None:
    producing = client.producing()
    world.wait(client.engine(lambda: producing.send_oneway(Message("t", b"x"))))
    world.run_ms(10)
    ((_, _, command),) = brokers.sends
    assert command.is_oneway


def test_b26_a_slow_broker_is_left_alone_for_a_while(world: World, brokers: Brokers, client: Client) -> None:
    brokers.says["b1"] = 600, 0, {"msgId": "0" * 32, "queueId": "0", "queueOffset": "0"}, b""
    world.send(client, Message("t", b"x"), Message("t", b"x"), latency_fault_tolerance=True)
    producing = client.producing(latency_fault_tolerance=True)
    for _ in range(4):  # until it is known to be slow
        world.wait(client.engine(lambda: producing.send(Message("t", b"x"))))
    known = len(brokers.sends)
    for _ in range(10):
        world.wait(client.engine(lambda: producing.send(Message("t", b"x"))))
    assert {name for _, name, _ in brokers.sends[known:]} == {"b2"}
    world.run_ms(2_000)
    for _ in range(4):
        world.wait(client.engine(lambda: producing.send(Message("t", b"x"))))
    assert {name for _, name, _ in brokers.sends[known + 10 :]} == {"b1", "b2"}


def test_b26_how_long_a_slow_broker_is_left_alone() -> None:
    """MQFaultStrategy's table."""
    assert [away_ms(ms) for ms in (1, 99, 100, 549, 550, 1_800, 3_000, 5_000, 15_000, 10**6)] == [
        0, 0, 0, 0, 2_000, 5_000, 6_000, 10_000, 30_000, 30_000,
    ]  # fmt: skip
    faults = Faults()
    faults.failed("a", 0)
    faults.took("b", 600, 0)
    assert not faults.is_available("a", 9_999)
    assert faults.is_available("a", 10_000)
    assert faults.least_bad(["a", "b"]) == "b"


@pytest.mark.parametrize("status", [10, 11, 12])
def test_b26_stored_with_a_reservation_is_stored(world: World, brokers: Brokers, status: int) -> None:
    brokers.says = dict.fromkeys(("b1", "b2"), (status, {"msgId": "0" * 32, "queueId": "0", "queueOffset": "1"}, b""))
    assert send(world, world.client(), Message("t", b"x")).status is SendStatus(status)
    assert len(brokers.sends) == 1


def test_b26_a_topic_that_does_not_exist_is_made_by_sending(world: World) -> None:
    (result,) = world.send(world.client(), Message("new", b"x"))
    assert result.queue.broker == HALFMOON
    listener = Listener()
    world.client().consumer("g", listener, "new")
    world.until(lambda: listener.seen)
    topic = world.rig.broker.topic("new")
    assert topic is not None
    assert len(topic.partitions) == 4


def test_b26_a_topic_that_must_not_be_made_has_no_route() -> None:
    world = World(topics__auto_create=False)
    with pytest.raises(RouteError):
        world.send(world.client(), Message("new", b"x"))


def test_a_topic_that_only_can_be_read_says_so(world: World) -> None:
    body = names(("b", {1: "127.0.0.1:2"}, 1))
    world.script(NAMES, body)
    with pytest.raises(RouteError, match="no queue of topic 't' can be written to"):
        world.send(world.client(), Message("t", b"x"))


def test_b26_a_broker_without_a_master_ends_a_send(world: World, broker: FakeBroker, client: Client) -> None:
    """A newer route, perhaps of another topic, says that the only broker has none now."""
    world.send(client, Message("t", b"x"))
    client.instance.routes.put("other", Route((), (), {"b": {1: "127.0.0.1:2"}}))
    with pytest.raises(RouteError, match="no master"):
        send(world, client, Message("t", b"x"))
    assert len(broker.of(SEND, None)) == 1


@pytest.mark.parametrize("is_known", [True, False])
def test_a_send_ends_whatever_a_selector_says(world: World, client: Client, is_known: bool) -> None:
    world.topic("t", 2)
    producing = client.producing()
    if is_known:
        world.wait(client.run(producing.route("t")))
    with pytest.raises(MessageError, match="expected a Queue"):
        send(world, client, M, select=lambda queues, message, key: None)
    assert producing.in_flight == 0


def test_who_waits_for_a_send_is_told_when_the_client_closes(world: World, client: Client) -> None:
    world.script(NAMES, lambda command: None)
    producing = client.producing()
    pending = client.engine(lambda: producing.send(M))
    world.run_ms(10)
    client.engine(lambda: (producing.close(), client.instance.close()))
    with pytest.raises(NotRunningError):
        pending.result()
    assert producing.in_flight == 0


def test_an_answer_that_comes_after_the_end_does_no_harm(world: World, brokers: Brokers, client: Client) -> None:
    """It may be on its way while the client closes."""
    brokers.says = dict.fromkeys(("b1", "b2"), (50, 0, {"msgId": "0" * 32, "queueId": "0", "queueOffset": "1"}, b""))
    producing = client.producing()
    pending = client.engine(lambda: producing.send(M))
    world.run_ms(10)
    assert brokers.sends
    client.engine(producing.close)
    world.run_ms(100)
    with pytest.raises(NotRunningError):
        pending.result()
    assert (producing.in_flight, producing.counters.sent, producing.counters.failed) == (0, 0, 1)


def test_b24_a_name_server_that_is_back_is_waited_for(world: World) -> None:
    world.topic("t", 1)
    saved = world.nodes.pop(NAMES)
    client = world.client()
    for _ in range(6):
        with pytest.raises((RouteError, RequestTimeoutError)):
            send(world, client, M)
        world.run_ms(3_000)
    world.nodes[NAMES] = saved
    assert send(world, client, M, timeout_ms=15_000)


# -- B27 -------------------------------------------------------------------------------------------------------------

QUEUES = [Queue("t", "b", number) for number in range(7)]


def test_b27_a_key_goes_where_java_sends_it() -> None:
    """SelectMessageQueueByHash: |hashCode % queues|, of String and Integer."""
    assert by_hash(QUEUES, M, "order-17").queue_id == abs(string_hash("order-17")) % 7
    assert by_hash(QUEUES, M, 17).queue_id == 3
    assert by_hash(QUEUES, M, -17).queue_id == 3
    # "polygenelubricants" has the smallest of all hashes, whose absolute value Java cannot say.
    assert string_hash("polygenelubricants") == -(1 << 31)
    assert by_hash(QUEUES[:4], M, "polygenelubricants").queue_id == 0
    assert by_hash(QUEUES[:3], M, "polygenelubricants").queue_id == 2


def test_b27_the_same_key_goes_to_the_same_queue_and_stays_in_order(world: World, client: Client) -> None:
    world.topic("t", 8)
    for key in ("a", "b", "c"):
        results = [send(world, client, Message("t", b"%d" % number), select=by_hash, key=key) for number in range(5)]
        assert len({result.queue for result in results}) == 1
        assert [result.queue_offset for result in results] == sorted(result.queue_offset for result in results)


def test_b27_at_random_and_by_machine_room() -> None:
    rooms = [Queue("t", f"{room}@b", number) for room in ("r1", "r2") for number in range(3)]
    assert {at_random(QUEUES, M, None) for _ in range(300)} == set(QUEUES)
    near = by_machine_room(["r2"])
    assert {near(rooms, M, None) for _ in range(200)} == set(rooms[3:])
    assert near(rooms, M, "key") == near(rooms, M, "key")
    assert by_machine_room(["r9"])(rooms, M, "key") in rooms


def test_b27_a_selector_of_the_users_own(world: World, client: Client) -> None:
    world.topic("t", 4)
    result = send(world, client, M, select=lambda queues, message, key: queues[key], key=2)
    assert result.queue.queue_id == 2
    with pytest.raises(MessageError, match="IndexError"):
        send(world, client, M, select=lambda queues, message, key: queues[key], key=9)


# -- B28 -------------------------------------------------------------------------------------------------------------


def test_b28_bodies_over_four_kibibytes_are_compressed(world: World, brokers: Brokers, client: Client) -> None:
    incompressible = random.Random(1).randbytes(5_000)
    world.send(client, Message("t", bytes(4_096)), Message("t", bytes(4_097)), Message("t", incompressible))
    flags = [command.fields["f"] for _, _, command in brokers.sends]
    assert flags == ["0", str(0x301), "0"]
    assert zlib.decompress(bytes(brokers.sends[1][2].body)) == bytes(4_097)


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (Message("t", b""), "a body"),
        (Message("t", "text"), "expected bytes"),  # type: ignore[arg-type]
        (Message("t", bytes((4 << 20) + 1)), "4194305 bytes"),
        (Message("", b"x"), "topic ''"),
        (Message("a.b", b"x"), r"topic 'a\.b'"),
        (Message("t" * 128, b"x"), "topic"),
        (Message("t", b"x", properties={"a": "\1"}), "property 'a'"),
        (Message("t", b"x", properties={"": "a"}), "property ''"),
        (Message("t", b"x", properties={"a": ""}), "property 'a'"),
        (Message("t", b"x", properties={"a": 1}), "is not text"),  # type: ignore[dict-item]
        (Message("t", b"x", properties={"TAGS": "a"}), "a field"),
        (Message("t", b"x", properties={"a": "x" * 32_768}), "the properties take"),
        (Message("t", b"x", properties={"a": "ü" * 16_384}), "the properties take"),
        (Message("t", b"x", delay_level=1, delay_ms=5), "one positive number"),
        (Message("t", b"x", delay_ms=-1), "one positive number"),
        (Message("t", b"x", tags=""), "TAGS"),
        (Message("t", b"x", keys=""), "KEYS"),
        (Message("t", b"x", tags="\ud800"), "UTF-8"),
        (Message("t", b"x", properties={"RETRY_TOPIC": "secret"}), "a field"),
    ],
)
def test_b28_what_no_broker_takes_is_refused_before_it_is_sent(
    brokers: Brokers, client: Client, message: Message, why: str
) -> None:
    producing = client.producing()
    with pytest.raises(MessageError, match=why):
        client.engine(lambda: producing.send(message))
    assert not brokers.sends
    assert producing.in_flight == 0


BIG = (4 << 20) - 1_024
"""Halfmoon's limit of 4 MiB is a record batch's, with its headers."""


def test_b28_what_is_just_allowed_is_stored(world: World, client: Client) -> None:
    world.topic("t", 1)
    name = "a"
    used = len("UNIQ_KEY\1\2WAIT\1true\2") + 32 + len(f"{name}\1\2")
    world.send(
        client, Message("t", bytes(BIG)), Message("t", b"x", properties={name: "x" * (32_767 - used)}),
        compress_over_bytes=0,
    )  # fmt: skip
    listener = Listener()
    world.client().consumer("g", listener, "t")
    world.until(lambda: len(listener.seen) == 2)
    assert len(listener.seen[0].body) == BIG


def test_b28_delays_by_level_time_and_date(world: World) -> None:
    world.topic("t", 1)
    client, seen = world.client(), Listener()
    world.client().consumer("g", seen, "t")
    began_ms = world.now_ms
    results = world.send(
        client, Message("t", b"level", delay_level=18), Message("t", b"ms", delay_ms=90_500),
        Message("t", b"date", deliver_at_ms=world.rig.clock.now_ms + 4_000_000), Message("t", b"19", delay_level=19),
    )  # fmt: skip
    arrived: dict[bytes, float] = {}
    for count in range(1, 5):
        world.until(partial(lambda count: len(seen.seen) >= count, count), 10_000_000)
        arrived.setdefault(seen.seen[count - 1].body, world.now_ms - began_ms)
    due = {b"ms": 90_500, b"date": 4_000_000, b"level": 7_200_000, b"19": 7_200_000}
    assert {body: arrived[body] - due[body] for body in due} == dict.fromkeys(due, pytest.approx(1, abs=1))
    assert [result.deliver_at_ms - world.rig.clock.now_ms + round(world.now_ms - began_ms) for result in results] == [
        7_200_000, 90_500, 4_000_000, 7_200_000,
    ]  # fmt: skip


def test_b28_the_broker_says_when_a_level_is_due() -> None:
    """It may have other levels than RocketMQ's defaults."""
    listeners = {"rocketmq": {"bind": "127.0.0.1:0", "namesrv": "127.0.0.1:0"}}
    config = {"listeners": listeners, "plugins": {"delay": {"levels": "7m 8m"}}}
    with Broker(config=config) as broker, Producer("g", namesrv=broker.namesrv) as producer:
        began_ms = time.time_ns() // 1_000_000
        sent = [producer.send(Message("t", b"x", delay_level=level)).deliver_at_ms for level in (1, 3, 0)]
        took_ms = time.time_ns() // 1_000_000 - began_ms
        assert 420_000 <= sent[0] - began_ms <= 420_000 + took_ms
        assert 480_000 <= sent[1] - began_ms <= 480_000 + took_ms
        assert sent[2] == 0


def test_b28_a_broker_that_does_not_say(world: World) -> None:
    """RocketMQ's: its default levels are as good a guess as any."""
    broker = FakeBroker(world)
    client = world.client()
    (result,) = world.send(client, Message("t", b"level", delay_level=3))
    assert broker.of(SEND, None)
    assert result.deliver_at_ms == world.rig.clock.now_ms + 10_000


# -- B10 -------------------------------------------------------------------------------------------------------------


def batch(world: World, client: Client, *args: Any, **options: Any) -> list[SendResult]:
    producing = client.producing()
    results = world.wait(client.engine(lambda: producing.send_batch(*args, **options)))
    assert isinstance(results, list)
    return results


def test_b10_a_batch_is_one_request_and_many_messages(world: World) -> None:
    world.topic("t", 1)
    client, listener = world.client(), Listener()
    messages = [Message("t", b"%d" % number, tags="a" if number % 2 else "b", flag=number) for number in range(50)]
    (result,) = batch(world, client, messages)
    assert len(result.message_id.split(",")) == len(result.offset_message_id.split(",")) == 50
    assert result.queue_offset == 0
    world.client().consumer("g", listener, "t")
    world.until(lambda: len(listener.seen) == 50)
    assert [(message.body, message.tags, message.flag) for message in listener.seen] == [
        (message.body, message.tags, message.flag) for message in messages
    ]
    assert [message.message_id for message in listener.seen] == result.message_id.split(",")


def test_b10_batches_are_split_at_a_mebibyte(world: World) -> None:
    world.topic("t", 1)
    client, listener = world.client(), Listener()
    sizes = [400_000] * 5 + [3_000_000, 10]
    results = batch(world, client, [Message("t", bytes(size)) for size in sizes], Queue("t", HALFMOON, 0))
    assert [len(result.message_id.split(",")) for result in results] == [2, 2, 1, 1, 1]
    world.client().consumer("g", listener, "t")
    world.until(lambda: len(listener.seen) == 7)
    assert [len(body) for body in bodies(listener.seen)] == sizes, "in order"


@pytest.mark.parametrize(
    ("messages", "why"),
    [
        ([], "needs a message"),
        ([Message("t", b"x"), Message("u", b"x")], "same topic"),
        ([Message("t", b"x", delay_level=1)], "cannot be delayed"),
        ([Message("%RETRY%g", b"x")], "retry topic"),
        ([Message("t", b"x"), Message("t", bytes(4 << 20))], "4194304 are allowed"),
    ],
)
def test_b10_what_no_batch_may_hold(world: World, messages: list[Message], why: str) -> None:
    Brokers(world)
    client = world.client()
    producing = client.producing()
    with pytest.raises(MessageError, match=why):
        client.engine(lambda: producing.send_batch(messages))


# -- cancelling ------------------------------------------------------------------------------------------------------


def test_b30_a_delayed_message_is_cancelled(world: World) -> None:
    world.topic("t", 2)
    client, listener = world.client(), Listener()
    world.client().consumer("g", listener, "t")
    producing = client.producing()
    kept, cancelled = world.send(client, Message("t", b"kept", delay_ms=60_000), Message("t", b"no", delay_ms=60_000))
    client.do(producing.cancel(cancelled, None))
    world.run_ms(120_000)
    assert bodies(listener.seen) == [b"kept"]
    assert kept.queue.topic == "t"
    (plain,) = world.send(client, Message("t", b"plain"))
    with pytest.raises(MessageError, match="was not delayed"):
        client.do(producing.cancel(plain, None))


def test_b30_a_handle_is_used_where_a_broker_has_given_one(world: World, brokers: Brokers, client: Client) -> None:
    answer = {"msgId": "0" * 32, "queueId": "0", "queueOffset": "1", "recallHandle": "handle"}
    brokers.says = dict.fromkeys(("b1", "b2"), (0, answer, b""))
    sent = send(world, client, Message("t", b"x", delay_ms=5_000))
    client.do(client.producing().cancel(sent, None))
    node = brokers.nodes[sent.queue.broker]
    (recall,) = [command.fields for command in node.asked if command.code == 370]
    assert recall == {"producerGroup": "producers", "topic": "t", "recallHandle": "handle", "bname": sent.queue.broker}
    node.answer = lambda command: (24, {}, b"")
    with pytest.raises(BrokerRefusedError):
        client.do(client.producing().cancel(sent, None))
