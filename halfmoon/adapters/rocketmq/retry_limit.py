"""How often a message may be redelivered, as clients of RocketMQ say it.

A client says a number with each negative acknowledgement, also where its user has set none: 16 then
(DefaultMQPushConsumerImpl.getMaxReconsumeTimes). RocketMQ's broker obeys it all the same, so no group can have a limit
of its own there. Here 16 says nothing, and the group's retry policy counts (plugins/store/retry).
"""

from __future__ import annotations

from typing import Final

UNSTATED: Final = 16


def stated_limit(said: int) -> int:
    """The limit that a client's user has set; −1: none."""
    return -1 if said == UNSTATED else said
