"""DELETE_KV_CONFIG (102): a value less in the name server."""

from __future__ import annotations

from halfmoon.adapters.rocketmq.answers import DONE
from halfmoon.adapters.rocketmq.registry import Call, Port, request
from halfmoon.adapters.rocketmq.stored_values import stored_values


@request(102, "DELETE_KV_CONFIG", port=Port.NAMES | Port.BROKER, changes=True)
def handle(call: Call) -> None:
    position = stored_values(call).delete(call.text("namespace"), call.text("key"))
    # What is so already may have become so by a request whose record is not durable yet.
    call.after(call.core.log.end if position is None else position, DONE)
