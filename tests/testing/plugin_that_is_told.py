"""A plugin that remembers what it was told."""

from __future__ import annotations

from halfmoon.plugin import hookimpl


class Told:
    api_version = 1

    def __init__(self) -> None:
        self.calls: list[str] = []

    @hookimpl
    def halfmoon_started(self) -> None:
        self.calls.append("started")

    @hookimpl
    def halfmoon_stopping(self) -> None:
        self.calls.append("stopping")
