"""The index files of a log, in its order, and which stretch of the log each covers."""

from __future__ import annotations

import contextlib
from bisect import bisect_left
from collections.abc import Iterator, Sequence, Set
from itertools import pairwise
from operator import attrgetter

from sortedcontainers import SortedKeyList

from halfmoon.core.catalog.catalog import Catalog
from halfmoon.core.storage import index
from halfmoon.core.storage.files import FileSystem
from halfmoon.core.storage.index import IndexFile, Key, Run
from halfmoon.core.storage.segment import Segment

RUNS_AT_ONCE = 1_000
"""That a slice takes from or gives to their partitions: about two milliseconds."""

_start = attrgetter("start")


class IndexFiles:
    """All opened index files, sorted by where they start; none overlaps another, none reaches over a segment's end."""

    def __init__(self, fs: FileSystem) -> None:
        self._fs = fs
        self.files: SortedKeyList[IndexFile] = SortedKeyList(key=_start)
        self._look_for_merges = False
        """A file came since `mergeable` found nothing."""
        self.named: Set[str] = frozenset()
        """Paths of files that somebody may open, …"""
        self._kept: list[str] = []
        """… and those of them that have been merged and are there still."""

    def open(self) -> None:
        """Make their folder. Raises OSError."""
        self._fs.make_directory(index.FOLDER)
        self._fs.sync_directory("")

    def load(self, start: int, upto: int, segments: Sequence[Segment], void: Set[str] = frozenset()) -> None:
        """Open the files that lie wholly within [start, upto) and within one segment; remove all others, but leave
        those of `void` alone.

        Of two that overlap the longer one stays: a merge was cut off before it removed its sources.
        """
        ends = [segment.end for segment in segments]
        unwanted = list(index.leftovers(self._fs))
        found: list[IndexFile] = []
        for begin, end, path in sorted(index.listed(self._fs), key=lambda entry: (entry[0], -entry[1])):
            if path in void:
                continue
            if start <= begin < end <= upto and (not found or begin >= found[-1].end):
                segment = segments[bisect_left(ends, end)]
                if segment.start <= begin:
                    with contextlib.suppress(ValueError):
                        found.append(index.open_file(self._fs, path))
                        continue
            unwanted.append(path)
        for path in unwanted:
            self._remove(path)
        self.files.update(found)
        self._look_for_merges = True

    def gaps(self, start: int, upto: int) -> Iterator[tuple[int, int, list[IndexFile]]]:
        """(from, to, files before it) for each stretch of [start, upto) that no file covers, and one empty one at
        the end."""
        passed: list[IndexFile] = []
        for file in self.files:
            if file.start > start:
                yield start, file.start, passed
                passed = []
            passed.append(file)
            start = file.end
        yield start, upto, passed

    def add(self, file: IndexFile) -> None:
        self.files.add(file)
        self._look_for_merges = True

    def within(self, segment: Segment) -> list[IndexFile]:
        return self.between(segment.start, segment.end)

    def between(self, start: int, end: int) -> list[IndexFile]:
        """The files that begin in [start, end)."""
        return list(self.files.irange_key(start, end, inclusive=(True, False)))

    def mergeable(self, segments: Sequence[Segment]) -> list[IndexFile]:
        """The files of a sealed segment (not the last) that is wholly indexed, but by several; newest segment first.

        Asked after every write, so it looks only when there may be something new.
        """
        if not self._look_for_merges:
            return []
        for at in range(len(segments) - 2, -1, -1):
            segment = segments[at]
            files = self.within(segment)
            if len(files) > 1 and _cover(files, segment):
                return files
        self._look_for_merges = False
        return []

    def merge(self, files: Sequence[IndexFile]) -> IndexFile:
        """Write one file in place of several neighbours; meant for a thread. Raises OSError."""
        runs: dict[Key, list[Run]] = {}
        for file in files:
            for key, run in file.runs.items():
                runs.setdefault(key, []).append(run)
        newest_store_ms = max(file.newest_store_ms for file in files)
        return index.write(
            self._fs, files[0].start, files[-1].end, newest_store_ms, sorted(runs.items(), key=lambda entry: entry[0])
        )

    def replace(self, old: Sequence[IndexFile], new: IndexFile, catalog: Catalog) -> Iterator[None]:
        """Serve from the merged file, in slices; then remove its sources, but for those that are to be kept."""
        for at, (key, run) in enumerate(new.runs.items(), 1):
            partition = catalog.partition(*key)
            if partition is not None:
                partition.queue.replace(lambda each: each.file in old, run)
            if not at % RUNS_AT_ONCE:
                yield
        for file in old:
            self.files.remove(file)
        self.add(new)
        for file in old:
            yield from _let_go(file)
            if file.path in self.named:
                self._kept.append(file.path)
            else:
                self._remove(file.path)

    def _remove(self, path: str) -> None:
        """What somebody else has removed is gone, too. Raises OSError."""
        with contextlib.suppress(FileNotFoundError):
            self._fs.remove(path)

    def keep(self, paths: Set[str]) -> None:
        """Files that are to stay until `release`, or the next start, if they are merged meanwhile. What expires goes
        all the same."""
        self.named = paths

    def release(self) -> None:
        """Nobody opens any more what was to be kept."""
        self.named = frozenset()
        kept, self._kept = self._kept, []
        for path in kept:
            with contextlib.suppress(OSError):  # The next start removes it.
                self._fs.remove(path)

    def drop(self, file: IndexFile, catalog: Catalog) -> Iterator[None]:
        """The stretch of the log that this file covers goes, and with it the file, which is not removed here."""
        for at, key in enumerate(file.runs, 1):
            partition = catalog.partition(*key)
            if partition is not None:
                partition.queue.forget(file)
            if not at % RUNS_AT_ONCE:
                yield
        self.files.remove(file)
        yield from _let_go(file)


def _let_go(file: IndexFile) -> Iterator[None]:
    """Close a file that nobody serves from any more. To free its runs takes time, too."""
    runs = file.runs
    file.close()
    while len(runs) > RUNS_AT_ONCE:
        for _ in range(RUNS_AT_ONCE):
            runs.popitem()
        yield


def _cover(files: Sequence[IndexFile], segment: Segment) -> bool:
    """Whether the files cover the whole segment."""
    whole = files[0].start == segment.start and files[-1].end == segment.end
    return whole and all(before.end == after.start for before, after in pairwise(files))
