"""Runs one command line: the one place where an error becomes a line on stderr and an exit code.

Exit codes: 0 done; 1 failed, or refused by the broker; 2 the command line itself is wrong; 130 ended by Ctrl-C.
`HALFMOON_DEBUG=1` shows the traceback of what would otherwise be one line.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence

from halfmoon.cli import output, starting
from halfmoon.cli.errors import OutputClosedError, describe_kafka_error, one_line
from halfmoon.errors import HalfmoonError

FAILED = 1
MISUSED = 2
INTERRUPTED = 130

COMPLETION = "_HALFMOON_COMPLETE"
"""The environment variable by which a shell asks what may come next."""


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command line (the process's own by default) and return its exit code. Writes errors to stderr."""
    # kafka-python logs every failed attempt; what matters of it arrives as an error.
    logging.getLogger("kafka").addHandler(logging.NullHandler())
    logging.getLogger("kafka").propagate = False
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    try:
        options = starting.options(arguments)
        answer = starting.start(**options) if options is not None else _parse_and_run(arguments)
        sys.stdout.flush()
    except (OutputClosedError, BrokenPipeError):
        return 0
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as error:
        if type(error).__name__ == "Abort":  # typer's, for Ctrl-C
            return INTERRUPTED
        if os.environ.get("HALFMOON_DEBUG"):
            raise
        return _explain(error)
    return answer if isinstance(answer, int) else 0


def _parse_and_run(arguments: list[str]) -> object:
    import typer

    from halfmoon.cli.commands import COMMANDS, GROUPS, command_line

    name = arguments[0] if arguments else ""
    completes = COMPLETION in os.environ
    if completes:
        from halfmoon.cli.completing import command_of

        name = command_of(os.environ)
    runs = completes or any(word in COMMANDS or word in GROUPS for word in arguments)
    command = typer.main.get_command(command_line(name, runs=runs))
    return command.main(args=arguments, prog_name="halfmoon", standalone_mode=False)


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
