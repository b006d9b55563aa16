"""DELETE_KV_CONFIG (102): a value less in the name server."""

from __future__ import annotations

from halfmoon.adapters.rocketmq.registry import Call, Port, request
from halfmoon.adapters.rocketmq.stored_values import stored_values


@request(102, "DELETE_KV_CONFIG", port=Port.NAMES | Port.BROKER, changes=True)
def handle(call: Call) -> None:
    namespace, key = call.text("namespace"), call.text("key")
    values = stored_values(call)
    call.change(lambda _: values.delete(namespace, key))
