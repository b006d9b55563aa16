"""Halfmoon in your tests: a broker without JVM or Docker, pytest fixtures (`halfmoon_broker`, `halfmoon_topic`), and
checks for what plugins offer.
"""

from halfmoon.testing.broker import Broker
from halfmoon.testing.checks import Message, check_filter, check_filter_error

__all__ = ["Broker", "Message", "check_filter", "check_filter_error"]
