"""Whole files as records, for `produce --file`."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import typer

from halfmoon.cli.input_records import Message, to_message

STDIN = "-"


def check_files(paths: Sequence[str]) -> None:
    """Before anything is sent. Raises BadParameter for the first that cannot be read as a file."""
    if not paths:
        raise typer.BadParameter("--file: specify the files; - is stdin")
    for path in paths:
        if path != STDIN and not Path(path).exists():
            raise typer.BadParameter(f"{path}: there is no such file")
        if path != STDIN and Path(path).is_dir():
            raise typer.BadParameter(f"{path} is a directory")


def messages_of(
    paths: Sequence[str], common: Message, split: bytes | None, null: bool, as_json: bool, key_from_name: bool
) -> Iterator[Message]:
    """A record for each, read when it is its turn. Raises OSError, and CliError as `to_message`."""
    for path in paths:
        content = sys.stdin.buffer.read() if path == STDIN else Path(path).read_bytes()
        key = Path(path).name.encode("utf-8", "surrogateescape") if key_from_name and path != STDIN else common.key
        label = "stdin" if path == STDIN else path
        yield replace(to_message(label, content, replace(common, key=key), split, null, as_json), label=label)
