"""A log entry is one line."""

from __future__ import annotations

import logging

import pytest

from halfmoon.server.log_lines import LINE, LONGEST, OneLine, printable


def entry(message: str, *arguments: object) -> str:
    record = logging.LogRecord("halfmoon.kafka", logging.WARNING, __file__, 1, message, arguments, None)
    return OneLine(LINE).format(record)


def test_an_ordinary_message_stays_as_it_is():
    assert entry("event=recovered frames=%d name=%s", 3, "größe").endswith(
        " level=WARNING logger=halfmoon.kafka event=recovered frames=3 name=größe"
    )


@pytest.mark.parametrize("hostile", ["\n", "\r\n", "\x1b[2J", "\x00", "\x85", "\u2028", "\udc80"])
def test_a_name_cannot_end_the_line(hostile):
    line = entry("group=%s", f"a{hostile}level=ERROR all is lost")
    assert len(line.splitlines()) == 1
    assert "\x1b" not in line
    line.encode()


def test_a_long_message_is_cut():
    assert len(printable("x" * 1_000_000)) < LONGEST + 40
    assert printable("x" * LONGEST) == "x" * LONGEST


def test_a_traceback_stays_readable():
    try:
        raise RuntimeError("first\nsecond")
    except RuntimeError as error:
        record = logging.LogRecord("n", logging.ERROR, __file__, 1, "failed", (), (type(error), error, None))
    assert OneLine(LINE).format(record).endswith("failed\nRuntimeError: first\nsecond")
