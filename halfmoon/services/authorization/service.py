"""What adapters ask before they let a request through: may this principal, from this host, do this?

In this order: plugins (True and False are final, None asks on, an exception denies), super users, access rules; what
none of them allows is denied. `decide` says why. Answers are kept per (principal, host) until rules or users change; a
connection keeps its `Asker` and asks `asker[operation, resource type, name]`, which is a look into a dict.

Operations and resource types are Kafka's AclOperation and ResourceType in lower case (`decisions`), principals are
texts such as User:alice, hosts are addresses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import msgspec

from halfmoon.schema.control import AclRule
from halfmoon.services.acls.state import AclsState
from halfmoon.services.authorization import own_topics
from halfmoon.services.authorization.decisions import BY_RULE, SUPER_USER, Applying, Decision, Decisions

ANY_NAME: None = None
"""In place of a resource's name: is it allowed on any resource of the type?"""
Use = tuple[str, str, str | None]
"""Operation, resource type, and the resource's name or `ANY_NAME`."""
T = TypeVar("T")
Ask = Callable[[str, str, str, str, str | None], bool | None]
"""(principal, host, operation, resource type, name) → allowed, refused, or None: ask on."""

ASKER_ANSWERS = 10_000
"""That are kept for one (principal, host)."""
ASKERS = 10_000
KEPT_ANSWERS = 250_000
"""In all, about 100 MB. What is more drops all of them."""
LONGEST_KEPT = 255
"""Answers about longer names are not kept: a topic has none, and a group's may take 32 kB."""


class Authorizer(msgspec.Struct):
    """A plugin that has a say."""

    plugin: str
    ask: Ask
    lifetime_ms: int = 0
    """How long its answer may be kept; 0: it is asked each time."""


class Asker(dict[Use, bool]):
    """The answers to one principal on one host. `asker["read", "topic", "orders"]` is a bool, worked out where it is
    not known. Valid for as long as the service is: changes empty it."""

    __slots__ = ("_service", "applying", "asked_plugins", "by_rules", "host", "principal")

    def __init__(self, service: Authorization, principal: str, host: str) -> None:
        super().__init__()
        self._service = service
        self.principal = principal
        self.host = host
        self.applying: Applying | None = None
        """The rules that may matter, once somebody has asked."""
        self.by_rules: dict[Use, bool] = {}
        """What super users and rules say, where plugins are asked first: then the dict itself stays empty."""
        self.asked_plugins: dict[Use, tuple[bool | None, int, str]] = {}
        """What plugins said, until when that holds, and whose word it is."""

    def __missing__(self, use: Use) -> bool:
        return self._service.answer(self, use)

    def forget(self) -> None:
        self.clear()
        self.by_rules.clear()
        self.asked_plugins.clear()
        self.applying = None


