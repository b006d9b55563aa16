"""How the catalog is written in the tables of a database, and read from them: the same in SQLite and in PostgreSQL."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from halfmoon.cluster.store import CatalogDamagedError, CatalogLostError, Change, News
from halfmoon.core.crc import crc32c

KEPT: Final = "select version, data, crc from snapshot where version > {after}"
CHANGES: Final = "select version, records, crc from change where version > {after} order by version"
"""Statements; {after} is the place of a version."""
LAST: Final = """
select (select max(version) from change), (select max(version) from snapshot),
    (select crc from change where version = {after})"""
"""The newest version is the greater one of the first two."""
_records: Final = msgspec.msgpack.Decoder(tuple[bytes, ...])

Row = tuple[int, bytes, int]
"""(version, bytes, CRC-32C of them): SQLite has no checksums of its own."""
Last = Sequence[int | None]
"""What LAST says; the CRC is not there where a snapshot has taken the place of that change."""


def change_of(records: Sequence[bytes]) -> tuple[bytes, int]:
    """What stands in a row for the records of a change, and its CRC."""
    encoded = msgspec.msgpack.encode(tuple(records))
    return encoded, crc32c(encoded)


def newest_of(last: Last) -> int:
    return max(last[0] or 0, last[1] or 0)


class Known:
    """The last change that a process was told of, or has made. A catalog that went back, and was changed since, may
    have another one under its version."""

    def __init__(self) -> None:
        self._version, self._crc = 0, 0

    def is_told(self, version: int, crc: int) -> None:
        self._version, self._crc = version, crc

    def told(self, after: int, rows: Sequence[Row], last: Last) -> None:
        """As of `news_of`: it is passed on."""
        if rows:
            self.is_told(rows[-1][0], rows[-1][2])
        elif last[2] is not None:
            self.is_told(after, last[2])

    def check(self, after: int, last: Last) -> None:
        """Raises CatalogLostError."""
        if after == self._version and last[2] not in (None, self._crc):
            raise CatalogLostError(
                f"the catalog has another version {after} than there was: the database has lost commits"
            )


def news_of(after: int, kept: Row | None, rows: Sequence[Row], last: Last) -> News:
    """`kept`, `rows`, `last`: what KEPT and CHANGES say behind version `after`, and LAST, at one moment. Raises
    CatalogLostError, CatalogDamagedError."""
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
        raise CatalogDamagedError(f"changes of the catalog are missing behind version {since}")
    return News(snapshot, changes)


def _checked(version: int, data: bytes, crc: int) -> bytes:
    if crc32c(data) != crc:
        raise CatalogDamagedError(f"version {version} of the catalog is damaged")
    return bytes(data)
