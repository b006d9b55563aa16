"""Which records the filter lets through, and which expressions it refuses."""

from __future__ import annotations

import json

import pytest
from halfmoon_filter_jsonpath import Settings, ValueTooLargeError, halfmoon_filters

from halfmoon.plugin import FilterCompiler, PluginContext
from halfmoon.testing import Message, check_filter, check_filter_error


def compiler(settings: Settings | None = None) -> FilterCompiler:
    """What the plugin gives the broker, for these settings."""
    return halfmoon_filters(PluginContext("jsonpath", settings or Settings()))["jsonpath"]


class Record:
    """As much of a record as the filter looks at."""

    def __init__(self, value: bytes | None) -> None:
        self.value = value


def test_an_order_with_an_expensive_item() -> None:
    check_filter(
        compiler(),
        "$.items[?@.price > 100]",
        matching=[Message('{"items": [{"price": 5}, {"price": 101}]}'), Message('{"items": {"a": {"price": 1e3}}}')],
        others=[
            Message('{"items": [{"price": 100}]}'),
            Message('{"items": [{"price": "101"}]}'),
            Message('{"items": []}'),
            Message('{"price": 101}'),
            Message('{"items": [{"price": 101}'),  # cut off
            Message("price"),
            Message(""),
            Message(None),
        ],
    )


@pytest.mark.parametrize(
    ("expression", "matching", "other"),
    [
        ("$", "null", "nul"),
        ("$", '"text"', "text"),
        ("$", "0", "NaN"),
        ("$.a", '{"a": null}', '{"b": 1}'),
        ("$.a", '{"a": 1, "a": 2}', '[{"a": 1}]'),
        ("$['a b']", '{"a b": 0}', '{"ab": 0}'),
        ("$['ü/\"']", '{"ü/\\"": 0}', '{"u/\\"": 0}'),
        ("$['a', 'b'].c", '{"b": {"c": 1}}', '{"a": 1, "b": 2}'),
        ("$[-1].a", '[0, {"a": 1}]', '[{"a": 1}, 0]'),
        ("$[1:]", "[1, 2]", "[1]"),
        ("$.a[0:1]", '{"a": [1]}', '{"a": "text"}'),
        ("$..price", '[[{"x": {"price": 1}}]]', '[[{"x": {"prices": 1}}]]'),
        ("$.*", "[0]", "[]"),
        ("$[?@ == 1]", "[1.0]", "[true]"),
        ("$[?@ < 2]", "[1]", "[true]"),
        ("$[?@ == null]", "[null]", "[0]"),
        # The members of the value itself: a filter is asked about each of them, and this one answers alike for all.
        ("$[?$.status == 'paid']", '{"status": "paid"}', '{"status": "open", "was": "paid"}'),
        ("$[?$.status == 'paid' && $.total > 9]", '{"status": "paid", "total": 10}', '{"status": "paid", "total": 9}'),
        (
            "$.items[?@.price > $.limit]",
            '{"limit": 1, "items": [{"price": 2}]}',
            '{"limit": 2, "items": [{"price": 2}]}',
        ),
        ("$.items[?@.tags[?@ == 'new']]", '{"items": [{"tags": ["new"]}]}', '{"items": ["new"]}'),
        ("$[?length(@.name) > 3]", '[{"name": "long"}]', '[{"name": "not"}]'),
        ("$[?count(@.*) == 2]", "[[1, 2]]", "[[1]]"),
        ("$[?value(@..id) == 7]", '[{"x": {"id": 7}}]', '[{"x": {"id": 7}, "y": {"id": 7}}]'),
        ("$[?!(@.a == 1) && !@.b]", '[{"a": 2}]', '[{"a": 2, "b": 2}]'),
    ],
)
def test_what_matches(expression: str, matching: str, other: str) -> None:
    check_filter(compiler(), expression, matching=[Message(matching)], others=[Message(other)])


@pytest.mark.parametrize(
    "value", [b"\xff", b"\xff\xfe{\x00}\x00", "[1]".encode("utf-16"), b"\xef\xbb\xbf[1]", b"[Infinity]"]
)
def test_only_json_in_utf_8_is_json(value: bytes) -> None:
    check_filter(compiler(), "$", matching=[Message("[1]")], others=[Message(value)])


@pytest.mark.parametrize(
    ("expression", "needle"),
    [
        ("$.status", 'status"'),
        ("$.a.status[0]", 'status"'),
        ("$['a', 'b']", 'a"|b"'),
        ("$[?$.status == 'paid']", 'paid"'),
        ("$[?'paid' == @.status]", 'paid"'),
        ("$.items[?@.price > 100]", 'items"'),
        ("$[?@.status == 'paid' && @.price > 100]", 'paid"'),
        ("$[?@ == 'paid' || @ == 'open']", 'open"|paid"'),
        ("$[?@ == 'paid' || @.price]", 'paid"|price"'),
        ("$[?@.tags[?@ == 'new']]", 'new"'),
        ("$..price", 'price"'),
    ],
)
def test_the_needle(expression: str, needle: str) -> None:
    pattern = compiler()(expression).needle
    assert pattern is not None
    assert pattern.pattern.decode().removesuffix(r"|\\u00[2-7]") == needle


