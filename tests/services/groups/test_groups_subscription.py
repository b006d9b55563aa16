"""Reading topics out of what consumers join with, written by a foreign implementation and by vandals."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.coordinator.assignors.range import RangePartitionAssignor

from halfmoon.services.groups.subscription import subscribed_topics


@given(st.sets(st.text(min_size=1, max_size=20)))
def test_reads_what_kafka_python_writes(topics: set[str]) -> None:
    assert subscribed_topics(RangePartitionAssignor.metadata(topics).encode()) == topics


@pytest.mark.parametrize(
    "junk",
    [
        b"",
        b"\x00\x01",
        b"\x00\x01\xff\xff\xff\xff",
        b"\x00\x01\x7f\xff\xff\xff\x00\x01a",
        b"\x00\x01\x00\x00\x00\x01\xff\xff",
        b"\x00\x01\x00\x00\x00\x01\x00\x05abc",
        b"\x00\x01\x00\x00\x00\x01\x00\x01\xff",
    ],
)
def test_junk_is_none(junk: bytes) -> None:
    assert subscribed_topics(junk) is None


@given(st.binary(max_size=60))
def test_never_raises(metadata: bytes) -> None:
    topics = subscribed_topics(metadata)
    assert topics is None or all(isinstance(topic, str) for topic in topics)
