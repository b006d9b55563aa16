"""Access rules decide who may do what, exactly as StandardAuthorizerData of Apache Kafka 4.3.1 does.

- Rules that match the resource's name, the principal or `User:*`, and the host or `*`, are asked. One that denies wins.
- An ALLOW of Read, Write, Delete or Alter allows Describe, and one of AlterConfigs DescribeConfigs. A DENY denies only
  what it names.
- Where no rule at all is about the resource, `allow_everyone` says it; where there are some, and none allows: denied.

Beyond Kafka: a rule's host may be a network (services/acls/hosts.py), and rules for `*` or for short prefixes do not
allow anything on topics of the broker's own (own_topics.py); they deny it there as everywhere. Unlike Kafka, whose
search passes them over, a rule for `*` matches a name that begins with an asterisk, too.

What rules say is kept by resource type and by (principal, host), as bits of operations by the name of the resource. So
a decision looks at the few keys that the asker has, and at the lengths of prefixes that rules of these have; the number
of rules does not matter. Caches, plugins and super users are the service's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from halfmoon.schema.control import AclRule
from halfmoon.services.acls import hosts
from halfmoon.services.acls.hosts import Network
from halfmoon.services.acls.rules import ALLOW, ANY_NAME, DENY, EVERYBODY, LITERAL, PREFIXED

ALL = 2
OPERATIONS = {
    "read": 3, "write": 4, "create": 5, "delete": 6, "alter": 7, "describe": 8, "cluster_action": 9,
    "describe_configs": 10, "alter_configs": 11, "idempotent_write": 12, "create_tokens": 13, "describe_tokens": 14,
    "two_phase_commit": 15,
}  # fmt: skip
"""Kafka's AclOperation."""
RESOURCE_TYPES = {"topic": 2, "group": 3, "cluster": 4, "transactional_id": 5, "delegation_token": 6, "user": 7}
"""Kafka's ResourceType."""
TOPIC = RESOURCE_TYPES["topic"]

_IMPLIED_BY = {"describe": ("read", "write", "delete", "alter"), "describe_configs": ("alter_configs",)}
_DENIES = 16
"""Bits of what is denied stand behind those of what is allowed."""


def _bit(operation: int, permission: int) -> int:
    return 1 << operation + (_DENIES if permission == DENY else 0)


_ALLOWING = {
    name: sum(_bit(each, ALLOW) for each in (number, ALL, *(OPERATIONS[by] for by in _IMPLIED_BY.get(name, ()))))
    for name, number in OPERATIONS.items()
}
"""By operation: the bits of those whose ALLOW allows it."""
_DENYING = {name: _bit(number, DENY) | _bit(ALL, DENY) for name, number in OPERATIONS.items()}
_ITSELF = {name: _bit(number, ALLOW) | _bit(ALL, ALLOW) for name, number in OPERATIONS.items()}

_SOME_NAME = "hardcode"
"""Of the resource by which Authorizer.authorizeByResourceType asks whether everything is allowed."""


class Decision(NamedTuple):
    allowed: bool
    reason: str
    """One of the constants below, or `plugin NAME`."""
    rule: AclRule | None = None
    """The one that decides, where a rule does."""


SUPER_USER, BY_RULE, NO_RULE, NO_RULE_OF_RESOURCE = "super user", "rule", "no rule allows it", "no rule on the resource"


class Names:
    """Numbers by resource names and by prefixes of them."""

    __slots__ = ("_counts", "lengths", "literal", "prefixed")

    def __init__(self) -> None:
        self.literal: dict[str, int] = {}
        self.prefixed: dict[str, int] = {}
        self.lengths: list[int] = []
        """Of the prefixes, longest first."""
        self._counts: dict[int, int] = {}

    def put(self, pattern_type: int, name: str, number: int) -> None:
        """0 takes the name out."""
        if pattern_type == LITERAL:
            self._put(self.literal, name, number)
        elif self._put(self.prefixed, name, number):
            length = len(name)
            count = self._counts.pop(length, 0) + (1 if number else -1)
            if count:
                self._counts[length] = count
            if count == bool(number):  # the first of this length came, or the last has gone
                self.lengths = sorted(self._counts, reverse=True)

    def of(self, pattern_type: int, name: str) -> int:
        return (self.literal if pattern_type == LITERAL else self.prefixed).get(name, 0)

    def matching(self, name: str) -> Iterator[tuple[int, str, int]]:
        """(pattern type, its name, number) of all that match a name, the narrowest first."""
        number = self.literal.get(name)
        if number:
            yield LITERAL, name, number
        longest = len(name)
        for length in self.lengths:
            if length <= longest:
                number = self.prefixed.get(name[:length])
                if number:
                    yield PREFIXED, name[:length], number
        number = self.literal.get(ANY_NAME)
        if number and name != ANY_NAME:
            yield LITERAL, ANY_NAME, number

    @staticmethod
    def _put(names: dict[str, int], name: str, number: int) -> bool:
        """Whether the name is new, or gone."""
        if number:
            known = name in names
            names[name] = number
            return not known
        return names.pop(name, None) is not None

    def __bool__(self) -> bool:
        return bool(self.literal or self.prefixed)


