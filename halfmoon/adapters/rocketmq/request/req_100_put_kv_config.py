"""PUT_KV_CONFIG (100): a value in the name server, by namespace and key; `mqadmin updateTopic -o true` stores one."""

from __future__ import annotations

from halfmoon.adapters.rocketmq.registry import Call, Port, request
from halfmoon.adapters.rocketmq.stored_values import stored_values


@request(100, "PUT_KV_CONFIG", port=Port.NAMES | Port.BROKER, changes=True)
def handle(call: Call) -> None:
    namespace, key, value = call.text("namespace"), call.text("key"), call.text("value")
    values = stored_values(call)
    call.change(lambda _: values.put(namespace, key, value))
