"""WriteTxnMarkers (27) in a process that has several shards: each writes the markers of its own partitions.

A partition that no shard here owns goes to one of them, whose handler refuses it with NOT_LEADER_OR_FOLLOWER.
"""

from __future__ import annotations

from copy import copy
from typing import Any

from halfmoon.adapters.kafka.guards import Handler
from halfmoon.adapters.kafka.protocol import Slices
from halfmoon.adapters.kafka.registry import Context
from halfmoon.adapters.kafka.shards import Home, Homes, at, when_all
from halfmoon.adapters.kafka.slicing import settled


def write_markers(homes: Homes, response: Any, handler: Handler, ctx: Context, request: Any) -> Slices[object]:
    parts: dict[int, tuple[Home, dict[int, Any]]] = {}
    for place, marker in enumerate(request.markers):
        for topic in marker.topics:
            known = ctx.core.catalog.topic(topic.name)
            for index in topic.partition_indexes:
                home = homes.home_of(known, index)
                _, some = parts.setdefault(id(home.core), (home, {}))
                if place not in some:
                    some[place] = copy(marker)
                    some[place].topics = []
                topics = some[place].topics
                if not topics or topics[-1].name != topic.name:
                    topics.append(copy(topic))
                    topics[-1].partition_indexes = []
                topics[-1].partition_indexes.append(index)
                yield
    answers = []
    for home, some in parts.values():
        part = copy(request)
        part.markers = list(some.values())
        answers.append((yield from settled(handler(at(home, ctx), part))))
    asked = [list(some) for _, some in parts.values()]
    return when_all(answers, lambda found: _joined(response, request, asked, found))


def _joined(response: Any, request: Any, asked: list[list[int]], answers: list[Any]) -> Any:
    """`asked`: which markers each of the answers is about."""
    markers = [response.WritableTxnMarkerResult(producer_id=each.producer_id, topics=[]) for each in request.markers]
    for places, answer in zip(asked, answers, strict=True):
        for place, marker in zip(places, answer.markers, strict=True):
            markers[place].topics += marker.topics
    return response(markers=markers)
