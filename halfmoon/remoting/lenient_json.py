"""JSON as RocketMQ reads it: with fastjson and its default features, which take more than JSON and convert types.

Clients in other languages rely on it: RocketMQ's Go client sends numbers as strings. What is taken:

    fields    one that is missing, null, or "" or "null" where no text is expected, has its default; others are ignored
    int       3, "3", "1,000", 3.7 (3), true (1)
    bool      true, "true", "1", "Y", "T" in any case, and 1; "false", "0", "N", "F", and other numbers
    str       any value; what is no text is taken as it would be written
    Literal   a name in any case, or its number: Java's enum, names in its order; an unknown name is the default
    list      a list without its nulls; one value is a list of one, and "" is none
    syntax    keys without quotes and number keys, single quotes, spare commas, comments, \\x41, a byte order mark, raw
              control characters, bad UTF-8 (U+FFFD), 007, 3L, NaN and undefined (null), Set[…]

(com.alibaba.fastjson: JSONLexerBase, DefaultJSONParser, TypeUtils.cast…; fastjson2's ObjectReaderImplList for the
single values.) What msgspec reads as it stands costs nothing more.
"""

from __future__ import annotations

import functools
import json
import math
import re
from collections.abc import Callable
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Struct, structs

from halfmoon.remoting.errors import MalformedJson

MOST_CONVERTED_BYTES = 96 << 10
"""Of a text whose types msgspec does not convert …"""
MOST_REWRITTEN_BYTES = 16 << 10
"""… and of one that is no JSON: either takes 20 ms at most."""

T = TypeVar("T", bound=Struct)
Read = Callable[[object], Any]

_ABSENT: Any = msgspec.UNSET
"""What a field reads that is to have its default."""
_TROUBLE = (msgspec.DecodeError, ValueError, RecursionError)
_NUMBER = re.compile(r"([+-]?\d{1,19})(\.\d*)?")
_YES, _NO = ("true", "1", "y", "t"), ("false", "0", "n", "f")


def decode(text: bytes | memoryview, kind: type[T]) -> T:
    """Raises MalformedJson where fastjson would find nothing in it either."""
    try:
        return msgspec.json.decode(text, type=kind, strict=False)
    except _TROUBLE as error:
        if len(text) > MOST_CONVERTED_BYTES:
            raise MalformedJson(str(error)) from None
    try:
        tree = msgspec.json.decode(text)
    except _TROUBLE as error:
        if len(text) > MOST_REWRITTEN_BYTES:
            raise MalformedJson(str(error)) from None
        try:
            tree = msgspec.json.decode(_as_json(str(text, "utf-8", "replace")))
        except _TROUBLE as still:
            raise MalformedJson(str(still)) from None
    made: T = _struct_reader(kind)(tree)
    return made


# -- types -----------------------------------------------------------------------------------------------------------


@functools.cache
def _struct_reader(kind: type[Struct]) -> Read:
    hints = get_type_hints(kind)
    readers = {field.encode_name: (field.name, _reader(hints[field.name])) for field in structs.fields(kind)}

    def read(value: object) -> Struct:
        if not isinstance(value, dict):
            raise MalformedJson(f"an object is expected, and a {type(value).__name__} is there")
        given = {}
        for key, content in value.items():
            if content is not None and key in readers:
                name, reader = readers[key]
                made = reader(content)
                if made is not _ABSENT:
                    given[name] = made
        try:
            return kind(**given)
        except TypeError as error:
            raise MalformedJson(str(error)) from None

    return read


def _reader(kind: Any) -> Read:
    """What reads a value that is not null into such a type."""
    if kind in _READERS:
        return _READERS[kind]
    if get_origin(kind) is Literal:
        return _enum_reader(get_args(kind))
    if get_origin(kind) is list:
        return _list_reader(_reader(get_args(kind)[0]))
    if get_origin(kind) is dict:
        return _map_reader(_reader(get_args(kind)[1]))
    if isinstance(kind, type):
        assert issubclass(kind, Struct), f"{kind} is not read from JSON"
        return _struct_reader(kind)
    (known,) = (each for each in get_args(kind) if each is not type(None))
    return _reader(known)


def _enum_reader(names: tuple[str, ...]) -> Read:
    by_name = {name.lower(): name for name in names}

    def read(value: object) -> Any:
        if isinstance(value, int) and 0 <= value < len(names):
            return names[value]
        return by_name.get(value.lower(), _ABSENT) if isinstance(value, str) else _ABSENT

    return read


