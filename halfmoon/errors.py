"""What can go wrong, by name. Adapters map a name to their protocol's code; core never sees a code."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from enum import Enum, unique
from typing import Any


@unique  # else two faults with one text would be one
class Fault(Enum):
    """Every reason the core refuses something.

    The names are Kafka's (org.apache.kafka.common.protocol.Errors), because they are the field's best
    known list; the numbers are the adapter's business.
    """

    UNKNOWN_SERVER_ERROR = "unexpected error in the broker"
    OFFSET_OUT_OF_RANGE = "the offset is outside the partition"
    CORRUPT_MESSAGE = "the record batch fails its checksum, or its stored bytes are damaged"
    UNKNOWN_TOPIC_OR_PARTITION = "no such topic or partition"
    UNKNOWN_TOPIC_ID = "no topic has that id"
    INCONSISTENT_TOPIC_ID = "the topic id belongs to another topic"
    MESSAGE_TOO_LARGE = "the record batch is larger than max.message.bytes"
    INVALID_TOPIC_EXCEPTION = "not a legal topic name, or an internal topic"
    NOT_ENOUGH_REPLICAS = "fewer replicas are in sync than min.insync.replicas demands"
    RECORD_LIST_TOO_LARGE = "the record batch is larger than 1 GiB"
    INVALID_TIMESTAMP = "a record's timestamp is out of range"
    TOPIC_ALREADY_EXISTS = "a topic of that name exists"
    INVALID_PARTITIONS = "not a legal number of partitions"
    INVALID_REPLICATION_FACTOR = "a single node has one replica"
    INVALID_REPLICA_ASSIGNMENT = "a single node has every replica"
    INVALID_CONFIG = "unknown configuration, or invalid value"
    INVALID_REQUEST = "the request is invalid"
    UNSUPPORTED_COMPRESSION_TYPE = "the codec is unknown"
    UNSUPPORTED_VERSION = "not supported in this version"
    POLICY_VIOLATION = "refused by policy"
    OUT_OF_ORDER_SEQUENCE_NUMBER = "a batch of an idempotent producer is missing before this one"
    DUPLICATE_SEQUENCE_NUMBER = "an old batch of an idempotent producer was sent again"
    INVALID_PRODUCER_EPOCH = "a newer incarnation of this producer exists"
    UNKNOWN_PRODUCER_ID = "the producer id is unknown"
    KAFKA_STORAGE_ERROR = "the log cannot be written or read"
    NOT_LEADER_OR_FOLLOWER = "another node owns the partition"
    INVALID_RECORD = "a record of the batch is malformed"
    COORDINATOR_NOT_AVAILABLE = "the coordinator is not available"
    COORDINATOR_LOAD_IN_PROGRESS = "the coordinator is loading"
    NOT_COORDINATOR = "not the coordinator of this group"
    ILLEGAL_GENERATION = "the generation is not the group's current one"
    INCONSISTENT_GROUP_PROTOCOL = "the member shares no protocol with the group"
    INVALID_GROUP_ID = "not a legal group id"
    UNKNOWN_MEMBER_ID = "the group has no such member"
    INVALID_SESSION_TIMEOUT = "the session timeout is outside the allowed range"
    REBALANCE_IN_PROGRESS = "the group is rebalancing; rejoin"
    INVALID_COMMIT_OFFSET_SIZE = "the commit's metadata is too long"
    NON_EMPTY_GROUP = "the group has members"
    GROUP_ID_NOT_FOUND = "no such group"
    GROUP_SUBSCRIBED_TO_TOPIC = "the group is subscribed to the topic"
    MEMBER_ID_REQUIRED = "join again with this member id"
    FENCED_INSTANCE_ID = "another member uses this static instance id"
    GROUP_MAX_SIZE_REACHED = "the group is full"
    FENCED_MEMBER_EPOCH = "the member epoch is wrong; release all partitions and join again"
    STALE_MEMBER_EPOCH = "the member epoch is not the member's current one"
    UNRELEASED_INSTANCE_ID = "another member uses this static instance id and has not left"
    UNSUPPORTED_ASSIGNOR = "no such allocation strategy"
    INVALID_REGULAR_EXPRESSION = "not a regular expression that is supported"
    FENCED_LEADER_EPOCH = "the leader epoch is older than the partition's"
    UNKNOWN_LEADER_EPOCH = "the leader epoch is newer than the partition's"
    FETCH_SESSION_ID_NOT_FOUND = "no such fetch session"
    INVALID_FETCH_SESSION_EPOCH = "not the fetch session's epoch"
    INVALID_RECORD_STATE = "the member has not acquired all of these records"
    SHARE_SESSION_NOT_FOUND = "no such share session"
    INVALID_SHARE_SESSION_EPOCH = "not the share session's epoch"
    SHARE_SESSION_LIMIT_REACHED = "too many share sessions"
    INVALID_REQUIRED_ACKS = "acks must be 0, 1 or -1"
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = "a transactional batch needs a transactional id"
    INVALID_TXN_STATE = "the transaction is not in a state for that"
    CONCURRENT_TRANSACTIONS = "the transaction before is about to end"
    INVALID_PRODUCER_ID_MAPPING = "the producer id does not belong to the transactional id"
    INVALID_TRANSACTION_TIMEOUT = "the transaction's time-out is longer than allowed"
    OPERATION_NOT_ATTEMPTED = "not attempted, because another part of the request failed"
    UNSTABLE_OFFSET_COMMIT = "an open transaction has offsets for this partition"
    PRODUCER_FENCED = "a newer producer has this transactional id"
    TRANSACTIONAL_ID_NOT_FOUND = "no such transactional id"
    TRANSACTION_ABORTABLE = "the transaction can only be aborted"
    TOPIC_AUTHORIZATION_FAILED = "not authorized for the topic"
    GROUP_AUTHORIZATION_FAILED = "not authorized for the group"
    CLUSTER_AUTHORIZATION_FAILED = "not authorized"
    REQUEST_TIMED_OUT = "the request timed out"
    ELECTION_NOT_NEEDED = "the only node leads every partition"
    NO_REASSIGNMENT_IN_PROGRESS = "no reassignment is in progress"
    INVALID_UPDATE_VERSION = "the feature cannot be changed to that version"
    THROTTLING_QUOTA_EXCEEDED = "the quota of topic changes is exceeded"
    RESOURCE_NOT_FOUND = "no such credential"
    DUPLICATE_RESOURCE = "a user is named twice"
    SECURITY_DISABLED = "security is off: access rules do not count"
    UNSUPPORTED_SASL_MECHANISM = "no such SASL mechanism"
    SASL_AUTHENTICATION_FAILED = "authentication failed"
    ILLEGAL_SASL_STATE = "this listener has no SASL: connect with security.protocol=PLAINTEXT or SSL"
    UNACCEPTABLE_CREDENTIAL = "the credential is not acceptable"
    INVALID_PRINCIPAL_TYPE = "no such kind of principal"
    DELEGATION_TOKEN_AUTH_DISABLED = "delegation tokens are off"
    DELEGATION_TOKEN_NOT_FOUND = "no such delegation token"
    DELEGATION_TOKEN_OWNER_MISMATCH = "neither the owner of the delegation token nor one of its renewers"
    DELEGATION_TOKEN_EXPIRED = "the delegation token has expired"
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = "not authorized for the user's tokens"
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = "whoever has not authenticated gets no token"


def fault_named(name: str, otherwise: Fault = Fault.UNKNOWN_SERVER_ERROR) -> Fault:
    """The fault that another process names. It may be of a newer version, and have faults that nobody knows here."""
    return Fault.__members__.get(name, otherwise)


class HalfmoonError(Exception):
    """Base of everything this package raises on purpose."""


class BrokerError(HalfmoonError):
    """A request refused: `fault` says why in one word, the message in a sentence."""

    def __init__(self, fault: Fault, message: str | None = None, *, records: Sequence[int] = ()) -> None:
        """`records`: the places in a produced batch of those that are at fault, where it is these and no others."""
        super().__init__(message or fault.value)
        self.fault = fault
        self.message = message or fault.value
        self.records = records


class NotHereYetError(BrokerError):
    """What was asked needs older messages that are not here yet; nothing has changed. Run `load` in a thread, which
    raises OSError where they cannot be read, and ask again."""

    def __init__(self, load: Callable[[], object]) -> None:
        super().__init__(Fault.REQUEST_TIMED_OUT, "older messages have to be read first; ask again")
        self.load = load


class TakesLongError(BrokerError):
    """What was asked takes longer than one turn of the loop; nothing has changed.

    Carry out `steps(batch)` with a copy of the batch that nobody changes: a generator that yields None to pause, or a
    function for a thread, whose result it is sent. What it returns is given to `Appender.append` with that copy. It
    raises BrokerError.
    """

    def __init__(self, steps: Callable[[memoryview], Generator[Callable[[], Any] | None, Any, Any]]) -> None:
        super().__init__(Fault.REQUEST_TIMED_OUT, "this takes longer than a turn of the loop; ask again")
        self.steps = steps


class AsksFirstError(BrokerError):
    """What was asked depends on what somebody else says, who is asked first; nothing has changed.

    Call `begin(told)`, and ask again when you are told None. `told` is called once, later or before `begin` returns,
    and with what has gone wrong, if something has.
    """

    def __init__(self, begin: Callable[[Callable[[BrokerError | None], None]], None]) -> None:
        super().__init__(Fault.REQUEST_TIMED_OUT, "somebody else has to be asked first; ask again")
        self.begin = begin


class StartError(HalfmoonError):
    """The broker cannot start: one line that says what to change. The process ends with a code other than 0."""


class StorageError(HalfmoonError):
    """The disk refused: no space, an input/output error, or a data directory that cannot be used."""


class LeaseLostError(OSError):
    """Another node writes this log now. A storage that meets it is `failed` with it; clients that wait are sent to the
    new owner (NOT_LEADER_OR_FOLLOWER)."""
