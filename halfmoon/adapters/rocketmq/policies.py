"""RocketMQ's words for access rules, and ours: what `mqadmin createAcl` and its kin say, as far as both have it.

    Topic:orders   Topic:ord*   Group:billing   Cluster:DefaultCluster   * (all three)       and actions:

              Topic                   Group                          Cluster
    Pub       Write                   Write on the transactional id  –
    Sub       Read                    Read                           –
    Create    Create                  Create                         Create
    Update    Alter, AlterConfigs     AlterConfigs                   Alter, AlterConfigs
    Delete    Delete                  Delete                         Delete
    Get       Describe                Describe                       Describe, DescribeConfigs
    List      Describe                Describe                       Describe
    All       All                     All, also of transactional ids All

An entry without addresses is for every host, one with some is a rule for each. An entry is what is said of one
resource: another for the same takes its place (AclConverter, Resource, Policy.updateEntry,
AuthorizationMetadataManagerImpl).

Not to be said in both: policies of type Default, which count where no other does; and all that makes a narrow entry
win over a wide one. Here whatever denies wins.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from msgspec import Struct

from halfmoon.adapters.rocketmq import names
from halfmoon.adapters.rocketmq.errors import Refused
from halfmoon.remoting.codes import Code
from halfmoon.schema.control import AclRule
from halfmoon.schema.group_topics import dead_letter_topic, retry_topic
from halfmoon.services.acls.rules import ALLOW, ANY_NAME, CLUSTER_NAME, DENY, LITERAL, PREFIXED
from halfmoon.services.authorization.decisions import ALL, OPERATIONS, RESOURCE_TYPES

SUBJECT = "User:"
CUSTOM = "Custom"
MOST_RULES = 10_000
"""In one request, or one answer: a megabyte."""

Right = tuple[int, int]
"""Type of the resource, and operation."""


def _rights(*said: str) -> frozenset[Right]:
    pairs = (each.split() for each in said)
    return frozenset((RESOURCE_TYPES[kind], OPERATIONS.get(operation, ALL)) for operation, kind in pairs)


RIGHTS: dict[str, dict[str, frozenset[Right]]] = {
    "Topic": {
        "All": _rights("all topic"),
        "Pub": _rights("write topic"),
        "Sub": _rights("read topic"),
        "Create": _rights("create topic"),
        "Update": _rights("alter topic", "alter_configs topic"),
        "Delete": _rights("delete topic"),
        "Get": _rights("describe topic"),
        "List": _rights("describe topic"),
    },
    "Group": {
        "All": _rights("all group", "all transactional_id"),
        "Pub": _rights("write transactional_id"),
        "Sub": _rights("read group"),
        "Create": _rights("create group"),
        "Update": _rights("alter_configs group"),
        "Delete": _rights("delete group"),
        "Get": _rights("describe group"),
        "List": _rights("describe group"),
    },
    "Cluster": {
        "All": _rights("all cluster"),
        "Create": _rights("create cluster"),
        "Update": _rights("alter cluster", "alter_configs cluster"),
        "Delete": _rights("delete cluster"),
        "Get": _rights("describe cluster", "describe_configs cluster"),
        "List": _rights("describe cluster"),
    },
}
SAYABLE = frozenset(right for actions in RIGHTS.values() for rights in actions.values() for right in rights)
_KIND_OF = {resource_type: kind for kind, actions in RIGHTS.items() for rights in actions.values()
            for resource_type, _ in rights}  # fmt: skip
_OF_ALL_GROUPS = {names.RETRY_PREFIX: retry_topic(""), names.DEAD_LETTER_PREFIX: dead_letter_topic("")}
"""What prefixes of RocketMQ's are called here."""
_ACTIONS = {name.lower(): name for name in RIGHTS["Topic"]}
_DECISIONS = {"allow": ALLOW, "deny": DENY}


class Entry(Struct):
    resource: str = ""
    actions: list[str] = []
    sourceIps: list[str] = []  # noqa: N815 (the wire's names, here and below)
    decision: str = ""


class Policy(Struct):
    policyType: str = CUSTOM  # noqa: N815
    entries: list[Entry] = []


class Acl(Struct):
    subject: str = ""
    policies: list[Policy] = []


class Place(NamedTuple):
    """What an entry is about."""

    kind: str
    """Topic, Group or Cluster."""
    pattern_type: int
    name: str
    """As rules have it."""

    @property
    def keys(self) -> Iterator[tuple[int, str, int]]:
        """(type of resource, name, pattern type) of the rules that say it."""
        for resource_type in sorted({right[0] for rights in RIGHTS[self.kind].values() for right in rights}):
            yield resource_type, self.name, self.pattern_type


def refused(why: str) -> Refused:
    return Refused(Code.INVALID_PARAMETER, why)


def subject_name(subject: str) -> str:
    """Of the user. Raises Refused."""
    kind, colon, name = subject.partition(":")
    if kind.lower() != "user" or not colon or not name:
        raise refused(f"the subject '{subject[:300]}' is no user: expected User:NAME")
    return name


