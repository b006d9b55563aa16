"""The catalog in a SQLite file, for processes of one machine.

A commit is durable when it returns (`synchronous=FULL`); a process that dies while it holds the catalog lets go by its
death, and has changed nothing.
"""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from halfmoon.cluster.catalog_rows import CHANGES, KEPT, LAST, Known, change_of, newest_of, news_of
from halfmoon.cluster.placement import MOST_SHARDS
from halfmoon.cluster.store import CatalogUnavailableError, Cluster, News
from halfmoon.core.crc import crc32c
from halfmoon.core.storage.files import OsFileSystem
from halfmoon.errors import StartError

FORMAT = 1
WAIT_S = 10.0
"""For the others, who hold the catalog for some milliseconds each."""
_TABLES = """
create table cluster (id text not null, format integer not null, shards integer not null);
create table change (version integer primary key, at_ms integer not null, records blob not null, crc integer not null);
create table snapshot (version integer primary key, data blob not null, crc integer not null);
"""


class SqliteStore:
    """As CatalogStore says it."""

    def __init__(self, path: Path) -> None:
        """Raises StartError where the file is not there, or not this program's."""
        if not path.is_file():
            raise StartError(f"{path}: no such catalog")
        self._known = Known()
        # Whatever thread calls: one at a time. Transactions are begun and ended here, not by the library.
        self._connection = sqlite3.connect(path, timeout=WAIT_S, isolation_level=None, check_same_thread=False)
        try:
            self.cluster = self._read_cluster(path)
        except BaseException:
            self._connection.close()
            raise

    def _read_cluster(self, path: Path) -> Cluster:
        execute = self._connection.execute
        try:
            execute("pragma journal_mode = wal")
            execute("pragma synchronous = full")
            row = execute("select id, format, shards from cluster").fetchone()
        except sqlite3.Error as error:
            raise StartError(f"{path}: not a catalog of Halfmoon: {error}") from error
        if row is None:
            raise StartError(f"{path}: the catalog was not made to its end; remove it")
        cluster_id, found, shards = row
        if found != FORMAT:
            raise StartError(f"{path}: the catalog has format {found}; this program knows {FORMAT}")
        return Cluster(cluster_id, shards)

    @staticmethod
    def create(path: Path, cluster: Cluster) -> None:
        """An empty catalog, which is there as a whole or not at all. Raises StartError, OSError."""
        if not 1 <= cluster.shards <= MOST_SHARDS:
            raise StartError(f"{cluster.shards} shards; from 1 to {MOST_SHARDS} are possible")
        if path.exists():
            raise StartError(f"{path} exists")
        with _made(path) as connection:
            connection.executescript(f"begin; {_TABLES}")
            connection.execute("insert into cluster values (?, ?, ?)", (cluster.id, FORMAT, cluster.shards))
            connection.commit()

    def read(self, after: int) -> News:
        with self._translated():
            # One moment's, although it is two statements.
            self._connection.execute("begin")
            try:
                return self._news(after)
            finally:
                self._connection.execute("rollback")

    def begin(self, after: int) -> News:
        with self._translated():
            self._connection.execute("begin immediate")
            try:
                return self._news(after)
            except BaseException:
                self._connection.execute("rollback")
                raise

    def _news(self, after: int) -> News:
        execute = self._connection.execute
        kept = execute(KEPT.format(after="?"), (after,)).fetchone()
        rows = execute(CHANGES.format(after="?"), (after,)).fetchall()
        last = execute(LAST.format(after="?"), (after,)).fetchone()
        self._known.check(after, last)
        news = news_of(after, kept, rows, last)
        self._known.told(after, rows, last)
        return news

    def commit(self, records: Sequence[bytes]) -> int:
        with self._translated():
            execute = self._connection.execute
            try:
                version = newest_of(execute(LAST.format(after="0")).fetchone()) + 1
                encoded, crc = change_of(records)
                row = (version, time.time_ns() // 1_000_000, encoded, crc)
                execute("insert into change values (?, ?, ?, ?)", row)
                execute("commit")
            except BaseException:
                self._let_go()
                raise
            self._known.is_told(version, crc)
            return version

    def abandon(self) -> None:
        with self._translated():
            self._let_go()

    def _let_go(self) -> None:
        if self._connection.in_transaction:
            self._connection.execute("rollback")

    def keep(self, version: int, snapshot: bytes, behind: int = 0) -> None:
        with self._translated():
            execute = self._connection.execute
            execute("begin immediate")
            try:
                if execute("select count(*) from snapshot where version >= ?", (version,)).fetchone()[0] == 0:
                    execute("delete from snapshot")
                    execute("insert into snapshot values (?, ?, ?)", (version, snapshot, crc32c(snapshot)))
                    execute("delete from change where version <= ?", (version - behind,))
                execute("commit")
            except BaseException:
                self._let_go()
                raise

    def check(self) -> None:
        """Read all of the file: SQLite's own structures. Raises CatalogUnavailableError where one is damaged."""
        with self._translated():
            said: str = self._connection.execute("pragma integrity_check(1)").fetchone()[0]
        if said != "ok":
            raise CatalogUnavailableError(f"the catalog is damaged: {said}")

    def copy(self, path: Path) -> None:
        """The catalog of one moment in a new file, which is there as a whole or not at all. Raises
        CatalogUnavailableError, OSError."""
        with self._translated(), _made(path) as connection:
            self._connection.backup(connection)

    def close(self) -> None:
        self._connection.close()

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise CatalogUnavailableError(f"the catalog: {error}") from error


@contextlib.contextmanager
def _made(path: Path) -> Iterator[sqlite3.Connection]:
    """A new file that gets its name once it is written."""
    made = path.with_name(f"{path.name}.new")
    made.unlink(missing_ok=True)
    fs = OsFileSystem(path.parent)
    fs.open(made.name, create=True).close()  # for its mode: users' credentials stand in it
    with contextlib.closing(sqlite3.connect(made)) as connection:
        connection.execute("pragma synchronous = full")
        yield connection
    fs.rename(made.name, path.name)
    fs.sync_directory(".")
