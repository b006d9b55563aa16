"""What is tried of an object store. All objects have names of their own, and are deleted at the end."""

from __future__ import annotations

import asyncio
import os
import time
from typing import Final

from halfmoon.cluster.checks import Tried, Verdict
from halfmoon.cluster.engine.objects import (
    MOST_BYTES,
    ObjectExistsError,
    ObjectMissingError,
    ObjectStore,
    StoreUnavailableError,
)

RACERS: Final = 16
RACES: Final = 3
LISTED: Final = 50
LARGE_BYTES: Final = MOST_BYTES
TIMED: Final = ((64 << 10, 20), (4 << 20, 5))
"""Sizes of objects, and how many of each are timed."""
SLOW_S: Final = 0.5


async def try_store(store: ObjectStore, prefix: str) -> list[Tried]:
    """`prefix`: of all keys; nobody else uses it."""
    trial = StoreTrial(store, prefix)
    found: list[Tried] = []
    try:
        for what, step in _STEPS:
            try:
                verdict, said = await step(trial)
            except (StoreUnavailableError, ObjectExistsError, ObjectMissingError) as error:
                verdict, said = Verdict.FAILED, f"{type(error).__name__}: {error}"
            found.append(Tried(what, verdict, said))
            if what == _REACHED and verdict is Verdict.FAILED:
                break
    finally:
        await trial.clean_up()
    return found


class StoreTrial:
    def __init__(self, store: ObjectStore, prefix: str) -> None:
        self.store = store
        self._prefix = prefix
        self._keys: list[str] = []

    def key(self, name: str) -> str:
        key = f"{self._prefix}/{name}"
        self._keys.append(key)
        return key

    async def clean_up(self) -> None:
        for at in range(0, len(self._keys), 100):
            try:
                await self.store.delete(self._keys[at : at + 100])
            except StoreUnavailableError:
                return

    async def listed(self, name: str, after: str = "") -> list[str]:
        found = []
        async for part in self.store.list(f"{self._prefix}/{name}/", after):
            found += [one.key for one in part]
        return found


Outcome = tuple[Verdict, str]


async def _reached(trial: StoreTrial) -> Outcome:
    await trial.store.put(trial.key("first"), b"here")
    return Verdict.OK, "an object was written"


async def _written_once(trial: StoreTrial) -> Outcome:
    key = trial.key("once")
    await trial.store.put(key, b"first")
    try:
        await trial.store.put(key, b"second")
    except ObjectExistsError:
        kept = await trial.store.get(key, 0, 100) == b"first"
        return (Verdict.OK, "a second write is refused") if kept else (Verdict.FAILED, "it is refused, and done")
    return Verdict.FAILED, "an object can be written twice (If-None-Match is ignored): commits would not be safe"


async def _races(trial: StoreTrial) -> Outcome:
    for race in range(RACES):
        key = trial.key(f"race-{race}")

        async def put(number: int, key: str = key) -> bool:
            try:
                await trial.store.put(key, b"%d" % number)
            except ObjectExistsError:
                return False
            return True

        won = await asyncio.gather(*(put(number) for number in range(RACERS)))
        if won.count(True) != 1:
            return Verdict.FAILED, f"{won.count(True)} of {RACERS} who wrote one object at the same time succeeded"
        if await trial.store.get(key, 0, 100) != b"%d" % won.index(True):
            return Verdict.FAILED, "what is stored is not what the one wrote who succeeded"
    return Verdict.OK, f"one of {RACERS} succeeds, {RACES} times"


async def _read_after_write(trial: StoreTrial) -> Outcome:
    data = os.urandom(100_000)
    for number in range(10):
        key = trial.key(f"read-{number}")
        await trial.store.put(key, data)
        if await trial.store.get(key, 0, len(data)) != data:
            return Verdict.FAILED, "what was written is read differently"
        if await trial.store.get(key, 50_000, 50_100) != data[50_000:50_100]:
            return Verdict.FAILED, "a part of an object is not read as asked"
        if await trial.store.size(key) != len(data):
            return Verdict.FAILED, "an object's size is another one"
    return Verdict.OK, "what was written is read at once, and in parts"


async def _listed_after_write(trial: StoreTrial) -> Outcome:
    late = 0
    keys = []
    for number in range(LISTED):
        key = trial.key(f"list/{number:03}")
        keys.append(key)
        await trial.store.put(key, b"x")
        late += key not in await trial.listed("list")
    if late:
        return Verdict.FAILED, f"{late} of {LISTED} objects were not listed right after they were written"
    if await trial.listed("list", keys[20]) != keys[21:]:
        return Verdict.FAILED, "a listing does not begin where it is asked to"
    return Verdict.OK, f"{LISTED} of {LISTED} objects are listed at once, and from any key on"


async def _deleted(trial: StoreTrial) -> Outcome:
    keys = [trial.key(f"gone/{number}") for number in range(5)]
    for key in keys:
        await trial.store.put(key, b"x")
    await trial.store.delete([*keys, trial.key("never there")])
    for key in keys:
        try:
            await trial.store.get(key, 0, 1)
        except ObjectMissingError:
            continue
        return Verdict.FAILED, "a deleted object is still read"
    if await trial.listed("gone"):
        return Verdict.FAILED, "deleted objects are still listed"
    await trial.store.put(keys[0], b"again")
    return Verdict.OK, "deleted objects are gone at once"


async def _large(trial: StoreTrial) -> Outcome:
    key, data = trial.key("large"), os.urandom(1 << 20) * (LARGE_BYTES >> 20)
    await trial.store.put(key, data)
    if await trial.store.get(key, LARGE_BYTES - 1000, LARGE_BYTES) != data[-1000:]:
        return Verdict.FAILED, "a large object is read differently"
    return Verdict.OK, f"an object of {LARGE_BYTES >> 20} MiB is written by one request"


async def _timed(trial: StoreTrial) -> Outcome:
    said, slow = [], False
    for size, count in TIMED:
        data, took = os.urandom(size), []
        for number in range(count):
            begun = time.perf_counter()
            await trial.store.put(trial.key(f"timed-{size}-{number}"), data)
            took.append(time.perf_counter() - begun)
        took.sort()
        median, longest = took[len(took) // 2], took[-1]
        slow = slow or median > SLOW_S
        said.append(f"{size >> 10} KiB: {median * 1000:.0f} ms, at most {longest * 1000:.0f}")
    text = "a write takes " + "; ".join(said)
    return (Verdict.WARNING, f"{text}: acknowledgements take longer than that") if slow else (Verdict.OK, text)


_REACHED: Final = "it can be written to"
_STEPS: Final = (
    (_REACHED, _reached),
    ("objects are written once", _written_once),
    ("of many writers one succeeds", _races),
    ("reads after writes", _read_after_write),
    ("listings after writes", _listed_after_write),
    ("deletions", _deleted),
    ("large objects", _large),
    ("how long a write takes", _timed),
)
