"""May a client touch a resource? Asked by the adapters of its `Rights`.

Where an authorizer is on, access rules and plugins answer (services/authorization). Else only plugins may refuse
something (hook `halfmoon_authorize`), and what none of them has an opinion of is allowed. Without plugins nothing is
asked then: there is no `Access`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final, Protocol

from halfmoon.errors import BrokerError, Fault
from halfmoon.services.authorization import own_topics
from halfmoon.services.authorization.decisions import Decision
from halfmoon.services.authorization.service import Asker, Authorization

if TYPE_CHECKING:
    from halfmoon.core.catalog.catalog import Catalog
    from halfmoon.core.catalog.topics import Topic

CLUSTER: Final = "kafka-cluster"
"""The one resource of type "cluster", as Kafka calls it."""

Use = tuple[str, str, str | None]
"""Operation, type of the resource, and the resource; None: any of the type."""
Opinion = Callable[[str, str, str, str, str | None], bool | None]
"""(principal, client's host, operation, type of resource, resource) → allowed, refused, or None for no opinion."""

_FAULTS: Final = {
    "topic": Fault.TOPIC_AUTHORIZATION_FAILED,
    "group": Fault.GROUP_AUTHORIZATION_FAILED,
    "transactional_id": Fault.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    "cluster": Fault.CLUSTER_AUTHORIZATION_FAILED,
}


Told = Callable[[tuple[Use, ...]], object]
"""Is told what was demanded."""


class Rights(Protocol):
    """Those of one principal on one host."""

    @property
    def principal(self) -> str: ...

    @property
    def host(self) -> str: ...

    def allows(self, use: Use) -> bool:
        """A question of the broker's own, such as what to leave out of a list: nobody is told the answer."""
        ...

    def allows_either(self, *uses: Use) -> bool:
        """Where one of several rights is enough; the last is the narrowest."""
        ...

    def demands(self, uses: tuple[Use, ...]) -> bool:
        """As `allows_either`, for what the client wants to do: audit is told if it is refused."""
        ...


class Access(Protocol):
    denials: int
    """Demands that were refused, since the start."""

    @property
    def denies_by_default(self) -> bool:
        """What nothing is said about is denied."""
        ...

    @property
    def allowances(self) -> int | None:
        """Answers that were worked out and allowed something, since the start; None where that is not known."""
        ...

    def rights(self, principal: str, host: str, refused: Told | None = None) -> Rights:
        """`refused` is told of demands that are not allowed."""
        ...

    def decide(
        self, principal: str, host: str, operation: str, resource_type: str, name: str, *, anew: bool = True
    ) -> Decision:
        """Whether, and why. Not `anew`: what plugins have said may be taken where it is kept."""
        ...


def check(rights: Rights, *uses: Use) -> None:
    """Raises BrokerError with the fault of the last use where none of them is allowed."""
    if not rights.demands(uses):
        raise refusal(rights, uses[-1])


def refusal(rights: Rights, use: Use) -> BrokerError:
    operation, resource_type, resource = use
    said = f"{rights.principal} is not allowed to {operation} {resource_type} '{resource}'"
    return BrokerError(_FAULTS[resource_type], said)


def sees(rights: Rights | None, topic: str, headers: Iterable[tuple[str, bytes | None]]) -> bool:
    """Whether a client that may read the topic to which a message goes may see it where it stands (own_topics)."""
    if rights is None:
        return True
    needed = own_topics.seeing(topic, headers)
    return needed is None or rights.allows(needed)


def check_views(rights: Rights, source: Topic, catalog: Catalog) -> None:
    """Who deletes a topic, which may leave its views without a source, must be one who may delete these. They may be
    none of the client's business, so they are not named. Raises BrokerError."""
    for view in catalog.views.get(source.number, {}).values():
        if not rights.demands((("delete", "cluster", CLUSTER), ("delete", "topic", view.name))):
            raise BrokerError(Fault.TOPIC_AUTHORIZATION_FAILED, f"topic '{source.name}' has views of others")


class RuleAccess:
    """By access rules, and what plugins say of them."""

    denies_by_default = True

    def __init__(self, authorization: Authorization) -> None:
        self._authorization = authorization
        self.denials = 0

    @property
    def allowances(self) -> int:
        return self._authorization.allowances

    def rights(self, principal: str, host: str, refused: Told | None = None) -> Rights:
        return _ByRules(self._authorization.asker(principal, host), self, refused)

    def decide(
        self, principal: str, host: str, operation: str, resource_type: str, name: str, *, anew: bool = True
    ) -> Decision:
        return self._authorization.decide(principal, host, operation, resource_type, name, anew=anew)


class _ByRules:
    __slots__ = ("_access", "_asker", "_refused")

    def __init__(self, asker: Asker, access: RuleAccess, refused: Told | None) -> None:
        self._asker = asker
        self._access = access
        self._refused = refused

    @property
    def principal(self) -> str:
        return self._asker.principal

    @property
    def host(self) -> str:
        return self._asker.host

    def allows(self, use: Use) -> bool:
        return self._asker[use]

    def allows_either(self, *uses: Use) -> bool:
        return any(self._asker[use] for use in uses)

    def demands(self, uses: tuple[Use, ...]) -> bool:
        asker = self._asker
        if asker[uses[0]] or any(asker[use] for use in uses[1:]):
            return True
        self._access.denials += 1
        if self._refused is not None:
            self._refused(uses)
        return False


class OpinionAccess:
    """By plugins alone."""

    denies_by_default = False
    allowances = None

    def __init__(self, opinion: Opinion, topics: Callable[[], Iterable[str]] = lambda: ()) -> None:
        """`topics`: the names of all topics."""
        self._opinion = opinion
        self._topics = topics
        self.denials = 0

    def rights(self, principal: str, host: str, refused: Told | None = None) -> Rights:
        return _ByOpinion(self, self._opinion, self._topics, principal, host, refused)

    def decide(
        self, principal: str, host: str, operation: str, resource_type: str, name: str, *, anew: bool = True
    ) -> Decision:
        opinion = self._opinion(principal, host, operation, resource_type, name)
        return Decision(opinion is not False, "no plugin has an opinion" if opinion is None else "plugin")


class _ByOpinion:
    __slots__ = ("_access", "_opinion", "_refused", "_topics", "host", "principal")

    def __init__(
        self, access: OpinionAccess, opinion: Opinion, topics: Callable[[], Iterable[str]], principal: str, host: str,
        refused: Told | None,
    ) -> None:  # fmt: skip
        self._access = access
        self._refused = refused
        self._opinion = opinion
        self._topics = topics
        self.host = host
        self.principal = principal

    def allows(self, use: Use) -> bool:
        operation, resource_type, resource = use
        if resource is None:
            names = list(self._topics()) if resource_type == "topic" else []
            return not names or any(self.allows((operation, resource_type, name)) for name in names)
        return self._opinion(self.principal, self.host, operation, resource_type, resource) is not False

    def allows_either(self, *uses: Use) -> bool:
        """That a wider one is allowed takes an opinion; without one, the narrowest decides."""
        *wider, last = uses
        return any(self._opinion(self.principal, self.host, *use) for use in wider) or self.allows(last)

    def demands(self, uses: tuple[Use, ...]) -> bool:
        if self.allows(uses[0]) if len(uses) == 1 else self.allows_either(*uses):
            return True
        self._access.denials += 1
        if self._refused is not None:
            self._refused(uses)
        return False


class Recorded:
    """Rights of which audit is told everything that is demanded."""

    __slots__ = ("_allowed", "_rights")

    def __init__(self, rights: Rights, allowed: Told) -> None:
        self._rights = rights
        self._allowed = allowed

    @property
    def principal(self) -> str:
        return self._rights.principal

    @property
    def host(self) -> str:
        return self._rights.host

    def allows(self, use: Use) -> bool:
        return self._rights.allows(use)

    def allows_either(self, *uses: Use) -> bool:
        return self._rights.allows_either(*uses)

    def demands(self, uses: tuple[Use, ...]) -> bool:
        if not self._rights.demands(uses):
            return False
        self._allowed(uses)
        return True
