"""Records as stored messages: the loop in Python, and the compiled one where it was built, write the same."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from halfmoon.adapters.rocketmq.message_loop import Tail, Write, write_in_python
from halfmoon.core.records import record_codec
from halfmoon.core.records.batches import batch_body, build_batch
from halfmoon.errors import BrokerError
from halfmoon.remoting.message import MAGIC, decode_stored

STORED = bytes(range(8)) + b"\x7f\0\0\1\0\0\x2a\x9f"
FIXED = (MAGIC, 3, 5 << 40, 0, STORED, b"\x06orders")
UNIQUE = b"7F0000010A0B18B4AAC2000000000001"
Row = tuple[bytes | None, bytes | None, int, tuple[tuple[str, bytes | None], ...]]


def compiled() -> Write | None:
    try:
        found: Write = importlib.import_module("halfmoon.adapters.rocketmq._message_loop").write
    except ImportError:
        return None
    return found


FORMS = [form for form in (write_in_python, compiled()) if form is not None]


def read(body: bytes, start: int, index: int, base_ms: int, partition: Any, rest: bytes, has_unique: bool) -> Tail:
    """Something that depends on all of it."""
    record = record_codec.read_one(body, start, index, base_ms, None)
    headers = record.headers[1:] if has_unique else record.headers
    text = b"".join(b"%b\x01%b\x02" % (name.encode(errors="surrogateescape"), value or b"") for name, value in headers)
    return text[:30_000], len(text) % 7, 8, b"\x7f\0\0\1\0\0\x13\x88", len(text) if len(text) % 5 == 4 else None, 2


def agreed(
    body: bytes, count: int, *, base_offset: int = 100, base_ms: int = 1_000, from_offset: int = 0, rows: Any = None,
    bounds: Any = None, prepared: Any = (),
) -> Any:  # fmt: skip
    """What both forms make of it: messages, sizes, offsets and what is remembered; or the error."""
    found = []
    for form in FORMS:
        sizes: list[int] = []
        offsets: list[int] = []
        tails: dict[Any, Tail] = {}
        known: list[Any] = []

        def remember(body: bytes, start: int, index: int, base_ms: int, partition: Any, rest: bytes, has: bool) -> Tail:
            tail = read(body, start, index, base_ms, partition, rest, has)
            if index % 2:
                tails[rest, record_codec.read_one(body, start, index, base_ms, None).key, partition] = tail  # noqa: B023
            known.append((start, index, base_ms, rest, has))  # noqa: B023
            return tail

        try:
            data = form(
                body, count, base_offset, base_ms, from_offset, rows, bounds, prepared, FIXED, tails, "p",  # type: ignore[arg-type]
                remember, sizes, offsets,
            )  # fmt: skip
        except (ValueError, OverflowError) as error:
            found.append((type(error), error.args))
        except BrokerError as error:
            found.append((type(error), error.message))
        else:
            found.append((data, sizes, offsets, known))
    assert all(each == found[0] for each in found)
    return found[0]


def body_of(*rows: Row) -> bytes:
    return bytes(batch_body(build_batch(rows)))


def test_a_record_is_a_message() -> None:
    headers = (("UNIQ_KEY", UNIQUE), ("TAGS", b"t"))
    body = body_of((None, b"v", 1_000, headers), (b"k", b"x" * 300, 1_250, headers[1:]), (None, None, 900, ()))
    data, sizes, offsets, known = agreed(body, 3, prepared=(77,))
    first, second, third = decode_stored(data)
    assert (first.body, second.body, third.body) == (b"v", b"x" * 300, b"")
    assert first.properties == b"UNIQ_KEY\x01" + UNIQUE + b"\x02TAGS\x01t\x02"
    assert second.properties == b"TAGS\x01t\x02"
    assert (first.queue_id, first.queue_offset, first.physical_offset) == (3, 100, 5 << 40 | 100)
    assert (first.prepared_offset, second.prepared_offset, first.reconsume_times) == (77, 0, 2)
    assert (first.born_ms, second.born_ms, third.born_ms, first.topic) == (1_000, 1_250, 900, b"orders")
    assert offsets == [100, 101, 102]
    assert sum(sizes) == len(data)
    assert [each[-1] for each in known] == [True, False, False]


def test_only_the_wanted_records_are_written() -> None:
    body = body_of(*((None, b"%d" % number, 1_000, ()) for number in range(10)))
    bounds = record_codec.walk(body, 10)
    data, _, offsets, _ = agreed(body, 3, rows=[1, 4, 9], bounds=bounds)
    assert [message.body for message in decode_stored(data)] == [b"1", b"4", b"9"]
    assert offsets == [101, 104, 109]
    data, _, offsets, _ = agreed(body, 10, from_offset=107)
    assert offsets == [107, 108, 109]


UNIQUES = [UNIQUE, b"a", b"", b"a" * 63, b"a" * 64, b"not alnum", b"\xff"]
headers = st.lists(
    st.tuples(
        st.sampled_from(["UNIQ_KEY", "TAGS", "n", "x" * 70]),
        st.one_of(st.none(), st.sampled_from(UNIQUES), st.binary(max_size=80)),
    ),
    max_size=4,
).map(tuple)
rows = st.builds(
    lambda key, value, ms, headers: (key, value, ms, headers),
    st.one_of(st.none(), st.binary(max_size=70)),
    st.one_of(st.none(), st.binary(max_size=300)),
    st.sampled_from([0, 1, 63, 64, 1_000, 2**40, -(2**62), 2**62, 2**63 - 1]),
    headers,
)


@given(st.lists(rows, min_size=1, max_size=20), st.sampled_from([0, 105]), st.sampled_from([0, 10, 2**63 - 1]))
def test_all_records_are_written_alike(some: list[Row], from_offset: int, base_ms: int) -> None:
    found = agreed(body_of(*some), len(some), from_offset=from_offset, base_ms=base_ms, prepared=(1, 2))
    if len(found) == 4 and not from_offset and base_ms < 11:
        assert [message.body for message in decode_stored(found[0])] == [row[1] or b"" for row in some]


@given(st.lists(rows, min_size=1, max_size=5), st.data())
def test_broken_records_are_refused_alike(some: list[Row], chance: st.DataObject) -> None:
    body = bytearray(body_of(*some))
    for _ in range(chance.draw(st.integers(1, 3))):
        body[chance.draw(st.integers(0, len(body) - 1))] = chance.draw(st.integers(0, 255))
    agreed(bytes(body[: chance.draw(st.integers(0, len(body)))]), len(some))


@given(st.binary(max_size=60), st.integers(0, 4))
@example(b"\x20\0\0\0\x01\x01\x02\x10UNIQ_KEY", 1)
@example(b"\x16\0\0\0\x01\x01\x02\x10UNIQ_KEY\x80", 1)
@example(b"\x10\0\0\0\x03\x01\0\0\0\0\0", 1)
def test_any_bytes_are_read_alike(body: bytes, count: int) -> None:
    agreed(body, count)


def test_the_compiled_form_is_left_alone_where_pure_python_is_wanted() -> None:
    code = "from halfmoon.adapters.rocketmq import message_loop; print(message_loop.write.__module__)"
    said = {}
    for pure in ("", "1"):
        env = {**os.environ, "HALFMOON_PURE": pure}
        said[pure] = subprocess.run(
            [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True
        ).stdout.strip()
    assert said["1"].endswith(".message_loop")
    if compiled() is None:
        pytest.skip("the extension was not built: there is no C compiler")
    assert said[""].endswith("_message_loop")
