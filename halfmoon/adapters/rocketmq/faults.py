"""Faults of the core as RocketMQ's response codes."""

from __future__ import annotations

from halfmoon.errors import Fault
from halfmoon.remoting.codes import Code

OF_FAULT = {
    Fault.CLUSTER_AUTHORIZATION_FAILED: Code.NO_PERMISSION,
    Fault.CORRUPT_MESSAGE: Code.SYSTEM_ERROR,
    Fault.GROUP_AUTHORIZATION_FAILED: Code.NO_PERMISSION,
    Fault.INVALID_RECORD: Code.MESSAGE_ILLEGAL,
    Fault.INVALID_TIMESTAMP: Code.MESSAGE_ILLEGAL,
    Fault.INVALID_TOPIC_EXCEPTION: Code.MESSAGE_ILLEGAL,
    Fault.KAFKA_STORAGE_ERROR: Code.SERVICE_NOT_AVAILABLE,
    Fault.MESSAGE_TOO_LARGE: Code.MESSAGE_ILLEGAL,
    Fault.NOT_LEADER_OR_FOLLOWER: Code.NOT_LEADER_FOR_QUEUE,
    Fault.OFFSET_OUT_OF_RANGE: Code.QUERY_NOT_FOUND,
    Fault.POLICY_VIOLATION: Code.NO_PERMISSION,
    Fault.REQUEST_TIMED_OUT: Code.SYSTEM_BUSY,
    Fault.TOPIC_AUTHORIZATION_FAILED: Code.NO_PERMISSION,
    Fault.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: Code.NO_PERMISSION,
    Fault.UNACCEPTABLE_CREDENTIAL: Code.INVALID_PARAMETER,
    Fault.UNKNOWN_TOPIC_OR_PARTITION: Code.TOPIC_NOT_EXIST,
}
"""Where a fault has a code of its own; the others are SYSTEM_ERROR."""


def code_of(fault: Fault) -> Code:
    return OF_FAULT.get(fault, Code.SYSTEM_ERROR)
