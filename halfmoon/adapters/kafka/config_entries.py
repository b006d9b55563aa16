"""Topic and node configurations as Kafka's tools want to see them: value, source, synonyms, type, documentation.

A topic's value comes from the topic itself or from the node; the node's from broker.yaml or from the default. The
node is shown under the names that Kafka's tools know, and read-only: it is configured by broker.yaml and a restart.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from halfmoon.core.config import Settings
from halfmoon.core.topic_configs import TOPIC_CONFIGS, VIEW_POSITION, VIEW_STATE, Kind, effective, find

if TYPE_CHECKING:
    from halfmoon.core.broker import Broker
    from halfmoon.core.catalog import Topic

# org.apache.kafka.common.requests.DescribeConfigsResponse.ConfigSource and .ConfigType
TOPIC_CONFIG, STATIC_BROKER_CONFIG, DEFAULT_CONFIG = 1, 4, 5
TYPE_CODES = {Kind.BOOLEAN: 1, Kind.STRING: 2, Kind.INT: 3, Kind.LONG: 5, Kind.DOUBLE: 6, Kind.LIST: 7}

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

    @property
    def source(self) -> int:
        return self.synonyms[0].source


class _NodeConfig(NamedTuple):
    name: str
    kind: Kind
    value: Callable[[Settings], str]
    documentation: str


def _truth(value: bool) -> str:
    return "true" if value else "false"


_NODE_CONFIGS = (
    _NodeConfig(
        "auto.create.topics.enable",
        Kind.BOOLEAN,
        lambda s: _truth(s.topics.auto_create),
        "Whether asking for a missing topic may create it: topics.auto_create.",
    ),
    _NodeConfig(
        "connections.max.idle.ms",
        Kind.LONG,
        lambda s: str(s.limits.idle_timeout_ms or -1),
        "How long a connection may be silent before it is closed; -1 = for ever: limits.idle_timeout.",
    ),
    _NodeConfig("default.replication.factor", Kind.INT, lambda s: "1", "A single node keeps one replica."),
    _NodeConfig("delete.topic.enable", Kind.BOOLEAN, lambda s: "true", "Topics can be deleted."),
    _NodeConfig(
        "group.initial.rebalance.delay.ms",
        Kind.INT,
        lambda s: str(s.groups.initial_rebalance_delay_ms),
        "How long a new group waits for more members: groups.initial_rebalance_delay.",
    ),
    _NodeConfig(
        "group.max.session.timeout.ms",
        Kind.INT,
        lambda s: str(s.groups.max_session_timeout_ms),
        "The longest session timeout a member may ask for: groups.max_session_timeout.",
    ),
    _NodeConfig(
        "group.min.session.timeout.ms",
        Kind.INT,
        lambda s: str(s.groups.min_session_timeout_ms),
        "The shortest session timeout a member may ask for: groups.min_session_timeout.",
    ),
    _NodeConfig(
        "halfmoon.log.flush",
        Kind.STRING,
        lambda s: s.log.flush,
        "A produced batch is acknowledged after fdatasync (sync) or after the write (interval): log.flush.",
    ),
    _NodeConfig("log.dirs", Kind.STRING, lambda s: s.node.data_dir, "Where the data lies: node.data_dir."),
    _NodeConfig("node.id", Kind.INT, lambda s: str(s.node.id), "This node: node.id."),
    _NodeConfig(
        "num.partitions",
        Kind.INT,
        lambda s: str(s.topics.partitions),
        "How many partitions a topic gets that does not say: topics.partitions.",
    ),
    _NodeConfig(
        "socket.request.max.bytes",
        Kind.INT,
        lambda s: str(s.limits.max_request_bytes),
        "The largest request that is read: limits.max_request_bytes.",
    ),
)


def topic_entries(overrides: Mapping[str, str], settings: Settings) -> list[Entry]:
    """Every configuration of a topic with these overrides, sorted by name."""
    entries = []
    for config, value, override, default in effective(overrides, settings):
        synonyms = []
        if config.node_name:
            synonyms.append(Synonym(config.node_name, default, _source(default, config.default(_DEFAULTS))))
        if override is not None:
            synonyms.insert(0, Synonym(config.name, value, TOPIC_CONFIG))
        entries.append(Entry(config.name, value, config.kind, config.read_only, synonyms, config.documentation))
    return entries


def view_entries(broker: Broker, view: Topic) -> list[Entry]:
    """How a view is getting on, as if it were configurations: Kafka's protocol has no other place for it.

    They pass for the topic's own, because tools leave out what is a default.
    """
    position = ",".join(f"{source}:{own}" for source, own in broker.views.position(view))
    return [_shown(VIEW_POSITION, position), _shown(VIEW_STATE, broker.views.state(view))]


def _shown(name: str, value: str) -> Entry:
    config = find(name)
    return Entry(name, value, config.kind, config.read_only, [Synonym(name, value, TOPIC_CONFIG)], config.documentation)


def node_entries(broker: Broker, host: str, port: int) -> list[Entry]:
    """Every configuration of this node that Kafka has a name for, sorted by name.

    `host` and `port` are what this client is told to connect to; that may differ from client to client.
    """
    settings = broker.settings
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
    rows = [
        *_NODE_CONFIGS,
        *(_NodeConfig(row.node_name, row.kind, row.default, row.documentation) for row in TOPIC_CONFIGS.values()),
    ]
    for name, kind, read, documentation in rows:
        value = read(settings)
        synonyms = [Synonym(name, value, _source(value, read(_DEFAULTS)))]
        entries.append(Entry(name, value, kind, True, synonyms, documentation))
    return sorted(entries, key=lambda entry: entry.name)


def _source(value: str, default: str) -> int:
    """Where a node's value comes from. One that broker.yaml sets to the default counts as the default."""
    return DEFAULT_CONFIG if value == default else STATIC_BROKER_CONFIG
