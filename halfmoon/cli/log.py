"""`halfmoon log` and `halfmoon backup`: a data directory inspected and copied, its broker running or not."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from halfmoon.cli import output
from halfmoon.cli.options import Output, OutputOption
from halfmoon.errors import StartError

if TYPE_CHECKING:
    from halfmoon.offline.key_protected import KeyProtected
    from halfmoon.server.repairing import Findings

app = typer.Typer(help="Inspect and repair a data directory.", no_args_is_help=True)

DirectoryArgument = Annotated[Path, typer.Argument(metavar="DIR", help="A broker's data directory.")]

NODE_KEY = "node.key"
MOST_NAMED = 20
"""Names of users in a line."""
COLUMNS = (
    "position", "length", "kind", "generation", "topic", "partition", "base_offset", "record_count", "control",
    "due_ms", "provenance",
)  # fmt: skip


@app.callback()
def _group() -> None:
    """Inspect and repair a data directory."""


@app.command()
def verify(directory: DirectoryArgument, result: OutputOption = Output.TEXT) -> int:
    """Verify the checksums of all data in DIR, and its index files. Exit code 1 on corruption."""
    from halfmoon.cli import log_shards
    from halfmoon.offline import verifying
    from halfmoon.offline.opening import in_files

    if log_shards.has_shards(directory):
        with _named(directory):
            return log_shards.verify(directory, result)
    with _named(directory), output.progress("verifying") as progress:
        report = verifying.verify(directory, progress.update)
    facts = dataclasses.asdict(report)
    if result is Output.JSON:
        output.json_document({"directory": str(directory), "ok": report.ok, **facts})
    else:
        problems = facts.pop("problems")
        for name in ("unreadable_at", "rebuildable"):  # the problems say it
            del facts[name]
        facts["damaged"] = [f"{low}-{high}" for low, high in report.damaged]
        output.facts(facts)
        for low, high in report.damaged:
            output.line(f"problem: log positions {low} to {high} are damaged{in_files(directory, low, high)}")
        for problem in problems:
            output.line(f"problem: {problem}")
        output.line("whole" if report.ok else "damaged")
    return 0 if report.ok else 1


@app.command()
def repair(
    directory: DirectoryArgument,
    cluster_id: Annotated[
        str | None, typer.Option("--cluster-id", help="For a DIR without meta.json; otherwise it gets a new one.")
    ] = None,
    node_id: Annotated[
        int | None, typer.Option("--node-id", min=0, max=2**31 - 1, help="For a DIR without meta.json; otherwise 1.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    result: OutputOption = Output.TEXT,
) -> int:
    """Show what DIR has lost, and make it whole without that.

    The loss is shown by topic and offset. The broker must be stopped.
    The files as they were stay in DIR/damaged. Lost offsets are answered with CORRUPT_MESSAGE until they expire.
    Batches that nobody can read are taken out; readers skip their offsets. Wrong index files are made again.
    """
    import time

    from halfmoon.core.storage.files import OsFileSystem
    from halfmoon.server import repairing

    with _named(directory):
        fs = OsFileSystem(directory)
        fs.lock()
        try:
            with output.progress("reading") as progress:
                findings = repairing.examine(directory, cluster_id, node_id, progress.update)
            if result is Output.TEXT:
                _show(directory, findings)
            kept: Path | None = None
            if not findings.whole:
                if not yes:
                    typer.confirm("Repair it?", abort=True, err=True)
                kept = repairing.repair(directory, findings, time.strftime("%Y%m%dT%H%M%SZ", time.gmtime()))
        finally:
            fs.unlock()
    if result is Output.JSON:
        facts = msgspec.to_builtins(findings)
        output.json_document({"directory": str(directory), "kept": None if kept is None else str(kept), **facts})
    else:
        output.line("whole" if kept is None else f"repaired; the files as they were: {kept}")
    return 0


def _show(directory: Path, findings: Findings) -> None:
    from halfmoon.offline.opening import in_files

    if findings.identity_lost:
        ids = f"the cluster id will be {findings.cluster_id}, the node id {findings.node_id}"
        output.line(f"meta.json: missing or unreadable; {ids}")
    for low, high in findings.missing:
        output.line(f"missing: log positions {low} to {high}")
    for low, high in findings.damaged:
        output.line(f"damaged: log positions {low} to {high}{in_files(directory, low, high)}")
    for each in findings.lost:
        output.line(f"lost: topic={each.topic} partition={each.partition} offsets={each.low}-{each.high - 1}")
    for each in findings.unreadable:
        output.line(f"unreadable: topic={each.topic} partition={each.partition} offsets={each.low}-{each.high - 1}")
    for path in findings.rebuildable:
        output.line(f"to be made again: {path}")


@app.command()
def dump(
    directory: DirectoryArgument,
    topic: Annotated[str | None, typer.Option("-t", "--topic", help="Only frames of this topic.")] = None,
    position: Annotated[int | None, typer.Option("--from", help="Start at this log position.")] = None,
    count: Annotated[int | None, typer.Option("-c", "--count", help="Stop after this many frames.")] = None,
    result: OutputOption = Output.TEXT,
) -> None:
    """Print the frames of DIR in order, one per line."""
    from halfmoon.offline import dumping

    with _named(directory):
        for info in dumping.dump(directory, topic=topic, from_position=position, limit=count):
            if result is Output.JSON:
                output.write(output.json_line(_frame(info)))
            else:
                values = ((name, getattr(info, name)) for name in COLUMNS)
                output.line(" ".join(f"{name}={value}" for name, value in values if value not in (None, -1)))


def backup(
    directory: DirectoryArgument,
    target: Annotated[Path, typer.Argument(metavar="TARGET", help="A new or empty directory.")],
    active: Annotated[bool, typer.Option("--active", hidden=True)] = False,
    result: OutputOption = Output.TEXT,
) -> int:
    """Copy DIR while its broker runs, and verify the copy.

    The copy has everything that has been acknowledged. It has no node.key: the command says if something needs it.
    """
    from halfmoon.cli import log_shards
    from halfmoon.offline.backup import backup as copy

    if active:
        output.note("halfmoon: --active is deprecated: every backup has the active segment")
    if log_shards.has_shards(directory):
        with _named(directory):
            code = log_shards.backup(directory, target, result)
    else:
        with _named(directory), output.progress("copying") as progress:
            report = copy(directory, target, progress.update)
        places = {"directory": str(directory), "target": str(target)}
        code = _verified(target, places, dataclasses.asdict(report), result)
    protected = _key_protected(target)
    if protected:
        output.note(f"halfmoon: node.key is not in the backup; keep it elsewhere. It protects {_listed(protected)}")
    return code


def restore(
    saved: Annotated[Path, typer.Argument(metavar="BACKUP", help="What `halfmoon backup` wrote.")],
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="A new or empty directory: the broker's data_dir.")],
    result: OutputOption = Output.TEXT,
) -> int:
    """Copy BACKUP to DIR, and verify the copy.

    A broker can be started on DIR then. BACKUP stays as it is. Where node.key is missing and something needs it, the
    command says which users' secrets have to be set anew without it.
    """
    from halfmoon.cli import log_shards
    from halfmoon.offline.backup import restore as copy

    if log_shards.has_shards(saved):
        code = log_shards.restore(saved, directory, result)
    else:
        with output.progress("copying") as progress:
            copied = copy(saved, directory, progress.update)
        code = _verified(directory, {"backup": str(saved), "directory": str(directory)}, {"bytes": copied}, result)
    protected = None if (directory / NODE_KEY).exists() else _key_protected(directory)
    if protected:
        anew = [
            *([f"halfmoon user secret NAME --rocketmq for {_some(protected.users)}"] if protected.users else []),
            *([f"new delegation tokens for {_some(protected.token_owners)}"] if protected.token_owners else []),
        ]
        output.note(
            f"halfmoon: there is no {NODE_KEY} in {directory}: copy the broker's there before the first start, or set "
            f"anew: {'; '.join(anew)}"
        )
    return code


def _key_protected(directory: Path) -> KeyProtected:
    import time

    from halfmoon.offline import key_protected, shards

    find = shards.key_protected if shards.of(directory) else key_protected.find
    with _named(directory):
        return find(directory, time.time_ns() // 1_000_000)


def _listed(protected: KeyProtected) -> str:
    tokens = sum(protected.token_owners.values())
    return " and ".join(
        [
            *([f"the RocketMQ secrets of {_some(protected.users)}"] if protected.users else []),
            *([f"{tokens} delegation token{'s' if tokens > 1 else ''}"] if tokens else []),
        ]
    )


def _some(names: Collection[str]) -> str:
    shown = ", ".join([*names][:MOST_NAMED])
    return f"{shown} and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else shown


def _verified(written: Path, places: dict[str, str], facts: dict[str, Any], result: Output) -> int:
    """Verify what was written, and say what it is; the exit code."""
    from halfmoon.offline import verifying
    from halfmoon.offline.opening import in_files

    with _named(written), output.progress("verifying") as progress:
        report = verifying.verify(written, progress.update)
    topics = {"topics": facts.pop("topics")} if "topics" in facts else {}
    facts = {**topics, "records": report.records, **facts}
    if result is Output.JSON:
        damage = {"ok": report.ok, "damaged": report.damaged, "problems": report.problems}
        output.json_document({**places, **facts, **damage})
    else:
        output.facts(facts)
        for low, high in report.damaged:
            output.line(f"problem: log positions {low} to {high} are damaged{in_files(written, low, high)}")
        for problem in report.problems:
            output.line(f"problem: {problem}")
        output.line("whole" if report.ok else "damaged")
    return 0 if report.ok else 1


def _frame(info: Any) -> dict[str, Any]:
    """A frame as JSON: the batch's header by the names of its fields."""
    found = dataclasses.asdict(info)
    found["batch"] = info.batch._asdict() if info.batch is not None else None
    return found


@contextmanager
def _named(directory: Path) -> Iterator[None]:
    """Say which directory an error is about; the core knows paths inside it only."""
    try:
        yield
    except StartError as error:
        raise StartError(f"{directory}: {error}") from error
