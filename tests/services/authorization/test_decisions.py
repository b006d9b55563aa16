"""Decisions over access rules: what Kafka's answers (test_kafka_answers.py) do not tell."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from halfmoon.schema.control import AclRule
from halfmoon.services.authorization.decisions import (
    BY_RULE,
    NO_RULE,
    NO_RULE_OF_RESOURCE,
    OPERATIONS,
    RESOURCE_TYPES,
    Decision,
    Decisions,
)
from halfmoon.services.authorization.own_topics import least_prefix

TOPIC, GROUP = RESOURCE_TYPES["topic"], RESOURCE_TYPES["group"]
LITERAL, PREFIXED = 3, 4
DENY, ALLOW = 2, 3
ALL = 2


def rule(name: str = "t", operation: str | int = "read", **changed: Any) -> AclRule:
    fields = {
        "resource_type": TOPIC, "resource_name": name, "pattern_type": LITERAL, "principal": "User:alice", "host": "*",
        "operation": operation if isinstance(operation, int) else OPERATIONS[operation], "permission": ALLOW,
    }  # fmt: skip
    return AclRule(**(fields | changed))


def decide(decisions: Decisions, operation: str, name: str, host: str = "10.1.2.3", kind: str = "topic") -> Decision:
    applying = decisions.applying("User:alice", host)
    decision = decisions.decide(applying, operation, kind, name)
    assert decisions.allows(applying, operation, kind, name) is decision.allowed
    return decision


def test_a_decision_names_the_rule_that_decides() -> None:
    whole, prefix, implied = rule("t", ALL), rule("ord", pattern_type=PREFIXED), rule("d", "delete")
    denied = rule("orders", permission=DENY, principal="User:*", host="10.1.2.3")
    decisions = Decisions([whole, prefix, implied])
    assert decide(decisions, "write", "t") == Decision(True, BY_RULE, whole)
    assert decide(decisions, "describe", "d") == Decision(True, BY_RULE, implied)
    assert decide(decisions, "read", "orders") == Decision(True, BY_RULE, prefix)
    decisions.add(denied)
    assert decide(decisions, "read", "orders") == Decision(False, BY_RULE, denied)
    assert decide(decisions, "read", "orders", host="10.1.2.4") == Decision(True, BY_RULE, prefix)
    assert decide(decisions, "write", "orders") == Decision(False, NO_RULE)


def test_of_several_rules_that_allow_the_narrowest_is_named() -> None:
    rules = [rule("*"), rule("or", pattern_type=PREFIXED), rule("ord", pattern_type=PREFIXED), rule("orders")]
    for upto in (4, 3, 2, 1):
        assert decide(Decisions(rules[:upto]), "read", "orders").rule == rules[upto - 1]


def test_where_no_rule_is_about_a_resource() -> None:
    decisions = Decisions([rule("t", principal="User:bob"), rule("p", pattern_type=PREFIXED)], allow_everyone=True)
    assert decide(decisions, "write", "u") == Decision(True, NO_RULE_OF_RESOURCE)
    assert decide(decisions, "write", "t") == Decision(False, NO_RULE)
    assert decide(decisions, "write", "pq") == Decision(False, NO_RULE)
    assert decide(decisions, "write", "t", kind="group") == Decision(True, NO_RULE_OF_RESOURCE)
    decisions.remove(rule("t", principal="User:bob"))
    assert decide(decisions, "write", "t") == Decision(True, NO_RULE_OF_RESOURCE)


@pytest.mark.parametrize(
    ("of_rule", "host", "matches"),
    [
        ("10.0.0.0/8", "10.1.2.3", True),
        ("10.0.0.0/8", "11.1.2.3", False),
        ("10.1.2.3/32", "10.1.2.3", True),
        ("0.0.0.0/0", "192.168.0.1", True),
        ("0.0.0.0/0", "::1", False),
        ("10.0.0.0/8", "::ffff:10.9.9.9", True),
        ("::ffff:10.1.2.3", "10.1.2.3", True),
        ("10.1.2.3", "::ffff:10.1.2.3", True),
        ("0:0:0:0:0:0:0:1", "::1", True),
        ("::1", "0:0:0:0:0:0:0:1", True),
        ("fe80::/10", "fe80::1", True),
        ("fe80::/10", "::1", False),
        ("10.1.2.3/8", "10.1.2.3", False),  # no network: bits of a host are set
        ("10.0.0.0/33", "10.1.2.3", False),
        ("localhost", "127.0.0.1", False),
        ("10.0.0.0/8", "no address", False),
    ],
)
def test_hosts_of_rules(of_rule: str, host: str, matches: bool) -> None:
    decisions = Decisions([rule(host=of_rule)])
    assert decide(decisions, "read", "t", host).allowed is matches
    decisions.remove(rule(host=of_rule))
    assert not decide(decisions, "read", "t", host).allowed
    denying = Decisions([rule(), rule(host=of_rule, permission=DENY)])
    assert decide(denying, "read", "t", host).allowed is not matches


def test_two_spellings_of_an_address_are_two_rules() -> None:
    decisions = Decisions([rule(host="::1"), rule(host="0:0:0:0:0:0:0:1")])
    for spelled in ("::1", "0:0:0:0:0:0:0:1"):
        assert decide(decisions, "read", "t", "::1").allowed
        decisions.remove(rule(host=spelled))
    assert not decide(decisions, "read", "t", "::1").allowed


def test_internal_topics_are_matched_by_their_names_only() -> None:
    rules = [rule("*", ALL), rule("hal", ALL, pattern_type=PREFIXED), rule("*", ALL, principal="User:*")]
    for everyone in (False, True):
        decisions = Decisions(rules, least_prefix=least_prefix, allow_everyone=everyone)
        assert decide(decisions, "read", "half").allowed
        assert decide(decisions, "read", "halfmoon.audit") == Decision(False, NO_RULE)
        assert decide(decisions, "read", "halfmoon.audit", kind="group").allowed == everyone
        decisions.add(rule("halfmoon.audit"))
        assert decide(decisions, "read", "halfmoon.audit").rule == rule("halfmoon.audit")
        assert decide(decisions, "describe", "halfmoon.audit").allowed
        assert not decide(decisions, "write", "halfmoon.audit").allowed
        decisions.add(rule("half", 3, permission=DENY, pattern_type=PREFIXED))
        assert not decide(decisions, "read", "halfmoon.audit").allowed


def test_topics_of_groups_are_matched_by_rules_that_name_them() -> None:
    decisions = Decisions([rule("*", ALL), rule("re", ALL, pattern_type=PREFIXED)], least_prefix=least_prefix)
    assert decide(decisions, "read", "retry").allowed
    assert not decide(decisions, "read", "retry.g").allowed
    decisions.add(rule("retry.", ALL, pattern_type=PREFIXED))
    assert decide(decisions, "read", "retry.g").allowed
    assert not decide(decisions, "read", "dlq.g").allowed
    decisions.add(rule("dlq.g", ALL))
    assert decide(decisions, "read", "dlq.g").allowed
    assert not decide(decisions, "read", "check.g").allowed


def test_a_rule_for_all_names_matches_one_that_begins_with_an_asterisk() -> None:
    """Kafka's search passes such rules over (StandardAuthorizerData.checkSection)."""
    assert decide(Decisions([rule("*", resource_type=GROUP)]), "read", "*a", kind="group").allowed


