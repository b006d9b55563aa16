"""Filter by SQL92, as RocketMQ understands it: `TAGS = 'logistics' AND region IN ('HZ', 'SH') AND price < 100`.

Names stand for a record's headers. Of several headers with one name the last counts, as in Kafka's clients; an empty
one is none, as in RocketMQ. The grammar is in `sql_grammar`, types and conversions in `sql_evaluation`.
"""

from __future__ import annotations

from halfmoon.plugin import FilterCompiler, MessageFilter, PluginContext, hookimpl

api_version = 1


def compile_sql(expression: str) -> MessageFilter:
    """Raises FilterSyntaxError."""
    # Imported with the first expression: 9 ms that a broker without one need not wait for at its start.
    from halfmoon.plugins.filter.sql_filter import SqlFilter
    from halfmoon.plugins.filter.sql_grammar import parse

    return SqlFilter(parse(expression))


@hookimpl
def halfmoon_filters(ctx: PluginContext) -> dict[str, FilterCompiler]:
    return {"sql92": compile_sql}
