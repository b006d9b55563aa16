"""Who has which queue, heartbeats, routes, subscriptions: B22 to B25, and B37's part of the client."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from halfmoon.client.engine.consuming import PushConsuming
from halfmoon.client.engine.listening import Context, Status
from halfmoon.client.engine.routes import Route, decode_route
from halfmoon.client.engine.subscriptions import by_tags
from halfmoon.client.errors import BrokerRefusedError, RouteError
from halfmoon.client.messages import Message, ReceivedMessage
from halfmoon.plugin import Queue
from halfmoon.remoting.command import Command
from tests.client.fake_broker import (
    HEARTBEAT,
    MEMBERS,
    NO_NEW,
    PULL,
    UNREGISTER,
    UPDATE_OFFSET,
    FakeBroker,
    many,
    pulled,
)
from tests.client.test_pulling import Listener, MemoryFile
from tests.client.world import BROKER, NAMES, Client, World, bodies, names, route

ROUTE = 105


def owners(world: World, topic: str = "t") -> dict[int, list[str]]:
    """Queue → who reads it."""
    found: dict[int, list[str]] = {}
    for client in world.clients:
        if client.is_alive and hasattr(client, "consuming"):
            for queue, each in client.consuming.queues.items():
                if queue.topic == topic and not each.is_dropped:
                    found.setdefault(queue.queue_id, []).append(client.name)
    return found


def join(world: World, name: str, **settings: Any) -> tuple[Client, PushConsuming, Listener]:
    client, listener = world.client(name), Listener()
    return client, client.consumer("g", listener, "t", **settings), listener


# -- B22 -------------------------------------------------------------------------------------------------------------


def test_b22_members_share_the_queues_as_soon_as_they_come(world: World) -> None:
    world.topic("t", 8)
    join(world, "a")
    assert {queue: who for queue, (who,) in owners(world).items()} == dict.fromkeys(range(8), "a")
    join(world, "b")
    world.run_ms(100)
    assert {queue: who for queue, (who,) in owners(world).items()} == {
        queue: "a" if queue < 4 else "b" for queue in range(8)
    }
    join(world, "c")
    world.run_ms(100)
    assert sorted(Counter(who for (who,) in owners(world).values()).values()) == [2, 3, 3]


def test_b22_an_orderly_end_is_noticed_at_once_a_kill_too_and_silence_after_two_minutes(world: World) -> None:
    world.topic("t", 4)
    closed, killed, silent = (join(world, name) for name in ("a", "b", "c"))
    join(world, "d")
    world.run_ms(100)
    assert len({who for (who,) in owners(world).values()}) == 4
    closed[0].do(closed[1].close())
    closed[0].is_alive = False
    world.run_ms(100)
    assert set(owners(world)) == set(range(4))
    killed[0].kill()
    world.run_ms(100)
    assert set(owners(world)) == set(range(4))
    silent[0].freeze()
    world.run_ms(100)
    assert set(owners(world)) != set(range(4))
    world.run_ms(150_000)
    assert {who for (who,) in owners(world).values()} == {"d"}


def test_b22_it_is_looked_at_every_twenty_seconds(world: World, broker: FakeBroker) -> None:
    world.client().consumer("g", Listener(), "t")
    world.run_ms(1_500)  # what is new is settled
    before = len(broker.of(MEMBERS, None))
    world.run_ms(20_000)
    assert len(broker.of(MEMBERS, None)) - before == 2, "t, and the retry topic"
    world.run_ms(40_000)
    assert len(broker.of(MEMBERS, None)) - before == 6


def test_b22_nothing_is_lost_or_left_when_members_come_and_go(world: World) -> None:
    world.topic("t", 6)
    sender = world.client("sender")
    listeners = []
    number = 0
    for round_ in range(6):
        client, consuming, listener = join(world, f"m{round_}")
        listeners.append(listener)
        for _ in range(30):
            world.send(sender, Message("t", b"%d" % number))
            number += 1
        if round_ % 2:
            client.do(consuming.close())
            client.is_alive = False
    world.run_ms(5_000)
    seen = {body for listener in listeners for body in bodies(listener.seen)}
    assert seen == {b"%d" % each for each in range(number)}


def test_b22_broadcasting_members_read_everything(world: World) -> None:
    world.topic("t", 3)
    sender = world.client("sender")
    listeners = [Listener(), Listener()]
    for listener in listeners:
        world.client().consumer("g", listener, "t", file=MemoryFile(), model="broadcasting")
    world.send(sender, *[Message("t", b"%d" % number) for number in range(9)])
    world.run_ms(100)
    assert [sorted(bodies(listener.seen)) for listener in listeners] == [[b"%d" % each for each in range(9)]] * 2


def test_b22_new_queues_are_found_within_half_a_minute(world: World) -> None:
    world.topic("t", 2)
    join(world, "a")
    topic = world.rig.broker.topic("t")
    assert topic is not None
    world.rig.broker.add_partitions(topic, 5)
    assert world.until(lambda: len(owners(world)) == 5, 60_000) <= 30_000


def test_b22_a_topic_that_comes_later_is_found(world: World) -> None:
    _, _, listener = join(world, "a")
    world.run_ms(60_000)
    world.topic("t", 2)
    world.send(world.client("sender"), Message("t", b"x"))
    world.until(lambda: listener.seen, 60_000)


def test_b22_a_queue_that_nobody_pulls_any_more_is_taken_anew(
    world: World, broker: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    consuming = world.client().consumer("g", Listener(), "t")
    world.run_ms(100)
    stuck = consuming.queues[Queue("t", "b", 0)]
    assert stuck.task is not None
    stuck.task.cancel()
    world.run_ms(150_000)
    assert "queue_silent" in caplog.text
    assert consuming.queues[Queue("t", "b", 0)] is not stuck
    assert len(broker.of(PULL)) > 1


@pytest.mark.parametrize(
    "strategy", ["averagely", "averagely_by_circle", "consistent_hash", "machine_room", "machine_room_nearby", "sticky"]
)
def test_b22_every_strategy_gives_every_queue_one_owner(world: World, strategy: str) -> None:
    world.topic("t", 12)
    for name in "abc":
        join(world, name, strategy=strategy)
    world.run_ms(1_000)
    assert {queue: len(who) for queue, who in owners(world).items()} == dict.fromkeys(range(12), 1)


def test_b22_sticky_moves_no_more_than_it_must(world: World) -> None:
    world.topic("t", 12)
    join(world, "b", strategy="sticky")
    join(world, "c", strategy="sticky")
    world.run_ms(1_000)
    before = owners(world)
    join(world, "a", strategy="sticky")  # sorts first: `averagely` would move nearly all
    world.run_ms(1_000)
    after = owners(world)
    assert Counter(who for (who,) in after.values()) == {"a": 4, "b": 4, "c": 4}
    assert sum(before[queue] != after[queue] for queue in after) == 4


def test_b22_sticky_without_a_broker_that_knows_it_is_averagely(world: World) -> None:
    broker = FakeBroker(world, queues=4)
    broker.answers[400] = (29, {}, b"")
    broker.members = ["10.0.0.1@c1", "0@a"]
    consuming = world.client().consumer("g", Listener(), "t", strategy="sticky")
    world.run_ms(1_000)
    assert [queue.queue_id for queue in consuming.owned("t")] == [2, 3]


def test_b23_a_strategy_is_a_function_like_those_of_plugins() -> None:
    def first_takes_all(members: Sequence[str], queues: Sequence[Queue]) -> dict[str, list[Queue]]:
        return {member: list(queues) if index == 0 else [] for index, member in enumerate(sorted(members))}

    world = World()
    world.topic("t", 4)
    for name in "ab":
        join(world, name, allocator=first_takes_all)
    world.run_ms(100)
    assert {who for (who,) in owners(world).values()} == {"a"}


def test_b23_a_strategy_that_fails_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    works = True

    def sometimes(members: Sequence[str], queues: Sequence[Queue]) -> dict[str, list[Queue]]:
        if not works:
            raise ZeroDivisionError("no")
        return {member: list(queues) for member in members}

    world = World()
    world.topic("t", 4)
    _, consuming, _ = join(world, "a", allocator=sometimes)
    works = False
    world.run_ms(60_000)
    assert len(consuming.owned("t")) == 4
    assert "allocation_failed" in caplog.text


# -- B24 -------------------------------------------------------------------------------------------------------------


def test_b24_a_heartbeat_every_thirty_seconds_says_what_we_are(world: World) -> None:
    broker = FakeBroker(world, slave=True)
    client = world.client()
    client.consumer("g", Listener(), {"t": "a || b"})
    world.run_ms(61_000)
    assert [at_ms for at_ms, _ in broker.of(HEARTBEAT, None)] == [0, 0, 30_000, 30_000, 60_000, 60_000]
    assert len([command for command in broker.slave.asked if command.code == HEARTBEAT]) == 3, "slaves, too"
    body = json.loads(bytes(broker.of(HEARTBEAT, None)[0][1].body))
    assert body["clientID"] == client.instance.client_id
    (consumer,) = body["consumerDataSet"]
    assert (consumer["groupName"], consumer["consumeType"], consumer["messageModel"], consumer["consumeFromWhere"]) == (
        "g", "CONSUME_PASSIVELY", "CLUSTERING", "CONSUME_FROM_FIRST_OFFSET",
    )  # fmt: skip
    wanted = {each["topic"]: each for each in consumer["subscriptionDataSet"]}
    assert set(wanted) == {"t", "%RETRY%g"}
    assert (wanted["t"]["subString"], wanted["t"]["tagsSet"], wanted["t"]["codeSet"]) == (
        "a || b",
        ["a", "b"],
        [97, 98],
    )
    assert wanted["%RETRY%g"]["subString"] == "*"


def test_b24_producers_speak_to_masters_alone(world: World) -> None:
    broker = FakeBroker(world, slave=True)
    world.send(world.client(), Message("t", b"x"))
    world.run_ms(31_000)
    assert len([command for command in broker.master.asked if command.code == HEARTBEAT]) == 2
    assert not broker.slave.asked
    body = json.loads(bytes(broker.of(HEARTBEAT, None)[0][1].body))
    assert body["producerDataSet"] == [{"groupName": "producers"}]


def test_b24_routes_are_asked_for_every_thirty_seconds(world: World) -> None:
    FakeBroker(world)
    server = world.nodes[NAMES]
    world.client().consumer("g", Listener(), "t")
    world.run_ms(100)
    before = server.count(ROUTE)  # type: ignore[union-attr]
    world.run_ms(60_000)
    assert server.count(ROUTE) - before == 4  # type: ignore[union-attr]


def test_b24_leaving_is_said(world: World, broker: FakeBroker, client: Client) -> None:
    consuming = client.consumer("g", Listener(), "t")
    world.run_ms(100)
    client.do(consuming.close())
    (left,) = broker.fields(UNREGISTER, None)
    assert left == {"clientID": client.instance.client_id, "consumerGroup": "g"}


def test_b24_a_broker_that_was_lost_is_told_of_us_as_soon_as_it_is_back(world: World) -> None:
    world.topic("t", 2)
    _, consuming, listener = join(world, "a")
    client = world.clients[0]
    world.run_ms(1_000)
    del world.nodes[BROKER]
    for link in client.links:
        link.cut()
    world.run_ms(4_000)
    world.nodes[BROKER] = world.rig
    sender = world.client("sender")
    world.send(sender, Message("t", b"x"))
    assert world.until(lambda: listener.seen, 60_000) <= 6_500, "connections are tried again after growing pauses"
    members = world.rig.node.members
    assert members is not None
    assert len(consuming.owned("t")) == 2


def test_b24_queues_of_a_lost_broker_that_are_elsewhere_now_are_found_at_once(world: World) -> None:
    """Shards of a cluster move when a node dies: what is asked every 30 s would be learnt too late."""
    broker = FakeBroker(world)
    world.client().consumer("g", Listener(), "t")
    world.run_ms(5_000)
    elsewhere = "10.0.0.7:10911"
    moved = world.script(elsewhere, broker.answer)
    servers = world.script(NAMES, names(("b", {0: elsewhere}, 1)))
    del world.nodes[broker.nodes[0]]
    for link in world.clients[0].links:
        link.cut()
    assert world.until(lambda: moved.count(PULL), 60_000) <= 3_500, "a pull that failed is tried again after 3 s"
    assert moved.count(HEARTBEAT)
    asked = servers.count(ROUTE)
    world.run_ms(10_000)
    assert servers.count(ROUTE) - asked <= 2, "it is asked no more than before"


def test_b24_a_name_server_that_fails_is_replaced_by_another(world: World) -> None:
    world.topic("t", 2)
    world.script("10.9.9.9:9876", lambda command: (1, {}, b""))
    for servers in [["10.8.8.8:9876", NAMES], ["10.9.9.9:9876", NAMES]]:
        client = world.client(name_servers=servers)
        (sent,) = world.send(client, Message("t", b"x"))
        assert sent.queue.topic == "t"


def test_no_name_server_is_said_so(world: World) -> None:
    client = world.client(name_servers=["10.8.8.8:9876"])
    with pytest.raises(RouteError, match=r"no name server answers: 10\.8\.8\.8:9876"):
        world.send(client, Message("t", b"x"))


# -- B25 -------------------------------------------------------------------------------------------------------------


def test_b25_the_last_subscription_for_a_topic_counts(world: World) -> None:
    world.topic("t", 1)
    client, listener = world.client(), Listener()
    consuming = client.consumer("g", listener, {"t": "a"}, start=False)
    consuming.subscribe(by_tags("t", "b", 2))
    client.do(consuming.start())
    world.send(world.client("sender"), Message("t", b"a", tags="a"), Message("t", b"b", tags="b"))
    world.run_ms(100)
    assert bodies(listener.seen) == [b"b"]


def test_b25_sql92_selects_by_properties(world: World) -> None:
    world.topic("t", 1)
    client, listener = world.client(), Listener()
    client.consumer("g", listener, {"t": "TAGS = 'x' AND region IN ('HZ', 'SH')"}, sql=True)
    world.send(
        world.client("sender"),
        *[
            Message("t", f"{tag} {region}".encode(), tags=tag, properties={"region": region})
            for tag in "xy"
            for region in ("HZ", "BJ", "SH")
        ],
    )
    world.run_ms(100)
    assert bodies(listener.seen) == [b"x HZ", b"x SH"]


def test_b25_a_wrong_expression_is_refused_at_the_start(world: World, client: Client) -> None:
    world.topic("t", 1)
    consuming = client.consumer("g", Listener(), {"t": "region >"}, sql=True, start=False)
    with pytest.raises(BrokerRefusedError) as refused:
        client.do(consuming.start())
    assert refused.value.code == 23


def test_b25_members_that_want_different_things_are_named(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.topic("t", 2)
    first, second = world.client("a"), world.client("b")
    first.consumer("g", Listener(), {"t": "x"})
    second.consumer("g", Listener(), {"t": "y"})
    world.run_ms(1_000)
    assert "10.0.0.1@a" in caplog.text
    assert "10.0.0.2@b" in caplog.text


def test_b25_what_is_not_wanted_any_more_is_not_read(world: World) -> None:
    world.topic("t", 1)
    world.topic("u", 1)
    client, listener = world.client(), Listener()
    consuming = client.consumer("g", listener, {"t": "*", "u": "*"})
    world.run_ms(100)
    client.engine(lambda: (consuming.unsubscribe("u"), consuming.changed()))
    world.run_ms(100)
    sender = world.client("sender")
    world.send(sender, Message("t", b"t"), Message("u", b"u"))
    world.run_ms(60_000)
    assert bodies(listener.seen) == [b"t"]


# -- B37 -------------------------------------------------------------------------------------------------------------


def test_b37_while_the_master_is_away_the_other_node_is_read_and_told_of_progress(world: World) -> None:
    broker = FakeBroker(world, slave=True)
    broker.pulls = [pulled(0, 2, many(range(2))), pulled(NO_NEW, 2)]
    listener = Listener()
    client = world.client()
    client.consumer("g", listener, "t")
    world.run_ms(1_000)
    assert len(listener.seen) == 2
    # The master goes: the name server says so at the next look.
    del world.nodes["127.0.0.1:1"]
    for link in broker.master.links:
        link.cut()
    world.script(NAMES, names(("b", {1: "127.0.0.1:2"}, 1)))
    for link in list(client.links):
        if link.connection.address == NAMES:
            link.cut()
    broker.pulls = [pulled(0, 4, many(range(2, 4)), node=1), pulled(NO_NEW, 4, node=1)]
    world.run_ms(60_000)
    assert bodies(listener.seen) == [b"0", b"1", b"2", b"3"]
    told = [
        command for command in broker.slave.asked if command.code == UPDATE_OFFSET and command.fields["topic"] == "t"
    ]
    assert told[-1].fields["commitOffset"] == "4"


@pytest.mark.parametrize(
    ("nodes", "wanted", "expected"),
    [
        ({0: "m", 1: "s", 2: "r"}, 0, ("m", 0)),
        ({0: "m", 1: "s", 2: "r"}, 2, ("r", 2)),
        ({1: "s", 2: "r"}, 0, ("s", 1)),
        ({2: "r"}, 0, ("r", 2)),
        ({0: "m"}, 1, ("m", 0)),
        ({}, 0, None),
    ],
)
def test_b37_the_node_wanted_else_the_next_else_any(
    client: Client, nodes: Mapping[int, str], wanted: int, expected: tuple[str, int] | None
) -> None:
    client.instance.routes.put("t", Route((), (), {"b": nodes}))
    assert client.instance.routes.readable("b", wanted) == expected


def test_routes_as_fastjson_writes_them() -> None:
    """Numbers as keys without quotation marks."""
    body = route(("b", {0: "h:1", 1: "h:2"}, 2)).replace(b'"0":', b"0:").replace(b'"1":', b"1:")
    decoded = decode_route("t", body)
    assert decoded.brokers == {"b": {0: "h:1", 1: "h:2"}}
    assert decoded.writable == (Queue("t", "b", 0), Queue("t", "b", 1))
    with pytest.raises(RouteError):
        decode_route("t", b"{")


# -- several brokers -------------------------------------------------------------------------------------------------


def test_queues_of_several_brokers_are_read_and_progress_goes_to_each(world: World) -> None:
    world.script(NAMES, names(("b1", {0: "127.0.0.1:1"}, 1), ("b2", {0: "127.0.0.1:2"}, 1)))
    pulls: dict[str, list[Any]] = {"b1": [pulled(0, 2, many(range(2)))], "b2": [pulled(0, 3, many(range(3)))]}
    told: list[tuple[str, str]] = []

    def answer(command: Command) -> Any:
        fields = command.fields
        if command.code == MEMBERS:
            return 0, {}, json.dumps({"consumerIdList": ["10.0.0.1@c1"]}).encode()
        if command.code == PULL:
            some = pulls.get(fields["bname"]) if fields["topic"] == "t" else None
            return some.pop(0) if some else None
        if command.code == UPDATE_OFFSET:
            told.append((fields["bname"], fields["commitOffset"]))
        return 0, {"offset": "0"}, b""

    world.script("127.0.0.1:1", answer)
    world.script("127.0.0.1:2", answer)
    listener = Listener()
    world.client().consumer("g", listener, "t")
    world.run_ms(6_000)
    assert len(listener.seen) == 5
    assert sorted(told) == [("b1", "2"), ("b2", "3")]


def test_a_listener_is_told_which_queue_it_is(world: World) -> None:
    world.topic("t", 2)
    seen: list[tuple[Queue, Queue]] = []

    def listener(messages: Sequence[ReceivedMessage], context: Context) -> Status:
        seen.append((context.queue, messages[0].queue))
        return Status.SUCCESS

    world.client().consumer("g", listener, "t")
    world.send(world.client("sender"), Message("t", b"x"), Message("t", b"y"))
    world.run_ms(100)
    assert all(context == message for context, message in seen)
    assert {context.queue_id for context, _ in seen} == {0, 1}
