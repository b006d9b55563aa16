"""The index files of a log, in its order, and which stretch of the log each covers."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from halfmoon.core import index
from halfmoon.core.catalog import Catalog
from halfmoon.core.commitlog import Segment
from halfmoon.core.files import FileSystem
from halfmoon.core.index import IndexFile, Key, Run


class IndexFiles:
    """All opened index files, sorted by where they start; none overlaps another."""

    def __init__(self, fs: FileSystem) -> None:
        self._fs = fs
        self.files: list[IndexFile] = []
        fs.make_directory(index.FOLDER)

    def load(self, start: int, upto: int, segments: list[Segment]) -> None:
        """Open the files that lie wholly within [start, upto) and within one segment; remove all others.

        Of two that overlap the longer one stays: a merge was cut off before it removed its sources.
        """
        found: list[IndexFile] = []
        for begin, end, path in sorted(index.listed(self._fs), key=lambda entry: (entry[0], -entry[1])):
            inside = start <= begin and end <= upto and any(s.start <= begin and end <= s.end for s in segments)
            if inside and (not found or begin >= found[-1].end):
                with contextlib.suppress(ValueError):
                    found.append(index.open_file(self._fs, path))
                    continue
            self._fs.remove(path)
        self.files = found

    def gaps(self, start: int, upto: int) -> Iterator[tuple[int, int, list[IndexFile]]]:
        """(from, to, files before it) for each stretch of [start, upto) that no file covers, and one empty one at the end."""
        passed: list[IndexFile] = []
        for file in self.files:
            if file.start > start:
                yield start, file.start, passed
                passed = []
            passed.append(file)
            start = file.end
        yield start, upto, passed

    def add(self, file: IndexFile) -> None:
        self.files.append(file)
        self.files.sort(key=lambda each: each.start)

    def within(self, segment: Segment) -> list[IndexFile]:
        return [file for file in self.files if segment.start <= file.start < segment.end]

    def mergeable(self, sealed: list[Segment]) -> list[IndexFile]:
        """The files of a sealed segment that is wholly indexed, but by more than one; newest segment first."""
        for segment in reversed(sealed):
            files = self.within(segment)
            if len(files) > 1 and files[0].start == segment.start and files[-1].end == segment.end:
                return files
        return []

    def merge(self, files: list[IndexFile]) -> IndexFile:
        """Write one file in place of several neighbours; meant for a thread. Raises OSError."""
        runs: dict[Key, list[Run]] = {}
        for file in files:
            for key, run in file.runs.items():
                runs.setdefault(key, []).append(run)
        return index.write(
            self._fs, files[0].start, files[-1].end, files[-1].newest_store_ms, sorted(runs.items(), key=lambda e: e[0])
        )

    def replace(self, old: list[IndexFile], new: IndexFile, catalog: Catalog) -> None:
        """Serve from the merged file, and remove its sources."""
        for key, run in new.runs.items():
            partition = catalog.partition(*key)
            if partition is not None:
                partition.queue.replace(lambda each: each.file in old, run)
        self.files = [file for file in self.files if file not in old]
        self.add(new)
        for file in old:
            file.close()
            self._fs.remove(file.path)

    def drop(self, file: IndexFile, catalog: Catalog) -> None:
        """The stretch of the log that this file covers is gone."""
        for key in file.runs:
            partition = catalog.partition(*key)
            if partition is not None:
                partition.queue.forget(file)
        self.files.remove(file)
        file.close()
        self._fs.remove(file.path)
