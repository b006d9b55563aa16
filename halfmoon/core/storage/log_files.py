"""The files of the commitlog: their names, and what is done to them in threads, beside the log's own state."""

from __future__ import annotations

import contextlib

from msgspec import Struct

from halfmoon.core.storage.files import File, FileSystem
from halfmoon.core.storage.segment import Removed, Segment

FOLDER = "log"
SPARE = "log/spare"


def segment_path(start: int) -> str:
    return f"{FOLDER}/{start:020d}"


def list_segments(fs: FileSystem) -> list[tuple[int, str]]:
    """(start, path) of the segment files, in order."""
    return [(int(name), f"{FOLDER}/{name}") for name in fs.listdir(FOLDER) if len(name) == 20 and name.isdigit()]


class Retired(Struct):
    """A file that is in no list any more. `path` is None once its name is gone."""

    segment: Segment
    path: str | None
    others: list[str]
    """Files about it that go with it."""

    def remove(self, fs: FileSystem, *, reuse: bool) -> Removed:
        """In a thread. Raises OSError; then call it again."""
        released, recycled = self.segment.mapping.release(), False
        if self.path is not None:
            # While slices are being sent the name goes at once, so that a restart does not find it; the file lives on
            # until it is unmapped.
            with contextlib.suppress(FileNotFoundError):
                recycled = reuse and released and self._becomes_spare(fs, self.path)
                if not recycled:
                    fs.remove(self.path)
            self.path = None
        while self.others:
            with contextlib.suppress(FileNotFoundError):
                fs.remove(self.others[-1])
            self.others.pop()
        if released and not recycled:
            self.segment.file.close()
        return Removed(released, self.segment.file if recycled else None)

    def _becomes_spare(self, fs: FileSystem, path: str) -> bool:
        # First the name, then the look at the links: a backup that links the file cannot slip in between.
        fs.rename(path, SPARE)
        self.path = SPARE
        return fs.links(SPARE) == 1


class SyncJob:
    """One fdatasync for everybody who waits. `run` may be called in a thread; it touches nothing of the log's state."""

    __slots__ = ("_files", "_fs", "target")

    def __init__(self, fs: FileSystem, files: list[File], new_names: bool, target: int) -> None:
        self._files = files
        self._fs = fs if new_names else None
        self.target = target

    @property
    def is_plain(self) -> bool:
        """Whether it is one fdatasync of one file, and no folder's."""
        return self._fs is None and len(self._files) == 1

    def run(self) -> None:
        """Raises OSError."""
        for file in self._files:
            file.sync()
        if self._fs is not None:
            self._fs.sync_directory(FOLDER)
