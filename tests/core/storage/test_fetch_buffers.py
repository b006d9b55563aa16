"""The memory of what was read for fetches: counted as long as somebody holds a slice, and given out in turn."""

from __future__ import annotations

import threading

from halfmoon.core.storage.fetch_buffers import MOST_BYTES, FetchBuffers

KIB = 1 << 10


def test_memory_counts_as_long_as_a_slice_of_it_is_held() -> None:
    buffers = FetchBuffers(1 << 20)
    memory = buffers.take(100 * KIB)
    assert memory.nbytes == 100 * KIB
    assert bytes(memory[:10]) == bytes(10)
    pieces = [memory[:10], memory[10:20]]
    del memory
    assert buffers.in_use_bytes == 100 * KIB
    del pieces[0]
    assert buffers.in_use_bytes == 100 * KIB
    pieces.clear()
    assert buffers.in_use_bytes == 0


def test_nothing_can_be_taken_too() -> None:
    buffers = FetchBuffers(1 << 20)
    assert len(buffers.take(0)) == 0
    assert buffers.in_use_bytes == 0


def test_an_answer_loads_a_part_of_what_is_left() -> None:
    assert FetchBuffers(1 << 30).allowance() == MOST_BYTES
    buffers = FetchBuffers(400 * KIB)
    assert buffers.allowance() == 100 * KIB
    kept = [buffers.take(200 * KIB)]
    assert buffers.allowance() == 50 * KIB
    kept.append(buffers.take(300 * KIB))
    assert buffers.allowance() == 0, "not less"


def test_who_finds_no_room_waits_and_is_let_in_in_the_order_of_asking() -> None:
    buffers = FetchBuffers(100 * KIB)
    buffers.on_freed = buffers.retry
    begun: list[str] = []
    buffers.admit(60 * KIB, lambda: begun.append("a"))
    buffers.admit(60 * KIB, lambda: begun.append("b"))
    buffers.admit(10 * KIB, lambda: begun.append("c"))
    assert begun == ["a"], "c would have room, but must not overtake b"
    assert buffers.waited == 2
    memory = buffers.take(60 * KIB)
    buffers.loaded(60 * KIB)
    assert begun == ["a"]
    assert buffers.has_waiters
    del memory
    assert begun == ["a", "b", "c"]
    assert not buffers.has_waiters
    assert buffers.allowance() == 30 * KIB // 4, "what was admitted counts before it is loaded"


def test_a_load_that_failed_lets_the_next_in() -> None:
    buffers = FetchBuffers(100 * KIB)
    begun: list[str] = []
    buffers.admit(100 * KIB, lambda: begun.append("a"))
    buffers.admit(100 * KIB, lambda: begun.append("b"))
    buffers.loaded(100 * KIB)
    assert begun == ["a", "b"]


def test_what_is_larger_than_the_limit_is_let_in_alone() -> None:
    buffers = FetchBuffers(10 * KIB)
    begun: list[str] = []
    buffers.admit(50 * KIB, lambda: begun.append("a"))
    buffers.admit(KIB, lambda: begun.append("b"))
    assert begun == ["a"]
    buffers.loaded(50 * KIB)
    assert begun == ["a", "b"]


def test_threads_take_and_free_at_once() -> None:
    buffers = FetchBuffers(1 << 30)

    def run() -> None:
        for _ in range(500):
            buffers.take(KIB)

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert buffers.in_use_bytes == 0
