"""What the author of a plugin lets run over it.

    from halfmoon.testing import Message, check_filter, check_filter_error

    check_filter(compile_it, "price > 5", matching=[Message(headers={"price": "6"})], others=[Message()])
    check_filter_error(compile_it, "price >", position=7)

Each raises AssertionError with what is wrong.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from halfmoon.core.records.batches import build_batch, iter_records
from halfmoon.core.records.compression import NONE, ZSTD
from halfmoon.services.common.filtering import matching as indexes_of_matches
from halfmoon.services.common.filters import FilterCompiler, FilterSyntaxError


@dataclass(frozen=True, slots=True)
class Message:
    """A record to be. Texts are written in UTF-8; `timestamp` is in Unix ms."""

    value: bytes | str | None = b""
    key: bytes | str | None = None
    headers: Mapping[str, bytes | str | None] = field(default_factory=dict)
    timestamp: int = 0


def check_filter(
    compiler: FilterCompiler, expression: str, *, matching: Sequence[Message] = (), others: Sequence[Message] = ()
) -> None:
    """The filter lets through `matching` and none of `others`, alone or among each other, compressed or not.

    It remembers nothing from one record to the next, and its `needle` occurs in every record that matches.
    """
    compiled = compiler(expression)
    expected = [(message, message in matching) for message in _mixed(matching, others)]
    for message, wanted in expected:
        batch = _batch([message])
        (record,) = iter_records(batch)
        for _ in range(2):
            found = compiled.match(record)
            assert found is wanted, f"{expression!r}: match gives {found!r} and not {wanted} for {message}"
        if wanted and indexes_of_matches(batch, compiled) != [0]:
            raise AssertionError(f"{expression!r}: the needle {compiled.needle!r} does not occur in {message}")
    for codec in (NONE, ZSTD):
        batch = _batch([message for message, _ in expected], codec)
        found_indexes = indexes_of_matches(batch, compiled)
        wanted_indexes = [index for index, (_, wanted) in enumerate(expected) if wanted]
        assert found_indexes == wanted_indexes, (
            f"{expression!r}: of several, {found_indexes} match and not {wanted_indexes}; does it keep something?"
        )


def check_filter_error(compiler: FilterCompiler, expression: str, *, position: int | None = None) -> None:
    """The expression is refused as it should be: by FilterSyntaxError, which says where (characters from 0)."""
    try:
        compiler(expression)
    except FilterSyntaxError as error:
        assert 0 <= error.position <= len(expression), f"{expression!r}: position {error.position} lies outside of it"
        assert position in (None, error.position), f"{expression!r}: position {error.position} and not {position}"
    except Exception as error:
        raise AssertionError(f"{expression!r}: raises {error!r} and not FilterSyntaxError") from error
    else:
        raise AssertionError(f"{expression!r} is not refused")


def _mixed(matching: Sequence[Message], others: Sequence[Message]) -> list[Message]:
    """One of each in turn, so that what a filter keeps would show."""
    assert matching or others, "there is nothing to filter"
    assert not [message for message in matching if message in others], "a message cannot be among both"
    longest = max(len(matching), len(others))
    return [each[index] for index in range(longest) for each in (matching, others) if index < len(each)]


def _batch(messages: Sequence[Message], codec: int = NONE) -> bytes:
    return build_batch(
        (
            (
                _bytes(message.key),
                _bytes(message.value),
                message.timestamp,
                [(name, _bytes(content)) for name, content in message.headers.items()],
            )
            for message in messages
        ),
        codec=codec,
    )


def _bytes(content: bytes | str | None) -> bytes | None:
    return content.encode() if isinstance(content, str) else content
