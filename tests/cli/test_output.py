from __future__ import annotations

import io

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


def test_numbers_that_are_text_already_stand_to_the_right_too(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"topic": "a", "share": "93.1%"}, {"topic": "b", "share": "–"}]
    output.table(rows, ("topic", "share"), {"share"})
    assert capsys.readouterr().out == "TOPIC  SHARE\na      93.1%\nb          –\n"


def test_progress_says_what_is_being_done(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Terminal()
    monkeypatch.setattr("sys.stderr", screen)
    with output.progress("success-rate", alike=False) as progress:
        progress.update(2.5, 7, "success-rate: Orders paid [late]")
    shown = screen.getvalue()
    assert "success-rate: Orders paid [late]" in shown, "a name is no markup"
    assert "2/7" in shown
    assert "0:00:0" in shown, "the time that has gone"


class Terminal(io.StringIO):
    """A stderr that is one."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True
