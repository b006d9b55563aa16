"""broker.yaml → typed settings.

Four layers, the higher wins: command line flags, environment (`HALFMOON_LOG_FLUSH=interval`), broker.yaml, defaults.
They are laid over one another as plain nested dicts and read once, so that a value means the same wherever it comes
from.

What broker.yaml writes as `retention: 7d` is `settings.log.retention_ms`: every time is an int in ms and ends in `_ms`,
every size an int in bytes and ends in `_bytes`. The sections are frozen and handed to whoever needs them; nothing reads
them from a global.

Plugin sections stay raw here: their types are known only when the plugins are loaded (hooks/plugins.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct, field

from halfmoon.config.cluster_settings import ClusterSettings
from halfmoon.config.exposure import MOST_LISTENERS, check_listeners, kafka_paths
from halfmoon.config.listener_settings import KafkaListener, ListenerSettings
from halfmoon.config.log_settings import LogSettings
from halfmoon.config.sections import (
    Given,
    Section,
    SettingError,
    decode_section,
    fields_of,
    leaves,
    suggestion,
    without_none,
)
from halfmoon.config.security_settings import SecuritySettings
from halfmoon.config.share_settings import ShareSettings
from halfmoon.config.units import DURATION, SIZE, Duration, PositiveDuration, PositiveSize, format_duration, format_size
from halfmoon.errors import StartError

ENVIRONMENT_PREFIX = "HALFMOON_"
EXTENSION_SECTIONS = ("views",)
"""Top-level sections that the core leaves to a plugin; refused when no loaded plugin claims them."""

PositiveInt = Annotated[int, Meta(ge=1)]


NEW_NODE = 1
"""The id of a node that is not given one: that of the only broker in the field's examples and tools."""


class NodeSettings(Section, frozen=True, kw_only=True):
    """Who this broker is and where its data lies. `data_dir` is relative to the working directory."""

    id: Annotated[int, Meta(ge=0, le=2**31 - 1)] | None = None
    """None: what the data directory says, NEW_NODE where it is new. Filled in when the directory is opened."""
    data_dir: Annotated[str, Meta(min_length=1)] = "./data"


class LoggingSettings(Section, frozen=True, kw_only=True):
    """What the broker says on stderr about itself."""

    format: Literal["text", "json"] = "text"
    level: Literal["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"] = "INFO"


class HoldSettings(Section, frozen=True, kw_only=True):
    """Requests that wait for messages (B11, B12)."""

    long_polling: bool = True
    max_suspend_ms: PositiveDuration = 60_000
    check_interval_ms: PositiveDuration = 5_000
    short_polling_ms: PositiveDuration = 1_000


class TopicSettings(Section, frozen=True, kw_only=True):
    """What a topic gets that does not say otherwise."""

    auto_create: bool = True
    partitions: PositiveInt = 4
    headers: bool = True
    """Whether feature headers (TAGS, DELAY, …) act; per topic `halfmoon.headers.enable`."""
    key_index: bool = False
    """Whether records can be found by their own key; per topic `halfmoon.key.index`."""
    max_message_bytes: PositiveSize = 4 << 20


class GroupsSettings(Section, frozen=True, kw_only=True):
    """Consumer groups."""

    default_assignor: str = "averagely"
    initial_rebalance_delay_ms: Duration = 100
    min_session_timeout_ms: PositiveDuration = 1_000
    max_session_timeout_ms: PositiveDuration = 1_800_000
    heartbeat_wait_ms: Duration = 3_000
    """How long a heartbeat of a classic group may wait for a rebalance; 0: it does not, as in Kafka."""
    offsets_retention_ms: Duration | None = 7 * 86_400_000
    """How long an empty group's offsets are kept; None keeps them for ever."""
    max_size: PositiveInt | None = None
    migration_policy: Literal["bidirectional", "upgrade", "downgrade", "disabled"] = "bidirectional"
    """Whether a group with members may change its protocol: to the new one (KIP-848), and back."""
    consumer_session_timeout_ms: PositiveDuration = 45_000
    """How long a member of the new protocol may be silent; the classic one's clients say it themselves."""
    consumer_heartbeat_min_ms: PositiveDuration = 200
    consumer_heartbeat_max_ms: PositiveDuration = 5_000
    """Between the two lies the interval that members of the new protocol are told. A rebalance takes a few of them."""
    consumer_heartbeats_per_second: PositiveInt = 500
    """That all members together are to send: the more there are, the longer their intervals."""
    share: ShareSettings = ShareSettings()

    @property
    def most_members(self) -> int:
        """Of one group."""
        return self.max_size or 10_000

    def __post_init__(self) -> None:
        if self.consumer_heartbeat_min_ms > self.consumer_heartbeat_max_ms:
            longest = format_duration(self.consumer_heartbeat_max_ms)
            raise SettingError(
                "consumer_heartbeat_min",
                f"got {format_duration(self.consumer_heartbeat_min_ms)}, "
                f"expected at most consumer_heartbeat_max ({longest})",
            )
        if self.min_session_timeout_ms > self.max_session_timeout_ms:
            longest = format_duration(self.max_session_timeout_ms)
            raise SettingError(
                "min_session_timeout",
                f"got {format_duration(self.min_session_timeout_ms)}, expected at most max_session_timeout ({longest})",
            )


