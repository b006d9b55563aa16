"""Shards that are opened at the same time are told of in one change of the catalog."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any

from halfmoon.cluster.store import CatalogUnavailableError
from halfmoon.errors import LeaseLostError
from halfmoon.server.workers.running_shards import RunningShards

EPOCH = 7
"""Of all shards that are here."""


class Rig:
    def __init__(self) -> None:
        self.changes: list[list[int]] = []
        self.fails: list[bool] = []
        """Of the next changes."""
        self.epochs: dict[int, int] = {}
        """By shard, as the shared catalog says."""
        shards: Any = SimpleNamespace(
            place=SimpleNamespace(here=1), began=self._began, shared=SimpleNamespace(epochs=self.epochs),
            nodes={number: SimpleNamespace(kernel=SimpleNamespace(generation=EPOCH)) for number in range(5)},
        )  # fmt: skip
        settings: Any = SimpleNamespace(log=SimpleNamespace(cleaner=SimpleNamespace(bytes_per_second=None)))
        driver: Any = SimpleNamespace(change=self._change)
        nothing: Any = None
        self.running = RunningShards(settings, shards, nothing, driver, nothing, nothing)

    def _began(self, numbers: Iterable[int]) -> None:
        self.changes.append(sorted(numbers))
        for number in self.changes[-1]:
            self.epochs[number] = max(EPOCH, self.epochs.get(number, 0))

    async def _change(self, work: Callable[[], None], *, until_told: bool) -> None:
        assert not until_told, "the shard is served before all others know"
        work()
        await asyncio.sleep(0.01)
        if self.fails and self.fails.pop(0):
            raise CatalogUnavailableError("not now")

    def announce(self, *numbers: int) -> list[Any]:
        async def all_of_them() -> list[Any]:
            waiting = (self.running.announce(number) for number in numbers)
            return await asyncio.gather(*waiting, return_exceptions=True)

        return asyncio.run(all_of_them())


def test_those_that_come_while_a_change_is_made_share_the_next() -> None:
    rig = Rig()
    assert rig.announce(3, 1, 4) == [None] * 3
    assert rig.changes == [[3], [1, 4]]
    rig.announce(3)
    assert rig.changes[2:] == [[3]], "opened again"


def test_who_was_told_of_with_another_one_in_vain_is_told_of_again() -> None:
    rig = Rig()
    rig.fails = [False, True, False]
    first, second, *others = rig.announce(1, 2, 3, 4)
    assert first is None
    assert isinstance(second, CatalogUnavailableError), "who made the change hears of it"
    assert others == [None, None]
    assert rig.changes == [[1], [2, 3, 4], [3, 4]]


def test_one_that_another_process_has_opened_meanwhile_is_not_this_ones() -> None:
    rig = Rig()
    rig.epochs[2] = EPOCH + 1
    found = rig.announce(1, 2, 3)
    assert [type(each) for each in found] == [type(None), LeaseLostError, type(None)]
