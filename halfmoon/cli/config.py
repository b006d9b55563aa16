"""`halfmoon config`: what a broker.yaml says, read exactly as the broker reads it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from halfmoon.cli import output
from halfmoon.cli.options import Output, OutputOption

app = typer.Typer(help="Check settings.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Check settings."""


@app.command()
def check(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A broker.yaml.")],
    env: Annotated[bool, typer.Option(help="Let HALFMOON_… variables override the file, as serve does.")] = True,
    result: OutputOption = Output.TEXT,
) -> None:
    """Validate FILE as `halfmoon serve` does, and show the resulting settings. Errors name the setting's path."""
    from halfmoon.config.settings import load_settings
    from halfmoon.hooks.plugins import load_plugins
    from halfmoon.plugins import BUILT_IN
    from halfmoon.server.needs import check_needs

    settings = load_settings(file, os.environ if env else {}, {})
    # A plugin's section has the types that the plugin says, so that only loading it shows whether it is right.
    plugins = load_plugins(settings, BUILT_IN)
    check_needs(settings, {plugin.name for plugin in plugins.infos if plugin.enabled})
    values = _flat(settings)
    if result is Output.JSON:
        output.json_document({"file": str(file), "valid": True, "settings": values})
        return
    output.facts(values)
    output.line(f"{file} is valid")


def _flat(settings: Any) -> dict[str, Any]:
    """Every setting in force by dotted path in broker.yaml's names; times in ms, sizes in bytes, addresses as text."""
    from halfmoon.config.settings import setting_paths
    from halfmoon.config.units import Address

    found: dict[str, Any] = {}
    for path in setting_paths():
        value: Any = settings
        name = path
        for word in path.split("."):
            if value is None:
                break
            if not hasattr(value, word):
                # broker.yaml leaves out the unit that the field's name has.
                word, name = f"{word}_ms", f"{path}_ms"
            value = getattr(value, word)
        if isinstance(value, Address) or not isinstance(value, (str, int, float, bool, type(None))):
            value = str(value)
        found[name] = value
    for plugin, section in settings.plugins.sections.items():
        found[f"plugins.{plugin}"] = str(section)
    return found
