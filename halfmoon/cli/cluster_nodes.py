"""`halfmoon cluster` for nodes over a database and an object store: make a cluster, try its services, look at it."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from halfmoon.cli import output
from halfmoon.cli.cluster_common import Config, carried_out, make_keys, say_new_secrets_key, settings_of, with_database
from halfmoon.cli.errors import CliError
from halfmoon.cli.options import Output, OutputOption
from halfmoon.cluster.engine.database import DatabaseUnavailableError
from halfmoon.cluster.placement import Layout
from halfmoon.config.cluster_settings import ClusterSettings
from halfmoon.config.sections import decode_section
from halfmoon.errors import StartError
from halfmoon.server.nodes import engines, keys
from halfmoon.uuids import new_uuid

if TYPE_CHECKING:
    from halfmoon.cluster.checks import Tried
    from halfmoon.cluster.engine.database import LogDatabase
    from halfmoon.cluster.postgres.looking import ShardLook

FAST, OBJECTS = 16, 16
"""Shards of a new cluster."""
WAIT_S, LOOK_S = 120.0, 0.1
SHARD_COLUMNS = ("shard", "durability", "node", "epoch", "end", "bytes", "rows", "pieces", "wanted", "problems")
COLUMNS = ("node", "address", "rack", "state", "format", "fast", "object")
STATES = {(True, False): "up", (True, True): "draining", (False, False): "down", (False, True): "stopped"}
"""By whether a node lives, and whether it has been told to give its shards away, as one does that stops."""


def init(
    config: Config,
    fast: Annotated[int, typer.Option("--fast", min=1, help="Shards whose messages go to the database first.")] = FAST,
    objects: Annotated[
        int, typer.Option("--objects", min=0, help="Shards whose messages go to the object store only.")
    ] = OBJECTS,
    nodes: Annotated[int, typer.Option("--nodes", min=1, help="Make keys for nodes 1 to N.", metavar="N")] = 3,
    result: OutputOption = Output.TEXT,
) -> int:
    """Make a cluster: its tables, and keys for its nodes.

    How many shards there are never changes; no more nodes than shards have work.
    """
    Layout.of_cluster(fast, objects)  # before keys are made
    settings = settings_of(config)
    folder = Path(settings.keys)

    async def check_none() -> None:
        from halfmoon.cluster.postgres.tables import PostgresTables

        await PostgresTables(engines.database_access(settings)).check_empty()

    async def make() -> str:
        from halfmoon.cluster.postgres import schema

        cluster_id = new_uuid(os.urandom)
        await schema.create(engines.database_access(settings), cluster_id, fast, objects)
        return cluster_id

    carried_out(settings, check_none)  # before keys are made that no node would know
    make_keys(folder, nodes)
    cluster_id = carried_out(settings, make)
    if result is Output.JSON:
        output.json_document({"cluster_id": cluster_id, "fast": fast, "object": objects, "keys": str(folder)})
    else:
        output.facts({"cluster": cluster_id, "fast shards": fast, "object shards": objects, "keys": str(folder)})
        output.note(f"halfmoon: copy {folder} to each node, without {keys.CA_KEY} and the other nodes' keys")
    return 0


def certificate(
    number: Annotated[int, typer.Argument(metavar="NODE", min=0, help="The node's number.", show_default=False)],
    config: Config,
    new_authority: Annotated[
        bool, typer.Option("--new-authority", help="Make a new authority first: all nodes need new keys then.")
    ] = False,
) -> int:
    """Make the keys of one more node, or new ones.

    A node needs ca.crt and node.key, too, which all nodes have in common. With --new-authority a node.key is made where
    there is none.
    """
    folder = Path(settings_of(config).keys)
    try:
        if new_authority:
            keys.make_authority(folder)
            if keys.SECRETS_KEY in make_keys(folder):
                say_new_secrets_key(folder)
        made = keys.make_node(folder, number)
    except OSError as error:
        raise CliError(f"{folder}: {error.strerror}") from None
    output.facts({"certificate": str(made.certificate), "key": str(made.key)})
    return 0


def upgrade(config: Config) -> int:
    """Bring the tables up to this version.

    Nodes of the version before go on, so that they can be replaced one after the other.
    """
    settings = settings_of(config)

    async def bring() -> tuple[int, int]:
        from halfmoon.cluster.postgres import schema

        return await schema.upgrade(engines.database_access(settings))

    before, now = carried_out(settings, bring)
    output.line(f"the tables have format {now}" + ("" if now == before else f"; before, they had {before}"))
    return 0


def check(
    config: Annotated[
        Path | None, typer.Option("--config", metavar="BROKER.YAML", help="A node's settings.", show_default=False)
    ] = None,
    database: Annotated[
        str | None, typer.Option("--database", metavar="URL", help="postgresql://USER@HOST/NAME")
    ] = None,
    store: Annotated[str | None, typer.Option("--store", metavar="URL", help="s3://BUCKET/PREFIX")] = None,
    endpoint: Annotated[
        str | None, typer.Option("--endpoint", metavar="URL", help="Of a store that is not Amazon's.")
    ] = None,
    result: OutputOption = Output.TEXT,
) -> int:
    """Try whether your database and object store will do.

    What a cluster relies on is tried with them: conditional writes, races, listings, durable commits.
    Everything is tried under names of its own, and removed at the end. With --config the other options are ignored.
    Without it the store's credentials are looked for where Amazon's clients look.
    """
    if config is not None:
        settings = settings_of(config)
    elif database is None or store is None:
        raise CliError("give --config, or both --database and --store")
    else:
        given = {"database": database, "store": store, "store_endpoint": endpoint}
        settings = decode_section(ClusterSettings, given, "$.cluster")

    async def attempt() -> tuple[list[Tried], list[Tried]]:
        from halfmoon.cluster.checks.database import try_database
        from halfmoon.cluster.checks.store import try_store

        name = f"halfmoon_check_{os.urandom(6).hex()}"
        of_store = await try_store(engines.object_store(settings), name)
        return await try_database(engines.database_access(settings), name), of_store

    with output.status("trying the database and the object store"):
        of_database, of_store = carried_out(settings, attempt)
    return _report({"database": of_database, "store": of_store}, result)


def _report(found: dict[str, list[Tried]], result: Output) -> int:
    from halfmoon.cluster.checks import is_well

    rows: list[dict[str, Any]] = [
        {"service": service, "verdict": str(one.verdict), "what": one.what, "found": one.said}
        for service, tried in found.items()
        for one in tried
    ]
    output.rows(rows, ("service", "verdict", "what", "found"), result)
    return 0 if all(is_well(tried) for tried in found.values()) else 1


def status(config: Config, result: OutputOption = Output.TEXT) -> int:
    """Show the nodes, and how many shards each has.

    One that is gone is shown for an hour: it is `down` if it died, and `stopped` if it left in good order."""

    async def look(database: LogDatabase) -> list[dict[str, Any]]:
        heads, nodes = await database.heads(), await database.nodes()
        numbers = {node.incarnation: node.number for node in nodes}
        rows = []
        for number, node in sorted({node.number: node for node in nodes}.items()):  # its last start
            own = [head for head in heads if head.owner is not None and numbers.get(head.owner) == number]
            counts = {kind: sum(str(head.durability) == kind for head in own) for kind in ("fast", "object")}
            rows.append(
                {
                    "node": number, "address": f"{node.host}:{node.port}", "rack": node.rack,
                    "state": STATES[node.alive, node.draining], "format": node.format, **counts,
                }
            )  # fmt: skip
        return rows

    output.rows(with_database(settings_of(config), look), COLUMNS, result)
    return 0


def shards(config: Config, result: OutputOption = Output.TEXT) -> int:
    """Show the shards: who has each, and how much is in it.

    END is the log position up to which everything is durable, ROWS how many of the bytes are in the database still. The
    exit code is 1 where a shard has a problem.
    """
    settings = settings_of(config)

    async def look() -> list[ShardLook]:
        from halfmoon.cluster.postgres import schema
        from halfmoon.cluster.postgres.looking import look_at_shards

        access = engines.database_access(settings)
        await schema.check(access)
        return await look_at_shards(access)

    found = carried_out(settings, look)
    rows = [
        {
            "shard": each.shard, "durability": each.durability, "node": each.node, "epoch": each.epoch,
            "start": each.first, "end": each.end, "bytes": each.bytes, "rows": each.row_bytes, "pieces": each.pieces,
            "wanted": each.wanted, "problems": each.problems,
        } for each in found
    ]  # fmt: skip
    output.rows(rows, SHARD_COLUMNS, result)
    return 1 if any(each.problems for each in found) else 0


def move(
    shard: Annotated[int, typer.Argument(metavar="SHARD", min=0, show_default=False)],
    number: Annotated[int, typer.Argument(metavar="NODE", min=0, show_default=False)],
    config: Config,
) -> int:
    """Move a shard to another node, and wait until it is there.

    To the node that has it already, this takes back an earlier move that has not come about.
    """
    with_database(settings_of(config), lambda database: move_shard(database, shard, number))
    output.line(f"shard {shard} is at node {number}")
    return 0


async def move_shard(database: LogDatabase, shard: int, number: int) -> None:
    """Raises StartError, DatabaseUnavailableError."""
    if not any(node.alive and node.number == number for node in await database.nodes()):
        raise StartError(f"node {number} is not up")

    async def is_there() -> bool:
        owners = {head.shard: head.owner for head in await database.heads()}
        if shard not in owners:
            raise StartError(f"there is no shard {shard}")
        nodes = await database.nodes()  # asked anew: the node may have been restarted
        return any(node.alive and (node.incarnation, node.number) == (owners[shard], number) for node in nodes)

    if await is_there():
        await database.want(shard, None)
        return
    await database.want(shard, number)
    if not await _comes_about(is_there):
        raise StartError(
            f"shard {shard} is not at node {number} after {WAIT_S:g} s; it is still wanted there. A move to the node "
            "that has it takes that back"
        )


def drain(
    number: Annotated[int, typer.Argument(metavar="NODE", min=0, show_default=False)],
    config: Config,
    undo: Annotated[bool, typer.Option("--undo", help="It may have shards again.")] = False,
) -> int:
    """Have a node give its shards to the others.

    Returns when it has none. Its next start ends that.
    """

    with_database(settings_of(config), lambda database: drain_node(database, number, undo=undo))
    output.line(f"node {number} may have shards again" if undo else f"node {number} has no shards")
    return 0


async def drain_node(database: LogDatabase, number: int, *, undo: bool = False) -> None:
    """Raises StartError, DatabaseUnavailableError."""
    if not await database.drain(number, not undo):
        raise StartError(f"node {number} is not up")

    async def is_empty() -> bool:
        own = [node for node in await database.nodes() if node.number == number]
        if any(node.alive and not node.draining for node in own):
            raise StartError(f"node {number} may have shards again: it was started anew meanwhile, or --undo was given")
        incarnations = {node.incarnation for node in own}
        return not any(head.owner in incarnations for head in await database.heads())

    if not undo and not await _comes_about(is_empty):
        raise StartError(f"node {number} still has shards after {WAIT_S:g} s; it goes on giving them away")


async def _comes_about(is_so: Callable[[], Awaitable[bool]]) -> bool:
    """False: not in time, also where the database could not be asked: what is wanted stays wanted."""
    loop = asyncio.get_running_loop()
    until_s = loop.time() + WAIT_S
    while True:
        with contextlib.suppress(DatabaseUnavailableError):
            if await is_so():
                return True
        if loop.time() >= until_s:
            return False
        await asyncio.sleep(LOOK_S)
