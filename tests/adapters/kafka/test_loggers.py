"""Levels of loggers, as Kafka's tools see and set them."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from halfmoon.adapters.kafka import loggers
from halfmoon.errors import BrokerError

NAME = "halfmoon.test-of-loggers"


@pytest.fixture(autouse=True)
def logger() -> Iterator[logging.Logger]:
    found = logging.getLogger(NAME)
    yield found
    found.setLevel(logging.NOTSET)


def test_what_is_shown(logger: logging.Logger) -> None:
    logging.getLogger("somebody.else")
    logger.setLevel(logging.WARNING)
    found = loggers.levels()
    assert found[NAME] == "WARN"
    assert loggers.ROOT in found
    assert "somebody.else" not in found
    assert list(found) == sorted(found)


@pytest.mark.parametrize("level", loggers.LEVELS)
def test_a_level_is_set_and_unset(logger: logging.Logger, level: str) -> None:
    loggers.check(NAME, level)
    loggers.set_level(NAME, level)
    assert logger.level == loggers.LEVELS[level]
    assert loggers.levels()[NAME] == level
    loggers.set_level(NAME, None)
    assert logger.level == logging.NOTSET


def test_a_level_between_two_words(logger: logging.Logger) -> None:
    logger.setLevel(25)
    assert loggers.levels()[NAME] == "INFO"
    logger.setLevel(1)
    assert loggers.levels()[NAME] == "TRACE"


@pytest.mark.parametrize(
    ("name", "level", "says"),
    [
        ("halfmoon.no-such-logger", "INFO", "does not exist"),
        ("somebody.else", "INFO", "does not exist"),
        (NAME, "LOUD", "LOUD"),
        (loggers.ROOT, None, "root"),
    ],
)
def test_refusals(name: str, level: str | None, says: str) -> None:
    with pytest.raises(BrokerError, match=says):
        loggers.check(name, level)
