"""The broker's log: one line an entry, whatever clients call themselves.

Names of clients, groups and topics stand in log lines, and clients choose them freely: a line break in one would forge
an entry, an escape sequence would act on whoever reads the log in a terminal, 32 KB of `x` would fill the disk. So what
does not print is written as an escape and what is long is cut. Tracebacks stay as they are: they are ours.
"""

from __future__ import annotations

import logging
import re
import sys

from halfmoon.errors import StartError

LINE = "%(asctime)s level=%(levelname)s logger=%(name)s %(message)s"

LONGEST = 2_000
"""Characters of a message."""

_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


class OneLine(logging.Formatter):
    """Formats a record as `LINE`, with the message made harmless."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 (logging's name)
        record.message = printable(record.message)
        return super().formatMessage(record)


def printable(text: str) -> str:
    """`text` as one line of at most `LONGEST` characters, and a few that say what was cut."""
    if len(text) > LONGEST:
        text = f"{text[:LONGEST]}… ({len(text)} characters)"
    return _UNPRINTABLE.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def configure(level: str) -> None:
    """Log to stderr, from `level` on (a name such as INFO). Raises StartError for a level that does not exist."""
    if level.upper() not in logging.getLevelNamesMapping():
        raise StartError(f"HALFMOON_LOGLEVEL is {level!r}, expected DEBUG, INFO, WARNING, ERROR or CRITICAL")
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(OneLine(LINE))
    logging.basicConfig(handlers=[handler], level=level.upper())
