"""What the engine asks of its shell."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from halfmoon.client.engine.network import Transport

if TYPE_CHECKING:
    from halfmoon.client.engine.listening import Work


class Driver(Transport, Protocol):
    """What the network needs, and threads for listeners. Nothing here waits; `Work.done` is told when a listener has
    returned."""

    def submit(self, works: Sequence[Work]) -> None:
        """Have listeners called, in their turn, with as many at a time as were agreed on."""
