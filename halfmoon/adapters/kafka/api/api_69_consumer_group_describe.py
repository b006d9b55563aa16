"""ConsumerGroupDescribe (69): state and members of groups of the new protocol (KIP-848).

A classic group is GROUP_ID_NOT_FOUND here; tools ask DescribeGroups for it then. Version 1 says which protocol a member
speaks (KIP-1099).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from uuid import UUID

from halfmoon.adapters.kafka import operations
from halfmoon.adapters.kafka.durable import tells_state
from halfmoon.adapters.kafka.errors import NONE, code
from halfmoon.adapters.kafka.operations import GROUP_OPERATIONS, allowed, bits
from halfmoon.adapters.kafka.protocol import ConsumerGroupDescribeResponse, Slices
from halfmoon.adapters.kafka.registry import Context
from halfmoon.errors import Fault
from halfmoon.services.groups.consumer.messages import ConsumerGroupDescription, ConsumerMemberDescription
from halfmoon.services.groups.service import GroupService

CLASSIC_MEMBER, CONSUMER_MEMBER = 0, 1

_Group = ConsumerGroupDescribeResponse.DescribedGroup
_Member = _Group.Member


@tells_state()
def handle(ctx: Context, request: Any) -> Slices[object]:
    groups = []
    # A group that is named twice is answered once: its members take far more bytes than its name.
    for group_id in dict.fromkeys(request.group_ids):
        yield
        found = ctx.services.get(GroupService).describe_consumer(group_id)
        if found is not None:
            groups.append((yield from _described(ctx, found, asks=request.include_authorized_operations)))
        else:
            there = ctx.services.get(GroupService).describe(group_id) is not None
            groups.append(_missing(group_id, "is not a consumer group" if there else "not found"))
    return ConsumerGroupDescribeResponse(throttle_time_ms=0, groups=groups)


def _missing(group_id: str, why: str) -> object:
    fault = Fault.GROUP_ID_NOT_FOUND if group_id else Fault.INVALID_GROUP_ID
    return _Group(
        error_code=code(fault),
        error_message=f"Group {group_id} {why}." if group_id else fault.value,
        group_id=group_id,
        group_state="",
        group_epoch=0,
        assignment_epoch=0,
        assignor_name="",
        members=[],
        authorized_operations=operations.NOT_ASKED,
    )


def _described(ctx: Context, group: ConsumerGroupDescription, *, asks: bool) -> Slices[object]:
    members = []
    for each in group.members:
        members.append(_member(ctx, each))
        yield
    may = allowed(ctx, "group", group.group, GROUP_OPERATIONS) if asks else None
    return _Group(
        error_code=NONE,
        error_message=None,
        group_id=group.group,
        group_state=group.state,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=group.assignor,
        members=members,
        authorized_operations=operations.NOT_ASKED if may is None else bits(may),
    )


def _member(ctx: Context, described: ConsumerMemberDescription) -> object:
    member = described.member
    return _Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=list(member.topics),
        subscribed_topic_regex=member.regex,
        assignment=_partitions(ctx, _Member.Assignment, sorted(member.may_read())),
        target_assignment=_partitions(ctx, _Member.TargetAssignment, described.target),
        member_type=CONSUMER_MEMBER if member.classic is None else CLASSIC_MEMBER,
    )


def _partitions(ctx: Context, kind: Any, places: Iterable[tuple[int, int]]) -> object:
    by_topic: dict[int, list[int]] = {}
    for number, index in places:
        by_topic.setdefault(number, []).append(index)
    topics = [(ctx.core.catalog.by_number.get(number), indexes) for number, indexes in by_topic.items()]
    return kind(
        topic_partitions=[
            kind.TopicPartitions(topic_id=UUID(bytes=topic.id), topic_name=topic.name, partitions=indexes)
            for topic, indexes in topics
            if topic is not None
        ]
    )
