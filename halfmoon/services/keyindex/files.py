"""The key files of a log, and which stretches of it they leave out."""

from __future__ import annotations

from operator import attrgetter
from typing import NamedTuple

from sortedcontainers import SortedKeyList

from halfmoon.core.storage.files import FileSystem
from halfmoon.core.storage.storage import WriteSide
from halfmoon.schema.snapshot import CLEAN_BASE
from halfmoon.services.keyindex import key_file
from halfmoon.services.keyindex.key_file import KeyFile
from halfmoon.services.keyindex.stretch import Stretch

_start = attrgetter("start")


class Missing(NamedTuple):
    """What no file covers."""

    gaps: list[tuple[int, int]]
    """Stretches of the log [from, to), in its order."""
    compacted: list[int]
    """Where compacted segments begin."""


class KeyFiles:
    """Of the log and its compacted segments; none reaches over a segment's end."""

    def __init__(self, log: WriteSide) -> None:
        self._log = log
        self.all: SortedKeyList[KeyFile] = SortedKeyList(key=_start)
        """Opened, sorted by where they start."""

    def open(self) -> Missing:
        """Open those that fit the recovered log; remove all others. Raises OSError."""
        log, fs = self._log, self._log.fs
        fs.make_directory(key_file.FOLDER)
        fs.sync_directory("")
        unwanted = list(key_file.leftovers(fs))
        missing = Missing([], [])
        at = log.start
        cleaned = {}
        for begin, end, path in key_file.listed(fs):
            if begin >= CLEAN_BASE:
                cleaned[begin, end] = path
                continue
            inside = any(segment.start <= begin and end <= segment.end for segment in log.segments)
            if at <= begin < end <= log.end and inside:
                try:
                    self.all.add(key_file.open_file(fs, path))
                except ValueError:
                    pass
                else:
                    if at < begin:
                        missing.gaps.append((at, begin))
                    at = end
                    continue
            unwanted.append(path)
        if at < log.end:
            missing.gaps.append((at, log.end))
        for segment in log.cleaned:
            found = cleaned.get((segment.start, segment.end))
            try:
                if found is None:
                    raise ValueError("there is none")
                self.all.add(key_file.open_file(fs, found))
            except ValueError:
                missing.compacted.append(segment.start)
            else:
                del cleaned[segment.start, segment.end]
        _remove(fs, [*unwanted, *cleaned.values()])
        return missing

    def last(self) -> KeyFile | None:
        """The last of the log."""
        return next((file for file in reversed(self.all) if file.start < CLEAN_BASE), None)

    def write(self, stretch: Stretch) -> KeyFile:
        """Write a file, which `add` then takes in; meant for a thread. Raises OSError."""
        return key_file.write(self._log.fs, stretch)

    def add(self, file: KeyFile) -> None:
        if file.end > self._log.start:
            self.all.add(file)
        else:  # it has expired while it was written
            self._log.fs.remove(file.path)

    def remove(self, path: str) -> None:
        """A file that is not in use."""
        self._log.fs.remove(path)

    def forget(self, position: int) -> list[str]:
        """The log begins at `position` now. Returns the paths of files that are needed no more."""
        gone = []
        while self.all and self.all[0].end <= position:
            gone.append(self.all.pop(0).path)
        return gone

    def went(self, start: int) -> list[str]:
        """As `forget`, of a compacted segment."""
        gone = list(self.all.irange_key(start, start))
        for file in gone:
            self.all.remove(file)
        return [file.path for file in gone]

    def between(self, from_ms: int, to_ms: int) -> list[KeyFile]:
        """Those with entries of frames that were stored between the two times (Unix ms)."""
        return [file for file in self.all if len(file) and file.oldest_ms <= to_ms and file.newest_ms >= from_ms]


def discard(fs: FileSystem) -> None:
    """Remove all there are, durably. Raises OSError."""
    _remove(fs, [path for _, _, path in key_file.listed(fs)] + list(key_file.leftovers(fs)))


def _remove(fs: FileSystem, paths: list[str]) -> None:
    for path in paths:
        fs.remove(path)
    if paths:
        fs.sync_directory(key_file.FOLDER)
