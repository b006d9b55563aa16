"""What the adapters use of the kernel. server/assembly.py hands them the kernel; they know this of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Protocol

from halfmoon.config.settings import Settings
from halfmoon.config.topic_configs import TopicConfigs
from halfmoon.core.append_types import Produced, Sender, TransactionalProducer
from halfmoon.core.catalog.catalog import Catalog
from halfmoon.core.catalog.owners import Owners
from halfmoon.core.catalog.topics import Partition
from halfmoon.core.checking import Checked
from halfmoon.core.clock import Clock
from halfmoon.core.features import Features
from halfmoon.core.hold import HoldService
from halfmoon.core.partition_reader import Search
from halfmoon.core.storage.fetch_buffers import FetchBuffers
from halfmoon.core.storage.files import FileSystem
from halfmoon.core.storage.storage import Frames, Place, Read
from halfmoon.core.topic_administration import TopicAdministration
from halfmoon.core.transactions.aborted import Aborted
from halfmoon.errors import BrokerError, Fault

Answered = Callable[[BrokerError | None], None]
"""Called once, with None or with why it will never be."""


class LogTurn(Protocol):
    """Of core/turn.Turn, or of several together."""

    @property
    def dirty(self) -> bool: ...
    @property
    def state_position(self) -> int: ...
    @property
    def durable_position(self) -> int: ...
    def refusal(self) -> BrokerError: ...


class LogState(Protocol):
    """Of core/storage/storage.WriteSide, or of what stands in its place."""

    @property
    def failed(self) -> OSError | None: ...
    @property
    def start(self) -> int: ...
    @property
    def end(self) -> int: ...
    @property
    def fs(self) -> FileSystem: ...


class Core(Protocol):
    """The parts, as core/kernel.py has them; each method is described where it is defined."""

    catalog: Catalog
    topic_configs: TopicConfigs
    owners: Owners
    hold: HoldService
    fetch_buffers: FetchBuffers
    clock: Clock
    refused_batches: Counter[Fault]
    on_fetched: tuple[Callable[[str, int, int], None], ...]

    @property
    def administration(self) -> TopicAdministration: ...
    @property
    def log(self) -> LogState: ...
    @property
    def features(self) -> Features: ...
    @property
    def on_handled(self) -> Callable[[], None]: ...
    @property
    def turn(self) -> LogTurn: ...
    @property
    def settings(self) -> Settings: ...
    @property
    def node_id(self) -> int: ...
    @property
    def cluster_id(self) -> str: ...
    @property
    def generation(self) -> int: ...
    @property
    def append(self) -> Append: ...
    @property
    def when_durable(self) -> Callable[[int, Answered], None]: ...
    @property
    def when_written(self) -> Callable[[int, Answered], None]: ...
    @property
    def after_write(self) -> Callable[[Callable[[], None]], None]: ...
    @property
    def write(self) -> Callable[[], None]: ...
    @property
    def allocate_producer_id(self) -> Callable[[], tuple[int, int]]: ...
    @property
    def read(self) -> ReadFrom: ...
    @property
    def read_framed(self) -> Callable[[Partition, int, int], tuple[list[Place], Read]]: ...
    @property
    def bytes_available(self) -> Available: ...
    @property
    def aborted_in(self) -> Callable[[Partition, int, int], Sequence[Aborted]]: ...
    @property
    def batch_for_time(self) -> Callable[[Partition, int], Search | None]: ...
    @property
    def frames(self) -> Callable[[], Frames]: ...
    @property
    def max_timestamp(self) -> Callable[[Partition], Search | None]: ...


class Append(Protocol):
    def __call__(
        self,
        partition: Partition,
        batch: memoryview,
        now_ms: int,
        producer: TransactionalProducer | None = None,
        may_wait: bool = False,
        checked: Checked | None = None,
        prepared: object = None,
        sender: Sender | None = None,
    ) -> Produced: ...


class ReadFrom(Protocol):
    def __call__(
        self,
        partition: Partition,
        offset: int,
        max_bytes: int,
        *,
        min_one: bool,
        committed: bool = False,
        load_bytes: int | None = None,
    ) -> Read: ...


class Available(Protocol):
    def __call__(self, partition: Partition, offset: int, enough: int, *, committed: bool = False) -> int: ...
