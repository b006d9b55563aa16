"""The command line put together, and the one place where an error becomes a line on stderr and an exit code.

Exit codes: 0 done; 1 failed, or refused by the broker; 2 the command line itself is wrong; 130 ended by Ctrl-C.
`HALFMOON_DEBUG=1` shows the traceback of what would otherwise be one line.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer

from halfmoon import __version__
from halfmoon.cli import output
from halfmoon.cli.errors import OutputClosedError, describe_kafka_error, one_line
from halfmoon.errors import HalfmoonError

FAILED = 1
MISUSED = 2
INTERRUPTED = 130

COMMANDS = {
    "serve": "serve.serve",
    "produce": "produce.produce",
    "consume": "consume.consume",
    "plugins": "plugins.plugins",
    "backup": "log.backup",
    "restore": "log.restore",
}
"""The function of each, in its module of `halfmoon.cli`."""
GROUPS = (
    "topic",
    "view",
    "group",
    "dlq",
    "message",
    "user",
    "acl",
    "token",
    "tls",
    "log",
    "config",
    "plugin",
    "pipeline",
)
"""Commands that have commands: the `app` of the module of that name."""
FEATURES = {"view": ("plugins", "view"), "group": ("services", "groups"), "message": ("services", "keyindex")}
"""What these are commands of. Where the broker.yaml here says that it is off they are not listed. They run all the
same: the broker they ask may be another."""


def _print_version(wanted: bool) -> None:
    if wanted:
        output.line(f"halfmoon {__version__}")
        raise typer.Exit


def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """A message broker for the Kafka clients you already have."""


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command line (the process's own by default) and return its exit code. Writes errors to stderr."""
    # kafka-python logs every failed attempt; what matters of it arrives as an error.
    logging.getLogger("kafka").addHandler(logging.NullHandler())
    logging.getLogger("kafka").propagate = False
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    command = typer.main.get_command(command_line(arguments[0] if arguments else ""))
    try:
        answer = command.main(args=arguments, prog_name="halfmoon", standalone_mode=False)
        sys.stdout.flush()
    except (OutputClosedError, BrokenPipeError):
        return 0
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    except Exception as error:
        if os.environ.get("HALFMOON_DEBUG"):
            raise
        return _explain(error)
    return answer if isinstance(answer, int) else 0


def command_line(name: str = "") -> typer.Typer:
    """The command line with this command alone, or all of it if there is none of that name.

    Only what is in it is imported: the others' modules, and parsers of all their options, take 60 ms, a fifth of what a
    broker takes to start.
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
        module, _, function = COMMANDS[command].partition(".")
        app.command(command)(getattr(import_module(f"halfmoon.cli.{module}"), function))
    for group in groups:
        app.add_typer(import_module(f"halfmoon.cli.{group}").app, name=group)
    for command, given in plugged.items():
        app.command(command)(given)
    return app


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


def _explain(error: Exception) -> int:
    """Say what went wrong in one line; the exit code."""
    if type(error).__name__ == "NoArgsIsHelpError":
        # What there is to say was asked for by saying nothing.
        output.line(str(getattr(error, "message", error)))
        return 0
    if hasattr(error, "format_message"):
        # The command line parser's own errors. Their class has moved between releases of typer; this method has not.
        context = getattr(error, "ctx", None)
        hint = f" (see {context.command_path} --help)" if context is not None else ""
        output.note(f"halfmoon: {one_line(error.format_message())}{hint}")
        return MISUSED
    if isinstance(error, HalfmoonError):
        output.note(f"halfmoon: {one_line(error)}")
    elif "kafka" in sys.modules and _is_kafka_error(error):
        output.note(f"halfmoon: {describe_kafka_error(error)}")
    elif isinstance(error, OSError) and error.strerror:
        place = f"{error.filename}: " if error.filename else ""
        output.note(f"halfmoon: {place}{error.strerror}")
    else:
        output.note(f"halfmoon: unexpected {type(error).__name__}: {one_line(error)} (HALFMOON_DEBUG=1 shows where)")
    return FAILED


def _is_kafka_error(error: Exception) -> bool:
    from kafka.errors import KafkaError

    return isinstance(error, KafkaError)
