"""What the database says of shards, for administrators."""

from __future__ import annotations

from typing import Final, NamedTuple

from halfmoon.cluster.postgres import statements
from halfmoon.cluster.postgres.connecting import Access, connected

_LOOK: Final = f"""
with kept as (
    select shard, start_position, end_position, false as is_row from piece
    union all select shard, start_position, end_position, true from wal
), sums as (
    select shard, min(start_position) as first, max(end_position) as last, sum(end_position - start_position) as size,
        coalesce(sum(end_position - start_position) filter (where is_row), 0) as row_size, count(*) as pieces
    from kept group by shard
)
select shard.shard, shard.durability, node.number, coalesce({statements.ALIVE}, false), shard.epoch, shard.end_position,
    coalesce(sums.first, shard.end_position), coalesce(sums.last, shard.end_position), coalesce(sums.size, 0)::bigint,
    coalesce(sums.row_size, 0)::bigint, coalesce(sums.pieces, 0), shard.wanted, shard.restored
from shard left join node on node.incarnation = shard.owner left join sums on sums.shard = shard.shard
order by shard.shard"""


class ShardLook(NamedTuple):
    shard: int
    durability: str
    node: int | None
    """The number of the node that has it, or had it last; None: nobody ever had it."""
    alive: bool
    """That node lives."""
    epoch: int
    end: int
    """Of the log, as the database says it."""
    first: int
    """Where its oldest piece begins, …"""
    last: int
    """… and the newest one ends."""
    bytes: int
    """Of its pieces."""
    row_bytes: int
    """Of those that are in the database still."""
    pieces: int
    wanted: int | None
    """The number of the node that somebody wants it to be moved to."""
    restored: bool

    @property
    def problems(self) -> list[str]:
        """A sentence each."""
        found = []
        if not self.alive:
            found.append("nobody has it" if self.node is None else f"node {self.node} does not live, and has it still")
        if self.last != self.end:
            found.append(f"its pieces end at {self.last}")
        if self.bytes != self.last - self.first:
            found.append(f"its pieces have {self.bytes} bytes, and not {self.last - self.first}")
        if self.restored:
            found.append("it was brought back from a backup, and nobody has opened it since")
        return found


async def look_at_shards(access: Access) -> list[ShardLook]:
    """Of one moment. Raises DatabaseUnavailableError."""
    async with connected(access) as connection:
        rows = await connection.fetch(_LOOK)
    return [ShardLook(*row) for row in rows]
