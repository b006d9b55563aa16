"""What members of a classic group tell each other, for every kafka-python from 2.2 on, each of which has other classes.

kafka-python 2 reads of a member only its topics and its user data, and gives the leader a mapping from member ids; 3
reads what it owns, too, and gives a list of members. So what a member owns is told twice: in the fields for it
(ConsumerProtocolSubscription 2, KIP-429 and KIP-792), and in the user data as Kafka's own sticky assignor has it
(StickyAssignor, user data version 1):

    user data:   int32 n × (topic string · int32 n × partition int32) · generation int32
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from kafka.structs import TopicPartition

VERSION = 2
"""Of the subscription: 1 has owned partitions, 2 the generation they are from."""

Owned = dict[str, list[int]]
"""Topic → partitions."""


class Subscription:
    """What a member tells the leader when it joins."""

    version = VERSION

    def __init__(self, topics: Sequence[str], owned: Owned, generation: int) -> None:
        self.topics = list(topics)
        self.owned = owned
        self.generation = generation

    def encode(self) -> bytes:
        owned, generation = _owned_bytes(self.owned), struct.pack(">i", self.generation)
        named = [struct.pack(">hi", VERSION, len(self.topics)), *map(_string, self.topics)]
        return b"".join((*named, _bytes(owned + generation), owned, generation))


class Assignment:
    """What the leader gives a member."""

    def __init__(self, owned: Owned) -> None:
        self.owned = owned

    def partitions(self) -> list[TopicPartition]:
        return [TopicPartition(topic, number) for topic, numbers in self.owned.items() for number in numbers]

    def encode(self) -> bytes:
        return struct.pack(">h", 0) + _owned_bytes(dict(sorted(self.owned.items()))) + _bytes(b"")


class Member(NamedTuple):
    """A member as the leader sees it."""

    member_id: str
    instance_id: str | None
    topics: list[str]
    owned: Owned
    generation: int
    """In which it was given what it owns; -1 where nobody knows."""


def members_of(given: Mapping[str, Any] | Sequence[Any]) -> list[Member]:
    """What kafka-python gives `assign`."""
    if isinstance(given, Mapping):
        return [_member(name, getattr(said, "group_instance_id", None), said) for name, said in given.items()]
    return [_member(each.member_id, each.group_instance_id, each.metadata) for each in given]


def _member(member_id: str, instance_id: str | None, said: Any) -> Member:
    topics = list(said.topics if hasattr(said, "topics") else said.subscription)
    told = getattr(said, "owned_partitions", None)
    if told:
        owned = {each.topic: list(each.partitions) for each in told}
        generation = int(getattr(said, "generation_id", -1))
    else:
        owned, generation = _in_user_data(said.user_data or b"")
    return Member(member_id, instance_id, topics, owned, generation)


def _in_user_data(data: bytes) -> tuple[Owned, int]:
    """Nothing, if the bytes are somebody else's."""
    try:
        (count,), at = struct.unpack_from(">i", data), 4
        owned: Owned = {}
        for _ in range(count):
            (size,) = struct.unpack_from(">h", data, at)
            topic = data[at + 2 : at + 2 + size].decode()
            at += 2 + size
            (size,) = struct.unpack_from(">i", data, at)
            owned[topic] = list(struct.unpack_from(f">{size}i", data, at + 4))
            at += 4 + 4 * size
        (generation,) = struct.unpack_from(">i", data, at)
    except (struct.error, UnicodeDecodeError):
        return {}, -1
    return (owned, generation) if at + 4 == len(data) else ({}, -1)


def _owned_bytes(owned: Owned) -> bytes:
    parts = [struct.pack(">i", len(owned))]
    for topic, numbers in owned.items():
        parts += [_string(topic), struct.pack(f">i{len(numbers)}i", len(numbers), *numbers)]
    return b"".join(parts)


def _string(text: str) -> bytes:
    return struct.pack(">h", len(text.encode())) + text.encode()


def _bytes(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data
