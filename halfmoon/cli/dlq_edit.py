"""Dead letters that are changed before they are replayed: by options, or in an editor.

In the editor a dead letter is text: `key=…`, a line `NAME=VALUE` below `headers:` for each header, an empty line, and
the value up to the end. What is no text without control characters is written in Base64, after `:base64`:

    # dlq.billing/0/5: not retryable: acme.BadOrder
    key=order-7
    headers:
    TAGS=paid
    SIGNATURE:base64=/wD+
    value:

    {"total": 5}

The value ends with the file, less its last line break. `value:base64` and `value:null` say that it is in Base64, or
null; without a line `key` the key is null.
"""

from __future__ import annotations

import base64
import binascii
import os
import shlex
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from halfmoon.cli.errors import CliError

BASE64, NULL = ":base64", ":null"
COMMENT = "#"

Header = tuple[str, bytes | None]
Edit = Callable[[Path], None]
"""Lets somebody edit a file. Raises CliError."""


class Draft(NamedTuple):
    """What is to be replayed."""

    key: bytes | None
    value: bytes | None
    headers: list[Header]


def changed(
    draft: Draft,
    *,
    set_headers: Sequence[Header] = (),
    remove_headers: Iterable[str] = (),
    key: bytes | None = None,
    value: bytes | None = None,
) -> Draft:
    """With other headers, another key, another value; None leaves these as they are."""
    gone = {*remove_headers, *(name for name, _ in set_headers)}
    headers = [header for header in draft.headers if header[0] not in gone]
    return Draft(
        draft.key if key is None else key, draft.value if value is None else value, [*headers, *set_headers]
    )  # fmt: skip


# -------------------------------------------------------------------------------------------------- as text, and back


def written(draft: Draft, comments: Sequence[str]) -> bytes:
    lines = [f"{COMMENT} {' '.join(comment.split())}" for comment in comments]
    if draft.key is not None:
        lines.append(_line("key", draft.key))
    lines.append("headers:")
    lines += [_line(name, content) for name, content in draft.headers]
    if draft.value is None:
        head, body = f"value{NULL}", b""
    elif _is_text(draft.value, lines_allowed=True):
        head, body = "value:", draft.value
    else:
        head, body = f"value{BASE64}", base64.encodebytes(draft.value).rstrip(b"\n")
    return "\n".join([*lines, head, "", ""]).encode() + body + b"\n"


def parsed(text: bytes) -> Draft | None:
    """None where there is nothing but comments: it is not to be replayed. Raises ValueError, which names the line."""
    head, separator, body = text.partition(b"\n\n")
    key: bytes | None = None
    headers: list[Header] = []
    in_headers, kind = False, ""
    for number, raw in enumerate(head.split(b"\n"), 1):
        line = raw.decode("utf-8", "surrogateescape").rstrip("\r")
        if line.startswith(COMMENT) or not line.strip():
            continue
        if line == "headers:":
            in_headers = True
        elif line in ("value:", f"value{BASE64}", f"value{NULL}"):
            kind = line
        elif kind:
            raise ValueError(f"line {number}: behind {kind} an empty line is expected, and then the value")
        elif in_headers:
            headers.append(_parsed_line(line, number))
        else:
            name, key = _parsed_line(line, number)
            if name != "key":
                raise ValueError(f"line {number}: expected key=…, or headers:")
    if not kind:
        if not in_headers and key is None and not body.strip():
            return None
        raise ValueError("there is no line value:")
    if not separator:
        raise ValueError("there is no empty line behind value:")
    return Draft(key, _value(kind, body.removesuffix(b"\n")), headers)


def _value(kind: str, body: bytes) -> bytes | None:
    if kind == f"value{NULL}":
        if body.strip():
            raise ValueError("behind value:null there is a value")
        return None
    return _decoded(body, "the value") if kind == f"value{BASE64}" else body


def _line(name: str, content: bytes | None) -> str:
    if content is None:
        return f"{name}{NULL}"
    if _is_text(content, lines_allowed=False):
        return f"{name}={content.decode()}"
    return f"{name}{BASE64}={base64.b64encode(content).decode()}"


def _parsed_line(line: str, number: int) -> Header:
    if line.endswith(NULL) and "=" not in line:
        return line.removesuffix(NULL), None
    name, equals, content = line.partition("=")
    if not equals or not name:
        raise ValueError(f"line {number}: {line[:60]!r} is not NAME=VALUE")
    if name.endswith(BASE64):
        return name.removesuffix(BASE64), _decoded(content.encode(), f"line {number}")
    return name, content.encode("utf-8", "surrogateescape")


def _decoded(text: bytes, where: str) -> bytes:
    try:
        return base64.b64decode(b"".join(text.split()), validate=True)
    except binascii.Error as error:
        raise ValueError(f"{where}: no Base64: {error}") from None


def _is_text(content: bytes, *, lines_allowed: bool) -> bool:
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return False
    allowed = "\n\t" if lines_allowed else "\t"
    return all(character.isprintable() or character in allowed for character in text)


# -------------------------------------------------------------------------------------------------------- the editor


def edited(draft: Draft, comments: Sequence[str], edit: Edit) -> Draft | None:
    """As somebody leaves it; None: it is not to be replayed. Raises CliError, and keeps the file where what stands in
    it cannot be read."""
    descriptor, name = tempfile.mkstemp(prefix="halfmoon-dead-letter-", suffix=".txt")
    path = Path(name)
    with os.fdopen(descriptor, "wb") as file:
        file.write(written(draft, comments))
    try:
        edit(path)
        made = parsed(path.read_bytes())
    except ValueError as error:
        raise CliError(f"{path}: {error}; nothing was replayed, and the file is kept") from None
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    path.unlink()
    return made


def in_editor(path: Path) -> None:
    """In $VISUAL, $EDITOR or vi. Raises CliError where it cannot be run, or says that it has failed."""
    command = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    try:
        code = subprocess.run([*shlex.split(command), str(path)], check=False).returncode
    except (OSError, ValueError) as error:
        raise CliError(f"{command}: the editor cannot be run: {error}; set EDITOR") from None
    if code:
        raise CliError(f"{command}: the editor has failed with {code}; nothing was replayed")


def of_record(record: Any, is_dropped: Callable[[str], bool]) -> Draft:
    return Draft(record.key, record.value, [header for header in record.headers if not is_dropped(header[0])])