class TransactionsSettings(Section, frozen=True, kw_only=True):
    """Producers' transactions (core/transactions). What concerns half messages is `$.plugins.transaction`."""

    max_timeout_ms: PositiveDuration = 900_000
    """Longest time that a producer may take for one (Kafka: transaction.max.timeout.ms)."""
    id_expiration_ms: PositiveDuration | None = 7 * 86_400_000
    """A transactional id that was not used for so long is forgotten (Kafka: transactional.id.expiration.ms); None
    keeps it for ever."""


class LimitSettings(Section, frozen=True, kw_only=True):
    """What one client, or all of them together, may ask of this process."""

    max_connections: PositiveInt = 10_000
    max_connections_per_ip: PositiveInt | None = None
    """Of one listener's protocol (Kafka: max.connections.per.ip)."""
    max_unauthenticated: PositiveInt = 500
    """Connections of one protocol that have not shown who they are. Where there would be more, the oldest one goes of
    the address that has the most."""
    authentication_timeout_ms: PositiveDuration = 10_000
    """From accepting a connection until it has, its TLS handshake included."""
    idle_timeout_ms: PositiveDuration | None = 600_000
    """A connection that is silent for so long is closed; None never."""
    send_timeout_ms: PositiveDuration = 60_000
    """A peer that does not read its answer for so long is closed: the answer may pin a segment."""
    max_request_bytes: Annotated[int, Meta(ge=1024, le=2**31 - 1, extra={"unit": SIZE})] = 100 << 20
    inflight_bytes: PositiveSize = 256 << 20
    """Bytes of requests read but not yet answered, over all connections."""
    fetch_buffer_bytes: PositiveSize = 128 << 20
    """Bytes that were read from the disk for fetches and are not sent yet, over all connections. A fetch that finds no
    room waits."""
    max_partitions_per_topic: PositiveInt = 10_000
    max_partitions: PositiveInt = 200_000
    """On this node, over all topics. Each takes about half a kilobyte, and one request may ask for any number."""
    quota_windows: Annotated[int, Meta(ge=1, le=1_000)] = 11
    """Clients' rates are measured over so many windows, the last of which runs (Kafka: quota.window.num)."""
    quota_window_ms: Annotated[int, Meta(ge=1_000, le=3_600_000, extra={"unit": DURATION})] = 1_000

    def __post_init__(self) -> None:
        if self.inflight_bytes < self.max_request_bytes:
            largest = format_size(self.max_request_bytes)
            raise SettingError(
                "inflight_bytes",
                f"got {format_size(self.inflight_bytes)}, expected at least max_request_bytes ({largest}), "
                "or the largest request could never be read",
            )


class WorkerSettings(Section, frozen=True, kw_only=True):
    """Several processes that share the topics (docs/workers.md)."""

    count: Annotated[int, Meta(ge=1, le=256)] | None = None
    """How many. It may be another number at each start. None: the broker is one process."""
    shards: Annotated[int, Meta(ge=1, le=256)] = 16
    """Into how many logs a new data directory is divided, a power of two; no more processes than that have work. It
    never changes."""

    def __post_init__(self) -> None:
        if self.shards & (self.shards - 1):
            raise SettingError("shards", f"got {self.shards}, expected a power of two")


class ServiceSettings(Section, frozen=True, kw_only=True):
    """Which services are on. What the log says of one that is off is kept, and holds again when it is on again."""

    acls: bool = True
    cleaner: bool = True
    configs: bool = True
    delays: bool = True
    expiry: bool = True
    groups: bool = True
    keyindex: bool = True
    quotas: bool = True
    scrubber: bool = True
    share: bool = True
    transactions: bool = True
    waiting: bool = True

    def off(self) -> set[str]:
        """Names of those that are off."""
        return {name for name in self.__struct_fields__ if not getattr(self, name)}


class PluginSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What was said about plugins, unread: the plugin manager knows the types (halfmoon.hooks.settings)."""

    sections: dict[str, object] = field(default_factory=dict)
    """`$.plugins`: a plugin's name or path → true, false, or a mapping of its settings (values may be `Given`)."""
    environment: dict[str, str] = field(default_factory=dict)
    """`HALFMOON_PLUGINS_…` variables, by their full name."""
    overrides: dict[str, dict[str, Given]] = field(default_factory=dict)
    """Flags, by plugin and setting."""
    extensions: dict[str, object] = field(default_factory=dict)
    """`EXTENSION_SECTIONS` found in broker.yaml."""
    base_dir: str = "."
    """What plugin paths are relative to: the folder of broker.yaml."""


