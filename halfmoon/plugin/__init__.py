"""What a plugin author imports; everything else in this package may change without notice.

    from halfmoon.plugin import hookimpl, PluginContext

    api_version = 1

    @hookimpl
    def halfmoon_allocators(ctx: PluginContext):
        return {"mine": lambda members, queues: ...}

The hooks are listed, with what they cost and what an error does, in docs/hooks.md and in halfmoon.hooks.specs.
"""

from __future__ import annotations

import warnings
from typing import Any

import pluggy

from halfmoon.config.sections import Section, SettingError, decode_section
from halfmoon.config.sections import join as setting_path
from halfmoon.config.topic_configs import TopicConfig, TopicConfigPrefix
from halfmoon.config.units import (
    Duration,
    HostPort,
    PositiveDuration,
    PositiveSize,
    Size,
    format_duration,
    parse_duration,
)
from halfmoon.config.values import Kind as TopicConfigKind
from halfmoon.config.values import one_of, read_only
from halfmoon.core.features import Feature, TopicPolicy
from halfmoon.core.hold import Arrival, Held
from halfmoon.core.metrics import Family
from halfmoon.core.metrics import Put as PutNumber
from halfmoon.core.records.batches import build_batch, iter_records
from halfmoon.core.records.record_codec import Headers, Record
from halfmoon.core.steps import finish
from halfmoon.core.topic_names import check_topic_name
from halfmoon.errors import BrokerError, Fault
from halfmoon.hooks.context import PluginContext
from halfmoon.hooks.features import FeatureContext
from halfmoon.hooks.java_hash import string_hash
from halfmoon.hooks.plugins import API_VERSION
from halfmoon.hooks.specs import PROJECT
from halfmoon.hooks.types import (
    Batch,
    Command,
    Complete,
    ConfigSection,
    Deliver,
    Dispatcher,
    FetchFilter,
    FilterCompiler,
    FilterSyntaxError,
    HoldPolicy,
    KafkaApi,
    KafkaRequest,
    MessageFilter,
    Nacked,
    Observer,
    Put,
    PutInterceptor,
    Redirect,
    Redirected,
    Relay,
    Reschedule,
    Scheduled,
    Service,
    TopicChange,
)
from halfmoon.schema.group_topics import RETRY_PREFIX, check_topic, dead_letter_topic, retry_topic, retrying_group
from halfmoon.services.common.header_search import HeaderSearch
from halfmoon.services.common.record_edit import build_in_slices, map_records, rewrite, rewrite_in_slices, uncompressed
from halfmoon.services.configs.group_configs import GroupConfig
from halfmoon.services.groups.allocation import (
    Allocator,
    AnyAllocator,
    Assignment,
    GroupMember,
    Queue,
    StickyAllocator,
    allocate,
    check_assignment,
    readers,
    reads,
    sorted_members,
    sorted_queues,
    unowned,
)

hookimpl = pluggy.HookimplMarker(PROJECT)
"""Marks a function as an implementation of the hook it is named after."""

_OLD_NAMES = {
    "Diverted": "Redirected",
    "HandedBack": "Nacked",
    "PutOff": "Reschedule",
    "Settle": "Complete",
    "Waiting": "Scheduled",
}
"""Names of the version before; they go with the next version."""


def __getattr__(name: str) -> Any:
    new = _OLD_NAMES.get(name)
    if new is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    warnings.warn(f"halfmoon.plugin.{name} is called {new} now", DeprecationWarning, stacklevel=2)
    return globals()[new]


__all__ = [
    "API_VERSION",
    "RETRY_PREFIX",
    "Allocator",
    "AnyAllocator",
    "Arrival",
    "Assignment",
    "Batch",
    "BrokerError",
    "Command",
    "Complete",
    "ConfigSection",
    "Deliver",
    "Dispatcher",
    "Duration",
    "Family",
    "Fault",
    "Feature",
    "FeatureContext",
    "FetchFilter",
    "FilterCompiler",
    "FilterSyntaxError",
    "GroupConfig",
    "GroupMember",
    "HeaderSearch",
    "Headers",
    "Held",
    "HoldPolicy",
    "HostPort",
    "KafkaApi",
    "KafkaRequest",
    "MessageFilter",
    "Nacked",
    "Observer",
    "PluginContext",
    "PositiveDuration",
    "PositiveSize",
    "Put",
    "PutInterceptor",
    "PutNumber",
    "Queue",
    "Record",
    "Redirect",
    "Redirected",
    "Relay",
    "Reschedule",
    "Scheduled",
    "Section",
    "Service",
    "SettingError",
    "Size",
    "StickyAllocator",
    "TopicChange",
    "TopicConfig",
    "TopicConfigKind",
    "TopicConfigPrefix",
    "TopicPolicy",
    "allocate",
    "build_batch",
    "build_in_slices",
    "check_assignment",
    "check_topic",
    "check_topic_name",
    "dead_letter_topic",
    "decode_section",
    "finish",
    "format_duration",
    "hookimpl",
    "iter_records",
    "map_records",
    "one_of",
    "parse_duration",
    "read_only",
    "readers",
    "reads",
    "retry_topic",
    "retrying_group",
    "rewrite",
    "rewrite_in_slices",
    "setting_path",
    "sorted_members",
    "sorted_queues",
    "string_hash",
    "uncompressed",
    "unowned",
]
