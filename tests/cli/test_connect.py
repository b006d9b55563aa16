"""Clients of a command, which end with it."""

from __future__ import annotations

import kafka
import pytest

from halfmoon.cli import connect
from halfmoon.cli.brokers import Brokers


class Failing:
    """A client that fails when it is closed, as kafka-python's does now and then after Ctrl-C."""

    def __init__(self, **settings: object) -> None:
        pass

    def close(self, **how: object) -> None:
        raise RuntimeError("its loop has ended")


@pytest.fixture
def brokers(monkeypatch: pytest.MonkeyPatch) -> Brokers:
    monkeypatch.setattr(kafka, "KafkaConsumer", Failing)
    monkeypatch.setattr(connect, "_common", lambda brokers: {})
    return Brokers("127.0.0.1:1")


def test_what_has_ended_the_command_counts_not_how_its_client_ends(brokers: Brokers) -> None:
    with pytest.raises(KeyboardInterrupt), connect.consumer(brokers):
        raise KeyboardInterrupt


def test_a_client_that_fails_at_the_end_is_an_error(brokers: Brokers) -> None:
    with pytest.raises(RuntimeError, match="its loop has ended"), connect.consumer(brokers):
        pass
