"""What a plugin that follows the log gives, and what it gets (hook `halfmoon_dispatch`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct

from halfmoon.core.records.batches import iter_records
from halfmoon.core.records.record_codec import Record


class Batch(Struct, frozen=True):
    """A record batch that is durable. Offsets are the partition's."""

    topic: str
    partition: int
    base_offset: int
    end_offset: int
    """The offset behind it; more than its records where compaction or an interceptor has taken some out."""
    record_count: int
    position: int
    """Where it is in the log: no two batches have the same, and it grows within a partition."""
    store_ms: int
    """When it was appended (Unix ms)."""
    data: memoryview
    """The batch as Kafka has it. It pins a segment of the log: do not keep it."""
    relayed: bool = False
    """The broker made it from other messages: of a view, a delivery, a dead letter."""
    internal: bool = False
    """Of a topic of the broker's own, such as the one in which delayed messages wait."""
    transactional: bool = False
    control: bool = False
    """A transaction's marker. It has an offset and no records."""
    aborted: bool = False
    """Its transaction was aborted: readers of committed records do not see it."""

    def records(self) -> Iterator[Record]:
        """Raises BrokerError where nobody has checked the records before, and they are none."""
        return iter(()) if self.control else iter_records(self.data)


class Dispatcher(Struct, frozen=True):
    """Follows the log and derives something from it."""

    name: str
    on_batches: Callable[[Sequence[Batch]], None]
    """Gets every batch once, the batches of a partition in their order."""
    checkpoint: Callable[[], bytes]
    """Make durable what was done elsewhere, and give the state that goes with all batches so far (b"" without one). It
    is stored in one file with the position that they end at."""
    restore: Callable[[bytes | None], None] | None = None
    """Called once, before the first batch: with the state of the last checkpoint, behind which the batches go on; or
    with None, and then they begin with the oldest that is stored."""
