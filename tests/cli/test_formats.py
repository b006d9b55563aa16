from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from halfmoon.cli.formats import as_json, compile_format, from_json


@dataclass
class Record:
    topic: str = "orders"
    partition: int = 3
    offset: int = 42
    timestamp: int = 1_356_998_400_000
    timestamp_type: int = 0
    key: bytes | None = b"k1"
    value: bytes | None = b"v\xff"
    headers: list[tuple[str, bytes | None]] = field(default_factory=list)


@pytest.mark.parametrize(
    ("form", "printed"),
    [
        ("%t[%p]@%o %T", b"orders[3]@42 1356998400000"),
        ("%k(%K)=%s(%S)%n", b"k1(2)=v\xff(2)\n"),
        (r"%s\t%%\x00\\\r\n", b"v\xff\t%\0\\\r\n"),
        ("", b""),
        ("grüß %k", "grüß k1".encode()),
    ],
)
def test_fields_and_escapes(form: str, printed: bytes) -> None:
    assert compile_format(form)(Record()) == printed


def test_null_is_empty_and_its_size_is_minus_one() -> None:
    assert compile_format("%k|%K|%s|%S")(Record(key=None, value=None)) == b"|-1||-1"


def test_headers_are_joined_as_kcat_joins_them() -> None:
    record = Record(headers=[("a", b"1"), ("b", None), ("a", b"")])
    assert compile_format("%h")(record) == b"a=1,b=NULL,a="


@pytest.mark.parametrize(("form", "named"), [("%q", "%q"), ("%", "%"), (r"\q", r"\\q"), (r"\x1", r"\\x")])
def test_what_is_unknown_is_named(form: str, named: str) -> None:
    with pytest.raises(ValueError, match=f"^{named}"):
        compile_format(form)


def test_json_keeps_bytes_that_are_no_text() -> None:
    printed = as_json(Record(timestamp_type=1, headers=[("h", b"\xff")]))
    assert printed["key"] == "k1"
    assert printed["value_base64"] == "dv8="
    assert "value" not in printed
    assert printed["headers"] == [{"name": "h", "value_base64": "/w=="}]
    assert printed["timestamp_type"] == "LogAppendTime"


@given(st.none() | st.binary(max_size=40))
def test_json_gives_the_bytes_back(data: bytes | None) -> None:
    assert from_json(as_json(Record(value=data)), "value") == data


def test_json_that_is_no_text_is_refused() -> None:
    with pytest.raises(ValueError, match="value is not a string"):
        from_json({"value": 7}, "value")
