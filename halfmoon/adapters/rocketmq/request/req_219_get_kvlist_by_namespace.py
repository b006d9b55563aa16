"""GET_KVLIST_BY_NAMESPACE (219): all values of a namespace in the name server."""

from __future__ import annotations

import msgspec

from halfmoon.adapters.rocketmq.answers import Answer
from halfmoon.adapters.rocketmq.errors import Refused
from halfmoon.adapters.rocketmq.registry import Call, Port, request
from halfmoon.adapters.rocketmq.stored_values import stored_values
from halfmoon.remoting.codes import Code


@request(219, "GET_KVLIST_BY_NAMESPACE", port=Port.NAMES | Port.BROKER)
def handle(call: Call) -> Answer:
    namespace = call.text("namespace")
    values = stored_values(call).values(namespace)
    if not values:
        raise Refused(Code.QUERY_NOT_FOUND, f"No config item, Namespace: {namespace}")
    return Answer(body=msgspec.json.encode({"table": values}))
