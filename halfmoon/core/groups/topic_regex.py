"""Regular expressions over topic names, in time linear in the name (KIP-848's SubscribedTopicRegex).

Clients send them, so no pattern may make the broker busy. Kafka uses RE2/J for that; this is the same idea for an
alphabet of ASCII: the pattern becomes a non-deterministic automaton, and a name is matched by walking the sets of
states it can be in, which are remembered. A name matches as a whole.

The syntax is RE2's, as far as it can say anything about topic names:

    literals   .   [a-z]  [^a-z]  [[:alpha:]]   \\d \\D \\w \\W \\s \\S \\pL \\PN \\Q…\\E   \\. \\t \\x2E \\x{2E}
    ab   a|b   (a)  (?:a)  (?P<name>a)  (?<name>a)   (?i) (?i:a) and the flags m, s, U
    a*   a+   a?   a{2,5}, lazy ones alike
    ^ $ \\A \\z \\b \\B

What RE2 refuses is refused here (look-around, back references, repeats over 1,000), and what would take more than
MAX_STATES states. And whoever asks gives a budget: steps that are not remembered yet use it up, so that even a pattern
made to be slow costs no more than that, while of an ordinary one the steps are soon all known.
"""

from __future__ import annotations

import re
from collections.abc import Callable

MAX_LENGTH = 4_096
"""Characters of a pattern."""
MAX_STATES = 2_000
MAX_REPEAT = 1_000
_MAX_NESTING = 200
_MAX_REMEMBERED = 200_000
"""States, over all steps that are remembered."""
BUDGET = 1_000_000
"""Looks at a state or an edge: about half a second."""

_ALL = (1 << 128) - 1
Mask = int
"""A set of ASCII characters: bit n is character n."""


class InvalidPattern(ValueError):  # noqa: N818 (it names what is wrong)
    """The text is no pattern that this module takes; the message says why."""


class TooCostly(InvalidPattern):
    """The budget is used up."""


def _mask(text: str) -> Mask:
    found = 0
    for char in text:
        found |= 1 << ord(char)
    return found


def _span(first: int, last: int) -> Mask:
    return ((1 << (last + 1)) - 1) & ~((1 << first) - 1)


_DIGIT = _span(48, 57)
_UPPER, _LOWER = _span(65, 90), _span(97, 122)
_LETTER = _UPPER | _LOWER
_WORD = _LETTER | _DIGIT | _mask("_")
_SPACE = _mask("\t\n\f\r ")
_PERL = {"d": _DIGIT, "w": _WORD, "s": _SPACE}
_POSIX = {
    "alnum": _LETTER | _DIGIT, "alpha": _LETTER, "ascii": _ALL, "blank": _mask("\t "), "cntrl": _span(0, 31) | 1 << 127,
    "digit": _DIGIT, "graph": _span(33, 126), "lower": _LOWER, "print": _span(32, 126),
    "punct": _span(33, 126) & ~(_LETTER | _DIGIT), "space": _SPACE | _mask("\v"), "upper": _UPPER, "word": _WORD,
    "xdigit": _DIGIT | _mask("abcdefABCDEF"),
}  # fmt: skip
_PROPERTIES = {
    "L": _LETTER, "Lu": _UPPER, "Ll": _LOWER, "N": _DIGIT, "Nd": _DIGIT, "Latin": _LETTER, "Any": _ALL,
    "P": _mask("!\"#%&'()*,-./:;?@[\\]_{}"), "Pd": _mask("-"), "Pc": _mask("_"), "S": _mask("$+<=>^`|~"),
    "Z": _mask(" "), "Zs": _mask(" "), "C": _span(0, 31) | 1 << 127, "Cc": _span(0, 31) | 1 << 127,
}  # fmt: skip
_CONTROL = {"a": 7, "f": 12, "t": 9, "n": 10, "r": 13, "v": 11}
_REPEAT = re.compile(r"\{([0-9]{1,5})(,([0-9]{0,5}))?\}")
_GROUP_NAME = re.compile(r"P?<[A-Za-z_][A-Za-z0-9_]*>")

_START, _END, _WORD_EDGE, _NO_WORD_EDGE = range(4)
"""What must be true of the place between two characters."""

_Edge = tuple[int, int]
"""(what must be true or −1, next state): a step that takes no character."""


