"""Names for a shell that completes a word: topics and groups of the broker that the command line so far names.

A shell waits while this runs, and shows what it writes. So the broker has a second, and whatever goes wrong is silence.
Names of groups are anybody's choice and end up in a shell's `eval` (zsh): only those of plain characters are offered.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, MutableMapping
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from halfmoon.cli.admin_client import AdminClient

TIMEOUT = "HALFMOON_COMPLETION_TIMEOUT_S"
TIME_S = 1.0
"""How long a broker may take, where the environment does not say."""

_PLAIN = re.compile(r"[A-Za-z0-9._@%+/~-]+")
_BREAKS = re.compile(r"[:=]+")
"""Bash takes these for words of their own; we have addresses and --option=value."""


def topics(context: typer.Context, incomplete: str) -> list[str]:
    """Topics that begin so; internal ones only if `incomplete` begins as theirs do."""

    def ask(client: AdminClient) -> list[str]:
        return [
            topic["name"]
            for topic in client.describe_topics()
            if not topic["is_internal"] or incomplete.startswith("__")
        ]

    return _names(context, incomplete, ask)


def groups(context: typer.Context, incomplete: str) -> list[str]:
    """Groups of all kinds that begin so."""
    return _names(context, incomplete, lambda client: [entry.group_id for entry in client.list_groups()])


def _names(context: typer.Context, incomplete: str, ask: Callable[[AdminClient], list[str]]) -> list[str]:
    """What the broker answers within `TIME_S`, but for what the command line has already."""
    if (context.params.get("protocol") or "kafka") != "kafka":
        return []
    found: list[str] = []

    def work() -> None:
        with suppress(Exception):
            found.extend(_asked(context, ask))

    asking = Thread(target=work, daemon=True)
    asking.start()
    asking.join(_time_s())
    there = {each for value in context.params.values() if isinstance(value, list | tuple) for each in value}
    return sorted(
        name
        for name in set(found)
        if name.startswith(incomplete) and (name == incomplete or name not in there) and _PLAIN.fullmatch(name)
    )


def _time_s() -> float:
    try:
        return float(os.environ[TIMEOUT])
    except (KeyError, ValueError):
        return TIME_S


def _asked(context: typer.Context, ask: Callable[[AdminClient], list[str]]) -> list[str]:
    from halfmoon.cli.admin_client import AdminClient
    from halfmoon.cli.brokers import Brokers
    from halfmoon.cli.connect import CLIENT_ID
    from halfmoon.cli.options import DEFAULT_BOOTSTRAP_SERVER
    from halfmoon.securing.properties import PLAINTEXT, read

    # Where a command line is only completed, its values are not always there by default, nor of their types.
    given, environment = context.params, os.environ
    server = given.get("bootstrap_server") or environment.get("HALFMOON_BOOTSTRAP_SERVER") or DEFAULT_BOOTSTRAP_SERVER
    config = given.get("command_config") or environment.get("HALFMOON_COMMAND_CONFIG")
    security = PLAINTEXT if config is None else read(Path(config), lambda said: None)
    client = AdminClient([address for _, address in Brokers(server).servers()], CLIENT_ID, security)
    try:
        return ask(client)
    finally:
        client.close()


def command_of(environment: MutableMapping[str, str]) -> str:
    """The command whose words a shell completes, "" before there is one. What bash has taken apart is put together."""
    if "COMP_WORDS" in environment:
        _put_together(environment)
        words = environment["COMP_WORDS"].split()
        whole = int(environment.get("COMP_CWORD") or 0) > 1
    else:
        said = environment.get("_TYPER_COMPLETE_ARGS", "")
        words = said.split()
        whole = len(words) > 2 or said.endswith(" ")
    return words[1] if whole and len(words) > 1 else ""


def _put_together(environment: MutableMapping[str, str]) -> None:
    """`-b`, `127.0.0.1`, `:`, `9092` are two words. The script that the shell has stands a word on a line."""
    parts = environment["COMP_WORDS"].split("\n")
    if len(parts) == 1:  # another script, which has blanks between words
        return
    try:
        at = int(environment["COMP_CWORD"])
    except (KeyError, ValueError):
        return
    words: list[str] = []
    here, glue = 0, False
    for number, part in enumerate(parts):
        is_break = _BREAKS.fullmatch(part) is not None
        if words and (glue or is_break):
            words[-1] += part
        else:
            words.append(part)
        glue = is_break
        if number <= at:
            here = len(words) - 1
    if at >= len(parts):
        here = len(words)
    environment["COMP_WORDS"], environment["COMP_CWORD"] = "\n".join(words), str(here)
