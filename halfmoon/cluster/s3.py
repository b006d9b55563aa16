"""An object store that speaks S3 (obstore)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError
from obstore.store import S3Store

from halfmoon.cluster.engine.objects import ObjectExistsError, ObjectMissingError, Stored, StoreUnavailableError

CALL_S: Final = 10.0
"""For one request. Whoever calls tries again, and knows how long that makes sense."""
MB_S: Final = 4.0
"""For each MB that goes over, beside that, where it is patient: eight at once need 2 MB/s then."""
LONG_S: Final = 3_600.0
"""The library's own limit there."""
CONNECT_S: Final = 3.0
LISTED: Final = 1000
"""Objects in one part of a listing."""


class S3:
    """See cluster/engine/objects.ObjectStore."""

    def __init__(self, store: S3Store, *, patient: bool = False) -> None:
        """`patient`: what is large may take longer. So it is for commands, which may be far from the store; a node must
        notice soon that it does not reach it."""
        self._store = store
        self._patient = patient

    @classmethod
    def open(
        cls, url: str, settings: Mapping[str, Any], authorities: bytes | None = None, *, patient: bool = False
    ) -> S3:
        """`url`: `s3://bucket/prefix`. `settings`: as of object_store's AmazonS3 (endpoint, region, access_key_id, …).
        `authorities`: in PEM, by which the store's certificate is verified; None: the system's. Touches no network."""
        plain = str(settings.get("endpoint", "")).startswith("http://")
        # TLS checks what is sent already: signing the payload would hash all of it once more.
        config: Any = {**settings, "unsigned_payload": not plain}
        client: Any = {
            "timeout": timedelta(seconds=LONG_S if patient else CALL_S),
            "connect_timeout": timedelta(seconds=CONNECT_S), "allow_http": plain,
        }  # fmt: skip
        if authorities is not None:
            client["root_certificate"] = authorities
        retry: Any = {"max_retries": 0, "retry_timeout": timedelta(seconds=CALL_S)}
        return cls(S3Store.from_url(url, config=config, client_options=client, retry_config=retry), patient=patient)

    async def put(self, key: str, data: bytes) -> None:
        try:
            # By one request: it is there as a whole, or not at all.
            await self._transfer(
                obstore.put_async(self._store, key, data, mode="create", use_multipart=False), len(data)
            )
        except AlreadyExistsError as error:
            raise ObjectExistsError(key) from error
        except FileNotFoundError as error:
            raise _no_bucket(error) from error

    async def get(self, key: str, start: int, end: int) -> bytes:
        if start >= end:
            return b""
        try:
            got = obstore.get_range_async(self._store, key, start=start, end=end)
            return bytes(await self._transfer(got, end - start))
        except FileNotFoundError as error:
            raise _missing(key, error) from error

    async def size(self, key: str) -> int:
        try:
            return int((await _within(obstore.head_async(self._store, key)))["size"])
        except FileNotFoundError as error:
            raise _missing(key, error) from error

    async def delete(self, keys: Sequence[str]) -> None:
        if keys:
            try:
                await _within(obstore.delete_async(self._store, list(keys)))
            except FileNotFoundError as error:
                raise _no_bucket(error) from error

    async def list(self, prefix: str, after: str = "") -> AsyncIterator[Sequence[Stored]]:
        # object_store's prefixes end with whole names of folders; S3's need not.
        listing = obstore.list(self._store, prefix, offset=after or None, chunk_size=LISTED)
        while True:
            try:
                part = await _within(anext(listing))
            except StopAsyncIteration:
                return
            except FileNotFoundError as error:
                raise _no_bucket(error) from error
            yield [Stored(one["path"], one["size"], one["last_modified"]) for one in part]

    async def _transfer(self, call: Any, size: int) -> Any:
        if not self._patient:
            return await _within(call)
        limit_s = CALL_S + size / 1e6 * MB_S
        return await _within(
            call, limit_s, f"{size / 1e6:.1f} MB took more than {limit_s:.0f} s: the way to it is slow"
        )


def _no_bucket(error: FileNotFoundError) -> StoreUnavailableError:
    """A gateway says so of a bucket whose disk is away for a moment."""
    return StoreUnavailableError(f"the bucket is not there: {str(error).splitlines()[0]}")


def _missing(key: str, error: FileNotFoundError) -> Exception:
    return _no_bucket(error) if "NoSuchBucket" in str(error) else ObjectMissingError(key)


async def _within(call: Any, limit_s: float = 2 * CALL_S, late: str = f"no answer within {2 * CALL_S:g} s") -> Any:
    """Raises StoreUnavailableError, which says `late` where it took too long; AlreadyExistsError, FileNotFoundError and
    StopAsyncIteration pass."""
    try:
        async with asyncio.timeout(limit_s) as limit:
            return await call
    except (AlreadyExistsError, FileNotFoundError, StopAsyncIteration):
        raise
    except (BaseError, OSError) as error:
        if limit.expired():
            raise StoreUnavailableError(late) from error
        raise StoreUnavailableError(f"{type(error).__name__}: {error}") from error
