"""Kafka's messages by their names and their API keys.

    MetadataResponse = message("MetadataResponse")
    MetadataResponse(brokers=[MetadataResponse.MetadataResponseBroker(node_id=0, host="h", port=1)], …)

A message's definition is read when somebody first uses it, and its codec for a version is made then: a broker that has
just started has read none.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

from msgspec import Struct

from halfmoon.kafka_wire import definition, slices
from halfmoon.kafka_wire.decoding import Count, Decode, message_decoder
from halfmoon.kafka_wire.encoding import Encode, message_encoder
from halfmoon.kafka_wire.errors import MalformedRequest
from halfmoon.kafka_wire.primitives import TRUNCATED
from halfmoon.kafka_wire.records import Record, make_types
from halfmoon.kafka_wire.slices import EncodeSlices


class Api(Struct, frozen=True):
    """A request and its response."""

    key: int
    name: str
    last_version: int
    """That the definition knows; the broker may offer fewer."""
    flexible_since: int | None
    """The first version with compact strings and tagged fields (KIP-482)."""

    def is_flexible(self, version: int) -> bool:
        return self.flexible_since is not None and version >= self.flexible_since


APIS = (
    Api(0, "Produce", 13, 9),
    Api(1, "Fetch", 18, 12),
    Api(2, "ListOffsets", 11, 6),
    Api(3, "Metadata", 13, 9),
    Api(8, "OffsetCommit", 10, 8),
    Api(9, "OffsetFetch", 10, 6),
    Api(10, "FindCoordinator", 6, 3),
    Api(11, "JoinGroup", 9, 6),
    Api(12, "Heartbeat", 4, 4),
    Api(13, "LeaveGroup", 5, 4),
    Api(14, "SyncGroup", 5, 4),
    Api(15, "DescribeGroups", 6, 5),
    Api(16, "ListGroups", 5, 3),
    Api(17, "SaslHandshake", 1, None),
    Api(18, "ApiVersions", 4, 3),
    Api(19, "CreateTopics", 7, 5),
    Api(20, "DeleteTopics", 6, 4),
    Api(21, "DeleteRecords", 2, 2),
    Api(22, "InitProducerId", 6, 2),
    Api(23, "OffsetForLeaderEpoch", 4, 4),
    Api(24, "AddPartitionsToTxn", 5, 3),
    Api(25, "AddOffsetsToTxn", 4, 3),
    Api(26, "EndTxn", 5, 3),
    Api(27, "WriteTxnMarkers", 2, 1),
    Api(28, "TxnOffsetCommit", 5, 3),
    Api(29, "DescribeAcls", 3, 2),
    Api(30, "CreateAcls", 3, 2),
    Api(31, "DeleteAcls", 3, 2),
    Api(32, "DescribeConfigs", 4, 4),
    Api(33, "AlterConfigs", 2, 2),
    Api(34, "AlterReplicaLogDirs", 2, 2),
    Api(35, "DescribeLogDirs", 5, 2),
    Api(36, "SaslAuthenticate", 2, 2),
    Api(37, "CreatePartitions", 3, 2),
    Api(38, "CreateDelegationToken", 3, 2),
    Api(39, "RenewDelegationToken", 2, 2),
    Api(40, "ExpireDelegationToken", 2, 2),
    Api(41, "DescribeDelegationToken", 3, 2),
    Api(42, "DeleteGroups", 2, 2),
    Api(43, "ElectLeaders", 2, 2),
    Api(44, "IncrementalAlterConfigs", 1, 1),
    Api(45, "AlterPartitionReassignments", 1, 0),
    Api(46, "ListPartitionReassignments", 0, 0),
    Api(47, "OffsetDelete", 0, None),
    Api(48, "DescribeClientQuotas", 1, 1),
    Api(49, "AlterClientQuotas", 1, 1),
    Api(50, "DescribeUserScramCredentials", 0, 0),
    Api(51, "AlterUserScramCredentials", 0, 0),
    Api(55, "DescribeQuorum", 2, 0),
    Api(57, "UpdateFeatures", 2, 0),
    Api(60, "DescribeCluster", 2, 0),
    Api(61, "DescribeProducers", 0, 0),
    Api(65, "DescribeTransactions", 0, 0),
    Api(66, "ListTransactions", 2, 0),
    Api(68, "ConsumerGroupHeartbeat", 1, 0),
    Api(69, "ConsumerGroupDescribe", 1, 0),
    Api(71, "GetTelemetrySubscriptions", 0, 0),
    Api(72, "PushTelemetry", 0, 0),
    Api(74, "ListConfigResources", 1, 0),
    Api(75, "DescribeTopicPartitions", 0, 0),
    Api(76, "ShareGroupHeartbeat", 1, 0),
    Api(77, "ShareGroupDescribe", 1, 0),
    Api(78, "ShareFetch", 2, 0),
    Api(79, "ShareAcknowledge", 2, 0),
    Api(90, "DescribeShareGroupOffsets", 1, 0),
    Api(91, "AlterShareGroupOffsets", 0, 0),
    Api(92, "DeleteShareGroupOffsets", 0, 0),
)
_BY_NAME = {api.name: api for api in APIS}


class Part:
    """A struct of a message, for code that names it before the message is used: called, it makes an object."""

    def __init__(self, whole: Message, name: str) -> None:
        self._whole = whole
        self._name = name

    def __call__(self, **fields: Any) -> Any:
        return self.type(**fields)

    @cached_property
    def type(self) -> type[Record]:
        """The class of its objects."""
        found: type[Record] = self._whole.types[self._name]
        return found

    def __getattr__(self, name: str) -> Part:
        """A struct in it."""
        if not name[0].isupper():
            raise AttributeError(f"{self._name} has no {name}")
        return Part(self._whole, name)


class Message:
    """One message in all versions: the class of its objects, and its codec. Called, it makes an object.

    Its structs are attributes by their names: a `Part`, or the class once the definition has been read.
    """

    fields: definition.Fields
    type: type[Record]
    types: dict[str, Any]
    """The class of its objects, and those of its structs, by their names."""

    def __init__(self, api: Api, part: str) -> None:
        """`part`: "Request" or "Response"."""
        self.api = api
        self.name = api.name + part
        self._part = part
        self._decoders: dict[int, Decode] = {}
        self._encoders: dict[int, Encode] = {}
        self._slicing: dict[int, EncodeSlices] = {}

    def __call__(self, **fields: Any) -> Any:
        return self.type(**fields)

    def __getattr__(self, name: str) -> Any:
        """Only what is not there yet comes here."""
        if "fields" in self.__dict__ or not (name[0].isupper() or name in ("fields", "type", "types")):
            raise AttributeError(f"{self.name} has no {name}")
        if name[0].isupper():
            return Part(self, name)
        request, response = definition.read(self.api.name)
        fields = request if self._part == "Request" else response
        types = make_types(fields)
        types[self.name].encode = lambda record, version: self.encoder(version)(record)
        types[self.name].encode_slices = lambda record, version: self.encoder_in_slices(version)(record)
        self.__dict__.update(types, fields=fields, type=types[self.name], types=types)
        return getattr(self, name)

    def load(self) -> None:
        """Read the definition, unless it has been read."""
        self.type  # noqa: B018

    def __repr__(self) -> str:
        return f"<{self.name}>"

    def decoder(self, version: int, count: Count | None = None) -> Decode:
        """What reads a version. With `count` (see `decoding.message_decoder`) it is made anew each time."""
        if count is not None:
            return message_decoder(self.fields, version, self.api.is_flexible(version), count)
        found = self._decoders.get(version)
        if found is None:
            found = self._decoders[version] = message_decoder(self.fields, version, self.api.is_flexible(version))
        return found

    def decode(self, body: memoryview, version: int, count: Count | None = None) -> Any:
        """The object of a body: what follows the header. Raises MalformedRequest.

        Strings and bytes are copied out of it. Bytes behind the last field are ignored, as Kafka does.
        """
        try:
            found, _ = self.decoder(version, count)(body, 0)
        except TRUNCATED:
            raise MalformedRequest(f"{self.name} ends before its last field") from None
        return found

    def decode_slices(self, body: memoryview, version: int, count: Count) -> slices.Slices[Any]:
        """As `decode`, in slices, for a large body."""
        decoder = slices.message_decoder(self.fields, version, self.api.is_flexible(version), count)
        try:
            found, _ = yield from decoder(body, 0)
        except TRUNCATED:
            raise MalformedRequest(f"{self.name} ends before its last field") from None
        return found

    def encoder_in_slices(self, version: int) -> EncodeSlices:
        """What writes a version in slices and pieces."""
        found = self._slicing.get(version)
        if found is None:
            flexible = self.api.is_flexible(version)
            found = self._slicing[version] = slices.message_encoder(self.fields, version, flexible)
        return found

    def encoder(self, version: int) -> Encode:
        """What writes a version."""
        found = self._encoders.get(version)
        if found is None:
            found = self._encoders[version] = message_encoder(self.fields, version, self.api.is_flexible(version))
        return found


REQUESTS = {api.key: Message(api, "Request") for api in APIS}
RESPONSES = {api.key: Message(api, "Response") for api in APIS}


def message(name: str) -> Message:
    """By its name, as `MetadataRequest`. Raises KeyError."""
    if name.endswith("Request"):
        return REQUESTS[_BY_NAME[name.removesuffix("Request")].key]
    return RESPONSES[_BY_NAME[name.removesuffix("Response")].key]
