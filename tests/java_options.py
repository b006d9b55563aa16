"""The options of the JVMs that tests start: few of them live long enough for what makes a long run fast."""

from __future__ import annotations

import sys
from pathlib import Path

_ARCHIVE = Path(sys.prefix, "spark.jsa")
"""Spark's classes, if tools/class_archive.py has stored them."""


def options() -> str:
    """No optimizing compiler and no threads for the garbage collector; and the archive of classes.

    A JVM for which the archive is not right says so on its standard output, unless its own log is off.
    """
    plain = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    if not _ARCHIVE.exists() or " " in str(_ARCHIVE):
        return plain
    return f"{plain} -XX:SharedArchiveFile={_ARCHIVE} -Xlog:disable"
