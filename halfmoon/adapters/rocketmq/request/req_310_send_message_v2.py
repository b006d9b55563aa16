"""SEND_MESSAGE_V2 (310): one message, its fields under one letter each (SendMessageRequestHeaderV2)."""

from __future__ import annotations

from halfmoon.adapters.rocketmq.answers import Answer
from halfmoon.adapters.rocketmq.registry import Call, request
from halfmoon.adapters.rocketmq.sending import Sent, send

MOST = 1 << 63


@request(310, "SEND_MESSAGE_V2")
def handle(call: Call) -> Answer | None:
    return send(call, read(call), batch=call.flag("m"))


def read(call: Call) -> Sent:
    """The fields, as fast as may be: this is what producers do all day. Raises Refused(INVALID_PARAMETER)."""
    fields = call.command.fields
    try:
        sent = Sent(
            fields["a"], fields["b"], int(fields["e"]), int(fields["f"]), int(fields["g"]), int(fields["h"]),
            fields.get("i", ""), int(fields.get("j", 0)), int(fields.get("l", -1)), fields.get("c", ""),
            int(fields.get("d", 4)),
        )  # fmt: skip
    except (KeyError, ValueError):
        return _checked(call)
    return sent if -MOST <= sent.born_ms < MOST and -MOST <= sent.flag < MOST else _checked(call)


def _checked(call: Call) -> Sent:
    """The same, which says what is wrong."""
    return Sent(
        group=call.text("a"),
        topic=call.text("b"),
        queue_id=call.number("e"),
        system_flags=call.number("f"),
        born_ms=call.number("g"),
        flag=call.number("h"),
        properties=call.text("i", ""),
        reconsume_times=call.number("j", 0),
        max_reconsume_times=call.number("l", -1),
        default_topic=call.text("c", ""),
        default_queues=call.number("d", 4),
    )
