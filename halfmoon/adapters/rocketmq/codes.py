"""Response codes, and faults of the core as such (org.apache.rocketmq.remoting.protocol.ResponseCode,
RemotingSysResponseCode)."""

from __future__ import annotations

from enum import IntEnum

from halfmoon.core.errors import Fault


class Code(IntEnum):
    """What an answer says. The names are RocketMQ's."""

    SUCCESS = 0
    SYSTEM_ERROR = 1
    SYSTEM_BUSY = 2
    REQUEST_CODE_NOT_SUPPORTED = 3
    FLUSH_DISK_TIMEOUT = 10
    MESSAGE_ILLEGAL = 13
    SERVICE_NOT_AVAILABLE = 14
    NO_PERMISSION = 16
    TOPIC_NOT_EXIST = 17
    PULL_NOT_FOUND = 19
    PULL_RETRY_IMMEDIATELY = 20
    PULL_OFFSET_MOVED = 21
    QUERY_NOT_FOUND = 22
    SUBSCRIPTION_PARSE_FAILED = 23
    SUBSCRIPTION_NOT_EXIST = 24
    SUBSCRIPTION_NOT_LATEST = 25
    SUBSCRIPTION_GROUP_NOT_EXIST = 26
    INVALID_PARAMETER = 29
    CONSUMER_NOT_ONLINE = 206


OF_FAULT = {
    Fault.CORRUPT_MESSAGE: Code.SYSTEM_ERROR,
    Fault.INVALID_RECORD: Code.MESSAGE_ILLEGAL,
    Fault.INVALID_TIMESTAMP: Code.MESSAGE_ILLEGAL,
    Fault.INVALID_TOPIC_EXCEPTION: Code.MESSAGE_ILLEGAL,
    Fault.KAFKA_STORAGE_ERROR: Code.SERVICE_NOT_AVAILABLE,
    Fault.MESSAGE_TOO_LARGE: Code.MESSAGE_ILLEGAL,
    Fault.OFFSET_OUT_OF_RANGE: Code.QUERY_NOT_FOUND,
    Fault.POLICY_VIOLATION: Code.NO_PERMISSION,
    Fault.UNKNOWN_TOPIC_OR_PARTITION: Code.TOPIC_NOT_EXIST,
}
"""Where a fault has a code of its own; the others are SYSTEM_ERROR."""


def code_of(fault: Fault) -> Code:
    return OF_FAULT.get(fault, Code.SYSTEM_ERROR)
