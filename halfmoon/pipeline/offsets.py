"""Where a read begins and ends, in the words of Spark's Kafka source.

| given                          | meaning                                                                       |
|--------------------------------|-------------------------------------------------------------------------------|
| `"earliest"`, `"latest"`       | the first record there is; what comes after the last                          |
| `{topic: {partition: offset}}` | exactly these; of partitions that are not named, all there is                 |
| a `datetime`                   | by the records' timestamps: the first at or after it (without a zone: UTC)    |
| `GroupOffsets("billing")`      | what a consumer group has committed; a warning is logged where it has nothing |
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from difflib import get_close_matches
from typing import Literal

from halfmoon.pipeline.admin import Admin, TopicOffsets
from halfmoon.pipeline.errors import PipelineError
from halfmoon.pipeline.times import milliseconds

logger = logging.getLogger(__name__)

EARLIEST, LATEST = -2, -1
"""Spark's numbers for them in a range."""


@dataclass(slots=True, frozen=True)
class GroupOffsets:
    """A consumer group's committed offsets. `otherwise` stands for partitions in which it has committed none.

    A group that has committed in none of the partitions is an ordinary beginning, and may be a misspelt name: the read
    goes on with `otherwise`, and a warning is logged.
    """

    group: str
    otherwise: Literal["earliest", "latest"] = "earliest"


Position = str | Mapping[str, Mapping[int, int]] | datetime | GroupOffsets
"""Where a read begins or ends: see the table above."""


def start_options(start: Position, topics: Sequence[str], admin: Admin) -> dict[str, str]:
    """Options of Spark's source for where to begin. Raises PipelineError."""
    if isinstance(start, datetime):
        # A partition without a record that late is read from its end; Spark's own default is to fail.
        return {"startingTimestamp": str(milliseconds(start)), "startingOffsetsByTimestampStrategy": "latest"}
    return {"startingOffsets": _offsets(start, topics, admin, EARLIEST)}


def end_options(end: Position, topics: Sequence[str], admin: Admin) -> dict[str, str]:
    """Options of Spark's source for where to end (exclusive). Raises PipelineError."""
    if isinstance(end, datetime):
        return {"endingTimestamp": str(milliseconds(end))}
    if end == "earliest":
        raise PipelineError("a read cannot end at 'earliest'")
    return {"endingOffsets": _offsets(end, topics, admin, LATEST)}


def offsets_json(offsets: Mapping[str, Mapping[int, int]]) -> str:
    """Spark's way to write offsets: JSON with partitions as strings."""
    return json.dumps({topic: {str(p): at for p, at in sorted(ends.items())} for topic, ends in offsets.items()})


def offsets_of(written: Mapping[str, Mapping[str, int]]) -> TopicOffsets:
    """Back from Spark's way, once it is no text any more."""
    return {topic: {int(p): int(at) for p, at in ends.items()} for topic, ends in written.items()}


def read_by_all(sources: Iterable[TopicOffsets]) -> TopicOffsets:
    """What all sources of a query have read: where two of them read one partition, the lower offset."""
    found: TopicOffsets = {}
    for source in sources:
        for topic, ends in source.items():
            known = found.setdefault(topic, {})
            for partition, end in ends.items():
                known[partition] = min(end, known.get(partition, end))
    return found


def _offsets(position: str | Mapping[str, Mapping[int, int]] | GroupOffsets, topics: Sequence[str], admin: Admin,
             unnamed: int) -> str:  # fmt: skip
    if isinstance(position, str):
        if position not in ("earliest", "latest"):
            raise PipelineError(f"{position!r} is neither 'earliest' nor 'latest', nor a datetime, nor offsets")
        return position
    if isinstance(position, GroupOffsets):
        return offsets_json(_of_group(position, topics, admin))
    unknown = set(position) - set(topics)
    if unknown:
        raise PipelineError(f"offsets are given for {min(unknown)!r}, which is not among the topics read")
    # Spark wants every partition of every topic named.
    return offsets_json({t: _all(admin, t, unnamed) | dict(position.get(t, {})) for t in topics})


def _of_group(position: GroupOffsets, topics: Sequence[str], admin: Admin) -> TopicOffsets:
    committed = admin.committed(position.group)
    if topics and not committed.keys() & set(topics):
        logger.warning("%s", _nothing_committed(position, topics, admin))
    found: TopicOffsets = {}
    for topic in topics:
        # As numbers: a read of Spark's takes no word for where it begins at the end, or ends at the beginning.
        rest = admin.begins(topic) if position.otherwise == "earliest" else admin.ends(topic)
        found[topic] = rest | {p: at for p, at in committed.get(topic, {}).items() if p in rest}
    return found


def _all(admin: Admin, topic: str, offset: int) -> dict[int, int]:
    return dict.fromkeys(range(admin.partitions(topic)), offset)


def _nothing_committed(position: GroupOffsets, topics: Sequence[str], admin: Admin) -> str:
    """What is said of a group without an offset in the topics: whether it is there at all, and what is done."""
    try:
        groups = admin.groups()
    except PipelineError:  # The list only makes the warning better.
        groups = [position.group]
    if position.group in groups:
        what = f"group {position.group!r} has committed no offset in {', '.join(topics)}"
    else:
        near = get_close_matches(position.group, groups, 1, 0.8)
        meant = f" (did you mean {near[0]!r}?)" if near else ""
        what = f"there is no group {position.group!r} at {admin.bootstrap}{meant}"
    return f"GroupOffsets: {what}: the {position.otherwise} offset of every partition is taken"
