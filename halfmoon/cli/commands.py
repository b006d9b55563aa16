"""The commands, put together for the parser of the command line.

Whoever runs one imports that one alone, and `halfmoon --help` imports none.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer

from halfmoon import __version__
from halfmoon.cli import output
from halfmoon.cli.errors import one_line
from halfmoon.errors import HalfmoonError

COMMANDS = {
    "serve": ("serve", "Run a broker until SIGTERM or Ctrl-C."),
    "produce": ("produce", "Send records, and wait until all are acknowledged."),
    "consume": ("consume", "Print records."),
    "plugins": ("plugins", "List plugins, with their state."),
    "backup": ("log", "Copy DIR while its broker runs, and verify the copy."),
    "restore": ("log", "Copy BACKUP to DIR, and verify the copy."),
}
"""The module of `halfmoon.cli` that has a function of the name, and what a list of commands says of it."""
GROUPS = {
    "topic": "Create, list, describe, alter and delete topics.",
    "view": "Create, list, describe and delete filtered views.",
    "group": "List, describe, configure, reset and delete consumer groups.",
    "dlq": "List, show, replay, mark, purge and expire dead letters.",
    "message": "Find messages, and show their history.",
    "delay": "List, count, cancel and reschedule scheduled messages.",
    "schedule": "Send messages on a schedule (cron).",
    "user": "Create, list, change and delete users.",
    "acl": "Add, remove and list access rules; check what they allow.",
    "token": "Create, list, renew and end delegation tokens.",
    "tls": "Make, check and reload TLS certificates.",
    "log": "Inspect and repair a data directory.",
    "cluster": "Make and run a cluster of several nodes, or of several workers.",
    "config": "Check settings.",
    "plugin": "Write plugins.",
    "pipeline": "Jobs on Spark: archive topics, replay them, make reports.",
}
"""Commands that have commands: the `app` of the module of that name; and what a list says of them."""
FEATURES = {
    "view": ("plugins", "view"),
    "schedule": ("plugins", "schedule"),
    "group": ("services", "groups"),
    "message": ("services", "keyindex"),
    "delay": ("services", "delays"),
}
"""What these are commands of. Where the broker.yaml here says that it is off they are not listed. They run all the
same: the broker they ask may be another."""


def _print_version(wanted: bool) -> None:
    if wanted:
        from halfmoon.server.build import build

        output.line(f"halfmoon {__version__} ({build()})")
        raise typer.Exit


def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """A message broker for the Kafka clients you already have."""


def command_line(name: str = "", *, runs: bool = True) -> typer.Typer:
    """The command line with this command alone, or all of it if there is none of that name.

    Only what is in it is imported: the others' modules, and parsers of all their options, take 60 ms, a fifth of what a
    broker takes to start. Not `runs`: it lists the commands and runs none, so it imports none.
    """
    commands, groups = [each for each in COMMANDS if each == name], [each for each in GROUPS if each == name]
    plugged: Mapping[str, Callable[..., object]] = {}
    if not commands and not groups:
        path = Path(os.environ.get("HALFMOON_CONFIG", "broker.yaml"))
        commands, (groups, more_plugins) = list(COMMANDS), _config_says(path)
        if more_plugins and name != "--version":
            plugged = _commands_of_plugins(path)
    app = typer.Typer(
        name="halfmoon",
        help="A message broker for the Kafka clients you already have.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_options)
    for command in commands:
        module, summary = COMMANDS[command]
        if runs:
            app.command(command)(getattr(import_module(f"halfmoon.cli.{module}"), command))
        else:
            app.command(command, help=summary)(_runs_not)
    for group in groups:
        if runs:
            app.add_typer(import_module(f"halfmoon.cli.{group}").app, name=group)
        else:
            app.command(group, help=GROUPS[group])(_runs_not)
    for command, given in plugged.items():
        app.command(command)(given)
    return app


def _runs_not() -> None:
    raise NotImplementedError


def _config_says(path: Path) -> tuple[list[str], bool]:
    """Which groups to list by this broker.yaml, and whether it names plugins that are not built in. Read as it stands:
    loading the settings and the plugin manager would take half as long again as `--help` does."""
    if not path.is_file():
        return list(GROUPS), False
    import yaml

    from halfmoon.plugins import BUILT_IN

    try:
        found = yaml.load(path.read_bytes(), getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except yaml.YAMLError:
        return list(GROUPS), False

    def section(name: str) -> Mapping[str, object]:
        inner = found.get(name) if isinstance(found, dict) else None
        return inner if isinstance(inner, dict) else {}

    off = {group for group, (kind, feature) in FEATURES.items() if section(kind).get(feature) is False}
    return [each for each in GROUPS if each not in off], not section("plugins").keys() <= BUILT_IN.keys()


def _commands_of_plugins(path: Path) -> Mapping[str, Callable[..., object]]:
    """Those of plugins that are on in this broker.yaml."""
    from halfmoon.config.settings import load_settings
    from halfmoon.hooks.outside import find_commands
    from halfmoon.plugins import BUILT_IN

    try:
        found = find_commands(load_settings(path, os.environ, {}), BUILT_IN)
    except HalfmoonError as error:
        output.note(f"halfmoon: {path}: no commands of plugins: {one_line(error)}")
        return {}
    for command in sorted(set(found) & {*COMMANDS, *GROUPS}):
        output.note(f"halfmoon: {path}: ignoring the command {command} of a plugin: halfmoon has one")
        del found[command]
    return found
