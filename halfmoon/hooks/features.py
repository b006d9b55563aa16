"""What a plugin is given that is a feature of the broker (hook `halfmoon_features`): narrow views of its parts.

Topics, partitions and batches are the broker's own classes; `halfmoon.plugin.moving` exports what features use of them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar

from msgspec import Struct

from halfmoon.hooks.context import PluginContext

if TYPE_CHECKING:
    from halfmoon.core.append_types import Piece, Produced, TransactionalProducer
    from halfmoon.core.catalog.section import CatalogSection
    from halfmoon.core.catalog.topics import Partition, Topic
    from halfmoon.core.records.record_codec import Record
    from halfmoon.core.relay import Mover
    from halfmoon.core.storage.frame_reading import WholeFrame
    from halfmoon.core.storage.storage import Read
    from halfmoon.core.transactions.aborted import Aborted
    from halfmoon.errors import BrokerError
    from halfmoon.schema import control
    from halfmoon.schema.provenance import GivenUp, Origin, SourceRange, SourceRun
    from halfmoon.services.common.filters import FilterCompiler

SectionT = TypeVar("SectionT", bound="CatalogSection")


class Topics(Protocol):
    """The topics there are."""

    def get(self, name: str) -> Topic | None: ...
    def by_number(self, number: int) -> Topic | None:
        """A number is never given out again, not even to a topic of the same name."""
        ...

    def all(self) -> Sequence[Topic]:
        """By name, internal ones included."""
        ...

    def derived(self) -> Sequence[Topic]:
        """Those that a feature has bound to another topic (`TopicPolicy.creating`)."""
        ...

    def check_configs(self, configs: Mapping[str, str]) -> None:
        """Raises BrokerError(INVALID_CONFIG) where a topic cannot have these configurations."""
        ...

    def create(self, name: str, partitions: int = -1, configs: Mapping[str, str] | None = None) -> Topic:
        """Durable a moment later. Raises BrokerError."""
        ...

    def internal_partition(self, name: str, configs: Mapping[str, str]) -> Partition:
        """Of an internal topic in which the feature keeps records of its own (`Feature.topics` reserves its name); it
        is made if need be. Where several processes share the topics, each shard has one. Raises BrokerError."""
        ...

    def first_partition(self, name: str) -> Partition:
        """Of an ordinary topic that is the broker's to fill; it is made if need be. Raises BrokerError."""
        ...


class LogWriter(Protocol):
    """The one way into the log. What is returned says the position to wait for. Raises BrokerError."""

    def append(
        self, partition: Partition, batch: memoryview, now_ms: int, producer: TransactionalProducer | None = None
    ) -> Produced: ...

    def append_relayed(
        self,
        partition: Partition,
        batch: bytearray,
        *,
        range: SourceRange | None = None,
        sources: Sequence[SourceRun] = (),
        origin: Origin | None = None,
        due_ms: int = 0,
        attempts: Sequence[SourceRun] = (),
        given_up: GivenUp | None = None,
    ) -> int:
        """A batch made from other messages, with the proof of which: exactly once, whatever happens."""
        ...

    def append_group(self, pieces: Sequence[Piece], now_ms: int, *, keyed: bool = False) -> int:
        """Batches to several partitions that are in this log, as one: after a crash all of them are there, or none.
        `keyed`: one of the records may have a key by which it is found."""
        ...

    def append_control(self, record: control.Any) -> int:
        """A record of the file format (halfmoon.schema.control) that no batch carries. Plugins define none of their
        own: what they keep is derived from the log."""
        ...


class Durability(Protocol):
    """How far the log is durable."""

    @property
    def durable_position(self) -> int: ...

    def when_durable(self, position: int, callback: Callable[[BrokerError | None], None]) -> None: ...


class LogReader(Protocol):
    """Reads partitions by offset; what has to wait for the disk is `Read.cold`, for a thread."""

    def read(
        self, partition: Partition, offset: int, max_bytes: int, *, min_one: bool, committed: bool = False
    ) -> Read: ...
    def aborted_in(self, partition: Partition, offset: int, size: int) -> Sequence[Aborted]: ...
    def bytes_available(self, partition: Partition, offset: int, enough: int, *, committed: bool = False) -> int: ...


class FrameReading(Protocol):
    """Reads single frames of the log. For one thread; the log's files of now stay readable for its life."""

    def read(self, position: int) -> WholeFrame | None:
        """The frame that begins there; None where there is none (any more). Raises OSError."""
        ...


