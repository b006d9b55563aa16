"""GET_CONSUMER_RUNNING_INFO (307): what a consumer is doing. The broker asks the client, and hands on what it says."""

from __future__ import annotations

from halfmoon.adapters.rocketmq.codes import Code
from halfmoon.adapters.rocketmq.command import Command
from halfmoon.adapters.rocketmq.errors import Refused
from halfmoon.adapters.rocketmq.registry import Answer, Call, request

CODE = 307


@request(CODE, "GET_CONSUMER_RUNNING_INFO")
def handle(call: Call) -> None:
    name, client_id = call.text("consumerGroup"), call.text("clientId")
    group = call.node.members.consumer_group(name)
    member = None if group is None else group.member(client_id)
    if member is None:
        raise Refused(Code.CONSUMER_NOT_ONLINE, f"the consumer [{client_id}] of group [{name}] is not online")

    def said(answer: Command | None) -> None:
        if answer is None:
            call.reply(Answer(Code.CONSUMER_NOT_ONLINE, remark=f"the consumer [{client_id}] has gone"))
        else:
            call.reply(Answer(answer.code, answer.fields, answer.remark, bytes(answer.body)))

    member.connection.ask(CODE, call.command.fields, b"", said)
