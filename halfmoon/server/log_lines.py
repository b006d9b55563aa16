"""The broker's log: one line an entry, whatever clients call themselves, as text or as JSON.

An entry is what happened and its facts: `event=member_left group=billing member=c1`. All code of the broker logs in
this form, with a %-conversion for each fact. So this module knows facts by name: it quotes those with a space (logfmt),
or writes all of them as members of a JSON object. What others log (libraries, plugins) is a message.

Names of clients, groups and topics stand in log lines, and clients choose them freely: a line break in one would forge
an entry, an escape sequence would act on whoever reads the log in a terminal, 32 KB of `x` would fill the disk. So what
does not print is written as an escape and what is long is cut. As text, tracebacks stay as they are: they are ours.
"""

from __future__ import annotations

import json
import logging
import os
import re
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Literal, NamedTuple

from halfmoon.errors import StartError
from halfmoon.services.common.printing import cut, printable

if TYPE_CHECKING:
    from halfmoon.config.settings import Settings

Format = Literal["text", "json"]

LINE = "%(asctime)s level=%(levelname)s logger=%(name)s %(message)s"

LEVEL_VARIABLE = "HALFMOON_LOGLEVEL"
"""Goes before `logging.level`: it was there first."""

LONGEST = 2_000
"""Characters of a message, or of one fact in JSON."""

_VALUE = r"(?:%[-#0 +]*\d*(?:\.\d+)?[diouxXeEfFgGcrsa]|[\w.:/-]+)"
_STYLE = re.compile(rf"event=([a-z][a-z_0-9]*)((?: [a-z][a-z_0-9]*={_VALUE})*)")
_FACTS = re.compile(rf"([a-z][a-z_0-9]*)=({_VALUE})")
_PLAIN = re.compile(r'[^\s"=]+')


class Style(NamedTuple):
    """A format string of this form: what happened, and each fact's name with its conversion, or its constant value."""

    event: str
    facts: tuple[tuple[str, str], ...]


@lru_cache(1_000)
def style_of(template: str) -> Style | None:
    """None for a format string of another form."""
    found = _STYLE.fullmatch(template)
    if found is None:
        return None
    return Style(found[1], tuple((fact[1], fact[2]) for fact in _FACTS.finditer(found[2])))


def facts_of(record: logging.LogRecord) -> dict[str, object] | None:
    """What an entry says, by name, `event` first; None for one that is a message. Numbers stay numbers where the
    conversion takes them as they are; all else is text."""
    style = style_of(record.msg) if isinstance(record.msg, str) else None
    if style is None or isinstance(record.args, Mapping):
        return None
    args = iter(record.args or ())
    facts: dict[str, object] = {"event": style.event}
    try:
        for name, conversion in style.facts:
            facts[name] = _value(conversion, next(args)) if conversion.startswith("%") else conversion
    except (StopIteration, TypeError, ValueError):
        return None  # logging itself says that its arguments do not go with its message
    return facts


def _value(conversion: str, given: object) -> object:
    if isinstance(given, str) and conversion in ("%s", "%r"):
        return given
    if given is None or (isinstance(given, (int, float)) and conversion in ("%s", "%r", "%d", "%g")):
        return given
    return conversion % (given,)


class TextLines(logging.Formatter):
    """Formats a record as `LINE`, with the message made harmless, and facts with spaces quoted."""

    def __init__(self, worker: int | None = None) -> None:
        super().__init__(LINE if worker is None else LINE.replace(" %(message)s", f" worker={worker} %(message)s"))

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 (logging's name)
        facts = facts_of(record)
        if facts is not None:
            record.message = " ".join(f"{name}={_word(value)}" for name, value in facts.items())
        record.message = printable(record.message, LONGEST)
        return super().formatMessage(record)


class JsonLines(logging.Formatter):
    """Formats a record as a JSON object: time (UTC), level, logger, then `event` and its facts, or `message`; and
    `exception` with the traceback."""

    def __init__(self, worker: int | None = None) -> None:
        super().__init__()
        self._worker: dict[str, object] = {} if worker is None else {"worker": worker}

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        entry: dict[str, object] = {"time": at, "level": record.levelname, "logger": record.name}
        entry |= self._worker
        facts = facts_of(record) or {"message": record.getMessage()}
        for name, value in facts.items():
            key = f"{name}_" if name in entry else name
            entry[key] = cut(value, LONGEST) if isinstance(value, str) else value
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        # In ASCII: lone surrogates, which clients can send, are escapes then, as all that does not print.
        return json.dumps(entry, default=str)


def _word(value: object) -> str:
    """A fact in a line of text: in quotes where it is no single word."""
    text = str(value)
    return text if _PLAIN.fullmatch(text) else '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def configure(settings: Settings, worker: int | None = None) -> None:
    """Log to stderr, as the settings and HALFMOON_LOGLEVEL say. May be called again. `worker`: each entry says which
    process it is of. Raises StartError for a level that does not exist."""
    level = os.environ.get(LEVEL_VARIABLE) or settings.logging.level
    if level.upper() not in logging.getLevelNamesMapping():
        raise StartError(f"{LEVEL_VARIABLE} is {level!r}, expected DEBUG, INFO, WARNING, ERROR or CRITICAL")
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines(worker) if settings.logging.format == "json" else TextLines(worker))
    root = logging.getLogger()
    for before in [each for each in root.handlers if isinstance(each.formatter, (TextLines, JsonLines))]:
        root.removeHandler(before)
    root.addHandler(handler)
    root.setLevel(level.upper())
