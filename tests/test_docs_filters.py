"""docs/filters.md: what it says of expressions is so."""

from __future__ import annotations

from pathlib import Path

import pytest

from halfmoon.config.settings import load_settings
from halfmoon.core.records.batches import build_batch
from halfmoon.hooks.plugins import load_plugins
from halfmoon.plugins import BUILT_IN
from halfmoon.plugins.filter.sql92 import compile_sql
from halfmoon.services.common.filtering import matching
from halfmoon.services.common.filters import FilterSyntaxError

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


@pytest.mark.parametrize("expression", ["region > 'A'", "a = NULL", "a IN (1, 2)", "a BETWEEN 20 AND 10", "a > 0.0"])
def test_what_is_refused(expression: str) -> None:
    assert f"`{expression.removeprefix('a ').removeprefix('> ')}`" in DOCS
    with pytest.raises(FilterSyntaxError):
        compile_sql(expression)


def test_both_languages_are_plugins() -> None:
    modules = {name: f"halfmoon.plugins.filter.{name}" for name in ("tag", "sql92")}
    loaded = load_plugins(load_settings(None, {}, {}), BUILT_IN | modules, installed=[])
    assert set(loaded.filters) == set(modules)
