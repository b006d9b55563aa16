"""What fastjson takes for JSON, and what it makes of a value of another type than the field's."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct, to_builtins

from halfmoon.remoting import lenient_json
from halfmoon.remoting.errors import MalformedJson


class Inner(Struct, frozen=True):
    topic: str = "none"
    number: int = -1


class Outer(Struct):
    number: int = 7
    flag: bool = False
    text: str = "before"
    perhaps: str | None = "perhaps"
    kind: Literal["PULL", "PUSH"] = "PUSH"
    numbers: list[int] = []
    texts: list[str] = []
    inner: list[Inner] = []
    one: Inner = Inner()
    table: dict[str, str | None] = {}


def changed(text: str | bytes) -> dict[str, Any]:
    """The fields that differ from what they are by default."""
    data = text.encode() if isinstance(text, str) else text
    read, plain = (to_builtins(each) for each in (lenient_json.decode(data, Outer), Outer()))
    return {name: value for name, value in read.items() if value != plain[name]}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # numbers
        ('{"number":"3"}', {"number": 3}),
        ('{"number":"-3"}', {"number": -3}),
        ('{"number":"1,000"}', {"number": 1000}),
        ('{"number":3.7}', {"number": 3}),
        ('{"number":"3.0"}', {"number": 3}),
        ('{"number":true}', {"number": 1}),
        ('{"number":""}', {}),
        ('{"number":"null"}', {}),
        ('{"number":null}', {}),
        ('{"numbers":["1",2,"3,000",4.0,null]}', {"numbers": [1, 2, 3000, 4]}),
        # truth
        ('{"flag":"true"}', {"flag": True}),
        ('{"flag":"TRUE"}', {"flag": True}),
        ('{"flag":"1"}', {"flag": True}),
        ('{"flag":1}', {"flag": True}),
        ('{"flag":"Y"}', {"flag": True}),
        ('{"flag":"t"}', {"flag": True}),
        ('{"flag":2}', {}),
        ('{"flag":0}', {}),
        ('{"flag":"N"}', {}),
        ('{"flag":null}', {}),
        ('{"flag":""}', {}),
        # texts
        ('{"text":5}', {"text": "5"}),
        ('{"text":1.5}', {"text": "1.5"}),
        ('{"text":true}', {"text": "true"}),
        ('{"text":{"a":1}}', {"text": '{"a":1}'}),
        ('{"text":null}', {}),
        ('{"text":"null"}', {"text": "null"}),
        ('{"perhaps":4}', {"perhaps": "4"}),
        ('{"texts":["a",1,false,null]}', {"texts": ["a", "1", "false"]}),
        # Java's enums
        ('{"kind":"pull"}', {"kind": "PULL"}),
        ('{"kind":0}', {"kind": "PULL"}),
        ('{"kind":1}', {}),
        ('{"kind":"other"}', {}),
        ('{"kind":9}', {}),
        ('{"kind":null}', {}),
        # one for many
        ('{"texts":"a"}', {"texts": ["a"]}),
        ('{"texts":""}', {}),
        ('{"texts":null}', {}),
        ('{"numbers":5}', {"numbers": [5]}),
        ('{"inner":{"topic":"t"}}', {"inner": [{"topic": "t", "number": -1}]}),
        ('{"inner":[{"topic":4,"number":"5"},null]}', {"inner": [{"topic": "4", "number": 5}]}),
        ('{"one":{"number":"6"}}', {"one": {"topic": "none", "number": 6}}),
        ('{"one":null}', {}),
        ('{"table":{"a":1,"b":"c","d":null}}', {"table": {"a": "1", "b": "c"}}),
        ('{"table":""}', {}),
        # fields
        ("{}", {}),
        ('{"number":1,"unknown":{"a":[1,{"b":null}]}}', {"number": 1}),
        ('{"number":1,"number":"2"}', {"number": 2}),
        # syntax
        ("{number:1}", {"number": 1}),
        ("{'text':'it is \"so\"'}", {"text": 'it is "so"'}),
        ("{'text':'it\\'s'}", {"text": "it's"}),
        ("{number:1,}", {"number": 1}),
        ('{,,"numbers":[1,,2,],,}', {"numbers": [1, 2]}),
        ('{"table":{1:"one",2.5:"two",true:"three"}}', {"table": {"1": "one", "2.5": "two", "true": "three"}}),
        ('{/* a "comment" */"number":1// and another\n}', {"number": 1}),
        ('\ufeff{"number":1}', {"number": 1}),
        ('{"text":"a\tb\nc"}', {"text": "a\tb\nc"}),
        ('{"text":"\\x41\\v\\0"}', {"text": "A\v\0"}),
        ('{"text":"\\ud83c\\udf19",number:1}', {"text": "🌙", "number": 1}),
        ('{"text":"a\\ud83cb"}', {"text": "a\ufffdb"}),
        (b'{"text":"a\xffb"}', {"text": "a\ufffdb"}),
        ('{"number":NaN}', {}),
        ('{"text":undefined}', {}),
        ('{"number":3L}', {"number": 3}),
        ('{"number":008}', {"number": 8}),
        ('{"number":-0.0}', {"number": 0}),
        ('{"numbers":Set[1,2],"texts":TreeSet["a"]}', {"numbers": [1, 2], "texts": ["a"]}),
        ('{Set:1,"text":"[,]"}', {"text": "[,]"}),
        ('{"text":"NaN",numbers:[1]}', {"text": "NaN", "numbers": [1]}),
    ],
)
def test_as_fastjson_reads_it(text: str | bytes, expected: dict[str, Any]) -> None:
    assert changed(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "", " ", "null", "[]", "5", '"text"', "{", '{"number"', '{"number":', '{"number":}', '{"number":1', "{}}",
        "{} x",
        '{"number":"x"}', '{"number":[]}', '{"number":{}}', '{"flag":"maybe"}', '{"flag":[]}', '{"one":5}',
        '{"one":[]}',
        '{"inner":5}', '{"inner":[5]}', '{"table":[]}', '{"table":5}', '{:1}', '{{"a":1}:2}', '{[1]:2}', "{number 1}",
        '{"text":"a', "{'text':'a", "{number:1/*", '{"text":"\\q",}', '{"text":word}', '{"number":' + "9" * 5000 + "}",
        '{"number":"' + "9" * 5000 + '"}', "[" * 100_000, '{"one":' * 5_000, "{number:" + "[" * 50_000,
    ],
)  # fmt: skip
def test_what_fastjson_does_not_take_either(text: str) -> None:
    with pytest.raises(MalformedJson):
        lenient_json.decode(text.encode(), Outer)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from([*Outer.__struct_fields__, "topic", "x"]), inner),
)


@given(
    st.binary() | st.text(alphabet="{}[]:,'\"\\/*ab1-.nul \n").map(str.encode) | JSON.map(json.dumps).map(str.encode)
)
def test_any_bytes_are_read_or_malformed(data: bytes) -> None:
    try:
        assert isinstance(lenient_json.decode(data, Outer), Outer)
    except MalformedJson:
        pass


@given(st.dictionaries(st.text(), st.text() | st.integers() | st.lists(st.text())))
def test_what_is_written_in_other_quotes_says_the_same(said: dict[str, Any]) -> None:
    text = json.dumps(said)
    other = "{" + ",".join(f"{json.dumps(name)}:{json.dumps(value)}," for name, value in said.items()) + "}"
    read = [lenient_json.decode(b'{"table":' + each.encode() + b"}", Outer).table for each in (text, other)]
    assert read[0] == read[1]


@pytest.mark.parametrize(
    "text",
    [
        b'{"numbers":[' + b'"1,0",' * 15_000 + b'"1"]}',
        b'{"inner":[' + b'{"topic":1},' * 7_000 + b'{"topic":1}]}',
        b"{numbers:[" + b"1," * 7_000 + b"1]}",
        b"{" + b"/**/" * 3_500 + b"numbers:[1]}",
        b"{text:'" + b"\\x41" * 3_500 + b"'}",
        b"{" + b"/" * 16_000,
        b'{"' + b"\\" * 16_000,
        b"{" + b"," * 16_000,
        b"/*" * 8_000,
        b"[" * 16_000,
    ],
    ids=lambda text: bytes(text[:20]).decode(),
)
def test_no_text_takes_long(text: bytes) -> None:
    """It is read in the loop: no text takes as long as twice a loop of 20 ms."""

    def read() -> None:
        try:
            lenient_json.decode(text, Outer)
        except MalformedJson:
            pass

    assert _shortest(read) < 2 * _shortest(lambda: sum(range(1_000_000)))


def _shortest(work: Callable[[], object]) -> float:
    times = []
    for _ in range(3):
        started = time.thread_time()
        work()
        times.append(time.thread_time() - started)
    return min(times)


def test_what_is_too_large_to_be_converted_is_read_as_it_stands() -> None:
    many = b'{"numbers":[' + b'"1",' * 100_000 + b'"1"]}'
    assert len(lenient_json.decode(many, Outer).numbers) == 100_001
    with pytest.raises(MalformedJson):
        lenient_json.decode(many.replace(b'"1"]', b'""]'), Outer)
