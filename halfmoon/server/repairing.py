"""`halfmoon log repair`: what a data directory has lost, by topic and offset, and making it whole without that.

A start works out what is lost (core/recovery.py, core/salvage.py), so the same code does it here: to look, on a copy
that shares the large files, and then on the directory itself. What a start does not see is added: all of the log is
read, and what is damaged in a stretch that has an index is indexed again.

Afterwards one frame that says "nothing here" stands in for each lost stretch. It is a frame of every version. Lost
offsets stay lost: they are answered with CORRUPT_MESSAGE until they expire. The files as they were are kept.
"""

from __future__ import annotations

import base64
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
from halfmoon.core import identity
from halfmoon.core.identity import Identity
from halfmoon.core.kernel import Kernel
from halfmoon.core.storage import index
from halfmoon.core.storage.files import ASIDE, OsFileSystem, write_file
from halfmoon.core.storage.frame import HEADER_BYTES, BadFrameError, Kind, encode
from halfmoon.core.storage.log_files import FOLDER, MissingFile, list_segments, segment_path
from halfmoon.core.storage.scan import candidates, read_frame
from halfmoon.core.storage.segment import Segment
from halfmoon.errors import StartError
from halfmoon.hooks.plugins import load_plugins
from halfmoon.offline.opening import open_segments
from halfmoon.offline.verifying import verify
from halfmoon.plugins import BUILT_IN
from halfmoon.server.assembly import Node
from halfmoon.server.clock import SystemClock

KEPT = "damaged"
"""The folder of a data directory in which the files stay as they were; a folder in it for each repair."""
_LINKED = (FOLDER, index.FOLDER, "cleaned")
_LARGEST = 1 << 30

Progress = Callable[[int, int], None]


class Lost(Struct):
    """Offsets [from, to) of a partition."""

    topic: str
    partition: int
    low: int
    high: int


class Findings(Struct):
    cluster_id: str
    """That of meta.json, or the one it is to get."""
    identity_lost: bool
    missing: list[tuple[int, int]]
    """Log positions whose files are gone or cut short."""
    damaged: list[tuple[int, int]]
    """Log positions of all that is lost."""
    lost: list[Lost]

    @property
    def whole(self) -> bool:
        return not self.identity_lost and not self.damaged and not self.missing


def examine(directory: Path, cluster_id: str | None = None, progress: Progress | None = None) -> Findings:
    """What a repair would do; the directory stays as it is. Its broker must not run. `cluster_id`: for a directory
    without meta.json; None: a new one. Raises StartError, OSError."""
    known = _identity(directory)
    meta = known or Identity(identity.FORMAT, cluster_id or _new_cluster_id(), NEW_NODE)
    with tempfile.TemporaryDirectory(prefix=".repair-", dir=directory) as clone:
        copy = Path(clone)
        _clone(directory, copy, meta)
        damaged = verify(copy, progress).damaged
        _forget_indexes(copy, damaged)
        kernel = _recovered(copy, meta)
        missing = kernel.report.missing
        damaged = _joined([*damaged, *kernel.report.damaged])
        lost = [
            Lost(partition.topic.name, partition.index, low, high)
            for partition in kernel.catalog.partitions()
            for low, high in partition.queue.damaged
        ]
        kernel.log.close()
    return Findings(meta.cluster_id, known is None, missing, damaged, lost)


def repair(directory: Path, findings: Findings, stamp: str) -> Path:
    """Do it; returns the folder with the files as they were. `stamp`: its name. Raises StartError, OSError."""
    kept = directory / KEPT / stamp
    kept.mkdir(parents=True)
    for path in _touched(directory, findings):
        shutil.copy2(directory / path, kept / path.replace("/", "-"))
    fs = OsFileSystem(directory)
    meta = _identity(directory)
    if meta is None:
        meta = Identity(identity.FORMAT, findings.cluster_id, NEW_NODE)
        write_file(fs, identity.PATH, [msgspec.json.encode(meta)])
    _forget_indexes(directory, findings.damaged)
    kernel = _recovered(directory, meta)
    generation = kernel.report.generation
    kernel.log.close()
    with open_segments(fs) as segments:
        _replace(fs, segments, findings.damaged, generation)
    return kept


