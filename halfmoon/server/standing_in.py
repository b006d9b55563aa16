"""Frames of nothing, which `halfmoon log repair` puts in place of what is lost: within a file, or as a file.

A file is never changed in place, since a backup may share it: its copy is, once for all that is to be replaced in it.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict

from halfmoon.core import clean_files
from halfmoon.core.storage.files import ASIDE, OsFileSystem, copy_file
from halfmoon.core.storage.frame import HEADER_BYTES, BadFrameError, Kind, encode
from halfmoon.core.storage.log_files import FOLDER, MissingFile, segment_path
from halfmoon.core.storage.scan import candidates, read_frame
from halfmoon.core.storage.segment import Segment
from halfmoon.offline.opening import clean_segment

_LARGEST = 1 << 30
Stretches = list[tuple[int, int]]
"""Log positions [from, to), in their order."""


def stand_in(fs: OsFileSystem, segments: list[Segment], stretches: Stretches, generation: int) -> None:
    """In the log, for each of these stretches. `generation`: of the newest frame. Raises OSError."""
    if segments and stretches and stretches[0][0] < segments[0].start:  # the oldest files
        _make_file(fs, stretches[0][0], segments[0].start, _generation_at(segments, segments[0].start, generation))
    last = segments[-1].end if segments else 0
    pieces: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
    for low, high in stretches:
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
            pieces[segment.start].append((begin, end, after))
    for start, found in pieces.items():
        _write_nothing(fs, segment_path(start), start, found)


def stand_in_compacted(fs: OsFileSystem, stretches: Stretches) -> None:
    """In compacted segments. Raises OSError."""
    for start in clean_files.listed(fs):
        with clean_segment(fs, start) as segment:
            if segment is None:
                continue
            inside = [(max(low, start), min(high, segment.end)) for low, high in stretches]
            found = [(low, high, _generation_at([segment], high, 0)) for low, high in inside if low < high]
        if found:
            _write_nothing(fs, clean_files.data_path(start), start, found)


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


def _write_nothing(fs: OsFileSystem, path: str, start: int, pieces: list[tuple[int, int, int]]) -> None:
    """Into a file that is there: (from, to, generation) each."""
    pieces = [piece for piece in pieces if piece[1] - piece[0] >= HEADER_BYTES]
    if not pieces:
        return
    aside = path + ASIDE
    copy_file(fs.root / path, fs.root / aside)
    file = fs.open(aside)
    for begin, end, generation in pieces:
        if end - start > file.size():
            file.pwritev([b"\0"], end - start - 1)
        file.pwritev([_nothing(begin, end, generation)], begin - start)
    file.sync()
    file.close()
    fs.rename(aside, path)
    fs.sync_directory(path.rpartition("/")[0])
