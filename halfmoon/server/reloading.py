"""SIGHUP: the settings are read anew, and those that can change while the broker runs do.

What is `RELOADABLE` is read where it is used, or by somebody who subscribes (core/live.py). All else was bound at
start: sockets, files, threads, plugins. The log names each setting that differs and needs a restart, so that nobody
takes it for changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from halfmoon.config.sections import Section, fields_of
from halfmoon.config.settings import Settings, setting_paths

RELOADABLE = (
    "logging.format",
    "logging.level",
    "log.retention",
    "log.retention_bytes",
    "log.cleaner.enable",
    "log.cleaner.min_dirty_ratio",
    "log.cleaner.delete_retention",
    "log.cleaner.min_compaction_lag",
    "log.scrubber.interval",
    "log.scrubber.bytes_per_second",
    "topics.auto_create",
    "topics.partitions",
    "topics.headers",
    "topics.key_index",
    "topics.max_message_bytes",
    "groups.default_assignor",
    "groups.initial_rebalance_delay",
    "groups.min_session_timeout",
    "groups.max_session_timeout",
    "groups.heartbeat_wait",
    "groups.offsets_retention",
    "groups.max_size",
    "groups.migration_policy",
    "groups.consumer_session_timeout",
    "groups.consumer_heartbeat_min",
    "groups.consumer_heartbeat_max",
    "groups.consumer_heartbeats_per_second",
    "groups.share.session_timeout",
    "groups.share.heartbeat_interval",
    "groups.share.record_lock_duration",
    "groups.share.delivery_count_limit",
    "groups.share.partition_max_record_locks",
    "groups.share.auto_offset_reset",
    "groups.share.isolation_level",
    "groups.share.renew_acknowledge",
    "groups.share.dead_letters",
    "transactions.max_timeout",
    "transactions.id_expiration",
    "limits.max_connections",
    "limits.idle_timeout",
    "limits.send_timeout",
    "limits.max_partitions_per_topic",
    "limits.max_partitions",
)
"""In broker.yaml's names. What was set at run time by Kafka's tools goes before them, as at a start."""

PLUGINS = "plugins"
"""Stands for all that is said about plugins, the views of broker.yaml included."""


class Reload(NamedTuple):
    """What a second reading of the settings comes to."""

    settings: Settings
    """To be in force: the old ones, with what can change."""
    changed: Sequence[str]
    """Settings that are other than before."""
    kept: Sequence[str]
    """Settings that would be, and need a restart."""


def reload(old: Settings, new: Settings) -> Reload:
    """Compare the settings of the layers below the run-time configurations with what they are now. Raises SettingError
    where what changes contradicts what stays."""
    differ: list[str] = []
    for path in setting_paths():
        if _differ(_at(old, path), _at(new, path)) and not any(path.startswith(f"{above}.") for above in differ):
            differ.append(path)
    kept = [path for path in differ if path not in RELOADABLE]
    if old.plugins != new.plugins:
        kept.append(PLUGINS)
    return Reload(_merged(old, new, ""), [path for path in differ if path in RELOADABLE], kept)


def _differ(old: object, new: object) -> bool:
    """Of two sections, one that is not there makes the difference: what is in both has paths of its own."""
    if isinstance(old, msgspec.Struct) and isinstance(new, msgspec.Struct):
        return False
    return old != new


def _at(settings: object, path: str) -> Any:
    """The value of a setting; None below a section that is None."""
    value = settings
    for word in path.split("."):
        if value is None:
            return None
        value = getattr(value, next(field.name for field in _fields(value) if field.encode_name == word))
    return value


def _merged(old: Any, new: Any, prefix: str) -> Any:
    """`old` with what can change, each section replaced once, so that its rules see all of it."""
    values: dict[str, object] = {}
    for field in _fields(old):
        before, now, path = getattr(old, field.name), getattr(new, field.name), prefix + field.encode_name
        if path in RELOADABLE:
            values[field.name] = now
        elif isinstance(before, Section) and isinstance(now, Section):
            values[field.name] = _merged(before, now, f"{path}.")
    return msgspec.structs.replace(old, **values) if values else old


def _fields(section: Any) -> tuple[msgspec.structs.FieldInfo, ...]:
    kind: Any = type(section)
    return fields_of(kind)
