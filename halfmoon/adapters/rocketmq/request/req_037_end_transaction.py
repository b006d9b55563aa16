"""END_TRANSACTION (37): a producer commits a half message, rolls it back, or does not know yet (B31).

The half message is known by its producers' group and its UNIQ_KEY, which clients send as `msgId` and `transactionId`.
"""

from __future__ import annotations

from halfmoon.adapters.rocketmq.answers import DONE, Answer
from halfmoon.adapters.rocketmq.registry import Call, request

STATES = {8: b"commit", 12: b"rollback"}
"""MessageSysFlag.TRANSACTION_COMMIT_TYPE, …_ROLLBACK_TYPE; 0 is not known yet."""


@request(37, "END_TRANSACTION")
def handle(call: Call) -> Answer | None:
    state = STATES.get(call.number("commitOrRollback"))
    group = call.group("producerGroup")
    key = call.text("msgId", "") or call.text("transactionId")
    if state is None:
        return DONE
    call.node.ends.add(call, group, key, state)
    return None