NAMES = some.sampled_from(["*", "a", "ab", "abc", "b"])
RULES = some.builds(
    AclRule,
    resource_type=some.sampled_from([TOPIC, GROUP]), resource_name=NAMES,
    pattern_type=some.sampled_from([LITERAL, PREFIXED]),
    principal=some.sampled_from(["User:alice", "User:*", "User:b"]),
    host=some.sampled_from(["*", "10.1.2.3", "10.0.0.0/8", "::ffff:10.1.2.3", "10.1.2.3/8"]),
    operation=some.sampled_from([ALL, 3, 8]), permission=some.sampled_from([ALLOW, DENY]),
)  # fmt: skip


@given(some.lists(RULES), some.lists(RULES), some.booleans())
def test_rules_that_have_gone_leave_nothing_behind(stay: list[AclRule], go: list[AclRule], everyone: bool) -> None:
    changed, fresh = Decisions(go, allow_everyone=everyone), Decisions(stay, allow_everyone=everyone)
    changed.change(removed=go + go, added=stay + stay)  # known and unknown ones, too
    for name in ("*", "a", "ab", "abcd", "c"):
        for kind in ("topic", "group"):
            for operation in ("read", "describe", "write"):
                assert decide(changed, operation, name, kind=kind) == decide(fresh, operation, name, kind=kind)
    assert vars(changed).keys() == vars(fresh).keys()
    assert changed._grants.keys() == fresh._grants.keys()
    assert changed._networks == fresh._networks
    changed.change(removed=stay, added=())
    assert not changed._grants
    assert not changed._networks
    assert not any(changed._named.values())
    assert not any(names.lengths for names in changed._named.values())
