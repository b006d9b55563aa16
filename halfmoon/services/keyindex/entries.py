"""What of a frame goes into the key index: the keys of its records, and the messages that it says something about."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from typing import Any, Final

from halfmoon.core.catalog.catalog import Catalog
from halfmoon.core.records import record_codec
from halfmoon.core.records.batch_header import CODEC_MASK, BatchHeader
from halfmoon.core.records.batches import batch_body, parse_header
from halfmoon.core.relay import Load
from halfmoon.core.storage.frame import Frame, Kind
from halfmoon.errors import BrokerError
from halfmoon.schema import control, provenance
from halfmoon.schema.provenance import Provenance, SourceRun, UnknownProvenanceError
from halfmoon.services.common.keys import OverlappingError
from halfmoon.services.keyindex.keys import keys_of, possible_keys
from halfmoon.services.keyindex.stretch import BLOCK_BITS, Stretch, block_hash, key_hashes

SLICE: Final = 500
"""Keys that are taken in between two pauses: half a millisecond."""
LARGE_BYTES: Final = 16 << 10
"""Larger batches are decompressed in a thread."""

Work = Generator[Load | None, Any, None]
"""As a relay task's `run` (core/relay.py)."""


class Entries:
    """Reads them out of frames."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def take(self, stretch: Stretch, seen: Frame, proof: bytes, payload: memoryview) -> Work:
        """Add the entries of one frame."""
        stretch.saw(seen.store_ms)
        position = seen.position
        if seen.kind == Kind.CONTROL:
            for number, partition, offset in settled_places(payload):
                stretch.add(block_hash(number, partition, offset), position)
            return
        try:
            said = provenance.decode(proof)
        except UnknownProvenanceError:
            said = Provenance()
        for at, hashed in enumerate(blocks_of(said)):
            stretch.add(hashed, position)
            if at % SLICE == SLICE - 1:
                yield None
        number = seen.topic_number
        if seen.due_ms and said.origin is not None:  # they wait, and are found under the topic they go to
            number = said.origin.topic_number
        header = parse_header(payload)
        if header.attributes & CODEC_MASK and len(payload) > LARGE_BYTES:
            body = yield lambda: _body(payload)
        else:
            body = _body(payload)
        if body is not None:
            taken = 0
            for keys in self._keys(number, header, body):
                for at in range(0, len(keys), SLICE):
                    part = keys[at : at + SLICE]
                    stretch.add_all(key_hashes(number, part), position)
                    taken += len(part)
                    if taken >= SLICE:
                        taken = 0
                        yield None

    def _keys(self, topic_number: int, header: BatchHeader, body: bytes) -> Iterator[Sequence[bytes | None]]:
        """What the records of a batch may be found by, and None now and then, in slices."""
        topic = self._catalog.by_number.get(topic_number)
        own_key = topic is not None and topic.rules.key_index
        try:
            yield from possible_keys(body, SLICE)
            if not own_key:
                return
        except OverlappingError:
            pass
        some: list[bytes | None] = []
        try:
            for record in record_codec.read(body, header.record_count, header.last_offset_delta, 0, 0):
                some.append(None)
                some += keys_of(record, own_key=own_key)
                if len(some) >= SLICE:
                    yield some
                    some = []
        except BrokerError:  # nobody has looked into this batch yet, and it is none
            pass
        yield some


def _body(payload: memoryview) -> bytes | None:
    """Decompressed; None where it is no batch: nobody may have looked into it yet."""
    try:
        return bytes(batch_body(payload))
    except BrokerError:
        return None


def settled_places(payload: memoryview) -> list[tuple[int, int, int]]:
    """The waiting messages that a control record says are done with: (topic number, partition, offset)."""
    record = control.decode(payload)
    return record.places if isinstance(record, control.Settled) else []


def blocks_of(said: Provenance) -> Iterator[int]:
    """The hashes of the blocks that a frame's provenance names messages of, one after the other."""
    back: tuple[SourceRun, ...] = () if said.sent_back is None else said.sent_back.runs
    gone: tuple[SourceRun, ...] = () if said.given_up is None else said.given_up.runs
    for run in (*said.sources, *back, *gone):
        first, last = run.first_offset >> BLOCK_BITS, (run.first_offset + run.count - 1) >> BLOCK_BITS
        for block in range(first, last + 1):
            yield block_hash(run.topic_number, run.partition, block << BLOCK_BITS)
    for run in said.attempts:  # its count is that of the attempts
        yield block_hash(run.topic_number, run.partition, run.first_offset)
