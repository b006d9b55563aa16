"""Write the tables of configurations into docs/configuration.md, and that of missing APIs into docs/compatibility.md.

    python tools/config_tables.py

They are made from the code; tests compare them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from halfmoon.adapters.kafka import unsupported
from halfmoon.config import topic_configs
from halfmoon.config.settings import Settings
from halfmoon.plugins.store.retry.configs import group_configs as retry_configs
from halfmoon.plugins.store.retry.policies import Policies, RetrySettings
from halfmoon.services.configs import group_configs, refused_configs
from halfmoon.services.configs.broker_configs import BrokerConfigs
from halfmoon.services.topic_configs import topic_configs as every_topic_config

DOCS = Path(__file__).parents[1] / "docs"
_DEFAULTS = Settings()


def tables() -> dict[str, str]:
    """Markdown by the name of its place in docs/configuration.md."""
    table = BrokerConfigs(every_topic_config())
    topics = [
        (
            f"`{row.name}`",
            _code(row.default(_DEFAULTS)),
            f"`{row.node_name}`" if row.node_name else "",
            row.documentation,
        )
        for row in table.topics.rows.values()
    ]
    nodes = [
        (
            f"`{row.name}`",
            _code(row.value(_DEFAULTS)),
            "no" if row.read_only else "yes",
            row.documentation + (f" broker.yaml: `{row.setting}`." if row.setting else ""),
        )
        for row in table.rows.values()
    ]
    every_group_config = [
        *group_configs.GROUP_CONFIGS.values(), *retry_configs(Policies(RetrySettings()).of_unstated)
    ]  # fmt: skip
    groups = [
        (
            f"`{row.name}`",
            _code(row.default(_DEFAULTS, "GROUP")),
            f"`{row.node_name}`" if row.node_name else "",
            row.documentation,
        )
        for row in sorted(every_group_config, key=lambda row: row.name)
    ]
    return {
        "topic configs": _table(("configuration", "default", "of the node", "effect"), topics),
        "topic configs not here": _reasons(topic_configs.NOT_HERE),
        "broker configs": _table(("configuration", "default", "at run time", "effect"), nodes),
        "broker configs not here": _reasons(refused_configs.REFUSED_CONFIGS),
        "group configs": _table(("configuration", "default", "of the node", "effect"), groups),
        "group configs not here": _reasons(group_configs.NOT_HERE),
    }


def _code(value: str) -> str:
    return f"`{value}`" if value else "(empty)"


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [f"| {' | '.join(cells)} |" for cells in (head, *rows)]
    lines.insert(1, "|" + "---|" * len(head))
    return "\n".join(lines)


def _reasons(not_here: Mapping[str, str]) -> str:
    by_reason: dict[str, list[str]] = {}
    for name, reason in not_here.items():
        by_reason.setdefault(reason, []).append(f"`{name}`")
    return _table(("configurations", "because"), [(", ".join(sorted(names)), why) for why, names in by_reason.items()])


def place(text: str, name: str, content: str) -> str:
    """`text` with the content between the two marks of that name."""
    before, mark, rest = text.partition(f"<!-- {name} -->\n")
    _, end, after = rest.partition(f"<!-- /{name} -->")
    if not (mark and end):
        raise ValueError(f"no place for {name}")
    return f"{before}{mark}{content}\n{end}{after}"


def main() -> None:
    configuration = DOCS / "configuration.md"
    text = configuration.read_text(encoding="utf-8")
    for name, content in tables().items():
        text = place(text, name, content)
    configuration.write_text(text, encoding="utf-8")
    compatibility = DOCS / "compatibility.md"
    text = place(compatibility.read_text(encoding="utf-8"), "unsupported", unsupported.table())
    compatibility.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
