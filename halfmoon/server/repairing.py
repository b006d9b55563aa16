"""`halfmoon log repair`: what a data directory has lost, by topic and offset, and making it whole without that.

A start works out what is lost (core/recovery.py, core/salvage.py), so the same code does it here: to look, on a copy
that shares the large files, and then on the directory itself. What a start does not see is added: all of the log is
read, and what is damaged in a stretch that has an index is indexed again.

Afterwards one frame that says "nothing here" stands in for each lost stretch. It is a frame of every version. Lost
offsets stay lost: they are answered with CORRUPT_MESSAGE until they expire. The files as they were are kept.

Batches that nobody can read go the same way, but nothing is lost with them: their offsets are a hole, as compaction
leaves them, and readers go on behind it. Index files that are wrong are made again.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import msgspec
from msgspec import Struct

from halfmoon.config.settings import NEW_NODE, load_settings
from halfmoon.core import clean_files, identity
from halfmoon.core.catalog import snapshot
from halfmoon.core.identity import Identity
from halfmoon.core.kernel import Kernel
from halfmoon.core.storage import index
from halfmoon.core.storage.files import DIRECTORY_MODE, OsFileSystem, write_file
from halfmoon.core.storage.log_files import FOLDER, list_segments
from halfmoon.core.storage.scan import read_header
from halfmoon.errors import StartError
from halfmoon.hooks.plugins import load_plugins
from halfmoon.offline.opening import open_segments, refuse_shards
from halfmoon.offline.verifying import verify
from halfmoon.plugins import BUILT_IN
from halfmoon.schema.snapshot import CLEAN_BASE
from halfmoon.server.assembly import Node
from halfmoon.server.clock import SystemClock
from halfmoon.server.standing_in import stand_in, stand_in_compacted
from halfmoon.uuids import new_uuid

KEPT = "damaged"
"""The folder of a data directory in which the files stay as they were; a folder in it for each repair."""
_LINKED = (FOLDER, index.FOLDER, clean_files.FOLDER)

Progress = Callable[[int, int], None]
_Stretches = list[tuple[int, int]]


class Lost(Struct):
    """Offsets [from, to) of a partition."""

    topic: str
    partition: int
    low: int
    high: int


class Findings(Struct):
    cluster_id: str
    """That of meta.json, or the one it is to get."""
    node_id: int
    """The same."""
    identity_lost: bool
    missing: list[tuple[int, int]]
    """Log positions whose files are gone or cut short."""
    damaged: list[tuple[int, int]]
    """Log positions of all that is lost."""
    unreadable_at: list[tuple[int, int]]
    """Log positions of batches that nobody can read: their records are not what their header says."""
    rebuildable: list[str]
    """Files that are wrong and can be made again."""
    lost: list[Lost]
    unreadable: list[Lost]
    """Offsets of the batches at `unreadable_at`."""

    @property
    def whole(self) -> bool:
        return not (self.identity_lost or self.damaged or self.missing or self.unreadable_at or self.rebuildable)


def examine(
    directory: Path, cluster_id: str | None = None, node_id: int | None = None, progress: Progress | None = None
) -> Findings:
    """What a repair would do; the directory stays as it is. Its broker must not run. `cluster_id`, `node_id`: for a
    directory without meta.json; None: a new one, and NEW_NODE. Raises StartError, OSError."""
    refuse_shards(OsFileSystem(directory, read_only=True))
    known = _identity(directory)
    if known is not None:
        _refuse_other("cluster id", cluster_id, known.cluster_id)
        _refuse_other("node id", node_id, known.node_id)
    new_id = NEW_NODE if node_id is None else node_id
    meta = known or Identity(identity.FORMAT, cluster_id or new_uuid(os.urandom), new_id)
    with tempfile.TemporaryDirectory(prefix=".repair-", dir=directory) as clone:
        copy = Path(clone)
        _clone(directory, copy, meta)
        report = verify(copy, progress)
        _forget_derived(copy, report.damaged, report.rebuildable)
        kernel = _recovered(copy, meta)
        missing = kernel.report.missing
        damaged = _joined([*report.damaged, *kernel.report.damaged])
        lost = [
            Lost(partition.topic.name, partition.index, low, high)
            for partition in kernel.catalog.partitions()
            for low, high in partition.queue.damaged
        ]
        unreadable = [_offsets_at(kernel, position) for position, _ in report.unreadable_at]
        kernel.log.close()
    return Findings(
        meta.cluster_id, meta.node_id, known is None, missing, damaged, report.unreadable_at, report.rebuildable, lost,
        unreadable,
    )  # fmt: skip


def repair(directory: Path, findings: Findings, stamp: str) -> Path:
    """Do it; returns the folder with the files as they were. `stamp`: its name. Raises StartError, OSError."""
    kept = directory / KEPT / stamp
    # Each folder by itself: with `parents` the mode is only the last one's.
    for folder in (kept.parent, kept):
        folder.mkdir(DIRECTORY_MODE, exist_ok=folder is not kept)
    for path in _touched(directory, findings):
        shutil.copy2(directory / path, kept / path.replace("/", "-"))
    fs = OsFileSystem(directory)
    meta = _identity(directory)
    if meta is None:
        meta = Identity(identity.FORMAT, findings.cluster_id, findings.node_id)
        write_file(fs, identity.PATH, [msgspec.json.encode(meta)])
    _forget_derived(directory, findings.damaged, findings.rebuildable)
    kernel = _recovered(directory, meta)
    generation = kernel.report.generation
    # What a start cannot find out any more, once it finds nothing where these frames are.
    snapshot.save(fs, snapshot.take(kernel.catalog, kernel.log.end, kernel.log.generation))
    kernel.log.close()
    replaced = _joined([*findings.damaged, *findings.unreadable_at])
    with open_segments(fs) as segments:
        stand_in(fs, segments, [each for each in replaced if each[0] < CLEAN_BASE], generation)
    stand_in_compacted(fs, [each for each in replaced if each[0] >= CLEAN_BASE])
    _forget_derived(directory, findings.unreadable_at, [])
    _recovered(directory, meta).log.close()
    return kept


def _refuse_other(what: str, given: object, known: object) -> None:
    if given is not None and given != known:
        raise StartError(f"meta.json is whole and says that the {what} is {known}, not {given}")


def _offsets_at(kernel: Kernel, position: int) -> Lost:
    """Of the batch whose frame begins there. Raises StartError, OSError."""
    frame = read_header(kernel.log.segment_at(position), position, 0)
    topic = kernel.catalog.by_number.get(frame.topic_number)
    name = f"(deleted topic {frame.topic_number})" if topic is None else topic.name
    return Lost(name, frame.partition, frame.base_offset, frame.base_offset + frame.span)


def _identity(directory: Path) -> Identity | None:
    """None where there is none that can be read. Raises StartError where a newer program wrote it."""
    with contextlib.suppress(FileNotFoundError, msgspec.DecodeError):
        found = msgspec.json.decode((directory / identity.PATH).read_bytes(), type=Identity)
        if found.format > identity.FORMAT:
            raise StartError(f"the data directory is of format {found.format}, of a newer version")
        return found
    if not list_segments(OsFileSystem(directory, read_only=True)):
        raise StartError("no data directory: there is neither meta.json nor a log in it")
    return None


def _clone(directory: Path, copy: Path, meta: Identity) -> None:
    """A directory that a start may change. Segments share their bytes: a start writes nothing into them that is not
    there already, and removes names only."""
    for folder in _LINKED:
        if (directory / folder).is_dir():
            (copy / folder).mkdir()
            for path in (directory / folder).iterdir():
                if path.name != "spare" and path.is_file():
                    (copy / folder / path.name).hardlink_to(path)
    for name in ("checkpoint", "clean", "bounds"):
        if (directory / name).exists():
            shutil.copy2(directory / name, copy / name)
    (copy / identity.PATH).write_bytes(msgspec.json.encode(meta))


def _recovered(directory: Path, meta: Identity) -> Kernel:
    """Its log must be closed. Raises StartError, OSError."""
    settings = load_settings({"node": {"id": meta.node_id, "data_dir": str(directory)}}, {}, {})
    configs = load_plugins(settings, BUILT_IN).topic_configs
    quiet = logging.getLogger("halfmoon.repair")
    node = Node(OsFileSystem(directory), settings, SystemClock(), os.urandom, logger=quiet, more_topic_configs=configs)
    node.kernel.open()  # and no generation is begun: nothing is appended
    return node.kernel


def _forget_derived(directory: Path, stretches: _Stretches, paths: list[str]) -> None:
    """Remove these files, and the indexes of these stretches: so that a start looks into the log, and makes them
    again."""
    for path in {*paths, *_indexes_of(directory, stretches)}:
        (directory / path).unlink(missing_ok=True)


def _indexes_of(directory: Path, stretches: _Stretches) -> list[str]:
    fs = OsFileSystem(directory, read_only=True)
    found = [path for begin, end, path in index.listed(fs) if _meets(begin, end, stretches)]
    compacted = _compacted(directory)
    return found + [clean_files.index_path(begin) for begin, end, _ in compacted if _meets(begin, end, stretches)]


def _compacted(directory: Path) -> list[tuple[int, int, str]]:
    """(from, to, path) of the compacted segments."""
    paths = [
        (start, clean_files.data_path(start)) for start in clean_files.listed(OsFileSystem(directory, read_only=True))
    ]
    return [(start, start + (directory / path).stat().st_size, path) for start, path in paths]


def _meets(begin: int, end: int, stretches: _Stretches) -> bool:
    return any(begin < high and low < end for low, high in stretches)


def _joined(stretches: list[tuple[int, int]]) -> list[tuple[int, int]]:
    joined: list[tuple[int, int]] = []
    for low, high in sorted(stretches):
        if joined and low <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(high, joined[-1][1])
        else:
            joined.append((low, high))
    return joined


def _touched(directory: Path, findings: Findings) -> list[str]:
    """The files that a repair changes or removes, but for those that it only adds."""
    fs, stretches = OsFileSystem(directory, read_only=True), [*findings.damaged, *findings.unreadable_at]
    segments = [(start, start + (directory / path).stat().st_size, path) for start, path in list_segments(fs)]
    files = [path for begin, end, path in [*segments, *_compacted(directory)] if _meets(begin, end, stretches)]
    found = {identity.PATH, "checkpoint", "bounds", *files, *_indexes_of(directory, stretches), *findings.rebuildable}
    return sorted(path for path in found if (directory / path).exists())
