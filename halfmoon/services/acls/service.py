"""The access rules that are kept: finding, adding and removing them. What a rule may say is in `rules`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from halfmoon.core.append_types import ControlLog
from halfmoon.core.steps import Pauses, finish
from halfmoon.schema.control import AclRule, AclsChanged
from halfmoon.services.acls.rules import AclFilter, check
from halfmoon.services.acls.state import AclsState

EVERY = 64
"""Rules from one pause to the next."""


class AccessRules:
    """All rules of a broker. `state` has what the log says of them."""

    def __init__(self, state: AclsState, appender: ControlLog, *, obeyed: bool = False) -> None:
        """`obeyed`: whether an authorizer obeys the rules."""
        self._state = state
        self._appender = appender
        self._obeyed = obeyed

    def check(self, rule: AclRule) -> None:
        """Raise BrokerError unless the rule is well-formed and can be obeyed."""
        check(rule, obeyed=self._obeyed)

    def find(self, wanted: AclFilter) -> list[AclRule]:
        """The rules that match, in the order in which they were made. Raises BrokerError."""
        return finish(self.find_slices(wanted))

    def find_slices(self, wanted: AclFilter) -> Pauses[list[AclRule]]:
        """The same in slices: a rule that comes meanwhile is not found."""
        wanted.check()
        found = []
        state = self._state
        names = wanted.names()
        if names is None:
            rules = list(state.rules)
        else:
            rules = [rule for name in names for rule in state.by_name.get(name, ())]
            rules.sort(key=state.rules.__getitem__)
        for at, rule in enumerate(rules):
            if wanted.matches(rule):
                found.append(rule)
            if not at % EVERY:
                yield None
        return found

    def change(self, added: Iterable[AclRule] = (), removed: Sequence[AclRule] = ()) -> int | None:
        """Keep and remove rules, which have been checked; the log position to wait for, None where nothing changes."""
        known = self._state.rules
        new = [rule for rule in dict.fromkeys(added) if rule not in known]
        gone = [rule for rule in dict.fromkeys(removed) if rule in known]
        return self._appender.append_control(AclsChanged(new, gone)) if new or gone else None
