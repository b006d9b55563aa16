"""The mark of a clean stop: a file that says up to which log position the checkpoint covers everything.

Where it names the checkpoint's position, a start need not scan the log. It is removed before the first append, so that
a stop is unclean until it says otherwise.
"""

from __future__ import annotations

from halfmoon.core.storage.files import FileSystem, read_file, write_file

CLEAN_MARK = "clean"


def read(fs: FileSystem) -> int:
    """The log position; -1 where there is no mark."""
    mark = read_file(fs, CLEAN_MARK)
    return int(mark) if mark is not None and mark.strip().isdigit() else -1


def remove(fs: FileSystem) -> None:
    """Durably."""
    if read_file(fs, CLEAN_MARK) is not None:
        fs.remove(CLEAN_MARK)
        fs.sync_directory("")


def leave(fs: FileSystem, position: int) -> None:
    write_file(fs, CLEAN_MARK, [str(position).encode()])
