"""Groups of the new protocol (KIP-848) described: kafka-python's admin client cannot ask about them yet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafka.errors import IncompatibleBrokerVersion, UnsupportedVersionError
from kafka.protocol.api_message import ApiMessage

if TYPE_CHECKING:
    from kafka import KafkaAdminClient

_SCHEMAS = "halfmoon.adapters.kafka.schemas"
"""Where the messages' schemas lie as files."""


class ConsumerGroupDescribeRequest(ApiMessage, load_json=_SCHEMAS):  # type: ignore[call-arg]
    pass


class ConsumerGroupDescribeResponse(ApiMessage, load_json=_SCHEMAS):  # type: ignore[call-arg]
    pass


def describe_consumer_group(client: KafkaAdminClient, group: str) -> dict[str, Any] | None:
    """A group in the form of kafka-python's `describe_groups`; None if there is none of the new protocol by that name,
    or the broker is too old to know."""

    async def ask() -> Any:
        coordinator = await client._find_coordinator_id(group)
        request = ConsumerGroupDescribeRequest(group_ids=[group], include_authorized_operations=False)
        return await client._manager.send(request, node_id=coordinator)

    try:
        answer = client._manager.run(ask)
    except (IncompatibleBrokerVersion, UnsupportedVersionError):
        return None
    (found,) = answer.groups
    return _as_classic(found) if found.error_code == 0 else None


def _as_classic(group: Any) -> dict[str, Any]:
    return {
        "group_id": group.group_id,
        "group_state": group.group_state,
        "protocol_data": group.assignor_name,
        "error": None,
        "members": [
            {
                "member_id": member.member_id,
                "group_instance_id": member.instance_id,
                "client_id": member.client_id,
                "client_host": member.client_host,
                "member_assignment": {
                    "assigned_partitions": [
                        {"topic": topic.topic_name, "partitions": topic.partitions}
                        for topic in member.assignment.topic_partitions
                    ]
                },
            }
            for member in group.members
        ],
    }
