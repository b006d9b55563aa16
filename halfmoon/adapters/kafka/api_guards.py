"""Guards of single APIs (see `guards`): those that need more than a name in a field."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

from halfmoon.adapters.kafka import refusals
from halfmoon.adapters.kafka.errors import code
from halfmoon.adapters.kafka.guards import (
    Guard,
    Handler,
    after,
    called,
    cluster,
    each,
    each_by,
    itself,
    topic_called,
    whole,
)
from halfmoon.adapters.kafka.operations import CLUSTER_OPERATIONS, allowed
from halfmoon.adapters.kafka.protocol import Slices
from halfmoon.adapters.kafka.refusals import at_the_top, joined, result, topic
from halfmoon.adapters.kafka.registry import Context
from halfmoon.adapters.kafka.resources import GROUP_TYPE, TOPIC_TYPE
from halfmoon.adapters.kafka.slicing import settled
from halfmoon.adapters.tcp.access import CLUSTER
from halfmoon.errors import BrokerError, Fault
from halfmoon.schema.group_topics import dead_letter_topic
from halfmoon.services.configs.group_configs import GroupConfigs


def of_group(operation: str, refused: refusals.Refused = at_the_top) -> Guard:
    return whole(operation, "group", called("group_id"), refused)


def transactional_id(refused: refusals.Refused = at_the_top) -> Guard:
    return whole("write", "transactional_id", called("transactional_id"), refused)


def configs(operation: str, into: str) -> Guard:
    """Of a topic or a group; nodes, loggers and client metrics are the cluster's."""
    subjects = {TOPIC_TYPE: "topic", GROUP_TYPE: "group"}

    def check(ctx: Context, asked: Any) -> None:
        subject = subjects.get(asked.resource_type)
        ctx.check(operation, *(("cluster", CLUSTER) if subject is None else (subject, asked.resource_name)))
        if subject == "group" and operation == "alter_configs":
            _check_takers(ctx, asked)

    return each_by("resources", check, into, refusals.config_resource)


def _check_takers(ctx: Context, asked: Any) -> None:
    """Who has a group's dead letters go elsewhere must be one who may read them, and write them there."""
    group, known = asked.resource_name, ctx.services.find(GroupConfigs)
    for config in asked.configs:
        row = None if known is None else known.rows.get(config.name)
        to = (config.value or "").strip() if row is not None and row.takes_records else ""
        if to and to != dead_letter_topic(group):
            ctx.check("read", "group", group)
            ctx.check("write", "topic", to)


def check_markers(ctx: Context, _request: Any) -> None:
    ctx.check_either(("cluster_action", "cluster", CLUSTER), ("alter", "cluster", CLUSTER))


def check_leader_epochs(ctx: Context, asked: Any) -> None:
    ctx.check_either(("cluster_action", "cluster", CLUSTER), ("describe", "topic", asked.topic))


def check_subscribed(ctx: Context, request: Any) -> None:
    """What a member says that it subscribes to by name."""
    for name in request.subscribed_topic_names or ():
        ctx.check("describe", "topic", name)


def check_producer(ctx: Context, request: Any) -> None:
    """A transactional id; or else, who may write to any topic may be idempotent (KIP-679)."""
    if request.transactional_id is not None:
        ctx.check("write", "transactional_id", request.transactional_id)
        return
    if not ctx.demands(("idempotent_write", "cluster", CLUSTER), ("write", "topic", None)):
        raise BrokerError(Fault.CLUSTER_AUTHORIZATION_FAILED, "not allowed to write to any topic")


def find_coordinator(response: Any, handler: Handler, ctx: Context, request: Any) -> object:
    """Of each key, or of the one key of versions before 4. Keys of other types are refused by the handler."""
    kind = {0: "group", 1: "transactional_id"}.get(request.key_type)
    if kind is None:
        return handler(ctx, request)
    if ctx.api_version < 4:
        guard = whole("describe", kind, called("key"), refusals.no_coordinator)
    else:
        guard = each("coordinator_keys", "describe", kind, itself, "coordinators", refusals.no_coordinator_of)
    return guard(response, handler, ctx, request)


def list_groups(ctx: Context, _request: Any, answer: Any) -> Any:
    """Who may describe the cluster sees all groups."""
    may_all = ("describe", "cluster", CLUSTER)
    answer.groups = [one for one in answer.groups if ctx.allows_either(may_all, ("describe", "group", one.group_id))]
    return answer


def offset_fetch(response: Any, handler: Handler, ctx: Context, request: Any) -> object:
    """Groups, and the topics of each."""
    if ctx.api_version >= 8:

        def check(ctx: Context, group: Any) -> None:
            ctx.check("describe", "group", group.group_id)

        refused = result(lambda response: response.OffsetFetchResponseGroup, "group_id", "group_id")
        guard = each_by("groups", check, "groups", refused)
        return guard(response, partial(_offset_fetch_topics, response, handler), ctx, request)
    try:
        ctx.check("describe", "group", request.group_id)
    except BrokerError as error:
        if ctx.api_version >= 2:
            return response(error_code=code(error.fault))
        kind = response.OffsetFetchResponseTopic
        part = kind.OffsetFetchResponsePartition
        return response(topics=[refusals.no_offsets(kind, part, asked, error) for asked in request.topics])
    return _offset_fetch_topics(response, handler, ctx, request)


