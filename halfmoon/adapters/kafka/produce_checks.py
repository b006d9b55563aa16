"""What a Produce request, and each of its batches, must pass before the log is asked; and how a refusal is said.

Rules: KafkaApis.handleProduceRequest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from halfmoon.adapters.kafka.errors import code
from halfmoon.adapters.kafka.lookup import partition_of
from halfmoon.adapters.kafka.produce_codec import Batches, ProduceBody, Results, Stored
from halfmoon.adapters.kafka.registry import Close, Context
from halfmoon.adapters.tcp.access import refusal
from halfmoon.core.append_types import TransactionalProducer
from halfmoon.core.records.batch_header import TRANSACTIONAL
from halfmoon.errors import BrokerError, Fault

if TYPE_CHECKING:
    from halfmoon.adapters.tcp.core import Core
    from halfmoon.core.catalog.topics import Partition, Topic

KNOWS_ABORTABLE: Final = 11
LOW_ATTRIBUTES_AT: Final = 22
"""Of a batch: the byte that says whether it is a transaction's."""
ALL: Final = -1
"""acks: of every replica that is in sync."""
REPLICAS: Final = 1
"""Of each partition."""
ADDS_PARTITIONS: Final = 12
"""From this version on a transactional batch adds its partition to the transaction (KIP-890)."""


def refusal_of(ctx: Context, request: ProduceBody) -> BrokerError | None:
    """What is wrong with the request as a whole."""
    if ctx.core.log.failed is not None:
        return perhaps_stored(ctx.core.turn.refusal())
    if request.acks not in (0, 1, -1):
        return BrokerError(Fault.INVALID_REQUIRED_ACKS, f"acks is {request.acks}, and must be 0, 1 or -1")
    if request.transactional_id == "":
        return BrokerError(Fault.INVALID_REQUEST, "the transactional id is empty")
    if ctx.rights is None:
        return None
    if request.transactional_id is None:
        return None if _is_single(request) else refusal_without_id(ctx, request)
    try:
        ctx.check("write", "transactional_id", request.transactional_id)
    except BrokerError as error:
        return error
    return None


def _is_single(request: ProduceBody) -> bool:
    """Whether it has one batch. Whoever produces those one by one waits for each microsecond: the log refuses a
    transactional one without an id, and `refusal_without_id` is asked once something else is wrong with it."""
    topics = request.topics
    return len(topics) == 1 and len(topics[0][1]) == 1


def refusal_without_id(ctx: Context, request: ProduceBody) -> BrokerError | None:
    """A transaction that says not whose it is is refused as such, whatever else is wrong with the request."""
    if ctx.rights is None or request.transactional_id is not None or not _is_transactional(request):
        return None
    return BrokerError(Fault.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "a transaction comes without its id")


def _is_transactional(request: ProduceBody) -> bool:
    """Whether one of its batches is, by its header. That may be cut off: what it says is checked later."""
    for _, batches in request.topics:
        for _, records in batches:
            if records is not None and len(records) > LOW_ATTRIBUTES_AT and records[LOW_ATTRIBUTES_AT] & TRANSACTIONAL:
                return True
    return False


def producer_of(ctx: Context, request: ProduceBody) -> TransactionalProducer | None:
    name = request.transactional_id
    return None if name is None else TransactionalProducer(name, ctx.api_version >= ADDS_PARTITIONS)


def topic_of(core: Core, key: str | bytes) -> Topic | None:
    return core.catalog.topic(key) if isinstance(key, str) else core.catalog.topic_by_id(key)


def partition_for(ctx: Context, topic: Topic | None, key: str | bytes, index: int, acks: int) -> Partition:
    """The partition to append to. Raises BrokerError."""
    core = ctx.core
    rights = ctx.rights
    if rights is not None:
        # A refused topic is refused whether it exists or not; an id that nobody has is unknown.
        name = key if isinstance(key, str) else None if topic is None else topic.name
        if name is not None and not rights.demands((use := ("write", "topic", name),)):
            raise refusal(rights, use)
    if topic is None:
        if isinstance(key, str) and core.administration.policies.reserves(key):
            raise BrokerError(Fault.INVALID_TOPIC_EXCEPTION, f"topic '{key}' is internal")
        raise BrokerError(Fault.UNKNOWN_TOPIC_OR_PARTITION if isinstance(key, str) else Fault.UNKNOWN_TOPIC_ID)
    if topic.internal:
        raise BrokerError(Fault.INVALID_TOPIC_EXCEPTION, f"topic '{topic.name}' is internal")
    partition = partition_of(topic, index)
    if core.owners.owner_of(partition) != core.node_id:
        raise BrokerError(Fault.NOT_LEADER_OR_FOLLOWER)
    if acks == ALL and topic.rules.min_insync_replicas > REPLICAS and not core.owners.has_replicas:
        raise BrokerError(
            Fault.NOT_ENOUGH_REPLICAS,
            f"{REPLICAS} replica is in sync, fewer than min.insync.replicas of topic '{topic.name}', which is "
            f"{topic.rules.min_insync_replicas}",
        )
    return partition


def no_records() -> BrokerError:
    return BrokerError(Fault.INVALID_RECORD, "a partition comes without records")


# -- refusals ----------------------------------------------------------------------------------------------------------


def translate_abortable(version: int, results: Results) -> None:
    """For clients that do not know TRANSACTION_ABORTABLE (KIP-890)."""
    if version >= KNOWS_ABORTABLE:
        return
    for _, stored in results:
        for part in stored:
            if part.error_code == code(Fault.TRANSACTION_ABORTABLE):
                part.error_code = code(Fault.INVALID_TXN_STATE)


def refuse_all(core: Core, topics: list[tuple[str | bytes, Batches]], error: BrokerError) -> Results:
    core.refused_batches[error.fault] += sum(len(batches) for _, batches in topics)
    return [(topic, [refused(index, error) for index, _ in batches]) for topic, batches in topics]


def refuse(core: Core, stored: Stored, error: BrokerError) -> None:
    core.refused_batches[error.fault] += 1
    stored.error_code, stored.message = code(error.fault), error.message


def refused(index: int, error: BrokerError) -> Stored:
    return Stored(index, code(error.fault), -1, -1, -1, error.message, error.records)


def lost(results: Results, error: BrokerError) -> Results:
    """Batches that were appended and did not become durable; what was refused before stays refused for its reason."""
    said = perhaps_stored(error)
    return [
        (topic, [part if part.error_code else refused(part.index, said) for part in stored])
        for topic, stored in results
    ]


def perhaps_stored(error: BrokerError) -> BrokerError:
    """What producers are told of a log that has failed.

    What was appended may be on the disk or not: the next start finds out. So no answer may mean "not stored", as
    KAFKA_STORAGE_ERROR does to librdkafka: it sends the batch again under a new epoch, and recovery cannot know that it
    is the same. What comes later is answered alike, before its sequence is looked at: librdkafka begins a new epoch
    at OUT_OF_ORDER_SEQUENCE_NUMBER, too.
    """
    if error.fault is not Fault.KAFKA_STORAGE_ERROR:
        return error
    return BrokerError(Fault.REQUEST_TIMED_OUT, error.message)


def unheard_error(results: Results) -> Close | None:
    """With acks=0: None if all went well, else the reason to close the connection."""
    for _, stored in results:
        for part in stored:
            if part.error_code:
                return Close(f"acks=0 and error {part.error_code} in partition {part.index}: {part.message}")
    return None
