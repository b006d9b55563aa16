"""What is answered in place of what a plugin refuses (hook `halfmoon_authorize`), by API.

Each is a function (response's class, request or item, error) → the answer, or a result to be put into it. Rules: the
requests' getErrorResponse, and KafkaApis where it makes results by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from halfmoon.adapters.kafka.errors import code
from halfmoon.adapters.kafka.offset_commit_answer import OffsetCommitAnswer, PartitionResult, TopicResult
from halfmoon.errors import BrokerError

Refused = Callable[[Any, Any, BrokerError], Any]
_Inner = Callable[[Any], Any]
"""The class of something inside an answer, from the class of what it is in."""


def put_error(result: Any, error: BrokerError) -> None:
    """The code, and what the error says where the result has room for it: clients show it to their users."""
    result.error_code = code(error.fault)
    if hasattr(result, "error_message"):
        result.error_message = error.message


def joined(answer: Any, field: str, more: Iterable[Any]) -> Any:
    """The answer with more in one of its lists, which may be a default that others share."""
    setattr(answer, field, [*(getattr(answer, field) or ()), *more])
    return answer


def at_the_top(response: Any, _request: Any, error: BrokerError) -> Any:
    """The code at the top of the answer, and nothing else."""
    answer = response()
    put_error(answer, error)
    return answer


def result(kind: _Inner, field: str, of: str | None = None) -> Refused:
    """A result with a code of its own, named as the item is: by the item's field `of`, or by the item itself."""

    def refused(response: Any, item: Any, error: BrokerError) -> Any:
        made = kind(response)(**{field: item if of is None else getattr(item, of)})
        put_error(made, error)
        return made

    return refused


def topic(
    kind: _Inner, part: _Inner, *, name: str = "name", of: str = "name", parts: str = "partitions",
    asked: str = "partitions", index: str = "partition_index", **fields: Any,
) -> Refused:  # fmt: skip
    """A topic each of whose partitions has the code. `asked` are the partitions in the request: numbers, or items whose
    field `index` is one. `name`, `parts` and `index` are the answer's fields, and `fields` those of its partitions."""

    def refused(response: Any, item: Any, error: BrokerError) -> Any:
        made = kind(response)
        results = []
        for each in getattr(item, asked):
            found = part(made)(**{index: each if isinstance(each, int) else getattr(each, index)}, **fields)
            put_error(found, error)
            results.append(found)
        return made(**{name: getattr(item, of), parts: results})

    return refused


def everything(field: str, into: str, refused: Refused, *, top: bool = False) -> Refused:
    """Every item of the request with the code; and the answer itself, where it has one."""

    def answer(response: Any, request: Any, error: BrokerError) -> Any:
        made = at_the_top(response, request, error) if top else response()
        return joined(made, into, [refused(response, item, error) for item in getattr(request, field) or ()])

    return answer


def offset_commit_answer() -> OffsetCommitAnswer:
    return OffsetCommitAnswer([])


def offset_commit_topic(_response: Any, item: Any, error: BrokerError) -> TopicResult:
    parts = [PartitionResult(part.partition_index, code(error.fault)) for part in item.partitions]
    return TopicResult(item.name, item.topic_id, parts)


def no_coordinator(response: Any, _request: Any, error: BrokerError) -> Any:
    return response(error_code=code(error.fault), error_message=error.message, node_id=-1, host="", port=-1)


def no_coordinator_of(response: Any, key: str, error: BrokerError) -> Any:
    made = no_coordinator(response.Coordinator, None, error)
    made.key = key
    return made


def no_quotas(response: Any, request: Any, error: BrokerError) -> Any:
    answer = at_the_top(response, request, error)
    answer.entries = None
    return answer


def quota_entry(response: Any, entry: Any, error: BrokerError) -> Any:
    kind = response.EntryData
    parts = [kind.EntityData(entity_type=each.entity_type, entity_name=each.entity_name) for each in entry.entity]
    made = kind(entity=parts)
    put_error(made, error)
    return made


def config_resource(response: Any, resource: Any, error: BrokerError) -> Any:
    describes = response.name == "DescribeConfigsResponse"
    kind = response.DescribeConfigsResult if describes else response.AlterConfigsResourceResponse
    made = kind(resource_type=resource.resource_type, resource_name=resource.resource_name)
    put_error(made, error)
    return made


def credentials(response: Any, request: Any, error: BrokerError) -> Any:
    """AlterUserScramCredentials: every user once."""
    users = sorted({each.name for each in (*request.deletions, *request.upsertions)})
    user = result(lambda response: response.AlterUserScramCredentialsResult, "user")
    return response(results=[user(response, name, error) for name in users])


def no_user(response: Any, _item: Any, error: BrokerError) -> Any:
    """DescribeUserScramCredentials: a result for each, without the name."""
    made = response.DescribeUserScramCredentialsResult(user="")
    put_error(made, error)
    return made


def moves(response: Any, request: Any, error: BrokerError) -> Any:
    """AlterReplicaLogDirs: every partition of every directory."""
    moved = topic(
        lambda response: response.AlterReplicaLogDirTopicResult,
        lambda topic: topic.AlterReplicaLogDirPartitionResult,
        name="topic_name",
    )
    return response(results=[moved(response, each, error) for asked in request.dirs for each in asked.topics])


def markers(response: Any, request: Any, error: BrokerError) -> Any:
    """WriteTxnMarkers: every partition of every marker."""
    kind = response.WritableTxnMarkerResult
    marked = topic(
        lambda marker: marker.WritableTxnMarkerTopicResult,
        lambda topic: topic.WritableTxnMarkerPartitionResult,
        asked="partition_indexes",
    )
    return response(
        markers=[
            kind(producer_id=each.producer_id, topics=[marked(kind, asked, error) for asked in each.topics])
            for each in request.markers
        ]
    )


def added_topic(response: Any, item: Any, error: BrokerError) -> Any:
    """AddPartitionsToTxn's results, whose code has a name of its own."""
    kind = response.AddPartitionsToTxnTopicResult
    part = kind.AddPartitionsToTxnPartitionResult
    parts = [part(partition_index=index, partition_error_code=code(error.fault)) for index in item.partitions]
    return kind(name=item.name, results_by_partition=parts)


def no_offsets(kind: Any, part: Any, item: Any, error: BrokerError) -> Any:
    """OffsetFetch: a topic whose partitions have the code in place of an offset."""
    parts = [
        part(partition_index=index, committed_offset=-1, metadata="", error_code=code(error.fault))
        for index in item.partition_indexes
    ]
    made = kind(name=item.name or "", partitions=parts)
    if hasattr(item, "topic_id"):
        made.topic_id = item.topic_id
    return made


DESCRIBED_GROUP = result(lambda response: response.DescribedGroup, "group_id")
OFFSETS_NOT_COMMITTED = everything("topics", "topics", offset_commit_topic)
txn_offset_commit_topic = topic(
    lambda response: response.TxnOffsetCommitResponseTopic, lambda topic: topic.TxnOffsetCommitResponsePartition
)
TXN_OFFSETS_NOT_COMMITTED = everything("topics", "topics", txn_offset_commit_topic)

ANSWERS: Mapping[int, Any] = {8: offset_commit_answer}
"""By API key, those that are made by hand. The others are of kafka-python's classes."""