class TopicPattern:
    """A compiled pattern."""

    def __init__(self, pattern: str) -> None:
        """Raises InvalidPattern."""
        builder = _Builder()
        first, last = _Parser(pattern, builder).parse()
        self._edges, self._takes = builder.edges, builder.takes
        self._last = last
        self._steps: dict[tuple[frozenset[int], int, int], frozenset[int]] = {}
        self._remembered = 0
        self._first = frozenset((first,))
        self.budget = BUDGET

    def matches(self, name: str) -> bool:
        """Whether the whole name matches. Names that are not ASCII never do. Raises TooCostly; `budget` may be set
        again."""
        if not name.isascii():
            return False
        states, before = self._first, _NOTHING
        for char in (*map(ord, name), _THE_END):
            key = (states, before, char)
            found = self._steps.get(key)
            if found is None:
                found = self._steps[key] = self._step(states, before, char)
            if not found:
                return False
            states, before = found, _kind(char)
        return True

    def _step(self, states: frozenset[int], before: int, char: int) -> frozenset[int]:
        reached = self._closure(states, before, _kind(char))
        if char == _THE_END:
            found = frozenset(reached & {self._last})
        else:
            bit = 1 << char
            found = frozenset(
                following for state in reached for taken, following in self._takes.get(state, ()) if taken & bit
            )
        self._remembered += len(found) + 1
        if self._remembered > _MAX_REMEMBERED:
            self._steps.clear()
            self._remembered = 0
        return found

    def _closure(self, states: frozenset[int], before: int, after: int) -> set[int]:
        """All states that can be reached without a character, between characters of these kinds."""
        found, todo = set(states), list(states)
        looks = 1
        while todo:
            edges = self._edges.get(todo.pop(), ())
            looks += 1 + len(edges)
            for needed, following in edges:
                if following not in found and (needed < 0 or _holds(needed, before, after)):
                    found.add(following)
                    todo.append(following)
        self.budget -= looks
        if self.budget < 0:
            raise TooCostly("the pattern takes too long to match")
        return found


_NOTHING, _OTHER, _OF_WORD = range(3)
"""Kinds of neighbours of a place between characters."""
_THE_END = -1
"""Stands behind the last character."""


def _kind(char: int) -> int:
    if char == _THE_END:
        return _NOTHING
    return _OF_WORD if _WORD >> char & 1 else _OTHER


def _holds(needed: int, before: int, after: int) -> bool:
    if needed == _START:
        return before == _NOTHING
    if needed == _END:
        return after == _NOTHING
    edge = (before == _OF_WORD) != (after == _OF_WORD)
    return edge == (needed == _WORD_EDGE)


_Part = tuple[int, int]
"""(first state, last state) of a piece of the automaton."""
_Make = Callable[[], _Part]
"""Builds a piece; called once for each time that the piece is repeated."""


class _Builder:
    """The automaton while it is made: states are numbers."""

    def __init__(self) -> None:
        self.edges: dict[int, list[_Edge]] = {}
        self.takes: dict[int, list[tuple[Mask, int]]] = {}
        self._states = 0

    def state(self) -> int:
        self._states += 1
        if self._states > MAX_STATES:
            raise InvalidPattern("the pattern is too large")
        return self._states

    def edge(self, state: int, following: int, needed: int = -1) -> None:
        self.edges.setdefault(state, []).append((needed, following))

    def chars(self, mask: Mask) -> _Part:
        first, last = self.state(), self.state()
        self.takes.setdefault(first, []).append((mask, last))
        return first, last

    def place(self, needed: int) -> _Part:
        """Nothing, where something must be true of the place (−1: just nothing)."""
        first, last = self.state(), self.state()
        self.edge(first, last, needed)
        return first, last

    def sequence(self, makes: list[_Make]) -> _Part:
        first = last = self.state()
        for make in makes:
            begin, end = make()
            self.edge(last, begin)
            last = end
        return first, last

    def either(self, makes: list[_Make]) -> _Part:
        first, last = self.state(), self.state()
        for make in makes:
            begin, end = make()
            self.edge(first, begin)
            self.edge(end, last)
        return first, last

    def repeat(self, make: _Make, least: int, most: int | None) -> _Part:
        first = last = self.state()
        end = self.state()
        for _ in range(least):
            begin, stop = make()
            self.edge(last, begin)
            last = stop
        if most is None:
            begin, stop = make()
            again = self.state()
            self.edge(last, again)
            self.edge(again, begin)
            self.edge(stop, again)
            last = again
        for _ in range(0 if most is None else most - least):
            self.edge(last, end)
            begin, stop = make()
            self.edge(last, begin)
            last = stop
        self.edge(last, end)
        return first, end


