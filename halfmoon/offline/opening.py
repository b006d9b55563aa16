"""Opening the files of a data directory for reading, its broker running or not: what has expired meanwhile is left
out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from halfmoon.core import clean_files
from halfmoon.core.storage.files import FileSystem, read_file
from halfmoon.core.storage.log_files import FOLDER, gaps, list_segments, missing_segment
from halfmoon.core.storage.segment import Segment
from halfmoon.errors import StartError
from halfmoon.schema.shards import SHARED_CATALOG


@contextmanager
def open_segments(fs: FileSystem) -> Iterator[list[Segment]]:
    """The segments that are there, opened for reading; zeroes stand in for what is missing between them. Raises
    StartError where this is no data directory."""
    if read_file(fs, "meta.json") is None:
        refuse_shards(fs)
        raise StartError("no data directory: there is no meta.json in it")
    segments: list[Segment] = []
    try:
        for start, path in list_segments(fs):
            try:
                file = fs.open(path)
            except FileNotFoundError:  # expired since the folder was read
                continue
            size = file.size()
            if size:
                segments.append(Segment(start, size, file, file.map()))
            else:
                file.close()
        for low, high in gaps(segments):
            segments.append(missing_segment(low, high))
        segments.sort(key=lambda segment: segment.start)
        yield segments
    finally:
        for segment in segments:
            segment.mapping.release()
            segment.file.close()


def refuse_shards(fs: FileSystem) -> None:
    """Raises StartError where it is the data directory of several workers."""
    if read_file(fs, SHARED_CATALOG) is not None:
        raise StartError("this is the data directory of several workers: give the folder of one of its shards")


@contextmanager
def clean_segment(fs: FileSystem, start: int) -> Iterator[Segment | None]:
    """A clean file, opened; None where it has been replaced meanwhile, or is none."""
    try:
        segment = clean_files.open_segment(fs, start)
    except (FileNotFoundError, ValueError):
        yield None
        return
    try:
        yield segment
    finally:
        segment.mapping.release()
        segment.file.close()


def in_files(directory: Path, low: int, high: int) -> str:
    """Says in which files these log positions are, behind a comma."""
    starts = sorted(
        (int(path.name), f"{folder}/{path.name}")
        for folder in (FOLDER, clean_files.FOLDER)
        for path in (directory / folder).glob("[0-9]" * 20)
    )
    before = [path for start, path in starts if start <= low][-1:]
    files = before + [path for start, path in starts if low < start < high]
    return f", in {', '.join(files)}" if files else ""
