"""What the tables of configurations have in common: types as Kafka's tools show them, defaults, checks and refusals.

A check gets the value without outer blanks. It raises ValueError, which says what is expected, and returns the parsed
value. Syntax: org.apache.kafka.common.config.ConfigDef.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from enum import Enum
from operator import attrgetter

from halfmoon.errors import BrokerError, Fault

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1
LONG_MIN = -(2**63)


class Kind(Enum):
    """The type of a value, as Kafka's tools name it."""

    UNKNOWN = "unknown"
    BOOLEAN = "boolean"
    STRING = "string"
    INT = "int"
    LONG = "long"
    DOUBLE = "double"
    LIST = "list"


def always(value: object) -> Callable[[object], str]:
    """A default that no setting changes."""
    return lambda settings: str(value)


def stated(path: str, nothing: object = -1) -> Callable[[object], str]:
    """A default that stands at this path of Settings (`log.retention_ms`). Kafka writes `nothing` where the setting is
    None."""
    read = attrgetter(path)

    def value(settings: object) -> str:
        found = read(settings)
        if isinstance(found, bool):
            return "true" if found else "false"
        return str(nothing if found is None else found)

    return value


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


def number(value: str) -> float:
    try:
        return float(value)
    except ValueError:
        raise ValueError("expected a number") from None


def ratio(value: str) -> float:
    try:
        found = float(value)
    except ValueError:
        found = -1.0
    if not 0 <= found <= 1:
        raise ValueError("expected a number from 0 to 1")
    return found


def one_of(*choices: str) -> Callable[[str], str]:
    def check(value: str) -> str:
        if value not in choices:
            raise ValueError(f"expected {' or '.join(choices)}")
        return value

    return check


def read_only(value: str) -> str:
    """A check that takes nothing."""
    raise ValueError("it is read-only")


def checked(
    kind: str, name: str, value: str, check: Callable[[str], object], fault: Fault = Fault.INVALID_CONFIG
) -> None:
    """Raise BrokerError, naming the key, unless the check takes the value. `kind`: of what it is a configuration."""
    try:
        check(value.strip())
    except ValueError as error:
        raise BrokerError(fault, f"invalid value '{value}' for {kind} config {name}: {error}") from None


def unknown(kind: str, name: str, reason: str | None, fault: Fault = Fault.INVALID_CONFIG) -> BrokerError:
    """The refusal of a name: with the `reason` (and its `fault`) if Kafka has it, else since nobody knows it."""
    if reason is None:
        return BrokerError(Fault.INVALID_CONFIG, f"unknown {kind} config name: {name}")
    return BrokerError(fault, f"{kind} config {name} is not supported: {reason}")


def by_name(names: Mapping[str, tuple[str, ...]]) -> dict[str, str]:
    """Reasons by name, from names by reason."""
    return {name: reason for reason, group in names.items() for name in group}
