"""May a request touch a resource? Asked by the adapters, answered by plugins (hook `halfmoon_authorize`).

There is an `Access` only where a plugin has something to say; without one nothing is asked, and everything is allowed.
"""

from __future__ import annotations

from collections.abc import Callable

from halfmoon.errors import BrokerError, Fault

ANONYMOUS = "User:ANONYMOUS"
"""Who asks, as long as nobody says who they are (Kafka: KafkaPrincipal.ANONYMOUS)."""
CLUSTER = "kafka-cluster"
"""The one resource of type "cluster", as Kafka calls it."""

Use = tuple[str, str, str]
"""Operation, type of the resource, the resource."""
Authorize = Callable[[str | None, str, str, str, str], bool | None]
"""(principal, client's host, operation, type of resource, resource) → allowed, refused, or None for no opinion."""

_FAULTS = {
    "topic": Fault.TOPIC_AUTHORIZATION_FAILED,
    "group": Fault.GROUP_AUTHORIZATION_FAILED,
    "transactional_id": Fault.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    "cluster": Fault.CLUSTER_AUTHORIZATION_FAILED,
}


class Access:
    def __init__(self, authorize: Authorize) -> None:
        self._authorize = authorize

    def verdict(self, host: str, operation: str, resource_type: str, resource: str) -> bool | None:
        """None where nobody has an opinion."""
        return self._authorize(ANONYMOUS, host, operation, resource_type, resource)

    def allows(self, host: str, operation: str, resource_type: str, resource: str) -> bool:
        return self.verdict(host, operation, resource_type, resource) is not False

    def check(self, host: str, operation: str, resource_type: str, resource: str) -> None:
        """Raises BrokerError with the resource's fault where it is refused."""
        if not self.allows(host, operation, resource_type, resource):
            raise _refusal(operation, resource_type, resource)

    def allows_either(self, host: str, *uses: Use) -> bool:
        """Where one of several rights is enough: True for a wider one allows; else the last, the narrowest, decides."""
        *wider, last = uses
        return any(self.verdict(host, *use) for use in wider) or self.allows(host, *last)

    def check_either(self, host: str, *uses: Use) -> None:
        """As `allows_either`. Raises BrokerError with the fault of the last."""
        if not self.allows_either(host, *uses):
            raise _refusal(*uses[-1])


def _refusal(operation: str, resource_type: str, resource: str) -> BrokerError:
    return BrokerError(
        _FAULTS[resource_type], f"{ANONYMOUS} is not allowed to {operation} {resource_type} '{resource}'"
    )
