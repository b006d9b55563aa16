"""What a consumer loop asks of confluent-kafka's and kafka-python's consumers, in the same words."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from halfmoon.kafka.handling import Place

log = logging.getLogger("halfmoon.kafka")

CLOSE_TIMEOUT_MS = 10_000


class CommitLostError(Exception):
    """The group has given the partitions to another member: the records are redelivered there."""


class Polling(Protocol):
    def subscribe(self, topics: Sequence[str]) -> None: ...

    def poll(self, most: int, timeout_s: float) -> list[Any]:
        """Records, in the order of their offsets. Raises the client's error where it can read no more."""
        ...

    def commit(self, offsets: Mapping[Place, int]) -> None:
        """The next offset of each partition; waits. Raises CommitLostError, or the client's error."""
        ...

    def close(self) -> None:
        """Leave the group."""
        ...


def polling(consumer: Any) -> Polling:
    """For a confluent_kafka.Consumer or a kafka.KafkaConsumer. Raises TypeError for another one, ValueError where it
    commits automatically: records that are not handled would count as done."""
    if hasattr(consumer, "getmany"):
        raise TypeError("this is a consumer of aiokafka: use AsyncConsumerLoop")
    return ConfluentPolling(consumer) if hasattr(consumer, "consume") else KafkaPythonPolling(consumer)


class ConfluentPolling:
    def __init__(self, consumer: Any) -> None:
        from confluent_kafka import KafkaError

        self._consumer = consumer
        self._ignored = {KafkaError._PARTITION_EOF}
        self._refusals = {
            KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.GROUP_AUTHORIZATION_FAILED,
            KafkaError.CLUSTER_AUTHORIZATION_FAILED, KafkaError._AUTHENTICATION,
        }  # fmt: skip
        self._lost = {
            KafkaError.REBALANCE_IN_PROGRESS, KafkaError.ILLEGAL_GENERATION, KafkaError.UNKNOWN_MEMBER_ID,
            KafkaError.STALE_MEMBER_EPOCH, KafkaError.FENCED_MEMBER_EPOCH, KafkaError._ASSIGNMENT_LOST,
        }  # fmt: skip

    def subscribe(self, topics: Sequence[str]) -> None:
        self._consumer.subscribe(list(topics))

    def poll(self, most: int, timeout_s: float) -> list[Any]:
        from confluent_kafka import KafkaException

        found = []
        for message in self._consumer.consume(most, timeout=timeout_s):
            error = message.error()
            if error is None:
                found.append(message)
            elif error.fatal() or error.code() in self._refusals:
                raise KafkaException(error)
            elif error.code() not in self._ignored:
                log.warning("event=consumer_error error=%s", error)  # librdkafka goes on
        return found

    def commit(self, offsets: Mapping[Place, int]) -> None:
        from confluent_kafka import KafkaException, TopicPartition

        asked = [TopicPartition(*place, offset) for place, offset in offsets.items()]
        try:
            committed = self._consumer.commit(offsets=asked, asynchronous=False)
        except KafkaException as error:
            raise self._told(error.args[0]) from error
        for each in committed or ():
            if each.error is not None:
                raise self._told(each.error)

    def _told(self, error: Any) -> Exception:
        from confluent_kafka import KafkaException

        return CommitLostError(str(error)) if error.code() in self._lost else KafkaException(error)

    def close(self) -> None:
        self._consumer.close()


class KafkaPythonPolling:
    def __init__(self, consumer: Any) -> None:
        if consumer.config.get("enable_auto_commit"):
            raise ValueError("the consumer commits automatically: set enable_auto_commit=False")
        self._consumer = consumer
        self._topics: frozenset[str] = frozenset()

    def subscribe(self, topics: Sequence[str]) -> None:
        self._topics = frozenset(topics)
        self._consumer.subscribe(list(topics))

    def poll(self, most: int, timeout_s: float) -> list[Any]:
        found = self._consumer.poll(timeout_ms=int(timeout_s * 1_000), max_records=most)
        if not found:
            self._check_rights()
        return [record for records in found.values() for record in records]

    def _check_rights(self) -> None:
        """kafka-python 3.0.12 raises this where nobody hears it (ConsumerCoordinator._handle_metadata_update), and goes
        on polling."""
        from kafka import errors

        cluster = getattr(getattr(self._consumer, "_client", None), "cluster", None)
        refused = self._topics & set(getattr(cluster, "unauthorized_topics", ()))
        if refused:
            raise errors.TopicAuthorizationFailedError(refused)

    def commit(self, offsets: Mapping[Place, int]) -> None:
        from kafka import TopicPartition, errors
        from kafka.structs import OffsetAndMetadata

        asked = {TopicPartition(*place): OffsetAndMetadata(offset, "", -1) for place, offset in offsets.items()}
        lost = (
            errors.CommitFailedError, errors.RebalanceInProgressError, errors.IllegalGenerationError,
            errors.UnknownMemberIdError,
        )  # fmt: skip
        try:
            self._consumer.commit(asked)
        except lost as error:
            raise CommitLostError(str(error)) from error

    def close(self) -> None:
        self._consumer.close(autocommit=False, timeout_ms=CLOSE_TIMEOUT_MS)
