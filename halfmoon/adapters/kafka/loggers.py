"""Levels of this process's loggers, under the names Kafka's tools use (resource type BROKER_LOGGER, KIP-412).

Loggers are Python's: `root`, and those of the broker that have logged or may. A change holds until the process ends, as
in Kafka. TRACE is Python's 5 and FATAL its CRITICAL.
"""

from __future__ import annotations

import logging

from halfmoon.errors import BrokerError, Fault

ROOT = "root"
LEVELS = {
    "DEBUG": logging.DEBUG,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
    "INFO": logging.INFO,
    "TRACE": 5,
    "WARN": logging.WARNING,
}
OURS = "halfmoon"


def levels() -> dict[str, str]:
    """The level in force of every logger, sorted by name."""
    known = [ROOT, *(name for name in logging.root.manager.loggerDict if name.partition(".")[0] == OURS)]
    return {name: _word(_logger(name).getEffectiveLevel()) for name in sorted(known)}


def check(name: str, level: str | None) -> None:
    """Raise BrokerError unless the logger exists and may get that level; None: that of the logger above it."""
    if name not in levels():
        raise BrokerError(Fault.INVALID_CONFIG, f"logger {name} does not exist")
    if level is None:
        if name == ROOT:
            raise BrokerError(Fault.INVALID_REQUEST, "removing the log level of the root logger is not allowed")
    elif level not in LEVELS:
        known = ", ".join(LEVELS)
        raise BrokerError(
            Fault.INVALID_CONFIG, f"cannot set the log level of {name} to {level}; valid log levels are {known}"
        )


def set_level(name: str, level: str | None) -> None:
    """As `check` allows it."""
    _logger(name).setLevel(logging.NOTSET if level is None else LEVELS[level])


def _logger(name: str) -> logging.Logger:
    return logging.getLogger(None if name == ROOT else name)


def _word(level: int) -> str:
    """The nearest of Kafka's words for a level, not above it."""
    below = [(number, word) for word, number in LEVELS.items() if number <= level]
    return max(below)[1] if below else "TRACE"
