"""SaslAuthenticate (36): there is no SASL here (see SaslHandshake).

Rule: KafkaApis.handleSaslAuthenticateRequest, which is asked on a listener without SASL.
"""

from __future__ import annotations

from typing import Any

from halfmoon.adapters.kafka.durable import refuse
from halfmoon.adapters.kafka.protocol import SaslAuthenticateResponse
from halfmoon.adapters.kafka.registry import Context, api
from halfmoon.errors import BrokerError, Fault


@api(36, "SaslAuthenticate", 0, 2)
def sasl_authenticate(_ctx: Context, _request: Any) -> object:
    answer = SaslAuthenticateResponse()
    refuse(answer, BrokerError(Fault.ILLEGAL_SASL_STATE))
    return answer
