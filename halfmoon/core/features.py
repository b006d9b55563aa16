"""How a feature takes part in the life of a broker: a record of bound callables. What is None costs nothing.

Services and plugins give the same record. The kernel never asks what a feature is; it calls, at each of these moments,
whoever has something there, in the order in which the features were given:

    Up    open (recovery) → all `recovered` → all `restore` → flush → all `start`
    Turn  dispatch makes batches visible → held requests → `arrived`
    Time  every few seconds `checkpoint`; once a minute a walk of `retain` slices, then `reclaim`
    Down  all `stop`, last first → `checkpoint` → flush → `finish`
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol, TypeVar

from msgspec import Struct

from halfmoon.core.catalog.topics import Partition, Topic
from halfmoon.core.jobs import Background
from halfmoon.core.metrics import Family, Put
from halfmoon.core.timers import Timed
from halfmoon.schema.control import Binding

Arrivals = Mapping[Partition, int]
"""Partition → bytes of batches that have just become visible in it."""
CallableT = TypeVar("CallableT")


class TopicPolicy(Struct, frozen=True):
    """A say in changes of topics. What raises BrokerError refuses the change; nothing is written then."""

    reserves: Callable[[str], bool] | None = None
    """Whether a name is the feature's own: nobody else makes topics of that name."""
    provides: Callable[[str], bool] | None = None
    """Whether a topic of this name is made as soon as a client asks for it, also where clients create no topics."""
    creating: Callable[[Mapping[str, str], int], tuple[Binding | None, int]] | None = None
    """(configs, partitions or −1) → what the topic is bound to, if it is derived from another, and its partitions."""
    shows: Callable[[Mapping[str, str]], str | None] | None = None
    """configs → the topic whose records a topic with these configurations is filled with; it need not exist. Who makes
    one must be allowed to read there."""
    deleting: Callable[[Topic], None] | None = None
    configuring: Callable[[Topic, Mapping[str, str]], None] | None = None
    """(topic, all its configs as they are to be)"""
    deleted: Callable[[Topic], None] | None = None
    """The topic is gone, and its partitions with it."""
    configured: Callable[[Topic], None] | None = None
    """Its configurations have changed."""
    changed: Callable[[], None] | None = None
    """Topics were created, deleted or grown."""


class DerivedFiles(Protocol):
    """Files that a feature has made from the log, which go with what they were made from."""

    def forget(self, position: int) -> list[str]:
        """The log begins at this position now: paths of files that are needed no more."""
        ...

    def came(self, start: int, *, has_indexed: bool) -> None:
        """A compacted segment (core/clean_files.py) came; `has_indexed`: one of its frames has the flag INDEXED."""
        ...

    def went(self, start: int) -> list[str]:
        """The compacted segment that begins there goes: paths of files that are needed no more."""
        ...


class Feature(Struct, frozen=True):
    name: str
    recovered: Callable[[], None] | None = None
    """The log is recovered, and nothing was appended since. Raises OSError."""
    restore: Callable[[], None] | None = None
    """Take up what the log remembers. Before the first request; records may be written."""
    start: Callable[[], None] | None = None
    """Begin to move things."""
    checkpoint: Callable[[], None] | None = None
    """Write down what would be done again otherwise. Raises BrokerError."""
    stop: Callable[[], None] | None = None
    """Begin nothing new."""
    finish: Callable[[], None] | None = None
    """Everything is flushed: write derived files, waiting for it. Raises OSError."""
    arrived: Callable[[Arrivals], None] | None = None
    """Once a turn in which anything became visible."""
    retain: Callable[[int], Iterator[None]] | None = None
    """(Unix ms) A part of the retention walk, in slices of about a millisecond. Raises BrokerError."""
    reclaim: Callable[[int], None] | None = None
    """(log position) Below it the log is kept by nothing but scheduled messages."""
    derived: DerivedFiles | None = None
    background: Background | None = None
    """Slow work in a thread of its own."""
    timed: Timed | None = None
    topics: TopicPolicy | None = None
    services: Sequence[object] = ()
    """What others may ask the node for, by its type."""
    topic_entries: Callable[[Topic], Mapping[str, str]] | None = None
    """Read-only rows that a topic's configurations show, such as how far a view has come."""
    families: Sequence[Family] = ()
    """Metrics, which `read_metrics` reads when somebody asks for them."""
    read_metrics: Callable[[Put], None] | None = None
    problems: Callable[[], Sequence[str]] | None = None
    """What is wrong, a sentence each (/healthz turns red)."""
    warnings: Callable[[], Sequence[str]] | None = None
    """What somebody should know although everything works, a sentence each."""
    while_off: Feature | None = None
    """What takes its place while it is off: the state is there all the same, and may need to be guarded."""


def bound(found: Sequence[CallableT | None]) -> tuple[CallableT, ...]:
    """Those that are there."""
    return tuple(each for each in found if each is not None)


class Features:
    """All features of a broker, resolved into tuples."""

    def __init__(self, features: Sequence[Feature] = ()) -> None:
        self.all = tuple(features)
        self.recovered = bound([each.recovered for each in features])
        self.restore = bound([each.restore for each in features])
        self.start = bound([each.start for each in features])
        self.checkpoint = bound([each.checkpoint for each in features])
        self.stop = bound([each.stop for each in reversed(features)])
        self.finish = bound([each.finish for each in features])
        self.arrived = bound([each.arrived for each in features])
        self.retain = bound([each.retain for each in features])
        self.reclaim = bound([each.reclaim for each in features])
        self.derived = bound([each.derived for each in features])
        self.background = bound([each.background for each in features])
        self.timed = bound([each.timed for each in features])
        self.services = tuple(service for each in features for service in each.services)
        self.topic_entries = bound([each.topic_entries for each in features])
        self.families = tuple(family for each in features for family in each.families)
        self.read_metrics = bound([each.read_metrics for each in features])
        self.problems = bound([each.problems for each in features])
        self.warnings = bound([each.warnings for each in features])
        self.topics = TopicPolicies(bound([each.topics for each in features]))


class TopicPolicies:
    """The say of all features, as one."""

    def __init__(self, policies: Sequence[TopicPolicy] = ()) -> None:
        self._reserves = bound([each.reserves for each in policies])
        self._provides = bound([each.provides for each in policies])
        self._creating = bound([each.creating for each in policies])
        self._shows = bound([each.shows for each in policies])
        self.deleting = bound([each.deleting for each in policies])
        self.configuring = bound([each.configuring for each in policies])
        self.deleted = bound([each.deleted for each in policies])
        self.configured = bound([each.configured for each in policies])
        self.changed = bound([each.changed for each in policies])

    def reserves(self, name: str) -> bool:
        return any(reserves(name) for reserves in self._reserves)

    def provides(self, name: str) -> bool:
        return any(provides(name) for provides in self._provides)

    def shown_by(self, configs: Mapping[str, str]) -> list[str]:
        """The topics whose records a topic with these configurations shows."""
        return [name for shows in self._shows if (name := shows(configs)) is not None]

    def creating(self, configs: Mapping[str, str], partitions: int) -> tuple[Binding | None, int]:
        """What a new topic is bound to, by the first feature that binds it, and its partitions. Raises BrokerError."""
        binding: Binding | None = None
        for creating in self._creating:
            found, partitions = creating(configs, partitions)
            binding = binding or found
        return binding, partitions
