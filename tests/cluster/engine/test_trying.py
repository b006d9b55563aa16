"""What counts as failed, after how many tries."""

from __future__ import annotations

import asyncio

import pytest

from halfmoon.cluster.engine.objects import ObjectExistsError, StoreUnavailableError
from halfmoon.cluster.engine.trying import TRIES, put_once
from tests.cluster.engine.doubles import MemoryStore
from tests.cluster.engine.virtual import play


class Conflicting(MemoryStore):
    """S3 answers 409 where another request was in the way, too: then nothing is there."""

    conflicts = 0
    lost = 0
    """So many answers, first."""

    async def put(self, key: str, data: bytes) -> None:
        if self.conflicts:
            self.conflicts -= 1
            raise ObjectExistsError(key)
        await super().put(key, data)
        if self.lost:
            self.lost -= 1
            raise StoreUnavailableError("no answer")


def test_an_object_is_there_once_it_is_put() -> None:
    async def story() -> None:
        store = Conflicting()
        store.lost = 1
        await put_once(store, "a", b"data")
        assert store.objects == {"a": b"data"}
        await put_once(store, "a", b"atad")  # it has as many bytes
        with pytest.raises(OSError, match="is another one"):
            await put_once(store, "a", b"more data")
        assert store.objects == {"a": b"data"}

    play(story())


def test_an_object_that_is_there_and_then_is_not_is_stored_again() -> None:
    async def story() -> None:
        store = Conflicting()
        store.conflicts = TRIES - 1
        begun_s = asyncio.get_running_loop().time()
        await put_once(store, "a", b"data")
        assert store.objects == {"a": b"data"}
        assert asyncio.get_running_loop().time() > begun_s + 0.5, "with pauses"
        store.conflicts = TRIES
        with pytest.raises(StoreUnavailableError, match="conflict"):
            await put_once(store, "b", b"data")
        assert store.conflicts == 0

    play(story())
