"""What the engine asks of its shell."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from halfmoon.client.engine.listening import Work
    from halfmoon.client.engine.network import Connection


class Driver(Protocol):
    """Nothing here waits. What happens then is said to the engine: `Network.connected`, `received`, `closed`; and
    `Work.done`."""

    def connect(self, connection: Connection) -> None:
        """Open a TCP connection to `connection.address`."""

    def write(self, connection: Connection, data: bytes) -> None:
        """Send all of it, behind what was written before."""

    def close(self, connection: Connection) -> None:
        """Close it once what was written is sent. `Network.closed` is not called."""

    def submit(self, works: Sequence[Work]) -> None:
        """Have listeners called, in their turn, with as many at a time as were agreed on."""
