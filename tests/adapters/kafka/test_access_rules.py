"""ACLs: what is kept, what is refused, and that what is kept is there after a restart."""

from __future__ import annotations

from typing import Any

import pytest
from kafka_rig import Rig, RigClient

from halfmoon.adapters.kafka.api.api_30_create_acls import MOST_AT_ONCE
from halfmoon.adapters.kafka.protocol import REQUESTS
from halfmoon.schema.control import AclRule
from halfmoon.services.acls.rules import AclFilter
from halfmoon.services.acls.service import AccessRules
from halfmoon.testing.node import BareNode

DESCRIBE, CREATE, DELETE = 29, 30, 31
TOPIC, GROUP, CLUSTER = 2, 3, 4
LITERAL, PREFIXED, MATCH, ANY = 3, 4, 2, 1
READ, ALLOW, DENY = 3, 3, 2


@pytest.fixture
def client(rig: Rig) -> RigClient:
    return rig.client()


def rule(**changed: Any) -> AclRule:
    fields = {
        "resource_type": TOPIC, "resource_name": "t", "pattern_type": LITERAL, "principal": "User:alice", "host": "*",
        "operation": READ, "permission": ALLOW,
    }  # fmt: skip
    return AclRule(**(fields | changed))


def create(client: RigClient, *rules: AclRule, version: int = 3) -> list[tuple[int, str | None]]:
    creations = [
        REQUESTS[CREATE].AclCreation(
            resource_type=each.resource_type, resource_name=each.resource_name,
            resource_pattern_type=each.pattern_type, principal=each.principal, host=each.host,
            operation=each.operation, permission_type=each.permission,
        )
        for each in rules
    ]  # fmt: skip
    answer = client.ask(CREATE, version, creations=creations)
    return [(result.error_code, result.error_message) for result in answer.results]


def asking(**changed: Any) -> dict[str, Any]:
    return {
        "resource_type_filter": ANY, "resource_name_filter": None, "pattern_type_filter": ANY,
        "principal_filter": None, "host_filter": None, "operation": ANY, "permission_type": ANY,
    } | changed  # fmt: skip


def described(client: RigClient, version: int = 3, **changed: Any) -> list[tuple[str, str]]:
    answer = client.ask(DESCRIBE, version, **asking(**changed))
    assert answer.error_code == 0
    return [(resource.resource_name, acl.principal) for resource in answer.resources for acl in resource.acls]


@pytest.mark.parametrize("version", [1, 2, 3])
def test_a_rule_about_somebody_else_is_kept(rig: Rig, client: RigClient, version: int) -> None:
    assert (
        create(client, rule(), rule(), rule(principal="User:bob", permission=DENY), version=version) == [(0, None)] * 3
    )
    assert described(client, version) == [("t", "User:alice"), ("t", "User:bob")]
    assert described(client, version, principal_filter="User:bob") == [("t", "User:bob")]
    written = rig.broker.log.end
    assert create(client, rule(), version=version) == [(0, None)]
    assert rig.broker.log.end == written, "it was known"


def test_rules_of_a_request_are_kept_as_a_whole(rig: Rig, client: RigClient) -> None:
    """By one record, beside those that are refused: half of them may allow what the other half denies."""
    changes: list[int] = []
    rig.broker.state.acls.watchers.append(lambda removed, added: changes.append(len(list(added))))
    rules = [rule(resource_name=f"t{number}", permission=number % 2 + DENY) for number in range(10)]
    codes = [code for code, _ in create(client, *rules[:5], rule(operation=99), *rules[5:])]
    assert [bool(code) for code in codes] == [False] * 5 + [True] + [False] * 5
    assert changes == [10]
    create(client, *(rule(resource_name=f"u{number}") for number in range(MOST_AT_ONCE + 1)))
    assert changes == [10, MOST_AT_ONCE, 1]


def test_deleting(client: RigClient) -> None:
    create(client, rule(), rule(resource_name="u"), rule(resource_type=GROUP))
    filters = [
        REQUESTS[DELETE].DeleteAclsFilter(**asking(resource_type_filter=TOPIC)),
        REQUESTS[DELETE].DeleteAclsFilter(**asking(resource_type_filter=TOPIC)),
        REQUESTS[DELETE].DeleteAclsFilter(**asking(operation=99)),
    ]
    answer = client.ask(DELETE, 3, filters=filters)
    told = [
        (result.error_code, [acl.resource_name for acl in result.matching_acls]) for result in answer.filter_results
    ]
    assert told == [(0, ["t", "u"]), (0, []), (42, [])]
    assert described(client) == [("t", "User:alice")]


