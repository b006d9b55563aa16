"""HALFMOON_DELAYS (18506): scheduled messages listed, counted, cancelled and rescheduled, for halfmoon.client.

RocketMQ has no such request; it can only recall a message whose handle its sender has kept (RECALL_MESSAGE). The body
and the answer's are JSON, as of HalfmoonDelays on Kafka's port (services/delays/questions.py), but a broker tells of
its own shard alone: a client asks every broker.
"""

from __future__ import annotations

from halfmoon.adapters.rocketmq.answers import Answer
from halfmoon.adapters.rocketmq.errors import Refused
from halfmoon.adapters.rocketmq.registry import Call, request
from halfmoon.core.steps import Slices
from halfmoon.errors import BrokerError, Fault
from halfmoon.remoting.codes import Code
from halfmoon.services.delays.service import Delays


@request(18506, "HALFMOON_DELAYS")
def handle(call: Call) -> None:
    service = call.services.find(Delays)
    if service is None:
        raise Refused(Code.REQUEST_CODE_NOT_SUPPORTED, "services.delays is off")

    def answered(encoded: bytes) -> None:
        call.after(call.core.log.end, Answer(body=encoded))

    call.work_out(_asked(call, service), answered)


def _asked(call: Call, service: Delays) -> Slices[bytes]:
    from halfmoon.adapters.tcp import delays  # some ms of each start, and few ask

    try:
        question = delays.decoded(call.command.body)
        rights = call.rights
        delays.check_named(question, rights)
        if rights is not None and delays.changes(question):
            rights = call.recorded(rights)
        return (yield from delays.worked_out(service, question, rights))
    except BrokerError as error:
        if error.fault is Fault.INVALID_REQUEST:  # which is SYSTEM_ERROR elsewhere, as RocketMQ's are
            raise Refused(Code.INVALID_PARAMETER, error.message) from None
        raise
