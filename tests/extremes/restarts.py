"""Extremes of the time after a kill: what the broker has to build up again while it already serves clients."""

from __future__ import annotations

import time
from itertools import count

from halfmoon.core.records.batches import build_batch
from tests.extremes.records import NOW_MS, ends, halves
from tests.extremes.registry import extreme
from tests.extremes.world import Steps, World

NO_TIMEOUT = {"transaction": {"timeout": "1h"}}


@extreme("After kill −9", "the key index of 450,000 keys is built again")
def rebuilt_keys(world: World) -> Steps:
    world.topic("t")
    for batch in range(30):
        rows = [(None, b"x" * 50, NOW_MS, (("KEYS", b"%d-%d" % (batch, index)),)) for index in range(15_000)]
        world.stored("t", bytes(build_batch(rows)))
    yield
    while True:
        world.kill()
        world.start()
        world.until(lambda: world.metric("halfmoon_key_index_behind_bytes") == 0)
        yield


@extreme("After kill −9", "100,000 half messages are open, and one more comes; then 10,000 end", plugins=NO_TIMEOUT)
def open_halves(world: World) -> Steps:
    world.topic("t")
    for run in range(10):
        world.stored("t", halves(b"g", run, 10_000))
    yield
    for run in count():
        world.kill()
        world.start()
        world.stored("t", halves(b"g", 1_000 + run, 1))
        if run < 10:
            world.stored("halfmoon.transactions", ends(b"g", run, 10_000, b"rollback"))
        yield


@extreme("After kill −9", "5,000 half messages are checked together", plugins={"transaction": {"timeout": "1s"}})
def checked_halves(world: World) -> Steps:
    world.topic("t")
    yield
    for run in count():
        world.stored("t", halves(b"g", run, 5_000))
        world.kill()
        time.sleep(1)
        world.start()
        world.until(lambda: world.metric("halfmoon_half_messages_total") >= 5_000)
        world.stored("halfmoon.transactions", ends(b"g", run, 5_000, b"rollback"))
        yield


@extreme("After kill −9", "100,000 delayed messages wait, 20,000 of them are overdue")
def overdue(world: World) -> Steps:
    world.topic("t")
    for _ in range(4):
        world.stored("t", bytes(build_batch([(None, b"x", NOW_MS, (("TIMER_DELAY_SEC", b"86400"),))] * 20_000)))
    yield
    while True:
        world.stored("t", bytes(build_batch([(None, b"x", NOW_MS, (("TIMER_DELAY_MS", b"3000"),))] * 20_000)))
        world.kill()
        time.sleep(3)
        world.start()
        world.until(lambda: world.metric("halfmoon_scheduled_messages") == 80_000)
        yield
