"""Sets of access rules by chance, and questions about them: what tests/interop asks Kafka's StandardAuthorizer, too.

Names are few and begin alike, so that rules meet. No name begins with an asterisk, which Kafka's search passes over, or
with a sign before it in ASCII (a space to a parenthesis): there Kafka's search does not end, or fails
(StandardAuthorizerData.checkSection looks for `*` and cuts it at the length of another name).
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import NamedTuple

from halfmoon.schema.control import AclRule, AclsChanged
from halfmoon.services.acls.state import AclsState
from halfmoon.services.authorization.decisions import OPERATIONS, RESOURCE_TYPES
from halfmoon.services.authorization.service import ANY_NAME, Authorization

PRINCIPALS = ("User:a", "User:b", "Group:a")
HOSTS = ("10.0.0.1", "10.0.0.2")
NAMES = ("*", "a", "aa", "ab", "abc", "ab.c", "ab-d", "b", "ba", "zz", "hardcode")
OF_RULES = {
    "resource_name": ("*", "*", "a", "ab", "abc", "ab.", "ab-", "aa", "b", "ba", "c", "h", "hardcode"),
    "pattern_type": (3, 4),
    "principal": ("User:a", "User:a", "User:b", "User:*", "Group:a", "Group:*"),
    "host": ("*", "*", "10.0.0.1", "10.0.0.2", "10.0.0.3"),
    "operation": (2, 2, 3, 3, 4, 4, 8, *range(3, 16)),
    "permission": (3, 3, 2),
}
ASKED = {"principals": PRINCIPALS, "hosts": HOSTS, "operations": [*map(str, OPERATIONS.values())], "names": NAMES}


class RuleSet(NamedTuple):
    rules: list[AclRule]
    types: tuple[int, int]
    """Of resources: those that rules and questions are about."""
    allow_everyone: bool
    super_user: str
    """Or nothing."""

    def lines(self) -> Iterator[str]:
        """As Authorizing.java reads it."""
        yield "\t".join(("set", str(self.allow_everyone).lower(), self.super_user, *map(str, self.types)))
        for rule in self.rules:
            yield "\t".join(("rule", *(str(getattr(rule, name)) for name in rule.__struct_fields__)))
        yield "ask"

    def answers(self) -> str:
        """Ours to all questions, as hexadecimal digits."""
        acls = AclsState()
        service = Authorization(
            acls, lambda principal: principal == self.super_user, lambda topic: 0, allow_everyone=self.allow_everyone,
        )  # fmt: skip
        for rule in self.rules:  # one by one, so that each is added to what is there
            acls.apply(AclsChanged([rule], []))
        types = [name for number in self.types for name, each in RESOURCE_TYPES.items() if each == number]
        bits = "".join(
            "01"[asker[operation, resource_type, name]]
            for principal in PRINCIPALS
            for host in HOSTS
            for asker in [service.asker(principal, host)]
            for resource_type in types
            for operation in OPERATIONS
            for name in (*NAMES, ANY_NAME)
        )
        return "".join(f"{int(bits[at : at + 4].ljust(4, '0'), 2):x}" for at in range(0, len(bits), 4))


def rule_sets(seed: int, count: int) -> Iterator[RuleSet]:
    by_chance = random.Random(seed)
    for _ in range(count):
        types = by_chance.sample([*RESOURCE_TYPES.values()], 2)
        fields = OF_RULES | {"resource_type": types}
        rules = {
            AclRule(**{name: by_chance.choice(fields[name]) for name in AclRule.__struct_fields__})
            for _ in range(by_chance.choice((0, 1, 2, 3, 5, 8, 12, 20, 40)))
        }
        yield RuleSet(
            sorted(rules, key=str),
            (types[0], types[1]),
            by_chance.random() < 0.25,
            by_chance.choice(("", "", "", "User:b")),
        )
