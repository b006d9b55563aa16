"""Kafka's messages as objects: the one module that imports `kafka.protocol` (kafka-python, exact version pinned).

Handlers take their message classes from here by name and never see bytes:

    from halfmoon.adapters.kafka.protocol import MetadataResponse
    MetadataResponse(brokers=[MetadataResponse.MetadataResponseBroker(node_id=0, host="h", port=1, rack=None)], ...)

A field outside the message's version reads as its schema's default and is left out when encoding, so one handler serves
all versions. Traps of these classes: defaults that are lists are shared, so never append to one that you did not set; a
uuid field is a `uuid.UUID` and None when all zeroes; `authorized_operations` fields take None for "not asked".
"""

from __future__ import annotations

from typing import Any

from kafka.protocol.admin.acl import (
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DescribeAclsRequest,
    DescribeAclsResponse,
)
from kafka.protocol.admin.client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from kafka.protocol.admin.cluster import (
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    DescribeClusterRequest,
    DescribeClusterResponse,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from kafka.protocol.admin.configs import (
    AlterConfigsRequest,
    AlterConfigsResponse,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from kafka.protocol.admin.groups import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListGroupsRequest,
    ListGroupsResponse,
)
from kafka.protocol.admin.topics import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from kafka.protocol.admin.transactions import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from kafka.protocol.admin.users import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
from kafka.protocol.api_message import ApiMessage
from kafka.protocol.consumer import (
    FetchRequest,
    FetchResponse,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from kafka.protocol.metadata import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    MetadataRequest,
    MetadataResponse,
)
from kafka.protocol.producer import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    ProduceRequest,
    ProduceResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

from halfmoon.adapters.kafka import schemas
from halfmoon.adapters.kafka.errors import MalformedRequest
from halfmoon.adapters.kafka.schema import Decode, Elements, message_decoder
from halfmoon.adapters.kafka.wire import MAX_ELEMENTS, TRUNCATED


class ConsumerGroupHeartbeatRequest(ApiMessage, load_json=schemas.__name__): ...  # type: ignore[call-arg]


class ConsumerGroupHeartbeatResponse(ApiMessage, load_json=schemas.__name__): ...  # type: ignore[call-arg]


class ConsumerGroupDescribeRequest(ApiMessage, load_json=schemas.__name__): ...  # type: ignore[call-arg]


class ConsumerGroupDescribeResponse(ApiMessage, load_json=schemas.__name__): ...  # type: ignore[call-arg]


class GetTelemetrySubscriptionsRequest(ApiMessage, load_json=schemas.__name__): ...  # type: ignore[call-arg]


class GetTelemetrySubscriptionsResponse(ApiMessage, load_json=schemas.__name__): ...  # type: ignore[call-arg]


class PushTelemetryRequest(ApiMessage, load_json=schemas.__name__): ...  # type: ignore[call-arg]


class PushTelemetryResponse(ApiMessage, load_json=schemas.__name__): ...  # type: ignore[call-arg]


class ShareGroupHeartbeatRequest(ApiMessage, load_json=schemas.__name__): ...  # type: ignore[call-arg]


class ShareGroupHeartbeatResponse(ApiMessage, load_json=schemas.__name__): ...  # type: ignore[call-arg]


class ShareGroupDescribeRequest(ApiMessage, load_json=schemas.__name__): ...  # type: ignore[call-arg]


class ShareGroupDescribeResponse(ApiMessage, load_json=schemas.__name__): ...  # type: ignore[call-arg]


class ShareFetchRequest(ApiMessage, load_json=schemas.__name__): ...  # type: ignore[call-arg]


class ShareFetchResponse(ApiMessage, load_json=schemas.__name__): ...  # type: ignore[call-arg]


class ShareAcknowledgeRequest(ApiMessage, load_json=schemas.__name__): ...  # type: ignore[call-arg]


class ShareAcknowledgeResponse(ApiMessage, load_json=schemas.__name__): ...  # type: ignore[call-arg]


class DescribeShareGroupOffsetsRequest(ApiMessage, load_json=schemas.__name__): ...  # type: ignore[call-arg]


class DescribeShareGroupOffsetsResponse(ApiMessage, load_json=schemas.__name__): ...  # type: ignore[call-arg]


class AlterShareGroupOffsetsRequest(ApiMessage, load_json=schemas.__name__): ...  # type: ignore[call-arg]


class AlterShareGroupOffsetsResponse(ApiMessage, load_json=schemas.__name__): ...  # type: ignore[call-arg]


class DeleteShareGroupOffsetsRequest(ApiMessage, load_json=schemas.__name__): ...  # type: ignore[call-arg]


class DeleteShareGroupOffsetsResponse(ApiMessage, load_json=schemas.__name__): ...  # type: ignore[call-arg]


_MESSAGES: tuple[tuple[Any, Any], ...] = (
    (ProduceRequest, ProduceResponse),
    (FetchRequest, FetchResponse),
    (ListOffsetsRequest, ListOffsetsResponse),
    (MetadataRequest, MetadataResponse),
    (OffsetCommitRequest, OffsetCommitResponse),
    (OffsetFetchRequest, OffsetFetchResponse),
    (FindCoordinatorRequest, FindCoordinatorResponse),
    (JoinGroupRequest, JoinGroupResponse),
    (HeartbeatRequest, HeartbeatResponse),
    (LeaveGroupRequest, LeaveGroupResponse),
    (SyncGroupRequest, SyncGroupResponse),
    (DescribeGroupsRequest, DescribeGroupsResponse),
    (ListGroupsRequest, ListGroupsResponse),
    (ApiVersionsRequest, ApiVersionsResponse),
    (CreateTopicsRequest, CreateTopicsResponse),
    (DeleteTopicsRequest, DeleteTopicsResponse),
    (DeleteRecordsRequest, DeleteRecordsResponse),
    (InitProducerIdRequest, InitProducerIdResponse),
    (OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse),
    (AddPartitionsToTxnRequest, AddPartitionsToTxnResponse),
    (AddOffsetsToTxnRequest, AddOffsetsToTxnResponse),
    (EndTxnRequest, EndTxnResponse),
    (WriteTxnMarkersRequest, WriteTxnMarkersResponse),
    (TxnOffsetCommitRequest, TxnOffsetCommitResponse),
    (DescribeConfigsRequest, DescribeConfigsResponse),
    (AlterConfigsRequest, AlterConfigsResponse),
    (AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse),
    (DescribeLogDirsRequest, DescribeLogDirsResponse),
    (CreatePartitionsRequest, CreatePartitionsResponse),
    (DeleteGroupsRequest, DeleteGroupsResponse),
    (IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse),
    (OffsetDeleteRequest, OffsetDeleteResponse),
    (DescribeClusterRequest, DescribeClusterResponse),
    (DescribeProducersRequest, DescribeProducersResponse),
    (DescribeTransactionsRequest, DescribeTransactionsResponse),
    (ListTransactionsRequest, ListTransactionsResponse),
    (ListConfigResourcesRequest, ListConfigResourcesResponse),
    (DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse),
    (ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse),
    (ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse),
    (CreateAclsRequest, CreateAclsResponse),
    (DeleteAclsRequest, DeleteAclsResponse),
    (DescribeAclsRequest, DescribeAclsResponse),
    (AlterClientQuotasRequest, AlterClientQuotasResponse),
    (DescribeClientQuotasRequest, DescribeClientQuotasResponse),
    (AlterUserScramCredentialsRequest, AlterUserScramCredentialsResponse),
    (DescribeUserScramCredentialsRequest, DescribeUserScramCredentialsResponse),
    (DescribeQuorumRequest, DescribeQuorumResponse),
    (UpdateFeaturesRequest, UpdateFeaturesResponse),
    (ElectLeadersRequest, ElectLeadersResponse),
    (AlterPartitionReassignmentsRequest, AlterPartitionReassignmentsResponse),
    (ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse),
    (GetTelemetrySubscriptionsRequest, GetTelemetrySubscriptionsResponse),
    (PushTelemetryRequest, PushTelemetryResponse),
    (ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse),
    (ShareGroupDescribeRequest, ShareGroupDescribeResponse),
    (ShareFetchRequest, ShareFetchResponse),
    (ShareAcknowledgeRequest, ShareAcknowledgeResponse),
    (DescribeShareGroupOffsetsRequest, DescribeShareGroupOffsetsResponse),
    (AlterShareGroupOffsetsRequest, AlterShareGroupOffsetsResponse),
    (DeleteShareGroupOffsetsRequest, DeleteShareGroupOffsetsResponse),
)

REQUESTS: dict[int, Any] = {request.API_KEY: request for request, _ in _MESSAGES}
RESPONSES: dict[int, Any] = {response.API_KEY: response for _, response in _MESSAGES}

_decoders: dict[tuple[int, int], Decode] = {}


def is_flexible(api_key: int, api_version: int) -> bool:
    """Whether this version's messages carry compact strings and tagged fields (KIP-482)."""
    return bool(REQUESTS[api_key].flexible_version_q(api_version))


def decode_request(api_key: int, api_version: int, body: memoryview) -> Any:
    """The request object of a body (what follows the request header). Raises MalformedRequest.

    Strings and bytes are copied out of `body`. Bytes behind the last field are ignored, as Kafka does.
    """
    decode = _decoders.get((api_key, api_version))
    if len(body) > MAX_ELEMENTS:
        decode = message_decoder(REQUESTS[api_key], api_version, Elements())
    elif decode is None:
        decode = _decoders[(api_key, api_version)] = message_decoder(REQUESTS[api_key], api_version)
    try:
        request, _ = decode(body, 0)
    except TRUNCATED:
        raise MalformedRequest("the request ends before its last field") from None
    return request


def encode_response(api_version: int, response: Any) -> bytearray:
    """The body of a response (without its header) in the version of its request."""
    encoded: bytearray = response.encode(version=api_version)
    return encoded
