"""GET_KV_CONFIG (101): a value in the name server, by namespace and key."""

from __future__ import annotations

from halfmoon.adapters.rocketmq.answers import Answer
from halfmoon.adapters.rocketmq.errors import Refused
from halfmoon.adapters.rocketmq.registry import Call, Port, request
from halfmoon.adapters.rocketmq.stored_values import stored_values
from halfmoon.remoting.codes import Code


@request(101, "GET_KV_CONFIG", port=Port.NAMES | Port.BROKER)
def handle(call: Call) -> Answer:
    namespace, key = call.text("namespace"), call.text("key")
    value = stored_values(call).values(namespace).get(key)
    if value is None:
        raise Refused(Code.QUERY_NOT_FOUND, f"No config item, Namespace: {namespace} Key: {key}")
    return Answer(fields={"value": value})
