"""Names of users made from names of certificates: Kafka's `ssl.principal.mapping.rules` (SslPrincipalMapper, KIP-371).

    RULE:pattern/replacement/[L|U], …, DEFAULT

The first rule whose pattern matches the whole name counts; every occurrence of the pattern in it is then replaced, as
by Java's replaceAll, and the result written in lower or upper case. DEFAULT takes the name as it is. Where no rule
matches, the client is refused.

Patterns are google-re2's, which takes linear time for every name. It has neither backreferences nor look-around: a rule
with them stops the start. A rule does not match a name with line terminators, which Java's patterns treat in a way of
their own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from halfmoon.auth.errors import AuthenticationError
from halfmoon.auth.principals import OWN, Principal, user
from halfmoon.auth.x500 import subject
from halfmoon.errors import StartError

_RULE = r"(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?).*?|(.*?)"
_SPLITTER = re.compile(rf"\s*({_RULE})\s*(?:,\s*|$)", re.ASCII)
_PARSER = re.compile(_RULE, re.ASCII)
_BACKREFERENCE = re.compile(r"(?<!\\)(?:\\\\)*\\(?:[1-9]|k<)")
_DIGIT = re.compile("[0-9]")
_ENDS_OF_LINES = re.compile("[\n\r\x85\u2028\u2029]")

Part = str | int
"""Of a replacement: a text, or the number of a group."""


class _Rule(NamedTuple):
    pattern: Any
    """None: DEFAULT."""
    replacement: Sequence[Part] = ()
    case: Callable[[str], str] = str


class PrincipalRules:
    def __init__(
        self, rules: str = "DEFAULT", lets_in: Callable[[Principal], bool] = lambda principal: principal not in OWN
    ) -> None:
        """`lets_in`: whether a certificate may let this user in. Raises StartError for a rule that is none, or cannot
        be obeyed."""
        self._lets_in = lets_in
        self._rules = [_read(text) for match in _SPLITTER.finditer(rules.strip()) if (text := match[1])]

    def apply(self, name: str) -> str:
        """Raises AuthenticationError where no rule matches, or nothing is left of the name."""
        for rule in self._rules:
            if rule.pattern is None:
                found = name
            elif _ENDS_OF_LINES.search(name) or rule.pattern.fullmatch(name) is None:
                continue
            else:
                found = rule.case(_replace_all(rule, name))
            if not found:
                break
            return found
        raise AuthenticationError(f"no rule makes a user's name of {name!r}")

    def principal(self, certificate: bytes) -> Principal:
        """Of who has shown this certificate, in DER (Kafka: DefaultKafkaPrincipalBuilder). Raises AuthenticationError,
        also for somebody who is not to be let in."""
        found = user(self.apply(subject(certificate)))
        if not self._lets_in(found):
            raise AuthenticationError(f"{found} is disabled, or the broker itself")
        return found


def _read(text: str) -> _Rule:
    match = _PARSER.match(text)
    assert match is not None  # it matches nothing, at least
    if match.end() != len(text):
        raise StartError(f"principal_rules: `{text}` is no rule, from `{text[match.end() :]}` on")
    if match[1]:
        return _Rule(None)
    pattern = _compile(match[2])
    case = {"L": str.lower, "U": str.upper}.get(match[4], str)
    return _Rule(pattern, _read_replacement(match[3], pattern), case)


def _compile(pattern: str) -> Any:
    import re2  # 5 ms: only where there are rules

    if _BACKREFERENCE.search(pattern):
        raise StartError(f"principal_rules: `{pattern}` has a backreference, which is not supported")
    if "&&" in pattern:  # which google-re2 would take for two letters
        raise StartError(f"principal_rules: `{pattern}` has an intersection (&&), which is not supported")
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(pattern, options=options)
    except re2.error as error:
        raise StartError(f"principal_rules: `{pattern}` is no pattern that is supported: {error}") from error


def _read_replacement(text: str, pattern: Any) -> list[Part]:
    """Java's: `$1`, `${name}`, and a backslash before what stands for itself. A `$` and the number of a group that does
    not exist are letters, where there are groups at all."""
    parts: list[Part] = []
    at = 0
    while at < len(text):
        letter = text[at]
        at += 1
        following = text[at : at + 1]
        if letter == "\\" and following:
            parts.append(following)
            at += 1
        elif letter == "$" and _DIGIT.match(following):
            group, at = int(following), at + 1
            if group > pattern.groups:
                if not pattern.groups:
                    raise _bad_replacement(text)
                parts.append(f"${group}")
                continue
            while (
                (digit := text[at : at + 1]).isascii() and digit.isdigit() and group * 10 + int(digit) <= pattern.groups
            ):
                group, at = group * 10 + int(digit), at + 1
            parts.append(group)
        elif letter == "$" and following == "{":
            name, brace, _ = text[at + 1 :].partition("}")
            if not brace or name not in pattern.groupindex:
                raise _bad_replacement(text)
            parts.append(pattern.groupindex[name])
            at += len(name) + 2
        elif letter in "\\$":
            raise _bad_replacement(text)
        else:
            parts.append(letter)
    return parts


def _bad_replacement(text: str) -> StartError:
    return StartError(f"principal_rules: `{text}` names a group that the pattern does not have, or ends too early")


def _replace_all(rule: _Rule, name: str) -> str:
    """As Java's: an empty occurrence counts where another one has just ended."""
    made: list[str] = []
    at = 0
    for match in rule.pattern.finditer(name):
        made.append(name[at : match.start()])
        made += [part if isinstance(part, str) else match[part] or "" for part in rule.replacement]
        at = match.end()
    made.append(name[at:])
    return "".join(made)
