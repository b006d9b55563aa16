"""Authorized-operations bit fields (KIP-430): which operations the asking client may carry out.

Bit n stands for the operation with code n of org.apache.kafka.common.acl.AclOperation. There is no authorization yet,
so a client that asks is told what Kafka tells it without an authorizer: every operation that the resource supports.
"""

from __future__ import annotations

READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE = 3, 4, 5, 6, 7, 8
CLUSTER_ACTION, DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE = 9, 10, 11, 12

TOPIC_OPERATIONS = frozenset({READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS})
CLUSTER_OPERATIONS = frozenset(
    {CREATE, ALTER, DESCRIBE, CLUSTER_ACTION, DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE}
)

TOPIC_BITS = sum(1 << operation for operation in TOPIC_OPERATIONS)
CLUSTER_BITS = sum(1 << operation for operation in CLUSTER_OPERATIONS)
"""The same as the 32-bit fields of the wire."""

NOT_ASKED = -(2**31)
"""What stands in the field when the client did not ask."""
