"""ShareAcknowledge (79): say what became of acquired records, and nothing else (KIP-932).

Versions 1 and 2 (2: locks can be renewed, KIP-1222). The request belongs to the member's share session; with epoch −1
it ends it, and what the member still holds is available again. The answer leaves once all of it is durable, and once
it is certain to be this node's: a lock that is renewed, or a record that was finished before, is written nowhere.

Rules: KafkaApis.handleShareAcknowledgeRequest, SharePartitionManager.acknowledgeSessionUpdate.
"""

from __future__ import annotations

from typing import Any

from halfmoon.adapters.kafka.confirming import look, when_certain
from halfmoon.adapters.kafka.errors import code_of
from halfmoon.adapters.kafka.protocol import ShareAcknowledgeResponse, Slices
from halfmoon.adapters.kafka.registry import Context, Deferred
from halfmoon.adapters.kafka.share_groups import DONE, NOT_LEADER, Acknowledging, Ledgers, OneLedger, id_of, leaders_of
from halfmoon.errors import BrokerError, Fault
from halfmoon.services.share.service import ShareService
from halfmoon.services.share.sessions import FIRST_EPOCH, LAST_EPOCH

_Topic = ShareAcknowledgeResponse.ShareAcknowledgeTopicResponse
_Part = _Topic.PartitionData


_Leader = _Part.LeaderIdAndEpoch
_Node = ShareAcknowledgeResponse.NodeEndpoint


def handle(ctx: Context, request: Any) -> Slices[object]:
    return (yield from acknowledge(ctx, request, OneLedger(ctx.core, ctx.services.get(ShareService))))


def acknowledge(ctx: Context, request: Any, ledgers: Ledgers) -> Slices[object]:
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
        ctx, ledgers, request.group_id, request.member_id, options, may_renew=bool(request.is_renew_ack)
    )
    yield from given.take(request.topics)
    if request.share_session_epoch == LAST_EPOCH and shares.sessions.get(session.group, session.member) is session:
        shares.end_session(session)
    given.check_here()
    looks = [] if ledgers.confirm is None or not given.outcomes else [look(ledgers.confirm)]
    answer = yield from _answer(ctx, request, given, options.terms.lock_ms)
    return when_certain(looks, _when_durable(given, answer))


def _when_durable(given: Acknowledging, answer: Any) -> object:
    if not given.waits:
        return answer
    before = dict(given.outcomes)
    deferred = Deferred()

    def durable() -> None:
        if given.outcomes != before:
            for topic in answer.responses:
                for part in topic.partitions:
                    outcome = given.outcomes.get((id_of(topic.topic_id), part.partition_index), DONE)
                    part.error_code, part.error_message = outcome
        deferred.complete(answer)

    given.when_durable(durable)
    return deferred


def _answer(ctx: Context, request: Any, given: Acknowledging, lock_ms: int) -> Slices[Any]:
    leaders = leaders_of(ctx, (key for key, outcome in given.outcomes.items() if outcome.error_code == NOT_LEADER))
    responses = []
    for topic in request.topics:
        topic_id, parts = id_of(topic.topic_id), []
        for part in topic.partitions:
            outcome = given.outcomes.get((topic_id, part.partition_index), DONE)
            leader = leaders.get((topic_id, part.partition_index))
            leads = _Leader(leader_id=0, leader_epoch=0)
            if leader is not None:
                leads = _Leader(leader_id=leader.node.node_id, leader_epoch=leader.epoch)
            parts.append(
                _Part(
                    partition_index=part.partition_index, error_code=outcome.error_code, error_message=outcome.message,
                    current_leader=leads,
                )
            )  # fmt: skip
            yield
        responses.append(_Topic(topic_id=topic.topic_id, partitions=parts))
    return ShareAcknowledgeResponse(
        throttle_time_ms=0, error_code=0, error_message=None, acquisition_lock_timeout_ms=lock_ms, responses=responses,
        node_endpoints=[
            _Node(node_id=node.node_id, host=node.kafka[0], port=node.kafka[1])
            for node in {leader.node.node_id: leader.node for leader in leaders.values()}.values()
        ],
    )  # fmt: skip