class KeyLookup(Protocol):
    """The key index. Both raise HalfmoonError while `services.keyindex` is off."""

    def covers(self, position: int) -> bool:
        """Whether all frames below a log position are in the index."""
        ...

    def find_key(self, topic_number: int, key: bytes) -> Callable[[], list[int]]:
        """A function for a thread that gives the log positions of frames that may have a message to this topic with
        this UNIQ_KEY."""
        ...


class WaitingMessages(Protocol):
    """Messages that wait in internal topics, where interceptors have put them. A place is (topic number, partition,
    offset)."""

    @property
    def claimed_topics(self) -> Collection[str]:
        """Internal topics of plugins that are on. In others, messages wait on."""
        ...

    @property
    def decided_topics(self) -> Collection[str]:
        """Those of which a relay decides what becomes of the messages: they wait for something else than a time."""
        ...

    @property
    def is_gathering(self) -> bool:
        """Messages have been read that are about to be appended: nobody else may complete what is due."""
        ...

    @property
    def cancelled(self) -> int:
        """Messages that were not delivered because they are cancelled."""
        ...

    def find_cancelled_by(self, find: Callable[[], None]) -> None:
        """From now on messages can be cancelled (`Redirect.cancel`): `find` is called when a cancel has come, whose
        messages are to be found and completed. One feature at most."""
        ...

    def complete(self, places: Iterable[tuple[int, int, int]]) -> None:
        """Complete those of these messages that wait: they are delivered nowhere. Raises BrokerError."""
        ...


class State(Protocol):
    """What the log says of features: sections of the catalog, which are there whether their feature is on or off."""

    def section(self, kind: type[SectionT]) -> SectionT:
        """Raises KeyError where there is none of this type."""
        ...


class ViewChecks(Struct, frozen=True):
    """What a feature that fills views offers to others (`Feature.services`)."""

    check: Callable[[Mapping[str, str]], None]
    """Raises BrokerError(INVALID_CONFIG) where no view could be defined so, whatever topics there are."""


class NackedMessages(Struct, frozen=True):
    """What a feature that redelivers messages offers to others (`Feature.services`)."""

    of_topics: Callable[[Collection[str]], Callable[[], Sequence[tuple[str, str, int, Sequence[tuple[int, int]]]]]]
    """What groups have negatively acknowledged in these topics, and the broker would ignore a second time: a function
    for a thread, which gives (group, topic, partition, [(first offset, count), …])."""


class RelayTasks(Protocol):
    """Work in small pieces beside the requests: a task's `run` is a generator (halfmoon.plugin.moving.Mover)."""

    def add(self, key: Hashable, mover: Mover) -> None: ...
    def remove(self, key: Hashable) -> None: ...
    def wake(self, key: Hashable) -> None: ...
    def wake_at(self, key: Hashable, mono_ms: int) -> None: ...


class Lifetimes(Protocol):
    """Which records have expired (docs/ttl.md). A plain Fetch returns them; a feature that hands out messages one by
    one passes over them."""

    def over(self, topic: Topic, body: bytes) -> Callable[[Record], bool] | None:
        """Of a batch of the topic, whose records (decompressed) are `body`: a function that says whether a record has
        expired by now. None where none of them can."""
        ...

    def now_ms(self) -> int:
        """Unix ms."""
        ...

    def ttl_ms(self, topic: Topic) -> int:
        """Of all messages of a topic; −1: none."""
        ...

    def dead_letters(self, topic: str) -> bool:
        """Whether expired messages of the topic of this name are dead-lettered."""
        ...

    def count(self, where: str, messages: int, *, dead_lettered: bool = False) -> None:
        """For the metrics: so many have been passed over."""
        ...


class NodeClock(Protocol):
    def wall_ms(self) -> int:
        """Unix ms."""
        ...

    def mono_ms(self) -> int: ...


class FeatureContext(Struct, frozen=True):
    """The broker, as a feature uses it. Its log is recovered; nothing moves yet."""

    plugin: PluginContext
    topics: Topics
    writer: LogWriter
    durability: Durability
    reader: LogReader
    relays: RelayTasks
    clock: NodeClock
    filters: Mapping[str, FilterCompiler]
    """Filter language → its compiler, of all plugins that are on."""
    waiting: WaitingMessages
    keys: KeyLookup
    frames: Callable[[], FrameReading]
    state: State
    lifetimes: Lifetimes | None = None
    """None while `services.expiry` is off."""
