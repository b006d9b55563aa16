"""The engines that the contract is run over, and how whoever uses one asks for what is not here yet."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any, TypeVar

from halfmoon.cluster.engine.pieces import Durability
from halfmoon.config.settings import load_settings
from halfmoon.core.storage.files import FileSystem
from halfmoon.core.storage.local import LocalStorage
from halfmoon.core.storage.scan import Scan
from halfmoon.core.storage.storage import MakeStorage, Place, Storage
from halfmoon.testing.storages import failing, late
from tests.cluster.engine.one_shard import of_a_cluster, real_services
from tests.core.log_bench import SEGMENT

T = TypeVar("T")

ENGINES: dict[str, Callable[[ExitStack], MakeStorage]] = {
    "local": lambda stack: LocalStorage,
    "late": lambda stack: late(),
    "failing": lambda stack: failing(random.Random(7)),
    "objects": lambda stack: stack.enter_context(of_a_cluster(Durability.OBJECT)),
    "rows": lambda stack: stack.enter_context(of_a_cluster(Durability.FAST)),
    "objects of versitygw": lambda stack: stack.enter_context(of_a_cluster(Durability.OBJECT, real_services)),
    "rows of PostgreSQL": lambda stack: stack.enter_context(of_a_cluster(Durability.FAST, real_services)),
}
"""What makes one, anew for each test."""

TRIES = 100
"""Of reads of which half fail: 100 in a row do not."""


def opened(make: MakeStorage, fs: FileSystem, *, generation: int = 0, **log: Any) -> Storage:
    """Recovered as the kernel does it, by a scan of everything."""
    settings = load_settings({"log": {"segment_bytes": SEGMENT, "low_disk_bytes": 0} | log}, {}, {})
    storage = make(fs, settings)
    storage.log.open()
    segments = storage.log.segments
    begin, end = (segments[0].start, segments[-1].end) if segments else (0, 0)
    storage.log.recover(begin, end)
    scan = Scan(segments, begin, generation, begin)
    for _ in scan.frames():
        pass
    storage.log.prove(begin, scan.position)
    storage.log.resume(scan.position, storage.log.lease(scan.generation))
    return storage


def insist(load: Callable[[], T]) -> T:
    """What it returns once it does not fail. Nothing but EIO is an excuse."""
    for _ in range(TRIES):
        try:
            return load()
        except OSError as error:
            if error.errno != errno.EIO:
                raise
    raise AssertionError("it always fails")


def read(storage: Storage, places: Sequence[Place]) -> list[bytes]:
    found = storage.reader.read(places)
    assert found.size == sum(length for _, length in places)
    if found.cold is None:
        return [bytes(piece) for piece in found.slices]
    assert not found.slices
    try:
        return [bytes(piece) for piece in found.cold()]
    except OSError:
        return [bytes(piece) for piece in insist(storage.reader.load(places))]


def bring(storage: Storage, start: int, end: int) -> None:
    for _ in range(TRIES):
        load = storage.reader.bring(start, end)
        if load is None:
            return
        try:
            load()
            return
        except OSError as error:
            if error.errno != errno.EIO:
                raise
    raise AssertionError("it always fails")