def _new_cluster_id() -> str:
    return base64.urlsafe_b64encode(os.urandom(16)).decode().rstrip("=")


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


def _forget_indexes(directory: Path, damaged: list[tuple[int, int]]) -> None:
    """So that a start looks into these stretches."""
    for begin, end, path in index.listed(OsFileSystem(directory)):
        if any(begin < high and low < end for low, high in damaged):
            (directory / path).unlink()


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
    found = [name for name in (identity.PATH, "checkpoint", "bounds") if (directory / name).exists()]
    fs = OsFileSystem(directory, read_only=True)
    stretches = [(start, start + (directory / path).stat().st_size, path) for start, path in list_segments(fs)]
    for begin, end, path in [*stretches, *index.listed(fs)]:
        if any(begin < high and low < end for low, high in findings.damaged):
            found.append(path)
    return found


def _replace(fs: OsFileSystem, segments: list[Segment], damaged: list[tuple[int, int]], generation: int) -> None:
    """A frame of nothing for each damaged stretch, within each file."""
    if segments and damaged and damaged[0][0] < segments[0].start:  # the oldest files
        _make_file(fs, damaged[0][0], segments[0].start, _generation_at(segments, segments[0].start, generation))
    last = segments[-1].end if segments else 0
    for low, high in damaged:
        after = _generation_at(segments, high, generation)
        if high > last:
            _make_file(fs, max(low, last), high, after)
        for at, segment in enumerate(segments):
            begin, end = max(low, segment.start), min(high, segment.end)
            if begin >= end:
                continue
            if isinstance(segment.file, MissingFile):
                if end - begin >= HEADER_BYTES:
                    _make_file(fs, begin, end, after)
                continue
            behind = segments[at + 1] if at + 1 < len(segments) else None
            if behind is not None and isinstance(behind.file, MissingFile) and behind.size < HEADER_BYTES:
                end = behind.end  # too little for a file of its own
            _write_nothing(fs, segment_path(segment.start), segment.start, begin, end, after)


def _generation_at(segments: list[Segment], position: int, last: int) -> int:
    """That of the next whole frame: what stands between two frames is of neither's more than the second's."""
    for segment in segments:
        for at in candidates(segment, position, segment.end):
            with contextlib.suppress(BadFrameError):
                return read_frame(segment, at, 0)[0].generation
    return last


def _nothing(begin: int, end: int, generation: int) -> bytes:
    return encode(Kind.END, end - begin, begin, 0, generation, -1, -1, 0, 0, 0, 0, 0)


def _make_file(fs: OsFileSystem, begin: int, end: int, generation: int) -> None:
    for start in range(begin, end, _LARGEST):
        upto = min(start + _LARGEST, end)
        if end - upto < HEADER_BYTES:
            upto = end
        path = segment_path(start)
        with contextlib.suppress(FileNotFoundError):
            fs.remove(path + ASIDE)
        file = fs.open(path + ASIDE, create=True)
        file.pwritev([_nothing(start, upto, generation)], 0)
        file.pwritev([b"\0"], upto - start - 1)
        file.sync()
        file.close()
        fs.rename(path + ASIDE, path)
        fs.sync_directory(FOLDER)
        if upto == end:
            break


def _write_nothing(fs: OsFileSystem, path: str, start: int, begin: int, end: int, generation: int) -> None:
    """Into a file that is there; into a copy of it, since a backup may share it."""
    if end - begin < HEADER_BYTES:
        return
    aside = path + ASIDE
    shutil.copyfile(fs.root / path, fs.root / aside)
    file = fs.open(aside)
    if end - start > file.size():
        file.pwritev([b"\0"], end - start - 1)
    file.pwritev([_nothing(begin, end, generation)], begin - start)
    file.sync()
    file.close()
    fs.rename(aside, path)
    fs.sync_directory(FOLDER)
