"""END_TRANSACTION (37): a producer commits a half message, rolls it back, or does not know yet (B31).

The half message is known by its producers' group and its UNIQ_KEY, which clients send as `msgId` and `transactionId`.
"""

from __future__ import annotations

from functools import partial

from halfmoon.adapters.rocketmq.answers import DONE, Answer, refusal
from halfmoon.adapters.rocketmq.ends import END_TOPIC
from halfmoon.adapters.rocketmq.names import HALF_TOPIC
from halfmoon.adapters.rocketmq.registry import Call, request
from halfmoon.adapters.rocketmq.shard_sending import when_made
from halfmoon.errors import BrokerError

STATES = {8: b"commit", 12: b"rollback"}
"""MessageSysFlag.TRANSACTION_COMMIT_TYPE, …_ROLLBACK_TYPE; 0 is not known yet."""


@request(37, "END_TRANSACTION")
def handle(call: Call) -> Answer | None:
    state = STATES.get(call.number("commitOrRollback"))
    group = call.group("producerGroup")
    key = call.text("msgId", "") or call.text("transactionId")
    if state is None:
        return DONE
    node, topic = call.node, call.core.catalog.topic
    if node.topics is not None and topic(END_TOPIC) is None and topic(HALF_TOPIC) is not None:
        # The first half message of all has wanted it, and it is being made for all shards. An end is said once only.
        when_made(call, node.topics, END_TOPIC, -1, lambda: _say(call, group, key, state))
        return None
    shards = node.shards
    if shards is not None and call.flag("fromTransactionCheck") and call.text("bname", "") != node.settings.broker_name:
        # It was asked for another broker (producers_elsewhere.py), or does not say for which.
        call.hold_on()
        shards.producers.end(
            call.text("bname", ""), node.ends.batch(group, key, state), partial(_heard, call, group, key, state)
        )
        return None
    node.ends.add(call, group, key, state)
    return None


def _heard(call: Call, group: str, key: str, state: bytes, error: BrokerError | None) -> None:
    """The others have. The half message may wait here all the same."""

    def answer() -> Answer | None:
        if error is not None and not call.command.is_oneway:
            return refusal(error)
        _say(call, group, key, state)
        return None

    call.answer(answer)


def _say(call: Call, group: str, key: str, state: bytes) -> None:
    ends = call.node.ends
    ends.add(call, group, key, state)
    ends.write()
