"""What the commands of `halfmoon cluster` that are about nodes have in common."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from halfmoon.cli import output
from halfmoon.cli.errors import CliError
from halfmoon.cluster.engine.database import DatabaseUnavailableError
from halfmoon.cluster.engine.objects import StoreUnavailableError
from halfmoon.cluster.store import CatalogUnavailableError
from halfmoon.config.cluster_settings import ClusterSettings
from halfmoon.config.settings import load_settings
from halfmoon.errors import HalfmoonError, StartError
from halfmoon.server.nodes import engines, keys

if TYPE_CHECKING:
    from halfmoon.cluster.engine.database import LogDatabase

T = TypeVar("T")

Config = Annotated[Path, typer.Option("--config", metavar="BROKER.YAML", help="A node's settings.", show_default=False)]


def with_database(settings: ClusterSettings, work: Callable[[LogDatabase], Awaitable[T]]) -> T:
    async def run() -> T:
        from halfmoon.cluster.postgres import schema
        from halfmoon.cluster.postgres.logs import PostgresLogs

        access = engines.database_access(settings)
        await schema.check(access)
        database = await PostgresLogs.open(access)
        try:
            return await work(database)
        finally:
            await database.close()

    return carried_out(settings, run)


def carried_out(settings: ClusterSettings, work: Callable[[], Awaitable[T]]) -> T:
    """Raises CliError, which says what could not be reached, and where it is."""

    async def run() -> T:
        return await work()

    try:
        return asyncio.run(run())
    except ImportError as error:
        raise CliError(f"a cluster needs more libraries ({error.name}): pip install 'halfmoon[cluster]'") from None
    except (DatabaseUnavailableError, CatalogUnavailableError) as error:
        raise CliError(f"the database ({_address(settings.database)}): {error}") from None
    except StoreUnavailableError as error:
        place = "" if settings.store_endpoint is None else f" at {_address(settings.store_endpoint)}"
        raise CliError(f"the object store ({settings.store}{place}): {error}") from None
    except HalfmoonError as error:
        raise CliError(str(error)) from None
    except OSError as error:
        if error.strerror:
            raise
        raise CliError(str(error)) from None  # a log's own words, of a store that is away or a lease that was lost


def _address(url: str | None) -> str:
    """Without what may be a secret: the user with a password, and options."""
    return (url or "").partition("?")[0].rpartition("//")[2].rpartition("@")[2]


def make_keys(folder: Path, nodes: int = 0) -> list[str]:
    """Those that nodes have in common, and those of nodes 1 to `nodes`. What is there stays; the names of what was made
    of those that they have in common. Raises StartError, CliError."""
    try:
        made = keys.make_common(folder, os.urandom)
        for number in range(1, nodes + 1):
            if not keys.of_node(folder, number).certificate.exists():
                keys.make_node(folder, number)
        return made
    except OSError as error:
        raise CliError(f"{folder}: {error.strerror}") from None


def make_missing_keys(folder: Path) -> None:
    """Of a cluster that was there before: says what was made, since something may need the one of before. Raises
    StartError, CliError."""
    made = make_keys(folder)
    if keys.CA in made:
        output.note(
            f"halfmoon: there was no {keys.CA} in {folder}, and a new authority was made: "
            "`halfmoon cluster certificate N` makes the keys of a node"
        )
    if keys.SECRETS_KEY in made:
        say_new_secrets_key(folder)


def say_new_secrets_key(folder: Path) -> None:
    output.note(
        f"halfmoon: there was no {keys.SECRETS_KEY} in {folder}, and a new one was made. Tokens and RocketMQ secrets "
        "need the one of before: put it there before a node starts, or set them anew. All nodes have the same"
    )


def settings_of(config: Path) -> ClusterSettings:
    """Raises StartError."""
    found = load_settings(config, os.environ, {}).cluster
    if found.database is None:
        raise StartError(f"{config}: $.cluster.database is missing: this is no node of a cluster")
    return found
