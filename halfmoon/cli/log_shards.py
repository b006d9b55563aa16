"""`log verify`, backup and restore where the data directory is one of several workers."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from halfmoon.cli import output
from halfmoon.cli.options import Output
from halfmoon.offline import shards
from halfmoon.offline.opening import in_files


def has_shards(directory: Path) -> bool:
    return bool(shards.of(directory))


def verify(directory: Path, result: Output) -> int:
    """The exit code."""
    return _tell(directory, {"directory": str(directory)}, {}, result)


def backup(directory: Path, target: Path, result: Output) -> int:
    """As `verify`, of the copy."""
    with output.progress("copying") as progress:
        report = shards.copy(directory, target, progress.update)
    places = {"directory": str(directory), "target": str(target), "topics": report.topics}
    copied = {name: dataclasses.asdict(each) for name, each in report.shards.items()}
    return _tell(target, places, copied, result)


def restore(saved: Path, directory: Path, result: Output) -> int:
    """As `verify`, of the copy."""
    with output.progress("copying") as progress:
        copied = shards.restore(saved, directory, progress.update)
    places = {"backup": str(saved), "directory": str(directory), "bytes": copied}
    return _tell(directory, places, {}, result)


def _tell(
    directory: Path,
    facts: dict[str, Any],
    copied: dict[str, dict[str, Any]],
    result: Output,
) -> int:
    """`copied`: what is known of the copy of each shard."""
    with output.progress("verifying") as progress:
        reports = shards.verify(directory, progress.update)
    ok = all(report.ok for report in reports.values())
    if result is Output.JSON:
        each = {
            name: {"ok": report.ok, **dataclasses.asdict(report), **copied.get(name, {})}
            for name, report in reports.items()
        }
        output.json_document({**facts, "ok": ok, "shards": each})
        return 0 if ok else 1
    if "topics" in facts:
        output.facts({"topics": facts["topics"]})
    rows = [
        {
            "shard": name, "records": report.records, "segments": report.segments, "bytes": report.end - report.start,
            "state": "whole" if report.ok else "damaged",
        }
        for name, report in reports.items()
    ]  # fmt: skip
    output.table(rows, [*rows[0]])
    for name, report in reports.items():
        for low, high in report.damaged:
            files = in_files(directory / name, low, high)
            output.line(f"problem: {name}: log positions {low} to {high} are damaged{files}")
        for problem in report.problems:
            output.line(f"problem: {name}: {problem}")
    output.line("whole" if ok else "damaged")
    return 0 if ok else 1
