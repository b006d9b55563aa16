"""HalfmoonSchedules: what is asked, in one process and in two, whichever of them is asked."""

from __future__ import annotations

import json
import struct
from typing import Any

import msgspec
import pytest
from kafka_rig import Rig
from shard_rig import SHARDS
from two_processes import TwoProcesses

from halfmoon.adapters.kafka.api import registered
from halfmoon.adapters.kafka.server import Server
from halfmoon.adapters.tcp.access import Use
from halfmoon.adapters.tcp.round_time import RoundTime
from halfmoon.core.catalog.topics import Topic
from halfmoon.hooks.context import PluginContext
from halfmoon.hooks.murmur2 import murmur2, partition_of_key
from halfmoon.hooks.schedules import Answer, ChangeSchedule, CreateSchedule, ListSchedules
from halfmoon.plugins.store.schedule.plugin import ScheduleSettings, halfmoon_commitlog, halfmoon_features
from halfmoon.server.assembly import Node
from halfmoon.server.plugin_features import context_of
from halfmoon.server.plugin_host import Host

KEY = 18508
HOURLY = "0 * * * *"


class Some:
    """Rights to everything but what is named: (operation, topic)."""

    principal, host = "User:u", "10.0.0.5"

    def __init__(self, *refused: tuple[str, str]) -> None:
        self._refused = refused
        self.demanded: list[Use] = []

    def allows(self, use: Use) -> bool:
        return (use[0], use[2]) not in self._refused

    def allows_either(self, *uses: Use) -> bool:
        return any(map(self.allows, uses))

    def demands(self, uses: tuple[Use, ...]) -> bool:
        self.demanded += uses
        return self.allows_either(*uses)


def plug_in(node: Node) -> None:
    ctx = PluginContext("schedule", ScheduleSettings())
    halfmoon_commitlog(ctx)
    host = Host(node, "unused")
    host.rights = lambda principal, host: None
    ctx.attach(host)
    for feature in halfmoon_features(context_of(node, ctx, {})):
        for service in feature.services:
            node.services.add(service)
        assert feature.start is not None
        feature.start()


@pytest.fixture
def two() -> TwoProcesses:
    made = TwoProcesses()
    for node in made.nodes.values():
        plug_in(node)
    for rig in made.rigs:
        serve(rig, rig.front, rig.nodes[rig.here[0]].services, homes=rig.homes)
    made.relay()
    return made


def serve(rig: Any, *parts: Any, **more: Any) -> None:
    """Anew: a server offers what its services need when it is made."""
    rig.server = Server(*parts, rig.settings, rig.loop, **more)
    rig.server.round_time = RoundTime(rig.loop.call_soon, lambda: 0.0)


@pytest.fixture
def topic(two: TwoProcesses) -> Topic:
    return two.topic("t", 4)


def ask(two: TwoProcesses, question: msgspec.Struct | bytes, process: int = 0, rights: Any = None) -> Answer:
    client = two.client(process)
    client.connection._rights = rights
    body = question if isinstance(question, bytes) else msgspec.json.encode(question)
    request = struct.pack(">hhih", KEY, 0, 7, -1) + body
    client.feed(struct.pack(">i", len(request)) + request)
    for _ in range(3):
        two.turn()
        two.relay()
    (frame,) = client.frames()
    return msgspec.json.decode(frame[4:], type=Answer)


def ids(answer: Answer) -> list[str]:
    assert answer.schedules is not None, answer
    return [each.id for each in answer.schedules]


def test_it_is_not_advertised(two: TwoProcesses) -> None:
    assert registered()[KEY].own
    client = two.client(0)
    request = struct.pack(">hhih", 18, 0, 7, -1)
    client.feed(struct.pack(">i", len(request)) + request)
    two.turn()
    (frame,) = client.frames()
    keys = [key for key, _, _ in struct.iter_unpack(">hhh", frame[10:])]
    assert 0 in keys
    assert KEY not in keys


@pytest.mark.parametrize("process", [0, 1])
def test_whichever_process_is_asked_all_shards_have_a_say(two: TwoProcesses, topic: Topic, process: int) -> None:
    for partition in range(4):
        made = ask(two, CreateSchedule("t", f"s{partition}", HOURLY, partition=partition), process)
        assert ids(made) == [f"t/{partition}/s{partition}"]
    everything = [f"t/{partition}/s{partition}" for partition in range(4)]
    assert ids(ask(two, ListSchedules(), process)) == everything
    assert ids(ask(two, ListSchedules("t"), process)) == everything
    assert ids(ask(two, ListSchedules("t", "s2"), process)) == ["t/2/s2"]
    assert ids(ask(two, ListSchedules("missing"), process)) == []
    paused = ask(two, ChangeSchedule("t", "s3", "paused"), 1 - process)
    assert [(each.id, each.state) for each in paused.schedules or ()] == [("t/3/s3", "paused")]
    assert ids(ask(two, ChangeSchedule("t", "s3", "cancelled"), process)) == ["t/3/s3"]
    assert ask(two, ChangeSchedule("t", "s3", "cancelled"), process).fault == "RESOURCE_NOT_FOUND"
    assert ask(two, ChangeSchedule("missing", "s3", "cancelled"), process).fault == "RESOURCE_NOT_FOUND"
    assert ids(ask(two, ListSchedules(), process)) == everything[:3]


def test_the_partition_is_kafkas_by_the_key_or_follows_from_the_name(two: TwoProcesses, topic: Topic) -> None:
    assert ids(ask(two, CreateSchedule("t", "a", HOURLY, key=b"key-1"))) == [f"t/{partition_of_key(b'key-1', 4)}/a"]
    first, second = (ids(ask(two, CreateSchedule("t", "b", HOURLY), process)) for process in (0, 1))
    assert first == second


