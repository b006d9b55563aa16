"""What brokers answer to the command line's requests, in the terms of kafka-python."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kafka import TopicPartition


def raise_for(error_code: int) -> None:
    """What kafka-python has for this code, unless it is none."""
    if error_code:
        from kafka.errors import for_code

        raise for_code(error_code)


def topic_partition(topic: str, index: int) -> TopicPartition:
    from kafka import TopicPartition

    return TopicPartition(topic, index)


def by_topic(queues: Iterable[TopicPartition]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for queue in queues:
        found.setdefault(queue.topic, []).append(queue.partition)
    return found


def is_ready(topic: dict[str, Any]) -> bool:
    leaders = [part["leader_id"] for part in topic["partitions"]]
    return not topic["error_code"] and bool(leaders) and min(leaders) >= 0


def described(found: Any, members: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "group_state": found.group_state, "protocol_data": found.protocol_data, "error_code": found.error_code,
        "error_message": found.error_message, "members": members,
    }  # fmt: skip
