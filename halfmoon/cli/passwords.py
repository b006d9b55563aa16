"""Where passwords come from: a prompt, a file, or chance; never the command line, which others see. What goes to the
broker is salted here."""

from __future__ import annotations

import os
import secrets
import sys
from pathlib import Path
from typing import Annotated

import typer

from halfmoon.auth import scram
from halfmoon.auth.scram import MAX_ITERATIONS, MECHANISMS, MIN_ITERATIONS
from halfmoon.cli import output
from halfmoon.cli.errors import CliError
from halfmoon.services.credentials.questions import SaltedPassword

SALT_BYTES = 32
"""As of the salts that a broker makes up for users that do not exist: see scram.unknown_credential."""
_LONGEST = 1024

FileOption = Annotated[
    Path | None,
    typer.Option(
        "--password-file", metavar="FILE", help="Read it from this file; - is stdin. The line's end does not count.",
        show_default=False,
    ),
]  # fmt: skip
GenerateOption = Annotated[bool, typer.Option("--generate", help="Generate it, and print it once.")]
MechanismOption = Annotated[
    list[str],
    typer.Option("--mechanism", help="SCRAM mechanism that the user logs in with. Repeatable.", show_default=True),
]
IterationsOption = Annotated[
    int,
    typer.Option("--iterations", min=MIN_ITERATIONS, max=MAX_ITERATIONS, help="Rounds of hashing, of each login too."),
]


def given(what: str, file: Path | None, generate: bool) -> tuple[str, bool]:
    """A password (`what` it is, in the prompt), and whether it was generated. Raises CliError, BadParameter."""
    if file is not None and generate:
        raise typer.BadParameter("--password-file and --generate exclude each other")
    if generate:
        return secrets.token_urlsafe(18), True
    if file is not None:
        return _read(file), False
    if not sys.stdin.isatty():
        raise CliError(f"there is no terminal to ask for the {what}: --password-file FILE or --generate")
    found: str = typer.prompt(what.capitalize(), hide_input=True, confirmation_prompt=True, err=True)
    return _checked(found), False


def salted(password: str, mechanisms: list[str], iterations: int) -> tuple[SaltedPassword, ...]:
    """For each mechanism. Raises BadParameter for one that is unknown."""
    found = []
    for name in dict.fromkeys(mechanisms):
        mechanism = MECHANISMS.get(name.upper())
        if mechanism is None:
            raise typer.BadParameter(f"{name!r} is none of {', '.join(MECHANISMS)}", param_hint="--mechanism")
        salt = os.urandom(SALT_BYTES)
        key = scram.salted_password(mechanism, password, salt, iterations)
        found.append(SaltedPassword(mechanism.number, iterations, salt, key))
    return tuple(found)


def _read(file: Path) -> str:
    """Raises CliError, OSError."""
    if str(file) == "-":
        data = sys.stdin.buffer.read(_LONGEST + 2)
    else:
        with file.open("rb") as opened:
            if os.fstat(opened.fileno()).st_mode & 0o077:
                output.note(f"halfmoon: others may read {file}: chmod 600 it")
            data = opened.read(_LONGEST + 2)
    try:
        return _checked(data.decode().removesuffix("\n").removesuffix("\r"))
    except UnicodeDecodeError:
        raise CliError(f"{file}: not UTF-8") from None


def _checked(password: str) -> str:
    if not 0 < len(password.encode(errors="surrogatepass")) <= _LONGEST or "\0" in password or "\n" in password:
        raise CliError(f"a password is one line of 1 to {_LONGEST} bytes")
    return password