def test_a_name_is_one_schedules_in_a_topic(two: TwoProcesses, topic: Topic) -> None:
    ask(two, CreateSchedule("t", "a", HOURLY, partition=0))
    refused = ask(two, CreateSchedule("t", "a", HOURLY, partition=1, replace=True))
    assert (refused.fault, refused.message) == (
        "INVALID_RECORD",
        "there is t/0/a, in another partition: cancel that first",
    )
    assert ask(two, CreateSchedule("t", "a", "5 * * * *", partition=0)).fault == "DUPLICATE_RESOURCE"
    (replaced,) = ask(two, CreateSchedule("t", "a", "5 * * * *", partition=0, replace=True)).schedules or ()
    assert replaced.cron == "5 * * * *"


@pytest.mark.parametrize("process", [0, 1])
def test_lists_come_in_parts(two: TwoProcesses, topic: Topic, process: int) -> None:
    for number in range(12):
        ask(two, CreateSchedule("t", f"s{number:02}", HOURLY, partition=number % 4))
    found: list[str] = []
    while True:
        answer = ask(two, ListSchedules("t", most=5, after=found[-1] if found else ""), process)
        assert 1 <= len(ids(answer)) <= 5
        found += ids(answer)
        if not answer.more:
            break
    assert found == sorted(found)
    assert len(found) == len(set(found)) == 12


def test_a_shard_that_cannot_be_reached_has_no_answer_given(two: TwoProcesses, topic: Topic) -> None:
    ask(two, CreateSchedule("t", "a", HOURLY, partition=0))
    away = two.shard_of(topic, 1)
    two.questions.unreachable.add(away)
    for question in (
        ListSchedules(),
        ChangeSchedule("t", "a", "paused"),
        CreateSchedule("t", "b", HOURLY, partition=0),
    ):
        answer = ask(two, question)
        assert answer.fault == "NOT_LEADER_OR_FOLLOWER"
        assert f"shard {away} cannot be reached now: ask again" in answer.message
    two.questions.unreachable.clear()
    (again,) = ask(two, ChangeSchedule("t", "a", "paused")).schedules or ()
    assert again.state == "paused"


def test_who_asks_is_who_the_shard_believes_it_is(two: TwoProcesses, topic: Topic) -> None:
    rights = Some()
    two.rights = lambda principal, host: rights
    for partition in range(4):
        ask(two, CreateSchedule("t", f"s{partition}", HOURLY, partition=partition), rights=rights)
    assert ("write", "topic", "t") in rights.demanded
    blind = Some(("describe", "t"))
    two.rights = lambda principal, host: blind
    assert ids(ask(two, ListSchedules(), rights=blind)) == []
    assert ask(two, ChangeSchedule("t", "s0", "paused"), rights=blind).fault == "RESOURCE_NOT_FOUND"
    poor = Some(("write", "t"), ("alter", "t"))
    two.rights = lambda principal, host: poor
    for question in (
        CreateSchedule("t", "x", HOURLY),
        CreateSchedule("no", "x", HOURLY),
        ChangeSchedule("t", "s0", "paused"),
    ):
        answer = ask(two, question, rights=Some(("write", "t"), ("alter", "t"), ("write", "no")))
        assert answer.fault == "TOPIC_AUTHORIZATION_FAILED"


def test_what_is_no_question_asks_nobody(two: TwoProcesses, topic: Topic) -> None:
    for body in (b"{", b"", b'{"type": "create"}', b'{"type": "change", "topic": "t", "name": "n", "to": "x"}'):
        assert ask(two, body).fault == "INVALID_REQUEST"
    for question in (CreateSchedule("no", "n", HOURLY), CreateSchedule("t", "n", HOURLY, partition=9)):
        assert ask(two, question).fault == "UNKNOWN_TOPIC_OR_PARTITION"
    assert two.questions.asked == []


def test_one_process_answers_as_well(two: TwoProcesses) -> None:
    rig = Rig()
    rig.topic("t", 2)
    plug_in(rig.broker)
    serve(rig, rig.broker.kernel, rig.broker.services)
    client = rig.client()

    def ask_one(question: msgspec.Struct | bytes) -> dict[str, Any]:
        body = question if isinstance(question, bytes) else msgspec.json.encode(question)
        request = struct.pack(">hhih", KEY, 0, 7, -1) + body
        client.feed(struct.pack(">i", len(request)) + request)
        rig.turn()
        (frame,) = client.frames()
        found: dict[str, Any] = json.loads(frame[4:])
        return found

    assert ask_one(b"{")["fault"] == "INVALID_REQUEST"
    while rig.broker.relays.has_work:
        rig.broker.relays.step()
    made = ask_one(CreateSchedule("t", "n", HOURLY, key=b"k", value=b"v"))["schedules"][0]
    assert (made["partition"], made["creator"], made["value"]) == (partition_of_key(b"k", 2), "User:ANONYMOUS", "dg==")
    assert [each["name"] for each in ask_one(ListSchedules())["schedules"]] == ["n"]
    assert SHARDS > 0


@pytest.mark.parametrize(
    ("key", "value"), [(b"21", -973932308), (b"foobar", -790332482), (b"a-little-bit-long-string", -985981536)]
)
def test_kafkas_own_vectors(key: bytes, value: int) -> None:
    """org.apache.kafka.common.utils.UtilsTest.testMurmur2."""
    assert murmur2(key) == value & 0xFFFF_FFFF
