"""Receive buffers: who owns what, what is pinned, what the budget does."""

from __future__ import annotations

import pytest

from halfmoon.adapters.tcp.buffers import KEPT_BYTES, LARGE_BYTES, MIN_FREE_BYTES, SMALL_BYTES, BufferPool

CHUNK = 128 << 10


class FakeLog:
    """Keeps slices until `write`."""

    def __init__(self) -> None:
        self.callbacks = []
        self.flushes = 0

    def after_write(self, callback):
        self.callbacks.append(callback)

    def flush(self):
        self.flushes += 1
        self.write()

    def write(self):
        callbacks, self.callbacks = self.callbacks, []
        for callback in callbacks:
            callback()


@pytest.fixture
def log():
    return FakeLog()


def make(log, budget=1 << 20):
    return BufferPool(budget, log.after_write, log.flush, CHUNK)


def test_the_chunk_is_shared_while_nothing_is_pinned(log):
    pool = make(log)
    assert pool.chunk() is pool.chunk()
    assert pool.in_use_bytes == CHUNK


def test_pinned_bytes_are_not_offered_again_until_the_write(log):
    pool = make(log)
    chunk = pool.chunk()
    chunk.used = 1000
    pool.pin(chunk)
    assert pool.chunk().used == 1000
    log.write()
    assert pool.chunk() is chunk
    assert chunk.used == 0
    assert (pool.in_use_bytes, pool.idle_bytes) == (CHUNK, 0)


def test_a_full_chunk_is_replaced_and_comes_back_after_the_write(log):
    pool = make(log)
    chunk = pool.chunk()
    chunk.used = CHUNK - MIN_FREE_BYTES + 1
    pool.pin(chunk)
    pool.pin(chunk)
    other = pool.chunk()
    assert other is not chunk
    assert pool.in_use_bytes == 2 * CHUNK
    log.write()
    assert pool.in_use_bytes == CHUNK
    assert pool.idle_bytes == CHUNK
    assert chunk.used == 0


def test_without_room_for_another_chunk_the_log_must_write(log):
    pool = make(log, CHUNK)
    chunk = pool.chunk()
    chunk.used = CHUNK
    pool.pin(chunk)
    assert pool.chunk() is chunk
    assert log.flushes == 1


def test_the_budget_is_kept_and_waiters_are_served_in_order(log):
    pool = make(log, 64 << 10)
    first = pool.take(40_000)
    assert first is not None
    pool.chunk()
    assert pool.take(40_000) is None
    assert log.flushes >= 1
    served = []
    one, two = (lambda: served.append(1)), (lambda: served.append(2))
    pool = make(log, 2 * CHUNK)
    pool.chunk()
    kept = pool.take_anyway(4 * CHUNK)
    pool.wait(one)
    pool.wait(two)
    pool.forget(one)
    assert pool.exhausted
    pool.give_back(kept)
    assert served == [2]


def test_one_request_is_let_in_whatever_those_who_wait_have_sent_already(log):
    pool = make(log, 2 * CHUNK)
    asides = [pool.take_anyway(CHUNK) for _ in range(4)]
    first = pool.take(CHUNK)
    assert first is not None
    assert pool.take(CHUNK) is None
    told = []
    pool.wait(lambda: told.append(True))
    pool.give_back(first)
    assert told
    assert pool.take(CHUNK) is not None
    assert len(asides) == 4


def test_one_request_larger_than_the_budget_is_let_in(log):
    pool = make(log, 2 * CHUNK)
    pool.chunk()
    assert pool.take(8 * CHUNK) is not None


def test_buffers_are_used_again_and_let_go_by_trim(log):
    pool = make(log)
    buffer = pool.take(5000)
    assert len(buffer.view) == 8192
    pool.give_back(buffer)
    assert pool.take(6000) is buffer
    pool.give_back(buffer)
    pool.trim()
    assert pool.idle_bytes == 0
    assert pool.take(5000) is not buffer


def test_buffers_beyond_what_is_kept_are_let_go(log):
    pool = make(log, 1 << 30)
    pool.give_back(pool.take(2 * KEPT_BYTES))
    assert pool.idle_bytes == 0


def test_a_part_of_the_budget_is_for_small_requests(log):
    pool = make(log, 16 << 20)
    pool.chunk()
    assert pool.take(8 << 20) is not None
    assert pool.take(4 << 20) is not None
    assert pool.take(4 << 20) is None
    assert pool.take(SMALL_BYTES) is not None


def test_all_who_wait_are_told_and_may_wait_again(log):
    pool = make(log, 2 * CHUNK)
    pool.chunk()
    kept = pool.take_anyway(4 * CHUNK)
    told = []

    def never_content():
        told.append("large")
        pool.wait(never_content)

    pool.wait(never_content)
    pool.wait(lambda: told.append("small"))
    pool.give_back(kept)
    assert told == ["large", "small"]
    assert pool.has_waiters


def test_large_buffers_are_writable_memory(log):
    view = make(log, 64 << 20).take(LARGE_BYTES).view
    assert len(view) == LARGE_BYTES
    view[-3:] = b"end"
    assert bytes(view[-4:]) == b"\0end"
