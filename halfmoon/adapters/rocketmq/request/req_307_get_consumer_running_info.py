"""GET_CONSUMER_RUNNING_INFO (307): what a consumer is doing. The broker asks the client, and hands on what it says."""

from __future__ import annotations

from halfmoon.adapters.rocketmq.answers import Answer
from halfmoon.adapters.rocketmq.errors import Refused
from halfmoon.adapters.rocketmq.registry import Call, request
from halfmoon.remoting.codes import Code
from halfmoon.remoting.command import Command

CODE = 307
LONGEST_REMARK = 1_000


@request(CODE, "GET_CONSUMER_RUNNING_INFO")
def handle(call: Call) -> None:
    name, client_id = call.group("consumerGroup"), call.text("clientId")
    group = call.node.members.consumer_group(name)
    member = None if group is None else group.member(client_id)
    if member is None:
        raise Refused(Code.CONSUMER_NOT_ONLINE, f"the consumer [{client_id}] of group [{name}] is not online")

    def said(answer: Command | None) -> None:
        if answer is None:
            call.reply(Answer(Code.CONSUMER_NOT_ONLINE, remark=f"the consumer [{client_id}] does not answer"))
        else:
            # What it says is handed on as far as every header can hold it.
            code = answer.code if 0 <= answer.code <= 0x7FFF else Code.SYSTEM_ERROR
            remark = None if answer.remark is None else answer.remark[:LONGEST_REMARK]
            call.reply(Answer(code, remark=remark, body=bytes(answer.body)))

    fields = {"consumerGroup": name, "clientId": client_id, "jstackEnable": str(call.flag("jstackEnable")).lower()}
    call.forget_content()
    member.connection.ask(CODE, fields, b"", said)
