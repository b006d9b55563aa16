"""What is loaded once a broker is ready."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
from collections.abc import Callable

import pytest
from server_rig import in_loop, until

from halfmoon.server import warming
from halfmoon.server.warming import Warming


def test_everything_that_was_left_out_of_the_start_is_a_piece() -> None:
    program = (
        "import halfmoon.server.app\n"
        "from halfmoon.adapters.kafka.api import registered\n"
        "from halfmoon.adapters.kafka.protocol import REQUESTS, RESPONSES\n"
        "from halfmoon.adapters.kafka.registry import OnDemand\n"
        "from halfmoon.server.warming import pieces\n"
        "def missing():\n"
        "    handlers = [api for api in registered().values()\n"
        "                if isinstance(api.handler, OnDemand) and not api.handler.is_loaded]\n"
        "    messages = [message for kind in (REQUESTS, RESPONSES) for message in kind.values()\n"
        "                if 'fields' not in vars(message)]\n"
        "    return len(handlers), len(messages)\n"
        "assert min(missing()) > 50\n"
        "for load in pieces():\n"
        "    load()\n"
        "assert missing() == (0, 0), missing()\n"
    )
    subprocess.run([sys.executable, "-W", "ignore", "-c", program], check=True)


@in_loop
async def test_one_piece_a_turn_whatever_fails(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    order: list[str] = []

    def fails() -> None:
        order.append("fails")
        raise ImportError("a broken module")

    monkeypatch.setattr(
        warming, "pieces", lambda: iter([lambda: order.append("first"), fails, lambda: order.append("last")])
    )
    loop = asyncio.get_running_loop()
    loop.call_soon(order.append, "others")
    found = Warming(loop)
    found.start()
    with caplog.at_level(logging.ERROR, "halfmoon.server"):
        await until(lambda: "last" in order)
    assert order == ["others", "first", "fails", "last"]
    assert [record.getMessage() for record in caplog.records] == ["event=loading_failed"]


class Later:
    """A loop that calls nothing by itself."""

    def __init__(self) -> None:
        self.callback: Callable[[], None] | None = None

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> Later:
        self.callback = callback
        return self

    def cancel(self) -> None:
        self.callback = None


def test_it_can_be_stopped() -> None:
    loop = Later()
    found = Warming(loop)  # type: ignore[arg-type]
    found.start()
    assert loop.callback is not None
    found.stop()
    assert loop.callback is None
