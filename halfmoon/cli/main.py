"""The command line put together, and the one place where an error becomes a line on stderr and an exit code.

Exit codes: 0 done; 1 failed, or refused by the broker; 2 the command line itself is wrong; 130 ended by Ctrl-C.
`HALFMOON_DEBUG=1` shows the traceback of what would otherwise be one line.
"""

from __future__ import annotations

import copy
import logging
import os
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from halfmoon import __version__
from halfmoon.cli import (
    config,
    consume,
    dlq,
    group,
    log,
    message,
    output,
    pipeline,
    plugins,
    produce,
    serve,
    topic,
    view,
)
from halfmoon.cli.errors import OutputClosedError, describe_kafka_error, one_line
from halfmoon.core.errors import HalfmoonError

FAILED = 1
MISUSED = 2
INTERRUPTED = 130

app = typer.Typer(
    name="halfmoon",
    help="A message broker for the Kafka clients you already have.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("serve")(serve.serve)
app.command("produce")(produce.produce)
app.command("consume")(consume.consume)
app.command("plugins")(plugins.plugins)
app.command("backup")(log.backup)
app.add_typer(topic.app, name="topic")
app.add_typer(view.app, name="view")
app.add_typer(group.app, name="group")
app.add_typer(dlq.app, name="dlq")
app.add_typer(message.app, name="message")
app.add_typer(log.app, name="log")
app.add_typer(config.app, name="config")
app.add_typer(pipeline.app, name="pipeline")


def _print_version(wanted: bool) -> None:
    if wanted:
        output.line(f"halfmoon {__version__}")
        raise typer.Exit


@app.callback()
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
    command = typer.main.get_command(narrowed(arguments[0] if arguments else ""))
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


def narrowed(name: str) -> typer.Typer:
    """The command line with this command alone, or all of it if there is none of that name.

    To make parsers of every option of all commands takes 40 ms, a sixth of what a short command takes.
    """
    commands = [command for command in app.registered_commands if command.name == name]
    groups = [group for group in app.registered_groups if group.name == name]
    if not commands and not groups:
        return app
    alone = copy.copy(app)
    alone.registered_commands, alone.registered_groups = commands, groups
    return alone


def _explain(error: Exception) -> int:
    """Say what went wrong in one line; the exit code."""
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
