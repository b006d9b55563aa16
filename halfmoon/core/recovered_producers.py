"""What a start knows of idempotent producers where the checkpoint is lost.

The snapshot at the head of a segment leaves them out, but for those with an open transaction (`catalog.snapshot`). A
producer that repeats a batch from before that head would not be known, and the batch be stored twice. So such a start
reads on back: what may still be repeated is in the log.
"""

from __future__ import annotations

import contextlib

import msgspec

from halfmoon.core.catalog.catalog import Catalog
from halfmoon.core.catalog.topics import Partition
from halfmoon.core.producer_state import Producers
from halfmoon.core.records.batches import CONTROL, HEADER, BatchHeader
from halfmoon.core.storage.frame import HEADER_BYTES, BadFrameError, Frame, Kind
from halfmoon.core.storage.scan import Scan, read_header, read_provenance
from halfmoon.core.storage.segment import Segment
from halfmoon.core.storage.storage import WriteSide
from halfmoon.schema import control, provenance

REPEATED_MS = 120_000
"""So long a producer repeats a batch (Kafka's clients: delivery.timeout.ms)."""
MOST_BYTES = 1 << 30
"""Segments beyond the first are read up to here."""


def appended(frame: Frame, batch: BatchHeader, stored_in: Partition, sent_to: Partition) -> None:
    """A frame holds a batch that somebody sent to `sent_to`: its producer went on."""
    if batch.producer_id < 0 or not frame.original_span:
        return
    if sent_to.producers is None:
        sent_to.producers = Producers()
    sent_to.producers.appended(
        batch.producer_id, batch.producer_epoch, batch.base_sequence, frame.original_span,
        frame.base_offset if sent_to is stored_in else -1, frame.end, frame.store_ms,
    )  # fmt: skip


def remember(log: WriteSide, catalog: Catalog, position: int) -> None:
    """Find out about the producers of the log before `position`, where the snapshot stands that the catalog is made
    from. What the snapshot says of a producer stands. Raises OSError."""
    begin = _begin(log, position)
    if begin == position:
        return
    log.recover(begin, position)
    said = [(partition, partition.producers) for partition in catalog.partitions() if partition.producers is not None]
    for partition, _ in said:
        partition.producers = None
    for frame, payload in Scan(log.segments, begin, 0, position).frames():
        if frame.position >= position:
            break
        if payload:
            with contextlib.suppress(msgspec.DecodeError, provenance.UnknownProvenanceError):
                _apply(log, catalog, frame, payload)
    for partition, producers in said:
        if partition.producers is None:
            partition.producers = producers
        else:
            partition.producers.by_id |= producers.by_id


def _begin(log: WriteSide, position: int) -> int:
    """One segment back, and further as long as what was read is young; never over a gap."""
    begin = position
    newest_ms = _stored_ms(log, log.segment_at(position))
    for segment in reversed(log.segments):
        if segment.start >= position:
            continue
        if segment.end != begin or (segment.start, segment.end) in log.missing:
            break
        is_enough = newest_ms - _stored_ms(log, log.segment_at(begin)) >= REPEATED_MS
        if begin < position and (is_enough or position - segment.start > MOST_BYTES):
            break
        begin = segment.start
    return begin


def _stored_ms(log: WriteSide, segment: Segment) -> int:
    """When its first frame was. Raises OSError."""
    log.recover(segment.start, min(segment.start + HEADER_BYTES, segment.end))
    with contextlib.suppress(BadFrameError):
        return read_header(segment, segment.start, 0).store_ms
    return 0


def _apply(log: WriteSide, catalog: Catalog, frame: Frame, payload: memoryview) -> None:
    """Raises msgspec.DecodeError, UnknownProvenanceError for what a newer version has written."""
    if frame.kind == Kind.CONTROL:
        record = control.decode(payload)
        if isinstance(record, control.ProducerAdvanced):
            catalog.apply(record)
        return
    partition = catalog.partition(frame.topic_number, frame.partition)
    if partition is None or frame.kind != Kind.BATCH:
        return
    batch = BatchHeader(*HEADER.unpack_from(payload))
    if batch.attributes & CONTROL:
        if partition.producers is None:
            partition.producers = Producers()
        partition.producers.marked(batch.producer_id, batch.producer_epoch, frame.store_ms)
        return
    sent_to = partition
    if frame.provenance_length:
        origin = provenance.decode(read_provenance(log.segment_at(frame.position), frame)).origin
        if origin is not None:
            sent_to = catalog.partition(origin.topic_number, origin.partition) or partition
    appended(frame, batch, partition, sent_to)
