"""DescribeLogDirs (35): how many bytes each partition holds, and how full the disk is.

There is one data directory and one commitlog in it, so a partition's size is the sum of its batches, not of files.
Topics null = all, internal ones included; partitions that do not exist are left out of the answer, as in Kafka.
Version 5 says whether a directory is cordoned, closed to new partitions (KIP-1066): the only one is not.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from halfmoon.adapters.kafka.protocol import DescribeLogDirsResponse
from halfmoon.adapters.kafka.registry import Context, api

_Result = DescribeLogDirsResponse.DescribeLogDirsResult
_Topic = _Result.DescribeLogDirsTopic


@api(35, "DescribeLogDirs", 0, 5)
def describe_log_dirs(ctx: Context, request: Any) -> object:
    directory = Path(ctx.core.settings.node.data_dir).absolute()
    total, usable = _disk(directory)
    result = _Result(
        error_code=0,
        log_dir=str(directory),
        topics=_topics(ctx, request.topics),
        total_bytes=total,
        usable_bytes=usable,
        is_cordoned=False,
    )
    return DescribeLogDirsResponse(throttle_time_ms=0, error_code=0, results=[result])


def _topics(ctx: Context, asked: Any) -> list[Any]:
    if asked is None:
        return [_described(topic, range(len(topic.partitions))) for topic in ctx.core.catalog.topics()]
    found = []
    for entry in asked:
        topic = ctx.core.catalog.topic(entry.topic)
        if topic is None:
            continue
        indexes = sorted({index for index in entry.partitions if 0 <= index < len(topic.partitions)})
        if indexes:
            found.append(_described(topic, indexes))
    return found


def _described(topic: Any, indexes: Any) -> Any:
    return _Topic(
        name=topic.name,
        partitions=[
            _Topic.DescribeLogDirsPartition(
                partition_index=index,
                partition_size=topic.partitions[index].size_bytes,
                offset_lag=0,
                is_future_key=False,
            )
            for index in indexes
        ],
    )


def _disk(directory: Path) -> tuple[int, int]:
    """The disk's size and what is free of it, in bytes; -1 = not known."""
    try:
        usage = shutil.disk_usage(directory)
    except OSError:
        return -1, -1
    return usage.total, usage.free
