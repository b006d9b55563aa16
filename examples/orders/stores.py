"""Two databases, as of two services: what was ordered, and what lies in whose cart. They share nothing, so no database
can see to it that they agree.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path

PLACED, ABANDONED = "placed", "abandoned"

Items = Mapping[str, int]
"""What, and how many of it."""


class Refused(Exception):  # noqa: N818 (no error: a customer's bad luck)
    """The order cannot be placed."""


@contextmanager
def transaction(path: Path) -> Iterator[sqlite3.Connection]:
    """It is committed at the end, and rolled back by an exception or a crash. Others who want to write wait."""
    with closing(sqlite3.connect(path, timeout=5, isolation_level=None)) as database:
        database.execute("BEGIN IMMEDIATE")
        yield database
        database.execute("COMMIT")


class Orders:
    """Of the shop."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with transaction(path) as database:
            database.execute("CREATE TABLE IF NOT EXISTS orders (number TEXT PRIMARY KEY, customer, items, state)")
            database.execute("CREATE TABLE IF NOT EXISTS stock (item TEXT PRIMARY KEY, count CHECK (count >= 0))")
            database.execute("INSERT OR IGNORE INTO stock VALUES ('tea', 10), ('bread', 10), ('jam', 1)")

    def place(self, number: str, customer: str, items: Items, before_commit: Callable[[], object]) -> None:
        """The local transaction. Raises Refused: it is not there, and never will be."""
        try:
            with transaction(self._path) as database:
                row = number, customer, json.dumps(items), PLACED
                database.execute("INSERT INTO orders VALUES (?, ?, ?, ?)", row)
                for item, count in items.items():
                    found = database.execute("UPDATE stock SET count = count - ? WHERE item = ?", (count, item))
                    if not found.rowcount:
                        raise Refused(f"there is no {item}")
                before_commit()
        except sqlite3.IntegrityError:
            raise Refused("there is not enough, or it was abandoned meanwhile") from None

    def settle(self, number: str, customer: str) -> str:
        """PLACED or ABANDONED, from now on for ever: an order that is not there may be on its way, so its number is
        taken, and who comes too late is refused."""
        with transaction(self._path) as database:
            row = number, customer, "{}", ABANDONED
            database.execute("INSERT OR IGNORE INTO orders VALUES (?, ?, ?, ?)", row)
            (state,) = database.execute("SELECT state FROM orders WHERE number = ?", (number,)).fetchone()
            return str(state)

    def all(self) -> list[tuple[str, str, str]]:
        """(number, customer, state), in the order they came in."""
        with closing(sqlite3.connect(self._path)) as database:
            return database.execute("SELECT number, customer, state FROM orders ORDER BY rowid").fetchall()


class Carts:
    """Of the carts' service."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with transaction(path) as database:
            database.execute("CREATE TABLE IF NOT EXISTS carts (customer, item, count, PRIMARY KEY (customer, item))")
            database.execute("CREATE TABLE IF NOT EXISTS cleared (number TEXT PRIMARY KEY)")

    def put(self, customer: str, items: Items) -> None:
        add = "INSERT INTO carts VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET count = count + excluded.count"
        with transaction(self._path) as database:
            database.executemany(add, [(customer, item, count) for item, count in items.items()])

    def content(self, customer: str) -> dict[str, int]:
        with closing(sqlite3.connect(self._path)) as database:
            return dict(database.execute("SELECT item, count FROM carts WHERE customer = ? ORDER BY item", (customer,)))

    def clear(self, number: str, customer: str, items: Items) -> bool:
        """Take out what was ordered. False: that was done before. The note that says so, and what it says, are
        committed together."""
        with transaction(self._path) as database:
            if not database.execute("INSERT OR IGNORE INTO cleared VALUES (?)", (number,)).rowcount:
                return False
            for item, count in items.items():
                row = count, customer, item
                database.execute("UPDATE carts SET count = count - ? WHERE customer = ? AND item = ?", row)
            database.execute("DELETE FROM carts WHERE count <= 0")
            return True

    def customers(self) -> list[str]:
        with closing(sqlite3.connect(self._path)) as database:
            return [name for (name,) in database.execute("SELECT DISTINCT customer FROM carts ORDER BY customer")]

    def cleared(self) -> set[str]:
        """Of which orders."""
        with closing(sqlite3.connect(self._path)) as database:
            return {number for (number,) in database.execute("SELECT number FROM cleared")}
