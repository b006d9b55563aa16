"""The quota of changes to topics (controller_mutation_rate, KIP-599), for the APIs that make and delete partitions.

Clients that know THROTTLING_QUOTA_EXCEEDED are refused once the quota is used up; older ones are only made to wait.
"""

from __future__ import annotations

from halfmoon.adapters.kafka.registry import Context
from halfmoon.services.quotas.service import Quotas, ThrottledError


class Mutations:
    """Those of one request."""

    def __init__(self, ctx: Context, strict_since: int) -> None:
        """`strict_since`: the first version of the API whose clients know the refusal."""
        self._quotas = ctx.services.find(Quotas)
        self._client_id = ctx.client_id or ""
        self._user = ctx.peer.principal.name
        self._strict = ctx.api_version >= strict_since
        self.wait_ms = 0
        """What the client is to be told."""

    def take(self, count: int) -> None:
        """So many partitions are about to be made or deleted. Raises BrokerError(THROTTLING_QUOTA_EXCEEDED)."""
        if self._quotas is None or not self._quotas.enabled:
            return
        try:
            wait_ms = self._quotas.mutate(self._client_id, count, self._user, strict=self._strict)
        except ThrottledError as error:
            self.wait_ms = max(self.wait_ms, error.wait_ms)
            raise
        self.wait_ms = max(self.wait_ms, wait_ms)
