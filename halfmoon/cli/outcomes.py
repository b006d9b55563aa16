"""What became of each of the things that a command was given: topics, views, groups."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from halfmoon.cli import output
from halfmoon.cli.errors import CliError
from halfmoon.cli.output import Output


def row(kind: str, name: str, problem: str | None, done: str, **more: Any) -> dict[str, Any]:
    """What became of one thing, as `report` wants it."""
    return {kind: name, "result": problem or done, **more, "ok": problem is None}


def report(rows: list[dict[str, Any]], result: Output, kind: str = "topic") -> None:
    """One line per `row`; raises CliError, after all are shown, if one failed."""
    failures = [each for each in rows if not each["ok"]]
    if result is Output.JSON:
        output.json_document(rows)
    else:
        for each in rows:
            if each["ok"]:
                output.line(f"{each[kind]}: {each['result']}")
        # The last failure is the command's own error line.
        for each in failures[:-1]:
            output.note(f"halfmoon: {each[kind]}: {each['result']}")
    if failures:
        raise CliError(f"{failures[-1][kind]}: {failures[-1]['result']}")


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Ctrl-C does not fall into it, but comes behind it: not between the count and the line of a record."""
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT,))
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGINT,))


def interrupted(topic: str, acknowledged: int, unanswered: int) -> str:
    """What Ctrl-C leaves behind: whoever sent the records must know which are safe."""
    said = f"halfmoon: interrupted: {acknowledged} record{'s' if acknowledged != 1 else ''} to {topic} acknowledged"
    return f"{said}; {unanswered} sent without an answer" if unanswered else said
