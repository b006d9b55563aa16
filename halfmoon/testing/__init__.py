"""Halfmoon in your tests: a broker without JVM or Docker, pytest fixtures (`halfmoon_broker`, `halfmoon_topic`, …), and
checks for what plugins offer.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from halfmoon.testing.broker import Broker
from halfmoon.testing.checks import Message, check_filter, check_filter_error

if TYPE_CHECKING:
    from halfmoon.testing.aio import AsyncBroker
    from halfmoon.testing.controlled import Failure
    from halfmoon.testing.record import Record

__all__ = ["AsyncBroker", "Broker", "Failure", "Message", "Record", "check_filter", "check_filter_error"]

_ON_DEMAND = {"AsyncBroker": "aio", "Failure": "controlled", "Record": "record"}
"""What a broker can start without."""


def __getattr__(name: str) -> Any:
    if name not in _ON_DEMAND:
        raise AttributeError(f"module {__name__} has no attribute {name}")
    return getattr(import_module(f"{__name__}.{_ON_DEMAND[name]}"), name)
