"""OffsetCommit's answer, held against its definition."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from halfmoon.adapters.kafka.offset_commit_answer import OffsetCommitAnswer, PartitionResult, TopicResult
from halfmoon.adapters.kafka.protocol import OffsetCommitResponse

_partitions = st.lists(st.builds(PartitionResult, st.integers(0, 2**31 - 1), st.integers(-1, 130)), max_size=4)
_topics = st.builds(TopicResult, st.text(max_size=140), st.none() | st.uuids(), _partitions)


@pytest.mark.parametrize("version", range(2, 11))
@given(topics=st.lists(_topics, max_size=3), throttle_ms=st.integers(0, 2**31 - 1))
def test_it_is_what_the_definition_says(version: int, topics: list[TopicResult], throttle_ms: int) -> None:
    topic_class = OffsetCommitResponse.OffsetCommitResponseTopic
    theirs = OffsetCommitResponse(
        throttle_time_ms=throttle_ms,
        topics=[
            topic_class(
                name=topic.name,
                topic_id=topic.topic_id or UUID(int=0),
                partitions=[
                    topic_class.OffsetCommitResponsePartition(partition_index=part.index, error_code=part.error_code)
                    for part in topic.partitions
                ],
            )
            for topic in topics
        ],
    )
    assert OffsetCommitAnswer(topics, throttle_ms).encode(version) == theirs.encode(version)
