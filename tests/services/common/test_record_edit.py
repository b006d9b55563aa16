"""Batches with other headers, or fewer records; and the search that says which records to look at."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from halfmoon.core.records.batch_header import HEADER_BYTES, TRANSACTIONAL, assemble
from halfmoon.core.records.batches import batch_body, build_batch, iter_records, parse_header, splice
from halfmoon.core.records.record_codec import Record, walk
from halfmoon.services.common.header_search import HeaderSearch
from halfmoon.services.common.record_edit import map_records, of_producer, rewrite, without_headers

_headers = st.lists(
    st.tuples(st.sampled_from(["go", "change", "x", "own.a", "own."]), st.none() | st.binary(max_size=4)), max_size=3
)
_rows = st.lists(
    st.tuples(st.none() | st.binary(max_size=9), st.none() | st.binary(max_size=200), st.integers(0, 9), _headers),
    min_size=1,
    max_size=20,
)
SEARCH = HeaderSearch(["go", "change"])


@given(_rows, st.integers(0, 4))
def test_rewriting_is_what_it_would_be_record_by_record(rows: list[tuple], codec: int) -> None:  # type: ignore[type-arg]
    batch = build_batch(rows, codec=codec, base_offset=40, producer_id=3, producer_epoch=1, base_sequence=9)
    asked: list[int] = []

    def change(index: int, record: Record) -> Record | None:
        asked.append(index)
        names = [name for name, _ in record.headers]
        if "go" in names:
            return None
        if "change" in names:
            return record._replace(headers=(("new", b"header"), *record.headers))
        return record

    made = rewrite(batch, SEARCH, change)
    expected = []
    for index, record in enumerate(iter_records(batch)):
        names = [name for name, _ in record.headers]
        if "go" not in names:
            headers = (("new", b"header"), *record.headers) if "change" in names else record.headers
            expected.append((record.offset_delta, record.timestamp, record.key, record.value, headers))
        if names and set(names) & {"go", "change"}:
            assert index in asked
    assert asked == sorted(set(asked))
    if made is None:
        assert expected == []
        return
    assert [tuple(record[:5]) for record in iter_records(made)] == expected
    before, header = parse_header(batch), parse_header(made)
    assert header.record_count == len(expected)
    assert header.last_offset_delta == expected[-1][0]
    assert header.max_timestamp == max(row[1] for row in expected)
    for field in ("base_offset", "attributes", "base_timestamp", "producer_id", "producer_epoch", "base_sequence"):
        assert getattr(header, field) == getattr(before, field)


def test_what_is_not_changed_stays_byte_for_byte() -> None:
    batch = build_batch([(b"k", b"go away", 1, [("a", b"go")])])
    assert rewrite(batch, SEARCH, lambda index, record: record) == batch


@given(_rows)
def test_taking_off_headers(rows: list[tuple]) -> None:  # type: ignore[type-arg]
    batch = build_batch(rows)
    made = without_headers(batch, HeaderSearch((), ["own."]), "own.")
    assert [record.headers for record in iter_records(made)] == [
        tuple(header for header in record.headers if not header[0].startswith("own.")) for record in iter_records(batch)
    ]


@given(_rows)
def test_the_search_misses_no_header(rows: list[tuple]) -> None:  # type: ignore[type-arg]
    batch = build_batch(rows)
    body = bytes(batch_body(batch))
    found = SEARCH.records(body, walk(body, len(rows)))
    holding = [at for at, row in enumerate(rows) if {name for name, _ in row[3]} & {"go", "change"}]
    assert set(holding) <= set(found)
    assert SEARCH.finds(body) == bool(found)
    assert found == sorted(set(found))


@pytest.mark.parametrize("names", [["TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS"], ["DELAY", "DELAYED"]])
def test_similar_names_are_found_each(names: list[str]) -> None:
    search = HeaderSearch(names)
    for name in names:
        assert search.finds(build_batch([(None, None, 0, [(name, b"")])])[61:])
    assert not search.finds(build_batch([(None, None, 0, [("TIMER", b""), ("DEL", b"")])])[61:])


def test_a_piece_takes_the_producer_of_the_whole() -> None:
    whole = parse_header(build_batch([(None, b"a", 0, ())], producer_id=5, producer_epoch=2, base_sequence=7))
    made = of_producer(build_batch([(None, b"b", 0, ())]), whole)
    header = parse_header(made)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (5, 2, 7)
    assert [record.value for record in iter_records(made)] == [b"b"]


@pytest.mark.parametrize("codec", range(5))
def test_map_records_changes_what_the_function_says_and_nothing_else(codec: int) -> None:
    rows = [(b"k%d" % at, b"v%d" % at, 1_000 - 7 * at, (("h", b"x"), ("n", None))) for at in range(300)]
    batch = build_batch(rows, codec=codec, producer_id=7, producer_epoch=2, base_sequence=40, base_offset=9)
    header = parse_header(batch)
    whole = assemble(header._replace(attributes=header.attributes | TRANSACTIONAL), memoryview(batch)[HEADER_BYTES:])
    holed = splice(whole, [0, 5, 6, 299])
    made = map_records(holed, lambda record: record._replace(value=(record.value or b"").upper(), headers=()))
    before, after = parse_header(holed), parse_header(made)
    assert after._replace(batch_length=0, crc=0) == before._replace(batch_length=0, crc=0)
    assert [(r.offset_delta, r.timestamp, r.key, r.value, r.headers) for r in iter_records(made)] == [
        (at, 1_000 - 7 * at, b"k%d" % at, b"V%d" % at, ()) for at in (0, 5, 6, 299)
    ]
    assert bytes(batch_body(map_records(holed, lambda record: record))) == bytes(batch_body(holed))


def test_map_records_says_what_a_function_has_to_give() -> None:
    with pytest.raises(TypeError, match="gave b'v', expected the record"):
        map_records(build_batch([(None, b"v", 0, ())]), lambda record: record.value)  # type: ignore[arg-type, return-value]
