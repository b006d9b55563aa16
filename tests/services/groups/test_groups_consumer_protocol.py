"""The classic consumers' own format: as kafka-python writes and reads it, and whatever else a peer may send."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment, ConsumerProtocolSubscription

from halfmoon.services.groups.consumer_protocol import assignment_bytes, parse_assignment, parse_subscription

NAMES = st.text("abc.-é", min_size=1, max_size=6)
PARTITIONS = st.dictionaries(NAMES, st.lists(st.integers(0, 2**31 - 1), max_size=4, unique=True), max_size=3)


@given(st.integers(0, 3), st.lists(NAMES, max_size=3), PARTITIONS, st.none() | NAMES, st.none() | st.binary(max_size=5))
def test_a_subscription_of_kafka_pythons(version, topics, owned, rack, user_data):
    named = ConsumerProtocolSubscription.TopicPartition
    data = ConsumerProtocolSubscription(
        version=version,
        topics=topics,
        user_data=user_data,
        owned_partitions=[named(topic=topic, partitions=numbers) for topic, numbers in owned.items()],
        generation_id=7,
        rack_id=rack,
    ).encode(version=version, header=True)
    found = parse_subscription(bytes(data))
    assert found is not None
    assert (found.version, found.topics) == (version, tuple(topics))
    assert found.owned == (owned if version >= 1 else {})
    assert found.rack == (rack if version >= 3 else None)


@given(st.integers(0, 3), PARTITIONS)
def test_an_assignment_is_what_kafka_python_reads(version, partitions):
    data = assignment_bytes(version, partitions)
    read = ConsumerProtocolAssignment.decode(data, header=True)
    assert {each.topic: each.partitions for each in read.assigned_partitions} == {
        topic: sorted(numbers) for topic, numbers in partitions.items()
    }
    assert parse_assignment(data) == {topic: sorted(partitions[topic]) for topic in sorted(partitions)}


def test_a_version_of_the_future_is_read_as_far_as_it_is_known():
    metadata = b"\x00\x09\x00\x00\x00\x01\x00\x01t\xff\xff\xff\xff\x00\x00\x00\x00\x00\x00\x00\x07\xff\xffmore"
    found = parse_subscription(metadata)
    assert found is not None
    assert (found.version, found.topics, found.rack) == (3, ("t",), None)


def test_no_bytes_are_no_partitions():
    assert parse_assignment(b"") == {}


@pytest.mark.parametrize("data", [b"", b"\x00", b"\xff\xff\x00\x00\x00\x00", b"\x00\x00\x7f\xff\xff\xff\x00\x01t"])
def test_what_is_no_subscription(data):
    assert parse_subscription(data) is None


@given(st.binary(max_size=40))
def test_any_bytes_are_read_or_refused(data):
    parse_subscription(data)
    parse_assignment(data)
