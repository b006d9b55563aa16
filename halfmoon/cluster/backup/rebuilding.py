"""What a cluster's database would say, made of the objects in its store: for the case that there is no backup of it.

What was only in the database is lost: messages of fast shards that had not been brought into objects, and what
administrators had set. Which shards are fast has to be said.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import msgspec

from halfmoon.cluster.backup.chains import Chain, Found, chain
from halfmoon.cluster.backup.parallel import in_parallel
from halfmoon.cluster.backup.tables import Row, Rows
from halfmoon.cluster.engine import footer, naming
from halfmoon.cluster.engine.database import SideFile
from halfmoon.cluster.engine.objects import ObjectMissingError, ObjectStore
from halfmoon.cluster.engine.pieces import Durability
from halfmoon.core import clean_files, identity
from halfmoon.core.crc import crc32c
from halfmoon.core.identity import Identity
from halfmoon.core.storage import index
from halfmoon.errors import StartError
from halfmoon.services.keyindex import key_file

AT_ONCE: Final = 16
"""Objects that are read."""
KEPT: Final = (clean_files.FOLDER, index.FOLDER, key_file.FOLDER)
"""Folders of files beside the log that are taken."""
_STRETCH: Final = re.compile(rf"(?:{index.FOLDER}|{key_file.FOLDER})/([0-9]+)-([0-9]+)")
TAIL_BYTES: Final = 16 << 10
"""Most footers are shorter."""


class Rebuilt(NamedTuple):
    cluster_id: str
    chains: dict[int, Chain]
    """By shard."""
    objects: int
    """That are needed."""
    unread: int
    """That have no footer and are no files: nobody knows what they are."""


class Rebuilding:
    def __init__(self, store: ObjectStore, fast: int, objects: int) -> None:
        """`fast`, `objects`: how many shards of either durability the cluster was made with."""
        self._store = store
        self._kinds = [Durability.FAST] * fast + [Durability.OBJECT] * objects
        self._sizes: dict[str, int] = {}
        self._found: dict[int, list[Found]] = {}
        self._epochs: dict[int, int] = {}
        self._files: dict[tuple[int, str], tuple[int, SideFile]] = {}
        """Shard and path → epoch, and the file."""
        self._unread = 0

    async def look(self) -> Rebuilt:
        """Raises StartError where there is not just one cluster, or other shards than were said;
        StoreUnavailableError."""
        keys = []
        async for part in self._store.list(""):
            for each in part:
                if naming.kind_of(each.key):
                    self._sizes[each.key] = each.size
                    keys.append(each.key)
        ids = {key.partition("/")[0] for key in keys}
        if len(ids) != 1:
            raise StartError(f"the store has objects of {len(ids)} clusters under this prefix, and should have one's")
        await in_parallel(self._read, keys, AT_ONCE)
        beyond = [shard for shard in self._found if shard >= len(self._kinds)]
        if beyond:
            raise StartError(f"the store has messages of shard {max(beyond)}: there were more shards than you say")
        chains = {shard: chain(self._found.get(shard, ())) for shard in range(len(self._kinds))}
        self._leave_out_indexes(chains)
        await self._identify(ids.pop(), chains)
        needed = {piece.key for each in chains.values() for piece in each.pieces}
        needed |= {file.key for _, file in self._files.values()}
        self._needed = needed
        return Rebuilt(self._cluster_id, chains, len(needed), self._unread)

    async def _read(self, key: str) -> None:
        if naming.kind_of(key) == naming.FILE:
            await self._read_file(key)
            return
        size = self._sizes[key]
        try:
            tail = await self._store.get(key, max(0, size - TAIL_BYTES), size)
            length = footer.footer_bytes(tail[-footer.TRAILER_BYTES :]) + footer.TRAILER_BYTES
            if length > len(tail):
                tail = await self._store.get(key, size - length, size)
            _, commits = footer.read(tail, key)
        except (footer.FooterError, ObjectMissingError):
            self._unread += 1
            return
        certain = naming.kind_of(key) == naming.MERGED
        for commit in commits:
            self._saw(commit.shard, commit.epoch)
            self._found.setdefault(commit.shard, []).extend(
                Found(commit.epoch, piece, certain) for piece in commit.pieces
            )

    async def _read_file(self, key: str) -> None:
        """Of compacted messages, which the log has no more; and of indexes, which can be made of the log, but only by
        reading all of it. Checkpoints may know more than the log has now."""
        named = naming.file_of(key)
        if named is None or named.path.partition("/")[0] not in KEPT:
            return
        data = await self._store.get(key, 0, self._sizes[key])
        shards = range(len(self._kinds)) if named.shard == naming.ALL_SHARDS else [named.shard]
        for shard in shards:
            self._saw(shard, named.epoch)
            known = self._files.get((shard, named.path))
            if known is None or named.epoch > known[0]:
                file = SideFile(named.path, key, len(data), crc32c(data))
                self._files[shard, named.path] = named.epoch, file

    def _leave_out_indexes(self, chains: dict[int, Chain]) -> None:
        """Of stretches that are not in the log: what they tell of would be taken for lost."""
        for shard, path in list(self._files):
            found = _STRETCH.fullmatch(path)
            if found and not chains[shard].start <= int(found[1]) < int(found[2]) <= chains[shard].end:
                del self._files[shard, path]

    def _saw(self, shard: int, epoch: int) -> None:
        self._epochs[shard] = max(epoch, self._epochs.get(shard, 0))

    async def _identify(self, cluster_id: str, chains: dict[int, Chain]) -> None:
        """A log whose shard does not say who it is would not be opened."""
        self._cluster_id = cluster_id
        self._chains = chains
        for shard, found in chains.items():
            if found.pieces:
                data = msgspec.json.encode(Identity(identity.FORMAT, cluster_id, shard))
                name = naming.FileName(shard, self._epochs[shard], identity.PATH)
                key = naming.make(cluster_id, naming.FILE, 0, name)
                await self._store.put(key, data)
                self._sizes[key] = len(data)
                self._files[shard, identity.PATH] = 0, SideFile(identity.PATH, key, len(data), crc32c(data))

    def rows(self) -> Iterator[Rows]:
        """Of the tables, but for the catalog's."""
        yield Rows("cluster", [(self._cluster_id, len(self._kinds))])
        heads = [
            (shard, str(kind), self._epochs.get(shard, 0), self._chains[shard].end)
            for shard, kind in enumerate(self._kinds)
        ]
        yield Rows("shard", heads)
        yield from _in_parts("object", [(key, self._sizes[key]) for key in sorted(self._needed)])
        pieces = [(shard, *piece) for shard, each in self._chains.items() for piece in each.pieces]
        yield from _in_parts("piece", pieces)
        yield from _in_parts("file", [(shard, *file) for (shard, _), (_, file) in self._files.items()])


def _in_parts(table: str, rows: Sequence[Row]) -> Iterator[Rows]:
    for at in range(0, len(rows), 1_000):
        yield Rows(table, rows[at : at + 1_000])
