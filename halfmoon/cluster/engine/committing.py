"""What the shards of a node have to commit, grouped: statements of the database, and objects.

A shard that has written something says so once (`wants`), and is asked later what that is (`take`). What it has then is
fixed: it is committed as it is, however long it takes and however often it has to be tried, and it is the only commit
of this shard that is on its way. So each commit ends in one of two ways, and both are certain: it is in the log, or the
shard is another node's.

    rows      what waits while a statement is on its way is the next statement; no timer
    objects   an object `interval_s` after the one before was begun, at once where that is longer ago; before that as
              soon as shards wait with `object_bytes`, or one is in a hurry

A call that fails says nothing about what it did (deciding.py); the same goes for the store (insisting.py).
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, NamedTuple, Protocol

from halfmoon.cluster.engine import footer
from halfmoon.cluster.engine.database import Commit, Commits, CondemnedError
from halfmoon.cluster.engine.deciding import Apply, decide, try_once
from halfmoon.cluster.engine.insisting import Pauses, store_object
from halfmoon.cluster.engine.objects import ObjectStore

log: Final = logging.getLogger("halfmoon.cluster")

ROW_STATEMENTS: Final = 2
"""So many are on their way at once: a shard whose row is locked holds up the others of its statement."""
LARGE_STATEMENTS: Final = 1
"""So many more that have more than ROWS_BYTES. Each has its connection for long, and a node has few. One that fails has
its next try behind the others that wait: it may never be sent in time."""
OBJECTS: Final = 4
"""So many are on their way at once."""
ROWS_BYTES = 8 << 20
"""About the most that a statement commits: the shards in it wait for all of it. What is larger, as one batch may be,
has a statement of its own."""
OBJECT_MOST_BYTES = 32 << 20
"""Of an object."""

Frames = Sequence[memoryview | bytes]
"""Of each piece of a commit."""


class Taken(NamedTuple):
    commit: Commit
    frames: Frames


class Source(Protocol):
    """A shard's log. Everything is called in the loop."""

    shard: int

    def take(self) -> Taken | None:
        """What it has written and not committed, or the first part of that; at least one piece. None: it was told an
        end already, since it is not this node's any more."""
        ...

    def committed(self, commit: Commit) -> None:
        """What was taken is in the log; the pieces say where they are."""
        ...

    def failed(self, error: OSError) -> None:
        """What was taken may be in the log, and nobody may be told so: LeaseLostError where the shard is another
        node's, another OSError where its log cannot be written any more."""
        ...


class Committer(Protocol):
    def wants(self, source: Source) -> None:
        """It has something to commit; `take` is called soon, and its end is told later. Once before each `take`."""
        ...

    def written(self, size: int) -> None:
        """A shard has so many bytes more to commit."""
        ...

    def hurry(self) -> None:
        """What waits is to be committed at once: a shard cannot be used until it is."""
        ...


class RowCommitter:
    """Of fast shards: commits are rows of the database."""

    def __init__(self, database: Commits) -> None:
        self._database = database
        self._waiting: dict[int, Source] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._large_tasks: set[asyncio.Task[None]] = set()
        self._large: deque[_Large] = deque()  # those that wait for one of these to end
        self._scheduled = False
        self._held = self._hurried = False
        self._closed = False
        self.statements = 0
        """So many were committed."""

    @property
    def held(self) -> bool:
        """Nothing is begun as long as this is set, but for who is in a hurry."""
        return self._held

    @held.setter
    def held(self, held: bool) -> None:
        if held != self._held:
            log.warning("event=rows_held held=%s", held)
            self._held = held
            self._begin_soon()

    def wants(self, source: Source) -> None:
        self._waiting[source.shard] = source
        self._begin_soon()

    def _begin_soon(self) -> None:
        if self._waiting and not self._scheduled and not self._held and len(self._tasks) < ROW_STATEMENTS:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._begin)  # others of this round come along

    def written(self, size: int) -> None:
        pass

    def hurry(self) -> None:
        if self._waiting and self._held:
            self._hurried = True
            asyncio.get_running_loop().call_soon(self._begin)

    def _begin(self) -> None:
        self._scheduled = False
        is_held = self._held and not self._hurried
        if not self._waiting or self._closed or is_held or len(self._tasks) >= ROW_STATEMENTS:
            return
        self._hurried = False
        ended = _Ended(self._waiting, lambda: self._closed)
        self._waiting = {}
        _run(self._commit(ended), ended, self._tasks, self._begin)

    async def _commit(self, ended: _Ended) -> None:
        found, rest = _take(ended, ROWS_BYTES)
        if rest:
            self._waiting = rest | self._waiting
            self._hurried = self._held
            asyncio.get_running_loop().call_soon(self._begin)
        large = [one for one in found if _size(one) > ROWS_BYTES]
        self._large.extend(_Large(one, ended.apart(one.commit.shard), Pauses()) for one in large)
        self._begin_large()
        if len(found) > len(large):
            await self._commit_taken([one for one in found if one not in large], ended)

    def _begin_large(self) -> None:
        if self._large and len(self._large_tasks) < LARGE_STATEMENTS and not self._closed:
            large = self._large.popleft()
            _run(self._try_large(large), large.ended, self._large_tasks, self._begin_large)

    async def _try_large(self, large: _Large) -> None:
        commits, apply = [large.taken.commit], self._apply([large.taken])
        if await try_once(self._database, commits, apply, large.ended, large.pauses):
            self.statements += 1
        else:
            self._large.append(large)

    async def _commit_taken(self, found: Sequence[Taken], ended: _Ended) -> None:
        """One statement."""
        await decide(self._database, [one.commit for one in found], self._apply(found), ended)
        self.statements += 1

    def _apply(self, found: Sequence[Taken]) -> Apply:
        taken = {one.commit.shard: one for one in found}

        async def apply(commits: Sequence[Commit]) -> set[int]:
            frames = [[bytes(data) for data in taken[commit.shard].frames] for commit in commits]
            return await self._database.commit_rows(commits, frames)

        return apply

    def close(self) -> None:
        """Nothing is begun any more, and nobody is told of what is on its way."""
        self._closed = True
        for task in self._tasks | self._large_tasks:
            task.cancel()


