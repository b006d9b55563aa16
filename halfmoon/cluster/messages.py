"""Questions and answers of shards, as msgpack: each an array whose first element names its type.

Fields are only ever added at the end, with a default: processes of neighbouring versions understand each other.
"""

from __future__ import annotations

import msgspec

from halfmoon.errors import BrokerError, fault_named


class Question(msgspec.Struct, array_like=True, frozen=True, tag=True):
    """Base of all questions."""


class Answer(msgspec.Struct, array_like=True, frozen=True, tag=True):
    """Base of all answers."""


class Hello(Question, frozen=True, tag="hello"):
    """The first on a connection: which process asks."""

    process: int


class Ping(Question, frozen=True, tag="ping"):
    """To a process: is it there? Answered with Done, at once."""


class CatalogChanged(Question, frozen=True, tag="catalog"):
    """To a process: the shared catalog has this version. Answered with Done once it is true there."""

    version: int


class ShardGiven(Question, frozen=True, tag="given"):
    """To a node: this shard has been handed over to it. Answered with Done, at once; nobody waits for it."""

    shard: int


class NewProducer(Question, frozen=True, tag="new-producer"):
    """To a shard, of a process that has none: an id for a producer without a transactional id."""


class ProducerFound(Answer, frozen=True, tag="producer"):
    """It is reserved, durably."""

    producer_id: int


class QuotasUsed(Question, frozen=True, tag="quotas"):
    """To a process: what clients have used of quotas in another one. Answered with Done; nobody waits for it."""

    process: int
    uses: list[tuple[str, str | None, str | None]]
    """As of services/quotas/elsewhere.Use."""


class AskHealth(Question, frozen=True, tag="health"):
    """To a process."""


class Health(Answer, frozen=True, tag="health"):
    """A sentence each."""

    problems: list[str]
    warnings: list[str]


class HearBatch(Question, frozen=True, tag="hear"):
    """A record batch that was sent to an aligned topic elsewhere, and that all shards act on. Answered with Done once
    that is durable."""

    topic: int
    batch: bytes


class AskEntries(Question, frozen=True, tag="entries"):
    """What topics show among their configurations."""

    topics: list[int]
    """Numbers."""


class EntriesFound(Answer, frozen=True, tag="entries"):
    rows: list[tuple[int, dict[str, str]]]
    """(topic number, name → value)"""


class AskEnds(Question, frozen=True, tag="ends"):
    """To a process: the high watermarks of partitions."""

    places: list[tuple[int, int]]
    """(topic number, partition)"""


class EndsFound(Answer, frozen=True, tag="ends"):
    rows: list[tuple[int, int, int]]
    """(topic number, partition, high watermark), of those that lie there."""


class AskMetrics(Question, frozen=True, tag="metrics"):
    """To a process."""


class MetricsText(Answer, frozen=True, tag="metrics"):
    text: bytes
    """Prometheus' text format."""


class Done(Answer, frozen=True, tag="done"):
    """It is done, and durable."""


class Refusal(Answer, frozen=True, tag="refusal"):
    """A BrokerError."""

    fault: str
    message: str


def error_of(refusal: Refusal) -> BrokerError:
    return BrokerError(fault_named(refusal.fault), refusal.message)


def refusal_of(error: BrokerError) -> Refusal:
    return Refusal(error.fault.name, error.message)


class AskDeletion(Question, frozen=True, tag="deletion"):
    """May topics be deleted? A feature may need them for what waits in the shard."""

    topics: list[int]
    """Numbers."""


class DeletionAnswered(Answer, frozen=True, tag="deletion"):
    refused: list[tuple[int, Refusal]]
    """(topic number, why)"""


# -- producers' transactions: as of services/transactions/others.py ----------------------------------------------------


class JoinTransaction(Question, frozen=True, tag="txn-join"):
    name: str
    producer_id: int
    epoch: int
    adds: bool
    places: list[tuple[int, int, bool]]
    groups: list[str]


class TransactionJoined(Answer, frozen=True, tag="txn-joined"):
    position: int
    refused: list[tuple[int, str]]


class DoubtTransactions(Question, frozen=True, tag="txn-doubt"):
    rows: list[tuple[int, int, int, int, str]]
    """(producer id, epoch, topic number, partition, group)"""


class TransactionsDoubted(Answer, frozen=True, tag="txn-doubted"):
    outcomes: list[int]


class EndTransaction(Question, frozen=True, tag="txn-end"):
    """Answered with Done."""

    shard: int
    generation: int
    position: int
    producer_id: int
    epoch: int
    marker_epoch: int
    committed: bool
    places: list[tuple[int, int]]
    groups: list[str]


# -- share groups: as of adapters/kafka/shard_shares.py ----------------------------------------------------------------


class ShareOffsets(Question, frozen=True, tag="share-offsets"):
    """How far a share group is."""

    group: str
    places: list[tuple[int, int]] | None
    """(topic number, partition); None: all at which it has looked."""


class ShareOffsetsFound(Answer, frozen=True, tag="share-offsets-found"):
    rows: list[tuple[int, int, int, int, int]]
    """(topic number, partition, start offset, its leader epoch, lag), where the group has looked."""


