"""Authorized-operations bit fields (KIP-430): which operations the asking client may carry out.

Bit n stands for the operation with code n of org.apache.kafka.common.acl.AclOperation. A client that asks is told every
operation that the resource supports (AclEntry.supportedOperations) and that no plugin refuses.
"""

from __future__ import annotations

from typing import Protocol

READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE = 3, 4, 5, 6, 7, 8
CLUSTER_ACTION, DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE = 9, 10, 11, 12

NAMES = {
    READ: "read", WRITE: "write", CREATE: "create", DELETE: "delete", ALTER: "alter", DESCRIBE: "describe",
    CLUSTER_ACTION: "cluster_action", DESCRIBE_CONFIGS: "describe_configs", ALTER_CONFIGS: "alter_configs",
    IDEMPOTENT_WRITE: "idempotent_write",
}  # fmt: skip
"""As the hook `halfmoon_authorize` is given them."""

TOPIC_OPERATIONS = frozenset({READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS})
CLUSTER_OPERATIONS = frozenset(
    {CREATE, ALTER, DESCRIBE, CLUSTER_ACTION, DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE}
)
GROUP_OPERATIONS = frozenset({READ, DELETE, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS})

TOPIC_BITS = sum(1 << operation for operation in TOPIC_OPERATIONS)
CLUSTER_BITS = sum(1 << operation for operation in CLUSTER_OPERATIONS)
"""The same as the 32-bit fields of the wire."""

NOT_ASKED = -(2**31)
"""What stands in the field when the client did not ask."""


class Allows(Protocol):
    def allows(self, operation: str, resource_type: str, resource: str) -> bool:
        """Whether no plugin refuses it."""


def allowed(ctx: Allows, resource_type: str, resource: str, operations: frozenset[int]) -> frozenset[int]:
    """Those of the operations that the client may carry out."""
    return frozenset(each for each in operations if ctx.allows(NAMES[each], resource_type, resource))


def bits(operations: frozenset[int]) -> int:
    """As the 32-bit fields of the wire."""
    return sum(1 << each for each in operations)
