"""What OffsetCommit and TxnOffsetCommit have in common: one partition of a request."""

from __future__ import annotations

from typing import Any

from halfmoon.adapters.kafka.errors import NONE, code_of
from halfmoon.adapters.kafka.group_errors import MAX_METADATA_LENGTH, OFFSET_METADATA_TOO_LARGE
from halfmoon.adapters.kafka.lookup import partition_of
from halfmoon.core.catalog.topics import Partition, Topic
from halfmoon.errors import BrokerError

Entry = tuple["Partition", int, int, str]
"""Partition, offset, leader epoch, metadata."""


def read_entry(topic: Topic | None, asked: Any, result: Any, missing: int = NONE) -> Entry | None:
    """What is to be committed for a partition of a topic; None where it cannot be, and then `result` says why: with the
    code `missing`, if there is one, where there is no such topic."""
    try:
        partition = partition_of(topic, asked.partition_index)
    except BrokerError as error:
        result.error_code = missing or code_of(error)
        return None
    metadata = asked.committed_metadata or ""
    if len(metadata) > MAX_METADATA_LENGTH:
        result.error_code = OFFSET_METADATA_TOO_LARGE
        return None
    return partition, asked.committed_offset, asked.committed_leader_epoch, metadata
