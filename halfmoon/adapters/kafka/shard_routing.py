"""Requests are answered where what they are about lies, in a process that has several shards.

A route's handler is called with the context of the shard that coordinates a group or a transactional id. A request that
names several of them is taken apart by shard, one about all there are goes to each of the process's shards, and the
answers are put together. What another process coordinates is refused with NOT_COORDINATOR: FindCoordinator says which.

Which API is routed how is the table `WAYS`. An API without a line there is about topics, or what is shared.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from functools import partial
from inspect import isgeneratorfunction
from typing import Any

from halfmoon.adapters.kafka import (
    refusals,
    shard_delays,
    shard_entries,
    shard_messages,
    shard_schedules,
    shard_shares,
    spread_produce,
)
from halfmoon.adapters.kafka.by_partition import by_partition, log_dirs
from halfmoon.adapters.kafka.confirming import CONFIRMED, confirmed
from halfmoon.adapters.kafka.guards import Handler, Named, called, itself
from halfmoon.adapters.kafka.protocol import LARGE_BYTES, RESPONSES, Slices
from halfmoon.adapters.kafka.refusals import Refused, at_the_top, joined, result
from halfmoon.adapters.kafka.registry import Close, Context, Deferred
from halfmoon.adapters.kafka.routes import PRODUCE, Route
from halfmoon.adapters.kafka.shard_markers import write_markers
from halfmoon.adapters.kafka.shards import Home, Homes, at, pass_on, when_all
from halfmoon.adapters.kafka.slicing import settled
from halfmoon.cluster.changes import NoChangeError
from halfmoon.core.catalog.topics import Topic
from halfmoon.errors import BrokerError

Way = Callable[[Homes, Any, Handler, Context, Any], object]
"""(shards, response's class, handler, context, request) → as of a handler."""


def at_coordinator(field: str, refused: Refused = at_the_top) -> Way:
    """All of it is about the group, or transactional id, of this name."""

    def way(homes: Homes, response: Any, handler: Handler, ctx: Context, request: Any) -> object:
        try:
            home = homes.coordinator(getattr(request, field) or "")
        except BrokerError as error:
            return refused(response, request, error)
        return handler(at(home, ctx), request)

    return way


def each_at_coordinator(field: str, name: Named, into: str, refused: Refused) -> Way:
    """Each item of `request.field` is about the one of its name; its result stands in `response.into`."""

    def way(homes: Homes, response: Any, handler: Handler, ctx: Context, request: Any) -> Slices[object]:
        asked = getattr(request, field)
        if not asked:  # which the handler may take for all there are
            return (yield from settled(everywhere(into)(homes, response, handler, ctx, request)))
        found: dict[int, tuple[Home, list[Any]]] = {}
        denied = []
        for item in asked:
            yield
            try:
                home = homes.coordinator(name(ctx, item) or "")
            except BrokerError as error:
                denied.append(refused(response, item, error))
            else:
                found.setdefault(id(home.core), (home, []))[1].append(item)
        if len(found) == 1 and not denied:
            ((home, _),) = found.values()
            return (yield from settled(handler(at(home, ctx), request)))
        answers = []
        for home, items in found.values():
            part = copy(request)
            setattr(part, field, items)
            answers.append((yield from settled(handler(at(home, ctx), part))))
        return when_all(answers, lambda parts: joined(_one(response, into, parts), into, denied))

    return way


def everywhere(*into: str) -> Way:
    """All shards know something of it: what their answers list there is put together."""

    def way(homes: Homes, response: Any, handler: Handler, ctx: Context, request: Any) -> Slices[object]:
        answers = []
        for home in homes.all():
            answers.append((yield from settled(handler(at(home, ctx), copy(request)))))
        return when_all(answers, lambda parts: _one(response, into[0], parts))

    return way


def answered_by(handler: Handler, way: Way) -> Way:
    """Another handler than that of one process."""

    def led(homes: Homes, response: Any, _handler: Handler, ctx: Context, request: Any) -> object:
        return way(homes, response, handler, ctx, request)

    return led


def _delete_groups(homes: Homes, response: Any, handler: Handler, ctx: Context, request: Any) -> object:
    return _GROUPS_TO_DELETE(homes, response, partial(shard_shares.delete_groups, handler), ctx, request)


def as_change(homes: Homes, _response: Any, handler: Handler, ctx: Context, request: Any) -> object:
    """It changes what all processes share."""
    if isinstance(request, memoryview):  # which is another request's a moment later
        request = memoryview(bytes(request))
    deferred = Deferred()

    def told(made: object) -> None:
        if isinstance(made, Exception):
            deferred.complete(Close(f"the shared catalog cannot be changed now: {made}"))
        else:
            pass_on(made, deferred)

    homes.change(lambda: handler(ctx, request), told)
    return deferred


def _delete_topics(homes: Homes, response: Any, handler: Handler, ctx: Context, request: Any) -> object:
    """A shard may need one of them. This process may not have heard of one yet, and learns of it with a change."""
    catalog = ctx.core.catalog
    deferred = Deferred()

    def find() -> list[Topic | None]:
        return [
            *(catalog.topic(name) for name in request.topic_names),
            *(catalog.topic_by_id(each.topic_id.bytes) for each in request.topics if each.topic_id is not None),
            *(catalog.topic(each.name) for each in request.topics if each.name is not None),
        ]

    def ask(_told: object) -> None:
        homes.ask_deletion(
            [topic for topic in find() if topic is not None],
            lambda: pass_on(as_change(homes, response, handler, ctx, request), deferred),
        )

    if None in find():
        homes.change(lambda: None, ask)
    else:
        ask(None)
    return deferred


def _metadata(homes: Homes, response: Any, handler: Handler, ctx: Context, body: memoryview) -> Slices[object]:
    """It may make topics, and seldom does."""
    kept = body if len(body) > LARGE_BYTES else memoryview(bytes(body))
    try:
        return (yield from settled(handler(ctx, kept)))
    except NoChangeError:
        return as_change(homes, response, handler, ctx, kept)


def _one(response: Any, into: str, parts: Sequence[Any]) -> Any:
    """One answer of several: the first that has an error of its own, or all together."""
    if not parts:
        return response()
    whole = next((part for part in parts if getattr(part, "error_code", 0)), parts[0])
    if whole is parts[0]:
        for part in parts[1:]:
            joined(whole, into, getattr(part, into) or ())
    return whole


def _init_producer_id(homes: Homes, response: Any, handler: Handler, ctx: Context, request: Any) -> object:
    if request.transactional_id is not None:
        return _BY_TRANSACTIONAL_ID(homes, response, handler, ctx, request)
    home = homes.fast()
    if home is not None:
        return handler(at(home, ctx), request)
    deferred = Deferred()

    def told(found: int | BrokerError) -> None:
        if isinstance(found, BrokerError):
            deferred.complete(at_the_top(response, request, found))
        else:
            deferred.complete(response(throttle_time_ms=0, error_code=0, producer_id=found, producer_epoch=0))

    homes.new_producer(told)
    return deferred


def _offset_fetch(homes: Homes, response: Any, handler: Handler, ctx: Context, request: Any) -> object:
    if ctx.api_version >= 8:
        if len(request.groups) == 1 and request.groups[0].topics is not None:
            try:
                homes.coordinator(request.groups[0].group_id or "")
            except BrokerError as error:
                # Kafka says NOT_COORDINATOR of the group. After that a member of a new group with librdkafka 2.16 asks
                # for its positions no more (its issue 5586), and reads nothing. All clients look for the coordinator
                # when its connection ends. Only administrators ask for all partitions.
                return Close(f"asked for offsets of a group that is not here: {error}")
        refused = result(lambda response: response.OffsetFetchResponseGroup, "group_id", "group_id")
        return each_at_coordinator("groups", called("group_id"), "groups", refused)(
            homes, response, handler, ctx, request
        )
    refused = at_the_top if ctx.api_version >= 2 else _no_offsets
    return at_coordinator("group_id", refused)(homes, response, handler, ctx, request)


def _no_offsets(response: Any, request: Any, error: BrokerError) -> Any:
    kind = response.OffsetFetchResponseTopic
    part = kind.OffsetFetchResponsePartition
    return response(topics=[refusals.no_offsets(kind, part, asked, error) for asked in request.topics])


def _add_partitions(homes: Homes, response: Any, handler: Handler, ctx: Context, request: Any) -> object:
    if ctx.api_version < 4:
        way = at_coordinator("v3_and_below_transactional_id", _not_added)
    else:
        way = each_at_coordinator(
            "transactions", called("transactional_id"), "results_by_transaction", _transaction_not_added
        )
    return way(homes, response, handler, ctx, request)


def _not_added(response: Any, request: Any, error: BrokerError) -> Any:
    topics = [refusals.added_topic(response, asked, error) for asked in request.v3_and_below_topics]
    return response(results_by_topic_v3_and_below=topics)


def _transaction_not_added(response: Any, item: Any, error: BrokerError) -> Any:
    topics = [refusals.added_topic(response, asked, error) for asked in item.topics]
    return response.AddPartitionsToTxnResult(transactional_id=item.transactional_id, topic_results=topics)


_BY_GROUP = at_coordinator("group_id")
_BY_TRANSACTIONAL_ID = at_coordinator("transactional_id")
_DESCRIBED = refusals.DESCRIBED_GROUP
_GROUPS_TO_DELETE = each_at_coordinator(
    "groups_names", itself, "results", result(lambda response: response.DeletableGroupResult, "group_id")
)
_SHARE_OFFSETS = each_at_coordinator(
    "groups", called("group_id"), "groups",
    result(lambda response: response.DescribeShareGroupOffsetsResponseGroup, "group_id", "group_id"),
)  # fmt: skip

WAYS: Mapping[int, Way] = {
    3: _metadata,
    8: at_coordinator("group_id", refusals.OFFSETS_NOT_COMMITTED),
    9: _offset_fetch,
    11: _BY_GROUP,
    12: _BY_GROUP,
    13: _BY_GROUP,
    14: _BY_GROUP,
    15: each_at_coordinator("groups", itself, "groups", _DESCRIBED),
    16: everywhere("groups"),
    21: by_partition(),
    22: _init_producer_id,
    24: _add_partitions,
    25: _BY_TRANSACTIONAL_ID,
    26: _BY_TRANSACTIONAL_ID,
    27: write_markers,
    28: at_coordinator("group_id", refusals.TXN_OFFSETS_NOT_COMMITTED),
    32: shard_entries.describe,
    35: log_dirs,
    42: _delete_groups,
    47: _BY_GROUP,
    61: by_partition("partition_indexes", None),
    65: each_at_coordinator(
        "transactional_ids", itself, "transaction_states",
        result(lambda response: response.TransactionState, "transactional_id"),
    ),
    66: everywhere("transaction_states"),
    68: _BY_GROUP,
    69: each_at_coordinator("group_ids", itself, "groups", _DESCRIBED),
    76: _BY_GROUP,
    77: each_at_coordinator("group_ids", itself, "groups", _DESCRIBED),
    78: shard_shares.fetch,
    79: shard_shares.acknowledge,
    90: answered_by(shard_shares.describe_offsets, _SHARE_OFFSETS),
    91: answered_by(shard_shares.alter_offsets, _BY_GROUP),
    92: answered_by(shard_shares.delete_offsets, _BY_GROUP),
    18502: shard_messages.ask,
    18506: shard_delays.ask,
    18508: shard_schedules.ask,
    20: _delete_topics,
    # CreateTopics, CreateAcls, DeleteAcls, AlterConfigs, CreatePartitions, delegation tokens, …
    **dict.fromkeys((19, 30, 31, 33, 37, 38, 39, 40, 44, 49, 51, 57, 18503), as_change),
}  # fmt: skip
"""By API key."""


def routed(routes: Mapping[int, Route], homes: Homes) -> dict[int, Route]:
    """The routes, which lead to the shards that `WAYS` says."""

    def led(route: Route) -> Route:
        if route.key == PRODUCE:
            return route.handled_by(partial(spread_produce.handle, homes), sliced=False)
        way = WAYS.get(route.key)
        if way is not None:
            response = refusals.ANSWERS.get(route.key, RESPONSES.get(route.key))
            sliced = route.sliced or isgeneratorfunction(way)
            route = route.handled_by(partial(way, homes, response, route.handler), sliced=sliced)
        if homes.confirm is not None and route.key in CONFIRMED:
            route = route.handled_by(confirmed(homes.confirm, route.handler), sliced=True)
        return route

    return {number: led(route) for number, route in routes.items()}
