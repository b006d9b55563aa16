"""Configurations as Kafka's tools want to see them: value, source, synonyms, type, documentation.

A value comes from the highest of its layers that says anything, and the layers are its synonyms, highest first: the
resource itself; what was set for this node, or for all nodes, at run time; broker.yaml; the default.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from halfmoon.adapters.kafka.registry import Context
from halfmoon.adapters.kafka.shown import ShownEntries
from halfmoon.config.settings import Settings
from halfmoon.config.topic_configs import TopicConfig
from halfmoon.config.values import Kind
from halfmoon.core.catalog.topics import Topic
from halfmoon.services.configs.broker_configs import BrokerConfig
from halfmoon.services.configs.client_metrics import CLIENT_METRICS_CONFIGS
from halfmoon.services.configs.dynamic import DynamicConfigs
from halfmoon.services.configs.group_configs import GroupConfigs
from halfmoon.services.configs.state import ALL_NODES

# org.apache.kafka.common.requests.DescribeConfigsResponse.ConfigSource and .ConfigType
TOPIC_CONFIG, DYNAMIC_BROKER_CONFIG, DYNAMIC_DEFAULT_BROKER_CONFIG = 1, 2, 3
STATIC_BROKER_CONFIG, DEFAULT_CONFIG, DYNAMIC_BROKER_LOGGER_CONFIG = 4, 5, 6
CLIENT_METRICS_CONFIG, GROUP_CONFIG = 7, 8
TYPE_CODES = {
    Kind.UNKNOWN: 0, Kind.BOOLEAN: 1, Kind.STRING: 2, Kind.INT: 3, Kind.LONG: 5, Kind.DOUBLE: 6, Kind.LIST: 7,
}  # fmt: skip

_DEFAULTS = Settings()


class Synonym(NamedTuple):
    """One place the value could come from; the first one listed is where it does."""

    name: str
    value: str
    source: int


class Entry(NamedTuple):
    """One configuration of a resource."""

    name: str
    value: str
    kind: Kind
    read_only: bool
    synonyms: list[Synonym]
    documentation: str
    default_source: int = DEFAULT_CONFIG

    @property
    def source(self) -> int:
        return self.synonyms[0].source if self.synonyms else self.default_source


def topic_entries(ctx: Context, overrides: Mapping[str, str]) -> list[Entry]:
    """Every configuration of a topic with these overrides, sorted by name."""
    core, dynamic = ctx.core, ctx.services.find(DynamicConfigs)
    node = core.catalog.topic_defaults()
    entries = []
    for config, value, override, _ in core.topic_configs.effective({**node, **overrides}, core.settings):
        synonyms = _node_layers(ctx, dynamic.table.rows[config.node_name]) if dynamic and config.node_name else []
        if config.name in overrides and override is not None:
            synonyms.insert(0, Synonym(config.name, value, TOPIC_CONFIG))
        entries.append(Entry(config.name, value, config.kind, config.read_only, synonyms, config.documentation))
    return entries


def shown_entries(ctx: Context, topic: Topic) -> list[Entry]:
    """What features show of a topic beside its configurations, such as how far a view has come.

    They pass for the topic's own, because tools leave out what is a default.
    """
    elsewhere = ctx.services.find(ShownEntries)
    if elsewhere is not None and topic.number in elsewhere.of:
        shown = list(elsewhere.of.pop(topic.number).items())
    else:
        shown = [pair for entries in ctx.core.features.topic_entries for pair in entries(topic).items()]
    return [_shown(ctx.core.topic_configs.find(name), value) for name, value in shown]


def _shown(config: TopicConfig, value: str) -> Entry:
    own = Synonym(config.name, value, TOPIC_CONFIG)
    return Entry(config.name, value, config.kind, config.read_only, [own], config.documentation)


def node_entries(ctx: Context, host: str, port: int) -> list[Entry]:
    """Every configuration of this node that Kafka has a name for, sorted by name.

    `host` and `port` are what this client is told to connect to; that may differ from client to client.
    """
    advertised = Synonym("advertised.listeners", f"PLAINTEXT://{host}:{port}", STATIC_BROKER_CONFIG)
    entries = [
        Entry(
            advertised.name,
            advertised.value,
            Kind.STRING,
            True,
            [advertised],
            "Where this client is told to connect: listeners.kafka.advertise, else the address it reached.",
        )
    ]
    for row in ctx.services.get(DynamicConfigs).table.rows.values():
        synonyms = _node_layers(ctx, row)
        documentation = f"{row.documentation} In broker.yaml: {row.setting}." if row.setting else row.documentation
        entries.append(Entry(row.name, synonyms[0].value, row.kind, row.read_only, synonyms, documentation))
    return sorted(entries, key=lambda entry: entry.name)


def all_nodes_entries(ctx: Context) -> list[Entry]:
    """What was set for all nodes at run time, and nothing else, as Kafka shows it."""
    entries = []
    for name, value in sorted(ctx.services.get(DynamicConfigs).overrides(ALL_NODES).items()):
        row = ctx.services.get(DynamicConfigs).table.rows.get(name)
        if row is None:  # of a feature that is off
            continue
        synonyms = [Synonym(name, value, DYNAMIC_DEFAULT_BROKER_CONFIG)]
        entries.append(Entry(name, value, row.kind, False, synonyms, row.documentation))
    return entries


def _node_layers(ctx: Context, row: BrokerConfig) -> list[Synonym]:
    """Where a node's value could come from. One that broker.yaml sets to the default counts as the default."""
    dynamic = ctx.services.get(DynamicConfigs)
    value, default = row.value(dynamic.base), row.value(_DEFAULTS)
    layers = [Synonym(row.name, value, DEFAULT_CONFIG if value == default else STATIC_BROKER_CONFIG)]
    for name, source in (
        (ALL_NODES, DYNAMIC_DEFAULT_BROKER_CONFIG),
        (str(ctx.core.node_id), DYNAMIC_BROKER_CONFIG),
    ):
        overrides = dynamic.overrides(name)
        if row.name in overrides and row.name not in dynamic.left_out:
            layers.insert(0, Synonym(row.name, overrides[row.name].strip(), source))
    return layers


