"""Access rules (ACLs): which are well-formed, which can be obeyed, and which match a filter.

Without an authorizer everybody may do everything. In Kafka's words, `User:ANONYMOUS` is a super user then, whom no rule
binds. So

- a rule about anybody else is kept and shown, and holds once there is an authorizer;
- a rule about `User:ANONYMOUS` or about everybody (`User:*`) could not be obeyed, and is refused.

Rules of form and of matching: AclBinding, ResourcePatternFilter, AccessControlEntryFilter, AclControlManager. Numbers
are those of Kafka's protocol (ResourceType, PatternType, AclOperation, AclPermissionType).
"""

from __future__ import annotations

from typing import NamedTuple

from halfmoon.errors import BrokerError, Fault
from halfmoon.schema.control import AclRule
from halfmoon.services.acls import hosts

ANONYMOUS = "User:ANONYMOUS"
EVERYBODY = "User:*"

ANY = 1
"""Of filters: any resource type, pattern type, operation, permission."""
CLUSTER, LAST_RESOURCE_TYPE = 4, 7
CLUSTER_NAME = "kafka-cluster"
MATCH, LITERAL, PREFIXED = 2, 3, 4
ANY_NAME = "*"
LAST_OPERATION = 15
DENY, ALLOW = 2, 3
LONGEST_NAME = 1_000
"""Rules for prefixes of a name are looked for by each of these, where it is no longer."""


class AclFilter(NamedTuple):
    """Which rules; None and ANY are any."""

    resource_type: int
    resource_name: str | None
    pattern_type: int
    principal: str | None
    host: str | None
    operation: int
    permission: int

    def check(self) -> None:
        """Raise BrokerError(INVALID_REQUEST) where it says something that there is not."""
        for what, number, last in (
            ("resource type", self.resource_type, LAST_RESOURCE_TYPE),
            ("pattern type", self.pattern_type, PREFIXED),
            ("operation", self.operation, LAST_OPERATION),
            ("permission type", self.permission, ALLOW),
        ):
            if not ANY <= number <= last:
                raise BrokerError(Fault.INVALID_REQUEST, f"the filter contains an unknown {what}: {number}")

    def matches(self, rule: AclRule) -> bool:
        return (
            self.resource_type in (ANY, rule.resource_type)
            and self._names(rule)
            and self.principal in (None, rule.principal)
            and self.host in (None, rule.host)
            and self.operation in (ANY, rule.operation)
            and self.permission in (ANY, rule.permission)
        )

    def names(self) -> set[str] | None:
        """Names of resources, beside which no rule matches; None where any may."""
        name = self.resource_name
        if name is None or (self.pattern_type == MATCH and len(name) > LONGEST_NAME):
            return None
        if self.pattern_type != MATCH:
            return {name}
        return {ANY_NAME, *(name[:length] for length in range(len(name) + 1))}

    def _names(self, rule: AclRule) -> bool:
        if self.pattern_type not in (ANY, MATCH, rule.pattern_type):
            return False
        if self.resource_name is None:
            return True
        if self.pattern_type != MATCH:
            return self.resource_name == rule.resource_name
        if rule.pattern_type == PREFIXED:
            return self.resource_name.startswith(rule.resource_name)
        return rule.resource_name in (self.resource_name, ANY_NAME)


def check(rule: AclRule, *, obeyed: bool = False) -> None:
    """Raise BrokerError unless the rule is well-formed and can be obeyed; `obeyed`: an authorizer obeys all of them."""
    problem = _malformed(rule)
    if problem:
        raise BrokerError(Fault.INVALID_REQUEST, problem)
    if not obeyed and rule.principal in (ANONYMOUS, EVERYBODY):
        raise BrokerError(
            Fault.SECURITY_DISABLED,
            f"there is no authorizer: every client is {ANONYMOUS} and may do everything, so a rule for "
            f"{rule.principal} would have no effect",
        )


def _malformed(rule: AclRule) -> str:
    if not ANY < rule.resource_type <= LAST_RESOURCE_TYPE:
        return f"unknown or invalid resource type: {rule.resource_type}"
    if rule.pattern_type not in (LITERAL, PREFIXED):
        return f"unknown or invalid pattern type: {rule.pattern_type}"
    if not ANY < rule.operation <= LAST_OPERATION:
        return f"unknown or invalid operation: {rule.operation}"
    if rule.permission not in (DENY, ALLOW):
        return f"unknown or invalid permission type: {rule.permission}"
    if not rule.resource_name:
        return "the resource's name must not be empty"
    if rule.resource_type == CLUSTER and rule.resource_name != CLUSTER_NAME:
        return f"the only name of a cluster is {CLUSTER_NAME}"
    if not rule.host:
        return "the host must not be empty"
    if "/" in rule.host:  # Kafka keeps it, and it matches nobody; a DENY that matches nobody is a surprise
        try:
            hosts.network(rule.host)
        except ValueError as error:
            return f"the host is no address, and no network: {error}"
    kind, colon, name = rule.principal.partition(":")
    if not (kind and colon and name):
        return f"could not parse principal from '{rule.principal}': expected TYPE:NAME"
    return ""
