"""Users and access rules in RocketMQ's words (3001 to 3010): what they become here, and are told again."""

from __future__ import annotations

import json
from typing import Any

import pytest
from rocketmq_rig import Rig, RigClient

from halfmoon.adapters.rocketmq import policies
from halfmoon.adapters.rocketmq.errors import Refused
from halfmoon.adapters.rocketmq.policies import Acl, Entry, Policy
from halfmoon.remoting.codes import Code
from halfmoon.schema.control import AclRule
from halfmoon.services.acls.rules import ANY, AclFilter
from halfmoon.services.acls.service import AccessRules
from halfmoon.services.authorization.decisions import OPERATIONS, RESOURCE_TYPES
from halfmoon.services.credentials.users import Users

LITERAL, PREFIXED = 3, 4
DENY, ALLOW = 2, 3
ALICE = "User:alice"


def rule(said: str, *, principal: str = ALICE, host: str = "*", permission: int = ALLOW) -> AclRule:
    """`read topic orders`, `read topic ord*`, `read topic *`"""
    operation, kind, name = said.split()
    prefixed = name.endswith("*") and name != "*"
    return AclRule(
        RESOURCE_TYPES[kind], name.removesuffix("*") if prefixed else name, PREFIXED if prefixed else LITERAL,
        principal, host, OPERATIONS.get(operation, 2), permission,
    )  # fmt: skip


def entry(resource: str, *actions: str, hosts: tuple[str, ...] = (), decision: str = "Allow") -> Entry:
    return Entry(resource, list(actions), list(hosts), decision)


def rules_of(*entries: Entry) -> set[AclRule]:
    made = policies.rules_of(ALICE, Acl(ALICE, [Policy("Custom", list(entries))]), "DefaultCluster")
    return {each for rules in made.values() for each in rules}


@pytest.mark.parametrize(
    ("said", "becomes"),
    [
        (entry("Topic:orders", "Pub", "Sub"), ["write topic orders", "read topic orders"]),
        (entry("topic:ord*", "pub"), ["write topic ord*"]),
        (entry("Topic:*", "Get", "List"), ["describe topic *"]),
        (entry("Topic:t", "Create", "Update", "Delete"),
         ["create topic t", "alter topic t", "alter_configs topic t", "delete topic t"]),
        (entry("Topic:t", "All"), ["all topic t"]),
        (entry("Topic:%RETRY%g", "Sub"), ["read topic retry.g"]),
        (entry("Topic:%DLQ%*", "Sub"), ["read topic dlq.*"]),
        (entry("Group:g", "Sub", "Pub"), ["read group g", "write transactional_id g"]),
        (entry("Group:*", "All"), ["all group *", "all transactional_id *"]),
        (entry("Cluster:DefaultCluster", "Update"),
         ["alter cluster kafka-cluster", "alter_configs cluster kafka-cluster"]),
        (entry("Cluster:*", "List"), ["describe cluster kafka-cluster"]),
        (entry("*", "Sub"), ["read topic *", "read group *"]),
    ],
    ids=lambda value: value.resource if isinstance(value, Entry) else "",
)  # fmt: skip
def test_what_entries_become(said: Entry, becomes: list[str]) -> None:
    assert rules_of(said) == {rule(each) for each in becomes}


def test_hosts_and_decisions() -> None:
    said = entry("Topic:t", "Sub", hosts=("10.0.0.1", "10.1.0.0/16", "::1"), decision="deny")
    assert rules_of(said) == {
        rule("read topic t", host=host, permission=DENY) for host in ("10.0.0.1", "10.1.0.0/16", "::1")
    }


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (entry("orders", "Pub"), "none of Topic:NAME"),
        (entry("Namespace:n", "Pub"), "none of Topic:NAME"),
        (entry("Topic:", "Pub"), "none of Topic:NAME"),
        (entry("Topic:a*b", "Pub"), "asterisk within"),
        (entry("Topic:a*b*", "Pub"), "asterisk within"),
        (entry("Topic:a/b", "Pub"), "no topic can be called"),
        (entry("Cluster:Other", "Get"), "one cluster"),
        (entry("Cluster:Default*", "Get"), "one cluster"),
        (entry("Cluster:*", "Pub"), "no action on a cluster"),
        (entry("Topic:t"), "actions are empty"),
        (entry("Topic:t", "Any"), "the action 'Any'"),
        (entry("Topic:t", "Pub", decision="maybe"), "neither Allow nor Deny"),
        (entry("Topic:t", "Pub", hosts=("broker.example",)), "is no address"),
        (entry("Topic:t", "Pub", hosts=("",)), "is no address"),
    ],
)
def test_what_cannot_be_said(said: Entry, why: str) -> None:
    with pytest.raises(Refused, match=why):
        rules_of(said)


def test_policies_of_other_types_and_none() -> None:
    other = Acl(ALICE, [Policy("Default", [entry("Topic:t", "Pub")])])
    with pytest.raises(Refused, match="type Default"):
        policies.rules_of(ALICE, other, "c")
    with pytest.raises(Refused, match="no entries"):
        policies.rules_of(ALICE, Acl(ALICE, []), "c")


