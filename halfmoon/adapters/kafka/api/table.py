"""Every API that there is: its key, its name, its versions, and what it needs. ApiVersions says the same.

The function `handle` of the module that is named after the key and the name answers. A module is imported when it is
first called, or when a broker that has started has nothing else to do (server/warming.py): all of them together would
be a twentieth of the start. The four that every client calls are there from the beginning.
"""

from __future__ import annotations

from typing import Any, Final

from halfmoon.adapters.kafka.api import api_00_produce, api_01_fetch, api_03_metadata, api_18_api_versions
from halfmoon.adapters.kafka.registry import Api, Handler, OnDemand
from halfmoon.hooks.features import NackedMessages
from halfmoon.hooks.schedules import Schedules
from halfmoon.services.acls.service import AccessRules
from halfmoon.services.configs.client_metrics import ClientMetrics
from halfmoon.services.configs.dynamic import DynamicConfigs
from halfmoon.services.credentials.users import Users
from halfmoon.services.delays.service import Delays
from halfmoon.services.groups.names import GroupNames
from halfmoon.services.groups.service import GroupService
from halfmoon.services.keyindex.messages import Messages
from halfmoon.services.quotas.service import Quotas
from halfmoon.services.security import SecurityAnswers
from halfmoon.services.share.service import ShareService
from halfmoon.services.transactions.service import TransactionService

GROUPS: Final = (GroupService,)
SHARES: Final = (ShareService,)
TRANSACTIONS: Final = (TransactionService,)

AT_ONCE: Final[dict[int, Handler]] = {
    0: api_00_produce.handle,
    1: api_01_fetch.handle,
    3: api_03_metadata.handle,
    18: api_18_api_versions.handle,
}


def _api(
    key: int,
    name: str,
    first: int,
    last: int,
    *,
    raw: bool = False,
    sliced: bool = False,
    services: tuple[type[Any], ...] = (),
    any_of: tuple[type[Any], ...] = (),
    own: bool = False,
) -> Api:
    handler = AT_ONCE.get(key)
    if handler is None:
        words = "".join(
            f"_{letter.lower()}" if letter.isupper() else letter for letter in name.removeprefix("Halfmoon")
        )
        handler = OnDemand(f"{__package__}.api_{key:02}{words}")
    return Api(key, name, first, last, handler, raw, own, services, any_of, sliced)


