"""ShareGroupDescribe (77): state and members of share groups (KIP-932)."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

from halfmoon.adapters.kafka.durable import tells_state
from halfmoon.adapters.kafka.errors import NONE, code
from halfmoon.adapters.kafka.operations import GROUP_OPERATIONS, NOT_ASKED, allowed, bits
from halfmoon.adapters.kafka.protocol import ShareGroupDescribeResponse, Slices
from halfmoon.adapters.kafka.registry import Context
from halfmoon.errors import Fault
from halfmoon.services.share.service import ShareService

if TYPE_CHECKING:
    from halfmoon.services.share.membership import Assignment, ShareGroup

_Group = ShareGroupDescribeResponse.DescribedGroup
_Member = _Group.Member
_Assignment = _Member.Assignment
_Topic = _Assignment.TopicPartitions

ASSIGNOR = "simple"


@tells_state()
def handle(ctx: Context, request: Any) -> Slices[object]:
    groups = []
    for name in dict.fromkeys(request.group_ids):
        yield
        group = ctx.services.get(ShareService).group(name)
        asks = request.include_authorized_operations
        groups.append(_missing(name) if group is None else _described(ctx, group, asks=asks))
    return ShareGroupDescribeResponse(throttle_time_ms=0, groups=groups)


def _missing(name: str) -> object:
    return _Group(
        error_code=code(Fault.GROUP_ID_NOT_FOUND), error_message=f"Group {name} not found.", group_id=name,
        group_state="", group_epoch=0, assignment_epoch=0, assignor_name="", members=[],
        authorized_operations=NOT_ASKED,
    )  # fmt: skip


def _described(ctx: Context, group: ShareGroup, *, asks: bool) -> object:
    operations = bits(allowed(ctx, "group", group.name, GROUP_OPERATIONS)) if asks else NOT_ASKED
    members = [
        _Member(
            member_id=member.id, rack_id=member.rack, member_epoch=member.epoch, client_id=member.client_id,
            client_host=member.client_host, subscribed_topic_names=sorted(member.topics),
            assignment=_assignment(ctx, member.assigned),
        )
        for member in group.members.values()
    ]  # fmt: skip
    return _Group(
        error_code=NONE, error_message=None, group_id=group.name, group_state=group.state, group_epoch=group.epoch,
        assignment_epoch=group.epoch, assignor_name=ASSIGNOR, members=members, authorized_operations=operations,
    )  # fmt: skip


def _assignment(ctx: Context, assigned: Assignment) -> object:
    topics = []
    for name, partitions in assigned.items():
        topic = ctx.core.catalog.topic(name)
        if topic is not None:
            topics.append(_Topic(topic_id=uuid.UUID(bytes=topic.id), topic_name=name, partitions=list(partitions)))
    return _Assignment(topic_partitions=topics)
