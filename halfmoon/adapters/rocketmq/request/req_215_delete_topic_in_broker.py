"""DELETE_TOPIC_IN_BROKER (215): a topic and its messages."""

from __future__ import annotations

from halfmoon.adapters.rocketmq.answers import DONE, Answer
from halfmoon.adapters.rocketmq.registry import Call, request
from halfmoon.adapters.tcp.access import check_views
from halfmoon.remoting.codes import Code


@request(215, "DELETE_TOPIC_IN_BROKER", changes=True)
def handle(call: Call) -> None:
    name = call.text("topic")
    topic = call.node.find_topic(name)
    if topic is None:
        call.when_known(Answer(Code.TOPIC_NOT_EXIST, remark=f"topic[{name[:300]}] not exist"))
        return
    if call.rights is not None:
        check_views(call.rights, topic, call.core.catalog)
    call.core.administration.delete_topic(topic)
    call.when_known(DONE)
