"""What is recorded at which level, and how much of it."""

from __future__ import annotations

import json
from typing import Any, get_args

import pytest

from halfmoon.config.security_settings import AuditLevel
from halfmoon.services.audit import limit
from halfmoon.services.audit.lines import Use, Who
from halfmoon.services.audit.service import ADDRESSES, PRINCIPALS, Audit, Why

HOST = "10.0.0.7"
READ, WRITE = ("read", "topic", "orders"), ("write", "topic", "orders")
CREATE: tuple[Use, Use] = ("create", "cluster", "kafka-cluster"), ("create", "topic", "orders")


class World:
    def __init__(self, level: AuditLevel = "denied") -> None:
        self.now_ms = 1_000
        self.lines: list[tuple[dict[str, Any], bool]] = []
        self.audit = Audit(level, self)
        self.audit.sinks = (self,)
        self.why: dict[Use, Why] = {}
        self.audit.explain = lambda principal, host, use: self.why.get(use, Why(False, "no rule"))

    def wall_ms(self) -> int:
        return self.now_ms

    mono_ms = wall_ms

    def put(self, line: bytes, *, echo: bool) -> None:
        self.lines.append((json.loads(line), echo))

    def denied(self, name: str = "User:alice", *uses: Use) -> None:
        self.audit.denied(Who("public", f"{HOST}:1", name), HOST, "Produce", uses or (WRITE,))

    def taken(self) -> list[dict[str, Any]]:
        found = [line for line, _ in self.lines]
        self.lines.clear()
        return found


WHO = Who("public", f"{HOST}:1", "User:alice", "PLAIN", "app")


@pytest.mark.parametrize("level", get_args(AuditLevel))
def test_levels(level: AuditLevel) -> None:
    world = World(level)
    audit = world.audit
    world.denied()
    audit.login_failed(WHO, HOST, "another password")
    assert [(each["event"], each["decision"]) for each in world.taken()] == [("access", "denied"), ("login", "denied")]
    audit.changed(WHO, "CreateDelegationToken", ("create", "delegation_token", "t"))
    audit.changed(WHO, "CreateDelegationToken", ("create", "delegation_token", ""), "denied", "NOT_ALLOWED")
    told = [(each["decision"], each.get("reason")) for each in world.taken()]
    assert told == [("allowed", None), ("denied", "NOT_ALLOWED")][level == "denied" :]
    audit.logged_in(WHO)
    assert [each["event"] for each in world.taken()] == ["login"] * (level == "all")
    assert (audit.records_changes, audit.records_all) == (level != "denied", level == "all")


def test_the_narrowest_is_what_it_is_about_and_the_one_that_decides_says_why() -> None:
    world = World("all")
    world.why = {CREATE[0]: Why(True, "rule", "allow User:alice create cluster")}
    world.audit.allowed(WHO, HOST, "CreateTopics", CREATE)
    (line,) = world.taken()
    assert (line["resource_type"], line["resource"], line["reason"]) == ("topic", "orders", "rule")
    assert line["rule"] == "allow User:alice create cluster"
    world.denied("User:alice", *CREATE)
    assert world.taken()[0]["reason"] == "no rule"


def test_what_is_not_so_any_more_says_nothing() -> None:
    world = World("all")
    world.why = {WRITE: Why(True, "rule", "allow User:alice write topic:orders")}
    world.denied()
    assert not {"reason", "rule"} & set(world.taken()[0])
    world.audit.allowed(WHO, HOST, "Fetch", (READ,))
    assert not {"reason", "rule"} & set(world.taken()[0])
    world.audit.allowed(WHO, HOST, "InitProducerId", (("write", "topic", None),))
    assert not {"reason", "rule", "resource"} & set(world.taken()[0])


def test_who_reads_the_topic_is_an_echo_there() -> None:
    world = World("all")
    for operation, topic in (("read", "halfmoon.audit"), ("describe", "halfmoon.audit"), ("read", "orders")):
        world.audit.allowed(WHO, HOST, "Fetch", ((operation, "topic", topic),))
    world.audit.allowed(WHO, HOST, "AlterConfigs", (("alter_configs", "topic", "halfmoon.audit"),))
    world.denied("User:eve", ("read", "topic", "halfmoon.audit"))
    assert [echo for _, echo in world.lines] == [True, True, False, False, False]


def test_at_most_ten_a_second_of_each_and_then_a_count() -> None:
    world = World()
    for _ in range(25):
        world.denied()
    world.denied("User:bob")
    told = [each["principal"] for each in world.taken()]
    assert told == ["User:alice"] * 10 + ["User:bob"]
    world.audit.turn()
    assert world.taken() == []
    world.now_ms += 1_000
    world.audit.turn()
    (line,) = world.taken()
    assert (line["event"], line["of"], line["count"]) == ("left_out", "User:alice", 15)
    world.audit.turn()
    world.denied()
    assert [each["event"] for each in world.taken()] == ["access"]


def test_the_count_comes_before_the_next_line() -> None:
    world = World()
    for _ in range(11):
        world.denied()
    world.taken()
    world.now_ms += 5_000
    world.denied()
    assert [each["event"] for each in world.taken()] == ["left_out", "access"]


def test_strangers_are_counted_by_their_address_whoever_they_say_to_be() -> None:
    world = World()
    for number in range(50):
        world.audit.login_failed(WHO, HOST, "unknown", f"User:{number}")
    world.audit.login_failed(WHO, "10.0.0.8", "unknown", "User:1")
    assert len(world.taken()) == 11


def test_what_is_allowed_has_no_limit() -> None:
    world = World("all")
    for _ in range(50):
        world.audit.allowed(WHO, HOST, "Fetch", (READ,))
    assert len(world.taken()) == 50


def test_those_who_are_too_many_share_a_place() -> None:
    world = World()
    for number in range(100_000):
        world.denied(f"User:{number}")
    assert len(world.taken()) == PRINCIPALS + limit.MOST
    assert len(world.audit._refusals._counts) == PRINCIPALS + 1
    for number in range(100_000):
        world.audit.login_failed(WHO, f"2001:db8::{number:x}", "unknown")
    assert len(world.taken()) == ADDRESSES + limit.MOST
    world.now_ms += 1_000
    world.audit.turn()
    told = [(line["of"], line["count"]) for line in world.taken()]
    assert told == [(limit.OTHERS, 100_000 - known - limit.MOST) for known in (PRINCIPALS, ADDRESSES)]


def test_strangers_take_no_place_of_users() -> None:
    world = World()
    for number in range(1_000):
        world.audit.login_failed(WHO, f"2001:db8::{number:x}", "unknown")
    world.taken()
    for _ in range(10):
        world.denied()
    assert len(world.taken()) == 10


def test_where_nobody_explains_nothing_is_explained() -> None:
    world = World()
    world.audit = Audit("denied", world)
    world.audit.sinks = (world,)
    world.denied()
    assert not {"reason", "rule"} & set(world.taken()[0])