def places(resource: str, cluster: str) -> list[Place]:
    """`cluster`: our name in RocketMQ. Raises Refused."""
    if resource == ANY_NAME:
        return [Place(kind, LITERAL, _any(kind)) for kind in RIGHTS]
    said, colon, name = resource.partition(":")
    kind = said.capitalize()
    if kind not in RIGHTS or not colon or not name:
        raise refused(f"the resource '{resource[:300]}' is none of Topic:NAME, Group:NAME, Cluster:NAME and *")
    if name == ANY_NAME:
        return [Place(kind, LITERAL, _any(kind))]
    prefixed = name.endswith(ANY_NAME)
    name = name.removesuffix(ANY_NAME)
    if ANY_NAME in name:
        raise refused(
            f"the resource '{resource[:300]}' has an asterisk within: a name or the beginning of one is expected"
        )
    if kind == "Cluster":
        if prefixed or name != cluster:
            raise refused(f"there is one cluster here: Cluster:{cluster}, or Cluster:*")
        return [Place(kind, LITERAL, CLUSTER_NAME)]
    if kind == "Topic":
        name = _OF_ALL_GROUPS.get(name) or names.from_rocketmq(name)
    return [Place(kind, PREFIXED if prefixed else LITERAL, name)]


def _any(kind: str) -> str:
    return CLUSTER_NAME if kind == "Cluster" else ANY_NAME


def rules_of(principal: str, acl: Acl, cluster: str) -> dict[Place, list[AclRule]]:
    """What is to be said of each resource, in place of what was. Raises Refused."""
    found: dict[Place, list[AclRule]] = {}
    count = 0
    for policy in acl.policies:
        if policy.policyType.lower() != CUSTOM.lower():
            raise refused(f"policies of type {policy.policyType[:300]} are not offered; expected {CUSTOM}")
        for entry in policy.entries:
            for place in places(entry.resource, cluster):
                found[place] = list(_rules(principal, place, entry))
                count += len(found[place])
                if count > MOST_RULES:
                    raise refused(f"more than {MOST_RULES} rules")
    if not found:
        raise refused("the policies have no entries")
    return found


def _rules(principal: str, place: Place, entry: Entry) -> Iterator[AclRule]:
    permission = _DECISIONS.get(entry.decision.lower())
    if permission is None:
        raise refused(f"the decision '{entry.decision[:300]}' is neither Allow nor Deny")
    if not entry.actions:
        raise refused("the actions are empty")
    rights: dict[Right, None] = {}
    for said in entry.actions:
        action = _ACTIONS.get(said.strip().lower())
        if action is None:
            raise refused(f"the action '{said[:300]}' is none of {', '.join(_ACTIONS.values())}")
        of_action = RIGHTS[place.kind].get(action)
        if of_action is None and entry.resource != ANY_NAME:
            raise refused(f"{action} is no action on a {place.kind.lower()}")
        rights.update(dict.fromkeys(sorted(of_action or ())))
    for host in entry.sourceIps or [ANY_NAME]:
        if host != ANY_NAME and not (host and host.strip("0123456789abcdefABCDEF.:/") == ""):
            raise refused(f"'{host[:300]}' is no address")
        for resource_type, operation in rights:
            yield AclRule(resource_type, place.name, place.pattern_type, principal, host, operation, permission)


def said_of(principal: str, rules: Iterable[AclRule], cluster: str) -> tuple[Acl, int]:
    """A principal's rules in RocketMQ's words, and how many it has no words for."""
    rights: dict[tuple[Place, int, str], set[Right]] = {}
    unsaid = 0
    for rule in rules:
        kind = _KIND_OF.get(rule.resource_type)
        if kind is None:
            unsaid += 1
            continue
        place = Place(kind, rule.pattern_type, rule.resource_name)
        rights.setdefault((place, rule.permission, rule.host), set()).add((rule.resource_type, rule.operation))
    hosts: dict[tuple[str, tuple[str, ...], int, bool], list[str]] = {}
    for (place, permission, host), held in rights.items():
        of_actions = RIGHTS[place.kind]
        actions = tuple(action for action, needed in of_actions.items() if needed <= held)
        unsaid += len(held.difference(*(of_actions[action] for action in actions)))
        if actions:
            key = _resource(place, cluster), actions, permission, host == ANY_NAME
            hosts.setdefault(key, []).append(host)
    entries = [
        Entry(resource, list(actions), [] if everywhere else found, "Deny" if permission == DENY else "Allow")
        for (resource, actions, permission, everywhere), found in hosts.items()
    ]
    return Acl(principal, [Policy(CUSTOM, entries)] if entries else []), unsaid


def _resource(place: Place, cluster: str) -> str:
    if place.kind == "Cluster":
        return f"Cluster:{cluster}"
    name = names.to_rocketmq(place.name) if place.kind == "Topic" else place.name
    return f"{place.kind}:{name}{ANY_NAME if place.pattern_type == PREFIXED else ''}"
