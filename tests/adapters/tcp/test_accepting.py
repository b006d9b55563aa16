"""The door of a listener where the loop does not take a connection."""

from __future__ import annotations

import asyncio
import logging
import socket
from typing import Any

from halfmoon.adapters.tcp.accepting import Arrival, Door
from halfmoon.adapters.tcp.newcomers import Newcomers


class Loop(asyncio.SelectorEventLoop):
    async def connect_accepted_socket(self, *given: Any, **more: Any) -> Any:
        raise OSError(107, "Transport endpoint is not connected")


class Gate:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.log = logging.getLogger("halfmoon.test")
        self.newcomers = Newcomers(lambda: 0, 10, 1_000)
        self.here: set[Arrival] = set()
        self.ends: list[str] = []

    def admit(self, arrival: Arrival) -> bool:
        self.here.add(arrival)
        return True

    def wait_ms(self, host: str) -> int:
        return 0

    def leave(self, arrival: Arrival) -> None:
        self.here.remove(arrival)

    def log_end(self, peer: str, client: str, reason: str) -> None:
        self.ends.append(reason)


def test_what_the_loop_does_not_take_is_closed_and_counts_no_more():
    """Of a listener that also takes clients without TLS."""
    loop = Loop()
    gate = Gate(loop)
    door = Door(gate, None, lambda arrival: asyncio.Protocol(), takes_plain=True)  # type: ignore[arg-type]
    address = loop.run_until_complete(door.open(("127.0.0.1", 0)))

    def talk() -> bytes:
        with socket.create_connection(address, timeout=20) as stream:
            stream.sendall(b"\0")
            try:
                return stream.recv(1)
            except ConnectionResetError:
                return b""

    assert loop.run_until_complete(loop.run_in_executor(None, talk)) == b""
    assert gate.ends == ["it cannot be read from: [Errno 107] Transport endpoint is not connected"]
    assert (gate.here, len(gate.newcomers)) == (set(), 0)
    door.close()
    loop.close()
