"""A dead letter as text, and back: nothing is lost, whatever bytes it has; what cannot be read is said by line."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from halfmoon.cli.dlq_edit import Draft, changed, edited, parsed, written
from halfmoon.cli.errors import CliError

CONTENT = st.one_of(
    st.none(), st.binary(max_size=40), st.text(max_size=40).map(lambda text: text.encode("utf-8", "replace"))
)
NAMES = st.text("abcXYZ-_.", min_size=1, max_size=10)
COMMENTS = ["dlq.g/0/5: negatively acknowledged", "two\nlines"]


@given(CONTENT, CONTENT, st.lists(st.tuples(NAMES, CONTENT), max_size=5))
def test_what_is_written_is_read_back(
    key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]]
) -> None:
    draft = Draft(key, value, headers)
    assert parsed(written(draft, COMMENTS)) == draft


def test_how_it_looks() -> None:
    draft = Draft(b"order-7", b'{"total": 5}\n\nend', [("TAGS", b"paid"), ("SIGNATURE", b"\xff\x0f"), ("none", None)])
    assert written(draft, COMMENTS) == (
        b"# dlq.g/0/5: negatively acknowledged\n# two lines\nkey=order-7\nheaders:\nTAGS=paid\nSIGNATURE:base64=/w8=\n"
        b'none:null\nvalue:\n\n{"total": 5}\n\nend\n'
    )


@pytest.mark.parametrize("text", [b"", b"\n\n", b"# one\n# two\n", b"  \n"])
def test_an_empty_file_leaves_it_out(text: bytes) -> None:
    assert parsed(text) is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"headers:\nTAGS\nvalue:\n\nx\n", "line 2: 'TAGS' is not NAME=VALUE"),
        (b"headers:\n=x\nvalue:\n\nx\n", "line 2: '=x' is not NAME=VALUE"),
        (b"kay=1\nheaders:\nvalue:\n\nx\n", "line 1: expected key=…, or headers:"),
        (b"headers:\n\nx\n", "there is no line value:"),
        (b"key=1\n", "there is no line value:"),
        (b"headers:\nvalue:\nx=y\n\nz\n", "line 3: behind value: an empty line is expected"),
        (b"headers:\nvalue:\n", "there is no empty line behind value:"),
        (b"headers:\nvalue:null\n\nx\n", "behind value:null there is a value"),
        (b"headers:\nvalue:base64\n\n???\n", "the value: no Base64"),
        (b"headers:\na:base64=?\nvalue:\n\n", "line 2: no Base64"),
    ],
)
def test_what_cannot_be_read(text: bytes, said: str) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        parsed(text)
    assert said in str(caught.value)


def test_lines_of_another_system() -> None:
    assert parsed(b"key=1\r\nheaders:\r\na=b\r\nvalue:\n\nx\r\n") == Draft(b"1", b"x\r", [("a", b"b")])


def test_changes() -> None:
    draft = Draft(b"k", b"v", [("a", b"1"), ("b", b"2"), ("a", b"3")])
    assert changed(draft) == draft
    assert changed(draft, set_headers=[("a", b"4")], remove_headers=["b"]) == Draft(b"k", b"v", [("a", b"4")])
    assert changed(draft, key=b"", value=b"w") == Draft(b"", b"w", draft.headers)


def test_the_file_is_kept_where_it_cannot_be_read_and_gone_else() -> None:
    seen: list[Path] = []

    def spoil(path: Path) -> None:
        seen.append(path)
        path.write_bytes(b"headers:\n")

    def fail(path: Path) -> None:
        seen.append(path)
        raise CliError("no editor")

    draft = Draft(b"k", b"v", [])
    with pytest.raises(CliError, match="the file is kept"):
        edited(draft, [], spoil)
    assert seen[0].read_bytes() == b"headers:\n"
    seen[0].unlink()
    with pytest.raises(CliError, match="no editor"):
        edited(draft, [], fail)
    assert edited(draft, [], seen.append) == draft
    assert not seen[1].exists()
    assert not seen[2].exists()
    assert (seen[2].name.startswith("halfmoon-dead-letter-"), len(seen)) == (True, 3)
