"""The filter language `jsonpath`: a record matches if the query selects at least one node in its JSON value.

    views: {orders.big: {source: orders, jsonpath: "$.items[?@.price > 100]"}}

This module is the plugin: its settings, its hooks, and the filter they give. `query` turns an expression into a query
that costs no more than it should, `needle` finds bytes that every match holds.
"""

from __future__ import annotations

import json
import re
from typing import Any, NoReturn

from halfmoon.plugin import (
    ConfigSection,
    FilterCompiler,
    MessageFilter,
    PluginContext,
    PositiveSize,
    Section,
    SettingError,
    hookimpl,
)
from halfmoon_filter_jsonpath.needle import needle
from halfmoon_filter_jsonpath.query import Query, parse

api_version = 1


class Settings(Section, frozen=True, kw_only=True):
    """What stands at `$.plugins.jsonpath` in broker.yaml."""

    max_expression: int = 1_000
    """Characters that an expression may have."""
    max_value_bytes: PositiveSize = 64 * 1024
    """The filter does not parse larger values: nothing else runs while one is parsed."""

    def __post_init__(self) -> None:
        if self.max_expression < 1:
            raise SettingError("max_expression", f"got {self.max_expression}, expected at least 1 character")


@hookimpl
def halfmoon_config() -> ConfigSection:
    return ConfigSection(Settings)


@hookimpl
def halfmoon_filters(ctx: PluginContext) -> dict[str, FilterCompiler]:
    settings = ctx.settings_as(Settings)

    def compile_jsonpath(expression: str) -> MessageFilter:
        """Raises FilterSyntaxError."""
        return JsonPathFilter(parse(expression, settings.max_expression), settings.max_value_bytes)

    return {"jsonpath": compile_jsonpath}


class JsonPathFilter:
    """Matches the records in whose JSON value the query selects something."""

    takes_long = True

    def __init__(self, query: Query, max_value_bytes: int) -> None:
        self._query = query
        self._max_value_bytes = max_value_bytes
        self.needle: re.Pattern[bytes] | None = needle(query)

    def match(self, record: Any) -> bool:
        """No match: a record without a value, and one whose value is not JSON in UTF-8.

        Raises ValueTooLargeError, and RecursionError or JSONPathRecursionError for a value that is nested too deeply:
        there is no telling whether these match. The broker counts each as an error, and as no match.
        """
        content: bytes | None = record.value
        if content is None:
            return False
        if len(content) > self._max_value_bytes:
            raise ValueTooLargeError(f"the value has {len(content):,} bytes, the most are {self._max_value_bytes:,}")
        try:
            value = _decode(content.decode())
        except ValueError:
            return False
        return self._query.find_one(value) is not None


class ValueTooLargeError(Exception):
    """A record's value has more than `max_value_bytes`."""


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


# Python reads NaN and Infinity too, if it is let.
_decode = json.JSONDecoder(parse_constant=_refuse_constant).decode
