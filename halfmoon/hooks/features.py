"""What a plugin is given that is a feature of the broker (hook `halfmoon_features`): narrow views of its parts.

Topics, partitions and batches are the broker's own classes; `halfmoon.plugin.moving` exports what features use of them.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from halfmoon.hooks.context import PluginContext

if TYPE_CHECKING:
    from halfmoon.core.append import Produced, TransactionalProducer
    from halfmoon.core.catalog.topics import Partition, Topic
    from halfmoon.core.relay import Mover
    from halfmoon.core.storage.storage import Read
    from halfmoon.core.transactions.aborted import Aborted
    from halfmoon.errors import BrokerError
    from halfmoon.schema.provenance import GivenUp, Origin, SourceRange, SourceRun


class Topics(Protocol):
    """The topics there are."""

    def get(self, name: str) -> Topic | None: ...
    def all(self) -> Sequence[Topic]:
        """By name, internal ones included."""
        ...

    def create(self, name: str, partitions: int = -1, configs: Mapping[str, str] | None = None) -> Topic:
        """Durable a moment later. Raises BrokerError."""
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


class RelayTasks(Protocol):
    """Work in small pieces beside the requests: a task's `run` is a generator (halfmoon.plugin.moving.Mover)."""

    def add(self, key: Hashable, mover: Mover) -> None: ...
    def remove(self, key: Hashable) -> None: ...
    def wake(self, key: Hashable) -> None: ...
    def wake_at(self, key: Hashable, mono_ms: int) -> None: ...


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
