"""Records as files, for `consume --to-files`: a file for each value, whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import NamedTemporaryFile

from halfmoon.cli import output
from halfmoon.cli.errors import CliError
from halfmoon.cli.formats import Formatter, ReadRecord, as_json

DEFAULT_NAME = "%t-%p-%o"
LONGEST_NAME = 255
"""Bytes that file systems take."""


def writer(directory: Path, name: Formatter, result: output.Output) -> Formatter:
    """Writes a record's value to a file, and returns what is printed of it: the path, or JSON without the value.

    A file that is there is replaced. A record without a value has no file. Raises CliError, OSError.
    """
    directory.mkdir(parents=True, exist_ok=True)

    def write(record: ReadRecord) -> bytes:
        path = None if record.value is None else directory / _name(name(record), record)
        if path is not None:
            _replace(path, record.value or b"")
        if result is output.Output.JSON:
            shown = {name: value for name, value in as_json(record).items() if not name.startswith("value")}
            return output.json_line({**shown, "file": None if path is None else str(path)})
        if path is None:
            output.note(f"halfmoon: {_place(record)}: the record has no value; no file is written")
            return b""
        return os.fsencode(path) + b"\n"

    return write


def _name(made: bytes, record: ReadRecord) -> str:
    """A name in the directory and nowhere else, whatever a key says."""
    made = made.replace(b"/", b"_").replace(b"\0", b"_")
    if made in (b"", b".", b".."):
        raise CliError(f"{_place(record)}: no file can be called {made.decode()!r} (--file-name)")
    if len(made) > LONGEST_NAME:
        raise CliError(
            f"{_place(record)}: a file's name has at most {LONGEST_NAME} bytes, not {len(made)} (--file-name)"
        )
    return os.fsdecode(made)


def _place(record: ReadRecord) -> str:
    return f"{record.topic}/{record.partition}/{record.offset}"


def _replace(path: Path, content: bytes) -> None:
    """A reader sees the old file or the new one."""
    with NamedTemporaryFile(dir=path.parent, prefix=".halfmoon-", delete=False) as file:
        try:
            file.write(content)
            file.close()
            Path(file.name).chmod(0o666 & ~_umask())
            Path(file.name).replace(path)
        except BaseException:
            Path(file.name).unlink(missing_ok=True)
            raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
