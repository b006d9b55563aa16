"""The table of answers: made by asking a broker, and compared."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from halfmoon.kafka_wire.messages import REQUESTS
from tests.interop.access.case import Case
from tests.interop.access.cases import CASES
from tests.interop.access.client import ClosedError
from tests.interop.access.shape import told
from tests.interop.access.world import World

STORED = Path(__file__).parents[2] / "adapters" / "kafka" / "kafka_access.json"
UNDEFINED = {
    64: "UnregisterBroker", 80: "AddRaftVoter", 81: "RemoveRaftVoter", 88: "StreamsGroupHeartbeat",
    89: "StreamsGroupDescribe",
}  # fmt: skip
"""APIs that our codec does not know."""

Table = dict[str, dict[str, Any]]


def title(case: Case) -> str:
    name = UNDEFINED.get(case.key) or REQUESTS[case.key].api.name
    return f"{case.key} {name} v{case.version}" + (f", {case.title}" if case.title else "")


def ask(world: World, cases: Iterable[Case] = CASES, say: Callable[[str], None] = lambda line: None) -> Table:
    """By case: what each user is told."""
    table: Table = {}
    for case in cases:
        say(title(case))
        table[title(case)] = answers = {}
        for name, rights in case.situations():
            if case.before is not None:
                case.before(world)
            if rights is not None:
                world.grant(rights)
            try:
                answers[name] = told(world, case.answer(world, world.admin if rights is None else world.user))
            except ClosedError:
                answers[name] = "closed"
            except Exception as error:
                error.add_note(f"{title(case)}: {name}")
                raise
            if answers[name] == "closed":
                world.reconnect(rights is None)
    return table


def written(table: Table) -> str:
    """A line for each user."""
    cases = []
    for name, answers in table.items():
        lines = (f"    {json.dumps(who)}: {json.dumps(answer)}" for who, answer in answers.items())
        cases.append(f"  {json.dumps(name)}: {{\n" + ",\n".join(lines) + "\n  }")
    return "{\n" + ",\n".join(cases) + "\n}\n"


def differences(ours: Table, theirs: Mapping[str, Mapping[str, Any]]) -> list[str]:
    return [
        f"{name}\n  {who}\n    is  {json.dumps(answers.get(who))}\n    was {json.dumps(theirs.get(name, {}).get(who))}"
        for name, answers in ours.items()
        for who in {**answers, **theirs.get(name, {})}
        if answers.get(who) != theirs.get(name, {}).get(who)
    ]
