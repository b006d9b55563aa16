"""`halfmoon plugin new`: a package to begin with, which works as it is."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from halfmoon.cli import output
from halfmoon.cli.errors import CliError

app = typer.Typer(help="Write plugins.", no_args_is_help=True)

_NAME = re.compile(r"[a-z][a-z0-9]*(?:[-_][a-z0-9]+)*\Z")


@app.callback()
def _group() -> None:
    """Write plugins."""


@app.command()
def new(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Of the package, such as my-counter.")],
    hook: Annotated[str, typer.Option("--hook", metavar="HOOK", help="The hook that it has.")] = "halfmoon_dispatch",
    directory: Annotated[Path, typer.Option("--directory", help="Where its folder is made.")] = Path(),
) -> None:
    """Make a package with one hook, a test that passes, and a README. `--hook`: as in docs/hooks.md."""
    from halfmoon.cli.plugin_templates import HOOKS, files

    if not _NAME.match(name):
        raise typer.BadParameter(f"{name!r}: expected lower-case letters, digits and - or _", param_hint="NAME")
    wanted = hook if hook.startswith("halfmoon_") else f"halfmoon_{hook}"
    if wanted not in HOOKS:
        raise typer.BadParameter(f"there is no hook {hook}; there are {', '.join(HOOKS)}", param_hint="--hook")
    folder = directory / name
    if folder.exists():
        raise CliError(f"{folder} exists")
    for path, content in files(name, name.replace("-", "_"), wanted).items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content, encoding="utf-8")
    output.line(f"{folder}: a plugin with {wanted}; its README.md says how to install it")
