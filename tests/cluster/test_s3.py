"""How long the client of an object store waits. What it does: tests/cluster/engine/test_objects.py."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from halfmoon.cluster.backup.parallel import in_parallel
from halfmoon.cluster.backup.saving import PARALLEL, PAUSE_S
from halfmoon.cluster.engine.merging import MOST_BYTES
from halfmoon.cluster.engine.objects import StoreUnavailableError
from halfmoon.cluster.engine.trying import put_once
from tests.cluster.engine.virtual import play

pytest.importorskip("obstore", reason="obstore is not installed: pip install 'halfmoon[cluster]'")

from halfmoon.cluster import s3

MB = 1_000_000
SETTINGS = {"endpoint": "http://127.0.0.1:1", "region": "r", "access_key_id": "a", "secret_access_key": "b"}


class Link:
    """In the place of obstore: what goes over at once shares so many bytes a second."""

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._going = 0
        self.objects: dict[str, int] = {}

    async def put_async(self, _store: object, key: str, data: bytes, **_more: object) -> None:
        await self._send(len(data))
        self.objects[key] = len(data)

    async def get_range_async(self, _store: object, _key: str, *, start: int, end: int) -> bytes:
        await self._send(end - start)
        return bytes(end - start)

    async def _send(self, size: int) -> None:
        self._going += 1
        try:
            for _ in range(0, size, MB):
                await asyncio.sleep(self._going * MB / self._rate)
        finally:
            self._going -= 1


def linked(monkeypatch: pytest.MonkeyPatch, rate: float, *, patient: bool) -> tuple[Link, s3.S3]:
    link, unused = Link(rate), Any
    for name in ("put_async", "get_range_async"):
        monkeypatch.setattr(s3.obstore, name, getattr(link, name))
    return link, s3.S3(unused, patient=patient)  # type: ignore[arg-type]


def test_large_objects_go_over_a_slow_link(monkeypatch: pytest.MonkeyPatch) -> None:
    """As those of a restore."""
    link, store = linked(monkeypatch, 5 * MB, patient=True)
    keys, data = [str(number) for number in range(16)], bytes(MOST_BYTES)
    play(in_parallel(lambda key: put_once(store, key, data, PAUSE_S), keys, PARALLEL))
    assert link.objects == dict.fromkeys(keys, MOST_BYTES)

    async def story() -> None:
        assert await store.get("0", 0, MOST_BYTES) == data

    play(story())


def test_a_link_that_is_too_slow_is_said_to_be_so(monkeypatch: pytest.MonkeyPatch) -> None:
    _, store = linked(monkeypatch, MB / 100, patient=True)

    async def story() -> None:
        with pytest.raises(StoreUnavailableError, match=r"20\.0 MB took more than 90 s"):
            await store.put("a", bytes(20 * MB))
        with pytest.raises(StoreUnavailableError, match=r"5\.0 MB took more than 30 s"):
            await store.get("a", 0, 5 * MB)

    play(story())


def test_a_node_does_not_wait_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    _, store = linked(monkeypatch, MB, patient=False)

    async def story() -> None:
        loop = asyncio.get_running_loop()
        begun_s = loop.time()
        with pytest.raises(StoreUnavailableError):
            await store.put("a", bytes(MOST_BYTES))
        assert loop.time() - begun_s <= 2 * s3.CALL_S

    play(story())


def test_the_librarys_own_limit_does_not_come_before_it() -> None:
    """Of a node, the library's is the limit."""
    stores = [s3.S3.open("s3://bucket/prefix", SETTINGS, patient=patient)._store for patient in (False, True)]
    options: list[Any] = [store.client_options for store in stores]
    assert [each["timeout"] for each in options] == ["10s", "1h"]
    assert s3.LONG_S > 10 * (s3.CALL_S + MOST_BYTES / MB * s3.MB_S)
