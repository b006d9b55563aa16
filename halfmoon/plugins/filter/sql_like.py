"""SQL's LIKE: `%` stands for any text, `_` for one character.

The time grows with the text's length alone, whatever the pattern: each piece between two `%` is looked for once, behind
the one before, and looking for it never goes back.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

ANY = ""
"""Stands for a `_` among characters."""

Find = Callable[[str, int], int]
"""(text, start) → where the first occurrence from `start` on ends, −1 without one."""


def like(pattern: str, escape: str) -> Callable[[str], bool]:
    """Whether a whole text is like the pattern. After `escape`, one character or none, % and _ stand for themselves."""
    pieces: list[list[str]] = [[]]
    for character in _characters(pattern, escape):
        if character is None:
            pieces.append([])
        else:
            pieces[-1].append(character)
    first = _regex(pieces[0])
    if len(pieces) == 1:
        return lambda text: first.fullmatch(text) is not None
    middle = [_finder(piece) for piece in pieces[1:-1]]
    last, last_length = _regex(pieces[-1]), len(pieces[-1])

    def matches(text: str) -> bool:
        begun = first.match(text)
        if begun is None:
            return False
        end = begun.end()
        for find in middle:
            end = find(text, end)
            if end < 0:
                return False
        start = len(text) - last_length
        return start >= end and last.match(text, start) is not None

    return matches


def _characters(pattern: str, escape: str) -> Iterator[str | None]:
    """Each character that is to be matched; None for a `%`."""
    escaped = False
    for character in pattern:
        if not escaped and character == escape:
            escaped = True
            continue
        if escaped or character not in "%_":
            yield character
        else:
            yield None if character == "%" else ANY
        escaped = False
    if escaped:
        yield escape


def _regex(piece: list[str]) -> re.Pattern[str]:
    """For a certain place; it has no repetitions, so it cannot backtrack."""
    return re.compile("".join("." if character is ANY else re.escape(character) for character in piece), re.DOTALL)


def _finder(piece: list[str]) -> Find:
    """Looks for a piece anywhere."""
    known = [index for index, character in enumerate(piece) if character is not ANY]
    lead = known[0] if known else len(piece)
    trail = len(piece) - 1 - known[-1] if known else 0
    if ANY in piece[lead : len(piece) - trail]:
        return _finder_with_holes(piece)
    literal = "".join(piece)

    def find(text: str, start: int) -> int:
        at = text.find(literal, start + lead)
        end = at + len(literal) + trail
        return end if at >= 0 and end <= len(text) else -1

    return find


def _finder_with_holes(piece: list[str]) -> Find:
    """Shift-and (Baeza-Yates and Gonnet, 1992): bit i says that the last i + 1 characters fit the piece's first."""
    anything = sum(1 << index for index, character in enumerate(piece) if character is ANY)
    fits: dict[str, int] = {}
    for index, character in enumerate(piece):
        if character is not ANY:
            fits[character] = fits.get(character, anything) | 1 << index
    whole = 1 << len(piece) - 1

    def find(text: str, start: int) -> int:
        state = 0
        for at in range(start, len(text)):
            state = (state << 1 | 1) & fits.get(text[at], anything)
            if state & whole:
                return at + 1
        return -1

    return find
