"""DeleteShareGroupOffsets (92): make a share group without members forget topics (KIP-932).

If it looks at them again it begins as `share.auto.offset.reset` says. Rules:
GroupCoordinatorService.deleteShareGroupOffsets.
"""

from __future__ import annotations

import uuid
from typing import Any

from halfmoon.adapters.kafka.durable import TELLING, each_of, refuse, tells_state
from halfmoon.adapters.kafka.errors import NONE, code_of
from halfmoon.adapters.kafka.lookup import topic_named
from halfmoon.adapters.kafka.protocol import DeleteShareGroupOffsetsResponse, Slices
from halfmoon.adapters.kafka.registry import Context
from halfmoon.errors import BrokerError
from halfmoon.services.share.service import ShareService

_Topic = DeleteShareGroupOffsetsResponse.DeleteShareGroupOffsetsResponseTopic


_fail_topics = each_of("responses")


def response() -> Any:
    return DeleteShareGroupOffsetsResponse(throttle_time_ms=0, error_code=NONE, error_message=None, responses=[])


def result(topic: str) -> Any:
    return _Topic(topic_name=topic, topic_id=None, error_code=NONE, error_message=None)


def fail(answer: Any, error: Exception) -> object:
    if answer.error_code != NONE and answer.error_code in TELLING:
        refuse(answer, error)
    return _fail_topics(answer, error)


@tells_state(fail)
def handle(ctx: Context, request: Any) -> Slices[object]:
    shares = ctx.services.get(ShareService)
    answer = response()
    try:
        shares.check_changeable(request.group_id)
    except BrokerError as error:
        refuse(answer, error)
        return answer
    for asked in request.topics:
        yield
        said = result(asked.topic_name)
        answer.responses.append(said)
        try:
            topic = topic_named(ctx.core, asked.topic_name)
            said.topic_id = uuid.UUID(bytes=topic.id)
            shares.forget(request.group_id, topic.partitions)
        except BrokerError as error:
            said.error_code, said.error_message = code_of(error), str(error)
    return answer
