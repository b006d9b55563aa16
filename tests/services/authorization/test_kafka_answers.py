"""Decisions are those of Kafka's StandardAuthorizer, about rules by chance (questions.py).

tests/interop/test_authorizer.py asks it, and keeps the file: for each set its lines, then the answers.
"""

from __future__ import annotations

import lzma
from pathlib import Path

from halfmoon.schema.control import AclRule
from tests.services.authorization.questions import RuleSet

STORED = Path(__file__).parents[2] / "golden" / "authorizer.txt.xz"


def test_decisions_are_those_of_kafka() -> None:
    sets, allowed = 0, 0
    lines = iter(lzma.decompress(STORED.read_bytes()).decode().splitlines())
    for line in lines:
        _, everyone, super_user, *types = line.split("\t")
        rules = []
        while (line := next(lines)) != "ask":
            kind, name, pattern, principal, host, operation, permission = line.split("\t")[1:]
            rules.append(AclRule(int(kind), name, int(pattern), principal, host, int(operation), int(permission)))
        one = RuleSet(rules, (int(types[0]), int(types[1])), everyone == "true", super_user)
        answers = next(lines)
        assert one.answers() == answers, one
        sets += 1
        allowed += sum(int(digit, 16).bit_count() for digit in answers)
    assert sets == 300
    assert allowed > 50_000
