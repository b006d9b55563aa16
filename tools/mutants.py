"""Breaks one rule at a time, in a copy, and says whether a test notices.

    python tools/mutants.py [NAME …]            a rule of the log; the tests of the core
    python tools/mutants.py --torture [NAME …]  a promise to clients; scenarios from seeds (tests/torture)

Each mutant is a rule of storage (docs/decisions, 0001 to 0013), switched off. Exit 1 if one survives. Takes some
minutes; run it after a change of recovery, of the frame, or of the crash tests.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = Path("halfmoon")
CORE, STORAGE, CLEANER, SERVICES = "core/", "core/storage/", "services/cleaner/", "services/"

QUICKEST = (
    "scan",
    "recovery",
    "frame",
    "commitlog",
    "broker",
    "producer_state",
    "housekeeping",
    "crash_points",
    "cleaner",
    "clean_files",
    "cleaner_model",
)
"""Their tests are run first, because they notice most."""


class Mutant(NamedTuple):
    """`old`, which stands once in `file` (below the package), becomes `new`."""

    name: str
    file: str
    old: str
    new: str


MUTANTS = (
    Mutant("stale-frames", STORAGE + "frame.py", "if frame.position != position:", "if False:"),
    Mutant("generation", STORAGE + "scan.py", "if frame.generation < generation:", "if False:"),
    Mutant("rot-is-cut", STORAGE + "scan.py", "return self.flushed > position", "return False"),
    Mutant(
        "no-look-ahead", STORAGE + "scan.py",
        "if self.flushed <= position and not self._looked_ahead:", "if False:",
    ),
    Mutant("half-a-group", STORAGE + "scan.py", "elif frame.parts == 1:", "elif True:"),
    Mutant("group-tail-kept", STORAGE + "scan.py", "self.position = begin", "pass"),
    Mutant("payload-unchecked", STORAGE + "frame.py", "if crc32c(payload[21:]) != crc:", "if False:"),
    Mutant("tail-not-rewritten", STORAGE + "commitlog.py", "_write_again(segment, low, high)", "pass"),
    Mutant("index-before-tail", CORE + "recovery.py", "self._prove(frozen.end)", "pass"),
    Mutant(
        "head-unproven", CORE + "recovery.py",
        "if segment.start in indexed or segment is oldest:", "if True:",
    ),
    Mutant("clean-mark-stays", CORE + "clean_mark.py", "fs.remove(CLEAN_MARK)", "pass"),
    Mutant("same-generation", STORAGE + "commitlog.py", "return generation + 1", "return generation"),
    Mutant("ack-before-sync", CORE + "turn.py", "self._log.flushed if self._sync", "self._log.written if self._sync"),
    Mutant("failed-sync-counts", STORAGE + "commitlog.py", "        if error is not None:\n", "        if False:\n"),
    Mutant("names-unsynced", STORAGE + "log_files.py", "self._fs.sync_directory(FOLDER)", "pass"),
    Mutant(
        "recycled-at-once", STORAGE + "commitlog.py", "self._recycled = result.recycled",
        "self._spare = result.recycled",
    ),
    Mutant("goes-at-once", CORE + "retention.py", "self._pending_at = upto, log.end", "self._pending_at = upto, 0"),
    Mutant(
        "headless-segment", STORAGE + "commitlog.py",
        "self.segments[-1].start >= end:", "self.segments[-1].start > end:",
    ),
    Mutant(
        "moved-still-lives", CORE + "retention.py", "max(partition.start_offset, partition.moved_upto):",
        "partition.start_offset:",
    ),
    Mutant("closing-grows", CORE + "dispatch.py", "if partition in self.closing:", "if False:"),
    Mutant(
        "changed-unsaid", CORE + "append.py",
        "base_offset + span\n        partition.saved = None\n", "base_offset + span\n",
    ),
    Mutant("replaced-goes-at-once", CORE + "clean_files.py", "self._pending[0][0] <= self._log.flushed", "True"),
    Mutant(
        "clean-file-unsynced", CLEANER + "writing.py", "        self._file.sync()\n        self._file.close()",
        "        self._file.close()",
    ),
    Mutant(
        "clean-names-unsynced", CLEANER + "cleaning.py", "    fs.sync_directory(clean_files.FOLDER)\n", "    pass\n"
    ),
    Mutant(
        "index-after-data", CLEANER + "cleaning.py",
        "(clean_files.index_path(record.start), clean_files.data_path(record.start)):\n        fs.rename",
        "(clean_files.data_path(record.start),):\n        fs.rename",
    ),
    Mutant("rot-is-copied", CLEANER + "reading.py", "check_payload(found, payload)", "pass"),
    Mutant(
        "last-batch-cleaned", CLEANER + "planning.py", "min(partition.stable_offset, queue.last_base())",
        "partition.stable_offset",
    ),
    Mutant(
        "unstable-cleaned", CLEANER + "planning.py", "min(partition.stable_offset, queue.last_base())",
        "queue.last_base()",
    ),
    Mutant(
        "tail-below-moved", CORE + "recovery.py", "if any(partition.queue.reaches_below(",
        "if False and any(partition.queue.reaches_below(",
    ),
    Mutant(
        "unpublished-kept", CORE + "clean_files.py", "            fs.remove(path)\n        if unwanted:",
        "            pass\n        if unwanted:",
    ),
    Mutant(
        "aborted-hides", CLEANER + "deciding.py", "if header.attributes & CONTROL or self._aborted.hold(header):",
        "if header.attributes & CONTROL:",
    ),
    Mutant("marker-not-needed", CLEANER + "cleaning.py", "unmarked.add(header.producer_id)", "pass"),
    Mutant(
        "tombstones-go-at-once", CLEANER + "compaction.py", "if has_tombstones and horizon_ms is not None and",
        "if has_tombstones and",
    ),
    Mutant("undecided-stay", CLEANER + "deciding.py", "max(self._marks) >= UNDECIDED", "False"),
    Mutant(
        "compacted-expires", CORE + "retention.py", "if rules.deletes and rules.retention_ms >= 0:",
        "if rules.retention_ms >= 0:",
    ),
    Mutant("duplicates-taken", CORE + "producer_state.py", "if batch.first_sequence == sequence and", "if False and"),
    Mutant(
        "end-apart", SERVICES + "transactions/ending.py",
        "position = self._appender.append_group(pieces, now_ms, last=record, small=True)",
        "self._appender.append_group(pieces, now_ms, small=True)\n"
        "        position = self._appender.append_control(record)",
    ),
    Mutant(
        "outcome-unwritten", SERVICES + "transactions/prepared.py",
        "self._appender.append_control(\n            control.TransactionPrepared(",
        "self._state.apply(\n            control.TransactionPrepared(",
    ),
)  # fmt: skip


KAFKA, STORE = "adapters/kafka/api/", "plugins/store/"
AFTER = "when_durable(ctx, position,"
TORTURE_S = 300
"""So long scenarios are played, at most."""

OF_TORTURE = (
    Mutant("duplicates-taken", CORE + "producer_state.py", "if batch.first_sequence == sequence and", "if False and"),
    Mutant("ack-before-sync", CORE + "turn.py", "self._log.flushed if self._sync", "self._log.written if self._sync"),
    Mutant("order-behind-refused", CORE + "append.py", "producers.refused(", "len(\"refused\") or producers.refused("),
    Mutant(
        "marker-forgotten", SERVICES + "transactions/ending.py",
        "for place in places if (partition", "for place in sorted(places)[1:] if (partition",
    ),
    Mutant("end-unheard", KAFKA + "api_26_end_txn.py", "ctx.after(position,", "ctx.after(0,"),
    Mutant("nack-twice", STORE + "retry/plugin.py", "or self._was_nacked(group, *place)", "or False"),
    Mutant("one-retry-more", STORE + "retry/plugin.py", "if times >= limit or", "if times > limit or"),
    Mutant(
        "too-early", SERVICES + "waiting/due_times.py", "self._next_millis[0] <= now_ms and len(found)",
        "self._next_millis[0] <= now_ms + 400 and len(found)",
    ),
    Mutant(
        "cancel-forgotten", SERVICES + "waiting/cancels.py", "keys = self._state.cancels.get(target.number)",
        "keys = None and self._state.cancels.get(target.number)",
    ),
    Mutant(
        "accept-unheard", "adapters/kafka/share_groups.py", "when_durable(position, partial", "when_durable(0, partial",
    ),
    Mutant("commit-unheard", KAFKA + "api_08_offset_commit.py", AFTER, "when_durable(ctx, 0,"),
    Mutant("delete-unheard", KAFKA + "api_20_delete_topics.py", '@tells_state(each_of("responses"))\n', ""),
    Mutant("view-again", STORE + "view/updater.py", "range=dealt_with)", "range=None)"),
    Mutant(
        "half-a-group", STORAGE + "scan.py", "elif frame.parts == 1:", "elif True:",
    ),
    Mutant("tail-not-rewritten", STORAGE + "commitlog.py", "_write_again(segment, low, high)", "pass"),
)  # fmt: skip


def occurrences(mutant: Mutant, root: Path = ROOT) -> int:
    """How often its text stands in its file; once, or it mutates nothing. 0 where there is no such file."""
    path = root / PACKAGE / mutant.file
    return path.read_text(encoding="utf-8").count(mutant.old) if path.exists() else 0


def quickest(root: Path, name: str) -> list[Path]:
    return [path for folder in ("core", "services") for path in (root / "tests" / folder).rglob(f"test_{name}.py")]


def main(names: list[str]) -> int:
    by_torture = "--torture" in names
    names = [name for name in names if name != "--torture"]
    wanted = [mutant for mutant in (OF_TORTURE if by_torture else MUTANTS) if not names or mutant.name in names]
    survivors = []
    with tempfile.TemporaryDirectory(prefix="halfmoon-mutants-") as folder:
        copy = Path(folder)
        for part in ("halfmoon", "tests", "pyproject.toml", "broker.yaml", "docs"):
            source = ROOT / part
            if source.is_dir():
                shutil.copytree(source, copy / part, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(source, copy / part)
        for mutant in wanted:
            path = copy / PACKAGE / mutant.file
            text = path.read_text()
            found = occurrences(mutant, copy)
            if found != 1:
                raise SystemExit(f"{mutant.name}: {mutant.old!r} stands {found} times in {path.name}")
            path.write_text(text.replace(mutant.old, mutant.new))
            noticed = _noticed_by_torture(copy) if by_torture else _noticed_by(copy)
            path.write_text(text)
            print(f"{mutant.name:20} {noticed or 'SURVIVES'}", flush=True)
            if noticed is None:
                survivors.append(mutant.name)
    return 1 if survivors else 0


def _noticed_by(copy: Path) -> str | None:
    """The first test that fails; None if none does."""
    first = [str(path) for name in QUICKEST for path in quickest(copy, name)]
    return _failure(copy, first) or _failure(copy, ["tests/core", "tests/config", "tests/schema", "tests/services"])


def _noticed_by_torture(copy: Path) -> str | None:
    """What the first scenario that fails says."""
    command = [sys.executable, "-m", "tests.torture", "--first", "0", "--seconds", str(TORTURE_S), "--stop"]
    environment = {"PYTHONPATH": ".", "PATH": "", "PYTHONHASHSEED": "0"}
    done = subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True)
    if done.returncode == 0:
        return None
    return next((line[:150] for line in done.stdout.splitlines() if line.startswith("FAILED")), done.stderr[-300:])


def _failure(copy: Path, tests: list[str]) -> str | None:
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests]
    done = subprocess.run(command, cwd=copy, env={"PYTHONPATH": ".", "PATH": ""}, capture_output=True, text=True)
    if done.returncode == 0:
        return None
    return next(
        (line.split(" - ")[0] for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))), "?"
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
