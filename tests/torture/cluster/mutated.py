"""Nodes from which something was taken that keeps records safe: `python -m tests.torture.cluster.mutated NAME serve …`.

Each has to be found by a scenario (test_mutations.py). What finds no mistake that was made finds none that will be.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from halfmoon.cluster.engine import committing, moving
from halfmoon.cluster.engine.committing import RowCommitter, Source, Taken
from halfmoon.cluster.engine.database import Commit, DatabaseUnavailableError
from halfmoon.cluster.engine.objects import ObjectStore, StoreUnavailableError
from halfmoon.cluster.postgres import logs, statements
from halfmoon.server.nodes.confirming import Confirming

EPOCH, POSITION = " and shard.epoch = wanted.epoch", " and shard.end_position = wanted.start"
SQL: Mapping[str, Sequence[str]] = {
    "no epoch": (EPOCH,),
    "no position": (POSITION,),
    "neither": (EPOCH, POSITION),
}
"""What is taken out of the statements that commit."""
HOLD = "select where $1::int is not null and $2::bigint is not null"


def commit_statement(name: str, statement: str) -> str:
    """A statement that commits, as mutated nodes have it."""
    for part in SQL.get(name, ()):
        assert part in statement
        statement = statement.replace(part, "")
    return statement


def _statements(name: str) -> None:
    for attribute in ("COMMIT_ROWS", "COMMIT_OBJECT"):
        setattr(statements, attribute, commit_statement(name, getattr(statements, attribute)))


def _no_lock() -> None:
    """Whoever brings rows into objects, or drops pieces, looks at no epoch, and takes what it finds."""
    setattr(statements, "HOLD", HOLD)  # noqa: B010, it is final
    setattr(logs, "_count", lambda status: _Any())  # noqa: B010


class _Any:
    """Equals every number: what was removed is not counted."""

    def __radd__(self, other: object) -> _Any:
        return self

    def __ne__(self, other: object) -> bool:
        return False


def _soon() -> None:
    """Acknowledged before it is committed."""
    take = committing._take

    def taken(ended: Any, most_bytes: int) -> tuple[list[Taken], dict[int, Source]]:
        found, rest = take(ended, most_bytes)
        for one in found:
            ended.sources[one.commit.shard].committed(one.commit)
        return found, rest

    committing._take = taken


def _anew() -> None:
    """A commit of unknown outcome is made anew, of what is written by then."""

    async def commit(self: RowCommitter, ended: Any) -> None:
        while True:
            found, _ = committing._take(ended, sys.maxsize)
            taken = {one.commit.shard: one for one in found}

            async def apply(commits: Sequence[Commit], taken: dict[int, Taken] = taken) -> set[int]:
                frames = [[bytes(data) for data in taken[each.shard].frames] for each in commits]
                return await self._database.commit_rows(commits, frames)

            commits = [one.commit for one in taken.values()]
            try:
                done = await apply(commits)
            except DatabaseUnavailableError:
                continue
            for each in commits:
                if each.shard in done:
                    ended.committed(each)
            await committing.decide(self._database, commits, apply, ended)
            return

    setattr(RowCommitter, "_commit", commit)  # noqa: B010


def _unconfirmed() -> None:
    """What must be current is answered at once."""

    def ask(_: Confirming, told: Callable[[bool], None]) -> None:
        told(True)

    setattr(Confirming, "ask", ask)  # noqa: B010


def _unstored() -> None:
    """An object that could not be stored is committed all the same."""
    store_object = committing.store_object

    class Once:
        def __init__(self, store: ObjectStore) -> None:
            self._store = store

        def __getattr__(self, name: str) -> Any:
            return getattr(self._store, name)

        async def put(self, key: str, data: bytes) -> None:
            try:
                await self._store.put(key, data)
            except StoreUnavailableError:
                pass

    async def store(store: ObjectStore, key: str, data: bytes) -> None:
        await store_object(Once(store), key, data)

    committing.store_object = moving.store_object = store


MUTATIONS: Mapping[str, Callable[[], None]] = {
    **{name: (lambda name=name: _statements(name)) for name in SQL},  # type: ignore[misc]
    "no lock": _no_lock,
    "acknowledged too soon": _soon,
    "committed anew": _anew,
    "not confirmed": _unconfirmed,
    "not stored": _unstored,
}


if __name__ == "__main__":
    from halfmoon.__main__ import main

    MUTATIONS[sys.argv.pop(1)]()
    main()