class Settings(Section, frozen=True, kw_only=True):
    """Everything broker.yaml can say."""

    node: NodeSettings = NodeSettings()
    listeners: ListenerSettings = ListenerSettings()
    logging: LoggingSettings = LoggingSettings()
    log: LogSettings = LogSettings()
    hold: HoldSettings = HoldSettings()
    topics: TopicSettings = TopicSettings()
    groups: GroupsSettings = GroupsSettings()
    transactions: TransactionsSettings = TransactionsSettings()
    limits: LimitSettings = LimitSettings()
    security: SecuritySettings = SecuritySettings()
    services: ServiceSettings = ServiceSettings()
    workers: WorkerSettings = WorkerSettings()
    cluster: ClusterSettings = ClusterSettings()
    plugins: PluginSettings = PluginSettings()


def load_settings(
    source: str | Path | Mapping[str, object] | None,
    env: Mapping[str, str],
    overrides: Mapping[str, object],
    *,
    text: str | None = None,
) -> Settings:
    """Read the settings from all layers.

    `source`: the path of a broker.yaml, its content as nested dicts (the testing kit's way), or None for neither.
    `env`: the environment; see `environment_names` for what is looked at.
    `overrides`: flags by dotted path in broker.yaml's names (`"log.flush"`, `"plugins.delay.levels"`); a value may be
    text in the human form or of the right type already; None means that the flag was not given.
    `text`: what stood in the file, where that may have changed since.
    Raises StartError (a SettingError where one setting is at fault).
    """
    tree: dict[str, Any] = _copy(source) if isinstance(source, Mapping) else _read_yaml(source, text) if source else {}
    base_dir = str(Path(source).parent) if isinstance(source, (str, Path)) and source else "."
    raw_plugins = tree.pop("plugins", None)
    extensions = {name: tree.pop(name) for name in EXTENSION_SECTIONS if name in tree}
    plugin_overrides: dict[str, dict[str, Given]] = {}
    _without_old(tree, env)
    others = _listed_apart(tree)
    for path, given in _from_environment(env).items():
        overlay(tree, path, given)
    sections = _plugin_sections(raw_plugins)
    for dotted, value in overrides.items():
        if value is None:
            continue
        if dotted.startswith("plugins."):
            _override_plugin(dotted.removeprefix("plugins."), value, sections, plugin_overrides)
        else:
            _override(tree, dotted, value)
    tree["plugins"] = None
    settings = decode_section(Settings, tree, "$")
    listeners = msgspec.structs.replace(
        settings.listeners,
        kafka_others=tuple(
            decode_section(KafkaListener, each, f"$.listeners.kafka[{index}]") for index, each in enumerate(others, 1)
        ),
    )
    check_listeners(listeners)
    settings.security.check(listeners, acls=settings.services.acls)
    _check_cluster(settings, listeners)
    plugins = PluginSettings(
        sections=sections,
        environment={name: value for name, value in env.items() if name.startswith(f"{ENVIRONMENT_PREFIX}PLUGINS_")},
        overrides=plugin_overrides,
        extensions={name: value for name, value in extensions.items() if value is not None},
        base_dir=base_dir,
    )
    return msgspec.structs.replace(settings, listeners=listeners, plugins=plugins)


def setting_paths() -> dict[str, Any]:
    """Every setting of the core by dotted path (`log.segment_bytes`), with its default, in broker.yaml's order."""
    paths = {".".join(leaf.path): leaf.default for leaf in leaves(Settings) if leaf.path[0] != "plugins"}
    del paths["listeners.kafka_others"]  # a list is set in the file only
    return paths


def is_setting(dotted: str) -> bool:
    """Whether `setting_paths` has this one, without all others."""
    section: type[Struct] | None = Settings
    nullable = False
    for name in dotted.split("."):
        fields = {} if section is None else {field.encode_name: field for field in fields_of(section)}
        if name not in fields:
            return False
        kind, nullable = without_none(fields[name].type)
        section = kind if isinstance(kind, type) and issubclass(kind, Struct) else None
    return section is None or nullable


def environment_names() -> dict[str, tuple[str, ...]]:
    """Environment variable → path: `HALFMOON_LOG_SEGMENT_BYTES` → `("log", "segment_bytes")`."""
    paths = (tuple(path.split(".")) for path in setting_paths())
    return {ENVIRONMENT_PREFIX + "_".join(path).upper(): path for path in paths}


