"""Share groups in a process that has several shards.

ShareFetch and ShareAcknowledge: a session is the process's, and may be about partitions of all of its shards. What one
request may get at most it gets of all of them together; it is waited for in all of them. What members hold, and what
became of records, stands in the shard of the partition.

What operators ask is answered by the group's coordinator, which asks the shards of the partitions. Where one of them
cannot be reached, that is told of its partitions, with COORDINATOR_NOT_AVAILABLE: what was changed elsewhere stays so,
and the client asks again. Rules: as of the modules in `api/`, and of Kafka's GroupCoordinatorService, which asks its
share coordinators in the same way (before it deletes a group, too).
"""

from __future__ import annotations

import uuid
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from halfmoon.adapters.kafka.api import api_78_share_fetch, api_79_share_acknowledge
from halfmoon.adapters.kafka.api import api_90_describe_share_group_offsets as describing
from halfmoon.adapters.kafka.api import api_91_alter_share_group_offsets as altering
from halfmoon.adapters.kafka.api import api_92_delete_share_group_offsets as deleting
from halfmoon.adapters.kafka.durable import refuse
from halfmoon.adapters.kafka.errors import NONE
from halfmoon.adapters.kafka.group_errors import coordinator_code
from halfmoon.adapters.kafka.guards import Handler, after
from halfmoon.adapters.kafka.lookup import partition_of, topic_named
from halfmoon.adapters.kafka.protocol import DeleteGroupsResponse, DescribeShareGroupOffsetsResponse, Slices
from halfmoon.adapters.kafka.refusals import joined
from halfmoon.adapters.kafka.registry import Context, Deferred
from halfmoon.adapters.kafka.shard_asking import AllShards, Answers, refusals
from halfmoon.adapters.kafka.shards import Homes, when_all
from halfmoon.adapters.kafka.share_groups import Ledger
from halfmoon.adapters.kafka.slicing import settled
from halfmoon.adapters.tcp.steps import run_steps
from halfmoon.cluster.messages import ForgetShare, ForgetShareGroups, ResetShare, ShareOffsets, ShareOffsetsFound
from halfmoon.errors import BrokerError
from halfmoon.services.share.service import ShareService

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from halfmoon.core.catalog.topics import Partition

# -- members -----------------------------------------------------------------------------------------------------------


class ShardLedgers:
    """As of share_groups."""

    def __init__(self, homes: Homes) -> None:
        self._homes = homes
        self.confirm = homes.confirm

    def of(self, partition: Partition) -> Ledger:
        home = self._homes.home_of(partition.topic, partition.index)
        return Ledger(home.core, home.services.get(ShareService).delivery)

    def check_name(self, group: str) -> None:
        try:
            coordinator = self._homes.coordinator(group)
        except BrokerError:
            return  # another process knows it, and has told the member, which has joined there
        coordinator.services.get(ShareService).check_name(group)


def fetch(homes: Homes, _response: Any, _handler: Handler, ctx: Context, body: Any) -> object:
    return api_78_share_fetch.fetch(ctx, body, ShardLedgers(homes))


def acknowledge(homes: Homes, _response: Any, _handler: Handler, ctx: Context, request: Any) -> object:
    return api_79_share_acknowledge.acknowledge(ctx, request, ShardLedgers(homes))


# -- operators: in the shard of the coordinator ------------------------------------------------------------------------


def describe_offsets(ctx: Context, request: Any) -> Slices[object]:
    """DescribeShareGroupOffsets."""
    groups = []
    for asked in request.groups:
        groups.append(_described(ctx, asked))
        yield
    return when_all(groups, lambda found: DescribeShareGroupOffsetsResponse(groups=found))


def _described(ctx: Context, asked: Any) -> object:
    shards = ctx.services.get(AllShards)
    catalog = ctx.core.catalog
    if asked.topics is None:
        questions = {shard: ShareOffsets(asked.group_id, None) for shard in range(shards.count)}
    else:
        numbers = {topic.topic_name: catalog.topic(topic.topic_name) for topic in asked.topics}
        places = [
            (known.number, index)
            for topic in asked.topics
            if (known := numbers[topic.topic_name]) is not None
            for index in topic.partitions
            if 0 <= index < len(known.partitions)
        ]
        questions = {shard: ShareOffsets(asked.group_id, some) for shard, some in shards.by_shard(places).items()}

    def told(answers: Answers) -> object:
        for error in refusals(answers).values():
            group = describing.group(asked.group_id, [])
            refuse(group, error)
            return group
        rows: dict[tuple[int, int], tuple[int, int, int]] = {}
        for answer in answers.values():
            assert isinstance(answer, ShareOffsetsFound)
            rows.update({(number, index): (start, epoch, lag) for number, index, start, epoch, lag in answer.rows})
        return describing.group(asked.group_id, _topics(ctx, asked, rows))

    return shards.ask(questions, told)


