"""A copy of a data directory while its broker runs, `halfmoon backup`, and the way back, `halfmoon restore`.

A backup has the whole log: the sealed segments with their index and key files, and the segment being written up to its
last whole frame, which is at least what has been acknowledged. Beside them the catalog as it stood where that segment
begins, which the snapshot at its head says. A start on the copy reads the rest of it from the segment.

Of the clean files (core/clean_files.py) those are taken that the log names. Some may be replaced by newer ones
meanwhile; then the segment being written is copied again, because it says so.

On one file system, sealed segments and index files are hard-linked: they are never changed, and the broker reuses the
file of an expired segment only if no other name leads to it (`log_files.Retired`). Elsewhere they are copied, and a
copy counts only if the segment still has its name afterwards: a file is renamed before it is reused. Segments that
expire meanwhile are left out, with all before them.

A restored directory shares nothing with its backup, which may be restored again.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from halfmoon.config.settings import Settings
from halfmoon.core import clean_files, identity
from halfmoon.core.catalog import snapshot
from halfmoon.core.catalog.catalog import Catalog
from halfmoon.core.storage import index
from halfmoon.core.storage.files import LOCK, OsFileSystem, copy_file, read_file, write_all, write_file
from halfmoon.core.storage.frame import Kind
from halfmoon.core.storage.log_files import FOLDER, segment_path
from halfmoon.core.storage.scan import Scan
from halfmoon.core.storage.segment import Segment
from halfmoon.errors import StartError
from halfmoon.offline.opening import open_segments
from halfmoon.schema import control
from halfmoon.schema.snapshot import Snapshot, encode_again
from halfmoon.services.keyindex import key_file

Progress = Callable[[int, int], None]
"""Called now and then with bytes done and bytes there are."""

_COPY_BYTES = 16 << 20
ATTEMPTS = 20
"""Times that it is looked for clean files which have been replaced since."""


@dataclass(slots=True)
class BackupReport:
    """What a backup holds."""

    topics: int = 0
    """Internal ones included."""
    bytes: int = 0
    start: int = 0
    end: int = 0
    """Log positions: the copy holds [start, end)."""
    segments: int = 0
    linked: int = 0
    """How many of them share their bytes with the original."""
    index_files: int = 0
    key_files: int = 0
    clean_files: int = 0
    expired: int = 0
    """Segments that expired while the backup was made."""


class Copies:
    """Copies of files, each made once: the shards that an import has made share the files of before, by hard links.
    What has several names has them in the copy, too."""

    def __init__(self) -> None:
        self._made: dict[tuple[int, ...], Path] = {}

    def copy(self, source: Path, goal: Path) -> None:
        """Raises OSError; FileNotFoundError where there is no source."""
        if not self.link(source, goal):
            copy_file(source, goal)
            self.remember(source, goal)

    def link(self, source: Path, goal: Path) -> bool:
        """False where this file has not been copied under another name. Raises FileNotFoundError."""
        made = self._made.get(_file_of(source))
        if made is None:
            return False
        try:
            os.link(made, goal)
        except OSError:  # it is gone, or a file may not have so many names
            return False
        return True

    def remember(self, source: Path, goal: Path) -> None:
        """`goal` is a copy of it, which nobody will change."""
        with contextlib.suppress(FileNotFoundError):
            self._made[_file_of(source)] = goal


def _file_of(path: Path) -> tuple[int, ...]:
    """The same for all names of a file, and another where its number was given to a new one."""
    found = path.stat()
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def backup(
    directory: str | os.PathLike[str],
    target: str | os.PathLike[str],
    progress: Progress | None = None,
    copies: Copies | None = None,
) -> BackupReport:
    """Copy a data directory to `target`, which must not exist or be empty. `copies`: of the other shards, where this is
    one. Raises StartError, OSError.

    What an attempt that failed leaves behind is not a data directory: `meta.json` comes last.
    """
    source = OsFileSystem(directory, read_only=True)
    goal = new_directory(target)
    meta = read_file(source, identity.PATH)
    if meta is None:
        raise StartError(f"{source.root} is no data directory: there is no {identity.PATH} in it")
    into = OsFileSystem(goal)
    with open_segments(source) as segments:
        report = _Backup(source, into, progress, copies or Copies()).run(segments)
    write_file(into, identity.PATH, [meta])
    return report


def restore(
    saved: str | os.PathLike[str],
    directory: str | os.PathLike[str],
    progress: Progress | None = None,
    copies: Copies | None = None,
) -> int:
    """Copy a backup to `directory`, which must not exist or be empty; returns how many bytes that are. `copies`: as of
    `backup`. Raises StartError, OSError. As with `backup`, `meta.json` comes last."""
    root, copies = Path(saved), copies or Copies()
    if not (root / identity.PATH).is_file():
        raise StartError(f"{root} is no backup: there is no {identity.PATH} in it")
    goal = new_directory(directory)
    _refuse_in_use(root)
    paths = sorted(path.relative_to(root) for path in root.rglob("*") if path.is_file())
    paths = [path for path in paths if path not in (Path(identity.PATH), Path(LOCK))]
    total = sum((root / path).stat().st_size for path in paths)
    done = 0
    into = OsFileSystem(goal)
    for path in paths:
        into.make_directory(str(path.parent))
        copies.copy(root / path, goal / path)
        file = into.open(str(path))
        file.sync()
        done += file.size()
        file.close()
        if progress is not None:
            progress(done, total)
    for folder in {str(path.parent) for path in paths}:
        into.sync_directory("" if folder == "." else folder)
    write_file(into, identity.PATH, [(root / identity.PATH).read_bytes()])
    return done


def _refuse_in_use(root: Path) -> None:
    """Raises StartError where a broker runs on it: what it writes meanwhile would be torn."""
    try:
        fd = os.open(root / LOCK, os.O_RDONLY)
    except OSError:
        return
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        raise StartError(f"{root} is the data directory of a running broker: use halfmoon backup") from error
    finally:
        os.close(fd)


def new_directory(path: str | os.PathLike[str]) -> Path:
    """Raises StartError where there is something already."""
    found = Path(path)
    if found.exists() and (not found.is_dir() or any(found.iterdir())):
        raise StartError(f"{found} exists already")
    return found


class _Backup:
    def __init__(self, source: OsFileSystem, into: OsFileSystem, progress: Progress | None, copies: Copies) -> None:
        self._source = source
        self._into = into
        self._progress = progress
        self._copies = copies
        self._total = 0
        self._done = 0
        self.report = BackupReport()

    def run(self, segments: list[Segment]) -> BackupReport:
        report, into = self.report, self._into
        into.make_directory(FOLDER)
        into.make_directory(clean_files.FOLDER)
        into.make_directory(index.FOLDER)
        into.make_directory(key_file.FOLDER)
        # The last segment is being written; the one before it may still be, until the last one has its head.
        while segments and (catalog := snapshot.at_head(segments[-1])) is None:
            segments = segments[:-1]
        if not segments or catalog is None:
            raise StartError("there is nothing to back up yet")
        sealed, last = segments[:-1], segments[-1]
        self._total = sum(segment.size for segment in sealed)
        kept: list[Segment] = []
        for segment in sealed:
            if self._take(segment):
                kept.append(segment)
            else:
                report.expired += 1 + len(kept)
                for before in kept:
                    into.remove(segment_path(before.start))
                kept = []
                report.linked = report.bytes = 0
        report.end = self._copy_last(last)
        report.topics = self._take_clean_files(catalog, last)
        report.segments = len(kept) + 1
        report.start = kept[0].start if kept else last.start
        report.index_files = self._take_derived(index.listed(self._source), report.start, last.start)
        report.key_files = self._take_derived(key_file.listed(self._source), report.start, last.start)
        for folder in (FOLDER, index.FOLDER, key_file.FOLDER, clean_files.FOLDER):
            into.sync_directory(folder)
        snapshot.save(into, encode_again(catalog))
        return report

    def _take(self, segment: Segment) -> bool:
        """Link or copy a sealed segment; False if it has expired."""
        path = segment_path(segment.start)
        try:
            os.link(self._source.root / path, self._into.root / path)
            self.report.linked += 1
        except FileNotFoundError:
            return False
        except OSError as error:
            if error.errno not in (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP, errno.ENOSYS):
                raise
            if not self._copy_sealed(segment):
                return False
        file = self._into.open(path)
        file.sync()  # it may have been sealed a moment ago
        file.close()
        self.report.bytes += segment.size
        self._advance(segment.size)
        return True

    def _copy_sealed(self, segment: Segment) -> bool:
        """False if it has expired."""
        path = segment_path(segment.start)
        source, goal = self._source.root / path, self._into.root / path
        try:
            if self._copies.link(source, goal):
                return True
        except FileNotFoundError:
            return False
        if not self._copy(segment, segment.size) or not source.exists():
            self._into.remove(path)
            return False
        self._copies.remember(source, goal)
        return True

    def _copy(self, segment: Segment, size: int) -> bool:
        """Copy the first `size` bytes of a segment; whether the file had so many."""
        file = self._into.open(segment_path(segment.start), create=True)
        try:
            for at in range(0, size, _COPY_BYTES):
                data = segment.file.pread(min(_COPY_BYTES, size - at), at)
                if len(data) < min(_COPY_BYTES, size - at):
                    return False
                write_all(file, [data], at)
            file.sync()
        finally:
            file.close()
        return True

    def _copy_last(self, last: Segment) -> int:
        """Copy the last segment up to the end of its last whole frame; returns that log position. Raises StartError
        where the segment has expired meanwhile."""
        scan = Scan([last], last.start, 0, last.start)
        end = last.start
        for frame, _ in scan.frames():
            end = frame.end
        path = segment_path(last.start)
        if not self._copy(last, end - last.start) or not (self._source.root / path).exists():
            raise StartError("the log expires too quickly; try again")
        self.report.bytes += end - last.start
        return end

    def _take_clean_files(self, known: Snapshot, last: Segment) -> int:
        """Those that are needed by what is taken of the log; returns how many topics that says there are. Raises
        StartError where they are replaced too quickly."""
        report, into = self.report, self._into
        taken: set[int] = set()
        for _ in range(ATTEMPTS):
            for start in clean_files.listed(self._source):
                if start not in taken and self._take_clean_file(start):
                    taken.add(start)
            catalog = self._copied_catalog(known, last)
            needed = {start for partition in catalog.partitions() for _, _, start in partition.cleaned}
            if needed <= taken:
                break
            into.remove(segment_path(last.start))
            report.bytes -= report.end - last.start
            report.end = self._copy_last(last)
        else:
            raise StartError("compacted segments change too quickly; try again")
        for start in taken - needed:
            for path in (clean_files.data_path(start), clean_files.index_path(start)):
                into.remove(path)
        report.clean_files = len(needed)
        return len(catalog.topics())

    def _copied_catalog(self, known: Snapshot, last: Segment) -> Catalog:
        """As a start on the copy will have it."""
        catalog = Catalog(Settings())
        snapshot.restore(catalog, known)
        for frame, payload in Scan([last], last.start, 0, last.start).frames():
            if frame.position >= self.report.end:
                break
            if frame.kind == Kind.CONTROL and payload is not None:
                catalog.apply(control.decode(payload))
        return catalog

    def _take_clean_file(self, start: int) -> bool:
        """Link or copy a clean file and its index; False if it is gone."""
        for path in (clean_files.data_path(start), clean_files.index_path(start)):
            source, goal = self._source.root / path, self._into.root / path
            try:
                try:
                    os.link(source, goal)
                except FileNotFoundError:
                    return False
                except OSError:
                    self._copies.copy(source, goal)
            except FileNotFoundError:
                return False
            file = self._into.open(path)
            file.sync()
            self.report.bytes += file.size()
            file.close()
        return True

    def _take_derived(self, listed: Iterable[tuple[int, int, str]], start: int, end: int) -> int:
        """Those files of stretches of the log that lie in [start, end); how many."""
        taken = 0
        for low, high, path in listed:
            if start <= low and high <= end:
                goal = self._into.root / path
                try:
                    os.link(self._source.root / path, goal)
                except FileNotFoundError:  # merged meanwhile; a start makes it again
                    continue
                except OSError:
                    self._copies.copy(self._source.root / path, goal)
                file = self._into.open(path)
                file.sync()
                file.close()
                taken += 1
        return taken

    def _advance(self, size: int) -> None:
        self._done += size
        if self._progress is not None:
            self._progress(self._done, self._total)
