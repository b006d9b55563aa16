"""Dispatchers of plugins follow the log: when they begin, when they are woken, and what is told of them."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from halfmoon.core.catalog.catalog import Catalog
from halfmoon.core.features import Feature
from halfmoon.core.relay import Relays
from halfmoon.core.storage.storage import ReadSide, WriteSide
from halfmoon.core.turn import Turn
from halfmoon.errors import BrokerError
from halfmoon.services.following.follower import Follower
from halfmoon.services.following.types import Dispatcher


class Following:
    """All followers of a broker."""

    def __init__(
        self, log: WriteSide, reader: ReadSide, catalog: Catalog, turn: Turn, relays: Relays, logger: logging.Logger
    ) -> None:
        self._log = log
        self._reader = reader
        self._catalog = catalog
        self._turn = turn
        self._relays = relays
        self._logger = logger
        self.followers: list[Follower] = []

    def feature(self) -> Feature:
        return Feature(
            "following", checkpoint=self._checkpoint, problems=lambda: [f.problem for f in self.followers if f.problem],
            warnings=lambda: [f.missed for f in self.followers if f.missed],
        )  # fmt: skip

    def start(self, dispatchers: Sequence[tuple[str, Dispatcher]], cluster_id: str) -> None:
        """(plugin, dispatcher) each. The broker is open. Raises OSError."""
        for plugin, dispatcher in dispatchers:
            follower = Follower(
                plugin, dispatcher, self._log, self._reader, self._catalog, self._turn, cluster_id, self._logger
            )  # fmt: skip
            follower.open()
            self.followers.append(follower)
            self._relays.add(follower, follower)
        if dispatchers:
            self._turn.flushed = (*self._turn.flushed, self._wake)

    def stop(self) -> None:
        """Show what is durable, and save how far each has come, waiting for it."""
        self._turn.flushed = tuple(each for each in self._turn.flushed if each != self._wake)
        for follower in self.followers:
            self._relays.remove(follower)
            try:
                follower.close()
            except (OSError, BrokerError) as error:
                self._logger.error("event=position_not_saved what=%r reason=%s", str(follower), error)

    def _wake(self) -> None:
        for follower in self.followers:
            self._relays.wake(follower)

    def _checkpoint(self) -> None:
        for follower in self.followers:
            follower.save_soon()
            self._relays.wake(follower)
