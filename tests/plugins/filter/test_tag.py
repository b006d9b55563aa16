"""Tag filters: expressions, and which records they let through."""

from __future__ import annotations

import pytest

from halfmoon.core.records.batch_header import assemble
from halfmoon.core.records.batches import build_batch, parse_header
from halfmoon.plugin import FilterSyntaxError
from halfmoon.plugins.filter.expression import MAX_LENGTH
from halfmoon.plugins.filter.tag import compile_tags
from halfmoon.services.common.filtering import matching

TAGS = ["paid", "refunded", "Aa", "BB", None, "", "paid2", "PAID", "\u5df2\u4ed8", "a||b"]
BATCH = build_batch([(None, b"v", 0, [] if tag is None else [("TAGS", tag.encode())]) for tag in TAGS])


def found(expression: str) -> list[str | None]:
    return [TAGS[index] for index in matching(BATCH, compile_tags(expression))]


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("paid", ["paid"]),
        ("paid||refunded", ["paid", "refunded"]),
        ("  paid  ||  refunded ", ["paid", "refunded"]),
        ("||paid||", ["paid"]),
        ("Aa", ["Aa"]),  # BB has the same hash
        ("\u5df2\u4ed8", ["\u5df2\u4ed8"]),
        ("nobody", []),
        ("paid || *", ["paid"]),  # the star alone means all
        ("*", TAGS),
        (" * ", TAGS),
        ("", TAGS),
    ],
)
def test_which_tags_match(expression: str, expected: list[str | None]) -> None:
    assert found(expression) == expected


@pytest.mark.parametrize("expression", ["||", " || || ", "x" * (MAX_LENGTH + 1)])
def test_what_is_refused(expression: str) -> None:
    with pytest.raises(FilterSyntaxError):
        compile_tags(expression)


def test_a_length_may_be_written_longer_than_it_has_to_be() -> None:
    batch = build_batch([(None, b"", 0, [("TAGS", b"paid")])])
    body = bytearray(batch[61:])
    at = body.index(b"\x08TAGS\x08paid")
    for length in (b"\x88\x00", b"\x88\x80\x00", b"\x88\x80\x80\x80\x00"):
        longer = body[:at] + b"\x08TAGS" + length + b"paid" + body[at + 10 :]
        longer[0] += 2 * (len(longer) - len(body))
        header = parse_header(batch)._replace(batch_length=len(longer) + 61 - 12)
        assert matching(assemble(header, longer), compile_tags("paid || x")) == [0], length


@pytest.mark.parametrize("length", [1, 63, 64, 65, 5000])
def test_tags_of_any_length(length: int) -> None:
    batch = build_batch([(None, b"", 0, [("TAGS", b"x" * n)]) for n in (length - 1, length, length + 1)])
    assert matching(batch, compile_tags("x" * length)) == [1]


def test_the_last_of_several_tags_counts() -> None:
    batch = build_batch([(None, b"", 0, [("TAGS", b"a"), ("TAGS", b"b")])])
    assert matching(batch, compile_tags("a")) == []
    assert matching(batch, compile_tags("b")) == [0]
