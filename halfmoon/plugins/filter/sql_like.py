"""SQL's LIKE: `%` stands for any text, `_` for one character.

No backtracking over several `%`: each piece between two of them is looked for once, behind the one before, so the time
is at most the text's length times the pattern's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator


def like(pattern: str, escape: str) -> Callable[[str], bool]:
    """Whether a whole text is like the pattern. After `escape`, one character or none, % and _ stand for themselves."""
    pieces: list[list[str]] = [[]]
    for character in _characters(pattern, escape):
        if character == "":
            pieces.append([])
        else:
            pieces[-1].append(character)
    first, *middle = (re.compile("".join(piece), re.DOTALL) for piece in pieces)
    if not middle:
        return lambda text: first.fullmatch(text) is not None
    last = middle.pop()
    last_length = len(pieces[-1])

    def matches(text: str) -> bool:
        found = first.match(text)
        for piece in middle:
            if found is None:
                return False
            found = piece.search(text, found.end())
        return (
            found is not None
            and len(text) - last_length >= found.end()
            and last.match(text, len(text) - last_length) is not None
        )

    return matches


def _characters(pattern: str, escape: str) -> Iterator[str]:
    """A regular expression for each that is to be matched; "" for a %."""
    escaped = False
    for character in pattern:
        if not escaped and character == escape:
            escaped = True
            continue
        special = not escaped and character in "%_"
        yield ("" if character == "%" else ".") if special else re.escape(character)
        escaped = False
    if escaped:
        yield re.escape(escape)
