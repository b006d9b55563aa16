from __future__ import annotations

import pytest

from halfmoon.cli import output


def test_columns_are_aligned_numbers_to_the_right(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"topic": "a", "lag": 7, "own": None}, {"topic": "long", "lag": 1234, "own": True}]
    output.table(rows, ("topic", "lag", "own"))
    assert capsys.readouterr().out == "TOPIC   LAG  OWN\na         7  -\nlong   1234  yes\n"


def test_an_empty_table_still_says_what_it_would_show(capsys: pytest.CaptureFixture[str]) -> None:
    output.table([], ("topic", "start_offset"))
    assert capsys.readouterr().out == "TOPIC  START-OFFSET\n"


def test_no_progress_display_where_stderr_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with output.progress("records", total=2) as progress:
        progress.advance()
        progress.update(2, 2)
    assert capsys.readouterr().err == ""


def test_json_lines_keep_what_utf8_cannot_say() -> None:
    assert output.json_line({"key": "ü"}) == '{"key": "ü"}\n'.encode()