class _Parser:
    """Reads a pattern from left to right. What it returns are functions that build, so that a piece can be repeated."""

    def __init__(self, pattern: str, builder: _Builder) -> None:
        if len(pattern) > MAX_LENGTH:
            raise InvalidPattern(f"the pattern is longer than {MAX_LENGTH} characters")
        self._text = pattern
        self._at = 0
        self._builder = builder
        self._fold = False
        self._nesting = 0
        self._names: set[str] = set()

    def parse(self) -> _Part:
        make = self._alternatives()
        if self._at < len(self._text):
            raise InvalidPattern(f"missing opening ( for the ) at {self._at}")
        return make()

    # -- structure ---------------------------------------------------------------------------------------------------

    def _alternatives(self) -> _Make:
        builder, choices = self._builder, [self._sequence()]
        while self._take("|"):
            choices.append(self._sequence())
        return choices[0] if len(choices) == 1 else lambda: builder.either(choices)

    def _sequence(self) -> _Make:
        builder, pieces = self._builder, []
        while self._at < len(self._text) and self._text[self._at] not in "|)":
            atom = self._atom()
            if atom is not None:
                pieces.append(self._repeated(atom))
        return pieces[0] if len(pieces) == 1 else lambda: builder.sequence(pieces)

    def _repeated(self, make: _Make) -> _Make:
        bounds = self._bounds()
        if bounds is None:
            return make
        self._take("?")  # lazy: it matches the same names
        at = self._at
        if self._bounds() is not None:
            raise InvalidPattern(f"a repetition of a repetition at {at}")
        builder, (least, most) = self._builder, bounds
        return lambda: builder.repeat(make, least, most)

    def _bounds(self) -> tuple[int, int | None] | None:
        for sign, bounds in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self._take(sign):
                return bounds
        found = _REPEAT.match(self._text, self._at)
        if found is None:
            return None
        least = int(found[1])
        most = least if found[2] is None else int(found[3]) if found[3] else None
        if max(least, most or 0) > MAX_REPEAT or (most is not None and most < least):
            raise InvalidPattern(f"invalid repeat count {found[0]}")
        self._at = found.end()
        return least, most

    def _atom(self) -> _Make | None:
        """None: it stood for nothing to be matched, such as flags."""
        builder, char = self._builder, self._text[self._at]
        if char == "(":
            return self._group()
        if char == "[":
            mask = self._folded(self._class())
            return lambda: builder.chars(mask)
        if char == "\\":
            return self._escape()
        if self._bounds() is not None:
            raise InvalidPattern(f"nothing to repeat at {self._at - 1}")
        self._at += 1
        if char in "^$":
            needed = _START if char == "^" else _END
            return lambda: builder.place(needed)
        if char == ".":
            return lambda: builder.chars(_ALL)  # no topic's name has a line break
        return self._literal(char)

    def _literal(self, char: str) -> _Make:
        builder = self._builder
        mask = self._folded(1 << ord(char)) if char.isascii() else 0
        return lambda: builder.chars(mask)

    def _group(self) -> _Make | None:
        self._at += 1
        before = self._fold
        if self._take("?"):
            name = _GROUP_NAME.match(self._text, self._at)
            if name is not None:
                if name[0] in self._names:
                    raise InvalidPattern(f"a group's name is there twice: {name[0]}")
                self._names.add(name[0])
                self._at = name.end()
            elif not self._flags():
                return None
        self._nesting += 1
        if self._nesting > _MAX_NESTING:
            raise InvalidPattern("groups are nested too deeply")
        make = self._alternatives()
        self._nesting -= 1
        if not self._take(")"):
            raise InvalidPattern("missing closing )")
        self._fold = before
        return make

    def _flags(self) -> bool:
        """Read `i)`, `i-s:` and the like. Whether a group follows."""
        value = True
        while self._at < len(self._text):
            char = self._text[self._at]
            self._at += 1
            if char == "i":
                self._fold = value
            elif char == "-" and value:
                value = False
            elif char in ":)":
                return char == ":"
            elif char not in "msU":
                break
        raise InvalidPattern(f"invalid or unsupported group syntax at {self._at}")

    # -- characters --------------------------------------------------------------------------------------------------

    def _escape(self) -> _Make:
        builder = self._builder
        char = self._text[self._at + 1 : self._at + 2]
        places = {"A": _START, "z": _END, "b": _WORD_EDGE, "B": _NO_WORD_EDGE}
        if char in places and char:
            self._at += 2
            return lambda: builder.place(places[char])
        if char == "Q":
            end = self._text.find("\\E", self._at + 2)
            quoted = self._text[self._at + 2 : None if end < 0 else end]
            self._at = len(self._text) if end < 0 else end + 2
            literals = [self._literal(each) for each in quoted]
            return lambda: builder.sequence(literals)
        mask = self._folded(self._escaped())
        return lambda: builder.chars(mask)

    def _escaped(self) -> Mask:
        """The characters that the escape here stands for, in or out of a class."""
        self._at += 1
        char = self._next("a character after \\")
        if char.lower() in _PERL:
            return _negated(_PERL[char.lower()], char.isupper())
        if char in "pP":
            return self._property(char == "P")
        if char == "x":
            return self._hexadecimal()
        if char in _CONTROL:
            return 1 << _CONTROL[char]
        if char in "01234567":
            return self._octal(char)
        if char.isascii() and not char.isalnum():
            return 1 << ord(char)
        raise InvalidPattern(f"invalid escape sequence \\{char}")

    def _property(self, negated: bool) -> Mask:
        name = self._next("a property")
        if name == "{":
            end = self._text.find("}", self._at)
            name = self._text[self._at : end] if end >= 0 else "{"
            self._at = end + 1
        if name.startswith("^"):
            name, negated = name[1:], not negated
        if name not in _PROPERTIES:
            raise InvalidPattern(f"unknown character property {name}")
        return _negated(_PROPERTIES[name], negated)

    def _hexadecimal(self) -> Mask:
        found = re.compile(r"\{([0-9A-Fa-f]{1,6})\}|([0-9A-Fa-f]{2})").match(self._text, self._at)
        if found is None:
            raise InvalidPattern("invalid escape sequence \\x")
        self._at = found.end()
        return _character(int(found[1] or found[2], 16))

    def _octal(self, first: str) -> Mask:
        digits = first
        while len(digits) < 3 and self._text[self._at : self._at + 1] in tuple("01234567"):
            digits += self._next("")
        if first != "0" and len(digits) < 3:
            raise InvalidPattern(f"invalid escape sequence \\{digits}: there are no back references")
        return _character(int(digits, 8))

    def _class(self) -> Mask:
        self._at += 1
        negated = self._take("^")
        mask, first = 0, True
        while first or self._text[self._at : self._at + 1] != "]":
            first = False
            low = self._member()
            if isinstance(low, int):  # a set of its own
                mask |= low
            elif self._text.startswith("-", self._at) and not self._text.startswith("-]", self._at):
                self._at += 1
                high = self._member()
                if isinstance(high, int) or high < low:
                    raise InvalidPattern("invalid character range")
                mask |= _span(min(ord(low), 128), min(ord(high), 127)) & _ALL
            else:
                mask |= _character(ord(low))
        self._at += 1
        return _negated(self._folded(mask), negated)

    def _member(self) -> Mask | str:
        """One character of a class, or a set."""
        posix = re.compile(r"\[:(\^?)([a-z]+):\]").match(self._text, self._at)
        if posix is not None:
            if posix[2] not in _POSIX:
                raise InvalidPattern(f"invalid character class {posix[0]}")
            self._at = posix.end()
            return _negated(_POSIX[posix[2]], bool(posix[1]))
        if self._text[self._at : self._at + 1] == "\\":
            kind = self._text[self._at + 1 : self._at + 2]
            mask = self._escaped()
            single = kind not in tuple("dDwWsSpP") and mask.bit_count() == 1
            return chr(mask.bit_length() - 1) if single else mask
        return self._next("closing ]")

    def _folded(self, mask: Mask) -> Mask:
        return mask | (mask & _UPPER) << 32 | (mask & _LOWER) >> 32 if self._fold else mask

    # -- text --------------------------------------------------------------------------------------------------------

    def _take(self, char: str) -> bool:
        found = self._text.startswith(char, self._at)
        self._at += found
        return found

    def _next(self, wanted: str) -> str:
        if self._at >= len(self._text):
            raise InvalidPattern(f"the pattern ends before {wanted}")
        self._at += 1
        return self._text[self._at - 1]


def _negated(mask: Mask, negated: bool) -> Mask:
    return _ALL & ~mask if negated else mask


def _character(number: int) -> Mask:
    """A set of this one; empty where it is not ASCII, which no topic's name has."""
    return 1 << number if number < 128 else 0
