"""`halfmoon cluster backup|restore|resume|rebuild`: a cluster as it was at one moment."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from halfmoon.cli import output
from halfmoon.cli.cluster_common import Config, carried_out, make_missing_keys, settings_of
from halfmoon.cli.options import Output, OutputOption
from halfmoon.server.nodes import engines

if TYPE_CHECKING:
    from halfmoon.cluster.backup.copied import Manifest
    from halfmoon.cluster.backup.rebuilding import Rebuilt
    from halfmoon.cluster.backup.returning import Returned
    from halfmoon.cluster.backup.saving import Report


def backup(
    target: Annotated[Path, typer.Argument(metavar="DEST", help="A new or empty directory.", show_default=False)],
    config: Config,
    base: Annotated[
        Path | None,
        typer.Option("--base", metavar="BACKUP", help="An earlier one beside it: objects that it has are linked."),
    ] = None,
    result: OutputOption = Output.TEXT,
) -> int:
    """Copy the cluster to DEST, while its nodes serve.

    The copy has everything that was acknowledged before, in all shards as of one moment. It is checked while it is
    made. The folder of keys is not in it: keep that elsewhere.
    """
    settings = settings_of(config)

    async def run() -> Report:
        from halfmoon.cluster.backup.saving import Saving
        from halfmoon.cluster.postgres.tables import PostgresTables

        store = engines.object_store(settings, patient=True)
        source = PostgresTables(engines.database_access(settings))
        with output.progress("copying") as progress:
            return await Saving(source, store, target, base=base, progress=progress.update).run()

    report = carried_out(settings, run)
    manifest = report.manifest
    found = {
        "cluster": manifest.cluster_id, "made_at": manifest.made_at, "shards": manifest.shards,
        "objects": manifest.objects, "bytes": manifest.objects_bytes + manifest.tables_bytes, "linked": report.linked,
    }  # fmt: skip
    if result is Output.JSON:
        output.json_document(found)
    else:
        output.facts(found)
        output.line("whole")
    return 0


def restore(
    saved: Annotated[
        Path, typer.Argument(metavar="BACKUP", help="What `halfmoon cluster backup` wrote.", show_default=False)
    ],
    config: Config,
    result: OutputOption = Output.TEXT,
) -> int:
    """Make a cluster of BACKUP, in an empty database.

    Stop all nodes of that cluster before, and name a bucket, or a prefix in it, that has nothing of it. Put its folder
    of keys back: those that are missing are made anew.

    Nodes can be started once the command has ended. The database has nothing before all of it is there: a restore that
    was interrupted is given again.
    """
    settings = settings_of(config)
    folder = Path(settings.keys)

    async def run() -> Manifest:
        from halfmoon.cluster.backup.restoring import Restoring
        from halfmoon.cluster.postgres.schema import NEWEST
        from halfmoon.cluster.postgres.tables import PostgresTables

        store = engines.object_store(settings, patient=True)
        target = PostgresTables(engines.database_access(settings))
        with output.progress("restoring") as progress:
            return await Restoring(target, store, saved, progress=progress.update).run(
                NEWEST, lambda: make_missing_keys(folder)
            )

    manifest = carried_out(settings, run)
    found = {
        "cluster": manifest.cluster_id, "made_at": manifest.made_at, "shards": manifest.shards,
        "objects": manifest.objects, "bytes": manifest.objects_bytes + manifest.tables_bytes,
    }  # fmt: skip
    if result is Output.JSON:
        output.json_document(found)
    else:
        output.facts(found)
    return 0


def resume(config: Config) -> int:
    """Take the cluster up again at an earlier moment.

    PostgreSQL's own means bring the database back to it, while all nodes are stopped. Then this looks whether the
    store still has what the database names, fences producers, and makes sure that clients who knew a later state
    believe the nodes.
    """
    settings = settings_of(config)

    async def run() -> Returned:
        from halfmoon.cluster.backup.returning import bring_back
        from halfmoon.cluster.postgres.tables import PostgresTables

        target = PostgresTables(engines.database_access(settings))
        return await bring_back(target, engines.object_store(settings, patient=True), await target.cluster_id())

    with output.status("looking at the store"):
        found = carried_out(settings, run)
    output.line(f"all {found.objects} objects are there; {found.shards} shards begin anew when a node opens them")
    return 0


def rebuild(
    config: Config,
    fast: Annotated[int, typer.Option("--fast", min=1, help="As `halfmoon cluster init` was told.")],
    objects: Annotated[int, typer.Option("--objects", min=0, help="As `halfmoon cluster init` was told.")],
    cluster: Annotated[
        str | None,
        typer.Option("--cluster", metavar="ID", help="Where the store has objects of several.", show_default=False),
    ] = None,
    result: OutputOption = Output.TEXT,
) -> int:
    """Make a database of what is in the store, where it is lost.

    This is for the case that all backups are lost, too. Stop all nodes before, and name an empty database. What was in
    the database only is lost: messages of fast shards of the last minute, more where the store had been away; users,
    access rules, quotas and configurations of nodes. Keys that are missing are made anew.

    LEFT_OUT are log positions that are in the store and not in the cluster, because an object is missing between them
    and the rest. The cluster is made all the same, and the exit code is 1. EXPIRED are those that retention had
    dropped: they are in the store for other shards only.

    Nodes can be started when the command says what the cluster has. A rebuild that was interrupted is given again.
    """
    settings = settings_of(config)

    def ready() -> None:
        make_missing_keys(Path(settings.keys))

    async def run() -> tuple[Rebuilt, int]:
        from halfmoon.cluster.backup.rebuilding import Rebuilding
        from halfmoon.cluster.postgres.logs import PostgresLogs
        from halfmoon.cluster.postgres.tables import PostgresTables
        from halfmoon.server.nodes.rebuilding import rebuild

        access, store = engines.database_access(settings), engines.object_store(settings, patient=True)
        rebuilding = Rebuilding(store, fast, objects, cluster)
        return await rebuild(
            rebuilding, PostgresTables(access), lambda: PostgresLogs.open(access), store, settings, ready
        )

    with output.status("reading the store"):
        found, topics = carried_out(settings, run)
    rows = [
        {
            "shard": shard, "start": chain.start, "end": chain.end,
            "left_out": [f"{low}-{high}" for low, high in chain.left_out],
            "expired": [f"{low}-{high}" for low, high in chain.expired],
        } for shard, chain in found.chains.items()
    ]  # fmt: skip
    if result is Output.JSON:
        output.json_document({"cluster": found.cluster.id, "topics": topics, "unread": found.unread, "shards": rows})
    else:
        output.table(rows, ("shard", "start", "end", "left_out", "expired"))
    output.note(
        f"halfmoon: cluster {found.cluster.id} has {topics} topics again, of {found.objects} objects"
        + (f"; {found.unread} more do not say what they are" if found.unread else "")
        + ". Users, access rules and quotas have to be set anew"
    )
    return 1 if any(chain.left_out for chain in found.chains.values()) else 0
