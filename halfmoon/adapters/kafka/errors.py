"""The Kafka error code of every fault the core can name.

Codes: org.apache.kafka.common.protocol.Errors. A fault without a code is a programmer's error, found when this module
is imported, not when a client meets it.
"""

from __future__ import annotations

from typing import Final

from halfmoon.errors import BrokerError, Fault
from halfmoon.kafka_wire.errors import MalformedRequest as MalformedRequest

NONE: Final = 0

LEADER_NOT_AVAILABLE: Final = 5
"""What is told of a partition that nobody leads now. No fault of a request has it."""

TOPIC_AUTHORIZATION_FAILED: Final = 29
"""Also what a fetch of an internal topic gets: the one refusal there that clients hand to their user and do not
retry."""

UNKNOWN_SUBSCRIPTION_ID: Final = 117
"""What a client gets that pushes metrics which nobody has asked it for. It has no fault either."""

CODES: dict[Fault, int] = {
    Fault.UNKNOWN_SERVER_ERROR: -1,
    Fault.OFFSET_OUT_OF_RANGE: 1,
    Fault.CORRUPT_MESSAGE: 2,
    Fault.UNKNOWN_TOPIC_OR_PARTITION: 3,
    Fault.NOT_LEADER_OR_FOLLOWER: 6,
    Fault.REQUEST_TIMED_OUT: 7,
    Fault.MESSAGE_TOO_LARGE: 10,
    Fault.COORDINATOR_LOAD_IN_PROGRESS: 14,
    Fault.COORDINATOR_NOT_AVAILABLE: 15,
    Fault.NOT_COORDINATOR: 16,
    Fault.INVALID_TOPIC_EXCEPTION: 17,
    Fault.RECORD_LIST_TOO_LARGE: 18,
    Fault.NOT_ENOUGH_REPLICAS: 19,
    Fault.INVALID_REQUIRED_ACKS: 21,
    Fault.ILLEGAL_GENERATION: 22,
    Fault.INCONSISTENT_GROUP_PROTOCOL: 23,
    Fault.INVALID_GROUP_ID: 24,
    Fault.UNKNOWN_MEMBER_ID: 25,
    Fault.INVALID_SESSION_TIMEOUT: 26,
    Fault.REBALANCE_IN_PROGRESS: 27,
    Fault.INVALID_COMMIT_OFFSET_SIZE: 28,
    Fault.TOPIC_AUTHORIZATION_FAILED: TOPIC_AUTHORIZATION_FAILED,
    Fault.GROUP_AUTHORIZATION_FAILED: 30,
    Fault.CLUSTER_AUTHORIZATION_FAILED: 31,
    Fault.INVALID_TIMESTAMP: 32,
    Fault.UNSUPPORTED_SASL_MECHANISM: 33,
    Fault.ILLEGAL_SASL_STATE: 34,
    Fault.SASL_AUTHENTICATION_FAILED: 58,
    Fault.UNSUPPORTED_VERSION: 35,
    Fault.TOPIC_ALREADY_EXISTS: 36,
    Fault.INVALID_PARTITIONS: 37,
    Fault.INVALID_REPLICATION_FACTOR: 38,
    Fault.INVALID_REPLICA_ASSIGNMENT: 39,
    Fault.INVALID_CONFIG: 40,
    Fault.INVALID_REQUEST: 42,
    Fault.POLICY_VIOLATION: 44,
    Fault.OUT_OF_ORDER_SEQUENCE_NUMBER: 45,
    Fault.DUPLICATE_SEQUENCE_NUMBER: 46,
    Fault.INVALID_PRODUCER_EPOCH: 47,
    Fault.INVALID_TXN_STATE: 48,
    Fault.INVALID_PRODUCER_ID_MAPPING: 49,
    Fault.INVALID_TRANSACTION_TIMEOUT: 50,
    Fault.CONCURRENT_TRANSACTIONS: 51,
    Fault.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: 53,
    Fault.SECURITY_DISABLED: 54,
    Fault.OPERATION_NOT_ATTEMPTED: 55,
    Fault.KAFKA_STORAGE_ERROR: 56,
    Fault.UNKNOWN_PRODUCER_ID: 59,
    Fault.DELEGATION_TOKEN_AUTH_DISABLED: 61,
    Fault.DELEGATION_TOKEN_NOT_FOUND: 62,
    Fault.DELEGATION_TOKEN_OWNER_MISMATCH: 63,
    Fault.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED: 64,
    Fault.DELEGATION_TOKEN_AUTHORIZATION_FAILED: 65,
    Fault.DELEGATION_TOKEN_EXPIRED: 66,
    Fault.INVALID_PRINCIPAL_TYPE: 67,
    Fault.NON_EMPTY_GROUP: 68,
    Fault.GROUP_ID_NOT_FOUND: 69,
    Fault.FETCH_SESSION_ID_NOT_FOUND: 70,
    Fault.INVALID_FETCH_SESSION_EPOCH: 71,
    Fault.FENCED_LEADER_EPOCH: 74,
    Fault.UNKNOWN_LEADER_EPOCH: 75,
    Fault.UNSUPPORTED_COMPRESSION_TYPE: 76,
    Fault.MEMBER_ID_REQUIRED: 79,
    Fault.GROUP_MAX_SIZE_REACHED: 81,
    Fault.FENCED_INSTANCE_ID: 82,
    Fault.ELECTION_NOT_NEEDED: 84,
    Fault.NO_REASSIGNMENT_IN_PROGRESS: 85,
    Fault.GROUP_SUBSCRIBED_TO_TOPIC: 86,
    Fault.INVALID_RECORD: 87,
    Fault.UNSTABLE_OFFSET_COMMIT: 88,
    Fault.THROTTLING_QUOTA_EXCEEDED: 89,
    Fault.PRODUCER_FENCED: 90,
    Fault.RESOURCE_NOT_FOUND: 91,
    Fault.DUPLICATE_RESOURCE: 92,
    Fault.UNACCEPTABLE_CREDENTIAL: 93,
    Fault.INVALID_UPDATE_VERSION: 95,
    Fault.UNKNOWN_TOPIC_ID: 100,
    Fault.INCONSISTENT_TOPIC_ID: 103,
    Fault.TRANSACTIONAL_ID_NOT_FOUND: 105,
    Fault.FENCED_MEMBER_EPOCH: 110,
    Fault.UNRELEASED_INSTANCE_ID: 111,
    Fault.UNSUPPORTED_ASSIGNOR: 112,
    Fault.STALE_MEMBER_EPOCH: 113,
    Fault.TRANSACTION_ABORTABLE: 120,
    Fault.INVALID_RECORD_STATE: 121,
    Fault.SHARE_SESSION_NOT_FOUND: 122,
    Fault.INVALID_SHARE_SESSION_EPOCH: 123,
    Fault.INVALID_REGULAR_EXPRESSION: 128,
    Fault.SHARE_SESSION_LIMIT_REACHED: 133,
}

assert set(CODES) == set(Fault), f"faults without a Kafka code: {sorted(f.name for f in set(Fault) - set(CODES))}"


def code(fault: Fault | None) -> int:
    """The code of a fault; 0 for None, which means that all went well."""
    return NONE if fault is None else CODES[fault]


def code_of(error: BaseException | None) -> int:
    """The code of an error: its fault's if it is a refusal, UNKNOWN_SERVER_ERROR (-1) if nobody expected it."""
    if error is None:
        return NONE
    if isinstance(error, BrokerError):
        return CODES[error.fault]
    return CODES[Fault.UNKNOWN_SERVER_ERROR]
