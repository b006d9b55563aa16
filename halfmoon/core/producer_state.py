"""What a partition knows of the idempotent producers that write to it (KIP-98).

The rules are those of Kafka's ProducerAppendInfo and ProducerStateEntry: the last five batches of a producer are
remembered, so that a repeated one gets the first one's answer; the next batch must follow the last; a newer epoch
begins at sequence 0; a producer the partition knows nothing of may begin anywhere (its state may have expired with
its records). Sequence numbers count records and wrap from 2³¹ − 1 to 0.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from typing import Final

from halfmoon.errors import BrokerError, Fault
from halfmoon.schema.snapshot import Batch

REMEMBERED_BATCHES: Final = 5
SEQUENCES: Final = 1 << 31


class Producer:
    """One producer id, as one partition sees it."""

    __slots__ = ("batches", "epoch", "last_ms")

    def __init__(self, epoch: int, batches: list[Batch], last_ms: int) -> None:
        self.epoch = epoch
        self.batches = batches
        self.last_ms = last_ms


EVERY: Final = 4_000
"""Producers from one pause to the next, where they expire: a millisecond."""


class Producers:
    """The producers of one partition, by id."""

    __slots__ = ("by_id",)

    def __init__(self) -> None:
        self.by_id: dict[int, Producer] = {}

    def check(self, producer_id: int, epoch: int, sequence: int, count: int) -> Batch | None:
        """Raises BrokerError where the batch may not be appended; returns the batch it repeats, if it does."""
        known = self.by_id.get(producer_id)
        if known is None:
            return None
        if epoch == known.epoch and not known.batches:  # a marker has brought the epoch
            if sequence != 0:
                raise BrokerError(
                    Fault.OUT_OF_ORDER_SEQUENCE_NUMBER,
                    f"producer {producer_id} begins epoch {epoch} at {sequence}, not 0",
                )
            return None
        if epoch != known.epoch:
            if epoch < known.epoch:
                raise BrokerError(
                    Fault.INVALID_PRODUCER_EPOCH, f"epoch {epoch} of producer {producer_id}, current is {known.epoch}"
                )
            if sequence != 0:
                raise BrokerError(
                    Fault.OUT_OF_ORDER_SEQUENCE_NUMBER,
                    f"producer {producer_id} begins epoch {epoch} at {sequence}, not 0",
                )
            return None
        last = known.batches[-1].last_sequence
        if sequence == (last + 1) % SEQUENCES:
            return None
        last_sequence = (sequence + count - 1) % SEQUENCES
        for batch in known.batches:
            if batch.first_sequence == sequence and batch.last_sequence == last_sequence:
                return batch
        raise BrokerError(
            Fault.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"producer {producer_id} sent sequence {sequence}, expected {(last + 1) % SEQUENCES}",
        )

    def is_ahead(self, producer_id: int, epoch: int, sequence: int) -> bool:
        """Whether a batch may come before one that its producer sent earlier."""
        known = self.by_id.get(producer_id)
        if known is None or epoch > known.epoch or not known.batches:
            return sequence != 0
        missing = (sequence - known.batches[-1].last_sequence - 1) % SEQUENCES
        return epoch == known.epoch and 0 < missing < SEQUENCES // 2

    def appended(
        self, producer_id: int, epoch: int, sequence: int, count: int, base_offset: int, end_position: int, now_ms: int
    ) -> None:
        batch = Batch(sequence, (sequence + count - 1) % SEQUENCES, base_offset, end_position)
        known = self.by_id.get(producer_id)
        if known is None or epoch != known.epoch:
            self.by_id[producer_id] = Producer(epoch, [batch], now_ms)
            return
        known.last_ms = now_ms
        if known.batches and known.batches[-1][:2] == batch[:2]:  # a record that says so is applied again
            known.batches[-1] = batch
            return
        known.batches.append(batch)
        if len(known.batches) > REMEMBERED_BATCHES:
            del known.batches[0]

    def refused(self, producer_id: int, epoch: int, sequence: int, now_ms: int) -> None:
        """There was no room for a batch, which its producer sends again. Batches behind it may be on their way, and
        find room: they must not be the first of a producer that the partition knows nothing of."""
        if producer_id not in self.by_id:
            before = Batch(sequence, (sequence - 1) % SEQUENCES, -1, 0)  # none is like it: it ends before it begins
            self.by_id[producer_id] = Producer(epoch, [before], now_ms)

    def marked(self, producer_id: int, epoch: int, now_ms: int) -> None:
        """A marker was appended. Where its epoch is new, the producer's next batch begins at sequence 0."""
        known = self.by_id.get(producer_id)
        if known is None or epoch > known.epoch:
            self.by_id[producer_id] = Producer(epoch, [], now_ms)
        else:
            known.last_ms = now_ms

    def expire(self, before_ms: int, in_use: Container[int] = ()) -> Iterator[None]:
        """Forget producers that have not written since `before_ms` (Kafka: producer.id.expiration.ms), but for those
        whose transaction is open: in slices, since there may be very many."""
        for at, producer_id in enumerate(list(self.by_id), 1):
            known = self.by_id.get(producer_id)
            if known is not None and known.last_ms < before_ms and producer_id not in in_use:
                del self.by_id[producer_id]
            if not at % EVERY:
                yield
