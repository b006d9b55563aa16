"""Transactional producers and readers of committed records, as Kafka's clients behave."""

from __future__ import annotations

from collections.abc import Callable

from halfmoon.core.append_types import Produced, TransactionalProducer
from halfmoon.core.catalog.topics import Partition
from halfmoon.core.records.batch_header import assemble
from halfmoon.core.records.batches import CONTROL, HEADER_BYTES, TRANSACTIONAL, build_batch, iter_records, parse_header
from halfmoon.core.transactions import marker
from halfmoon.core.transactions.aborted import AbortedBatches
from halfmoon.errors import BrokerError, Fault
from halfmoon.testing.node import BareNode
from tests.core.bench import partition_of, relay
from tests.core.clean_bench import keyed


def transactional_batch(
    *values: bytes, producer_id: int, epoch: int, sequence: int, headers: tuple[tuple[str, bytes], ...] = ()
) -> memoryview:
    records = [(None, value, 1_000 + at, headers) for at, value in enumerate(values)]
    made = build_batch(records, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
    return in_transaction(memoryview(made))


def in_transaction(batch: memoryview) -> memoryview:
    """A producer's batch as part of its transaction."""
    header = parse_header(batch)._replace(attributes=TRANSACTIONAL)
    return memoryview(bytearray(assemble(header, batch[HEADER_BYTES:])))


class TxnClient:
    """A producer with a transactional id. `bumps`: it is one of Kafka 4 (KIP-890), else it is older."""

    def __init__(self, broker: BareNode, name: str, *, bumps: bool = True, timeout_ms: int = 60_000) -> None:
        self.broker = broker
        self.name = name
        self.bumps = bumps
        self.timeout_ms = timeout_ms
        self.producer_id = -1
        self.epoch = -1
        self.sequences: dict[tuple[str, int], int] = {}
        self.added: set[tuple[str, int]] = set()

    @property
    def who(self) -> TransactionalProducer:
        return TransactionalProducer(self.name, self.bumps)

    def init(self, *, again: bool = False) -> int:
        """Returns the log position to wait for. `again`: it says who it is (KIP-360)."""
        expected = (self.producer_id, self.epoch) if again else None
        identity, position = self.broker.transactions.init_producer_id(self.name, self.timeout_ms, expected)
        self._become(identity.producer_id, identity.epoch)
        self.added.clear()
        return position

    def _become(self, producer_id: int, epoch: int) -> None:
        if (producer_id, epoch) != (self.producer_id, self.epoch):
            self.sequences.clear()
        self.producer_id, self.epoch = producer_id, epoch

    def batch(self, topic: str, index: int, *values: bytes, **fields: object) -> memoryview:
        sequence = self.sequences.get((topic, index), 0)
        return transactional_batch(
            *values,
            producer_id=self.producer_id,
            epoch=self.epoch,
            sequence=sequence,
            **fields,  # type: ignore[arg-type]
        )

    def send(self, topic: str, *values: bytes, index: int = 0) -> Produced:
        partition = partition_of(self.broker, topic, index)
        if not self.bumps and (topic, index) not in self.added:
            self.broker.transactions.add_partitions(self.name, self.producer_id, self.epoch, [partition])
            self.added.add((topic, index))
        produced = self.broker.append(
            partition, self.batch(topic, index, *values), self.broker.clock.wall_ms(), self.who
        )
        self.sequences[topic, index] = self.sequences.get((topic, index), 0) + len(values)
        return produced

    def send_keyed(self, topic: str, *rows: tuple[bytes, bytes]) -> Produced:
        sequence = self.sequences.get((topic, 0), 0)
        batch = keyed(*rows, producer_id=self.producer_id, producer_epoch=self.epoch, base_sequence=sequence)
        partition = partition_of(self.broker, topic)
        produced = self.broker.append(partition, in_transaction(batch), self.broker.clock.wall_ms(), self.who)
        self.sequences[topic, 0] = sequence + len(rows)
        return produced

    def commit_offsets(self, group: str, topic: str, offset: int, index: int = 0) -> int:
        if not self.bumps:
            self.broker.transactions.add_group(self.name, self.producer_id, self.epoch, group)
        partition = partition_of(self.broker, topic, index)
        return self.broker.transactions.commit_offsets(
            self.who, self.producer_id, self.epoch, group, [(partition, offset, -1, "")]
        )

    def end(self, *, commit: bool) -> int:
        """Returns the log position to wait for."""
        identity, position = self.broker.transactions.end(
            self.name, self.producer_id, self.epoch, commit=commit, bumps=self.bumps
        )
        if position is None:  # it is a large one
            ended: list[int | BrokerError] = []
            self.broker.transactions.when_ended(self.name, ended.append)
            relay(self.broker)
            (end,) = ended
            assert not isinstance(end, BrokerError), end
            position = end
        self._become(identity.producer_id, identity.epoch)
        self.added.clear()
        return position

    def commit(self) -> int:
        return self.end(commit=True)

    def abort(self) -> int:
        return self.end(commit=False)


def read_committed(
    broker: BareNode, topic: str, index: int = 0, *, from_offset: int = 0, upto: int | None = None, max_bytes: int = 700
) -> list[tuple[int, bytes]]:
    """(offset, value) of each record that a reader of committed records makes of what Fetch gives it: it leaves out the
    batches of the aborted transactions it is told of, from their first offset to their marker. `upto`: it reads no
    further."""
    partition = partition_of(broker, topic, index)
    found: list[tuple[int, bytes]] = []
    at = max(from_offset, partition.start_offset)
    while at < (partition.stable_offset if upto is None else upto):
        read = broker.read(partition, at, max_bytes, min_one=True, committed=True)
        aborted = sorted(broker.aborted_in(partition, at, read.size), key=lambda each: each.first_offset)
        told = AbortedBatches(aborted)
        slices = read.cold() if read.cold is not None else read.slices
        assert slices, f"nothing at {at} of {partition!r}, stable up to {partition.stable_offset}"
        leaving_out: set[int] = set()
        for piece in slices:
            header = parse_header(piece)
            while aborted and aborted[0].first_offset <= header.base_offset + header.last_offset_delta:
                leaving_out.add(aborted.pop(0).producer_id)
            hidden = bool(header.attributes & TRANSACTIONAL) and header.producer_id in leaving_out
            if header.attributes & CONTROL:
                if not marker.is_commit(memoryview(piece)):
                    leaving_out.discard(header.producer_id)
                hidden = True
            assert told.hide(header) == hidden, header
            if not hidden:
                for record in iter_records(piece):
                    if header.base_offset + record.offset_delta >= at:
                        found.append((header.base_offset + record.offset_delta, record.value or b""))
            at = max(at, header.base_offset + header.last_offset_delta + 1)
    return found


def committed_values(broker: BareNode, topic: str, index: int = 0) -> list[bytes]:
    return [value for _, value in read_committed(broker, topic, index)]


def markers(broker: BareNode, partition: Partition) -> list[tuple[int, int, int, bool]]:
    """(offset, producer id, epoch, whether it says commit) of each marker."""
    found = []
    at = partition.start_offset
    while at < partition.high_watermark:
        read = broker.read(partition, at, 10_000, min_one=True)
        for piece in read.cold() if read.cold is not None else read.slices:
            header = parse_header(piece)
            if header.attributes & CONTROL:
                commit = marker.is_commit(memoryview(piece))
                found.append((header.base_offset, header.producer_id, header.producer_epoch, commit))
            at = header.base_offset + header.last_offset_delta + 1
    return found


def fault_of(call: Callable[[], object]) -> Fault | None:
    """The fault that a call is refused with; None where it is not."""
    try:
        call()
    except BrokerError as error:
        return error.fault
    return None