@pytest.mark.parametrize("subject", ["alice", "Group:g", "User:", ""])
def test_subjects(subject: str) -> None:
    with pytest.raises(Refused, match="is no user"):
        policies.subject_name(subject)


def test_what_is_told_of_rules() -> None:
    rules = [
        rule("write topic orders"), rule("read topic orders"),
        rule("read topic ord*", host="10.0.0.1"), rule("read topic ord*", host="10.0.0.2"),
        rule("all topic secret", permission=DENY),
        rule("read topic retry.g"),
        rule("read group g"), rule("write transactional_id g"),
        rule("describe cluster kafka-cluster"),
        # What RocketMQ has no words for.
        rule("alter topic orders"), rule("idempotent_write cluster kafka-cluster"), rule("describe user bob"),
    ]  # fmt: skip
    acl, unsaid = policies.said_of(ALICE, rules, "DefaultCluster")
    (policy,) = acl.policies
    assert policy.entries == [
        entry("Topic:orders", "Pub", "Sub"),
        entry("Topic:ord*", "Sub", hosts=("10.0.0.1", "10.0.0.2")),
        entry("Topic:secret", "All", decision="Deny"),
        entry("Topic:%RETRY%g", "Sub"),
        entry("Group:g", "Pub", "Sub"),
        entry("Cluster:DefaultCluster", "List"),
    ]
    assert unsaid == 3


@pytest.mark.parametrize("kind", policies.RIGHTS)
def test_every_action_is_told_as_it_was_said(kind: str) -> None:
    for action in policies.RIGHTS[kind]:
        name = "DefaultCluster" if kind == "Cluster" else "x"
        acl, unsaid = policies.said_of(ALICE, rules_of(entry(f"{kind}:{name}", action)), "DefaultCluster")
        (told,) = acl.policies[0].entries
        assert (told.resource, unsaid) == (f"{kind}:{name}", 0)
        assert rules_of(told) == rules_of(entry(f"{kind}:{name}", action))


# The requests.


class Admin:
    def __init__(self) -> None:
        self.rig = Rig()
        self.client: RigClient = self.rig.client()
        self.users = self.rig.broker.services.get(Users)
        self.acls = self.rig.broker.services.get(AccessRules)

    def ask(self, code: int, body: Any = None, **fields: Any) -> tuple[int, Any]:
        answer = self.client.ask(code, b"" if body is None else json.dumps(body).encode(), **fields)
        said = bytes(answer.body)
        return answer.code, json.loads(said) if said else answer.remark

    def rules(self, principal: str = ALICE) -> set[AclRule]:
        return set(self.acls.find(AclFilter(ANY, None, ANY, principal, None, ANY, ANY)))

    def put(self, *entries: dict[str, Any], code: int = 3006, subject: str = ALICE) -> tuple[int, Any]:
        return self.ask(code, {"subject": subject, "policies": [{"policyType": "Custom", "entries": entries}]},
                        subject=subject)  # fmt: skip


@pytest.fixture
def admin() -> Admin:
    return Admin()


def allow(resource: str, *actions: str, **more: Any) -> dict[str, Any]:
    return {"resource": resource, "actions": actions, "sourceIps": None, "decision": "Allow", **more}


def test_users(admin: Admin) -> None:
    assert admin.ask(3001, {"password": "p1", "userType": "Super", "userStatus": None}, username="alice")[0] == 0
    assert admin.ask(3001, {"password": "p2", "userStatus": "disable"}, username="alan")[0] == 0
    assert admin.users.secret("alice") == "p1"
    assert admin.users.secret("alan") is None
    shown = {"username": "alice", "userType": "Super", "userStatus": "enable"}
    assert admin.ask(3004, username="alice") == (0, shown)
    assert admin.ask(3004, username="nobody") == (0, None)
    alan = {"username": "alan", "userType": "Normal", "userStatus": "disable"}
    assert admin.ask(3005, filter="al") == (0, [alan, shown])
    assert admin.ask(3005, filter="ice") == (0, [shown])
    assert admin.ask(3002, {"password": "p3", "userStatus": "enable"}, username="alan")[0] == 0
    assert admin.users.secret("alan") == "p3"
    assert admin.ask(3002, {"userType": "Normal"}, username="alice")[0] == 0
    assert admin.ask(3004, username="alice")[1]["userType"] == "Normal"
    assert admin.users.secret("alice") == "p1"


def test_users_that_cannot_be_made(admin: Admin) -> None:
    assert admin.ask(3001, {"password": ""}, username="alice") == (Code.INVALID_PARAMETER, "the password is empty")
    assert admin.ask(3001, {"password": "p"}, username="")[0] == Code.INVALID_PARAMETER
    assert admin.ask(3001, {"password": "p", "userType": "King"}, username="alice")[0] == Code.INVALID_PARAMETER
    assert admin.users.count == 0
    assert admin.ask(3001, {"password": "p"}, username="alice")[0] == 0
    assert admin.ask(3001, {"password": "q"}, username="alice")[0] == Code.SYSTEM_ERROR
    assert admin.ask(3002, {"password": "q", "userType": "King"}, username="alice")[0] == Code.INVALID_PARAMETER
    assert admin.users.secret("alice") == "p"
    assert admin.ask(3002, {"password": "q"}, username="bob") == (Code.SYSTEM_ERROR, "there is no user bob")