APIS: Final = {
    each.key: each
    for each in (
        _api(0, "Produce", 3, 13, raw=True),
        _api(1, "Fetch", 4, 18, raw=True),
        _api(2, "ListOffsets", 1, 11, sliced=True),
        _api(3, "Metadata", 0, 13, sliced=True, raw=True),
        _api(8, "OffsetCommit", 2, 10, sliced=True, services=GROUPS),
        _api(9, "OffsetFetch", 1, 10, sliced=True, services=GROUPS),
        _api(10, "FindCoordinator", 0, 6, sliced=True),
        _api(11, "JoinGroup", 0, 9, services=GROUPS),
        _api(12, "Heartbeat", 0, 4, services=GROUPS),
        _api(13, "LeaveGroup", 0, 5, services=GROUPS),
        _api(14, "SyncGroup", 0, 5, sliced=True, services=GROUPS),
        _api(15, "DescribeGroups", 0, 6, sliced=True, services=GROUPS),
        _api(16, "ListGroups", 0, 5, sliced=True, services=(GroupNames,)),
        _api(17, "SaslHandshake", 0, 1),
        _api(18, "ApiVersions", 0, 4, raw=True),
        _api(19, "CreateTopics", 0, 7, sliced=True),
        _api(20, "DeleteTopics", 1, 6, sliced=True),
        _api(21, "DeleteRecords", 0, 2, sliced=True),
        _api(22, "InitProducerId", 0, 5),
        _api(23, "OffsetForLeaderEpoch", 0, 4, sliced=True),
        _api(24, "AddPartitionsToTxn", 0, 5, sliced=True, services=TRANSACTIONS),
        _api(25, "AddOffsetsToTxn", 0, 4, services=(*TRANSACTIONS, *GROUPS)),
        _api(26, "EndTxn", 0, 5, services=TRANSACTIONS),
        _api(27, "WriteTxnMarkers", 1, 2, sliced=True, services=TRANSACTIONS),
        _api(28, "TxnOffsetCommit", 0, 5, sliced=True, services=(*TRANSACTIONS, *GROUPS)),
        _api(29, "DescribeAcls", 1, 3, sliced=True, services=(AccessRules,)),
        _api(30, "CreateAcls", 1, 3, sliced=True, services=(AccessRules,)),
        _api(31, "DeleteAcls", 1, 3, sliced=True, services=(AccessRules,)),
        _api(32, "DescribeConfigs", 1, 4, sliced=True, services=(DynamicConfigs,)),
        _api(33, "AlterConfigs", 0, 2, sliced=True, services=(DynamicConfigs,)),
        _api(34, "AlterReplicaLogDirs", 0, 2, sliced=True),
        _api(35, "DescribeLogDirs", 0, 5, sliced=True),
        _api(36, "SaslAuthenticate", 0, 2),
        _api(37, "CreatePartitions", 0, 3, sliced=True),
        _api(38, "CreateDelegationToken", 1, 3),
        _api(39, "RenewDelegationToken", 1, 2),
        _api(40, "ExpireDelegationToken", 1, 2),
        _api(41, "DescribeDelegationToken", 1, 3),
        _api(42, "DeleteGroups", 0, 2, sliced=True, services=(GroupNames,)),
        _api(43, "ElectLeaders", 0, 2, sliced=True),
        _api(44, "IncrementalAlterConfigs", 0, 1, sliced=True, services=(DynamicConfigs,)),
        _api(45, "AlterPartitionReassignments", 0, 1, sliced=True),
        _api(46, "ListPartitionReassignments", 0, 0),
        _api(47, "OffsetDelete", 0, 0, sliced=True, services=GROUPS),
        _api(48, "DescribeClientQuotas", 0, 1, sliced=True, services=(Quotas,)),
        _api(49, "AlterClientQuotas", 0, 1, sliced=True, services=(Quotas,)),
        _api(50, "DescribeUserScramCredentials", 0, 0, sliced=True, services=(Users,)),
        _api(51, "AlterUserScramCredentials", 0, 0, sliced=True, services=(Users,)),
        _api(55, "DescribeQuorum", 0, 2),
        _api(57, "UpdateFeatures", 0, 2),
        _api(60, "DescribeCluster", 0, 2),
        _api(61, "DescribeProducers", 0, 0, sliced=True),
        _api(65, "DescribeTransactions", 0, 0, sliced=True, services=TRANSACTIONS),
        _api(66, "ListTransactions", 0, 2, sliced=True, services=TRANSACTIONS),
        _api(68, "ConsumerGroupHeartbeat", 0, 1, sliced=True, services=GROUPS),
        _api(69, "ConsumerGroupDescribe", 0, 1, sliced=True, services=GROUPS),
        _api(71, "GetTelemetrySubscriptions", 0, 0, services=(ClientMetrics,)),
        _api(72, "PushTelemetry", 0, 0, services=(ClientMetrics,)),
        _api(74, "ListConfigResources", 0, 1, sliced=True, services=(DynamicConfigs,)),
        _api(75, "DescribeTopicPartitions", 0, 0, sliced=True, raw=True),
        _api(76, "ShareGroupHeartbeat", 1, 1, services=SHARES),
        _api(77, "ShareGroupDescribe", 1, 1, sliced=True, services=SHARES),
        _api(78, "ShareFetch", 1, 2, sliced=True, raw=True, services=SHARES),
        _api(79, "ShareAcknowledge", 1, 2, sliced=True, services=SHARES),
        _api(90, "DescribeShareGroupOffsets", 0, 1, sliced=True, services=SHARES),
        _api(91, "AlterShareGroupOffsets", 0, 0, sliced=True, services=SHARES),
        _api(92, "DeleteShareGroupOffsets", 0, 0, sliced=True, services=SHARES),
        _api(18502, "HalfmoonMessages", 0, 0, raw=True, own=True, any_of=(Messages, NackedMessages)),
        _api(18503, "HalfmoonUsers", 0, 0, raw=True, own=True, services=(Users,)),
        _api(18504, "HalfmoonSecurity", 0, 0, raw=True, own=True, services=(SecurityAnswers,)),
        _api(18506, "HalfmoonDelays", 0, 0, raw=True, own=True, services=(Delays,)),
        _api(18508, "HalfmoonSchedules", 0, 0, raw=True, own=True, services=(Schedules,)),
    )
}
