"""Filter by SQL92, as RocketMQ understands it, and by fields of JSON values: `TAGS = 'paid' AND value.total > 100`.

Names stand for a record's headers. Of several headers with one name the last counts, as in Kafka's clients; an empty
one is none, as in RocketMQ. What begins with `value.` or `value[` stands for a field of the record's JSON value. The
grammar is in `sql_grammar`, types and conversions in `sql_evaluation`, for fields in `sql_json`.
"""

from __future__ import annotations

from halfmoon.plugin import ConfigSection, FilterCompiler, MessageFilter, PluginContext, PositiveSize, Section, hookimpl

api_version = 1


class Settings(Section, frozen=True, kw_only=True):
    """`$.plugins.sql92`."""

    max_value_bytes: PositiveSize = 1 << 20
    """Of JSON values that are larger the broker reads no fields: nothing else runs while it passes over one."""


def compile_sql(expression: str, max_value_bytes: int | None = None) -> MessageFilter:
    """Raises FilterSyntaxError. `max_value_bytes`: None for a program that nobody waits for."""
    # Imported with the first expression: 9 ms that a broker without one need not wait for at its start.
    from halfmoon.plugins.filter.sql_filter import filter_of
    from halfmoon.plugins.filter.sql_grammar import parse

    return filter_of(parse(expression), max_value_bytes)


@hookimpl
def halfmoon_config() -> ConfigSection:
    return ConfigSection(settings=Settings)


@hookimpl
def halfmoon_filters(ctx: PluginContext) -> dict[str, FilterCompiler]:
    settings = ctx.settings_as(Settings)
    return {"sql92": lambda expression: compile_sql(expression, settings.max_value_bytes)}
