"""Patterns over topic names: RE2's syntax, Python's `re` as the other opinion, and no pattern that takes long."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from halfmoon.services.common.patterns import InvalidPattern, Pattern

NAMES = ["", "a", "b", "ab", "aa", "A", "orders", "orders.paid", "orders-2", "__consumer_offsets", "x.y_z-9", "a]b"]


def matches(pattern: str, name: str) -> bool:
    return Pattern(pattern).matches(name)


@pytest.mark.parametrize(
    "pattern",
    [
        "", "a", "ab", "a|b", "a*", "(a|b)+", "a?b", "orders.*", "orders\\..+", "^orders$", "^(orders|a).*$", "[a-c]+",
        "[^o].*", "a{2}", "a{1,2}", "a{0,}", "[\\w.]+", "\\w+", "\\W*", "\\d", "x\\.y_z-\\d", "(?i)ORDERS", "(?i:A)b?",
        "(?P<n>a)b", ".*?", "[.\\-_a-z]+", "a||b", "()", "(?:)", "a$|^b", "\\bab\\b", "\\Bab", "[]a]+b", "[a-]+",
        "(a*)*", "(a*)+b", "x{0}", "[\\d-]+", "orders-[0-9]", "\\x61", "[\\x61-\\x62]+", "\\Aa", "a{,2}", "{a", "__.*",
    "(^a|b)*", ],
)  # fmt: skip
def test_as_pythons_re(pattern: str) -> None:
    theirs = re.compile(pattern.replace("a{,2}", r"a\{,2\}"), re.ASCII)
    ours = Pattern(pattern)
    assert [ours.matches(name) for name in NAMES] == [theirs.fullmatch(name) is not None for name in NAMES]


@pytest.mark.parametrize(
    ("pattern", "name", "wanted"),
    [
        ("\\Qa.b\\E+", "a.b", True), ("\\Qa.b", "axb", False), ("[[:alpha:]]+", "abc", True),
        ("[[:^digit:]]+", "ab1", False), ("\\pL+", "abc", True), ("\\p{Lu}", "a", False), ("\\PN", "a", True),
        ("\\p{^N}", "1", False), ("a\\z", "a", True), ("(?<n>a)", "a", True), ("\\x{61}", "a", True), ("\\141", "a",
        True), ("(?i)[a-c]+", "ABC", True), ("(?i)a(?-i)b", "AB", False), ("(?s).", "a", True), ("[^\\D]", "1", True),
        ("(?i)\\Qab", "AB", True), ("é|a", "a", True), ("é", "é", True), ("[é-ü]|b", "b", True), ("\\07|a", "a", True),
        ("[[:word:]_.-]+", "a_b.c-d", True), ("((?i)a)b", "AB", False),
    ],
)  # fmt: skip
def test_as_re2(pattern: str, name: str, wanted: bool) -> None:
    assert matches(pattern, name) is wanted


@pytest.mark.parametrize(
    "pattern",
    [
        "(", ")", "a)", "(a", "[", "[a", "[b-a]", "*", "a**", "a+*", "|*", "(*)", "a{2,1}", "a{1001}", "\\", "\\1",
        "(a)\\1", "(?=a)", "(?!a)", "(?<=a)b", "(?<!a)", "(?#c)", "(?P<a", "\\y", "\\p{Nope}",
        "\\pX", "[[:nope:]]", "\\x", "\\xg1", "(?i", "(?x)a", "((a{1000}){1000})", "a" * 5_000,
        "\\Z", "\\p{L", "(?ii-i-i)", "\\pL" * 17,
    ],
)  # fmt: skip
def test_refused(pattern: str) -> None:
    with pytest.raises(InvalidPattern):
        Pattern(pattern)


SLOW = ["(a*)*b", "(a+)+b", "(a|a)*b", "(a|aa)+b", "(.*.*.*.*)*x", "((a?){30}a{30})+", "(a{0,20}){0,20}b"]


@pytest.mark.parametrize("pattern", SLOW)
def test_what_takes_others_for_ever_takes_a_moment(pattern: str) -> None:
    began = time.process_time()
    assert not Pattern(pattern).matches("a" * 248 + "c")
    assert time.process_time() - began < 1


ATOMS = st.sampled_from(["a", "b", ".", "[ab]", "[^a]", "\\w", "\\.", "^", "$", "\\b"])
PATTERNS = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map("|".join),
        st.tuples(inner.map(lambda each: f"(?:{each})"), st.sampled_from(["*", "+", "?", "{2}", "{0,2}"])).map("".join),
    ),
    max_leaves=8,
)


@given(PATTERNS, st.text("ab.", max_size=6))
def test_any_pattern_as_pythons_re(pattern: str, name: str) -> None:
    assert matches(pattern, name) == (re.fullmatch(pattern.replace("$", "\\Z"), name, re.ASCII) is not None)


@given(st.text("ab\\[]^-{}()?*+|.,:PQEdwxz<>019", max_size=20))
def test_any_text_is_a_pattern_or_refused(text: str) -> None:
    try:
        Pattern(text).matches("ab.1")
    except InvalidPattern:
        pass
