"""A process that is told to end while its broker starts ends, however long the start would take."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from typing import Any

import pytest

from halfmoon.config.settings import Settings, load_settings
from halfmoon.errors import StartError
from halfmoon.server.process import _Process
from halfmoon.server.running import undo
from tests.server.server_rig import played


class Starting:
    """A broker whose start never ends."""

    def __init__(self, meanwhile: Callable[[], None]) -> None:
        self._meanwhile = meanwhile
        self.done: list[str] = []

    async def start(self) -> None:
        try:
            self._meanwhile()
            await asyncio.Event().wait()
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        await undo([lambda: self.done.append("stopped")])


def ran(meanwhile: Callable[[Callable[[Exception], None]], None]) -> tuple[int, list[str]]:
    """The exit code, and what the broker has done. `meanwhile`: while it starts; told how to say that it is lost."""
    settings = load_settings({}, {}, {})
    made: list[Starting] = []

    def make(_settings: Settings, _unset: object, lost: Callable[[Exception], None]) -> Any:
        made.append(Starting(lambda: meanwhile(lost)))
        return made[0]

    async def run() -> int:
        async with asyncio.timeout(10):
            return await _Process(lambda: settings, None, (), make).run(settings)

    return played(run()), made[0].done


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_start_is_undone_when_the_process_is_told_to_stop(number: int) -> None:
    assert ran(lambda lost: os.kill(os.getpid(), number)) == (0, ["stopped"])


def test_a_start_is_undone_when_the_process_is_lost() -> None:
    assert ran(lambda lost: lost(OSError("the catalog has gone on without it"))) == (1, ["stopped"])


def test_what_is_wrong_with_a_start_is_said() -> None:
    def fail(_lost: object) -> None:
        raise StartError("there is no database")

    with pytest.raises(StartError, match="no database"):
        ran(fail)
