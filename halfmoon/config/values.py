"""Values of configurations: the type that Kafka's tools show, and the checks that say which text is taken.

A check gets the value without outer blanks. It raises ValueError, which says what is expected, and returns the parsed
value. Syntax: org.apache.kafka.common.config.ConfigDef.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import Enum

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1


class Kind(Enum):
    """The type of a value, as Kafka's tools name it."""

    UNKNOWN = "unknown"
    BOOLEAN = "boolean"
    STRING = "string"
    INT = "int"
    LONG = "long"
    DOUBLE = "double"
    LIST = "list"


_INTEGER = re.compile(r"[+-]?[0-9]{1,19}\Z")


def integer(least: int, most: int) -> Callable[[str], int]:
    """A check, which returns the number too."""

    def check(value: str) -> int:
        if not _INTEGER.match(value) or not least <= int(value) <= most:
            raise ValueError(f"expected an integer from {least} to {most}")
        return int(value)

    return check


def boolean(value: str) -> bool:
    if value.lower() not in ("true", "false"):
        raise ValueError("expected true or false")
    return value.lower() == "true"


def ratio(value: str) -> float:
    try:
        number = float(value)
    except ValueError:
        number = -1.0
    if not 0 <= number <= 1:
        raise ValueError("expected a number from 0 to 1")
    return number


def one_of(*choices: str) -> Callable[[str], str]:
    def check(value: str) -> str:
        if value not in choices:
            raise ValueError(f"expected {' or '.join(choices)}")
        return value

    return check


def only(truth: str, why: str) -> Callable[[str], str]:
    """A check that takes the one value that is true here."""

    def check(value: str) -> str:
        if value != truth:
            raise ValueError(f"only {truth} is supported: {why}")
        return value

    return check


def read_only(value: str) -> str:
    """A check that takes nothing."""
    raise ValueError("it is read-only")
