"""What each API needs: which operation on which resource, and what is answered where a plugin refuses it.

    API key → its guards; the first asks first

Each API of ours has its line in `NEEDS`, and one without stops the start. `IN_ITS_HANDLER` are those that ask by
themselves (`Context.check`), because their bodies are read by hand or because what they need turns up as they go. One
refused topic leaves the others of a request alone, and whether a refused topic exists is not said.

Operations and resource types are Kafka's AclOperation and ResourceType in lower case. What one operation implies about
another (who may read may describe) is the plugin's to say.

Rules: KafkaApis, ControllerApis, ConfigHelper and AuthHelper of Apache Kafka 4.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from inspect import isgeneratorfunction

from halfmoon.adapters.kafka import refusals
from halfmoon.adapters.kafka.api_guards import (
    add_partitions,
    check_leader_epochs,
    check_markers,
    check_producer,
    check_subscribed,
    configs,
    describe_cluster,
    described_members,
    described_transactions,
    find_coordinator,
    list_groups,
    of_group,
    offset_delete,
    offset_fetch,
    share_offsets,
    transactional_id,
)
from halfmoon.adapters.kafka.guards import (
    Guard,
    Handler,
    afterwards,
    called,
    cluster,
    each,
    each_by,
    itself,
    shown,
    topic_called,
    whole_by,
)
from halfmoon.adapters.kafka.protocol import RESPONSES
from halfmoon.adapters.kafka.refusals import at_the_top, everything, result, topic
from halfmoon.adapters.kafka.routes import Route

_DESCRIBED = refusals.DESCRIBED_GROUP
_REASSIGNED = topic(
    lambda response: response.ReassignableTopicResponse, lambda topic: topic.ReassignablePartitionResponse
)
_ELECTED = topic(
    lambda response: response.ReplicaElectionResult, lambda topic: topic.PartitionResult,
    name="topic", of="topic", parts="partition_result", index="partition_id",
)  # fmt: skip

Guards = tuple[Guard, ...]
NOTHING: Guards = ()
IN_ITS_HANDLER: Guards = ()

NEEDS: Mapping[int, Guards] = {
    0: IN_ITS_HANDLER,
    1: IN_ITS_HANDLER,
    2: (
        each("topics", "describe", "topic", called("name"), "topics", topic(
            lambda response: response.ListOffsetsTopicResponse, lambda topic: topic.ListOffsetsPartitionResponse,
            offset=-1, timestamp=-1,
        )),
    ),
    3: IN_ITS_HANDLER,
    8: (
        of_group("read", refusals.OFFSETS_NOT_COMMITTED),
        each("topics", "read", "topic", topic_called("name"), "topics", refusals.offset_commit_topic),
    ),
    9: (offset_fetch,),
    10: (find_coordinator,),
    11: (of_group("read"),),
    12: (of_group("read"),),
    13: (of_group("read"),),
    14: (of_group("read"),),
    15: (each("groups", "describe", "group", itself, "groups", _DESCRIBED),),
    16: (afterwards(list_groups),),
    17: NOTHING,
    18: NOTHING,
    19: IN_ITS_HANDLER,
    20: IN_ITS_HANDLER,
    21: (
        each("topics", "delete", "topic", called("name"), "topics", topic(
            lambda response: response.DeleteRecordsTopicResult, lambda topic: topic.DeleteRecordsPartitionResult,
            low_watermark=-1,
        )),
    ),
    22: (whole_by(check_producer),),
    23: (
        each_by("topics", check_leader_epochs, "topics", topic(
            lambda response: response.OffsetForLeaderTopicResult, lambda topic: topic.EpochEndOffset,
            name="topic", of="topic", index="partition",
        )),
    ),
    24: (add_partitions,),
    25: (transactional_id(), of_group("read")),
    26: (transactional_id(),),
    27: (whole_by(check_markers, refusals.markers),),
    28: (
        transactional_id(refusals.TXN_OFFSETS_NOT_COMMITTED),
        of_group("read", refusals.TXN_OFFSETS_NOT_COMMITTED),
        each("topics", "read", "topic", called("name"), "topics", refusals.txn_offset_commit_topic),
    ),
    29: (cluster("describe"),),
    30: (
        cluster("alter", everything("creations", "results", lambda response, _, error: at_the_top(
            response.AclCreationResult, None, error
        ))),
    ),
    31: (
        cluster("alter", everything("filters", "filter_results", lambda response, _, error: at_the_top(
            response.DeleteAclsFilterResult, None, error
        ))),
    ),
    32: (configs("describe_configs", "results"),),
    33: (configs("alter_configs", "responses"),),
    34: (cluster("alter", refusals.moves),),
    35: (cluster("describe"),),
    36: NOTHING,
    37: (
        each("topics", "alter", "topic", called("name"), "results", result(
            lambda response: response.CreatePartitionsTopicResult, "name", "name"
        )),
    ),
    38: IN_ITS_HANDLER,
    39: IN_ITS_HANDLER,
    40: IN_ITS_HANDLER,
    41: IN_ITS_HANDLER,
    42: (
        each("groups_names", "delete", "group", itself, "results", result(
            lambda response: response.DeletableGroupResult, "group_id"
        )),
    ),
    43: (cluster("alter", everything("topic_partitions", "replica_election_results", _ELECTED, top=True)),),
    44: (configs("alter_configs", "responses"),),
    45: (cluster("alter", everything("topics", "responses", _REASSIGNED, top=True)),),
    46: (cluster("describe"),),
    47: (of_group("delete"), offset_delete),
    48: (cluster("describe_configs", refusals.no_quotas),),
    49: (cluster("alter_configs", everything("entries", "entries", refusals.quota_entry)),),
    50: (cluster("describe", everything("users", "results", refusals.no_user, top=True)),),
    51: (cluster("alter", refusals.credentials),),
    55: (cluster("describe"),),
    57: (cluster("alter"),),
    60: (afterwards(describe_cluster),),
    61: (
        each("topics", "read", "topic", called("name"), "topics", topic(
            lambda response: response.TopicResponse, lambda topic: topic.PartitionResponse, asked="partition_indexes"
        )),
    ),
    65: (
        each("transactional_ids", "describe", "transactional_id", itself, "transaction_states", result(
            lambda response: response.TransactionState, "transactional_id"
        )),
        afterwards(described_transactions),
    ),
    66: (shown("transaction_states", "describe", "transactional_id", lambda state: state.transactional_id),),
    68: (of_group("read"), whole_by(check_subscribed)),
    69: (
        each("group_ids", "describe", "group", itself, "groups", _DESCRIBED),
        afterwards(described_members),
    ),
    71: NOTHING,
    72: NOTHING,
    74: (cluster("describe_configs"),),
    75: IN_ITS_HANDLER,
    76: (of_group("read"), whole_by(check_subscribed)),
    77: (
        each("group_ids", "describe", "group", itself, "groups", _DESCRIBED),
        afterwards(described_members),
    ),
    78: IN_ITS_HANDLER,
    79: (of_group("read"),),  # and topics in its handler
    90: (
        each("groups", "describe", "group", called("group_id"), "groups", result(
            lambda response: response.DescribeShareGroupOffsetsResponseGroup, "group_id", "group_id"
        )),
        share_offsets,
    ),
    91: (
        of_group("read"),
        each("topics", "read", "topic", called("topic_name"), "responses", topic(
            lambda response: response.AlterShareGroupOffsetsResponseTopic,
            lambda topic: topic.AlterShareGroupOffsetsResponsePartition, name="topic_name", of="topic_name",
        )),
    ),
    92: (
        of_group("delete"),
        each("topics", "read", "topic", called("topic_name"), "responses", result(
            lambda response: response.DeleteShareGroupOffsetsResponseTopic, "topic_name", "topic_name"
        )),
    ),
    18502: IN_ITS_HANDLER,
    18503: IN_ITS_HANDLER,
    18504: IN_ITS_HANDLER,
    18506: IN_ITS_HANDLER,
    18508: IN_ITS_HANDLER,
}  # fmt: skip
"""By API key. An API of a plugin's own is the plugin's to guard, and has no line here."""


def guarded(routes: dict[int, Route], others: Iterable[int] = ()) -> dict[int, Route]:
    """The routes, which first ask what their line in `NEEDS` says, but for those of the `others`, which are keys.
    Raises KeyError for one without a line."""
    keys = frozenset(others)
    return {
        number: route
        if route.key in keys
        else route.handled_by(guard_of(route), sliced=route.sliced or any(map(isgeneratorfunction, NEEDS[route.key])))
        for number, route in routes.items()
    }


def guard_of(route: Route) -> Handler:
    """A route's handler behind its guards."""
    handler = route.handler
    for guard in reversed(NEEDS[route.key]):
        handler = partial(guard, refusals.ANSWERS.get(route.key, RESPONSES[route.key]), handler)
    return handler
