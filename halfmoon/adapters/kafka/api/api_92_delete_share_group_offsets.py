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


def _fail(answer: Any, error: Exception) -> object:
    if answer.error_code != NONE and answer.error_code in TELLING:
        refuse(answer, error)
    return _fail_topics(answer, error)


@tells_state(_fail)
def handle(ctx: Context, request: Any) -> Slices[object]:
    shares = ctx.services.get(ShareService)
    response = DeleteShareGroupOffsetsResponse(throttle_time_ms=0, error_code=NONE, error_message=None, responses=[])
    try:
        shares.check_changeable(request.group_id)
    except BrokerError as error:
        refuse(response, error)
        return response
    for asked in request.topics:
        yield
        result = _Topic(topic_name=asked.topic_name, topic_id=None, error_code=NONE, error_message=None)
        response.responses.append(result)
        try:
            topic = topic_named(ctx.core, asked.topic_name)
            result.topic_id = uuid.UUID(bytes=topic.id)
            shares.forget(request.group_id, topic.partitions)
        except BrokerError as error:
            result.error_code, result.error_message = code_of(error), str(error)
    return response