@pytest.mark.parametrize(
    "expression",
    [
        "$",
        "$[0]",
        "$.*",
        "$['a', 0]",
        "$[?@ > 5]",
        "$[?@.a != 1]",
        "$[?!@.a]",
        "$[?@.a == @.b]",
        "$[?'x' == 'x']",
        "$[?count(@.a) == 0]",
        "$[?@ == 'paid' || @ > 5]",
    ],
)
def test_no_needle_where_nothing_is_sure_to_be_there(expression: str) -> None:
    assert compiler()(expression).needle is None


def escaped(text: str) -> str:
    """Every character as `\\uXXXX`, those beyond 16 bits as two."""
    code = text.encode("utf-16-be").hex()
    return "".join(f"\\u{code[at : at + 4]}" for at in range(0, len(code), 4))


def spellings(text: str) -> set[str]:
    """Ways to write a text in JSON: as it is, with one character escaped, with all of them."""
    plain = [json.dumps(letter, ensure_ascii=False)[1:-1] for letter in text]
    ways = {"".join(plain), "".join(plain).replace("/", "\\/"), escaped(text), escaped(text).upper().replace("U", "u")}
    ways |= {"".join([*plain[:at], escaped(letter), *plain[at + 1 :]]) for at, letter in enumerate(text)}
    return {f'"{way}"' for way in ways}


@pytest.mark.parametrize("text", ["price", "x/y", 'q"t', "back\\slash", "ü", "𝄞", "a\nb", "", "~", "\x7f"])
def test_the_needle_is_found_however_a_string_is_written(text: str) -> None:
    for spelled in spellings(text):
        assert json.loads(spelled) == text
        named, compared = Message(f"{{{spelled}: 1}}"), Message(f"[{spelled}]")
        check_filter(compiler(), f"$[{json.dumps(text)}]", matching=[named], others=[compared])
        check_filter(compiler(), f"$[?@ == {json.dumps(text)}]", matching=[compared], others=[named])


@pytest.mark.parametrize(
    ("expression", "position"),
    [
        ("", 0),
        ("items", 0),
        ("$.", 2),
        ("$.items[?@.price >]", 18),
        ("$.items[?(@.price > 1]", 21),
        ("$.a[?nosuch(@)]", 5),
        ("$.a ", 4),
        ("$[9007199254740992]", 2),
        ("$[?@ == 1e999]", 0),
        ("$[?count(1) == 1]", 3),
        ("$[?@.* == 1]", 7),
        ("$" + "[?@" * 320 + ".a" + "]" * 320, 0),
    ],
)
def test_what_is_no_query_is_refused(expression: str, position: int) -> None:
    check_filter_error(compiler(Settings(max_expression=2_000)), expression, position=position)


@pytest.mark.parametrize(
    ("expression", "position"),
    [
        ("$[?match(@.a, 'a.*')]", 3),
        ("$[?search(@.a, '(a|aa)+')]", 3),
        ("$..a..b", 4),
        ("$..a[?@..b]", 7),
        ("$[*, *]", 5),
        ("$[0, -1]", 5),
        ("$[0, 0]", 5),
        ("$['a', 'a']", 8),
        ("$[?@.a, ?@.b]", 8),
        ("$[?count($.*) > 1]", 9),
        ("$[?@.a == 1 && $..b]", 15),
        ("$[?@.a[?@.b == $.c]]", 15),
        ("$[?@]", 3),
        ("$[?@.a || !@]", 11),
    ],
)
def test_what_costs_too_much_or_would_be_answered_wrongly_is_refused(expression: str, position: int) -> None:
    check_filter_error(compiler(), expression, position=position)


def test_the_limits_are_settings() -> None:
    small = compiler(Settings(max_expression=3, max_value_bytes=8))
    check_filter_error(small, "$.ab", position=3)
    check_filter(small, "$.a", matching=[Message('{"a": 1}')])
    with pytest.raises(ValueTooLargeError, match="9 bytes, the most are 8"):
        small("$.a").match(Record(b'{"a": 1} '))


def test_it_does_not_guess_about_values_that_are_nested_too_deeply() -> None:
    assert compiler()("$..a").match(Record(b"[" * 90 + b'{"a": 1}' + b"]" * 90))
    for depth in (200, 20_000):
        with pytest.raises(Exception, match="recursion"):
            compiler()("$..a").match(Record(b"[" * depth + b"]" * depth))


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("$" + "[*]" * 333, b"[" * 400 + b"]" * 400),
        ("$" + ".a" * 499, b'{"a":' * 499 + b"1" + b"}" * 499),
        ("$[?" + "$||" * 330 + "@.b]", b'[{"b": 1}]'),
    ],
)
def test_the_longest_expressions_can_be_evaluated(expression: str, value: bytes) -> None:
    assert compiler()(expression).match(Record(value))