def _topics(ctx: Context, asked: Any, rows: Mapping[tuple[int, int], tuple[int, int, int]]) -> list[object]:
    catalog = ctx.core.catalog
    wanted: Iterable[tuple[str, Iterable[int]]]
    if asked.topics is None:
        looked_at: dict[str, list[int]] = {}
        for number, index in sorted(rows):
            topic = catalog.by_number.get(number)
            if topic is not None:
                looked_at.setdefault(topic.name, []).append(index)
        wanted = sorted(looked_at.items())
    else:
        wanted = [(topic.topic_name, topic.partitions) for topic in asked.topics]
    topics = []
    for name, indexes in wanted:
        topic = catalog.topic(name)
        parts = []
        for index in indexes:
            try:
                partition_of(topic, index)
            except BrokerError as error:
                parts.append(describing.part(index, error=error))
                continue
            assert topic is not None
            parts.append(describing.part(index, *rows.get((topic.number, index), ())))
        topics.append(describing.topic(topic, name, parts))
    return topics


def alter_offsets(ctx: Context, request: Any) -> Slices[object]:
    """AlterShareGroupOffsets."""
    shards, shares = ctx.services.get(AllShards), ctx.services.get(ShareService)
    response = altering.response()
    try:
        shares.check_name(request.group_id)
        shares.check_empty(request.group_id)
    except BrokerError as error:
        refuse(response, error)
        return response
    starts: dict[int, list[tuple[int, int, int]]] = {}
    changed: dict[int, list[Any]] = {}
    for topic, part, partition, offset in (yield from altering.checked(ctx, request, response)):
        shard = shards.shard_of(topic.number, partition.index)
        starts.setdefault(shard, []).append((topic.number, partition.index, offset))
        changed.setdefault(shard, []).append(part)
    if starts:
        try:
            shares.make(request.group_id)
        except BrokerError as error:
            return altering.fail(response, error)
    asked = shards.ask({shard: ResetShare(request.group_id, some) for shard, some in starts.items()}, refusals)

    def told(found: list[Any]) -> object:
        refused, unwritten = found
        for shard, error in refused.items():
            for part in changed[shard]:
                refuse(part, error)
        return response if unwritten is None else altering.fail(response, unwritten)

    return when_all([asked, _durable(ctx)], told)


def delete_offsets(ctx: Context, request: Any) -> Slices[object]:
    """DeleteShareGroupOffsets."""
    shards, shares = ctx.services.get(AllShards), ctx.services.get(ShareService)
    response = deleting.response()
    try:
        shares.check_changeable(request.group_id)
    except BrokerError as error:
        refuse(response, error)
    places: dict[tuple[int, int], Any] = {}
    for asked in request.topics if response.error_code == NONE else ():
        yield
        result = deleting.result(asked.topic_name)
        response.responses.append(result)
        try:
            topic = topic_named(ctx.core, asked.topic_name)
        except BrokerError as error:
            refuse(result, error)
            continue
        result.topic_id = uuid.UUID(bytes=topic.id)
        places |= {(topic.number, index): result for index in range(len(topic.partitions))}
    by_shard = shards.by_shard(places)
    asking = shards.ask({shard: ForgetShare(request.group_id, some) for shard, some in by_shard.items()}, refusals)

    def told(found: list[Any]) -> object:
        refused, unwritten = found
        for shard, error in refused.items():
            for place in by_shard[shard]:
                refuse(places[place], error)
        return response if unwritten is None else deleting.fail(response, unwritten)

    return when_all([asking, _durable(ctx)], told)


def _durable(ctx: Context) -> Deferred:
    """None once the coordinator's log is durable, or why it never will be."""
    return ctx.after(ctx.core.turn.state_position, None, lambda error: error)


def delete_groups(handler: Handler, ctx: Context, request: Any) -> Slices[object]:
    """DeleteGroups: what other shards know of share groups goes first, as in Kafka. A group of which that cannot be
    said stays."""
    shares = ctx.services.find(ShareService)
    groups = []
    for group in dict.fromkeys(request.groups_names):
        if shares is not None:
            with suppress(BrokerError):  # the handler will say so
                shares.check_changeable(group)
                groups.append(group)
        yield
    if not groups:
        return (yield from settled(handler(ctx, request)))
    shards = ctx.services.get(AllShards)
    state = ctx.core.catalog.shard
    mine = -1 if state is None else state.number
    whole = Deferred()

    def told(answers: Answers) -> None:
        denied = []
        for error in refusals(answers).values():
            denied = [_undeleted(group, error) for group in groups]
            request.groups_names = [name for name in request.groups_names if name not in groups]
            break
        if denied and not request.groups_names:
            whole.complete(DeleteGroupsResponse(results=denied))
            return

        def answered(answer: object) -> None:
            made = after(answer, lambda made: joined(made, "results", denied))
            if isinstance(made, Deferred):
                made.then(whole.complete)
            else:
                whole.complete(made)

        def failed(error: Exception) -> None:
            names = dict.fromkeys(request.groups_names)
            whole.complete(DeleteGroupsResponse(results=[*denied, *(_undeleted(name, error) for name in names)]))

        run_steps(settled(handler(ctx, request)), ctx.peer.in_thread, answered, failed, ctx.peer.soon)

    others = (shard for shard in range(shards.count) if shard != mine)
    shards.ask({shard: ForgetShareGroups(groups) for shard in others}, told)
    return whole


def _undeleted(group: str, error: Exception) -> Any:
    return DeleteGroupsResponse.DeletableGroupResult(group_id=group, error_code=coordinator_code(error))