class ObjectCommitter:
    """Of object shards: all that wait at one time go into one object."""

    def __init__(
        self,
        database: Commits,
        store: ObjectStore,
        node: int,
        make_key: Callable[[], str],
        interval_s: float,
        object_bytes: int,
    ) -> None:
        """`node`: its number, for the footer. `make_key`: a name that nobody has used."""
        self._database = database
        self._store = store
        self._node = node
        self._make_key = make_key
        self._interval_s = interval_s
        self._object_bytes = object_bytes
        self._waiting: dict[int, Source] = {}
        self._waiting_bytes = 0
        self._timer: asyncio.TimerHandle | None = None
        self._next_at = 0.0
        """By the loop's clock: not before that, unless it is due."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._due = False
        """An object is to be begun as soon as there may be another one."""
        self._closed = False
        self.objects = 0
        self.object_sizes = 0
        """Of all that were stored, bytes."""

    def wants(self, source: Source) -> None:
        self._waiting[source.shard] = source
        if self._timer is None and not self._due:
            # In the past: in the next round, so that others of this one come along.
            self._timer = asyncio.get_running_loop().call_at(self._next_at, self._time)

    def written(self, size: int) -> None:
        self._waiting_bytes += size
        if self._waiting_bytes >= self._object_bytes:
            self.hurry()

    def hurry(self) -> None:
        if self._waiting and not self._due:
            self._due = True
            asyncio.get_running_loop().call_soon(self._begin)

    def _time(self) -> None:
        self._due = True
        self._begin()

    def _begin(self) -> None:
        if not self._due or self._closed or len(self._tasks) >= OBJECTS:
            return
        self._due = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._waiting_bytes = 0
        if self._waiting:
            self._next_at = asyncio.get_running_loop().time() + self._interval_s
            ended = _Ended(self._waiting, lambda: self._closed)
            self._waiting = {}
            _run(self._commit(ended), ended, self._tasks, self._begin)

    async def _commit(self, ended: _Ended) -> None:
        left, rest = _take(ended, OBJECT_MOST_BYTES)
        if rest:
            self._waiting = rest | self._waiting
            self.hurry()
        while left:
            key = self._make_key()
            commits = [one.commit for one in left]
            data, placed = footer.build(self._node, key, commits, [one.frames for one in left])
            try:
                await store_object(self._store, key, data)
                await decide(self._database, placed, self._apply(key, len(data)), ended)
            except CondemnedError:
                # It took so long that the object was taken for a leftover. What is not committed is stored anew.
                log.warning("event=object_condemned key=%s", key)
                left = [one for one in left if ended.without([one.commit])]
                continue
            self.objects += 1
            self.object_sizes += len(data)
            return

    def _apply(self, key: str, size: int) -> Apply:
        return lambda commits: self._database.commit_object(key, size, commits)

    def close(self) -> None:
        """Nothing is begun any more, and nobody is told of what is on its way."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        for task in self._tasks:
            task.cancel()


def _run(work: Awaitable[None], ended: _Ended, tasks: set[asyncio.Task[None]], then: Callable[[], None]) -> None:
    task = asyncio.ensure_future(work)
    tasks.add(task)

    def over(task: asyncio.Task[None]) -> None:
        tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            log.error("event=commit_failed", exc_info=error)
            for shard in ended.sources:
                ended.failed(shard, OSError(f"the commit failed: {error}"))
        then()

    task.add_done_callback(over)


class _Large(NamedTuple):
    """A commit that has a statement of its own."""

    taken: Taken
    ended: _Ended
    pauses: Pauses
    """Between its tries."""


class _Ended:
    """Tells each source of its end, once."""

    def __init__(self, sources: dict[int, Source], is_closed: Callable[[], bool]) -> None:
        self.sources = sources
        self._is_closed = is_closed
        self._told: set[int] = set()

    def apart(self, shard: int) -> _Ended:
        """This one's end, which is another than that of the others now."""
        return _Ended({shard: self.sources.pop(shard)}, self._is_closed)

    def committed(self, commit: Commit) -> None:
        if self._is_first(commit.shard):
            self.sources[commit.shard].committed(commit)

    def failed(self, shard: int, error: OSError) -> None:
        if self._is_first(shard):
            self.sources[shard].failed(error)

    def _is_first(self, shard: int) -> bool:
        if shard in self._told or self._is_closed():
            return False
        self._told.add(shard)
        return True

    def without(self, commits: Sequence[Commit]) -> list[Commit]:
        """Those that have not ended."""
        return [commit for commit in commits if commit.shard not in self._told]


def _take(ended: _Ended, most_bytes: int) -> tuple[list[Taken], dict[int, Source]]:
    """What is to be committed together, sorted by shard, and the sources for which there was no room; these are none of
    `ended`'s any more."""
    found: list[Taken] = []
    size = 0
    rest: dict[int, Source] = {}
    for shard, source in list(ended.sources.items()):
        if size >= most_bytes:
            rest[shard] = ended.sources.pop(shard)
            continue
        taken = source.take()
        if taken is not None:
            found.append(taken)
            size += _size(taken)
    return sorted(found, key=lambda one: one.commit.shard), rest


def _size(taken: Taken) -> int:
    return taken.commit.end - taken.commit.start
