"""What topics show among their configurations, in a process that has several shards: how far a view has come.

Each shard knows that of its own partitions. So DescribeConfigs asks them all, wherever a topic is described that shows
something; a value with an element for each partition is put together of those that their owners say.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from halfmoon.adapters.kafka.guards import Handler
from halfmoon.adapters.kafka.late_produce import failed
from halfmoon.adapters.kafka.registry import Context, Deferred
from halfmoon.adapters.kafka.resources import TOPIC_TYPE
from halfmoon.adapters.kafka.shard_asking import AllShards, Answers
from halfmoon.adapters.kafka.shards import Homes, pass_on
from halfmoon.adapters.kafka.shown import ShownEntries
from halfmoon.adapters.kafka.slicing import settled
from halfmoon.adapters.tcp.steps import run_steps
from halfmoon.cluster.messages import AskEntries, EntriesFound

if TYPE_CHECKING:
    from halfmoon.core.catalog.topics import Topic


def describe(_homes: Homes, _response: Any, handler: Handler, ctx: Context, request: Any) -> object:
    """DescribeConfigs."""
    topics = [
        topic
        for each in request.resources
        if each.resource_type == TOPIC_TYPE
        and (topic := ctx.core.catalog.topic(each.resource_name)) is not None
        and topic.view is not None
    ]
    if not topics:
        return handler(ctx, request)
    whole = Deferred()

    def answered(answers: Answers) -> None:
        shown = ctx.services.get(ShownEntries)
        for topic in topics:
            shown.of[topic.number] = _together(topic, answers, shards)
        peer = ctx.peer
        run_steps(
            settled(handler(ctx, request)), peer.in_thread, lambda result: pass_on(result, whole),
            lambda error: whole.complete(failed(ctx, error)), peer.soon,
        )  # fmt: skip

    shards = ctx.services.get(AllShards)
    question = AskEntries([topic.number for topic in topics])
    shards.ask(dict.fromkeys(range(shards.count), question), answered)
    return whole


def _together(topic: Topic, answers: Answers, shards: AllShards) -> Mapping[str, str]:
    by_shard: dict[int, Mapping[str, str]] = {}
    for shard, answer in answers.items():
        if isinstance(answer, EntriesFound):
            by_shard[shard] = dict(answer.rows).get(topic.number, {})
    owners = [shards.shard_of(topic.number, index) for index in range(len(topic.partitions))]
    names = dict.fromkeys(name for entries in by_shard.values() for name in entries)
    return {name: _value([by_shard.get(owner, {}).get(name, "") for owner in owners]) for name in names}


def _value(said: Sequence[str]) -> str:
    """`said`: by partition, the whole value as its owner says it."""
    elements = [value.split(",") for value in said]
    if len(said) > 1 and all(len(each) in (1, len(said)) for each in elements) and any(len(e) > 1 for e in elements):
        return ",".join(each[index] if len(each) > 1 else "" for index, each in enumerate(elements))
    return next((value for value in said if value), "")
