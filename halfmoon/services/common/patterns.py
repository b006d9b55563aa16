"""Regular expressions that clients send, over names of topics and transactional ids (KIP-848, KIP-994), and over what
clients call themselves (KIP-714).

RE2's syntax, as in Kafka, which uses RE2/J: whatever a pattern looks like, the time it takes grows with the name only.
A name matches as a whole. What it takes to compile one is bounded by its length, its memory, and its Unicode classes.
"""

from __future__ import annotations

import re

MAX_LENGTH = 4_096
"""Characters of a pattern."""
MAX_UNICODE_CLASSES = 16
"""\\p{…} and \\P{…} in a pattern: each takes 0.1 to 0.5 ms to compile."""
MAX_MEMORY = 1 << 18
"""Bytes that a compiled pattern and its automaton may take. To compile one of that size takes a millisecond."""

_UNICODE_CLASS = re.compile(r"\\[pP]")


class InvalidPattern(ValueError):  # noqa: N818 (it names what is wrong)
    """The text is no pattern of RE2's, or too large a one; the message says why."""


class Pattern:
    """A compiled pattern. Raises InvalidPattern."""

    __slots__ = ("_fullmatch", "size")

    def __init__(self, pattern: str) -> None:
        import re2  # 5 ms: only where somebody sends a pattern

        if len(pattern) > MAX_LENGTH:
            raise InvalidPattern(f"it has {len(pattern)} characters, {MAX_LENGTH} are allowed")
        if len(_UNICODE_CLASS.findall(pattern)) > MAX_UNICODE_CLASSES:
            raise InvalidPattern(f"it has more than {MAX_UNICODE_CLASSES} classes of Unicode")
        options = re2.Options()
        options.log_errors = False
        options.max_mem = MAX_MEMORY
        try:
            compiled = re2.compile(pattern, options=options)
        except re2.error as error:
            said = error.args[0]
            raise InvalidPattern(said.decode() if isinstance(said, bytes) else str(said)) from None

        self._fullmatch = compiled.fullmatch
        self.size: int = compiled.programsize
        """What it takes to match a name grows with this and the name's length: at worst 5 ns for each times each."""

    def matches(self, name: str) -> bool:
        return self._fullmatch(name) is not None
