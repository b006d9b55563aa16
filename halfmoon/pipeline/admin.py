"""What the pipeline asks the broker itself, because Spark's source cannot: which topics there are, what a group has
committed, how far a view has come. On the driver, by confluent-kafka's admin client; works with a Kafka too.
"""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from typing import Any, TypeVar

from confluent_kafka import (
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, ConfigResource, OffsetSpec, ResourceType  # type: ignore[attr-defined,unused-ignore]
from confluent_kafka.cimpl import NewTopic

from halfmoon.pipeline.brokers import Bootstrap, brokers
from halfmoon.pipeline.errors import PipelineError

REQUEST_TIMEOUT_S = 20
POLL_S = 0.05
_GRACE_S = 5
"""The client's own word that nobody answers says more than that it has not come."""
_MOST_HEARD = 100

PartitionOffsets = dict[int, int]
"""{partition: offset}"""
TopicOffsets = dict[str, PartitionOffsets]
"""{topic: {partition: offset}}"""

ResultT = TypeVar("ResultT")


class Admin:
    """One client. Every method raises PipelineError, one line, for what the broker refuses or does not answer."""

    def __init__(self, bootstrap: Bootstrap = None) -> None:
        self.brokers = brokers(bootstrap)
        self.bootstrap = self.brokers.servers
        self._heard: deque[KafkaError] = deque(maxlen=_MOST_HEARD)
        # Without a strategy: librdkafka's, when the only broker goes away for a moment, forgets it together with the
        # requests that wait for it, and these are answered by nothing but their timeout.
        config = self.brokers.confluent(metadata_recovery_strategy="none")
        self._client = AdminClient(config | {"error_cb": self._heard.append})

    # -- topics ------------------------------------------------------------------------------------------------------

    def cluster_id(self) -> str:
        return str(self._metadata().cluster_id)

    def topics(self, pattern: str | re.Pattern[str] = ".*") -> list[str]:
        """Names that match a regular expression as a whole, sorted; internal topics are left out."""
        matching = regular_expression(pattern) if isinstance(pattern, str) else pattern
        return sorted(name for name in self._metadata().topics if matching.fullmatch(name) and name[:2] != "__")

    def partitions(self, topic: str) -> int:
        """How many partitions a topic has; PipelineError if there is no such topic."""
        return len(self._described(topic).partitions)

    def topic_id(self, topic: str) -> str:
        """What tells a topic from another one that had its name before. PipelineError if there is no such topic."""
        return str(self._described(topic).topic_id)

    def ensure_topic(self, topic: str, partitions: int, configs: Mapping[str, str] | None = None) -> int:
        """Create the topic unless it exists, and return its number of partitions."""
        try:
            self.create_topic(topic, partitions, configs)
        except TopicExistsError:
            pass
        deadline = time.monotonic() + REQUEST_TIMEOUT_S
        while time.monotonic() < deadline:
            found = self._metadata(topic).topics[topic]
            # A topic just made is not known everywhere at once.
            if found.error is None and found.partitions:
                return len(found.partitions)
            time.sleep(POLL_S)
        raise PipelineError(f"topic {topic} was created but has no partitions after {REQUEST_TIMEOUT_S} s")

    def create_topic(self, topic: str, partitions: int, configs: Mapping[str, str] | None = None) -> None:
        """Raises TopicExistsError, and RefusedConfigError for a configuration that the broker does not take."""
        wanted = NewTopic(topic, partitions, 1, config=dict(configs or {}))
        try:
            made = self._client.create_topics([wanted], request_timeout=REQUEST_TIMEOUT_S)
            self._result(made[topic], f"create topic {topic}")
        except PipelineError as refused:
            if _code(refused) == KafkaError.TOPIC_ALREADY_EXISTS:
                raise TopicExistsError(f"there is a topic {topic!r} at {self.bootstrap}") from None
            if _code(refused) == KafkaError.INVALID_CONFIG:
                raise RefusedConfigError(str(refused)) from None
            raise

    def configs(self, topics: Iterable[str]) -> dict[str, dict[str, str]]:
        """Configurations by topic. Topics that are gone are left out."""
        asked = [ConfigResource(ResourceType.TOPIC, name) for name in topics]
        if not asked:
            return {}
        found = {}
        for resource, future in self._client.describe_configs(asked, request_timeout=REQUEST_TIMEOUT_S).items():
            try:
                entries = self._result(future, "read the configuration of a topic")
            except PipelineError as refused:
                if _code(refused) == KafkaError.UNKNOWN_TOPIC_OR_PART:
                    continue
                raise
            found[resource.name] = {name: entry.value for name, entry in entries.items()}
        return found

    # -- offsets -----------------------------------------------------------------------------------------------------

    def begins(self, topic: str) -> PartitionOffsets:
        """The first offset of each partition."""
        return self._offsets(topic, OffsetSpec.earliest())  # type: ignore[no-untyped-call,unused-ignore]

    def ends(self, topic: str) -> PartitionOffsets:
        """The offset after the last record of each partition that a `read_committed` consumer gets."""
        return self._offsets(topic, OffsetSpec.latest())  # type: ignore[no-untyped-call,unused-ignore]

    def at_time(self, topic: str, at_ms: int) -> PartitionOffsets:
        """The first offset of each partition whose record's timestamp is not earlier; where there is none, its end."""
        found = self._offsets(topic, OffsetSpec.for_timestamp(at_ms))  # type: ignore[no-untyped-call,unused-ignore]
        ends = self.ends(topic)
        return {partition: ends[partition] if at < 0 else at for partition, at in found.items()}

    def _offsets(self, topic: str, spec: OffsetSpec) -> PartitionOffsets:
        asked = {TopicPartition(topic, number): spec for number in range(self.partitions(topic))}
        futures = self._client.list_offsets(
            asked, isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=REQUEST_TIMEOUT_S
        )
        return {
            place.partition: self._result(future, f"read the offsets of {topic}").offset
            for place, future in futures.items()
        }

    def committed(self, group: str) -> TopicOffsets:
        """What a group has committed; empty for a group that has not, or that there is not."""
        asked = self._client.list_consumer_group_offsets(
            [ConsumerGroupTopicPartitions(group)], request_timeout=REQUEST_TIMEOUT_S
        )
        found: TopicOffsets = {}
        for place in self._result(asked[group], f"read the offsets of group {group}").topic_partitions:
            if place.offset >= 0:
                found.setdefault(place.topic, {})[place.partition] = place.offset
        return found

    def commit(self, group: str, offsets: Mapping[str, Mapping[int, int]]) -> None:
        """Write a group's offsets from outside; refused while the group has members."""
        places = [TopicPartition(topic, p, at) for topic, ends in offsets.items() for p, at in ends.items()]
        asked = self._client.alter_consumer_group_offsets(
            [ConsumerGroupTopicPartitions(group, places)], request_timeout=REQUEST_TIMEOUT_S
        )
        for place in self._result(asked[group], f"write the offsets of group {group}").topic_partitions:
            if place.error is not None:
                raise PipelineError(f"cannot write the offsets of group {group}: {place.error.str()}")

    def groups(self) -> list[str]:
        """All groups, sorted."""
        listed = self._result(self._client.list_consumer_groups(request_timeout=REQUEST_TIMEOUT_S), "list the groups")
        return sorted(group.group_id for group in listed.valid)

    # -- within ------------------------------------------------------------------------------------------------------

    def _described(self, topic: str) -> Any:
        # Not by its metadata: asking for that of one topic may create it.
        described = self._client.describe_topics(TopicCollection([topic]), request_timeout=REQUEST_TIMEOUT_S)
        try:
            return self._result(described[topic], f"describe topic {topic}")
        except PipelineError as refused:
            if _code(refused) == KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise PipelineError(f"there is no topic {topic!r} at {self.bootstrap}") from None
            if _code(refused) in (KafkaError._TIMED_OUT, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN):
                raise self._no_answer() from None
            raise

    def _metadata(self, topic: str | None = None) -> Any:
        try:
            return self._client.list_topics(*([topic] if topic else []), timeout=REQUEST_TIMEOUT_S)
        except KafkaException as failed:
            raise self._no_answer(f": {failed.args[0].str()}") from None

    def _result(self, future: Future[ResultT], what: str) -> ResultT:
        try:
            return future.result(REQUEST_TIMEOUT_S + _GRACE_S)
        except KafkaException as failed:
            raise PipelineError(f"cannot {what}: {failed.args[0].str()}") from failed
        except TimeoutError:
            raise self._no_answer(f": cannot {what}") from None

    def _no_answer(self, reason: str = "") -> PipelineError:
        """The client tries again for as long as it may, and says beside why it was not let in."""
        self._client.poll(0)
        refused = next((each.str() for each in self._heard if each.code() == KafkaError._AUTHENTICATION), None)
        if refused is None:
            return PipelineError(f"no broker answers at {self.bootstrap}{reason}")
        return PipelineError(f"cannot log in at {self.bootstrap}: {refused}")


def regular_expression(text: str) -> re.Pattern[str]:
    """Raises PipelineError for what is none."""
    try:
        return re.compile(text)
    except re.error as wrong:
        raise PipelineError(f"{text!r} is no regular expression: {wrong}") from None


class TopicExistsError(PipelineError):
    """A topic of that name exists."""


class RefusedConfigError(PipelineError):
    """The broker does not take a configuration; a Kafka does not know ours."""


def _code(error: PipelineError) -> int | None:
    """Kafka's error code behind it, if it has one."""
    cause = error.__cause__
    return int(cause.args[0].code()) if isinstance(cause, KafkaException) else None
