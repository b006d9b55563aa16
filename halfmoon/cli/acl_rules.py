"""Access rules as people write them, and as the protocol numbers them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from typing import Any, NamedTuple

import typer

from halfmoon.schema.control import AclRule
from halfmoon.services.acls.rules import ALLOW, ANY, ANY_NAME, CLUSTER_NAME, DENY, LITERAL, PREFIXED, AclFilter
from halfmoon.services.authorization.decisions import ALL, OPERATIONS, RESOURCE_TYPES

_NAMES = {"all": ALL, **OPERATIONS}
_BY_WORD = {name.replace("_", ""): number for name, number in _NAMES.items()}
_SHOWN = {number: "".join(word.capitalize() for word in name.split("_")) for name, number in _NAMES.items()}
_WORDS = {number: name for name, number in OPERATIONS.items()}
_KINDS = {name.replace("_", "-"): number for name, number in RESOURCE_TYPES.items()}
_KIND_NAMES = {number: name for name, number in _KINDS.items()}

_POSSIBLE: Mapping[str, str] = {
    "topic": "Read Write Create Delete Alter Describe DescribeConfigs AlterConfigs",
    "group": "Read Delete Describe DescribeConfigs AlterConfigs",
    "cluster": "Create Alter Describe ClusterAction DescribeConfigs AlterConfigs IdempotentWrite",
    "transactional-id": "Write Describe TwoPhaseCommit",
    "delegation-token": "Describe",
    "user": "CreateTokens DescribeTokens",
}
"""What may be done with resources (Kafka: AclEntry.supportedOperations), besides All."""


class Target(NamedTuple):
    """A resource, and what is to be done with it."""

    kind: str
    name: str
    operations: tuple[int, ...]


def operation(text: str) -> int:
    """Raises BadParameter."""
    number = _BY_WORD.get(text.lower().replace("_", "").replace("-", ""))
    if number is None:
        raise typer.BadParameter(f"{text!r} is none of {', '.join(sorted(_SHOWN.values()))}", param_hint="--operation")
    return number


def principal(text: str) -> str:
    """Raises BadParameter."""
    kind, colon, name = text.partition(":")
    if not (kind and colon and name):
        raise typer.BadParameter(f"{text!r} is no principal: expected User:{text.strip(':') or 'NAME'}")
    return text


def resource(text: str) -> tuple[str, str]:
    """`topic:orders` → kind and name. Raises BadParameter."""
    kind, _, name = text.partition(":")
    if kind == "cluster" and not name:
        return kind, CLUSTER_NAME
    if kind not in _KINDS or not name:
        raise typer.BadParameter(f"{text!r} is no resource: topic:NAME, group:NAME, cluster, {', '.join(_others())}")
    return kind, name


def _others() -> Iterable[str]:
    return (f"{kind}:NAME" for kind in _KINDS if kind not in ("topic", "group", "cluster"))


def words(number: int, kind: str) -> tuple[str, str]:
    """An operation and a kind of resource as the broker's authorizer calls them. Raises BadParameter for All."""
    if number == ALL:
        raise typer.BadParameter("ask of one operation at a time")
    return _WORDS[number], kind.replace("-", "_")


def check_possible(targets: Iterable[Target]) -> None:
    """Raises BadParameter where nobody would ever ask for that."""
    for target in targets:
        for number in target.operations:
            if number != ALL and _SHOWN[number] not in _POSSIBLE[target.kind].split():
                raise typer.BadParameter(
                    f"{_SHOWN[number]} is no operation on a {target.kind}; these are: {_POSSIBLE[target.kind]} All"
                )


def made(
    targets: Iterable[Target], who: Sequence[tuple[str, int]], hosts: Sequence[str], *, prefixed: bool
) -> list[AclRule]:
    """The rules for all of them. `who`: principals, and ALLOW or DENY."""
    rules = [
        AclRule(_KINDS[each.kind], each.name, _pattern(each, prefixed), name, host, number, permission)
        for each in targets
        for number, (name, permission), host in product(each.operations, who, hosts or (ANY_NAME,))
    ]
    return list(dict.fromkeys(rules))


def filters(
    targets: Sequence[Target],
    who: Sequence[tuple[str, int]],
    hosts: Sequence[str],
    pattern: int,
    operations: Sequence[int],
) -> list[AclFilter]:
    """What matches the rules for any of them; what is empty matches any. `pattern`: LITERAL, PREFIXED, MATCH."""
    places: list[tuple[int, str | None, int, Sequence[int]]] = [
        (_KINDS[each.kind], each.name, LITERAL if each.kind == "cluster" else pattern, each.operations)
        for each in targets
    ]  # fmt: skip
    return [
        AclFilter(kind, name, pattern, whom, host, number, permission)
        for kind, name, pattern, numbers in places or [(ANY, None, ANY, operations)]
        for number, (whom, permission), host in product(numbers or (ANY,), who or ((None, ANY),), hosts or (None,))
    ]


def _pattern(target: Target, prefixed: bool) -> int:
    return PREFIXED if prefixed and target.kind != "cluster" else LITERAL


def row(rule: AclRule) -> dict[str, Any]:
    return {
        "permission": {ALLOW: "allow", DENY: "deny"}.get(rule.permission, str(rule.permission)),
        "principal": rule.principal,
        "host": rule.host,
        "operation": _SHOWN.get(rule.operation, str(rule.operation)),
        "resource": _KIND_NAMES.get(rule.resource_type, str(rule.resource_type)),
        "name": rule.resource_name,
        "pattern": "prefixed" if rule.pattern_type == PREFIXED else "literal",
    }


def text(rule: AclRule) -> str:
    """In one line."""
    shown = row(rule)
    name = "" if shown["resource"] == "cluster" else f":{rule.resource_name}{'*' * (rule.pattern_type == PREFIXED)}"
    host = "" if rule.host == ANY_NAME else f" from {rule.host}"
    return f"{shown['permission']} {rule.principal} {shown['operation']} {shown['resource']}{name}{host}"
