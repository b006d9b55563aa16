"""Rules of principals: principal_rules.tsv has Kafka's answers."""

from __future__ import annotations

import pytest

from halfmoon.auth.errors import AuthenticationError
from halfmoon.auth.principal_rules import PrincipalRules
from halfmoon.errors import StartError
from tests.auth import rule_vectors
from tests.auth.rule_vectors import STORED

VECTORS = [line.split("\t") for line in STORED.read_text().splitlines()[1:]]


def ours(rules: str, name: str) -> str:
    try:
        made = PrincipalRules(rules)
    except StartError:
        return "!rules"
    try:
        return made.apply(name)
    except AuthenticationError:
        return "!name"


@pytest.mark.parametrize(("rules", "name", "answer"), VECTORS)
def test_as_kafka(rules, name, answer):
    assert ours(rules, name) == (answer or "!name")  # an empty name is nobody's


@pytest.mark.interop
def test_the_vectors_are_kafkas():
    assert rule_vectors.table() == STORED.read_text()


@pytest.mark.parametrize(
    ("rules", "says"),
    [
        (r"RULE:^CN=(\w+),OU=\1$/$1/", "backreference"),
        (r"RULE:^CN=(?<a>\w+),OU=\k<a>$/$1/", "backreference"),
        (r"RULE:^CN=[a-z&&[^b]]+$/x/", "intersection"),
        (r"RULE:^CN=(?=a).*$/x/", "supported"),
        (r"RULE:^CN=a++$/x/", "supported"),
        (r"RULE:^CN=($/x/", "supported"),
        (r"RULE:^CN=.*$/$1/", "group"),  # Kafka starts, and refuses every client
        (r"RULE:^CN=(.*)$/$/", "group"),
        (r"RULE:^CN=(.*)$/$x/", "group"),
        (r"RULE:^CN=(.*)$/${x}/", "group"),
        (r"RULE:^CN=(.*)$/${x/", "group"),
        ("RULE:^CN=(.*)$/$1/X", "no rule"),
    ],
)
def test_rules_that_cannot_be_obeyed_stop_the_start(rules, says):
    with pytest.raises(StartError, match=says):
        PrincipalRules(rules)


def test_an_escaped_backslash_before_a_digit_is_no_backreference():
    assert ours(r"RULE:^CN=a\\1$/x/", "CN=a\\1") == "x"


@pytest.mark.parametrize("letter", "\n\r\x85\u2028\u2029")
def test_a_name_with_the_end_of_a_line_matches_no_rule(letter):
    name = f"CN=admin{letter},OU=x"

    assert ours("RULE:^CN=([^,]*),.*$/$1/", name) == "!name"
    assert ours("RULE:^CN=([^,]*),.*$/$1/,DEFAULT", name) == name


def test_no_name_takes_long():
    """With backtracking this would not end before the test's time is over."""
    assert ours("RULE:^(([a-z])+.)+X$/x/", "a" * 20_000) == "!name"
