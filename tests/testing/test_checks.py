"""The checks for authors of filters find what they are for, and let pass what is right."""

from __future__ import annotations

import re
from typing import Any

import pytest

from halfmoon.plugin import FilterSyntaxError
from halfmoon.plugins.filter.sql92 import compile_sql
from halfmoon.plugins.filter.tag import compile_tags
from halfmoon.testing import Message, check_filter, check_filter_error

PAID = Message("v", headers={"TAGS": "paid"})
OTHER = Message(b"v", key="k", headers={"TAGS": "other", "price": b"5"})


class LongValues:
    """Right: matches values longer than three bytes."""

    needle: re.Pattern[bytes] | None = None

    def __init__(self, expression: str = "") -> None:
        if expression == "wrong":
            raise FilterSyntaxError("wrong", 2, expression)
        if expression == "crash":
            raise KeyError("crash")
        if expression == "outside":
            raise FilterSyntaxError("wrong", 99, expression)

    def match(self, record: Any) -> bool:
        return len(record.value) > 3


class WrongNeedle(LongValues):
    needle = re.compile(b"something else")


class OnlyTheFirst(LongValues):
    """Of a batch."""

    def match(self, record: Any) -> bool:
        return super().match(record) and record.offset_delta == 0


class Remembers(LongValues):
    """The same record does not match a second time."""

    before: Any = None

    def match(self, record: Any) -> bool:
        again, self.before = record is self.before, record
        return super().match(record) and not again


def test_right_filters_pass() -> None:
    check_filter(LongValues, "", matching=[Message("long enough")], others=[Message("no"), Message()])
    check_filter(compile_tags, "paid || x", matching=[PAID], others=[OTHER, Message()])
    check_filter(compile_sql, "price > 4", matching=[OTHER], others=[PAID])
    check_filter_error(LongValues, "wrong", position=2)
    check_filter_error(compile_sql, "price >", position=7)
    check_filter_error(compile_tags, "||")


@pytest.mark.parametrize(
    ("compiler", "matching", "others", "said"),
    [
        (LongValues, ["no"], [], "match gives False and not True"),
        (LongValues, [], ["long enough"], "match gives True and not False"),
        (WrongNeedle, ["long enough"], [], "the needle .* does not occur"),
        (OnlyTheFirst, ["long enough", "and another"], ["no"], "does it keep something"),
        (Remembers, ["long enough"], [], "match gives False and not True"),
        (LongValues, [], [], "nothing to filter"),
        (LongValues, ["long enough"], ["long enough"], "cannot be among both"),
    ],
)
def test_wrong_filters_do_not(compiler: Any, matching: list[str], others: list[str], said: str) -> None:
    with pytest.raises(AssertionError, match=said):
        check_filter(compiler, "", matching=[Message(text) for text in matching], others=[Message(t) for t in others])


@pytest.mark.parametrize(
    ("expression", "position", "said"),
    [
        ("fine", None, "is not refused"),
        ("crash", None, "raises KeyError"),
        ("outside", None, "lies outside"),
        ("wrong", 3, "position 2 and not 3"),
    ],
)
def test_wrong_errors_do_not(expression: str, position: int | None, said: str) -> None:
    with pytest.raises(AssertionError, match=said):
        check_filter_error(LongValues, expression, position=position)
