"""Consumers that say in which rack they are, where nodes are in racks (KIP-392).

A leader tells a consumer of another rack which node had better be asked: one of the partition's replicas, as clients
are shown them, in the consumer's rack. That node serves what it does not lead: it asks the leader where the batches
stand, and reads them itself (`Elsewhere`).

A node serves only consumers of its own rack, and only partitions of which it is shown as a replica: a consumer that
comes by an old list of leaders is told who leads, as ever.

Rules: RackAwareReplicaSelector; ReplicaManager.findPreferredReadReplica: only the leader names a replica, and to nobody
whose offset no replica has.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

from halfmoon.adapters.kafka.fetch_codec import FetchBody, Fetched, Wanted
from halfmoon.adapters.kafka.shards import Confirm
from halfmoon.core.catalog.topics import Partition
from halfmoon.core.transactions.aborted import Aborted
from halfmoon.errors import BrokerError, Fault
from halfmoon.services.common.services import Services


class NearFound(NamedTuple):
    """What there is for a reader of one partition that another node leads."""

    fault: Fault | None = None
    """Why there is nothing."""
    high_watermark: int = -1
    stable_offset: int = -1
    start_offset: int = -1
    diverging: tuple[int, int] | None = None
    """As of Fetched."""
    batches: Sequence[memoryview] = ()
    aborted: Sequence[Aborted] = ()


NearResults = Mapping[Partition, NearFound]


class Elsewhere(Protocol):
    """Reads partitions that other nodes lead."""

    def preferred(self, partition: Partition, rack: str) -> int:
        """The node that consumers in this rack had better ask for a partition that this one leads; −1: this one."""
        ...

    def serves(self, partition: Partition) -> bool:
        """Whether consumers of this node's rack are served a partition that another node leads."""
        ...

    def read(
        self,
        asked: Sequence[tuple[Partition, Wanted]],
        request: FetchBody,
        min_bytes: int,
        wait_ms: int,
        told: Callable[[NearResults], None],
    ) -> Callable[[], None]:
        """Read these partitions for a request. `told`, once and later: as soon as there are `min_bytes`, or after
        `wait_ms`, or where one of them cannot be read, or once what this returns was called, with what there is. Where
        `asked` is empty by then, nobody wants it any more: no records are read."""
        ...


class Nearby:
    """The service: of a node of a cluster."""

    def __init__(self, rack: str, elsewhere: Elsewhere, confirm: Confirm) -> None:
        """`rack`: this node's; empty: it has not said. `confirm`: as of shards.Homes."""
        self.rack = rack
        self.elsewhere = elsewhere
        self.confirm = confirm
        self._waiting: dict[object, dict[Callable[[], None], None]] = {}
        """By the owners of connections."""

    def waits(self, owner: object, gone: Callable[[], None]) -> None:
        """Something is read for a connection: if that ends meanwhile, `gone` is called."""
        self._waiting.setdefault(owner, {})[gone] = None

    def has_read(self, owner: object, gone: Callable[[], None]) -> None:
        waiting = self._waiting.get(owner)
        if waiting is not None:
            waiting.pop(gone, None)
            if not waiting:
                del self._waiting[owner]

    def drop(self, owner: object) -> None:
        """A connection has ended."""
        for gone in self._waiting.pop(owner, ()):
            gone()


def drop(services: Services, owner: object) -> None:
    """A connection has ended."""
    nearby = services.find(Nearby)
    if nearby is not None:
        nearby.drop(owner)


class Near:
    """Of one request."""

    def __init__(self, rack: str, nearby: Nearby) -> None:
        """`rack`: the consumer's."""
        self._rack = rack
        self.nearby = nearby
        self._is_here = rack == nearby.rack
        self.elsewhere = nearby.elsewhere
        self.asked: list[tuple[Partition, Wanted]] = []
        """What is to be read elsewhere."""
        self.results: NearResults | None = None
        """Of what was asked; None: it is not known yet."""

    def serves(self, partition: Partition) -> bool:
        return self._is_here and self.elsewhere.serves(partition)

    def preferred(self, partition: Partition) -> int:
        """As of Elsewhere."""
        return -1 if self._is_here else self.elsewhere.preferred(partition, self._rack)

    def found(self, partition: Partition, wanted: Wanted, max_bytes: int, *, nothing_yet: bool) -> Fetched:
        """Of a partition that another node leads: whole batches, the first one whatever its size if there is
        `nothing_yet`. Empty as long as it is not known. Raises BrokerError where it cannot be served."""
        if self.results is None:
            if self.serves(partition):
                return Fetched(wanted.index)
            raise BrokerError(Fault.NOT_LEADER_OR_FOLLOWER)
        near = self.results.get(partition)
        if near is None:
            raise BrokerError(Fault.NOT_LEADER_OR_FOLLOWER)
        if near.fault is not None:
            raise BrokerError(near.fault)
        found = Fetched(wanted.index, 0, near.high_watermark, near.stable_offset, near.start_offset)
        found.diverging = near.diverging
        records: list[memoryview] = []
        for batch in near.batches:
            if found.size + len(batch) > max_bytes and not (nothing_yet and not records):
                break
            records.append(batch)
            found.size += len(batch)
        if records:
            found.records, found.aborted = records, near.aborted
        return found