def _offset_fetch_topics(response: Any, handler: Handler, ctx: Context, request: Any) -> object:
    """Take the refused topics out of each group, and put them into its answer. Where a group asks for all that it has,
    they are left out."""
    batched = ctx.api_version >= 8
    kind, part = _offset_fetch_classes(response, batched)
    name = topic_called("name")
    denied: dict[str, list[Any]] = {}
    for group in request.groups if batched else [request]:
        if group.topics is None:
            continue
        kept, refused = [], []
        for asked in group.topics:
            try:
                named = name(ctx, asked)
                if named is not None:
                    ctx.check("describe", "topic", named)
                kept.append(asked)
            except BrokerError as error:
                refused.append(refusals.no_offsets(kind, part, asked, error))
        group.topics, denied[group.group_id] = kept, refused

    def change(answer: Any) -> Any:
        for group in answer.groups if batched else [answer]:
            more = denied.get(group.group_id if batched else request.group_id)
            if more is None:
                group.topics = [each for each in group.topics if ctx.allows("describe", "topic", each.name)]
            elif not group.error_code:
                joined(group, "topics", more)
        return answer

    return after(handler(ctx, request), change)


def _offset_fetch_classes(response: Any, batched: bool) -> tuple[Any, Any]:
    if not batched:
        return response.OffsetFetchResponseTopic, response.OffsetFetchResponseTopic.OffsetFetchResponsePartition
    kind = response.OffsetFetchResponseGroup.OffsetFetchResponseTopics
    return kind, kind.OffsetFetchResponsePartitions


def add_partitions(response: Any, handler: Handler, ctx: Context, request: Any) -> object:
    """All or nothing: beside a refused topic, the others are not attempted. From version 4 on it is for brokers."""
    if ctx.api_version >= 4:
        return cluster("cluster_action")(response, handler, ctx, request)
    refused: dict[str, BrokerError] = {}
    others = BrokerError(Fault.OPERATION_NOT_ATTEMPTED)
    try:
        ctx.check("write", "transactional_id", request.v3_and_below_transactional_id)
    except BrokerError as error:
        others = error
    else:
        for asked in request.v3_and_below_topics:
            try:
                ctx.check("write", "topic", asked.name)
            except BrokerError as error:
                refused[asked.name] = error
        if not refused:
            return handler(ctx, request)
    topics = request.v3_and_below_topics
    return response(
        results_by_topic_v3_and_below=[
            refusals.added_topic(response, asked, refused.get(asked.name, others)) for asked in topics
        ]
    )


def offset_delete(response: Any, handler: Handler, ctx: Context, request: Any) -> Slices[object]:
    """The group comes first: where it is refused or unknown, nothing is said of topics."""
    refused = topic(
        lambda response: response.OffsetDeleteResponseTopic, lambda topic: topic.OffsetDeleteResponsePartition
    )
    denied, kept = [], []
    for asked in request.topics:
        try:
            ctx.check("read", "topic", asked.name)
            kept.append(asked)
        except BrokerError as error:
            denied.append(refused(response, asked, error))
        yield
    request.topics = kept
    answer = yield from settled(handler(ctx, request))
    return after(answer, lambda made: made if made.error_code else joined(made, "topics", denied))


def describe_cluster(ctx: Context, request: Any, answer: Any) -> Any:
    if request.include_cluster_authorized_operations and not answer.error_code:
        may = ctx.allows("describe", "cluster", CLUSTER)
        answer.authorized_operations = allowed(ctx, "cluster", CLUSTER, CLUSTER_OPERATIONS) if may else frozenset()
    return answer


def described_transactions(ctx: Context, _request: Any, answer: Any) -> Any:
    for state in answer.transaction_states:
        state.topics = [each for each in state.topics if ctx.allows("describe", "topic", each.topic)]
    return answer


def described_members(ctx: Context, _request: Any, answer: Any) -> Any:
    """A group whose members read what the client may not describe is not described."""
    refused = result(lambda response: response.DescribedGroup, "group_id")
    groups = []
    for group in answer.groups:
        try:
            for name in sorted(set(_assigned(group))):
                ctx.check("describe", "topic", name)
            groups.append(group)
        except BrokerError as error:
            groups.append(refused(answer, group.group_id, error))
    answer.groups = groups
    return answer


def _assigned(group: Any) -> Iterable[str]:
    for member in group.members:
        for assignment in (member.assignment, getattr(member, "target_assignment", None)):
            for assigned in () if assignment is None else assignment.topic_partitions:
                yield assigned.topic_name


def share_offsets(response: Any, handler: Handler, ctx: Context, request: Any) -> object:
    """The topics of each group; where it asks for all, the refused ones are left out."""
    kind = response.DescribeShareGroupOffsetsResponseGroup
    refused = topic(
        lambda _: kind.DescribeShareGroupOffsetsResponseTopic,
        lambda topic: topic.DescribeShareGroupOffsetsResponsePartition,
        name="topic_name", of="topic_name", start_offset=-1,
    )  # fmt: skip
    denied: dict[str, list[Any]] = {}
    for group in request.groups:
        if group.topics is not None:
            denied[group.group_id] = []
            kept = []
            for asked in group.topics:
                try:
                    ctx.check("describe", "topic", asked.topic_name)
                    kept.append(asked)
                except BrokerError as error:
                    denied[group.group_id].append(refused(response, asked, error))
            group.topics = kept

    def change(answer: Any) -> Any:
        for group in answer.groups:
            if group.group_id in denied:
                joined(group, "topics", denied[group.group_id])
            else:
                group.topics = [each for each in group.topics if ctx.allows("describe", "topic", each.topic_name)]
        return answer

    return after(handler(ctx, request), change)