class Authorization:
    def __init__(
        self, acls: AclsState, is_super_user: Callable[[str], bool],
        least_prefix: Callable[[str], int] = own_topics.least_prefix,
        *, allow_everyone: bool = False, plugins: Sequence[Authorizer] = (),
        failed: Callable[[str, Exception], None] = lambda plugin, error: None,
        mono_ms: Callable[[], int] = lambda: 0,
    ) -> None:  # fmt: skip
        """`is_super_user` takes a principal; call `forget` when it changes its mind. `least_prefix` is that of
        Decisions. `failed` counts and logs what plugins raise. `mono_ms` is asked only where a plugin has a
        lifetime."""
        self._decisions = Decisions(acls.rules, allow_everyone=allow_everyone, least_prefix=least_prefix)
        self._is_super_user = is_super_user
        self._plugins = tuple(plugins)
        self._failed = failed
        self._mono_ms = mono_ms
        self._askers: dict[tuple[str, str], Asker] = {}
        self._warm: dict[int, Asker] = {}
        """Those that have something to forget, also such as only a connection knows any more."""
        self._kept = 0
        self.allowances = 0
        """Answers that were worked out and allow something; one that is kept is not counted when it is given again."""
        acls.watchers.append(self._rules_changed)

    def allows(self, principal: str, host: str, operation: str, resource_type: str, name: str | None) -> bool:
        """Raises KeyError for an operation or a resource type that there is not."""
        return self.asker(principal, host)[operation, resource_type, name]

    def asker(self, principal: str, host: str) -> Asker:
        """For a connection to keep."""
        found = self._askers.get((principal, host))
        if found is None:
            if len(self._askers) >= ASKERS:
                del self._askers[next(iter(self._askers))]
            found = self._askers[principal, host] = Asker(self, principal, host)
        return found

    def decide(
        self, principal: str, host: str, operation: str, resource_type: str, name: str, *, anew: bool = True
    ) -> Decision:
        """Whether, and why: for audit and `halfmoon acl check`. Asks plugins `anew`, or takes what is kept of them."""
        use = operation, resource_type, name
        kept = None if anew else self._kept_of_plugins(self.asker(principal, host), use)
        answer, _, why = kept or self._ask_plugins(principal, host, use)
        if answer is not None:
            return Decision(answer, why)
        if self._is_super_user(principal):
            return Decision(True, SUPER_USER)
        decisions = self._decisions
        known = self._askers.get((principal, host))
        applying = None if known is None else known.applying
        if applying is None:
            applying = decisions.applying(principal, host)
        decision = decisions.decide(applying, operation, resource_type, name)
        other = _implied_by(operation, resource_type, name)
        if decision.allowed or other is None or decisions.denies(applying, operation, resource_type, name):
            return decision
        if other[2] is not None:
            return self.decide(principal, host, other[0], other[1], other[2], anew=anew)
        return Decision(True, BY_RULE) if self.asker(principal, host)[other] else decision

    def keep(self, plugin: str, lifetime_ms: int) -> None:
        """From now on answers of this plugin may be kept for so long."""
        for each in self._plugins:
            if each.plugin == plugin:
                each.lifetime_ms = lifetime_ms
        self.forget()

    def forget(self) -> None:
        """No answer holds any more: other users are super users, or a plugin says so."""
        for asker in self._warm.values():
            asker.forget()
        self._warm.clear()
        self._kept = 0

    def answer(self, asker: Asker, use: Use) -> bool:
        """What an asker does not know."""
        answer = self._answer(asker, use)
        self.allowances += answer
        return answer

    def _answer(self, asker: Asker, use: Use) -> bool:
        if not self._plugins:
            return self._by_rules(asker, use, asker)
        answer = self._by_plugins(asker, use)
        if answer is not None:
            return answer
        known = asker.by_rules.get(use)
        return self._by_rules(asker, use, asker.by_rules) if known is None else known

    def _by_rules(self, asker: Asker, use: Use, kept: dict[Use, bool]) -> bool:
        operation, resource_type, name = use
        if self._is_super_user(asker.principal):
            answer = True
        else:
            applying = asker.applying
            if applying is None:
                applying = asker.applying = self._decisions.applying(asker.principal, asker.host)
                self._warm[id(asker)] = asker
            if name is None:
                answer = self._decisions.allows_on_any(applying, operation, resource_type)
            else:
                answer = self._decisions.allows(applying, operation, resource_type, name)
                other = None if answer else _implied_by(operation, resource_type, name)
                if other is not None and not self._decisions.denies(applying, operation, resource_type, name):
                    answer = asker[other]
                    if self._plugins:  # theirs may hold for a shorter time
                        return answer
        self._keep(asker, kept, use, answer)
        return answer

    def _by_plugins(self, asker: Asker, use: Use) -> bool | None:
        kept = self._kept_of_plugins(asker, use)
        if kept is not None:
            return kept[0]
        answer, lifetime_ms, why = self._ask_plugins(asker.principal, asker.host, use)
        if lifetime_ms > 0:
            self._keep(asker, asker.asked_plugins, use, (answer, self._mono_ms() + lifetime_ms, why))
        return answer

    def _kept_of_plugins(self, asker: Asker, use: Use) -> tuple[bool | None, int, str] | None:
        kept = asker.asked_plugins.get(use)
        return kept if kept is not None and self._mono_ms() < kept[1] else None

    def _ask_plugins(self, principal: str, host: str, use: Use) -> tuple[bool | None, int, str]:
        """The answer, how long it may be kept, which is as long as all allow that were asked, and whose it is."""
        lifetimes_ms = [0] if not self._plugins else []
        for plugin in self._plugins:
            try:
                said = plugin.ask(principal, host, *use)
            except Exception as error:
                self._failed(plugin.plugin, error)
                return False, 0, f"plugin {plugin.plugin} failed"
            lifetimes_ms.append(plugin.lifetime_ms)
            if said is not None:
                return bool(said), min(lifetimes_ms), f"plugin {plugin.plugin}"
        return None, min(lifetimes_ms), ""

    def _keep(self, asker: Asker, kept: dict[Use, T], use: Use, answer: T) -> None:
        name = use[2]
        if name is not None and len(name) > LONGEST_KEPT:
            return
        if self._kept >= KEPT_ANSWERS:
            self.forget()
        elif len(kept) >= ASKER_ANSWERS:
            kept.clear()
        kept[use] = answer
        self._kept += 1
        self._warm[id(asker)] = asker

    def _rules_changed(self, removed: Iterable[AclRule], added: Iterable[AclRule]) -> None:
        self._decisions.change(removed, added)
        self.forget()


def _implied_by(operation: str, resource_type: str, name: str | None) -> Use | None:
    return own_topics.implied_by(operation, name) if resource_type == "topic" and name is not None else None