class Grants(Names):
    """What rules say of one principal on one host (or `*`, or a network): operations' bits by names."""

    __slots__ = ("host", "principal", "resource_type")

    def __init__(self, resource_type: int, principal: str, host: str) -> None:
        super().__init__()
        self.resource_type = resource_type
        self.principal = principal
        self.host = host

    def rule(self, pattern_type: int, name: str, bits: int, permission: int) -> AclRule:
        """The rule of the first of these bits."""
        shift = _DENIES if permission == DENY else 0
        operation = ((bits >> shift) & -(bits >> shift)).bit_length() - 1
        return AclRule(self.resource_type, name, pattern_type, self.principal, self.host, operation, permission)


Applying = dict[int, list[Grants]]
"""What applies to one who asks, by resource type."""


class Decisions:
    """All rules, ready to be asked. They come and go one by one."""

    def __init__(
        self, rules: Iterable[AclRule] = (), *, allow_everyone: bool = False,
        least_prefix: Callable[[str], int] = lambda topic: 0,
    ) -> None:  # fmt: skip
        """`allow_everyone`: where no rule is about a resource (`allow.everyone.if.no.acl.found`). `least_prefix`: of a
        topic, how long the prefix of a rule must be to allow something there; 0: `*` does it, too."""
        self._allow_everyone = allow_everyone
        self._least_prefix = least_prefix
        self._grants: dict[tuple[int, str, str], Grants] = {}
        self._named: dict[int, Names] = {number: Names() for number in RESOURCE_TYPES.values()}
        """How many rules have a name, whomever they are about."""
        self._networks: dict[Network, dict[str, int]] = {}
        """How many rules are about a network, by its spellings."""
        self._network_lengths: set[tuple[int, int]] = set()
        for rule in rules:
            self.add(rule)

    def change(self, removed: Iterable[AclRule], added: Iterable[AclRule]) -> None:
        for rule in removed:
            self.remove(rule)
        for rule in added:
            self.add(rule)

    def add(self, rule: AclRule) -> None:
        """A known one changes nothing."""
        self._set(rule, 1)

    def remove(self, rule: AclRule) -> None:
        """An unknown one changes nothing."""
        self._set(rule, -1)

    def _set(self, rule: AclRule, more: int) -> None:
        kind, pattern, name = rule.resource_type, rule.pattern_type, rule.resource_name
        key = kind, rule.principal, rule.host
        grants = self._grants.get(key) or Grants(*key)
        bits, bit = grants.of(pattern, name), _bit(rule.operation, rule.permission)
        if bool(bits & bit) == (more > 0):
            return
        grants.put(pattern, name, bits ^ bit)
        if grants:
            self._grants[key] = grants
        else:
            del self._grants[key]
        named = self._named[kind]
        named.put(pattern, name, named.of(pattern, name) + more)
        if "/" in rule.host or ":" in rule.host:
            self._count_network(rule.host, more)

    def _count_network(self, spelled: str, more: int) -> None:
        try:
            network = hosts.network(spelled)
        except ValueError:  # kept since a time when any text was taken: it matches nobody, as in Kafka
            return
        if network is None:
            return
        spellings = self._networks.setdefault(network, {})
        count = spellings.pop(spelled, 0) + more
        if count:
            spellings[spelled] = count
        elif not spellings:
            del self._networks[network]
        self._network_lengths = {(version, length) for version, length, _ in self._networks}

    def applying(self, principal: str, host: str) -> Applying:
        """What rules say of one who asks, until one of them changes."""
        found: Applying = {}
        host = hosts.canonical(host)
        places = [host, ANY_NAME]
        if self._networks:
            for network in hosts.networks_around(host, self._network_lengths):
                places += self._networks.get(network, ())
        keys = [(who, place) for who in dict.fromkeys((principal, EVERYBODY)) for place in dict.fromkeys(places)]
        for kind in RESOURCE_TYPES.values():
            found[kind] = [self._grants[kind, *key] for key in keys if (kind, *key) in self._grants]
        return found

    def decide(self, applying: Applying, operation: str, resource_type: str, name: str) -> Decision:
        """Raises KeyError for an operation or a type that there is not."""
        kind = RESOURCE_TYPES[resource_type]
        denying, allowing = _DENYING[operation], _ALLOWING[operation]
        least = self._least_prefix(name) if kind == TOPIC else 0
        allowed: tuple[Grants, int, str, int] | None = None
        for grants in applying[kind]:
            for pattern_type, pattern, bits in grants.matching(name):
                if bits & denying:
                    return Decision(False, BY_RULE, grants.rule(pattern_type, pattern, bits & denying, DENY))
                if least and pattern != name and (pattern_type == LITERAL or len(pattern) < least):
                    continue
                if allowed is None and bits & allowing:
                    allowed = grants, pattern_type, pattern, bits & allowing
        if allowed is not None:
            grants, pattern_type, pattern, bits = allowed
            return Decision(True, BY_RULE, grants.rule(pattern_type, pattern, bits, ALLOW))
        if self._is_open(kind, name, least):
            return Decision(True, NO_RULE_OF_RESOURCE)
        return Decision(False, NO_RULE)

    def allows(self, applying: Applying, operation: str, resource_type: str, name: str) -> bool:
        """As `decide`, without saying why."""
        kind = RESOURCE_TYPES[resource_type]
        denying, allowing = _DENYING[operation], _ALLOWING[operation]
        if kind == TOPIC and self._least_prefix(name):
            return self.decide(applying, operation, resource_type, name).allowed
        found = 0
        longest = len(name)
        for grants in applying[kind]:
            # The same as `matching`, without a generator: this is what a request waits for.
            found |= grants.literal.get(name, 0) | grants.literal.get(ANY_NAME, 0)
            prefixed = grants.prefixed
            for length in grants.lengths:
                if length <= longest:
                    found |= prefixed.get(name[:length], 0)
        if found & denying:
            return False
        if found & allowing:
            return True
        return self._is_open(kind, name, 0)

    def denies(self, applying: Applying, operation: str, resource_type: str, name: str) -> bool:
        """Whether a rule denies it, whatever others allow."""
        denying = _DENYING[operation]
        matching = (each for grants in applying[RESOURCE_TYPES[resource_type]] for each in grants.matching(name))
        return any(bits & denying for _, _, bits in matching)

    def _is_open(self, kind: int, name: str, least: int) -> bool:
        return self._allow_everyone and not least and not any(self._named[kind].matching(name))

    def allows_on_any(self, applying: Applying, operation: str, resource_type: str) -> bool:
        """Whether there is a resource of the type on which it is allowed, as far as rules tell without its name: the
        default of Kafka's Authorizer.authorizeByResourceType, which StandardAuthorizer takes. What is implied by other
        operations does not count there."""
        if self.allows(applying, operation, resource_type, _SOME_NAME):
            return True
        allowing, denying = _ITSELF[operation], _DENYING[operation]
        of_type = applying[RESOURCE_TYPES[resource_type]]
        if any(grants.literal.get(ANY_NAME, 0) & denying for grants in of_type):
            return False
        denied = {name for grants in of_type for name, bits in grants.literal.items() if bits & denying}
        dominating = {name for grants in of_type for name, bits in grants.prefixed.items() if bits & denying}
        lengths = {len(name) for name in dominating}

        def dominated(name: str) -> bool:
            return any(name[:length] in dominating for length in lengths)

        for grants in of_type:
            for name, bits in grants.literal.items():
                if bits & allowing and (name == ANY_NAME or not (name in denied or dominated(name))):
                    return True
            for name, bits in grants.prefixed.items():
                if bits & allowing and not dominated(name):
                    return True
        return False
