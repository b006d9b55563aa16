"""What the shards of a node do to each other through what they have in common."""

from __future__ import annotations

import asyncio
import random
from types import SimpleNamespace
from typing import Any

from halfmoon.cluster.engine.piece_list import PieceList
from halfmoon.cluster.engine.pieces import Durability, Piece
from halfmoon.config.settings import load_settings
from halfmoon.server.nodes.engine import MOST_ROW_BYTES, Engine
from halfmoon.testing.faulty_files import FaultyFileSystem
from tests.cluster.engine.doubles import MemoryDatabase, MemoryStore
from tests.cluster.engine.one_shard import one_shard


def log_of(row_bytes: int, *, is_frozen: bool) -> Any:
    pieces = PieceList([Piece(0, row_bytes, 0, 0)])
    return SimpleNamespace(pieces=pieces, backing=SimpleNamespace(is_frozen=is_frozen))


def test_rows_of_frozen_shards_hold_up_no_other() -> None:
    """They are never moved: the others would wait for ever. They are in the database all the same."""

    async def story() -> None:
        settings = load_settings({}, {}, {}).cluster
        engine = Engine(MemoryDatabase([Durability.FAST] * 2), MemoryStore(), "a-cluster", 1, settings, 1 << 20)
        for is_frozen in (False, True):
            logs = [log_of(MOST_ROW_BYTES, is_frozen=is_frozen), log_of(100, is_frozen=False)]
            engine.logs = lambda logs=logs: logs  # type: ignore[misc]
            await engine._measure_rows()
            assert engine._rows.held is not is_frozen
            assert engine.row_bytes == MOST_ROW_BYTES + 100
        await engine.stop()

    asyncio.run(story())


def test_a_log_that_is_being_opened_or_closed_is_not_moved_nor_forgotten() -> None:
    """Its segments are not known yet: what could not be read would be left alone for a minute."""

    async def story() -> None:
        settings = load_settings({}, {}, {}).cluster
        engine = Engine(MemoryDatabase([Durability.FAST]), MemoryStore(), "a-cluster", 1, settings, 1 << 20)
        with one_shard(Durability.FAST) as shard:
            log = shard.make(FaultyFileSystem(random.Random(1)), shard.settings()).log
            engine.logs = lambda: [log]
            assert engine._open() == []
            log.open()
            assert engine._open() == []
            log.recover(0, 0)
            log.resume(0, log.lease(0))
            assert engine._open() == [log]
            log.backing.closing()
            assert engine._open() == []
        await engine.stop()

    asyncio.run(story())