class ResetShare(Question, frozen=True, tag="share-reset"):
    """A share group begins there. Answered with Done."""

    group: str
    starts: list[tuple[int, int, int]]
    """(topic number, partition, offset)"""


class ForgetShare(Question, frozen=True, tag="share-forget"):
    """A share group forgets these. Answered with Done."""

    group: str
    places: list[tuple[int, int]]


class ForgetShareGroups(Question, frozen=True, tag="share-forget-groups"):
    """These share groups are deleted. Answered with Done."""

    groups: list[str]


class ShareMemberGone(Question, frozen=True, tag="share-member-gone"):
    """What the member holds is available again. Answered with Done; nobody waits for it."""

    group: str
    member: str


# -- RocketMQ's brokers: as of adapters/rocketmq/shards.py -------------------------------------------------------------


class CommitProgress(Question, frozen=True, tag="rmq-commit"):
    """What consumers of a group have consumed. Answered with Done."""

    group: str
    offsets: list[tuple[int, int, int]]
    """(topic number, partition, offset)"""
    reset: bool
    """An operator has set it."""
    shard: int = -1
    """Who asks, …"""
    epoch: int = -1
    """… and in which epoch it is open there. What is older than the shard's epoch is refused with FENCED_LEADER_EPOCH:
    another node has the shard, and newer progress. −1: of a node of the last version."""


class ReadProgress(Question, frozen=True, tag="rmq-read"):
    group: str
    places: list[tuple[int, int]] | None
    """(topic number, partition); None: all there are."""


class ProgressRead(Answer, frozen=True, tag="rmq-progress"):
    offsets: list[tuple[int, int, int]]
    """As of CommitProgress."""


class ConsumerSeen(Question, frozen=True, tag="rmq-consumer-seen"):
    """A consumer of a group is connected to a shard. Answered with Done."""

    shard: int
    group: str
    client_id: str
    host: str


class ConsumerLeft(Question, frozen=True, tag="rmq-consumer-left"):
    """It is not any more. Answered with Done; nobody waits for it."""

    shard: int
    group: str
    client_id: str


class ConsumesInOrder(Question, frozen=True, tag="rmq-in-order"):
    """Whether consumers of a group hold queues of a shard to themselves. Answered with Done; nobody waits for it."""

    shard: int
    group: str
    holds_locks: bool


class GroupsConsuming(Question, frozen=True, tag="rmq-consuming"):
    """Which groups have committed offsets in a topic?"""

    topic: int


class GroupsFound(Answer, frozen=True, tag="rmq-groups"):
    groups: list[str]


class ProducersSeen(Question, frozen=True, tag="rmq-producers"):
    """Producers of a group are connected to a shard. Answered with Done."""

    shard: int
    group: str


class AskProducers(Question, frozen=True, tag="rmq-check"):
    """One of these producers is asked about half messages. It may be asked twice."""

    group: str
    broker: str
    """Where they wait."""
    messages: bytes
    """As RocketMQ's broker writes them, one behind the other."""


class ProducersAsked(Answer, frozen=True, tag="rmq-checked"):
    has_producers: bool


class AppendBatch(Question, frozen=True, tag="rmq-append"):
    """A record batch for a partition. Asked twice it is stored twice, unless its records say that they are the same."""

    topic: int
    partition: int
    batch: bytes
    principal: str | None = None
    """Of the client, who may do what he may with what the records ask for; None: everything."""
    host: str = ""


class BatchAppended(Answer, frozen=True, tag="rmq-appended"):
    queue_number: int
    offset: int
    due_ms: int


class QueueEnds(Question, frozen=True, tag="rmq-ends"):
    offsets: list[tuple[int, int, int]]
    """(topic number, partition, offset that a group has come to)"""


class QueueEndsFound(Answer, frozen=True, tag="rmq-ends-found"):
    rows: list[tuple[int, int, int, int]]
    """(topic number, partition, its end, when the message before that offset was stored)"""


# -- messages, by a key or a place: as of adapters/kafka/shard_messages.py ---------------------------------------------


class AskMessages(Question, frozen=True, tag="messages"):
    """A question of services/keyindex/questions.py, as JSON, of a client that may ask it."""

    body: bytes
    principal: str
    host: str
    """Of the client: what he may not see is left out."""


class AskDelays(Question, frozen=True, tag="delays"):
    """A question of services/delays/questions.py, likewise."""

    body: bytes
    principal: str
    host: str


class DelaysFound(Answer, frozen=True, tag="delays-found"):
    body: bytes


class MessagesFound(Answer, frozen=True, tag="messages-found"):
    body: bytes


class AskSchedules(Question, frozen=True, tag="schedules"):
    """A question of hooks/schedules.py, as JSON, of a client that may ask it."""

    body: bytes
    principal: str
    host: str
    """Of the client."""


class SchedulesFound(Answer, frozen=True, tag="schedules-found"):
    """As of hooks/schedules.py, as JSON."""

    body: bytes
