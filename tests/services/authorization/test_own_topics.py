"""Topics of the broker's own: whom they follow, and which rules say something about them."""

from __future__ import annotations

import pytest

from halfmoon.schema.control import AclRule, AclsChanged
from halfmoon.schema.group_topics import check_topic, dead_letter_topic, retry_topic
from halfmoon.services.acls.state import AclsState
from halfmoon.services.authorization.own_topics import is_internal
from halfmoon.services.authorization.service import Authorization, Authorizer

ALICE = "User:alice"
TYPES = {"topic": 2, "group": 3, "transactional_id": 5}
OPERATIONS = {"all": 2, "read": 3, "write": 4, "create": 5, "delete": 6, "describe": 8}
LITERAL, PREFIXED = 3, 4
DENY, ALLOW = 2, 3


class World:
    def __init__(self, *rules: str, plugins: tuple[Authorizer, ...] = ()) -> None:
        acls = AclsState()
        self.service = Authorization(acls, lambda principal: False, plugins=plugins)
        acls.apply(AclsChanged([_rule(each) for each in rules], []))

    def may(self, operation: str, topic: str) -> bool:
        """Asked twice: the second answer is the one that is kept."""
        answers = {self.service.allows(ALICE, "h", operation, "topic", topic) for _ in range(2)}
        answers.add(self.service.decide(ALICE, "h", operation, "topic", topic).allowed)
        (answer,) = answers
        return answer


def _rule(text: str) -> AclRule:
    """`read group g`, `deny read topic ret*`, `all topic *`."""
    words = text.split()
    permission = DENY if words[0] == "deny" else ALLOW
    operation, kind, name = words[-3:]
    pattern = PREFIXED if name.endswith("*") and name != "*" else LITERAL
    name = name.removesuffix("*") if pattern == PREFIXED else name
    return AclRule(TYPES[kind], name, pattern, ALICE, "*", OPERATIONS[operation], permission)


GROUP = "team/ö"
"""No topic may be called so."""


def test_a_groups_topics_follow_it() -> None:
    world = World(f"read group {GROUP}")
    retry, dead = retry_topic(GROUP), dead_letter_topic(GROUP)
    for operation in ("read", "describe", "create"):
        assert world.may(operation, retry)
        assert world.may(operation, dead)
    assert world.may("write", retry)
    assert not world.may("write", dead)
    for topic in (retry, dead):
        assert not world.may("delete", topic)
    for other in (retry_topic("other"), dead_letter_topic("other"), "retry.", "orders"):
        assert not world.may("read", other)


def test_who_may_only_describe_a_group_gets_nothing_of_it() -> None:
    world = World("describe group g", "delete group g")
    assert not any(world.may(operation, topic) for operation in OPERATIONS if operation != "all"
                   for topic in ("retry.g", "dlq.g"))  # fmt: skip


@pytest.mark.parametrize("rule", ["all topic *", "all topic r*", "all topic ret*"])
def test_rules_for_all_topics_say_nothing_of_groups_topics(rule: str) -> None:
    world = World(rule)
    assert world.may("read", "return")
    for topic in ("retry.g", "dlq.g", "check.p", "halfmoon.transactions", "SCHEDULE_TOPIC_XXXX"):
        assert not world.may("read", topic)
        assert not world.may("write", topic)


@pytest.mark.parametrize("rule", ["read topic retry.g", "read topic retry.*", "read topic retry.g*"])
def test_rules_that_name_them_do(rule: str) -> None:
    world = World(rule)
    assert world.may("read", "retry.g")
    assert not world.may("write", "retry.g")


@pytest.mark.parametrize("rule", ["deny read topic retry.g", "deny read topic *", "deny read topic r*"])
def test_who_is_denied_the_topic_is_not_helped_by_the_group(rule: str) -> None:
    world = World("read group g", rule)
    assert not world.may("read", "retry.g")
    assert world.may("write", "retry.g")


def test_who_is_denied_the_group_is_denied_its_topics() -> None:
    world = World("read group *", "deny read group g")
    assert world.may("read", "retry.other")
    assert not world.may("read", "retry.g")


def test_what_producers_are_asked_follows_them() -> None:
    world = World("write transactional_id p")
    assert world.may("read", check_topic("p"))
    assert world.may("describe", check_topic("p"))
    assert not world.may("write", check_topic("p"))
    assert not world.may("read", check_topic("q"))


def test_who_may_write_transactions_may_say_how_they_end() -> None:
    world = World("write transactional_id p")
    assert world.may("write", "halfmoon.transactions")
    assert world.may("describe", "halfmoon.transactions")
    assert not world.may("read", "halfmoon.transactions")
    assert not World("read group g").may("write", "halfmoon.transactions")


def test_internal_topics_are_known_by_name() -> None:
    """Also such as do not exist yet."""
    assert all(map(is_internal, ("SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "halfmoon.audit")))
    assert not any(map(is_internal, ("__consumer_offsets", "half", "orders")))
    world = World("read topic halfmoon.*", "read topic SCHEDULE_TOPIC_XXXX")
    assert not world.may("read", "halfmoon.audit")
    assert world.may("read", "SCHEDULE_TOPIC_XXXX")


def test_a_plugin_is_asked_about_the_group_as_long_as_its_answers_hold() -> None:
    said: dict[tuple[str, str], bool] = {}

    def ask(principal: str, host: str, operation: str, kind: str, name: str | None) -> bool | None:
        return said.get((kind, name or ""))

    world = World("read group g", plugins=(Authorizer("p", ask),))
    assert world.may("read", "retry.g")
    said["group", "g"] = False
    assert not world.may("read", "retry.g")
    said["topic", "retry.g"] = True
    assert world.may("read", "retry.g")
