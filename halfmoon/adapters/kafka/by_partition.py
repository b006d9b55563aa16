"""Requests about partitions that lie in several shards of this process: each shard answers for its own.

A request is taken apart by the shard of each partition, and each part is handled with that shard's context. The answer
has everything in the order of the request. A partition that no shard here owns goes to one of them, whose handler
refuses it with NOT_LEADER_OR_FOLLOWER.

It knows the fields of requests and answers by their names, and nothing of what is asked.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from operator import attrgetter
from typing import Any

from halfmoon.adapters.kafka.guards import Handler
from halfmoon.adapters.kafka.protocol import Slices
from halfmoon.adapters.kafka.registry import Context
from halfmoon.adapters.kafka.shards import Home, Homes, at, when_all
from halfmoon.adapters.kafka.slicing import settled

Way = Callable[[Homes, Any, Handler, Context, Any], Slices[object]]
"""As of shard_routing."""


def by_partition(asked: str = "partitions", index: str | None = "partition_index") -> Way:
    """`request.topics` name partitions in their field `asked`: items whose field `index` is the partition's, or its
    index itself, where that is None. `response.topics` have as many `partitions`."""
    index_of: Callable[[Any], int] = int if index is None else attrgetter(index)

    def way(homes: Homes, _response: Any, handler: Handler, ctx: Context, request: Any) -> Slices[object]:
        parts: dict[int, tuple[Home, Any]] = {}
        for topic in request.topics:
            known = ctx.core.catalog.topic(topic.name)
            for item in getattr(topic, asked) or (None,):
                home = homes.home_of(known, -1 if item is None else index_of(item))
                _, part = parts.setdefault(id(home.core), (home, []))
                if not part or part[-1][0] is not topic:
                    part.append((topic, []))
                if item is not None:
                    part[-1][1].append(item)
                yield
        if len(parts) < 2:
            home = next((home for home, _ in parts.values()), homes.stays())
            return (yield from settled(handler(at(home, ctx), request)))
        answers = []
        for home, topics in parts.values():
            some = copy(request)
            some.topics = [_with(topic, asked, items) for topic, items in topics]
            answers.append((yield from settled(handler(at(home, ctx), some))))
        return when_all(answers, lambda found: _in_order(request, found))

    def _in_order(request: Any, answers: list[Any]) -> Any:
        shells: dict[str, Any] = {}
        results: dict[tuple[str, int], list[Any]] = {}
        for answer in answers:
            for topic in answer.topics:
                shells.setdefault(topic.name, topic)
                for result in topic.partitions:
                    results.setdefault((topic.name, result.partition_index), []).append(result)
        # A partition that is named twice has two results, in their order.
        answers[0].topics = [
            _with(
                shells[topic.name],
                "partitions",
                [results[topic.name, index_of(item)].pop(0) for item in getattr(topic, asked)],
            )
            for topic in request.topics
        ]
        return answers[0]

    return way


def _with(record: Any, field: str, value: Any) -> Any:
    made = copy(record)
    setattr(made, field, value)
    return made


def log_dirs(homes: Homes, _response: Any, handler: Handler, ctx: Context, request: Any) -> Slices[object]:
    """DescribeLogDirs: all shards lie in one data directory. Each may have a topic of its own of the same name."""
    whole: Any = None
    sizes: dict[str, dict[int, Any]] = {}
    if request.topics is not None:
        sizes = {asked.topic: {} for asked in request.topics}
    shells: dict[str, Any] = {}
    for home in homes.all() or (homes.stays(),):
        answer: Any = yield from settled(handler(at(home, ctx), request))
        whole = whole or answer
        for topic in answer.results[0].topics:
            shells[topic.name] = topic
            known = sizes.setdefault(topic.name, {})
            for part in topic.partitions:
                if part.partition_index in known:
                    known[part.partition_index].partition_size += part.partition_size
                else:
                    known[part.partition_index] = part
        yield
    names = sizes if request.topics is not None else sorted(sizes)
    whole.results[0].topics = [
        _with(shells[name], "partitions", [sizes[name][index] for index in sorted(sizes[name])])
        for name in names
        if sizes[name]
    ]
    return whole
