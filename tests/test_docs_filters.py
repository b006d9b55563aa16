"""docs/filters.md: what it says of expressions is so."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from halfmoon.config.settings import load_settings
from halfmoon.core.records.batches import build_batch
from halfmoon.hooks.plugins import load_plugins
from halfmoon.plugins import BUILT_IN
from halfmoon.plugins.filter.sql92 import Settings, compile_sql
from halfmoon.plugins.filter.sql_paths import MAX_INDEX, MAX_PATHS, MAX_STEPS
from halfmoon.services.common.filtering import matching
from halfmoon.services.common.filters import IN_LOOP_BYTES, FilterSyntaxError

DOCS = (Path(__file__).parents[1] / "docs/filters.md").read_text(encoding="utf-8")


def matches(expression: str, **headers: str) -> bool:
    batch = build_batch([(None, b"", 0, [(name, text.encode()) for name, text in headers.items()])])
    return matching(batch, compile_sql(expression)) == [0]


@pytest.mark.parametrize(
    ("expression", "headers", "expected"),
    [
        ("price > 15", {"price": "25.5"}, False),
        ("price > 15.0", {"price": "25.5"}, True),
        ("count > 5", {"count": "3000000000"}, False),
        ("count > 5.0", {"count": "3000000000"}, True),
        ("note IS NULL OR price > 15", {"price": "x"}, True),
        ("NOT vip = FALSE", {"vip": "true"}, False),
        ("NOT (vip = FALSE)", {"vip": "true"}, True),
        ("vip = TRUE", {"vip": "true"}, True),
        ("region <> 'HZ'", {}, False),
        ("region NOT IN ('HZ')", {}, False),
        ("NOT (a <> 'x' OR b < 10)", {"a": "x", "b": "10"}, True),
        ("a = 'x' AND b >= 10", {"a": "x", "b": "10"}, True),
    ],
)
def test_what_may_surprise(expression: str, headers: dict[str, str], expected: bool) -> None:
    assert f"`{expression}`" in DOCS
    assert matches(expression, **headers) is expected


ORDER = {"total": 120, "vip": True, "order-id": "o1", "code": 2.5, "placed_at": "2026-03-02", "items": [{"sku": "A-7"}]}


@pytest.mark.parametrize(
    ("expression", "value", "expected"),
    [
        ("value.items[0].sku = 'A-7'", ORDER, True),
        ("value.vip", ORDER, True),
        ("NOT value.vip", ORDER, False),
        ("value.placed_at >= '2026-03-01'", ORDER, True),
        ("value.code IN (1, 2.5, 'x', TRUE)", ORDER, True),
        ("value.id = 5", {"id": "5"}, False),
        ("value.id <> 5", {"id": "5"}, False),
        ("value.id = 5 OR value.vip", {"id": "5", "vip": True}, True),
        ("value.note IS NULL", "no JSON", True),
        ("region = 'HZ' AND value.total > 100", ORDER, True),
        ("value.total > credit_limit", ORDER, True),
    ],
)
def test_fields_of_json_values(expression: str, value: object, expected: bool) -> None:
    assert expression in DOCS
    content = value.encode() if isinstance(value, str) else json.dumps(value).encode()
    batch = build_batch([(None, content, 0, [("region", b"HZ"), ("credit_limit", b"100.5")])])
    assert (matching(batch, compile_sql(expression)) == [0]) is expected


def test_the_bounds_are_as_they_are_said() -> None:
    assert f"at most {MAX_PATHS} fields, each at most {MAX_STEPS} levels deep" in DOCS
    assert f"from 0 to {MAX_INDEX}" in DOCS
    assert f"more than {IN_LOOP_BYTES >> 10} KiB are parsed in a thread" in DOCS
    assert f"of more than {Settings().max_value_bytes >> 20} MiB" in DOCS


@pytest.mark.parametrize("expression", ["region > 'A'", "a = NULL", "a IN (1, 2)", "a BETWEEN 20 AND 10", "a > 0.0"])
def test_what_is_refused(expression: str) -> None:
    assert f"`{expression.removeprefix('a ').removeprefix('> ')}`" in DOCS
    with pytest.raises(FilterSyntaxError):
        compile_sql(expression)


def test_both_languages_are_plugins() -> None:
    modules = {name: f"halfmoon.plugins.filter.{name}" for name in ("tag", "sql92")}
    loaded = load_plugins(load_settings(None, {}, {}), BUILT_IN | modules, installed=[])
    assert set(loaded.filters) == set(modules)
