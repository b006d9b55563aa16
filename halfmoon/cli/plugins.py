"""`halfmoon plugins`: which plugins there are, and which of them are on. Imports none of them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from halfmoon.cli import output
from halfmoon.cli.options import Output, OutputOption

COLUMNS = ("name", "state", "kind", "origin")


def plugins(
    config: Annotated[Path | None, typer.Option("--config", metavar="FILE", help="A broker.yaml.")] = None,
    result: OutputOption = Output.TEXT,
) -> None:
    """List plugins, with their state.

    Built-in plugins, installed ones, and those named in broker.yaml.
    """
    from halfmoon.config.settings import load_settings
    from halfmoon.hooks.plugins import installed_plugins
    from halfmoon.plugins import BUILT_IN

    rows = [
        {
            "name": info.name,
            "state": "on" if info.enabled else "off",
            "kind": info.kind,
            "origin": info.origin,
        }
        for info in installed_plugins(load_settings(config, os.environ, {}), BUILT_IN)
    ]
    output.rows(rows, COLUMNS, result)
