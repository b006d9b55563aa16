"""Whether the database has carried out a commit whose answer was lost: it is asked what it has.

An administrator who is told that it failed would do everything once more, elsewhere.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from halfmoon.cluster.engine.database import DatabaseUnavailableError
from halfmoon.cluster.engine.trying import try_again
from halfmoon.errors import StartError

PAUSE_S: Final = 1.0


async def is_committed(error: DatabaseUnavailableError, is_there: Callable[[], Awaitable[bool]], refused: str) -> bool:
    """`error`: with which the commit ended. `refused`: what the command says when it is given again, if it was carried
    out. Raises DatabaseUnavailableError where the database cannot be asked either."""
    try:
        return await try_again(is_there, PAUSE_S)
    except StartError:  # it has no cluster
        return False
    except DatabaseUnavailableError:
        raise DatabaseUnavailableError(
            f"{error}. Nobody knows whether the cluster is there: give the command again when the database answers. "
            f"If it says that {refused}, it is this one"
        ) from error
