"""The messages of a batch as records: the loop in Python, and the compiled one where it was built, draw the same."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from halfmoon.adapters.rocketmq import drawing
from halfmoon.adapters.rocketmq.drawing import draw_in_python
from halfmoon.adapters.rocketmq.to_records import RecordMaker
from halfmoon.core.records import record_codec
from halfmoon.remoting.message import BatchedMessage, encode_batch

MORE = drawing.header(b"__BORNHOST", b"127.0.0.1:5000")
TEXTS = [
    b"UNIQ_KEY\x017F0000010A0B18B4AAC2000000000001\x02WAIT\x01true\x02",
    b"UNIQ_KEY\x017F0000010A0B18B4AAC2000000000002\x02WAIT\x01true\x02",
    b"WAIT\x01true\x02UNIQ_KEY\x01behind\x02KEYS\x01a b\x02",
    b"NOT_UNIQ_KEY\x01x\x02UNIQ_KEY\x01y\x02",
    b"NOT_UNIQ_KEY\x01x\x02",
    b"UNIQ_KEY\x01",
    b"UNIQ_KEY\x01\x02TAGS\x01t\x02",
    b"UNIQ_KEY\x01no end",
    b"UNIQ_KEY",
    b"UNIQ_KEY\x01a\x02UNIQ_KEY\x01b\x02",
    b"",
]


def compiled_draw() -> Any:
    try:
        return importlib.import_module("halfmoon.adapters.rocketmq._draw").draw
    except ImportError:
        return None


def both(data: bytes, at: int = 0, index: int = 0, most: int = 1 << 20) -> list[Any]:
    """What each form makes of it: its result, or the text of its error."""
    found = []
    for draw in (draw_in_python, compiled_draw()):
        if draw is not None:
            try:
                found.append(draw(data, at, index, most, MORE, 1, RecordMaker().read))
            except ValueError as error:
                found.append(str(error))
    return found


def agreed(data: bytes, at: int = 0, index: int = 0, most: int = 1 << 20) -> Any:
    first, *others = both(data, at, index, most)
    assert all(other == first for other in others)
    return first


def records_of(drawn: bytes, count: int) -> list[tuple[bytes | None, bytes | None, list[tuple[bytes, bytes | None]]]]:
    return [
        (
            record.key,
            record.value,
            [(name.encode(errors="surrogateescape"), content) for name, content in record.headers],
        )
        for record in record_codec.read(drawn, count, count - 1, 0, 0)
    ]


def test_a_message_is_a_record_with_its_unique_key_first() -> None:
    data = encode_batch([BatchedMessage(7, b"body", b"KEYS\x01k\x02UNIQ_KEY\x01u\x02TAGS\x01t\x02")])
    drawn, at, index = agreed(data)
    assert (at, index) == (len(data), 1)
    headers = [(b"UNIQ_KEY", b"u"), (b"KEYS", b"k"), (b"TAGS", b"t"), (b"__FLAG", b"7")]
    assert records_of(drawn, 1) == [(b"k", b"body", [*headers, (b"__BORNHOST", b"127.0.0.1:5000")])]


@pytest.mark.parametrize("text", TEXTS)
def test_properties_are_the_same_whichever_form_reads_them(text: bytes) -> None:
    drawn, _, _ = agreed(encode_batch([BatchedMessage(0, b"x", text), BatchedMessage(-5, b"", text)]))
    unique, rest = drawing.split_unique(text)
    (_, value, headers), (_, empty, flagged) = records_of(drawn, 2)
    assert (value, empty) == (b"x", b"")
    uniques = [content for name, content in headers if name == b"UNIQ_KEY"]
    assert uniques[:1] == ([] if unique is None else [unique])
    assert (b"__FLAG", b"-5") in flagged
    assert len(flagged) == len(headers) + 1
    assert len(headers) == RecordMaker().read(rest).header_count + (unique is not None) + 1


messages = st.lists(
    st.builds(
        BatchedMessage,
        st.sampled_from([0, 0, 0, 1, -1, 2**31 - 1, -(2**31)]),
        st.binary(max_size=200),
        st.one_of(st.sampled_from(TEXTS), st.binary(max_size=60)),
    ),
    min_size=1,
    max_size=150,
)


@given(messages, st.sampled_from([0, 60, 1_020, 8_190, 1_048_570]))
def test_all_messages_are_drawn_alike(some: list[BatchedMessage], index: int) -> None:
    data = encode_batch(some)
    drawn, at, last = agreed(data, index=index)
    assert (at, last) == (len(data), index + len(some))
    assert [value for _, value, _ in records_of(agreed(data)[0], len(some))] == [one.body for one in some]
    assert drawn.count(b"__BORNHOST") >= len(some)


@given(messages, st.data())
def test_pieces_are_the_whole(some: list[BatchedMessage], chance: st.DataObject) -> None:
    data = encode_batch(some)
    whole, _, _ = agreed(data)
    most = chance.draw(st.integers(1, len(some)))
    parts, at, index = b"", 0, 0
    while at < len(data):
        drawn, at, index = agreed(data, at, index, most)
        parts += drawn
    assert (parts, index) == (whole, len(some))


@pytest.mark.parametrize(("size", "at_once"), [(10, drawing.MOST_READS), (4_000, 17)])
def test_so_many_different_properties_are_read_in_one_go(size: int, at_once: int) -> None:
    """They are read in Python, whichever form draws."""
    texts = [b"KEYS\x01%d%s\x02UNIQ_KEY\x01%d\x02" % (n, b"k" * size, n) for n in range(1_000)]
    data = encode_batch([BatchedMessage(0, b"x", text) for text in texts])
    _, at, index = agreed(data)
    assert index == at_once
    assert agreed(data, at, index)[2] == 2 * at_once
    assert agreed(encode_batch([BatchedMessage(0, b"x", texts[0])] * 3_000))[2] == 3_000, "they are the same"


@pytest.mark.parametrize(("at", "most"), [(-1, 5), (0, 0), (0, -1), (1 << 40, 5)])
def test_nothing_is_drawn_outside_of_the_batch(at: int, most: int) -> None:
    data = encode_batch([BatchedMessage(0, b"x", TEXTS[0])])
    assert agreed(data, at, most=most) in ("no message begins there", (b"", at, 0))


@given(messages, st.data())
@example([BatchedMessage(0, b"x" * 10, TEXTS[0])], None)
def test_what_is_broken_is_refused_in_the_same_words(some: list[BatchedMessage], chance: st.DataObject | None) -> None:
    data = bytearray(encode_batch(some))
    if chance is None:
        cuts, at, byte = range(len(data)), 3, 0xFF
    else:
        cuts = range((end := chance.draw(st.integers(0, len(data)))), end + 1)
        at, byte = chance.draw(st.integers(0, len(data) - 1)), chance.draw(st.integers(0, 255))
    for cut in cuts:
        agreed(bytes(data[:cut]))
    data[at] = byte
    agreed(bytes(data))


@pytest.mark.parametrize("length", [-1, 2**31 - 1, -(2**31)])
def test_no_length_leads_out_of_the_batch(length: int) -> None:
    data = bytearray(encode_batch([BatchedMessage(0, b"x" * 10, b"")] * 2))
    data[16:20] = length.to_bytes(4, "big", signed=True)
    assert agreed(bytes(data)) == "the batch ends within a message"


def test_the_compiled_form_is_left_alone_when_python_is_asked_for() -> None:
    said = subprocess.run(
        [sys.executable, "-c", "from halfmoon.adapters.rocketmq import drawing; print(drawing.draw.__module__)"],
        env={**os.environ, "HALFMOON_PURE": "1"}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert said.stdout == "halfmoon.adapters.rocketmq.drawing\n"
