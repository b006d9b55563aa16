"""Coroutines in virtual time."""

from __future__ import annotations

import logging

import pytest

from halfmoon.client.engine.kernel import FAILED_MS, Cancelled, Kernel, Pending


def step_to_the_end(kernel: Kernel) -> None:
    kernel.run_ready()
    while (at_ms := kernel.next_deadline_ms()) is not None:
        kernel.advance(at_ms)


def test_time_passes_as_it_is_told() -> None:
    kernel = Kernel()
    seen: list[tuple[str, float]] = []

    async def sleeper(name: str, ms: float) -> str:
        await kernel.sleep_ms(ms)
        seen.append((name, kernel.now_ms))
        await kernel.sleep_ms(ms)
        seen.append((name, kernel.now_ms))
        return name

    slow, quick = kernel.spawn(sleeper("slow", 100), "slow"), kernel.spawn(sleeper("quick", 30), "quick")
    assert kernel.next_deadline_ms() is None, "nothing has begun yet"
    kernel.run_ready()
    assert kernel.next_deadline_ms() == 30
    kernel.advance(59)
    assert seen == [("quick", 59)], "it was late, and is told so"
    assert kernel.next_deadline_ms() == 89
    kernel.advance(100)
    assert seen == [("quick", 59), ("quick", 100), ("slow", 100)], "in the order in which they were due"
    kernel.advance(1_000)
    assert (slow.result(), quick.result()) == ("slow", "quick")
    assert kernel.next_deadline_ms() is None
    assert kernel.now_ms == 1_000


def test_timers_that_were_cancelled_do_nothing() -> None:
    kernel = Kernel()
    called: list[int] = []
    timers = [kernel.call_after(10 * number, lambda number=number: called.append(number)) for number in range(5)]
    timers[0].cancel()
    timers[3].cancel()
    assert kernel.next_deadline_ms() == 10
    kernel.advance(100)
    assert called == [1, 2, 4]


def test_many_wait_for_one_result() -> None:
    kernel = Kernel()
    pending: Pending[int] = Pending()
    told: list[int] = []

    async def waiter() -> int:
        return await pending + await pending

    tasks = [kernel.spawn(waiter(), "w") for _ in range(3)]
    pending.when_done(lambda done: told.append(done.result()))
    kernel.run_ready()
    pending.set(21)
    pending.set(99)
    pending.fail(ValueError())
    kernel.run_ready()
    pending.when_done(lambda done: told.append(done.result()))
    assert [task.result() for task in tasks] == [42] * 3
    assert told == [21, 21]


def test_what_goes_wrong_reaches_who_awaits_it_and_else_the_log(caplog: pytest.LogCaptureFixture) -> None:
    kernel = Kernel()

    async def fails(name: str) -> None:
        raise ZeroDivisionError(name)

    async def awaits() -> str:
        try:
            await kernel.spawn(fails("awaited"), "awaited")
        except ZeroDivisionError as error:
            return f"caught {error}"
        return ""

    task = kernel.spawn(awaits(), "awaits")
    kernel.spawn(fails("forgotten"), "forgotten")
    kernel.run_ready()
    assert task.result() == "caught awaited"
    assert "forgotten" in caplog.text
    assert "awaited" not in caplog.text


def test_what_is_to_be_kept_begins_again(caplog: pytest.LogCaptureFixture) -> None:
    kernel = Kernel()
    begun: list[float] = []

    async def flow() -> None:
        begun.append(kernel.now_ms)
        await kernel.sleep_ms(100)
        if len(begun) < 3:
            raise KeyError("unexpected")

    task = kernel.keep(flow, "flow")
    step_to_the_end(kernel)
    assert begun == [0, 100 + FAILED_MS, 200 + 2 * FAILED_MS]
    assert task.is_done
    assert len(caplog.records) == 2


def test_a_task_that_is_cancelled_ends_where_it_waits() -> None:
    kernel = Kernel()
    pending: Pending[None] = Pending()
    ended: list[str] = []

    async def waiter() -> None:
        try:
            await pending
        finally:
            ended.append("tidied up")

    task = kernel.spawn(waiter(), "w")
    kernel.run_ready()
    task.cancel()
    kernel.run_ready()
    assert ended == ["tidied up"]
    assert isinstance(task.error, Cancelled)
    pending.set(None)  # nobody is there any more
    task.cancel()
    kernel.run_ready()


def test_waiting_no_longer_than(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    kernel = Kernel()
    soon, never = kernel.sleep_ms(10), Pending[None]()

    async def both() -> tuple[bool, bool, float]:
        return await kernel.within_ms(soon, 50), await kernel.within_ms(never, 50), kernel.now_ms

    task = kernel.spawn(both(), "both")
    step_to_the_end(kernel)
    assert task.result() == (True, False, 60)
    assert not caplog.text
