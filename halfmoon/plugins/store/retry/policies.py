"""The retry policies of a broker: which rules hold for a group, and for a message of it.

Rules are kept, as a group's negative acknowledgements come in many batches; a group that states something else than
before gets others at once. Layers: retry/policy.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from typing import Annotated

import msgspec
from msgspec import Meta, field

from halfmoon.plugin import Section, SettingError, decode_section
from halfmoon.plugins.store.retry.configs import stated
from halfmoon.plugins.store.retry.policy import MAX_ATTEMPTS, RetryPolicy, Rules, resolve

POLICY = "RETRY_POLICY"
MAX_POLICY_BYTES = 4_096
"""Of the header."""
KEPT = 1_000
"""Groups, or messages with a policy of their own, whose rules are kept."""


class RetrySettings(Section, frozen=True, kw_only=True):
    """`$.plugins.retry`."""

    max_reconsume_times: Annotated[int, Meta(ge=0, le=MAX_ATTEMPTS)] = 16
    policies: dict[str, RetryPolicy] = field(default_factory=dict)
    """By the name of a group, or a shell pattern."""

    def __post_init__(self) -> None:
        if "" in self.policies:
            raise SettingError("policies", "the name of a group is empty")

    def policy_of(self, group: str) -> RetryPolicy | None:
        """The group's own, else that of the first pattern that matches."""
        own = self.policies.get(group)
        if own is not None:
            return own
        return next((policy for pattern, policy in self.policies.items() if fnmatchcase(group, pattern)), None)


def _nothing(group: str) -> Mapping[str, str]:
    return {}


class Policies:
    def __init__(self, settings: RetrySettings, configs: Callable[[str], Mapping[str, str]] = _nothing) -> None:
        """`configs`: what a group itself says of its configurations."""
        self._settings = settings
        self._configs = configs
        self._rules: dict[str, tuple[Mapping[str, str], Rules]] = {}
        """Group → what it said, and what held then."""
        self._of_messages: dict[tuple[str, bytes], tuple[Rules, Rules]] = {}
        """Group and header → the group's rules, and what held then."""

    def of(self, group: str) -> Rules:
        said = self._configs(group)
        kept = self._rules.get(group)
        if kept is not None and kept[0] == said:
            return kept[1]
        rules = self._resolve(group, [stated(said)])
        if len(self._rules) >= KEPT:
            self._rules.clear()
        self._rules[group] = said, rules
        return rules

    def of_unstated(self, group: str) -> Rules:
        """Of a group that states nothing."""
        return self._resolve(group, [])

    def of_message(self, group: str, header: bytes) -> Rules:
        """With what the message's header states. Raises SettingError, which begins with the header's name."""
        of_group = self.of(group)
        kept = self._of_messages.get((group, header))
        if kept is not None and kept[0] is of_group:
            return kept[1]
        rules = self._resolve(group, [read_policy(header), stated(self._configs(group))])
        if len(self._of_messages) >= KEPT:
            self._of_messages.clear()
        self._of_messages[group, header] = of_group, rules
        return rules

    def _resolve(self, group: str, layers: list[RetryPolicy]) -> Rules:
        of_file = self._settings.policy_of(group)
        if of_file is not None:
            layers = [*layers, of_file]
        return resolve(group, layers, self._settings.max_reconsume_times)


def read_policy(header: bytes) -> RetryPolicy:
    """Raises SettingError, which begins with the header's name."""
    if len(header) > MAX_POLICY_BYTES:
        raise SettingError(POLICY, f"it has {len(header)} bytes; there may be {MAX_POLICY_BYTES}")
    try:
        given = msgspec.json.decode(header)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise SettingError(POLICY, f"it is no JSON: {error}") from None
    return decode_section(RetryPolicy, {} if given is None else given, POLICY)
