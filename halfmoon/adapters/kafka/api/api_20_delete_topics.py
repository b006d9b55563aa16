"""DeleteTopics (20): by name, from version 6 on also by topic id. Rules: ControllerApis.deleteTopics.

A topic named twice, or once by name and once by id, is not deleted: the request contradicts itself. Views go before
their sources, in whatever order they are named: a topic that a view is filled from is not deleted. Kafka shuffles its
answers; ours keep the order. A topic that plugins refuse is refused whether it exists or not.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from halfmoon.adapters.kafka.duplicates import duplicates_in_slices
from halfmoon.adapters.kafka.durable import each_of, refuse, tells_state
from halfmoon.adapters.kafka.lookup import changeable
from halfmoon.adapters.kafka.mutations import Mutations
from halfmoon.adapters.kafka.protocol import DeleteTopicsResponse, Slices
from halfmoon.adapters.kafka.registry import Context
from halfmoon.adapters.tcp.access import CLUSTER, check_views
from halfmoon.errors import BrokerError, Fault

if TYPE_CHECKING:
    from halfmoon.adapters.tcp.core import Core
    from halfmoon.core.catalog.topics import Topic


STRICT_SINCE = 5
"""From this version on, clients know what it means that their quota of changes is used up."""


class _Target(NamedTuple):
    """What the request says; exactly one of the two should be there."""

    name: str | None
    topic_id: UUID | None


@tells_state(each_of("responses"))
def handle(ctx: Context, request: Any) -> Slices[object]:
    targets = list(_targets(request))
    twice = yield from duplicates_in_slices(targets)
    by_name = {_id_of_name(ctx.core, target) for target in targets if target.topic_id is None}
    both_ways = by_name & {target.topic_id.bytes for target in targets if target.topic_id is not None}
    results = []
    found: list[tuple[Topic, Any]] = []
    for target in dict.fromkeys(targets):
        yield
        result = DeleteTopicsResponse.DeletableTopicResult(
            name=target.name, topic_id=target.topic_id or UUID(int=0), error_code=0, error_message=None
        )
        results.append(result)
        try:
            if target in twice:
                raise BrokerError(Fault.INVALID_REQUEST, "duplicate topic name or id")
            if ctx.rights is not None:
                _check_access(ctx, target, result)
            topic = _find(ctx.core, target)
            if topic.id in both_ways:
                raise BrokerError(Fault.INVALID_REQUEST, "the topic is given by its name and by its id")
            result.name, result.topic_id = topic.name, UUID(bytes=topic.id)
            found.append((topic, result))
        except BrokerError as error:
            refuse(result, error)
    mutations = Mutations(ctx, STRICT_SINCE)
    # A view was created after its source, so its number is higher.
    for topic, result in sorted(found, key=lambda pair: -pair[0].number):
        yield
        try:
            if ctx.core.catalog.topic_by_id(topic.id) is not topic:  # somebody else was quicker
                raise BrokerError(Fault.UNKNOWN_TOPIC_OR_PARTITION)
            if ctx.rights is not None:
                check_views(ctx.rights, topic, ctx.core.catalog)
            mutations.take(len(topic.partitions))
            ctx.core.administration.delete_topic(topic)
        except BrokerError as error:
            refuse(result, error)
    return DeleteTopicsResponse(throttle_time_ms=mutations.wait_ms, responses=results)


def _targets(request: Any) -> Iterator[_Target]:
    for name in request.topic_names:
        yield _Target(name, None)
    for topic in request.topics:
        yield _Target(topic.name, topic.topic_id)


def _id_of_name(core: Core, target: _Target) -> bytes | None:
    topic = None if target.name is None else core.catalog.topic(target.name)
    return None if topic is None else topic.id


def _check_access(ctx: Context, target: _Target, result: Any) -> None:
    """A refused name is refused whether it exists or not; the name of an id is told to who may describe it. Raises
    BrokerError."""
    topic = None if target.topic_id is None else ctx.core.catalog.topic_by_id(target.topic_id.bytes)
    name = target.name if topic is None else topic.name
    if name is None:
        return
    try:
        ctx.check_either(("delete", "cluster", CLUSTER), ("delete", "topic", name))
    except BrokerError:
        if ctx.allows("describe", "topic", name):
            result.name = name
        raise


def _find(core: Core, target: _Target) -> Topic:
    """The topic to delete. Raises BrokerError."""
    if target.topic_id is None:
        if target.name is None:
            raise BrokerError(Fault.INVALID_REQUEST, "neither topic name nor id were specified")
        return changeable(core, target.name)
    if target.name is not None:
        raise BrokerError(Fault.INVALID_REQUEST, "topic name and topic id may not both be specified")
    topic = core.catalog.topic_by_id(target.topic_id.bytes)
    if topic is None:
        raise BrokerError(Fault.UNKNOWN_TOPIC_ID)
    return changeable(core, topic.name)
