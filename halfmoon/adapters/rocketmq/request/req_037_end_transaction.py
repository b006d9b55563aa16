"""END_TRANSACTION (37): a producer commits a half message, rolls it back, or does not know yet (B31).

What it says goes where every client can say it, `halfmoon.transactions`; the half message is known by its producers'
group and its UNIQ_KEY, which clients send as `msgId` and `transactionId`.
"""

from __future__ import annotations

from halfmoon.adapters.rocketmq.codes import Code
from halfmoon.adapters.rocketmq.errors import Refused
from halfmoon.adapters.rocketmq.registry import DONE, Call, request
from halfmoon.core.records import build_batch

END_TOPIC = "halfmoon.transactions"
STATES = {8: b"commit", 12: b"rollback"}
"""MessageSysFlag.TRANSACTION_COMMIT_TYPE, …_ROLLBACK_TYPE; 0 is not known yet."""


@request(37, "END_TRANSACTION")
def handle(call: Call) -> None:
    state = STATES.get(call.number("commitOrRollback"))
    group = call.text("producerGroup")
    key = call.text("msgId", "") or call.text("transactionId")
    if state is None:
        call.reply(DONE)
        return
    broker = call.broker
    topic = broker.topic(END_TOPIC)
    if topic is None:
        raise Refused(Code.SYSTEM_ERROR, "no half message was ever sent")
    headers = [("PGROUP", group.encode()), ("UNIQ_KEY", key.encode()), ("TRAN_STATE", state)]
    now_ms = broker.clock.wall_ms()
    produced = broker.append(
        topic.partitions[0], memoryview(bytearray(build_batch([(None, None, now_ms, headers)]))), now_ms
    )
    call.after(produced.position, DONE)
