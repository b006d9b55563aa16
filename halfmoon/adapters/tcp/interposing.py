"""What requests meet before, or in the place of, their handlers: for tests of what clients do then.

Rules are set while the listener runs. Without rules a request's way is what it always is: the tables of handlers are
those of before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Literal

from msgspec import Struct

KIT: Final = "halfmoon.testing"
"""The client id of whoever sets the rules, whom they spare."""

Kind = Literal["error", "refuse", "lose", "delay"]
"""`error`: answered with a code, and not handled. `refuse`: not handled, and the connection is closed. `lose`: handled,
and the connection is closed in the place of the answer. `delay`: answered later."""


class Rule(Struct, frozen=True):
    kind: Kind
    apis: frozenset[str]
    """Names, as the protocol has them; none: all."""
    client: str | None
    """Of whose requests it is; None: of all."""
    takes: Callable[[], bool]
    """Asked for each request that the rule is about: whether it is one of those that it still has to meet."""
    code: int = 0
    delay_s: float = 0.0

    def concerns(self, api: str) -> bool:
        return not self.apis or api in self.apis


class Met(Struct, frozen=True):
    """What a request meets."""

    delay_s: float
    rule: Rule | None
    """What it meets beside the delay."""


def met(rules: Sequence[Rule], client: str | None) -> Met:
    """`rules`: those about the API. The first takes it that is no delay; delays add up."""
    delay_s, found = 0.0, None
    if client != KIT:
        for rule in rules:
            if rule.client is not None and rule.client != client:
                continue
            if rule.kind == "delay":
                if rule.takes():
                    delay_s += rule.delay_s
            elif found is None and rule.takes():
                found = rule
    return Met(delay_s, found)