def _check_cluster(settings: Settings, listeners: ListenerSettings) -> None:
    """Raises SettingError."""
    if settings.cluster.database is None:
        return
    if settings.workers.count is not None:
        raise SettingError("$.workers.count", "a node of a cluster is one process: several of a machine are nodes, too")
    if settings.node.id is None:
        raise SettingError("$.node.id", "missing: each node of a cluster has its own")
    if settings.log.flush != "sync":
        raise SettingError("$.log.flush", f"got {settings.log.flush}: in a cluster the durability is the topic's")
    for path, each in zip(kafka_paths(listeners), listeners.of_kafka, strict=True):
        if each.advertise is None and each.bind.host in _ANY:
            raise SettingError(f"{path}.advertise", "missing: the other nodes tell clients where this one is")


_ANY = ("0.0.0.0", "::")


def _from_environment(env: Mapping[str, str]) -> dict[tuple[str, ...], Given]:
    """The variables that name a setting.

    A name that starts like a section but names none of its settings is a misspelling and refused. Other HALFMOON_ names
    are left alone: Kubernetes sets HALFMOON_SERVICE_HOST and the like for a service called halfmoon.
    """
    sections = [field.encode_name for field in fields_of(Settings) if field.encode_name != "plugins"]
    starts = tuple(f"{ENVIRONMENT_PREFIX}{name.upper()}_" for name in sections)
    if not any(name.startswith(starts) for name in env):
        return {}  # as mostly; to find all names takes a twentieth of a broker's start
    known = environment_names()
    found: dict[tuple[str, ...], Given] = {}
    for name, value in env.items():
        if name in known:
            found[known[name]] = Given(value, name)
        elif name.startswith(starts):
            raise StartError(f"environment: {name}: no such setting{suggestion(name, known)}")
    return found


def _override(tree: dict[str, Any], dotted: str, value: object) -> None:
    if not is_setting(dotted):
        raise StartError(f"{dotted}: no such setting{suggestion(dotted, setting_paths())}")
    overlay(tree, tuple(dotted.split(".")), Given(value, "the command line"))


def _override_plugin(
    rest: str, value: object, sections: dict[str, object], overrides: dict[str, dict[str, Given]]
) -> None:
    """`jsonpath` switches a plugin on or off, `delay.levels` sets one of its settings; a path is a whole name."""
    name, dot, setting = rest.rpartition(".")
    if not dot or setting == "py":
        sections[rest] = value
    else:
        overrides.setdefault(name, {})[setting] = Given(value, "the command line")


def _plugin_sections(raw: object) -> dict[str, object]:
    if raw is None:
        return {}
    if not isinstance(raw, Mapping):
        raise SettingError("$.plugins", f"got {raw!r}, expected plugins by name, each with its settings, true or false")
    return {str(name): value for name, value in raw.items()}


def overlay(tree: dict[str, Any], path: tuple[str, ...], value: Given) -> None:
    """Put `value` at `path`, making sections on the way. What is no section stays, for decoding to complain about."""
    for key in path[:-1]:
        below = tree.get(key)
        if below is None:
            below = tree[key] = {}
        if not isinstance(below, dict):
            return
        tree = below
    tree[path[-1]] = value


def _listed_apart(tree: dict[str, Any]) -> list[object]:
    """`$.listeners.kafka` may be a list. Leaves its first element in its place, and returns the others. Raises
    SettingError."""
    listeners = tree.get("listeners")
    if not isinstance(listeners, dict):
        return []
    if "kafka_others" in listeners:
        raise SettingError("$.listeners.kafka_others", "no such setting; did you mean a list at kafka?")
    listed = listeners.get("kafka")
    if not isinstance(listed, list):
        return []
    if not 0 < len(listed) <= MOST_LISTENERS:
        raise SettingError("$.listeners.kafka", f"got {len(listed)} listeners, expected 1 to {MOST_LISTENERS}")
    listeners["kafka"] = _copy(listed[0]) if isinstance(listed[0], Mapping) else listed[0]
    return listed[1:]


def _without_old(tree: dict[str, Any], env: Mapping[str, str]) -> None:
    """Take out what older versions had. Raises SettingError where it would change something."""
    name = f"{ENVIRONMENT_PREFIX}ALLOW_INSECURE"
    for path, value in (("$.allow_insecure", tree.pop("allow_insecure", False)), (name, env.get(name, "false"))):
        if value not in (False, None, "", "false"):
            raise SettingError(
                path, "every listener says this for itself now: listeners: {kafka: {allow_insecure: true, …}}"
            )


def _read_yaml(path: str | Path, text: str | None) -> dict[str, Any]:
    # Where there is no file a broker starts without YAML's parser.
    from halfmoon.config.yaml_file import read_yaml

    return read_yaml(Path(path), text)


def _copy(source: Mapping[str, object]) -> dict[str, Any]:
    return {key: _copy(value) if isinstance(value, Mapping) else value for key, value in source.items()}
