"""Metrics of half messages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, Protocol

from halfmoon.plugin import Family, PutNumber

What = Literal["prepared", "committed", "rolled_back", "checked", "given_up"]
EVENTS: tuple[What, ...] = ("prepared", "committed", "rolled_back", "checked", "given_up")


class HalfMessages(Protocol):
    """What is read (half_messages.Transactions)."""

    @property
    def counts(self) -> Mapping[str, int]: ...


FAMILIES = (Family("halfmoon_half_messages_total", "counter", "What became of half messages.", ("event",)),)


def read(messages: HalfMessages, put: PutNumber) -> None:
    for event in EVENTS:
        put("halfmoon_half_messages_total", messages.counts[event], event)
