"""What a shard that was elsewhere takes of idempotent producers.

Clients had requests for it on their way when it was opened. The first of these may have been refused, since it was not
here, and the next one come when it was. The producer sends both again, but where the partition did not know the
producer, the next one would be taken, and the first be lost: librdkafka takes it for stored once the next one is. And
at OUT_OF_ORDER_SEQUENCE_NUMBER librdkafka begins a new epoch, under which it stores what it had on its way to other
partitions twice (its issue 4953).

So for as long as such a request may be on its way, none is taken that may be the next one. Where what was refused so is
sent again after that, it is in the same order: the first of it is taken, and what was behind it only then.
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
        now_ms = clock.mono_ms()
        self._strict_until_ms = now_ms + IN_FLIGHT_MS
        self._until_ms = now_ms + IN_FLIGHT_MS + AGAIN_MS
        self._first: dict[tuple[int, int, int], tuple[int, int]] = {}
        """Topic's number, partition and id of a producer that the partition knows nothing of → epoch and sequence of
        the first batch that was refused."""

    def is_over(self) -> bool:
        return self._clock.mono_ms() >= self._until_ms

    def refuses(self, partition: Partition, producers: Producers, header: BatchHeader) -> bool:
        """Whether a batch may come that its producer sent before this one."""
        producer_id, epoch, sequence = header.producer_id, header.producer_epoch, header.base_sequence
        is_known = producer_id in producers.by_id
        place = partition.topic.number, partition.index, producer_id
        if self._clock.mono_ms() >= self._strict_until_ms:
            return not is_known and self._is_behind_first(place, epoch, sequence)
        if not producers.is_ahead(producer_id, epoch, sequence):
            return False
        if not is_known and not self._is_behind_first(place, epoch, sequence):
            self._first[place] = epoch, sequence
        return True

    def _is_behind_first(self, place: tuple[int, int, int], epoch: int, sequence: int) -> bool:
        first = self._first.get(place)
        return first is not None and first[0] == epoch and 0 < (sequence - first[1]) % SEQUENCES < SEQUENCES // 2