@pytest.mark.parametrize(
    ("changed", "code", "says"),
    [
        ({"principal": "User:ANONYMOUS"}, 54, "ANONYMOUS"),
        ({"principal": "User:*"}, 54, "User:*"),
        ({"principal": "alice"}, 42, "alice"),
        ({"principal": "User:"}, 42, "TYPE:NAME"),
        ({"resource_type": ANY}, 42, "resource type"),
        ({"resource_type": 99}, 42, "resource type"),
        ({"resource_name": ""}, 42, "name"),
        ({"resource_type": CLUSTER}, 42, "kafka-cluster"),
        ({"pattern_type": MATCH}, 42, "pattern type"),
        ({"operation": ANY}, 42, "operation"),
        ({"permission": ANY}, 42, "permission"),
        ({"host": ""}, 42, "host"),
        ({"host": "10.0.0.1/8"}, 42, "host bits set"),
        ({"host": "10.0.0.0/33"}, 42, "host"),
    ],
)
def test_what_is_refused(client: RigClient, changed: dict[str, Any], code: int, says: str) -> None:
    (told,) = create(client, rule(**changed))
    assert told[0] == code
    assert told[1] is not None
    assert says in told[1]
    assert described(client) == []


def test_a_filter_that_makes_no_sense(client: RigClient) -> None:
    answer = client.ask(DESCRIBE, 3, **asking(resource_type_filter=0))
    assert (answer.error_code, answer.resources) == (42, [])


@pytest.mark.parametrize(
    ("name", "pattern", "found"),
    [
        ("orders", LITERAL, ["orders"]),
        ("orders", ANY, ["orders"]),
        ("ord", PREFIXED, ["ord-prefix"]),
        ("orders", MATCH, ["orders", "*", "ord-prefix"]),
        ("other", MATCH, ["*"]),
        (None, PREFIXED, ["ord-prefix"]),
        (None, MATCH, ["orders", "*", "ord-prefix"]),
    ],
)
def test_which_resources_a_filter_means(name: str | None, pattern: int, found: list[str]) -> None:
    rules = {
        "orders": rule(resource_name="orders"),
        "*": rule(resource_name="*"),
        "ord-prefix": rule(resource_name="ord", pattern_type=PREFIXED),
    }
    wanted = AclFilter(TOPIC, name, pattern, None, None, ANY, ANY)
    assert [each for each, kept in rules.items() if wanted.matches(kept)] == found


def test_rules_are_found_by_name_as_by_looking_at_all(rig: Rig, client: RigClient) -> None:
    names = ["*", "a", "ab", "abc", "b", "x" * 1_100]
    rules = [rule(resource_name=name, pattern_type=pattern) for name in names for pattern in (PREFIXED, LITERAL)]
    assert {code for code, _ in create(client, *rules)} == {0}
    gone = asking(resource_name_filter="ab", pattern_type_filter=PREFIXED)
    rules.remove(rule(resource_name="ab", pattern_type=PREFIXED))
    client.ask(DELETE, 3, filters=[REQUESTS[DELETE].DeleteAclsFilter(**gone)])
    kept = rig.broker.services.get(AccessRules)
    for name in (*names, "abcd", "x" * 1_200, "", None):
        for pattern in (ANY, MATCH, LITERAL, PREFIXED):
            wanted = AclFilter(ANY, name, pattern, None, None, ANY, ANY)
            assert kept.find(wanted) == [each for each in rules if wanted.matches(each)], (name, pattern)


def test_rules_are_there_after_a_restart(rig: Rig, client: RigClient) -> None:
    create(client, rule(), rule(resource_name="u"))
    client.ask(DELETE, 3, filters=[REQUESTS[DELETE].DeleteAclsFilter(**asking(resource_name_filter="u"))])
    broker = BareNode(rig.fs.power_loss(), rig.settings, rig.clock, bytes)
    broker.open()
    assert list(broker.state.acls.rules) == [rule()]
