"""`halfmoon cluster`: data directories that several workers share, and nodes that share a database and a store."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
import typer

from halfmoon.cli import cluster_backup, cluster_import, cluster_nodes, output
from halfmoon.cli.errors import CliError
from halfmoon.cli.options import Output, OutputOption
from halfmoon.cluster.placement import MOST_SHARDS, SHARDS
from halfmoon.errors import StartError

app = typer.Typer(help="Make and run a cluster of several nodes, or of several workers.", no_args_is_help=True)
_COMMANDS = (
    cluster_nodes.init, cluster_nodes.certificate, cluster_nodes.upgrade, cluster_nodes.check, cluster_nodes.status,
    cluster_nodes.shards, cluster_nodes.move, cluster_nodes.drain,
    cluster_backup.backup, cluster_backup.restore, cluster_backup.resume,
    cluster_backup.rebuild,
)  # fmt: skip
for each in _COMMANDS:
    app.command()(each)


@app.command("import")
def import_(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="The data directory of a broker that is stopped.")],
    config: Annotated[
        Path | None,
        typer.Option("--config", metavar="BROKER.YAML", help="A node's settings: bring it into this cluster."),
    ] = None,
    shards: Annotated[
        int | None,
        typer.Option(
            "--shards",
            min=1,
            max=MOST_SHARDS,
            show_default=False,
            help=f"Without --config: the most workers that can share it; {SHARDS} unless given.",
        ),
    ] = None,
    on_objects: Annotated[
        list[str] | None,
        typer.Option(
            "--object", metavar="PATTERN", help="With --config: topics of these names get halfmoon.durability=object."
        ),
    ] = None,
    result: OutputOption = Output.TEXT,
) -> int:
    """Bring DIR into a cluster, or divide it for workers.

    With --config it is brought into that cluster; without, it becomes one that several workers can share.

    Topics, messages with their offsets, groups, scheduled messages, users, rules and configurations stay.
    Transactions that are not ended are aborted, and their producers get new ids at their next start.

    With --config: the cluster is one that `halfmoon cluster init` has just made, and no node of it has been started.
    DIR stays, with its transactions ended: do not start a broker on it any more. If it is interrupted, the cluster is
    empty: give the command again.

    Without it no message is copied: files are linked. What was there before is in DIR/before-import, which may be
    deleted. If it is interrupted, DIR is as it was but for its transactions, or all of it is there: give the command
    again. There is no way back. Serve it with `halfmoon serve --workers N --data-dir DIR` then.
    """
    if config is not None:
        if shards is not None:
            raise CliError("--shards is for workers: a cluster has as many as `halfmoon cluster init` was told")
        return cluster_import.bring_in(directory, config, on_objects or (), result)
    if on_objects:
        raise CliError("--object is for a cluster: give --config")
    return _make_shards(directory, shards or SHARDS, result)


def _make_shards(directory: Path, shards: int, result: Output) -> int:
    from halfmoon.server.workers import importing

    try:
        with output.progress("making shards") as progress:
            made = importing.import_directory(directory, shards, progress.update)
    except StartError as error:
        raise StartError(f"{directory}: {error}") from error
    before = directory / importing.BEFORE
    if result is Output.JSON:
        facts = {} if made is None else msgspec.to_builtins(made)
        output.json_document(
            {"directory": str(directory), "before": str(before), "ended_earlier": made is None, **facts}
        )
        return 0
    if made is None:
        output.line("the shards were made before; what was left to be moved is moved now")
    else:
        output.facts(msgspec.to_builtins(made))
        if made.least_workers > 1:
            output.note(f"halfmoon: there are many files: begin with at least {made.least_workers} workers")
    output.note(f"halfmoon: serve it with --workers N. You may delete {before}: it takes disk once messages expire")
    return 0
