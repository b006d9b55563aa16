"""Halfmoon in your tests: a broker without JVM or Docker, and pytest fixtures (`halfmoon_broker`, `halfmoon_topic`)."""

from halfmoon.testing.broker import Broker

__all__ = ["Broker"]
