"""An observer of everything (hook `halfmoon_observers`), for both protocols."""

from __future__ import annotations

from collections import Counter
from typing import Any

from halfmoon.hooks.errors import PluginErrors
from halfmoon.hooks.types import Observer
from halfmoon.server.observing import Observing


class Heard:
    def __init__(self, rig: Any) -> None:
        self.counts: Counter[tuple[Any, ...]] = Counter()
        names = ("acknowledged", "redelivered", "dead_lettered")
        told = {f"on_{name}": self._told(name) for name in names}
        self.observer = Observer("heard", on_fetched=self._fetched, on_produced=self._produced, **told)
        self.errors = PluginErrors({("halfmoon_observers", "heard"): "ears"})
        self.rig = rig
        Observing(rig.broker, [self.observer], self.errors)

    def _told(self, name: str) -> Any:
        def told(group: str, topic: str, partition: int, messages: int) -> None:
            self.counts[name, group, topic, partition] += messages

        return told

    def _fetched(self, topic: str, partition: int, size: int) -> None:
        assert size > 0
        self.counts["fetched", topic, partition] += 1

    def _produced(self, topic: str, partition: int, records: int, size: int) -> None:
        self.counts["produced", topic, partition] += records

    def take(self) -> dict[tuple[Any, ...], int]:
        found, self.counts = dict(self.counts), Counter()
        return found
