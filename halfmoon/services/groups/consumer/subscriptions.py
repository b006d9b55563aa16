"""Which topics members read: names as they are, patterns by the topics that there are.

A topic that does not exist yet counts from its creation on, without anybody asking again: who looks here looks at the
topics of that moment, and `Topics.changes` says when it is worth looking. Patterns do not find Halfmoon's own
internal topics.

A pattern may be a costly one, and topics many, so who has patterns looks at so many names at once only; the others come
with the next heartbeats.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import takewhile
from typing import Protocol

from halfmoon.services.common.patterns import Pattern

_MAX_PATTERNS = 1_000
"""Compiled patterns that are kept."""
MATCHED_AT_ONCE = 2_000_000
"""Steps of matching, of `Pattern.size` for each character: 2,000 names of 30 characters for a simple pattern. It takes
10 ms for the worst of them."""


Describes = Callable[[str], bool]
"""Whether somebody may describe the topic of this name."""


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
    """Looks topics up for members; remembers what patterns have found.

    Names are numbered in the order in which they came up, so that a pattern knows what it has not looked at yet.
    """

    def __init__(self, topics: Topics) -> None:
        self.topics = topics
        self._patterns: dict[str, _Found] = {}
        self._numbers: dict[str, int] = {}
        self._last = 0
        self._seen_changes: int | None = None

    def check(self, regex: str) -> None:
        """Raises InvalidPattern unless the pattern can be used. Nothing is matched: it may be anybody who asks."""
        if regex and regex not in self._patterns:
            Pattern(regex)

    def look(self, regexes: Iterable[str]) -> bool:
        """Look at the topics that patterns have not been held against. Whether that is all of them; if not, it is as
        much as may be done at once."""
        self._see_topics()
        steps = MATCHED_AT_ONCE
        for regex in regexes:
            found = self._found(regex)
            steps -= found.look(self._numbers, self._last, steps)
            if found.upto < self._last:
                return False
        return True

    def names(self, topics: Iterable[str], regex: str, describes: Describes | None = None) -> frozenset[str]:
        """The names that somebody reads who subscribes so, as far as `look` has looked. Of those named, some may not
        exist. `describes`: of those that the pattern finds, which count; None: all."""
        if not regex:
            return frozenset(topics)
        if regex not in self._patterns:
            self.look([regex])
        found = self._found(regex).names
        return (found if describes is None else frozenset(filter(describes, found))).union(topics)

    def _found(self, regex: str) -> _Found:
        found = self._patterns.pop(regex, None)
        if found is None:
            found = _Found(Pattern(regex))
            if len(self._patterns) >= _MAX_PATTERNS:
                del self._patterns[next(iter(self._patterns))]  # the one that was not used for longest
        self._patterns[regex] = found
        return found

    def _see_topics(self) -> None:
        if self._seen_changes == self.topics.changes:
            return
        self._seen_changes = self.topics.changes
        there = set(self.topics.names())
        for name in self._numbers.keys() - there:
            del self._numbers[name]
        for name in self.topics.names():
            if name not in self._numbers:
                self._last += 1
                self._numbers[name] = self._last


class _Found:
    """A pattern and the names that it matches, of those up to a number."""

    __slots__ = ("names", "pattern", "upto")

    def __init__(self, pattern: Pattern) -> None:
        self.pattern = pattern
        self.names: frozenset[str] = frozenset()
        self.upto = 0

    def look(self, numbers: dict[str, int], last: int, steps: int) -> int:
        """Look at more names, of those that have numbers, up to the last; stop when no steps of matching are left.
        Returns how many it took. Each name is matched once, as long as it exists."""
        kept = self.names & numbers.keys()
        new = list(takewhile(lambda name: numbers[name] > self.upto, reversed(numbers)))
        taken = 0
        matched = []
        while new and taken < steps:
            name = new.pop()
            self.upto = numbers[name]
            taken += self.pattern.size * (len(name) + 1)
            if self.pattern.matches(name):
                matched.append(name)
        if not new:
            self.upto = last
        if matched or len(kept) < len(self.names):
            self.names = frozenset(kept).union(matched)
        return taken
