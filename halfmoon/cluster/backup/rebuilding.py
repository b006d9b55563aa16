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
from halfmoon.cluster.engine.trying import put_once, try_again
from halfmoon.cluster.placement import Layout
from halfmoon.cluster.store import Cluster
from halfmoon.core import clean_files, identity
from halfmoon.core.crc import crc32c
from halfmoon.core.identity import Identity
from halfmoon.core.storage import index
from halfmoon.errors import StartError
from halfmoon.services.keyindex import key_file

AT_ONCE: Final = 16
"""Objects that are read."""
PAUSE_S: Final = 1.0
"""Before the store is asked again."""
_KINDS: Final = (naming.COMMITTED, naming.MERGED, naming.FILE)
KEPT: Final = (clean_files.FOLDER, index.FOLDER, key_file.FOLDER)
"""Folders of files beside the log that are taken."""
_STRETCH: Final = re.compile(rf"(?:{index.FOLDER}|{key_file.FOLDER})/([0-9]+)-([0-9]+)")
TAIL_BYTES: Final = 16 << 10
"""Most footers are shorter."""


class Rebuilt(NamedTuple):
    cluster: Cluster
    chains: dict[int, Chain]
    """By shard."""
    objects: int
    """That are needed."""
    unread: int
    """That have no footer and are no files: nobody knows what they are."""


class Rebuilding:
    def __init__(self, store: ObjectStore, fast: int, objects: int, cluster_id: str | None = None) -> None:
        """`fast`, `objects`: how many shards of either durability the cluster was made with. `cluster_id`: where the
        store may have objects of others. Raises StartError."""
        self.layout = Layout.of_cluster(fast, objects)
        self._store = store
        self._named = cluster_id
        self._kinds = [Durability.FAST] * fast + [Durability.OBJECT] * objects
        self._sizes: dict[str, int] = {}
        self._found: dict[int, list[Found]] = {}
        self._epochs: dict[int, int] = {}
        self._files: dict[tuple[int, str], tuple[int, SideFile]] = {}
        """Shard and path → epoch, and the file."""
        self._unread = 0

    async def look(self) -> Rebuilt:
        """Once. Raises StartError where there is not just one cluster, or other shards than were said;
        StoreUnavailableError."""
        cluster_id = self._cluster_id = self._one_of(await try_again(self._list, PAUSE_S))
        keys = [key for key in self._sizes if key.startswith(f"{cluster_id}/")]
        await in_parallel(self._read, keys, AT_ONCE)
        beyond = [shard for shard in self._found if shard >= len(self._kinds)]
        if beyond:
            raise StartError(f"the store has messages of shard {max(beyond)}: there were more shards than you say")
        chains = {shard: chain(self._found.get(shard, ())) for shard in range(len(self._kinds))}
        self._leave_out_indexes(chains)
        self._chains = chains
        await self._identify()
        needed = {piece.key for each in chains.values() for piece in each.pieces}
        needed |= {file.key for _, file in self._files.values()}
        self._needed = needed
        return Rebuilt(Cluster(cluster_id, self.layout.shards), chains, len(needed), self._unread)

    async def _list(self) -> set[str]:
        """Note what there is; ids of the clusters that have something."""
        self._sizes.clear()
        async for part in self._store.list(""):
            self._sizes.update((each.key, each.size) for each in part if naming.kind_of(each.key) in _KINDS)
        return {key.partition("/")[0] for key in self._sizes}

    def _one_of(self, ids: set[str]) -> str:
        if self._named is not None:
            if self._named not in ids:
                raise StartError(f"the store has no objects of cluster {self._named} under this prefix")
            return self._named
        if not ids:
            raise StartError("the store has objects of no cluster under this prefix")
        if len(ids) > 1:
            raise StartError(
                f"the store has objects of {len(ids)} clusters under this prefix, {', '.join(sorted(ids))}: "
                "say which one with --cluster"
            )
        return ids.pop()

    async def _get(self, key: str, start: int, end: int) -> bytes:
        return await try_again(lambda: self._store.get(key, start, end), PAUSE_S)

    async def _read(self, key: str) -> None:
        if naming.kind_of(key) == naming.FILE:
            await self._read_file(key)
            return
        size = self._sizes[key]
        try:
            tail = await self._get(key, max(0, size - TAIL_BYTES), size)
            length = footer.footer_bytes(tail[-footer.TRAILER_BYTES :]) + footer.TRAILER_BYTES
            if length > len(tail):
                tail = await self._get(key, size - length, size)
            _, commits = footer.read(tail, key)
        except (footer.FooterError, ObjectMissingError):
            self._unread += 1
            return
        certain = naming.kind_of(key) == naming.MERGED
        shared = len({commit.shard for commit in commits}) > 1
        for commit in commits:
            self._saw(commit.shard, commit.epoch)
            self._found.setdefault(commit.shard, []).extend(
                Found(commit.epoch, piece, certain, shared) for piece in commit.pieces
            )

    async def _read_file(self, key: str) -> None:
        """Of compacted messages, which the log has no more; and of indexes, which can be made of the log, but only by
        reading all of it. Checkpoints may know more than the log has now."""
        named = naming.file_of(key)
        if named is None or named.path.partition("/")[0] not in KEPT:
            return
        data = await self._get(key, 0, self._sizes[key])
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

    async def _identify(self) -> None:
        """A log whose shard does not say who it is would not be opened."""
        for shard, found in self._chains.items():
            if found.pieces:
                data = msgspec.json.encode(Identity(identity.FORMAT, self._cluster_id, shard))
                name = naming.FileName(shard, self._epochs[shard], identity.PATH)
                key = naming.make(self._cluster_id, naming.FILE, 0, name)
                await put_once(self._store, key, data, PAUSE_S)
                self._sizes[key] = len(data)
                self._files[shard, identity.PATH] = 0, SideFile(identity.PATH, key, len(data), crc32c(data))

    def rows(self) -> Iterator[Rows]:
        """Of the tables, but for the catalog's, and for what makes it a cluster."""
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