def group_entries(ctx: Context, group: str) -> list[Entry]:
    """Every configuration of a group, whether it exists or not, sorted by name."""
    configs = ctx.services.get(GroupConfigs)
    overrides = configs.overrides(group)
    entries = []
    for row in configs.rows.values():
        if row.node_name:
            synonyms = _node_layers(ctx, ctx.services.get(DynamicConfigs).table.rows[row.node_name])
        else:
            base = ctx.services.get(DynamicConfigs).base
            value = row.default(base, group)
            default = row.default(_DEFAULTS, group) if row.built_in is None else row.built_in(group)
            synonyms = [Synonym(row.name, value, DEFAULT_CONFIG if value == default else STATIC_BROKER_CONFIG)]
        if row.name in overrides:
            synonyms.insert(0, Synonym(row.name, overrides[row.name].strip(), GROUP_CONFIG))
        entries.append(Entry(row.name, synonyms[0].value, row.kind, False, synonyms, row.documentation))
    return entries


def client_metrics_entries(overrides: Mapping[str, str]) -> list[Entry]:
    """Every configuration of a client metrics subscription. Defaults are no synonyms there, as in Kafka."""
    entries = []
    for row in CLIENT_METRICS_CONFIGS.values():
        value = overrides.get(row.name, row.default)
        own = [Synonym(row.name, value, CLIENT_METRICS_CONFIG)] if row.name in overrides else []
        entries.append(Entry(row.name, value, row.kind, False, own, row.documentation))
    return entries


def logger_entries(levels: Mapping[str, str]) -> list[Entry]:
    """The levels of this process's loggers. They have no synonyms, as in Kafka."""
    return [
        Entry(name, level, Kind.UNKNOWN, False, [], "", DYNAMIC_BROKER_LOGGER_CONFIG) for name, level in levels.items()
    ]
