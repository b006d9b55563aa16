"""DescribeLogDirs (35): how many bytes each partition holds, and how full the disk is.

There is one data directory and one commitlog in it, so a partition's size is the sum of its batches, not of files.
Topics null = all, internal ones included; partitions that do not exist, or lie with another node, are left out of the
answer, as in Kafka.
Version 5 says whether a directory is cordoned, closed to new partitions (KIP-1066): the only one is not.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from halfmoon.adapters.kafka.protocol import DescribeLogDirsResponse, Slices
from halfmoon.adapters.kafka.registry import Context
from halfmoon.core.catalog.topics import RemotePartition, Topic

_Result = DescribeLogDirsResponse.DescribeLogDirsResult
_Topic = _Result.DescribeLogDirsTopic


def handle(ctx: Context, request: Any) -> Slices[object]:
    directory = Path(ctx.core.settings.node.data_dir).absolute()
    total, usable = _disk(directory)
    result = _Result(
        error_code=0,
        log_dir=str(directory),
        topics=(yield from _topics(ctx, request.topics)),
        total_bytes=total,
        usable_bytes=usable,
        is_cordoned=False,
    )
    return DescribeLogDirsResponse(throttle_time_ms=0, error_code=0, results=[result])


def _topics(ctx: Context, asked: Any) -> Slices[list[Any]]:
    found = []
    if asked is None:
        for topic in ctx.core.catalog.topics():
            found += yield from _described(topic, range(len(topic.partitions)))
            yield
        return found
    for entry in asked:
        named = ctx.core.catalog.topic(entry.topic)
        if named is not None:
            indexes = sorted({index for index in entry.partitions if 0 <= index < len(named.partitions)})
            found += yield from _described(named, indexes)
        yield
    return found


def _described(topic: Topic, indexes: Sequence[int]) -> Slices[list[Any]]:
    """The topic; nothing where none of these partitions lies here."""
    partitions = []
    for index in indexes:
        if isinstance(topic.partitions[index], RemotePartition):
            continue
        partitions.append(
            _Topic.DescribeLogDirsPartition(
                partition_index=index,
                partition_size=topic.partitions[index].size_bytes,
                offset_lag=0,
                is_future_key=False,
            )
        )
        yield
    return [_Topic(name=topic.name, partitions=partitions)] if partitions else []


def _disk(directory: Path) -> tuple[int, int]:
    """The disk's size and what is free of it, in bytes; -1 = not known."""
    try:
        usage = shutil.disk_usage(directory)
    except OSError:
        return -1, -1
    return usage.total, usage.free
