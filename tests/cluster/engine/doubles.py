"""A database and an object store in memory, and what can go wrong with either.

They pass the contract tests of the real ones (test_database.py, test_objects.py). Time is the event loop's.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, TypeVar

from halfmoon.cluster.engine.database import (
    CONDEMNED_S,
    Commit,
    CondemnedError,
    Contents,
    DatabaseUnavailableError,
    LogDatabase,
    Node,
    SideFile,
)
from halfmoon.cluster.engine.objects import (
    ObjectExistsError,
    ObjectMissingError,
    ObjectStore,
    Stored,
    StoreUnavailableError,
)
from halfmoon.cluster.engine.pieces import IN_DATABASE, Durability, Head, Piece
from halfmoon.errors import LeaseLostError

T = TypeVar("T")
LEASE_S = 3.0
YOUNG_S = 2.0
LAPSED_S = 60.0


@dataclass
class _Shard:
    head: Head
    pieces: dict[int, Piece] = field(default_factory=dict)
    frames: dict[int, bytes] = field(default_factory=dict)
    files: dict[str, SideFile] = field(default_factory=dict)


@dataclass
class _Object:
    size: int
    dead_s: float | None = None


@dataclass
class _Node:
    node: Node
    lease_until_s: float
    born_s: float
    has_lock: bool = True


class MemoryDatabase:
    """See cluster/engine/database.LogDatabase. Each call is one moment."""

    def __init__(self, shards: Sequence[Durability]) -> None:
        self.shards = {number: _Shard(Head(number, kind, 0, None, 0)) for number, kind in enumerate(shards)}
        self.objects: dict[str, _Object] = {}
        self._nodes: dict[int, _Node] = {}
        self.incarnations = 0
        self._lineage = uuid.uuid4().hex
        self.ahead_ms = 0
        """Of this machine's clock."""
        self.pins: dict[int, tuple[float, float]] = {}
        """Number → since when, and until when."""
        self.on_session_ended: Callable[[], None] = lambda: None

    def _now_s(self) -> float:
        return asyncio.get_running_loop().time()

    # -- logs ------------------------------------------------------------------------------------------------------

    async def heads(self) -> Sequence[Head]:
        return [shard.head for shard in self.shards.values()]

    async def certain_heads(self, shards: Sequence[int]) -> Sequence[Head]:
        return [head for head in await self.heads() if head.shard in shards]

    async def all_certain_heads(self, shard: int) -> Sequence[Head]:
        assert shard in self.shards
        return await self.heads()

    async def commit_rows(self, commits: Sequence[Commit], frames: Sequence[Sequence[bytes]]) -> set[int]:
        moved = {commit.shard for commit in commits if self._moves(commit)}
        for commit, datas in zip(commits, frames, strict=True):
            if commit.shard in moved:
                self._add(commit)
                for piece, data in zip(commit.pieces, datas, strict=True):
                    assert len(data) == piece.size
                    self.shards[commit.shard].frames[piece.start] = data
        return moved

    async def commit_object(self, key: str, size: int, commits: Sequence[Commit]) -> set[int]:
        moved = {commit.shard for commit in commits if self._moves(commit)}
        if not moved:
            return set()
        self._new_object(key, size)
        for commit in commits:
            if commit.shard in moved:
                self._add(commit)
        return moved

    def _moves(self, commit: Commit) -> bool:
        head = self.shards[commit.shard].head
        return head.epoch == commit.epoch and head.end == commit.start

    def _add(self, commit: Commit) -> None:
        shard = self.shards[commit.shard]
        shard.head = shard.head._replace(end=commit.end)
        shard.pieces.update((piece.start, piece) for piece in commit.pieces)

    def _new_object(self, key: str, size: int) -> None:
        if key in self.objects:
            raise CondemnedError(key)
        self.objects[key] = _Object(size)

    def _known_object(self, key: str, size: int) -> None:
        if self.objects.setdefault(key, _Object(size)).dead_s is not None:
            raise CondemnedError(key)

    async def contents(self, shard: int) -> Contents:
        found = self.shards[shard]
        files = [file for _, file in sorted(found.files.items())]
        return Contents(found.head, [piece for _, piece in sorted(found.pieces.items())], files)

    async def frames(self, shard: int, start: int, end: int) -> Sequence[tuple[Piece, bytes]]:
        found = self.shards[shard]
        return [
            (piece, found.frames[piece.start])
            for _, piece in sorted(found.pieces.items())
            if piece.key == IN_DATABASE and piece.start < end and piece.end > start
        ]

    async def replace(
        self, shard: int, epoch: int, old: Sequence[Piece], new: Sequence[Piece], objects: Sequence[tuple[str, int]]
    ) -> bool:
        found = self.shards[shard]
        if found.head.epoch != epoch:
            return False
        if any(found.pieces.get(piece.start) != piece for piece in old):
            return all(found.pieces.get(piece.start) == piece for piece in new)
        for key, size in objects:
            self._known_object(key, size)
        for piece in old:
            del found.pieces[piece.start]
            found.frames.pop(piece.start, None)
        found.pieces.update((piece.start, piece) for piece in new)
        self._mark_dead(piece.key for piece in old)
        return True

    async def certain_pieces(self, shard: int, epoch: int) -> Sequence[Piece] | None:
        head, pieces, _ = await self.contents(shard)
        return pieces if head.epoch == epoch else None

    async def drop(self, shard: int, epoch: int, before: int) -> bool:
        found = self.shards[shard]
        if found.head.epoch != epoch:
            return False
        old = [piece for piece in found.pieces.values() if piece.end <= before]
        for piece in old:
            del found.pieces[piece.start]
            found.frames.pop(piece.start, None)
        self._mark_dead(piece.key for piece in old)
        return True

    async def put_files(self, shard: int, epoch: int, files: Sequence[SideFile]) -> bool:
        found = self.shards[shard]
        if found.head.epoch != epoch:
            return False
        for file in files:
            self._known_object(file.key, file.size)
        for file in files:
            before = found.files.get(file.path)
            found.files[file.path] = file
            self._mark_dead([] if before is None or before.key == file.key else [before.key])
        return True

    async def remove_files(self, shard: int, epoch: int, paths: Sequence[str]) -> bool:
        found = self.shards[shard]
        if found.head.epoch != epoch:
            return False
        gone = [found.files.pop(path) for path in paths if path in found.files]
        self._mark_dead(file.key for file in gone)
        return True

    def _mark_dead(self, keys: Any) -> None:
        used = {piece.key for shard in self.shards.values() for piece in shard.pieces.values()}
        used |= {file.key for shard in self.shards.values() for file in shard.files.values()}
        for key in set(keys) - used - {IN_DATABASE}:
            if self.objects[key].dead_s is None:
                self.objects[key].dead_s = self._now_s()

    # -- objects that nobody needs ---------------------------------------------------------------------------------

    async def dead_objects(self, older_than_s: float) -> Sequence[str]:
        now_s = self._now_s()
        return [
            key
            for key, found in self.objects.items()
            if found.dead_s is not None
            and found.dead_s < now_s - (older_than_s if found.size else CONDEMNED_S)
            and not any(until_s > now_s and since_s <= found.dead_s + 60 for since_s, until_s in self.pins.values())
        ]

    async def condemn(self, keys: Sequence[str]) -> None:
        for key in keys:
            self.objects.setdefault(key, _Object(0, self._now_s()))

    async def known(self, keys: Sequence[str]) -> set[str]:
        return set(keys) & set(self.objects)

    async def condemned_among(self, keys: Sequence[str]) -> set[str]:
        found = {key: self.objects[key] for key in keys if key in self.objects}
        return {key for key, one in found.items() if one.dead_s is not None and not one.size}

    async def forget_objects(self, keys: Sequence[str]) -> None:
        for key in keys:
            if key in self.objects and self.objects[key].dead_s is not None:
                del self.objects[key]

    # -- leases ----------------------------------------------------------------------------------------------------

    async def lineage(self) -> str:
        return self._lineage

    def begin_anew(self, incarnations: int) -> None:
        """Nobody is a node; so many incarnations are skipped."""
        self._nodes.clear()
        self.incarnations += incarnations
        self._lineage = uuid.uuid4().hex

    async def register(self, number: int, host: str, port: int, rack: str, doors: str = "") -> int:
        self.incarnations += 1
        incarnation = self.incarnations
        now_s = self._now_s()
        node = Node(incarnation, number, host, port, rack, alive=True, draining=False, doors=doors)
        self._nodes[incarnation] = _Node(node, now_s + LEASE_S, now_s)
        return incarnation

    async def renew(self, incarnation: int) -> Sequence[Head]:
        found = self._nodes.get(incarnation)
        if found is None:
            raise LeaseLostError(f"incarnation {incarnation} is not in the database any more")
        found.lease_until_s, found.has_lock = self._now_s() + LEASE_S, True
        return [shard.head for shard in self.shards.values() if shard.head.owner == incarnation]

    def die(self, incarnation: int) -> None:
        """The session ends that has its lock, as with its process."""
        self._nodes[incarnation].has_lock = False

    def _lives(self, incarnation: int | None) -> bool:
        found = self._nodes.get(incarnation or 0)
        if found is None or found.lease_until_s <= self._now_s():
            return False
        return found.has_lock or found.born_s > self._now_s() - YOUNG_S

    async def nodes(self) -> Sequence[Node]:
        now_s = self._now_s()
        return [
            one.node._replace(
                alive=self._lives(number), lapsed=one.lease_until_s <= now_s and one.lease_until_s > now_s - LAPSED_S
            )
            for number, one in self._nodes.items()
        ]

    async def take(self, shard: int, epoch: int, incarnation: int) -> Head | None:
        head = self.shards[shard].head
        me = self._nodes.get(incarnation)
        if head.epoch != epoch or me is None or me.lease_until_s <= self._now_s():
            return None
        if head.owner != incarnation and self._lives(head.owner):
            return None
        return self._own(shard, incarnation)

    async def hand_over(self, shard: int, epoch: int, incarnation: int) -> Head | None:
        found = self.shards[shard]
        if found.head.epoch != epoch or not self._lives(incarnation):
            return None
        found.head = found.head._replace(wanted=None)
        return self._own(shard, incarnation)

    async def begun_anew(self, shard: int, epoch: int) -> bool:
        found = self.shards[shard]
        if found.head.epoch != epoch:
            return False
        found.head = found.head._replace(restored=False)
        return True

    def _own(self, shard: int, incarnation: int) -> Head:
        found = self.shards[shard]
        found.head = found.head._replace(epoch=found.head.epoch + 1, owner=incarnation)
        return found.head

    async def want(self, shard: int, number: int | None) -> bool:
        if shard not in self.shards:
            return False
        self.shards[shard].head = self.shards[shard].head._replace(wanted=number)
        return True

    async def now_ms(self) -> int:
        return time.time_ns() // 1_000_000 + self.ahead_ms

    async def drain(self, number: int, draining: bool) -> bool:
        found = [one for key, one in self._nodes.items() if one.node.number == number and self._lives(key)]
        for one in found:
            one.node = one.node._replace(draining=draining)
        return bool(found)

    async def can_store(self, incarnation: int, stores: bool) -> None:
        one = self._nodes[incarnation]
        one.node = one.node._replace(stores=stores)

    async def leave(self, incarnation: int) -> None:
        self._nodes[incarnation].lease_until_s = self._now_s() - LAPSED_S

    async def close(self) -> None:
        pass


