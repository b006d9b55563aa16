"""May User:alice read a topic? With 1,000 and with 100,000 rules, of a hundred users, a tenth of them denying."""

from __future__ import annotations

import random

import pyperf

from halfmoon.schema.control import AclRule, AclsChanged
from halfmoon.services.acls.state import AclsState
from halfmoon.services.authorization.service import Asker, Authorization

NAMES = 1_000
TOPIC, LITERAL, PREFIXED, READ, DENY, ALLOW = 2, 3, 4, 3, 2, 3


def add(runner: pyperf.Runner) -> None:
    for count in (1_000, 100_000):
        service = _service(count)
        asker = service.asker("User:alice", "10.0.0.1")
        names = [f"team{number % 50}.orders.{number}" for number in range(NAMES)]
        ask = _ask_anew
        runner.bench_func(f"authorization, {count} rules, not known", ask, asker, service, names, inner_loops=NAMES)
        runner.bench_func(f"authorization, {count} rules, known", _ask, asker, names, inner_loops=NAMES)


def _ask(asker: Asker, names: list[str]) -> None:
    for name in names:
        asker["read", "topic", name]


def _ask_anew(asker: Asker, service: Authorization, names: list[str]) -> None:
    service.forget()
    for name in names:
        asker["read", "topic", name]


def _service(count: int) -> Authorization:
    by_chance = random.Random(1)
    acls = AclsState()
    rules = [
        AclRule(
            TOPIC, f"team{number % 50}.orders.{number}"[: by_chance.choice((5, 7, 13, 40))],
            by_chance.choice((LITERAL, PREFIXED)), by_chance.choice(("User:alice", *(f"User:{n}" for n in range(99)))),
            "*", READ, DENY if by_chance.random() < 0.1 else ALLOW,
        )
        for number in range(count)
    ]  # fmt: skip
    acls.apply(AclsChanged(rules, []))
    return Authorization(acls, lambda principal: False, lambda topic: topic.startswith("halfmoon."))
