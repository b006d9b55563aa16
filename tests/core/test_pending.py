"""Sets of offsets that wait: compared with Python's own sets."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from halfmoon.core.pending import CHUNK, RUN, PendingSet, bits_by_queue
from halfmoon.schema.snapshot import Chunks

_added = st.lists(st.tuples(st.integers(0, 3000), st.integers(1, 3000)), max_size=6)


@given(_added, st.lists(st.integers(0, 15_000), max_size=200))
def test_it_is_a_set(added: list[tuple[int, int]], settled: list[int]) -> None:
    pending, model, end = PendingSet(), set[int](), 0
    for gap, count in added:
        first = end + gap
        pending.add(first, count)
        model |= set(range(first, first + count))
        end = first + count
    assert pending.end == end
    for offset in [*settled, *sorted(model)[:50]]:
        assert pending.settle(offset) == (offset in model)
        model.discard(offset)
    assert len(pending) == len(model)
    assert pending.first() == min(model, default=None)
    assert list(pending.between(0, end + 1)) == sorted(model)
    assert list(pending.between(500, 2_100)) == [offset for offset in sorted(model) if 500 <= offset < 2_100]
    assert all((offset in pending) == (offset in model) for offset in range(0, end + 10, 7))
    for low, high in ((0, end + 1), (500, 2_100), (1_024, 1_024), (1_023, 2_048)):
        assert pending.count(low, high) == len([offset for offset in model if low <= offset < high])
        assert pending.first(low) == min((offset for offset in model if offset >= low), default=None)
    again = PendingSet(pending.chunks(), end)
    assert (list(again.between(0, end + 1)), len(again), again.first()) == (sorted(model), len(model), pending.first())


def test_adding_again_brings_nothing_back() -> None:
    pending = PendingSet()
    pending.add(0, 10)
    pending.settle(3)
    pending.add(0, 10)
    assert 3 not in pending
    pending.add(5, 10)
    assert list(pending.between(0, 20)) == [0, 1, 2, *range(4, 15)]


_steps = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(0, 3 * RUN * CHUNK), st.integers(1, 2 * RUN * CHUNK)),
        st.tuples(st.sampled_from(["settle", "settle_run"]), st.floats(0, 1), st.integers(1, 3 * RUN * CHUNK)),
        st.tuples(st.sampled_from(["encode", "slice"]), st.none(), st.none()),
    ),
    max_size=12,
)


@given(_steps)
def test_what_is_encoded_again_is_what_has_changed(steps: list[tuple[str, Any, Any]]) -> None:
    """And the whole is always what stands in it, whenever it was last encoded, in part or as a whole."""
    pending = PendingSet()
    for what, where, count in steps:
        if what == "add":
            pending.add(pending.end + where, count)
        elif what == "settle":
            pending.settle(int(where * pending.end))
        elif what == "settle_run":
            pending.settle_run(int(where * pending.end), count)
        elif what == "slice":
            next(pending.prepare(), None)
        else:
            assert msgspec.msgpack.decode(pending.encoded(), type=Chunks) == pending.chunks()
    assert bytes(pending.encoded()) == msgspec.msgpack.encode(pending.chunks())


def test_no_slice_encodes_more_than_some_runs() -> None:
    pending = PendingSet()
    pending.add(0, 100 * RUN * CHUNK)
    slices = [None, *pending.prepare()]
    assert len(slices) == 4
    assert list(pending.prepare()) == []
    pending.settle_all({5: 1, 50 * RUN: 1})
    assert list(pending.prepare()) == []
    assert bytes(pending.encoded()) == msgspec.msgpack.encode(pending.chunks())


def test_what_is_settled_takes_no_memory() -> None:
    pending = PendingSet()
    pending.add(0, 10 * CHUNK)
    for offset in range(10 * CHUNK - 1):
        pending.settle(offset)
    assert pending.chunks() == [(9, bytes(CHUNK // 8 - 1) + b"\x80")]


@given(
    st.integers(0, 5_000),
    st.integers(1, 5_000),
    st.lists(st.tuples(st.integers(0, 12_000), st.integers(1, 3_000)), max_size=4),
    st.lists(st.integers(0, 12_000), max_size=200),
)
def test_many_are_settled_at_once_as_one_by_one(
    first: int, count: int, runs: list[tuple[int, int]], offsets: list[int]
) -> None:
    pending, model = PendingSet(), set(range(first, first + count))
    pending.add(first, count)
    for low, number in runs:
        pending.settle_run(low, number)
        model -= set(range(low, low + number))
        assert (len(pending), list(pending.between(0, 20_000))) == (len(model), sorted(model))
    bits = bits_by_queue([(1, 2, offset) for offset in offsets] + [(1, 3, 5)])
    assert bits.keys() == {(1, 3), *((1, 2) for _ in offsets)}
    assert pending.holds(bits.get((1, 2), {})) == (set(offsets) <= model)
    pending.settle_all(bits.get((1, 2), {}))
    model -= set(offsets)
    assert (len(pending), list(pending.between(0, 20_000))) == (len(model), sorted(model))
    assert [number for number, _ in pending.chunks()] == sorted({offset // CHUNK for offset in model})
    assert pending.holds(bits_by_queue((0, 0, offset) for offset in model).get((0, 0), {}))


@given(_added, st.sets(st.integers(0, 9_000), max_size=50), st.integers(0, 9_000))
def test_what_is_kept_is_below_an_offset_and_nothing_else_is(
    added: list[tuple[int, int]], kept: set[int], upto: int
) -> None:
    pending, model = PendingSet(), set[int]()
    for gap, count in added:
        first = pending.end + gap
        pending.add(first, count)
        model |= set(range(first, first + count))
    bits = bits_by_queue((7, 0, offset) for offset in kept).get((7, 0), {})
    chunks = [(number, each.to_bytes(CHUNK // 8, "little")) for number, each in sorted(bits.items())]
    for _ in range(2):
        pending.keep(chunks, upto)
        left = sorted(offset for offset in model if offset >= upto or offset in kept)
        assert list(pending.between(0, pending.end + 1)) == left
        assert len(pending) == len(left)
    again = PendingSet(msgspec.msgpack.decode(pending.encoded(), type=Chunks), pending.end)
    assert list(again.between(0, pending.end + 1)) == left
