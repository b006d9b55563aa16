"""How the catalog is written in the tables of a database, and read from them: the same in SQLite and in PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from halfmoon.cluster.store import CatalogLostError, CatalogUnavailableError, Change, News
from halfmoon.core.crc import crc32c

KEPT: Final = "select version, data, crc from snapshot where version > {after}"
CHANGES: Final = "select version, records, crc from change where version > {after} order by version"
"""Statements; {after} is the place of a version."""
LAST: Final = "select (select max(version) from change), (select max(version) from snapshot)"
"""The newest version is the greater one."""
_records: Final = msgspec.msgpack.Decoder(tuple[bytes, ...])

Row = tuple[int, bytes, int]
"""(version, bytes, CRC-32C of them): SQLite has no checksums of its own."""


def change_of(records: Sequence[bytes]) -> tuple[bytes, int]:
    """What stands in a row for the records of a change, and its CRC."""
    encoded = msgspec.msgpack.encode(tuple(records))
    return encoded, crc32c(encoded)


def newest_of(last: Iterable[int | None]) -> int:
    """`last`: what LAST says."""
    return max(version or 0 for version in last)


def news_of(after: int, kept: Row | None, rows: Sequence[Row], last: Iterable[int | None]) -> News:
    """`kept`, `rows`, `last`: what KEPT and CHANGES say behind version `after`, and LAST, at one moment. Raises
    CatalogUnavailableError."""
    newest = newest_of(last)
    if newest < after:
        raise CatalogLostError(
            f"the catalog ends at version {newest}, and version {after} was there: the database has lost commits"
        )
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
