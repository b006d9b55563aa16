"""`halfmoon config`: what a broker.yaml says, read exactly as the broker reads it."""

from __future__ import annotations

import asyncio
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from halfmoon.cli import output
from halfmoon.cli.options import Output, OutputOption

if TYPE_CHECKING:
    from halfmoon.config.settings import Settings
    from halfmoon.hooks.plugins import Plugins

TRIAL_SEGMENT_BYTES = 16 << 20

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
    """Validate a broker.yaml, and print the resulting settings.

    FILE is validated as `halfmoon serve` does; the settings are printed as a broker.yaml. Errors name the setting's
    path.

    Everything but listening and plugins' own tasks is started, in a temporary data directory. What the real data
    directory holds, and whether the ports are free, is not looked at.
    """
    from halfmoon.config.settings import load_settings

    settings = load_settings(file, os.environ if env else {}, {})
    plugins = _trial(settings)
    if result is Output.JSON:
        output.json_document({"file": str(file), "valid": True, "settings": _flat(settings)})
        return
    output.write(_as_yaml(settings, plugins).encode())
    output.line(f"# {file} is valid")


def _trial(settings: Settings) -> Plugins:
    """The plugins of a broker with these settings, which has started and stopped. Raises HalfmoonError."""
    from halfmoon.server.app import App

    with tempfile.TemporaryDirectory(prefix="halfmoon-check-") as directory:
        replace = msgspec.structs.replace
        # Small, and whatever the disk has left: it is not that disk.
        log = replace(settings.log, segment_bytes=TRIAL_SEGMENT_BYTES, low_disk_bytes=0)
        app = App(replace(settings, node=replace(settings.node, data_dir=directory), log=log))
        asyncio.run(app.check())
        return app.plugins


def _as_yaml(settings: Settings, plugins: Plugins) -> str:
    """All settings in force, as text that broker.yaml would take."""
    import yaml

    from halfmoon.config.sections import written

    given = settings.plugins
    keys = {Path(key).stem if key.endswith(".py") else key: key for key in given.sections}
    tree = written(msgspec.structs.replace(settings, plugins=type(given)()))
    others = tree["listeners"].pop("kafka_others")
    if others:
        tree["listeners"]["kafka"] = [tree["listeners"]["kafka"], *others]
    tree["plugins"] = {keys.get(info.name, info.name): info.enabled for info in plugins.infos}
    for context in plugins.contexts:
        if isinstance(context.settings, msgspec.Struct):
            tree["plugins"][keys.get(context.name, context.name)] = written(context.settings) or True
    tree |= given.extensions
    return yaml.safe_dump(msgspec.to_builtins(tree), sort_keys=False, allow_unicode=True, width=120)


def _flat(settings: Any) -> dict[str, Any]:
    """Every setting in force by dotted path in broker.yaml's names; times in ms, sizes in bytes, addresses as text."""
    from halfmoon.config.sections import written
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
    for index, listener in enumerate(settings.listeners.kafka_others, 1):
        for leaf, value in written(listener).items():
            found[f"listeners.kafka[{index}].{leaf}"] = None if value is None else str(value)
    for plugin, section in settings.plugins.sections.items():
        found[f"plugins.{plugin}"] = str(section)
    return found
