"""Shell patterns in the place of topics: `orders-*`. No topic's name has `*`, `?` or `[`, so there is no doubt."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Iterable, Sequence

from halfmoon.cli.errors import CliError

_SPECIAL = frozenset("*?[")


def is_pattern(name: str) -> bool:
    return not _SPECIAL.isdisjoint(name)


def any_pattern(names: Iterable[str]) -> bool:
    return any(map(is_pattern, names))


def expand(names: Sequence[str], existing: Callable[[], Iterable[str]]) -> list[str]:
    """The names, patterns replaced by the topics that match them, each once. Raises CliError where none matches.

    `existing`: the topics that may match, without internal ones. It is only called where there is a pattern.
    """
    if not any_pattern(names):
        return list(dict.fromkeys(names))
    there = sorted(existing())
    found: list[str] = []
    for name in names:
        if not is_pattern(name):
            found.append(name)
            continue
        matching = [topic for topic in there if fnmatch.fnmatchcase(topic, name)]
        if not matching:
            raise CliError(f"{name}: no topic matches")
        found += matching
    return list(dict.fromkeys(found))


def regex(names: Iterable[str]) -> str:
    """One regular expression that these names and patterns match, for a consumer that looks for new topics."""
    return "|".join(
        f"(?:{fnmatch.translate(name)})" if is_pattern(name) else f"(?:{re.escape(name)}\\Z)" for name in names
    )
