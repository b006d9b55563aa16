"""Supervision of plugins' services."""

from __future__ import annotations

import asyncio

import pytest
from server_rig import in_loop, until

from halfmoon.hooks.types import Service
from halfmoon.server import services
from halfmoon.server.services import Services


class Flaky:
    """Fails so many times, then runs until it is cancelled."""

    def __init__(self, failures: int) -> None:
        self.failures = failures
        self.runs = 0
        self.cancelled = False

    async def run(self) -> None:
        self.runs += 1
        if self.runs <= self.failures:
            raise OSError(f"failure {self.runs}")
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled = True
            raise


@in_loop
async def test_a_service_runs_until_the_stop() -> None:
    flaky = Flaky(0)
    supervised = Services([Service("one", flaky.run)])
    supervised.start()
    await until(lambda: flaky.runs == 1)
    await supervised.stop()
    assert flaky.cancelled
    assert supervised.failures == {"one": 0}
    assert supervised.problems() == []


@in_loop
async def test_a_service_that_fails_is_started_again_and_turns_health_red(monkeypatch: pytest.MonkeyPatch) -> None:
    flaky = Flaky(3)
    supervised = Services([Service("one", flaky.run)], first_pause_s=0)
    supervised.start()
    await until(lambda: flaky.runs == 2)
    assert supervised.problems() == []
    monkeypatch.setattr(services, "RECOVERED_S", 0.01)
    await until(lambda: flaky.runs == 4)
    assert supervised.failures == {"one": 3}
    assert supervised.problems() == ["service one has failed 3 times in a row: OSError: failure 3"]
    await until(lambda: not supervised.problems())
    await supervised.stop()


@in_loop
async def test_returning_is_a_failure_too() -> None:
    async def run() -> None:
        return

    supervised = Services([Service("short", run)], first_pause_s=0)
    supervised.start()
    await until(lambda: supervised.failures["short"] >= 3)
    assert supervised.problems()[0].endswith("it returned")
    await supervised.stop()


@in_loop
async def test_pauses_double_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    done = asyncio.Event()

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 8:
            done.set()
            await asyncio.Event().wait()

    async def run() -> None:
        raise ValueError

    supervised = Services([Service("one", run)])
    with monkeypatch.context() as patched:
        patched.setattr(asyncio, "sleep", sleep)
        supervised.start()
        await done.wait()
    await supervised.stop()
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60]


@in_loop
async def test_one_that_fails_does_not_disturb_the_others() -> None:
    bad, good = Flaky(2), Flaky(0)
    supervised = Services([Service("bad", bad.run), Service("good", good.run)], first_pause_s=0)
    supervised.start()
    await until(lambda: bad.runs == 3)
    assert good.runs == 1
    await supervised.stop()
    assert good.cancelled
    assert bad.cancelled


@in_loop
async def test_a_service_whose_own_task_was_cancelled_is_started_again() -> None:
    """What it waits for raises CancelledError then, though nobody has cancelled the service."""
    runs = 0

    async def run() -> None:
        nonlocal runs
        runs += 1
        if runs > 1:
            await asyncio.Event().wait()
        inner = asyncio.ensure_future(asyncio.Event().wait())
        asyncio.get_running_loop().call_soon(inner.cancel)
        await inner

    supervised = Services([Service("one", run)], first_pause_s=0)
    supervised.start()
    await until(lambda: runs == 2)
    assert supervised.failures == {"one": 1}
    await supervised.stop()
