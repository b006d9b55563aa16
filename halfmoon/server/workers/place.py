"""What a process is among those that share the topics, and where it keeps what is its own: the port.

Workers of one machine share a data directory (`worker_place`). Nodes share a database and an object store
(`server/nodes/node_place`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from halfmoon.adapters.kafka.shards import Confirm
    from halfmoon.cluster.placement import Layout
    from halfmoon.cluster.store import CatalogStore
    from halfmoon.config.listener_settings import KafkaListener
    from halfmoon.config.units import Address
    from halfmoon.core.catalog.owners import Leader, OtherNode
    from halfmoon.core.clock import Clock
    from halfmoon.core.storage.files import FileSystem
    from halfmoon.core.storage.storage import MakeStorage
    from halfmoon.server.workers.routes import Routes


class ShardFiles(NamedTuple):
    """Where one shard is, as long as it is open in this process."""

    fs: FileSystem
    storage: MakeStorage
    root: Path
    """A folder of this machine, for what plugins keep of the shard. Its files are those of `fs`."""
    is_whole: bool
    """All that `fs` has is in `root`: another process may read it there."""
    close: Callable[[], object]
    was_brought_back: bool = False
    """To an earlier moment, and nobody has opened it since."""


class Place(Protocol):
    """Everything here is asked in the loop, unless it says something else."""

    @property
    def me(self) -> int:
        """The number of this process."""
        ...

    @property
    def shards(self) -> int:
        """How many there are in all."""
        ...

    @property
    def layout(self) -> Layout:
        """Of all shards."""
        ...

    @property
    def here(self) -> int:
        """So many processes share this machine's memory and disk, this one among them."""
        ...

    @property
    def folder(self) -> Path:
        """Of what is kept for the process itself."""
        ...

    @property
    def secrets(self) -> Path:
        """The folder of the key that secrets are kept encrypted with."""
        ...

    @property
    def is_cluster(self) -> bool:
        """Whether the processes are nodes of a cluster: what they keep is elsewhere. So a catalog that does not answer
        is asked until it does, a topic may have any replication factor, and nobody else listens at this one's
        addresses."""
        ...

    @property
    def clock(self) -> Clock: ...

    @property
    def members(self) -> Mapping[int, OtherNode]:
        """All processes that are known now, by their numbers, as clients of the first listener reach them."""
        ...

    @property
    def owners(self) -> Sequence[int]:
        """By shard, which process has it; −1: nobody knows. See `moved`."""
        ...

    @property
    def begins_with(self) -> Sequence[int]:
        """The shards that are open from the start on. The first one stays: what is about no shard is answered with its
        services."""
        ...

    def owns(self, shard: int) -> bool:
        """Whether it is one of the shards that processes share: a node has one more, of its own."""
        ...

    @property
    def confirm(self) -> Confirm | None:
        """As of adapters/kafka/shards.Homes."""
        ...

    def started(self, shard: int, process: int) -> None:
        """The shared catalog says that this process has opened the shard."""
        ...

    def moved(self, shard: int, process: int) -> None:
        """It was opened here, or closed here, and this process has it now (−1: nobody knows)."""
        ...

    def just_gone(self) -> Sequence[OtherNode]:
        """Processes that are no members any more, and are still told to clients as brokers."""
        ...

    def told_leader(self, shard: int, epoch: int) -> Leader | None:
        """Whom clients are told as the leader of a shard, where it is not its owner of this epoch, which the catalog
        names. An epoch has one leader, whichever process tells of it: librdkafka 2.16, which hears of one and of
        another again at once, may stay with the wrong one for ever. Nor is it nobody: some that hear of a partition
        without a leader ask no more for minutes (librdkafka's ListOffsets)."""
        ...

    def open_store(self) -> CatalogStore:
        """In a thread: it waits. Raises StartError."""
        ...

    async def files(self, shard: int) -> ShardFiles:
        """Raises StartError, LeaseLostError."""
        ...

    def routes(self, loop: asyncio.AbstractEventLoop) -> Routes:
        """To the other processes. Raises StartError."""
        ...

    # Where clients come in.

    def kafka_binds(self, listener: KafkaListener) -> Sequence[Address]:
        """Where it listens. The first is this process's own."""
        ...

    def kafka_addresses(self, listener: KafkaListener) -> Mapping[int, tuple[str, int]]:
        """By node id, where clients of this listener reach the processes; "" for the host: as they have reached us. It
        changes when processes come and go."""
        ...

    def local_socket(self) -> Path:
        """The administrator's, which this process makes. Raises StartError."""
        ...

    def local_addresses(self) -> Mapping[int, str]:
        """By node id, the paths of the administrator's sockets. Raises StartError."""
        ...

    def http_bind(self) -> Address: ...

    def namesrv_bind(self) -> Address: ...

    def rocketmq_bind(self, shard: int) -> Address: ...

    def rocketmq_addresses(self) -> Mapping[int, tuple[str, int]]:
        """By shard, as `kafka_addresses`; of those that somebody has now."""
        ...
