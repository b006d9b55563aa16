"""The kit's instrument in a process of its own, and how the test's process asks it: a line of JSON and its answer, over
a socket in a folder that both know.

    FOLDER/instrument.json      what outlasts a start of the process (`state`); the test's process writes it
    FOLDER/instrument-N.sock    process N of those that share the topics
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from halfmoon.server.instruments import install
from halfmoon.testing.asked import socket_of
from halfmoon.testing.instrument import Instrument
from halfmoon.testing.state import STATE, VARIABLE, State

if TYPE_CHECKING:
    from halfmoon.core.clock import Clock
    from halfmoon.server.instruments import Instrumented

LONGEST: Final = 1 << 20


class Remote(Instrument):
    """In the broker's process."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        super().__init__(State())
        self._server: asyncio.Server | None = None

    def clock(self, machine: Clock) -> Clock:
        self._state = State(**json.loads((self._folder / STATE).read_text()))  # not before: this may be a spare process
        return super().clock(machine)

    async def began(self, broker: Instrumented) -> None:
        await super().began(broker)
        path = socket_of(self._folder, broker.process_number)
        path.unlink(missing_ok=True)  # of one that was killed
        self._server = await asyncio.start_unix_server(self._serve, path, limit=LONGEST)

    async def ended(self) -> None:
        if self._server is not None:
            self._server.close()
        await super().ended()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while line := await reader.readline():
                asked = json.loads(line)
                try:
                    answer = {"answer": await self.answer(asked["question"], asked["told"])}
                except ValueError as error:
                    answer = {"error": str(error)}
                writer.write(json.dumps(answer).encode() + b"\n")
                await writer.drain()
        writer.close()


def install_if_told() -> None:
    """Before anything else of a broker is imported."""
    folder = os.environ.get(VARIABLE)
    if folder is not None:
        install(Remote(Path(folder)))
