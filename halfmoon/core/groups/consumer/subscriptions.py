"""Which topics members read: names as they are, patterns by the topics that there are.

A topic that does not exist yet counts from its creation on, without anybody asking again: who looks here looks at the
topics of that moment, and `Topics.changes` says when it is worth looking. Internal topics are not found by patterns.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from halfmoon.core.patterns import Pattern

_MAX_PATTERNS = 1_000
"""Compiled patterns that are kept."""


class Topics(Protocol):
    """What the coordinator must know of topics."""

    @property
    def changes(self) -> int:
        """Moves with each change of topics or partitions."""
        ...

    def number(self, name: str) -> int | None:
        """The topic of that name, if there is one."""
        ...

    def name(self, number: int) -> str | None: ...

    def partitions(self, number: int) -> int:
        """How many there are; 0 where there is no such topic."""
        ...

    def names(self) -> Iterable[str]:
        """All that patterns may find."""
        ...


class Subscriptions:
    """Looks topics up for members; remembers what patterns have found."""

    def __init__(self, topics: Topics) -> None:
        self.topics = topics
        self._patterns: dict[str, _Found] = {}

    def check(self, regex: str) -> None:
        """Raises InvalidPattern unless the pattern can be used."""
        if regex:
            self._find(regex)

    def names(self, topics: Iterable[str], regex: str) -> frozenset[str]:
        """The names that somebody reads who subscribes so. Of those named, some may not exist."""
        return frozenset(topics) | self._find(regex) if regex else frozenset(topics)

    def _find(self, regex: str) -> frozenset[str]:
        found = self._patterns.pop(regex, None)
        if found is None:
            found = _Found(Pattern(regex))
            if len(self._patterns) >= _MAX_PATTERNS:
                del self._patterns[next(iter(self._patterns))]  # the one that was not used for longest
        self._patterns[regex] = found
        if found.changes != self.topics.changes:
            found.look(self.topics.names())
            found.changes = self.topics.changes
        return found.names


class _Found:
    """A pattern and the names that it matches."""

    __slots__ = ("_known", "changes", "names", "pattern")

    def __init__(self, pattern: Pattern) -> None:
        self.pattern = pattern
        self.changes: int | None = None
        self.names: frozenset[str] = frozenset()
        self._known: dict[str, bool] = {}

    def look(self, names: Iterable[str]) -> None:
        """Each name is matched once, as long as it exists."""
        known = self._known
        self._known = {name: known[name] if name in known else self.pattern.matches(name) for name in names}
        self.names = frozenset(name for name, matched in self._known.items() if matched)
