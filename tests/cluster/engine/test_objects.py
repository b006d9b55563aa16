"""What a cluster's object store promises, over a versitygw and over the one in memory that other tests use."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from halfmoon.cluster.engine.objects import ObjectExistsError, ObjectMissingError, ObjectStore, StoreUnavailableError
from tests.cluster.engine.doubles import MemoryStore
from tests.cluster.servers import object_store

Play = Callable[[ObjectStore], Awaitable[None]]


@pytest.fixture(params=["memory", "s3"])
def run(request: pytest.FixtureRequest) -> Callable[[Play], None]:
    """Plays something with a store of which nobody else uses the keys."""
    if request.param == "memory":
        make: Callable[[], Any] = MemoryStore
    else:
        from halfmoon.cluster.s3 import S3

        server = object_store()
        make = lambda: S3.open(f"{server.url}/{request.node.name}", server.settings)  # noqa: E731

    def play(what: Play) -> None:
        async def run() -> None:
            await what(make())

        asyncio.run(run())

    return play


async def listed(store: ObjectStore, prefix: str, after: str = "") -> list[tuple[str, int]]:
    return [(one.key, one.size) async for part in store.list(prefix, after) for one in part]


def test_an_object_is_written_once_and_read_in_parts(run: Any) -> None:
    async def play(store: ObjectStore) -> None:
        data = bytes(range(256)) * 1_000
        await store.put("o/a/1", data)
        with pytest.raises(ObjectExistsError):
            await store.put("o/a/1", b"another")
        assert await store.size("o/a/1") == len(data)
        assert await store.get("o/a/1", 0, len(data)) == data
        assert await store.get("o/a/1", 1_000, 1_500) == data[1_000:1_500]
        assert await store.get("o/a/1", len(data) - 10, len(data) + 90) == data[-10:]
        assert await store.get("o/a/1", 5, 5) == b""

    run(play)


def test_of_many_who_write_one_object_one_succeeds(run: Any) -> None:
    async def play(store: ObjectStore) -> None:
        async def put(number: int) -> bool:
            try:
                await store.put("o/race", b"%03d" % number)
            except ObjectExistsError:
                return False
            return True

        won = await asyncio.gather(*(put(number) for number in range(16)))
        assert won.count(True) == 1
        assert await store.get("o/race", 0, 3) == b"%03d" % won.index(True)

    run(play)


def test_what_is_not_there(run: Any) -> None:
    async def play(store: ObjectStore) -> None:
        with pytest.raises(ObjectMissingError):
            await store.get("o/none", 0, 10)
        with pytest.raises(ObjectMissingError):
            await store.size("o/none")
        await store.delete(["o/none"])
        await store.delete([])
        assert await listed(store, "o/") == []

    run(play)


def test_objects_are_listed_as_soon_as_they_are_there_and_until_they_are_not(run: Any) -> None:
    async def play(store: ObjectStore) -> None:
        keys = [f"o/{number:02}/k" for number in range(12)]
        for key in keys:
            await store.put(key, key.encode())
            assert (key, len(key)) in await listed(store, "o/")
        await store.put("s/other", b"")
        assert [key for key, _ in await listed(store, "o/")] == keys
        assert [key for key, _ in await listed(store, "o/", after=keys[4])] == keys[5:]
        await store.delete(keys[3:6])
        assert [key for key, _ in await listed(store, "o/")] == keys[:3] + keys[6:]
        with pytest.raises(ObjectMissingError):
            await store.size(keys[4])
        await store.put(keys[4], b"again")

    run(play)


def test_a_server_that_is_not_there_is_unavailable() -> None:
    pytest.importorskip("obstore", reason="obstore is not installed: pip install 'halfmoon[cluster]'")
    from halfmoon.cluster.s3 import S3

    async def play() -> None:
        settings = {"endpoint": "http://127.0.0.1:1", "region": "x", "access_key_id": "a", "secret_access_key": "b"}
        store = S3.open("s3://bucket", settings)
        with pytest.raises(StoreUnavailableError):
            await store.put("o/1", b"x")
        with pytest.raises(StoreUnavailableError):
            await store.get("o/1", 0, 1)
        with pytest.raises(StoreUnavailableError):
            await store.size("o/1")
        with pytest.raises(StoreUnavailableError):
            await store.delete(["o/1"])
        with pytest.raises(StoreUnavailableError):
            await listed(store, "o/")

    asyncio.run(play())


def test_a_bucket_that_is_not_there_is_unavailable_and_no_object_is_missing() -> None:
    """A gateway says so where its disk is away for a moment."""
    server = object_store()
    from halfmoon.cluster.checks import is_well
    from halfmoon.cluster.checks.store import try_store
    from halfmoon.cluster.s3 import S3

    async def play() -> None:
        store = S3.open("s3://no-such-bucket/p", server.settings)
        for call in (store.put("o/1", b"x"), store.get("o/1", 0, 1), store.delete(["o/1"]), listed(store, "o/")):
            with pytest.raises(StoreUnavailableError, match=r"(?i)bucket"):
                await call
        assert not is_well(await try_store(store, "o"))

    asyncio.run(play())


def test_a_wrong_password_is_unavailable_too_and_said() -> None:
    from halfmoon.cluster.s3 import S3

    server = object_store()

    async def play() -> None:
        store = S3.open(server.url, {**server.settings, "secret_access_key": "wrong"})
        with pytest.raises(StoreUnavailableError, match=r"(?i)signature|denied|forbidden|403"):
            await store.put("o/1", b"x")

    asyncio.run(play())
