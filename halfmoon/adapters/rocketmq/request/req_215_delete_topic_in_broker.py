"""DELETE_TOPIC_IN_BROKER (215): a topic and its messages."""

from __future__ import annotations

from halfmoon.adapters.rocketmq.answers import DONE, Answer
from halfmoon.adapters.rocketmq.registry import Call, request
from halfmoon.adapters.rocketmq.shards import Administered
from halfmoon.adapters.tcp.access import check_views
from halfmoon.remoting.codes import Code


@request(215, "DELETE_TOPIC_IN_BROKER", changes=True)
def handle(call: Call) -> None:
    name = call.text("topic")
    topic = call.node.find_topic(name)
    if topic is None:
        # Administrators ask each broker, and the first has deleted it for all.
        is_gone = Answer(Code.TOPIC_NOT_EXIST, remark=f"topic[{name[:300]}] not exist")
        call.when_known(is_gone if call.node.shards is None else DONE)
        return
    if call.rights is not None:
        check_views(call.rights, topic, call.core.catalog)
    number = topic.number

    def work(at: Administered) -> None:
        found = at.catalog.by_number.get(number)
        if found is not None:
            at.administration.delete_topic(found)

    shards = call.node.shards
    if shards is None:
        call.change(work)
        return
    call.hold_on()
    shards.changes.ask_deletion([topic], lambda: call.answer(lambda: call.change(work)))
