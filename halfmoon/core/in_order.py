"""What a shard that was elsewhere takes of idempotent producers.

Clients had requests for it on their way when it was opened. The first of these may have been refused, since it was not
here, and the next one come when it was. The producer sends both again, but where the partition did not know the
producer, the next one would be taken, and the first be lost: librdkafka takes it for stored once the next one is. And
at OUT_OF_ORDER_SEQUENCE_NUMBER librdkafka begins a new epoch, under which it stores what it had on its way to other
partitions twice (its issue 4953).

So for as long as such a request may be on its way, none is taken that may be the next one. Where what was refused so is
sent again after that, it is in the same order: the first of it is taken, and what was behind it only then.

The time begins with the first batch of any producer that comes here. To clients the shard is here only once the
catalog says so, and the database may be away for longer than that time: until then all is refused before it comes here.
The cost is that of a shard to which nobody has written for long since it was opened: where the first who does so goes
on at a later sequence, and his state has expired, he waits, too, although nothing of his can be on its way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from halfmoon.core.producer_state import SEQUENCES, Producers

if TYPE_CHECKING:
    from halfmoon.core.catalog.topics import Partition
    from halfmoon.core.clock import Clock
    from halfmoon.core.records.batches import BatchHeader

IN_FLIGHT_MS: Final = 30_000
"""As long as clients wait for an answer (Kafka: request.timeout.ms)."""
AGAIN_MS: Final = 30_000
"""Within this, clients send again what was refused last; they do so after a second at the most."""


class InOrder:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._strict_until_ms: int | None = None
        """None: no batch has come yet."""
        self._first: dict[tuple[int, int, int], tuple[int, int]] = {}
        """Topic's number, partition and id of a producer that the partition knows nothing of → epoch and sequence of
        the first batch that was refused."""

    def is_over(self) -> bool:
        until_ms = self._strict_until_ms
        return until_ms is not None and self._clock.mono_ms() >= until_ms + AGAIN_MS

    def refuses(self, partition: Partition, producers: Producers, header: BatchHeader) -> bool:
        """Whether a batch may come that its producer sent before this one."""
        now_ms = self._clock.mono_ms()
        if self._strict_until_ms is None:
            self._strict_until_ms = now_ms + IN_FLIGHT_MS
        producer_id, epoch, sequence = header.producer_id, header.producer_epoch, header.base_sequence
        is_known = producer_id in producers.by_id
        place = partition.topic.number, partition.index, producer_id
        if now_ms >= self._strict_until_ms:
            return not is_known and self._is_behind_first(place, epoch, sequence)
        if not producers.is_ahead(producer_id, epoch, sequence):
            return False
        if not is_known and not self._is_behind_first(place, epoch, sequence):
            self._first[place] = epoch, sequence
        return True

    def _is_behind_first(self, place: tuple[int, int, int], epoch: int, sequence: int) -> bool:
        first = self._first.get(place)
        return first is not None and first[0] == epoch and 0 < (sequence - first[1]) % SEQUENCES < SEQUENCES // 2