class MemoryStore:
    """See cluster/engine/objects.ObjectStore."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}

    async def put(self, key: str, data: bytes) -> None:
        if key in self.objects:
            raise ObjectExistsError(key)
        self.objects[key] = bytes(data)

    def _found(self, key: str) -> bytes:
        if key not in self.objects:
            raise ObjectMissingError(key)
        return self.objects[key]

    async def get(self, key: str, start: int, end: int) -> bytes:
        return self._found(key)[start:end]

    async def size(self, key: str) -> int:
        return len(self._found(key))

    async def delete(self, keys: Sequence[str]) -> None:
        for key in keys:
            self.objects.pop(key, None)

    async def list(self, prefix: str, after: str = "") -> AsyncIterator[Sequence[Stored]]:
        keys = sorted(key for key in self.objects if key.startswith(prefix) and key > after)
        for at in range(0, len(keys), 3):
            there = [key for key in keys[at : at + 3] if key in self.objects]
            yield [Stored(key, len(self.objects[key]), datetime.now(UTC)) for key in there]


class _Unsure:
    """Calls go wrong: they have no effect, or had it although nobody is told so, or have it some time later. They take
    some time."""

    def __init__(self, inner: Any, error: type[Exception], dice: random.Random) -> None:
        self._inner = inner
        self._error = error
        self._dice = dice
        self.share = 0.0
        """Of the calls that fail."""
        self.down = False
        """All fail."""
        self.pause_s: Callable[[], float] = lambda: dice.uniform(0.0005, 0.01)
        self.failed_before, self.failed_after, self.late = 0, 0, 0
        self._later: set[asyncio.Task[None]] = set()

    async def _call(self, call: Callable[[], Awaitable[T]]) -> T:
        dice = self._dice
        await asyncio.sleep(self.pause_s())
        if self.down or dice.random() < self.share / 3:
            self.failed_before += 1
            raise self._error("refused")
        if dice.random() < self.share / 3:
            self.late += 1
            task = asyncio.ensure_future(self._call_later(call))
            self._later.add(task)
            task.add_done_callback(self._later.discard)
            raise self._error("no answer")
        found = await call()
        await asyncio.sleep(self.pause_s())
        if dice.random() < self.share / 3:
            self.failed_after += 1
            raise self._error("the answer was lost")
        return found

    async def _call_later(self, call: Callable[[], Awaitable[object]]) -> None:
        """Whoever asked has given up, and the server has not."""
        await asyncio.sleep(self._dice.choice((0.01, 0.1, 1.0)))
        with contextlib.suppress(Exception):
            await call()

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._inner, name)

        async def call(*arguments: Any) -> Any:
            return await self._call(lambda: method(*arguments))

        return call


def unsure_database(inner: LogDatabase, dice: random.Random) -> Any:
    return _Unsure(inner, DatabaseUnavailableError, dice)


def unsure_store(inner: ObjectStore, dice: random.Random) -> Any:
    return _Unsure(inner, StoreUnavailableError, dice)
