"""How the catalog is written in the tables of a database, and read from them: the same in SQLite and in PostgreSQL."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from halfmoon.cluster.store import CatalogUnavailableError, Change, News
from halfmoon.core.crc import crc32c

KEPT: Final = "select version, data, crc from snapshot where version > {after}"
CHANGES: Final = "select version, records, crc from change where version > {after} order by version"
"""Statements; {after} is the place of a version."""
_records: Final = msgspec.msgpack.Decoder(tuple[bytes, ...])

Row = tuple[int, bytes, int]
"""(version, bytes, CRC-32C of them): SQLite has no checksums of its own."""


def change_of(records: Sequence[bytes]) -> tuple[bytes, int]:
    """What stands in a row for the records of a change, and its CRC."""
    encoded = msgspec.msgpack.encode(tuple(records))
    return encoded, crc32c(encoded)


def news_of(after: int, kept: Row | None, rows: Sequence[Row]) -> News:
    """`kept`, `rows`: what KEPT and CHANGES say behind version `after`, at one moment. Raises
    CatalogUnavailableError."""
    snapshot = None
    if kept is not None and not (rows and rows[0][0] == after + 1):  # else all that is lacking is there one by one
        snapshot = kept[0], _checked(*kept)
    since = after if snapshot is None else snapshot[0]
    changes = [Change(row[0], _records.decode(_checked(*row))) for row in rows if row[0] > since]
    if [change.version for change in changes] != list(range(since + 1, since + 1 + len(changes))):
        raise CatalogUnavailableError(f"changes of the catalog are missing behind version {since}")
    return News(snapshot, changes)


def _checked(version: int, data: bytes, crc: int) -> bytes:
    if crc32c(data) != crc:
        raise CatalogUnavailableError(f"version {version} of the catalog is damaged")
    return bytes(data)
