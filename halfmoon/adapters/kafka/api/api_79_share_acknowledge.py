"""ShareAcknowledge (79): say what became of acquired records, and nothing else (KIP-932).

Versions 1 and 2 (2: locks can be renewed, KIP-1222). The request belongs to the member's share session; with epoch −1
it ends it, and what the member still holds is available again. The answer leaves once all of it is durable.

Rules: KafkaApis.handleShareAcknowledgeRequest, SharePartitionManager.acknowledgeSessionUpdate.
"""

from __future__ import annotations

from typing import Any

from halfmoon.adapters.kafka.errors import code_of
from halfmoon.adapters.kafka.protocol import ShareAcknowledgeResponse, Slices
from halfmoon.adapters.kafka.registry import Context
from halfmoon.adapters.kafka.share_groups import DONE, Acknowledging, id_of
from halfmoon.errors import BrokerError, Fault
from halfmoon.services.share.service import ShareService
from halfmoon.services.share.sessions import FIRST_EPOCH, LAST_EPOCH

_Topic = ShareAcknowledgeResponse.ShareAcknowledgeTopicResponse
_Part = _Topic.PartitionData


def handle(ctx: Context, request: Any) -> Slices[object]:
    shares = ctx.services.get(ShareService)
    try:
        if not request.group_id or not request.member_id:
            raise BrokerError(Fault.INVALID_REQUEST, "an acknowledgement needs a group and a member")
        if request.share_session_epoch == FIRST_EPOCH:
            raise BrokerError(Fault.INVALID_SHARE_SESSION_EPOCH)
        session = shares.sessions.use(request.group_id, request.member_id, request.share_session_epoch)
    except BrokerError as error:
        return ShareAcknowledgeResponse(
            throttle_time_ms=0, error_code=code_of(error), error_message=str(error), acquisition_lock_timeout_ms=0,
            responses=[], node_endpoints=[],
        )  # fmt: skip
    options = shares.options(request.group_id)
    given = Acknowledging(
        ctx, shares, request.group_id, request.member_id, options, may_renew=bool(request.is_renew_ack)
    )
    yield from given.take(request.topics)
    if request.share_session_epoch == LAST_EPOCH and shares.sessions.get(session.group, session.member) is session:
        shares.end_session(session)
    answer = yield from _answer(request, given, options.terms.lock_ms)
    if given.position is None:
        return answer

    def failed(error: Exception) -> object:
        given.failed(error)
        for topic in answer.responses:
            for part in topic.partitions:
                outcome = given.outcomes.get((id_of(topic.topic_id), part.partition_index), DONE)
                part.error_code, part.error_message = outcome
        return answer

    return ctx.after(given.position, answer, failed)


def _answer(request: Any, given: Acknowledging, lock_ms: int) -> Slices[Any]:
    responses = []
    for topic in request.topics:
        topic_id, parts = id_of(topic.topic_id), []
        for part in topic.partitions:
            outcome = given.outcomes.get((topic_id, part.partition_index), DONE)
            parts.append(
                _Part(
                    partition_index=part.partition_index, error_code=outcome.error_code, error_message=outcome.message,
                    current_leader=_Part.LeaderIdAndEpoch(leader_id=0, leader_epoch=0),
                )
            )  # fmt: skip
            yield
        responses.append(_Topic(topic_id=topic.topic_id, partitions=parts))
    return ShareAcknowledgeResponse(
        throttle_time_ms=0, error_code=0, error_message=None, acquisition_lock_timeout_ms=lock_ms, responses=responses,
        node_endpoints=[],
    )  # fmt: skip
