"""SQL92 filters: what RocketMQ's own classes say, and where we differ on purpose."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from halfmoon.core.records.batches import build_batch
from halfmoon.plugin import FilterSyntaxError
from halfmoon.plugins.filter.expression import MAX_LENGTH
from halfmoon.plugins.filter.sql92 import compile_sql
from halfmoon.plugins.filter.sql_evaluation import NoMatchError, evaluator
from halfmoon.plugins.filter.sql_grammar import MAX_CHAINED, MAX_NESTING, parse
from halfmoon.plugins.filter.sql_like import like
from halfmoon.services.common.filtering import matching

VECTORS: dict[str, Any] = json.loads((Path(__file__).parent / "sql92_vectors.json").read_text(encoding="utf-8"))
"""Made by tools/sql92_vectors from RocketMQ 5.3.3: expression → "-" where it is refused, else T, F, N (null) or E (an
exception, so no match) for each record."""
RECORDS = [{name: text.encode() for name, text in record.items()} for record in VECTORS["records"]]
BATCH = build_batch([(None, b"", 0, list(record.items())) for record in RECORDS])

WITH_SOMETHING_BEHIND = ["price = 0L", "price = 00", "a-b IS NULL"]
"""RocketMQ takes what it understands and leaves the rest: `price = 0`, `a`."""


def letters(expression: str) -> str:
    try:
        evaluate = evaluator(parse(expression))
    except FilterSyntaxError:
        return "-"
    found = ""
    for record in RECORDS:
        try:
            found += {True: "T", False: "F", None: "N"}[evaluate(record)]  # type: ignore[index]
        except NoMatchError:
            found += "E"
    return found


@pytest.mark.parametrize("expression", VECTORS["expressions"])
def test_as_rocketmq(expression: str) -> None:
    expected = "-" if expression in WITH_SOMETHING_BEHIND else VECTORS["expressions"][expression]
    assert letters(expression) == expected


@pytest.mark.parametrize("expression", [text for text, result in VECTORS["expressions"].items() if "T" in result])
def test_the_bytes_that_are_searched_for_leave_out_no_match(expression: str) -> None:
    wanted = [index for index, letter in enumerate(letters(expression)) if letter == "T"]
    assert matching(BATCH, compile_sql(expression)) == wanted


def matches(expression: str, **headers: str | bytes | None) -> bool:
    pairs = [(name, value.encode() if isinstance(value, str) else value) for name, value in headers.items()]
    return matching(build_batch([(None, b"", 0, pairs)]), compile_sql(expression)) == [0]


def test_what_follows_a_whole_expression_is_an_error() -> None:
    for expression in ("a = 1 b", "a LIKE", "a + 1 = 2", "a = 1)", "a = 1 AND b = 2 = ", "region 'HZ'", "TRUE TRUE"):
        with pytest.raises(FilterSyntaxError):
            compile_sql(expression)


def test_a_comment_may_end_the_expression() -> None:
    assert matches("vip = TRUE -- note", vip="true")


@pytest.mark.parametrize(
    ("expression", "line", "column", "message"),
    [
        ("region >", 1, 9, "expected a property, a text, a number, NOT or (, found the end"),
        ("a = 1 b = 2", 1, 7, "expected AND, OR, a comparison or the end, found 'b'"),
        ("a = 1\nAND b = 'x", 2, 9, "a text without its closing '"),
        ("a IN ()", 1, 7, "expected a text in single quotes, found ')'"),
        ("a IN ('x' 'y')", 1, 11, "expected , or ), found 'y'"),
        ("(a = 1", 1, 7, "expected AND, OR, a comparison or ), found the end"),
        ("a != 1", 1, 3, "'not equal' is written <>"),
        ('a = "x"', 1, 5, "a text is written in single quotes"),
        ("a > 'x'", 1, 5, "only numbers have an order; expected a number or a property"),
        ("a = NULL", 1, 5, "nothing equals NULL; write IS NULL or IS NOT NULL"),
        ("a BETWEEN 20 AND 10", 1, 11, "BETWEEN 20 AND 10: the second is to be as large as the first"),
        ("a = 1 AND 'x'", 1, 11, "expected a condition, found a value"),
        ("a IS 5", 1, 6, "expected NULL, found '5'"),
        ("a = 99999999999999999999", 1, 5, "99999999999999999999 does not fit into 64 bits"),
        ("5 IN ('5')", 1, 1, "IN looks at a property"),
        ("a = 5 % 2", 1, 7, "'%' means nothing here"),
        ("a LIKE 'x' ESCAPE '%'", 1, 19, "ESCAPE takes one character, and neither % nor _"),
    ],
)
def test_an_error_says_where_and_what_was_expected(expression: str, line: int, column: int, message: str) -> None:
    with pytest.raises(FilterSyntaxError) as caught:
        compile_sql(expression)
    assert str(caught.value) == f"{message} (line {line}, column {column})"
    assert (caught.value.line, caught.value.column) == (line, column)


def test_length_nesting_and_chains_are_bounded() -> None:
    assert matches("(" * MAX_NESTING + "a = 1" + ")" * MAX_NESTING, a="1")
    assert matches("a = 1" + " = TRUE" * MAX_CHAINED, a="1")
    assert matches("NOT " * (MAX_NESTING - 2) + "(a = 1)", a="1")
    assert matches(" OR ".join(["a = 2"] * 1500 + ["a = 1"]), a="1"), "OR and AND do not nest"
    for expression in (
        "(" * 100_000,
        "NOT " * 4_000 + "a",
        "- " * 5_000 + "a = 1",
        "a" + " = 1" * 4_000,
        "a" + " IS NULL" * 2_000,
        "(" * (MAX_NESTING + 1) + "a = 1" + ")" * (MAX_NESTING + 1),
        "a = '" + "x" * MAX_LENGTH + "'",
    ):
        with pytest.raises(FilterSyntaxError):
            compile_sql(expression)


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        ("x%", "xyz", True), ("x%", "x", True), ("x%", "ax", False), ("%x", "ax", True), ("%x", "xa", False),
        ("%x%", "axb", True), ("%x%", "ab", False), ("x", "x", True), ("x", "xx", False), ("_", "x", True),
        ("_", "xx", False), ("a_c", "abc", True), ("a_c", "ac", False), ("%", "anything", True), ("%%", "x", True),
        ("a%b%c", "a-b-b-c", True), ("a%b%c", "a-c-b", False), ("ab%ba", "aba", False), ("ab%ba", "abba", True),
        ("%ab%ab", "ab", False), ("a.c", "abc", False), ("a\n%", "a\nb", True), ("_%_", "a", False),
        ("_%_", "ab", True),
        ("\u676d%", "\u676d\u5dde", True), ("50!%", "50%", True), ("50!%", "500", False), ("a!_b", "a_b", True),
        ("a!!b", "a!b", True), ("a!", "a!", True),
    ],
)  # fmt: skip
def test_like(pattern: str, text: str, expected: bool) -> None:
    assert matches(f"p LIKE '{pattern}' ESCAPE '!'", p=text) is expected
    assert matches(f"p NOT LIKE '{pattern}' ESCAPE '!'", p=text) is not expected


def test_like_of_nothing_is_unknown() -> None:
    assert not matches("p LIKE '%'")
    assert not matches("p NOT LIKE '%'")
    assert not matches("NOT (p LIKE '%')")


def test_like_does_not_backtrack() -> None:
    assert not matches("p LIKE '%a%a%a%a%a%a%a%a%a%a%a%a%a%a%b'", p="a" * 100_000)


@pytest.mark.timeout(30)
@pytest.mark.parametrize("piece", ["_" * 10_000 + "b", "a_" * 5_000 + "b", "a" * 10_000 + "b", "_" * 10_000])
def test_the_time_of_like_does_not_grow_with_pattern_times_text(piece: str) -> None:
    text = "a" * 300_000
    assert like(f"%{piece}%", "")(text) is ("b" not in piece)


@given(st.text("ab%_", max_size=9), st.text("ab", max_size=14))
def test_like_is_what_a_regular_expression_says(pattern: str, text: str) -> None:
    as_regex = "".join({"%": ".*", "_": "."}.get(character, character) for character in pattern)
    assert like(pattern, "")(text) is (re.fullmatch(as_regex, text) is not None)


def test_of_several_headers_the_last_counts_and_an_empty_or_undecodable_one_is_none() -> None:
    batch = build_batch(
        [
            (None, b"", 0, [("a", b"1"), ("a", b"2")]),
            (None, b"", 0, [("a", b"2"), ("a", b"1")]),
            (None, b"", 0, [("a", b"")]),
            (None, b"", 0, [("a", None)]),
            (None, b"", 0, [("a", b"\xff")]),
        ]
    )
    assert matching(batch, compile_sql("a = 1")) == [1]
    assert matching(batch, compile_sql("a IS NULL")) == [2, 3, 4]


def test_words_in_a_value_are_no_header() -> None:
    inside = build_batch(
        [(None, b"\x08TAGS\x08paid", 0, [("x", b"\x08TAGS\x08paid")]), (None, b"", 0, [("TAGS", b"paid")])]
    )
    assert matching(inside, compile_sql("TAGS = 'paid'")) == [1]
