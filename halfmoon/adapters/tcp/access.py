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

Authorize = Callable[[str | None, str, str, str, str], bool]
"""(principal, client's host, operation, type of resource, resource)"""

_FAULTS = {
    "topic": Fault.TOPIC_AUTHORIZATION_FAILED,
    "group": Fault.GROUP_AUTHORIZATION_FAILED,
    "cluster": Fault.CLUSTER_AUTHORIZATION_FAILED,
}


class Access:
    def __init__(self, authorize: Authorize) -> None:
        self._authorize = authorize

    def check(self, host: str, operation: str, resource_type: str, resource: str) -> None:
        """Raises BrokerError with the resource's fault where it is refused."""
        if not self._authorize(ANONYMOUS, host, operation, resource_type, resource):
            raise BrokerError(
                _FAULTS[resource_type], f"{ANONYMOUS} is not allowed to {operation} {resource_type} '{resource}'"
            )