def _list_reader(item: Read) -> Read:
    def read(value: object) -> Any:
        if value == "":
            return _ABSENT
        values = value if isinstance(value, list) else [value]
        return [made for each in values if each is not None and (made := item(each)) is not _ABSENT]

    return read


def _map_reader(item: Read) -> Read:
    def read(value: object) -> Any:
        if value == "":
            return _ABSENT
        if not isinstance(value, dict):
            raise MalformedJson(f"a map is expected, and a {type(value).__name__} is there")
        return {key: item(each) for key, each in value.items() if each is not None}

    return read


def _int(value: object) -> Any:
    if isinstance(value, str):
        if value in ("", "null", "NULL"):
            return _ABSENT
        number = _NUMBER.fullmatch(value.replace(",", ""))
        if number is not None:
            return int(number[1])
    elif isinstance(value, int) or (isinstance(value, float) and math.isfinite(value)):
        return int(value)
    raise MalformedJson("a number is expected")


def _bool(value: object) -> Any:
    if isinstance(value, str):
        if value in ("", "null", "NULL"):
            return _ABSENT
        if value.lower() in (*_YES, *_NO):
            return value.lower() in _YES
    elif isinstance(value, (int, float)):
        return value == 1
    raise MalformedJson("true or false is expected")


def _str(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


_READERS: dict[Any, Read] = {int: _int, bool: _bool, str: _str}


# -- syntax ----------------------------------------------------------------------------------------------------------

_TOKEN = re.compile(
    r"""(?:\s|//[^\n]*|/\*(?s:.*?)\*/)*+
    (?:(?P<mark>[{}\[\]:,])
    |"(?P<double>(?:[^"\\]|\\.)*+)"
    |'(?P<single>(?:[^'\\]|\\.)*+)'
    |(?P<word>[^\s"'{}\[\]:,/]+))""",
    re.VERBOSE | re.DOTALL,
)
_REST = re.compile(r"(?:\s|//[^\n]*|/\*.*?\*/)*+\Z", re.DOTALL)
_WORDS = {"NaN": "null", "undefined": "null"}
_JAVA_NUMBER = re.compile(r"(-?)0*(\d{1,30}(?:\.\d{1,30})?(?:[eE][+-]?\d{1,9})?)[LSBFD]?")
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2}|.)", re.DOTALL)
_ESCAPED = {
    "b": "\b", "f": "\f", "F": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "/": "/", "\\": "\\", '"': '"',
    "'": "'", **{str(digit): chr(digit) for digit in range(8)},
}  # fmt: skip


def _as_json(text: str) -> bytes:
    """The same in JSON. Raises MalformedJson; what is wrong in other ways stays so."""
    tokens: list[str] = []
    at = 1 if text.startswith("\ufeff") else 0
    while found := _TOKEN.match(text, at):
        at = found.end()
        kind, token = found.lastgroup, found[found.lastgroup or 0]
        if kind == "word":
            tokens.append(_word(token))
        elif kind != "mark":
            tokens.append(_quoted(_ESCAPE.sub(_unescaped, token)))
        elif token == ",":
            if tokens and tokens[-1] not in ",{[":
                tokens.append(token)
        elif token == ":":
            if not tokens or tokens[-1] in "{}[],:":
                raise MalformedJson("a value without a key")
            if not tokens[-1].startswith('"'):
                tokens[-1] = _quoted(tokens[-1])
            tokens.append(token)
        else:
            if tokens and tokens[-1] in ([","] if token in "}]" else ["Set", "TreeSet"]):
                tokens.pop()
            tokens.append(token)
    if _REST.match(text, at) is None:
        raise MalformedJson(f"character {at} cannot be read")
    return "".join(tokens).encode()


def _word(word: str) -> str:
    number = _JAVA_NUMBER.fullmatch(word)
    return number[1] + number[2] if number is not None else _WORDS.get(word, word)


def _quoted(text: str) -> str:
    # Two halves of a character beyond 16 bits become one, and a half alone U+FFFD.
    return json.dumps(text.encode("utf-16", "surrogatepass").decode("utf-16", "replace"), ensure_ascii=False)


def _unescaped(escape: re.Match[str]) -> str:
    letter = escape[1]
    if len(letter) > 1:
        return chr(int(letter[1:], 16))
    if letter not in _ESCAPED:
        raise MalformedJson(f"an unknown escape \\{letter}")
    return _ESCAPED[letter]
