"""SQL92 over fields of JSON values: what each type does, what is unknown, and that nothing waits for a large value."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from halfmoon.core.records.batches import build_batch, iter_records
from halfmoon.plugin import FilterSyntaxError, PluginContext
from halfmoon.plugins.filter.json_fields import STRUCTURE, JsonFields
from halfmoon.plugins.filter.sql92 import Settings, compile_sql, halfmoon_filters
from halfmoon.plugins.filter.sql_filter import JsonSqlFilter, SqlFilter, ValueTooLargeError
from halfmoon.plugins.filter.sql_paths import MAX_INDEX, MAX_PATHS, MAX_STEPS
from halfmoon.services.common.filtering import matching
from halfmoon.services.common.filters import takes_long
from tests.chance import trying

ORDER = {
    "id": "o-1",
    "total": 12.5,
    "count": 3,
    "vip": True,
    "blocked": False,
    "note": None,
    "at": "2026-03-01T10:00:00Z",
    "customer": {"name": "Ann", "order-id": "x'1", 'a"b': 1, "": 2},
    "items": [{"sku": "a", "price": 2}, {"sku": "b", "price": 0.1}],
    "grid": [[1, 2], [3]],
    "größe": 4,
}


def matches(expression: str, value: object = ORDER, /, **headers: str) -> bool:
    content = value if value is None or isinstance(value, bytes) else json.dumps(value).encode()
    batch = build_batch([(None, content, 0, [(name, text.encode()) for name, text in headers.items()])])
    return matching(batch, compile_sql(expression)) == [0]


def unknown(expression: str, value: object = ORDER, /, **headers: str) -> bool:
    """Neither it nor its opposite matches."""
    return not matches(f"({expression})", value, **headers) and not matches(f"NOT ({expression})", value, **headers)


@pytest.mark.parametrize(
    "expression",
    [
        "value.id = 'o-1'", "'o-1' = value.id", "value.id <> 'o-2'", "value.id IN ('x', 'o-1')",
        "value.id NOT IN ('x', 'y')", "value.id LIKE 'o-_'", "value.id NOT LIKE 'x%'", "value.id CONTAINS '-'",
        "value.id STARTSWITH 'o'", "value.id NOT ENDSWITH '2'", "value.total > 10", "value.total = 12.5",
        "10 < value.total", "value.total BETWEEN 10 AND 13", "value.total NOT BETWEEN 1 AND 2", "-value.total = -12.5",
        "13 BETWEEN value.total AND 20", "value.count = 3", "value.count = 3.0", "value.count IN (1, 2, 3)",
        "value.count IN (-1, 3.0, 'x', TRUE)", "value.count NOT IN (1, 2)", "value.count < value.total",
        "value.total >= value.count", "value.vip", "value.vip = TRUE",
        "NOT value.blocked", "value.blocked = FALSE", "value.vip <> value.blocked", "value.vip IN (TRUE)",
        "value.vip = (value.count = 3)", "value.note IS NULL", "value.missing IS NULL", "value.id IS NOT NULL",
        "value.items IS NOT NULL", "value.customer IS NOT NULL", "value.customer.name = 'Ann'",
        "value.customer.\"order-id\" = 'x''1'", "value['customer']['order-id'] LIKE 'x%'",
        "value.customer.\"a\"\"b\" = 1", "value.customer['a\"b'] = 1", "value.customer[''] = 2",
        "value.items[0].sku = 'a'", "value.items[1].price = 0.1", "value.items[ 1 ].price < 1", "value.grid[0][1] = 2",
        "value.items[2].sku IS NULL", "value.größe = 4", "value.at >= '2026-01-01'",
        "value.at BETWEEN '2026-03-01' AND '2026-03-02'", "value.id > 'n'", "value.vip AND value.total > 10",
        "value.total > 100 OR value.items[0].sku = 'a'", "(value.vip)", "value.missing = 1 OR value.count = 3",
    ],
)  # fmt: skip
def test_true(expression: str) -> None:
    assert matches(expression)
    assert not matches(f"NOT ({expression})")


@pytest.mark.parametrize(
    "expression",
    [
        "value.missing = 1", "value.missing <> 1", "value.missing", "value.note = 'x'", "value.note IN ('x')",
        "value.missing LIKE '%'", "value.missing CONTAINS 'x'", "value.missing > 1", "value.missing BETWEEN 1 AND 2",
        "value.missing = value.absent", "value.id.further = 1", "value.items.sku = 'a'", "value.customer[0] = 1",
        "value.id = 1", "value.id <> 1", "value.id > 1", "value.id", "value.count = '3'", "value.count > '2'",
        "value.count LIKE '3'", "value.count CONTAINS '3'", "value.vip = 1", "value.count", "value.count IN ('3')",
        "value.count NOT IN ('3')", "value.count NOT IN (1, '3')", "value.vip = 'true'", "value.items = 'a'",
        "value.customer = value.customer", "value.items LIKE '%'", "value.vip > value.blocked", "-value.id = 1",
        "-value.vip = 1",
    ],
)  # fmt: skip
def test_unknown(expression: str) -> None:
    assert unknown(expression)


@pytest.mark.parametrize(
    "content",
    [
        None, b"", b"{", b"x", b"\xff", b'{"total": 5', b'{"total": 5,}', b"{'total': 5}", b'{"total": 05}',
        b'{"total": NaN}', b'{"total": 5} x', b'{"total": 5, "x": "\xff"}', b'{"total": 5, "x": "\\ud800"}',
        b'{"total": 5, "x": tru}', b'\xef\xbb\xbf{"total": 5}', b'{"a":' * 100_000, b"[" * 100_000,
    ],
)  # fmt: skip
def test_what_is_no_json_is_null_everywhere(content: bytes | None) -> None:
    assert unknown("value.total = 5", content)
    assert unknown("value.total <> 5", content)
    assert matches("value.total IS NULL", content)
    assert not matches("value.total IS NOT NULL", content)
    assert matches("value.total = 5 OR a = 'x'", content, a="x")


@pytest.mark.parametrize("content", [b"5", b'"total"', b"true", b"null", b"[5]", b' {"other": 1} ', b"{}"])
def test_a_value_without_the_field_has_null_there(content: bytes) -> None:
    assert unknown("value.total = 5", content)
    assert matches("value.total IS NULL", content)


def test_blanks_around_what_is_looked_for() -> None:
    content = b' { "a" : [ 1 , { "b" : "x" } , true ] , "c" : 5 , "d":null } \n'
    assert matches("value.a[0] = 1 AND value.a[1].b = 'x' AND value.a[2] AND value.c = 5 AND value.d IS NULL", content)


def test_an_array_at_the_root() -> None:
    assert matches("value[0] = 1 AND value[1].a = 'x' AND value[2] IS NULL", [1, {"a": "x"}])
    assert matches(f"value[{MAX_INDEX}] = {MAX_INDEX}", list(range(MAX_INDEX + 5)))


def test_of_fields_with_one_name_the_last_counts() -> None:
    assert matches("value.a = 2", b'{"a": 1, "a": 2}')
    assert matches("value.a.b = 2", b'{"a": {"b": 1}, "a": {"b": 2}}')
    assert matches("value.a.b IS NULL", b'{"a": {"b": 1}, "a": 2}')


def test_names_in_other_spellings_and_texts_with_escapes() -> None:
    assert matches("value.total = 5", b'{"\\u0074otal": 5}')
    assert matches("value.a = 'x/y\"z\u00e4\U0001f600'", b'{"a": "x\\/y\\"z\\u00e4\\ud83d\\ude00"}')
    assert matches("value.a = 'paid'", b'{"a": "p\\u0061id"}')
    assert matches("value.a IN ('paid', 'new')", b'{"a": "p\\u0061id"}')


@pytest.mark.parametrize(
    ("expression", "content", "expected"),
    [
        ("value.n = 9007199254740993", b"9007199254740993", True),
        ("value.n = 9007199254740993", b"9007199254740992", False),
        ("value.n = 9007199254740993", b"9007199254740993.0", True),
        ("value.n > 9223372036854775807", b"18446744073709551616", True),
        ("value.n > 9223372036854775807", b"1" * 5_000, True),
        ("value.n < 0", b"-" + b"1" * 5_000, True),
        ("value.n = 0.1", b"0.1", True),
        ("value.n = 0.1", b"0.10", True),
        ("value.n = 0.1", b"1e-1", True),
        ("value.n = 0.1", b"0.1000000000000000000000000000000001", False),
        ("value.n > 0.1", b"0.1000000000000000000000000000000001", True),
        ("value.n = 12345678901234567890.125", b"12345678901234567890.125", True),
        ("value.n = 12345678901234567890.125", b"12345678901234567890.126", False),
        ("-value.n = -0.1000000000000000000000000000000001", b"0.1000000000000000000000000000000001", True),
        ("value.n > 5", b"1e999999", True),
        ("value.n < 5", b"-1E+999999", True),
        ("value.n > 0 AND value.n < 1e-300", b"1e-999999", True),
        ("value.n = 0", b"-0", True),
        ("value.n = 0", b"-0.0", True),
        ("value.n = 0", b"0e5", True),
        ("value.n = 3000000000", b"3e9", True),
        ("value.n IN (100, 2)", b"1e2", True),
    ],
)
def test_numbers_are_exact(expression: str, content: bytes, expected: bool) -> None:
    assert matches(expression, b'{"n": ' + content + b"}") is expected


@pytest.mark.parametrize("content", [b"1e9999999999999999999999", b"1" + b"0" * 900_000, b"0." + b"1" * 900_000])
def test_no_number_takes_long(content: bytes) -> None:
    matches("value.n > 5 AND value.n = value.n AND -value.n < 0 AND value.n IN (1, 2)", b'{"n": ' + content + b"}")


@pytest.mark.parametrize(
    ("expression", "header", "expected"),
    [
        ("value.count = limit", "3", True),
        ("value.count = limit", "3.0", True),
        ("value.count >= limit", "+2", True),
        ("limit < value.count", "2", True),
        ("value.count > limit", "many", None),
        ("value.count > limit", "", None),
        ("value.count > limit", "NaN", None),
        ("value.id = limit", "o-1", True),
        ("value.id = limit", "o-2", False),
        ("value.vip = limit", "TRUE", True),
        ("value.vip = limit", "yes", False),
        ("value.items = limit", "x", None),
        ("value.missing = limit", "x", None),
    ],
)
def test_a_header_is_read_as_what_the_field_is(expression: str, header: str, expected: bool | None) -> None:
    if expected is None:
        assert unknown(expression, limit=header)
    else:
        assert matches(expression, limit=header) is expected
        assert matches(f"NOT ({expression})", limit=header) is not expected


def test_a_header_called_value_is_still_a_header() -> None:
    assert matches("value = 'x'", {"a": 1}, value="x")
    assert matches("value = 'x' AND value.a = 1", {"a": 1}, value="x")
    assert matches("value IS NULL AND value.a = 1", {"a": 1})
    assert matches("Value = 'x' AND VALUE = 'y'", {"a": 1}, Value="x", VALUE="y")
    assert not matches("value.value = 'x'", {"a": 1}, value="x")
    assert matches("value.value = 'x'", {"value": "x"})


@pytest.mark.parametrize(
    ("expression", "column", "message"),
    [
        ("value. = 1", 6, "expected a field of the JSON value: .name"),
        ("value.5 = 1", 6, "expected a field of the JSON value: .name"),
        ("value.a. = 1", 8, "expected a field of the JSON value: .name"),
        ("value[-1] = 1", 6, "expected a field of the JSON value: .name"),
        ("value[x] = 1", 6, "expected a field of the JSON value: .name"),
        ("value[*] = 1", 6, "expected a field of the JSON value: .name"),
        ("value.\"a = 1", 6, "expected a field of the JSON value: .name"),
        (f"value[{MAX_INDEX + 1}] = 1", 6, f"an index is 0 to {MAX_INDEX}"),
        ("value" + ".a" * (MAX_STEPS + 1) + " = 1", 6 + 2 * MAX_STEPS, f"a field is at most {MAX_STEPS} levels below"),
        ("a.b = 1", 2, "a field of the JSON value is written value.name"),
        ("a[0] = 1", 2, "an element of the JSON value is written value[0] or value.name[0]"),
        ("value.a > TRUE", 11, "only numbers and texts have an order; expected a text, a number or a property"),
        ("value.a = NULL", 11, "nothing equals NULL; write IS NULL or IS NOT NULL"),
        ("value.a IN ()", 13, "expected a text, a number, TRUE or FALSE"),
        ("value.a IN (NULL)", 13, "expected a text, a number, TRUE or FALSE"),
        ("value.a IN (b)", 13, "expected a text, a number, TRUE or FALSE"),
        ("value.a IN (-'x')", 13, "only a number has a sign"),
        ("value.a BETWEEN 1 AND 'x'", 17, "BETWEEN takes two numbers or two texts"),
        ("value.a BETWEEN 'b' AND 'a'", 17, "BETWEEN b AND a: the second is to be as large as the first"),
        ("value.a BETWEEN 'b' AND b AND c > 'x'", 35, "only numbers have an order; expected a number or a property"),
        ("value.order-id = 1", 12, "expected AND, OR, a comparison or the end, found '-'"),
    ],
)  # fmt: skip
def test_an_error_says_where_and_what_was_expected(expression: str, column: int, message: str) -> None:
    with pytest.raises(FilterSyntaxError) as caught:
        compile_sql(expression)
    assert str(caught.value).startswith(message)
    assert caught.value.column == column


def test_the_number_of_fields_is_bounded() -> None:
    assert matches(" OR ".join(f"value.f{number} = 1" for number in range(MAX_PATHS)), {"f63": 1})
    assert matches(" OR ".join(["value.f = 2"] * MAX_PATHS + ["value.f = 1"]), {"f": 1})
    with pytest.raises(FilterSyntaxError, match=f"more than {MAX_PATHS} fields"):
        compile_sql(" OR ".join(f"value.f{number} = 1" for number in range(MAX_PATHS + 1)))


# -- only where, and only as far as, an expression needs it ------------------------------------------------------------


class Counting(JsonFields):
    reads = 0

    def read(self, content: bytes | None) -> Any:
        type(self).reads += 1
        return super().read(content)


def test_a_record_is_parsed_once_and_only_where_a_field_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("halfmoon.plugins.filter.sql_json.JsonFields", Counting)
    compiled = compile_sql("region = 'HZ' AND value.total > 10 AND value.count > 1 AND value.vip")
    assert isinstance(compiled, JsonSqlFilter)
    content = json.dumps(ORDER).encode()
    near, far = iter_records(build_batch([(None, content, 0, [("region", name)]) for name in (b"HZ", b"SH")]))
    Counting.reads = 0
    assert compiled.match(near)
    assert Counting.reads == 1
    assert not compiled.match(far)
    assert Counting.reads == 1, "the header has decided"
    assert type(compile_sql("value = 'x' AND region = 'HZ'")) is SqlFilter


def test_a_value_that_is_too_large_is_an_error_and_no_match() -> None:
    compile_ = halfmoon_filters(PluginContext("sql92", Settings(max_value_bytes=100)))["sql92"]
    small, large = ({"a": 1, "b": "x" * size} for size in (10, 100))
    records = list(iter_records(build_batch([(None, json.dumps(each).encode(), 0, []) for each in (small, large)])))
    compiled = compile_("value.a = 1")
    assert compiled.match(records[0])
    with pytest.raises(ValueTooLargeError, match="the most are 100"):
        compiled.match(records[1])
    assert compile_("a IS NULL OR value.a = 1").match(records[1]), "no field was asked for"
    assert compile_sql("value.a = 1").match(records[1]), "nobody waits for a program"


def test_only_one_that_names_a_field_takes_long() -> None:
    body = bytes(1 << 20)
    assert takes_long(compile_sql("value.a = 1"), body)
    assert not takes_long(compile_sql("value.a = 1"), bytes(100))
    assert not takes_long(compile_sql("a = 1"), body)


# -- properties --------------------------------------------------------------------------------------------------------

_scalars = st.none() | st.booleans() | st.integers() | st.text(max_size=4) | st.floats(allow_nan=False, width=32)
_scalars = _scalars.filter(lambda value: value not in (float("inf"), float("-inf")))
_names = st.sampled_from(["a", "b", "ä", 'c"d', "e\\f", ""])
_values = st.recursive(
    _scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_names, inner, max_size=3), max_leaves=9
)
_paths = st.lists(
    st.lists(_names | st.integers(0, 3), min_size=1, max_size=4).map(tuple), min_size=1, max_size=5, unique=True
)


def by_hand(value: Any, path: tuple[str | int, ...]) -> object:
    for step in path:
        if isinstance(value, dict) and isinstance(step, str):
            value = value.get(step)
        elif isinstance(value, list) and isinstance(step, int):
            value = value[step] if step < len(value) else None
        else:
            return None
    return STRUCTURE if isinstance(value, dict | list) else value


@trying(200)
@given(_values, _paths, st.booleans())
def test_fields_are_what_another_parser_finds(value: object, paths: list[tuple[str | int, ...]], ascii_: bool) -> None:
    text = json.dumps(value, ensure_ascii=ascii_)
    found = JsonFields(paths).read(text.encode())
    known = json.loads(text, parse_float=Decimal)
    assert [(type(each), each) for each in map(_plain, found)] == [
        (type(each), each) for each in (_plain(by_hand(known, path)) for path in paths)
    ]


def _plain(value: object) -> object:
    return Decimal(value) if isinstance(value, int) and not isinstance(value, bool) else value


@trying(300)
@given(_values, st.integers(0, 100), st.binary(max_size=3), _paths)
def test_any_bytes_have_fields_only_if_they_are_json(
    value: object, at: int, junk: bytes, paths: list[tuple[str | int, ...]]
) -> None:
    content = json.dumps(value, ensure_ascii=False).encode()
    at = min(at, len(content))
    content = content[:at] + junk + content[at + 1 :]
    found = JsonFields(paths).read(content)
    try:
        known = json.loads(content.decode(), parse_constant=float.fromhex, parse_float=Decimal)
    except (ValueError, RecursionError):
        assert not any(each is not None for each in found)
        return
    assert [_plain(each) for each in found] in (
        [_plain(by_hand(known, path)) for path in paths],
        [None] * len(paths),  # half a surrogate pair
    )


_conditions = st.sampled_from(
    [
        "value.a = 'x'", "value.a <> 'x'", "value.a IN ('x', 'y')", "value.a NOT IN ('x')", "value.a IN (1, 'x')",
        "value.b > 1", "value.b BETWEEN 0 AND 2", "value.a LIKE '%'", "value.b IS NULL", "value.b IS NOT NULL",
        "value.a", "NOT value.a", "value.a = value.b", "value.a.b = 1", "value.a[0] = 1", "value[0] = 1", "h = value.a",
        "h = 'x'", "h <> 'x'", "h IS NULL", "value.\u00e4 = '\u00e4'",
    ]
)  # fmt: skip
_expressions = st.recursive(
    _conditions,
    lambda inner: st.tuples(
        st.sampled_from(["({}) AND ({})", "({}) OR ({})", "NOT (({}) AND ({}))"]), inner, inner
    ).map(lambda made: made[0].format(made[1], made[2])),
    max_leaves=4,
)


@trying(300)
@given(_expressions, st.lists(_values, min_size=1, max_size=4), st.none() | st.sampled_from(["x", "1"]), st.booleans())
def test_the_bytes_that_are_searched_for_leave_out_no_match(
    expression: str, values: list[object], header: str | None, ascii_: bool
) -> None:
    headers = [] if header is None else [("h", header.encode())]
    rows = [(None, json.dumps(value, ensure_ascii=ascii_).encode(), 0, headers) for value in values]
    batch = build_batch(rows)
    compiled = compile_sql(expression)
    assert matching(batch, compiled) == [at for at, record in enumerate(iter_records(batch)) if compiled.match(record)]
