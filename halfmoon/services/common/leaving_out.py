"""Records that readers do not get, although they are in the log: what plugins leave out (hook `halfmoon_fetch`).

A batch in which nothing is left out is handed on as it is. One in which something is keeps its offsets, so a reader
goes on behind it: what is left of it is a batch with holes, as compaction makes them. Where nothing is left, a marker
of no transaction stands for it: every client passes over control batches, and some stall on a batch without records.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TypeVar

from msgspec import Struct

from halfmoon.core.records import record_codec
from halfmoon.core.records.batch_header import CONTROL, HEADER_BYTES, TRANSACTIONAL, BatchHeader, assemble, parse_header
from halfmoon.core.records.batches import batch_body
from halfmoon.core.records.record_codec import Record
from halfmoon.errors import BrokerError
from halfmoon.services.common.header_search import HeaderSearch
from halfmoon.services.common.record_edit import rewrite

log = logging.getLogger("halfmoon.plugins")

_COMMIT_KEY, _COMMIT_VALUE = b"\0\0\0\1", bytes(6)
"""Of a control record: version and type (EndTransactionMarker), version and the coordinator's epoch."""

B = TypeVar("B", bound="bytes | bytearray | memoryview")


class FetchFilter(Struct, frozen=True):
    """Says which records readers get, of those that carry one of the headers."""

    name: str
    header_names: tuple[str, ...]
    delivers: Callable[[str, Record], bool]
    """(topic, record): False leaves it out of this answer. It is asked anew whenever somebody reads the record."""


class LeavingOut:
    """For one broker, where a plugin has a say."""

    def __init__(self, filters: Sequence[FetchFilter], failed: Callable[[str], None]) -> None:
        """`failed` is told the name of one that has raised."""
        self._filters = tuple(filters)
        self._failed = failed
        self._search = HeaderSearch([name for each in filters for name in each.header_names])
        self._logged: set[str] = set()

    def finds(self, body: bytes) -> bool:
        """Whether there is anything to ask about in these bytes of records (decompressed)."""
        return self._search.finds(body)

    def delivers(self, topic: str, record: Record) -> bool:
        """One that raises has the record delivered."""
        names = {name for name, _ in record.headers}
        for each in self._filters:
            if names.isdisjoint(each.header_names):
                continue
            try:
                if not each.delivers(topic, record):
                    return False
            except Exception:
                self._failed(each.name)
                if each.name not in self._logged:
                    self._logged.add(each.name)
                    log.exception("event=fetch_filter_failed filter=%s topic=%s", each.name, topic)
        return True

    def batches(self, topic: str, batches: Sequence[B]) -> Sequence[B | bytes]:
        """The same batches without what is left out; the same object where that is nothing."""
        made = [self._batch(topic, each) for each in batches]
        return made if any(one is not other for one, other in zip(made, batches, strict=True)) else batches

    def _batch(self, topic: str, batch: B) -> B | bytes:
        header = parse_header(batch)
        if header.attributes & CONTROL:
            return batch
        left_out = False

        def change(_: int, record: Record) -> Record | None:
            nonlocal left_out
            if self.delivers(topic, record):
                return record
            left_out = True
            return None

        try:
            if not self._search.finds(batch_body(batch)):
                return batch
            rest = rewrite(batch, self._search, change)
        except BrokerError:
            return batch  # nobody can read it
        if rest is None:
            return _passed_over(header)
        if not left_out:
            return batch
        made = parse_header(rest)
        return assemble(made._replace(last_offset_delta=header.last_offset_delta), memoryview(rest)[HEADER_BYTES:])


def _passed_over(header: BatchHeader) -> bytes:
    """A control batch of nobody's transaction in place of a batch; one record, at its last offset."""
    body = bytearray()
    record_codec.write(body, header.last_offset_delta, 0, _COMMIT_KEY, _COMMIT_VALUE, ())
    made = header._replace(
        attributes=CONTROL | TRANSACTIONAL, producer_id=-1, producer_epoch=-1, base_sequence=-1, record_count=1
    )
    return assemble(made, body)
