"""A cluster whose database was brought back to an earlier moment, by PostgreSQL's own means, over the store as it is.

The store has what was needed then, as long as that is not longer ago than objects are kept after they died.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from halfmoon.cluster.backup.ports import Target
from halfmoon.cluster.engine.objects import ObjectStore
from halfmoon.cluster.engine.trying import try_again
from halfmoon.errors import StartError

NAMED: Final = 3
"""So many objects are named that are missing."""
PAUSE_S: Final = 1.0
"""Before the store is asked again."""


class Returned(NamedTuple):
    shards: int
    objects: int


async def bring_back(target: Target, store: ObjectStore, cluster_id: str) -> Returned:
    """Raises StartError where something is missing, and nothing has changed; DatabaseUnavailableError,
    StoreUnavailableError."""
    needed = await target.needed()
    names = sorted(await try_again(lambda: _not_there(needed, store, cluster_id), PAUSE_S))
    if names:
        more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
        raise StartError(
            f"the store has not what the database names: {', '.join(names[:NAMED])}{more}. Bring the database back to "
            "a later moment, or restore a backup"
        )
    return Returned(await target.bring_back(), len(needed))


async def _not_there(needed: Mapping[str, int], store: ObjectStore, cluster_id: str) -> list[str]:
    """Keys of those that the store has not, or has in another size."""
    missing = dict(needed)
    wrong = []
    async for part in store.list(f"{cluster_id}/"):
        for each in part:
            size = missing.pop(each.key, each.size)
            if size != each.size:
                wrong.append(each.key)
    return [*missing, *wrong]