def test_a_deleted_user_leaves_no_rules(admin: Admin) -> None:
    """Who gets the name next would have them."""
    admin.users.create("alice", secret="p")
    admin.acls.change([rule("read topic orders"), rule("read topic orders", principal="User:bob")])
    assert admin.ask(3003, username="alice")[0] == 0
    assert admin.users.look_up("alice") is None
    assert admin.rules() == set()
    assert len(admin.rules("User:bob")) == 1
    assert admin.ask(3003, username="alice")[0] == 0


def test_rules(admin: Admin) -> None:
    admin.users.create("alice", secret="p")
    other = rule("idempotent_write cluster kafka-cluster")
    admin.acls.change([other])
    assert admin.put(allow("Topic:orders", "Pub", "Sub"), allow("Group:g", "Sub"))[0] == 0
    group = rule("read group g")
    assert admin.rules() == {other, rule("write topic orders"), rule("read topic orders"), group}
    # What is said of a resource takes the place of what was.
    assert admin.put(allow("Topic:orders", "Sub", sourceIps=["10.0.0.1"]), code=3007)[0] == 0
    assert admin.rules() == {other, rule("read topic orders", host="10.0.0.1"), group}
    assert admin.put(allow("Cluster:*", "Get"))[0] == 0
    assert other in admin.rules()
    assert admin.ask(3008, subject=ALICE, resource="Cluster:*")[0] == 0
    code, found = admin.ask(3009, subject=ALICE)
    assert (code, found["subject"]) == (0, ALICE)
    assert found["policies"] == [{"policyType": "Custom", "entries": [
        {"resource": "Group:g", "actions": ["Sub"], "sourceIps": [], "decision": "Allow"},
        {"resource": "Topic:orders", "actions": ["Sub"], "sourceIps": ["10.0.0.1"], "decision": "Allow"},
    ]}]  # fmt: skip
    assert "1 rules cannot be said" in str(admin.client.ask(3009, subject=ALICE).remark)
    assert admin.ask(3010, subjectFilter="ali", resourceFilter="Group")[1] == [
        {"subject": ALICE, "policies": [{"policyType": "Custom", "entries": [
            {"resource": "Group:g", "actions": ["Sub"], "sourceIps": [], "decision": "Allow"},
        ]}]}
    ]  # fmt: skip
    assert admin.ask(3010, subjectFilter="bob") == (0, [])
    assert admin.ask(3008, subject=ALICE)[0] == 0
    assert admin.rules() == set()
    assert admin.ask(3008, subject=ALICE)[0] == Code.SYSTEM_ERROR


def test_nothing_changes_where_a_part_is_refused(admin: Admin) -> None:
    admin.users.create("alice", secret="p")
    assert admin.put(allow("Topic:orders", "Pub"), allow("Namespace:n", "Pub"))[0] == Code.INVALID_PARAMETER
    assert admin.put(allow("Topic:orders", "Pub"), allow("Topic:b", "Pub", sourceIps=["10.0.0.1/8"]))[0] == (
        Code.SYSTEM_ERROR
    )
    assert admin.rules() == set()
    assert admin.put(allow("Topic:orders", "Pub"), subject="User:nobody") == (
        Code.SYSTEM_ERROR,
        "there is no user nobody",
    )
    assert admin.rules("User:nobody") == set()


def test_too_many_rules(admin: Admin, monkeypatch: pytest.MonkeyPatch) -> None:
    admin.users.create("alice", secret="p")
    monkeypatch.setattr(policies, "MOST_RULES", 3)
    assert admin.put(*[allow(f"Topic:t{number}", "Pub") for number in range(4)])[0] == Code.INVALID_PARAMETER
    admin.acls.change([rule(f"read topic t{number}") for number in range(4)])
    assert admin.ask(3009, subject=ALICE)[0] == Code.INVALID_PARAMETER
    assert admin.ask(3010)[0] == Code.INVALID_PARAMETER


def test_too_many_users(admin: Admin, monkeypatch: pytest.MonkeyPatch) -> None:
    from halfmoon.adapters.rocketmq import users

    monkeypatch.setattr(users, "MOST", 1)
    admin.users.create("alice", secret="p")
    admin.users.create("bob", secret="p")
    assert admin.ask(3005)[0] == Code.INVALID_PARAMETER
    assert admin.ask(3005, filter="bob")[0] == 0


def test_from_this_machine_unless_rules_decide(admin: Admin) -> None:
    away = admin.rig.client(peer="10.0.0.2")
    answer = away.ask(3001, b'{"password": "p"}', username="alice")
    assert answer.code == Code.NO_PERMISSION
    assert admin.users.count == 0
