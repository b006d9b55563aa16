"""What `produce` is to send: pieces of the command line or of stdin as records."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import BinaryIO

import typer

from halfmoon.cli.errors import CliError
from halfmoon.cli.formats import from_json


@dataclass(slots=True)
class Message:
    """What is sent as one record. `timestamp_ms` None lets the producer's clock say. `label`: what an error calls it,
    where that is not its number."""

    value: bytes | None
    key: bytes | None = None
    headers: list[tuple[str, bytes]] = field(default_factory=list)
    timestamp_ms: int | None = None
    label: str = ""


def to_message(
    number: int | str, text: bytes, common: Message, split: bytes | None, null: bool, as_json: bool
) -> Message:
    """The record that a piece of input stands for. `common`: what all have; `split`: what stands between key and value;
    `null`: empty ones are null. Raises CliError, which names the record by its `number`, or by the name that it has."""
    named = number if isinstance(number, str) else f"record {number}"
    if as_json:
        return _message_from_json(named, text, common)
    key: bytes | None = common.key
    value: bytes | None = text
    if split is not None:
        before, found, after = text.partition(split)
        if found:
            key, value = before, after
    if null:
        key, value = key or None, value or None
    if key is None and value is None:
        raise CliError(f"{named}: neither a key nor a value")
    return Message(value, key, common.headers, common.timestamp_ms)


def _message_from_json(named: str, text: bytes, common: Message) -> Message:
    """A line of `consume -o json`; flags given on the command line win over what it says. Its partition is not kept."""
    try:
        values = json.loads(text)
        if not isinstance(values, dict):
            raise ValueError("not an object")
        headers = [(str(header["name"]), from_json(header, "value") or b"") for header in values.get("headers") or ()]
        timestamp_ms = common.timestamp_ms if common.timestamp_ms is not None else values.get("timestamp")
        if timestamp_ms is not None and not isinstance(timestamp_ms, int):
            raise ValueError("timestamp is not a number of milliseconds")
        key = common.key if common.key is not None else from_json(values, "key")
        return Message(from_json(values, "value"), key, [*headers, *common.headers], timestamp_ms)
    except (ValueError, KeyError, TypeError) as error:
        raise CliError(f"{named}: not a JSON record: {error}") from None


def lines_of(stream: BinaryIO, delimiter: bytes) -> Iterator[bytes]:
    """What stands between delimiters; what follows the last one, if anything does, is a record too."""
    if delimiter == b"\n":
        for text in stream:
            yield text.removesuffix(b"\n")
        return
    rest = b""
    while chunk := stream.read1(1 << 16) if hasattr(stream, "read1") else stream.read(1 << 16):
        *whole, rest = (rest + chunk).split(delimiter)
        yield from whole
    if rest:
        yield rest


def unescape(text: str) -> bytes:
    """`\\t` and the like in a delimiter, as a shell passes them on. Raises typer.BadParameter."""
    try:
        found = text.encode().decode("unicode_escape").encode("latin-1") if "\\" in text else text.encode()
    except UnicodeError:
        raise typer.BadParameter(f"{text!r} is not a delimiter") from None
    if not found:
        raise typer.BadParameter("a delimiter cannot be empty")
    return found
